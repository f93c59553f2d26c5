//! Decides which results of one device queue are read back: all of the first results, then a random share that becomes
//! smaller with every good result. It reads nothing back itself.

use std::num::NonZeroU32;

use units::Prng;

/// Decides which results are read back.
pub(crate) struct ReadBackSampling {
    /// One result in this many is read back in the long run. With none, no result is read back.
    every: Option<NonZeroU32>,
    /// The number of good results since the queue opened, or since the last wrong result.
    good_results: u64,
    /// The number of results from one that is read back to the next.
    stride: u32,
    /// The number of results until the next one that is read back.
    until_next: u32,
}

impl ReadBackSampling {
    /// Creates a sampling that reads one result in `every` back, after the device has earned trust.
    pub(crate) fn new(every: Option<NonZeroU32>) -> Self {
        let stride = if every.is_some() { 1 } else { u32::MAX };
        Self { every, good_results: 0, stride, until_next: stride }
    }

    /// Returns whether results are read back at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.every.is_some()
    }

    /// Counts a result and returns whether a read-back is due. It stays due until `record_good` is called.
    #[inline]
    pub(crate) fn tick(&mut self) -> bool {
        let is_due = self.until_next <= 1;
        self.until_next -= u32::from(!is_due);
        is_due
    }

    /// Forgets everything that is known about the device.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.every);
    }

    /// Returns whether to skip the read-back of a result that is due for one. The larger the result, the more
    /// likely it is skipped, so that read-back costs the thread about the same for all sizes.
    pub(crate) fn skips(&self, work_bytes: usize, draws: &mut Prng) -> bool {
        let skipped = 1.0 - LONG_BYTES as f64 / work_bytes.max(1) as f64;
        self.is_on() && self.share() < 1.0 && draws.unit() < skipped
    }

    /// Counts the results up to this one as good, and draws the next result to be read back.
    pub(crate) fn record_good(&mut self, draws: &mut Prng) {
        self.good_results =
            self.good_results.saturating_add(u64::from(self.stride - self.until_next) + 1);
        self.stride = drawn(self.share(), draws);
        self.until_next = self.stride;
    }

    /// Returns the share of results that is currently read back.
    fn share(&self) -> f64 {
        let Some(every) = self.every else { return 0.0 };
        if self.good_results < FIRST_RESULTS {
            return 1.0;
        }
        let earned = EARNED_SCALE / (EARNED_SCALE + self.good_results as f64);
        earned.max(1.0 / f64::from(every.get()))
    }
}

/// Draws the number of results up to and including the next one that is read back. The number is distributed
/// geometrically, so that it cannot be predicted.
fn drawn(share: f64, draws: &mut Prng) -> u32 {
    if share >= 1.0 {
        return 1;
    }
    let missed = (1.0 - draws.unit()).ln() / (1.0 - share).ln();
    // The cast saturates.
    (missed as u32).saturating_add(1)
}

/// The number of a device's first results that are all read back.
pub(crate) const FIRST_RESULTS: u64 = 32;

/// The number of good results after which one result in two is read back. After nine times as many it is one in ten.
const EARNED_SCALE: f64 = 1_024.0;

/// The largest result whose read-back is never skipped (bytes). It holds the thread for about 0.2 ms.
const LONG_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn every(every: u32) -> ReadBackSampling {
        ReadBackSampling::new(NonZeroU32::new(every))
    }

    /// Returns which of the next results are read back. All of them are good.
    fn read_back(sampling: &mut ReadBackSampling, results: usize, draws: &mut Prng) -> Vec<usize> {
        (0..results)
            .filter(|_| {
                let is_due = sampling.tick();
                if is_due {
                    sampling.record_good(draws);
                }
                is_due
            })
            .collect()
    }

    #[test]
    fn the_first_results_are_all_read_back() {
        let (mut sampling, mut draws) = (every(1_000), Prng::new(1));
        let first = FIRST_RESULTS as usize;
        assert_eq!(read_back(&mut sampling, first, &mut draws), (0..first).collect::<Vec<_>>());
        read_back(&mut sampling, 50_000, &mut draws);
        sampling.restart();
        assert_eq!(read_back(&mut sampling, first, &mut draws).len(), first, "after a restart too");
    }

    #[test]
    fn the_share_falls_with_trust_to_what_is_configured() {
        let (mut sampling, mut draws) = (every(1_000), Prng::new(2));
        let mut shares = Vec::new();
        for results in [1_024, 8_192, 1 << 20, 1 << 20] {
            let count = read_back(&mut sampling, results, &mut draws).len();
            shares.push(count as f64 / results as f64);
        }
        let bounds = [(0.60, 0.80), (0.12, 0.30), (0.003, 0.009), (0.0008, 0.0013)];
        for (share, (least, most)) in shares.iter().zip(bounds) {
            assert!((least..most).contains(share), "{shares:?}");
        }
    }

    #[test]
    fn a_period_of_faults_does_not_hide_between_samples() {
        let (mut sampling, mut draws) = (every(100), Prng::new(3));
        read_back(&mut sampling, 1 << 20, &mut draws);
        let sampled = read_back(&mut sampling, 1 << 20, &mut draws);
        for phase in 0..100 {
            let met = sampled.iter().filter(|index| *index % 100 == phase).count();
            assert!(met > 50, "{met} of {} samples fall on phase {phase}", sampled.len());
        }
    }

    #[test]
    fn one_in_one_reads_all_back_and_none_nothing() {
        let mut draws = Prng::new(4);
        assert_eq!(read_back(&mut every(1), 10_000, &mut draws).len(), 10_000);
        assert_eq!(read_back(&mut every(0), 10_000, &mut draws).len(), 0);
    }

    #[test]
    fn long_results_are_spared_only_after_the_first() {
        let (mut sampling, mut draws) = (every(1_000), Prng::new(5));
        assert!(!sampling.skips(64 << 20, &mut draws));
        read_back(&mut sampling, 1_000, &mut draws);
        let skipped = (0..1_000).filter(|_| sampling.skips(8 * LONG_BYTES, &mut draws)).count();
        assert!((800..950).contains(&skipped), "{skipped}");
        assert!(!sampling.skips(LONG_BYTES, &mut draws));
    }
}
