//! Decides which dictionary the values of a class are stored with, if any. It is a pure function of what a trial on
//! samples measured. It neither trains nor compresses, and does not know how samples were drawn.

/// The stored sizes of the same samples in several forms (bytes in total). No dictionary was trained on these samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Without a dictionary, in the form that [`crate::FormPolicy`] chooses.
    pub plain_bytes: u64,
    /// With the dictionary in use, if there is one.
    pub current_bytes: Option<u64>,
    /// With the best new dictionary, if there is one.
    pub candidate_bytes: Option<u64>,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The current form stays.
    Keep,
    /// The new dictionary is used from now on.
    Adopt,
    /// New values are stored without a dictionary.
    Plain,
}

impl Trial {
    /// Returns the form for new values of the class.
    pub fn verdict(&self) -> Verdict {
        let in_use = self.current_bytes.unwrap_or(self.plain_bytes).min(self.plain_bytes);
        match self.candidate_bytes {
            Some(bytes) if saves(bytes, in_use, ADOPT_MARGIN) => Verdict::Adopt,
            _ if self.current_bytes.is_some_and(|bytes| bytes > self.plain_bytes) => Verdict::Plain,
            _ => Verdict::Keep,
        }
    }
}

/// Returns whether a new dictionary, with which the samples take `bytes`, is better than one that costs less and with
/// which they take `cheaper_bytes`. One costs more if it is longer or written with more effort.
pub fn is_worth_more(bytes: u64, cheaper_bytes: u64) -> bool {
    saves(bytes, cheaper_bytes, COST_MARGIN)
}

/// Returns whether a dictionary in use has become worse: its share of the samples' bytes is now above the share at its
/// adoption by more than [`DRIFT_MARGIN`]. A new one is then trained.
pub fn has_drifted(share_adopted: f64, share_now: f64) -> bool {
    share_now > share_adopted * (1.0 + DRIFT_MARGIN)
}

fn saves(bytes: u64, than: u64, margin: f64) -> bool {
    (bytes as f64) < than as f64 * (1.0 - margin)
}

/// The share of the stored bytes that a new dictionary must save. Each dictionary takes memory, and values that were
/// stored with an old one stay as they are.
pub const ADOPT_MARGIN: f64 = 0.05;

/// The share of the stored bytes that a dictionary must save in place of one that costs less. A longer one takes
/// several times the memory and the caches, and more effort takes several times the time of a write.
pub const COST_MARGIN: f64 = 0.03;

/// The growth of the share of stored bytes that counts as a drift of the data.
pub const DRIFT_MARGIN: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(
        plain_bytes: u64,
        current_bytes: Option<u64>,
        candidate_bytes: Option<u64>,
    ) -> Verdict {
        Trial { plain_bytes, current_bytes, candidate_bytes }.verdict()
    }

    #[test]
    fn a_dictionary_is_adopted_only_by_the_margin() {
        assert_eq!(verdict(1_000, None, Some(949)), Verdict::Adopt);
        assert_eq!(verdict(1_000, None, Some(951)), Verdict::Keep);
        assert_eq!(verdict(1_000, None, None), Verdict::Keep);
        assert_eq!(verdict(1_000, Some(400), Some(390)), Verdict::Keep);
        assert_eq!(verdict(1_000, Some(400), Some(300)), Verdict::Adopt);
    }

    #[test]
    fn a_dictionary_that_costs_more_must_save_more() {
        assert!(!is_worth_more(395, 400));
        assert!(is_worth_more(380, 400));
        assert!(!is_worth_more(500, 400));
    }

    #[test]
    fn a_dictionary_that_no_longer_helps_is_given_up() {
        assert_eq!(verdict(1_000, Some(1_001), None), Verdict::Plain);
        assert_eq!(verdict(1_000, Some(1_001), Some(999)), Verdict::Plain);
        assert_eq!(verdict(1_000, Some(1_000), None), Verdict::Keep);
        assert_eq!(verdict(1_000, Some(2_000), Some(700)), Verdict::Adopt);
    }

    #[test]
    fn drift_is_relative_to_the_adoption() {
        assert!(!has_drifted(0.3, 0.33));
        assert!(has_drifted(0.3, 0.34));
    }
}
