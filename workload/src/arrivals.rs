//! Computes the times at which the requests of an open loop are due. The module itself never waits.

use serde::{Deserialize, Serialize};
use units::{Nanos, Prng};

/// The distribution of the gaps between arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArrivalKind {
    /// Exponential gaps, as independent clients cause them.
    #[default]
    Poisson,
    /// Equal gaps.
    Uniform,
}

/// The successive due times of one stream of arrivals, counted from the stream's start.
#[derive(Clone, Debug)]
pub struct Arrivals {
    kind: ArrivalKind,
    gap_ns: f64,
    /// The last due time as a multiple of the mean gap. It is not stored in whole nanoseconds, because the
    /// rounding errors of equal gaps would add up.
    due_gaps: f64,
}

impl Arrivals {
    /// Makes a stream of `rate_per_s` arrivals per second whose first gap is shifted by `phase` of a gap (0 to 1), so
    /// that several uniform streams interleave.
    ///
    /// # Panics
    /// Panics if the rate is not a positive number.
    pub fn new(kind: ArrivalKind, rate_per_s: f64, phase: f64) -> Self {
        assert!(rate_per_s.is_finite() && rate_per_s > 0.0, "rate {rate_per_s} per second");
        let due_gaps = if kind == ArrivalKind::Uniform { -phase } else { 0.0 };
        Self { kind, gap_ns: 1e9 / rate_per_s, due_gaps }
    }

    /// Returns the next due time.
    pub fn next_due(&mut self, prng: &mut Prng) -> Nanos {
        self.due_gaps += match self.kind {
            ArrivalKind::Uniform => 1.0,
            ArrivalKind::Poisson => -(1.0 - prng.unit()).ln(),
        };
        Nanos((self.due_gaps * self.gap_ns) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        let (mut arrivals, mut prng) =
            (Arrivals::new(ArrivalKind::Poisson, 50_000.0, 0.0), Prng::new(3));
        let (mut last, mut sum, mut squares) = (0, 0.0, 0.0);
        let draws = 200_000;
        for _ in 0..draws {
            let due = arrivals.next_due(&mut prng).0;
            let gap = (due - last) as f64;
            (last, sum, squares) = (due, sum + gap, squares + gap * gap);
        }
        let mean = sum / f64::from(draws);
        let deviation = (squares / f64::from(draws) - mean * mean).sqrt();
        assert!((mean / 20_000.0 - 1.0).abs() < 0.01, "mean gap {mean} ns");
        assert!((deviation / 20_000.0 - 1.0).abs() < 0.02, "deviation {deviation} ns");
    }

    #[test]
    fn uniform_gaps_do_not_drift_and_streams_interleave() {
        let mut prng = Prng::new(0);
        let mut first = Arrivals::new(ArrivalKind::Uniform, 3.0, 0.0);
        let mut second = Arrivals::new(ArrivalKind::Uniform, 3.0, 0.5);
        let last = (0..3_000_000).map(|_| first.next_due(&mut prng)).last();
        assert!(last.is_some_and(|last| last.0.abs_diff(Nanos::secs(1_000_000).0) < 1_000));
        assert_eq!(second.next_due(&mut prng), Nanos(166_666_666));
    }
}
