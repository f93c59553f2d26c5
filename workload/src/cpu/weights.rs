//! Computes how certain the shares of weighted samples are. The measure is the number of independent samples
//! of equal weight that would give the same certainty. The counts of folded stacks may be samples, cycles or
//! nanoseconds, so their meaning is determined first.

/// The meaning of the counts of folded stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandsFor {
    /// Each count is a number of samples.
    Samples,
    /// Each sample counts as this many units, which is the greatest common divisor of the counts. The divisor
    /// is too large for the counts to be numbers of samples.
    Each(u64),
    /// The counts are too large for numbers of samples, and the units per sample are unknown.
    Unknown,
}

impl StandsFor {
    /// Returns the number of samples in `lines` lines with a total weight of `weight`. Each line counts as
    /// one sample if the meaning of the counts is unknown.
    pub(super) fn samples(self, lines: u64, weight: u64) -> u64 {
        match self {
            StandsFor::Samples => weight,
            StandsFor::Each(unit) => weight / unit,
            StandsFor::Unknown => lines,
        }
    }
}

/// The sums of the weights seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weights {
    samples: u64,
    sum: f64,
    /// The sum of the squared weights of single samples.
    squares: f64,
    divisor: u64,
    least: u64,
}

impl Weights {
    /// Adds `samples` samples with a total weight of `weight`. Adds nothing if either number is zero.
    pub(super) fn add(&mut self, samples: u64, weight: u64) {
        if samples == 0 || weight == 0 {
            return;
        }
        let weight_f64 = weight as f64;
        self.least = if self.samples == 0 { weight } else { self.least.min(weight) };
        self.samples = self.samples.saturating_add(samples);
        self.sum += weight_f64;
        self.squares += weight_f64 * weight_f64 / samples as f64;
        if self.divisor != 1 {
            self.divisor = greatest_common_divisor(self.divisor, weight);
        }
    }

    /// Returns the meaning of the counts on the lines of folded stacks.
    pub(super) fn stands_for(&self) -> StandsFor {
        match () {
            () if self.divisor >= PERIOD_MIN => StandsFor::Each(self.divisor),
            () if self.least >= PERIOD_MIN => StandsFor::Unknown,
            () => StandsFor::Samples,
        }
    }

    /// Returns Kish's effective size of a weighted sample: the squared sum of the weights, divided by the sum of the
    /// squared weights.
    pub(super) fn independent(&self) -> f64 {
        if self.squares > 0.0 { self.sum * self.sum / self.squares } else { 0.0 }
    }

    /// Returns the number of independent samples of folded stacks. It is the number of samples if the meaning of the
    /// counts is known. Otherwise each line counts as one sample, which gives the smallest possible number.
    pub(super) fn independent_folded(&self) -> f64 {
        match self.stands_for() {
            StandsFor::Samples => self.sum,
            StandsFor::Each(unit) => self.sum / unit as f64,
            StandsFor::Unknown => self.independent(),
        }
    }
}

fn greatest_common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}

/// The smallest period (events or nanoseconds per sample) of a sampler. Counts that are numbers of samples
/// have a smaller minimum and a smaller common divisor.
const PERIOD_MIN: u64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn weights_from(weights: impl IntoIterator<Item = u64>) -> Weights {
        let mut all = Weights::default();
        weights.into_iter().for_each(|weight| all.add(1, weight));
        all
    }

    #[test]
    fn counts_of_samples_are_told_from_periods() {
        let counts = weights_from([40, 30, 10, 20, 50_000]);
        assert_eq!(
            (counts.stands_for(), counts.independent_folded()),
            (StandsFor::Samples, 50_100.0)
        );
        let periods = weights_from([3_000_000, 1_000_000, 6_000_000]);
        let each = StandsFor::Each(1_000_000);
        assert_eq!((periods.stands_for(), periods.independent_folded()), (each, 10.0));
        assert_eq!(each.samples(3, 10_000_000), 10);
        let drifting = weights_from([1_000_003, 999_983, 2_000_001]);
        assert_eq!(drifting.stands_for(), StandsFor::Unknown);
        assert!(drifting.independent_folded() < 3.0, "{drifting:?}");
        assert_eq!(StandsFor::Unknown.samples(3, 4_000_000), 3);
    }

    #[test]
    fn samples_of_different_weight_say_less_than_as_many_alike() {
        assert_eq!(weights_from([5; 100]).independent(), 100.0);
        // One sample is as heavy as the other hundred together.
        assert!(
            (weights_from([1; 100].into_iter().chain([100])).independent() - 3.96).abs() < 0.01
        );
        let mut alike = Weights::default();
        alike.add(40, 200);
        alike.add(60, 300);
        assert_eq!((alike.independent(), Weights::default().independent()), (100.0, 0.0));
    }
}
