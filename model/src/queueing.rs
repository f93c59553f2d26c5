//! The time for which offloads queue between host and accelerator. It is the mean Q, or a distribution over offloads.
//! With a distribution, the sum of the offloads' times (Σ Q_i) takes the place of the number of offloads times the mean
//! (n Q), as in \[Accelerometer\] section 3, after (1).

use crate::parameters::{BadParameter, Symbol};
use crate::quantity::{Provenance, Quantity, Spread};

const DRAWS_MAX: usize = 1 << 20;

/// The time for which offloads queue (cycles).
#[derive(Clone, Debug, PartialEq)]
pub enum Queueing {
    /// The mean queueing time of an offload (cycles), Q.
    Mean(f64),
    /// The cycles that single offloads queued, in ascending order. See [`Queueing::from_offloads`].
    Offloads(Vec<f64>),
}

impl Queueing {
    /// Makes a distribution from the cycles that single offloads queued.
    pub fn from_offloads(mut cycles: Vec<f64>) -> Result<Self, BadParameter> {
        if cycles.is_empty() || cycles.len() > DRAWS_MAX {
            let valid = "1 to 1048576 offloads' cycles";
            return Err(BadParameter::new(
                "Q",
                format!("{} offloads' cycles", cycles.len()),
                valid,
            ));
        }
        cycles.iter().try_for_each(|value| Symbol::Q.check(*value))?;
        cycles.sort_unstable_by(f64::total_cmp);
        Ok(Self::Offloads(cycles))
    }

    /// Returns the sum of the queueing times of `n` offloads (cycles), Σ Q_i. If the distribution has more or fewer
    /// offloads, the sum is scaled to `n`.
    pub fn total(&self, n: f64) -> f64 {
        n * self.mean()
    }

    /// Returns the mean queueing time of an offload (cycles), Q.
    pub fn mean(&self) -> f64 {
        match self {
            Queueing::Mean(cycles) => *cycles,
            Queueing::Offloads(cycles) => cycles.iter().sum::<f64>() / cycles.len() as f64,
        }
    }

    /// Returns the fraction of offloads that queue for less than `limit` cycles.
    pub fn share_below(&self, limit: f64) -> f64 {
        match self {
            Queueing::Mean(cycles) => f64::from(u8::from(*cycles < limit)),
            Queueing::Offloads(cycles) => {
                cycles.partition_point(|value| *value < limit) as f64 / cycles.len() as f64
            }
        }
    }

    /// Returns the queueing time (Q) as a parameter. The value is the mean, with its standard error if it comes from a
    /// distribution.
    pub fn quantity(&self, provenance: Provenance) -> Quantity {
        let stated = self.mean();
        let spread = match self {
            Queueing::Mean(_) => Spread::Exact,
            Queueing::Offloads(cycles) => {
                let count = cycles.len() as f64;
                let squares: f64 = cycles.iter().map(|value| (value - stated).powi(2)).sum();
                let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
                let reach = 1.96 * error;
                Spread::Interval { low: (stated - reach).max(0.0), high: stated + reach }
            }
        };
        Quantity { stated, spread, provenance }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_sums_and_splits() {
        let queueing = Queueing::from_offloads(vec![400.0, 0.0, 0.0, 0.0]).expect("valid");
        assert_eq!(queueing.mean(), 100.0);
        assert_eq!(queueing.total(8.0), 800.0);
        assert_eq!(queueing.share_below(1.0), 0.75);
        assert_eq!(queueing.share_below(400.0), 0.75);
        assert_eq!(Queueing::Mean(100.0).share_below(100.0), 0.0);
        let quantity = queueing.quantity(Provenance::Measured);
        assert_eq!(quantity.stated, 100.0);
        // The standard deviation is 200 and the standard error 100. The interval is cut off at zero cycles.
        assert_eq!(quantity.spread, Spread::Interval { low: 0.0, high: 296.0 });
    }

    #[test]
    fn bad_distributions_are_refused() {
        assert!(Queueing::from_offloads(Vec::new()).is_err());
        let error = Queueing::from_offloads(vec![1.0, f64::NAN]).expect_err("not a number");
        assert_eq!(error.to_string(), "Q is NaN; it must be a number of at least 0 (cycles)");
    }
}
