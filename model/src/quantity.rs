//! A parameter with its uncertainty and its origin.

use std::fmt;

use statrs::distribution::{ContinuousCDF, Normal};

use crate::parameters::{BadParameter, Symbol};

/// The origin of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provenance {
    /// The number was measured here.
    Measured,
    /// The user gave the number in a file, a flag, or a specification sheet.
    Configured,
    /// The number is a default, which was neither measured nor given.
    Assumed,
}

impl Provenance {
    /// Returns the word for this origin in files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Provenance::Measured => "measured",
            Provenance::Configured => "configured",
            Provenance::Assumed => "assumed",
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The values that a parameter may have instead of the stated value.
#[derive(Clone, Debug, PartialEq)]
pub enum Spread {
    /// The parameter has no other value.
    Exact,
    /// A 95 % interval around the stated value, which is the median. The distribution is half of a normal
    /// distribution on each side, whose width fits that side. It is cut off at the parameter's range.
    Interval {
        /// The lower end. 2.5 % of the values lie below it.
        low: f64,
        /// The upper end. 2.5 % of the values lie above it.
        high: f64,
    },
    /// Any value from `low` to `high`. All values have the same probability.
    Range {
        /// The lowest value.
        low: f64,
        /// The highest value.
        high: f64,
    },
    /// These values with the same probability, in ascending order. They may come from a bootstrap. See
    /// [`Quantity::with_draws`].
    Draws(Vec<f64>),
}

/// A parameter's value, its uncertainty and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// The best single value.
    pub stated: f64,
    /// The values that the parameter may have instead.
    pub spread: Spread,
    /// The origin of the value.
    pub provenance: Provenance,
}

impl Quantity {
    /// Makes an exact value.
    pub const fn exact(stated: f64, provenance: Provenance) -> Self {
        Self { stated, spread: Spread::Exact, provenance }
    }

    /// Makes a value with its 95 % interval.
    pub const fn within(low: f64, stated: f64, high: f64, provenance: Provenance) -> Self {
        Self { stated, spread: Spread::Interval { low, high }, provenance }
    }

    /// Makes a range in which all values have the same probability. The stated value is the middle.
    pub const fn range(low: f64, high: f64, provenance: Provenance) -> Self {
        let stated = low + (high - low) / 2.0;
        Self { stated, spread: Spread::Range { low, high }, provenance }
    }

    /// Makes a distribution of equally likely values. The stated value is their median. An empty list gives a quantity
    /// that every check refuses.
    pub fn with_draws(mut draws: Vec<f64>, provenance: Provenance) -> Self {
        draws.sort_unstable_by(f64::total_cmp);
        let stated = draws.get(draws.len() / 2).copied().unwrap_or(f64::NAN);
        Self { stated, spread: Spread::Draws(draws), provenance }
    }

    /// Refuses values outside the symbol's range, and spreads that do not contain the stated value.
    pub fn check(&self, symbol: Symbol) -> Result<(), BadParameter> {
        symbol.check(self.stated)?;
        match &self.spread {
            Spread::Exact => Ok(()),
            Spread::Interval { low, high } | Spread::Range { low, high } => {
                symbol.check(*low)?;
                symbol.check(*high)?;
                let holds = *low <= self.stated && self.stated <= *high && high.is_finite();
                let text = || format!("{low} to {high} around {}", self.stated);
                let valid = "a finite interval that holds the stated value";
                if holds { Ok(()) } else { Err(BadParameter::new(symbol.name(), text(), valid)) }
            }
            Spread::Draws(draws) => draws.iter().try_for_each(|value| symbol.check(*value)),
        }
    }

    /// Returns the value below which the fraction `u` in [0, 1] of the spread lies. The value is limited to the
    /// symbol's range.
    pub(crate) fn quantile(&self, symbol: Symbol, u: f64) -> f64 {
        let value = match &self.spread {
            Spread::Exact => self.stated,
            Spread::Interval { low, high } => {
                let side = if u < 0.5 { self.stated - low } else { high - self.stated };
                let z = |u| Normal::standard().inverse_cdf(u).clamp(-Z_MAX, Z_MAX);
                self.stated + z(u) / z(0.975) * side
            }
            Spread::Range { low, high } => low + (high - low) * u,
            Spread::Draws(draws) => {
                let index = (u * draws.len() as f64) as usize;
                draws.get(index.min(draws.len().saturating_sub(1))).copied().unwrap_or(self.stated)
            }
        };
        let (lowest, highest) = symbol.range();
        value.clamp(lowest, highest)
    }
}

/// The largest distance from the mean, in standard deviations. Of draws of 53 bits, only 0 and 1 exceed it.
const Z_MAX: f64 = 9.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_its_quantiles_on_either_side() {
        let quantity = Quantity::within(80.0, 100.0, 200.0, Provenance::Measured);
        let at = |u| quantity.quantile(Symbol::L, u).round();
        assert_eq!([0.025, 0.5, 0.975].map(at), [80.0, 100.0, 200.0]);
        let near_one = Quantity::within(0.8, 0.95, 1.0, Provenance::Measured);
        assert_eq!(near_one.quantile(Symbol::Alpha, 0.999), 1.0);
    }

    #[test]
    fn draws_and_ranges_have_their_quantiles() {
        let draws = Quantity::with_draws(vec![3.0, 1.0, 2.0, 4.0], Provenance::Measured);
        assert_eq!(
            [0.1, 0.3, 0.6, 0.9].map(|u| draws.quantile(Symbol::Q, u)),
            [1.0, 2.0, 3.0, 4.0]
        );
        let range = Quantity::range(10.0, 20.0, Provenance::Assumed);
        assert_eq!((range.stated, range.quantile(Symbol::Q, 0.25)), (15.0, 12.5));
    }

    #[test]
    fn a_spread_must_be_valid_and_hold_its_value() {
        let check = |quantity: Quantity| quantity.check(Symbol::Alpha).expect_err("refused");
        let above = check(Quantity::within(0.1, 0.2, 1.2, Provenance::Configured));
        assert_eq!(above.to_string(), "alpha is 1.2; it must be a number from 0 to 1");
        let outside = check(Quantity::within(0.3, 0.2, 0.4, Provenance::Configured));
        assert!(outside.to_string().starts_with("alpha is 0.3 to 0.4 around 0.2; "), "{outside}");
        check(Quantity::with_draws(Vec::new(), Provenance::Measured));
        check(Quantity::with_draws(vec![0.1, f64::NAN], Provenance::Measured));
    }
}
