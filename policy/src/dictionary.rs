//! Decides which dictionary the values of a class are stored with, if any. It is a pure function of what a trial on
//! samples measured. It neither trains nor compresses, and does not know how samples were drawn.

/// The stored sizes of the same samples in several forms (bytes in total). No dictionary was trained on these samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Without a dictionary, in the form that [`crate::FormPolicy`] chooses.
    pub plain_bytes: u64,
    /// With the dictionary in use, if there is one.
    pub current_bytes: Option<u64>,
    /// With each new dictionary. One that costs more, because it is longer or written with more effort, comes after one
    /// that costs less.
    pub candidate_bytes: Vec<u64>,
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The current form stays.
    Keep,
    /// The candidate with this index is used from now on.
    Adopt(usize),
    /// New values are stored without a dictionary.
    Plain,
}

impl Trial {
    /// Returns the form for new values of the class.
    pub fn verdict(&self) -> Verdict {
        let in_use = self.current_bytes.unwrap_or(self.plain_bytes).min(self.plain_bytes);
        match self.best_candidate() {
            Some((index, bytes)) if saves(bytes, in_use, ADOPT_MARGIN) => Verdict::Adopt(index),
            _ if self.current_bytes.is_some_and(|bytes| bytes > self.plain_bytes) => Verdict::Plain,
            _ => Verdict::Keep,
        }
    }

    /// Returns the cheapest candidate that none after it beats by [`COST_MARGIN`], and its bytes.
    pub fn best_candidate(&self) -> Option<(usize, u64)> {
        let candidates = self.candidate_bytes.iter().copied().enumerate();
        candidates.reduce(|best, next| if saves(next.1, best.1, COST_MARGIN) { next } else { best })
    }
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

    fn trial(plain_bytes: u64, current_bytes: Option<u64>, candidates: &[u64]) -> Trial {
        Trial { plain_bytes, current_bytes, candidate_bytes: candidates.to_vec() }
    }

    #[test]
    fn a_dictionary_is_adopted_only_by_the_margin() {
        assert_eq!(trial(1_000, None, &[949]).verdict(), Verdict::Adopt(0));
        assert_eq!(trial(1_000, None, &[951]).verdict(), Verdict::Keep);
        assert_eq!(trial(1_000, None, &[]).verdict(), Verdict::Keep);
        assert_eq!(trial(1_000, Some(400), &[390]).verdict(), Verdict::Keep);
        assert_eq!(trial(1_000, Some(400), &[300]).verdict(), Verdict::Adopt(0));
    }

    #[test]
    fn a_dictionary_that_costs_more_must_save_more() {
        assert_eq!(trial(1_000, None, &[400, 395]).verdict(), Verdict::Adopt(0));
        assert_eq!(trial(1_000, None, &[400, 380]).verdict(), Verdict::Adopt(1));
        assert_eq!(trial(1_000, None, &[400, 500]).verdict(), Verdict::Adopt(0));
    }

    #[test]
    fn a_dictionary_that_no_longer_helps_is_given_up() {
        assert_eq!(trial(1_000, Some(1_001), &[]).verdict(), Verdict::Plain);
        assert_eq!(trial(1_000, Some(1_001), &[999]).verdict(), Verdict::Plain);
        assert_eq!(trial(1_000, Some(1_000), &[]).verdict(), Verdict::Keep);
        assert_eq!(trial(1_000, Some(2_000), &[700]).verdict(), Verdict::Adopt(0));
    }

    #[test]
    fn drift_is_relative_to_the_adoption() {
        assert!(!has_drifted(0.3, 0.33));
        assert!(has_drifted(0.3, 0.34));
    }
}
