//! The statistics of runs: a median with its range, the quantile of a sample, and the limit of a number.

use std::fmt;

/// A median and the range over runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least value.
    pub low: f64,
    /// The greatest value.
    pub high: f64,
    /// The number of values.
    pub count: usize,
}

impl Spread {
    /// Returns the spread of the finite values, or None if there is no finite value.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let (a, b) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(a, b), low, high, count: values.len() })
    }
}

/// Returns the value at this share of the values in ascending order. 0.5 is the upper median. Reorders the values.
///
/// # Panics
/// Panics if there are no values.
pub fn quantile<T: Copy + Ord>(values: &mut [T], share: f64) -> T {
    let rank = (values.len() as f64 * share) as usize;
    *values.select_nth_unstable(rank.min(values.len() - 1)).1
}

/// A limit that a number must keep to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// The number is at most this.
    AtMost(f64),
    /// The number is below this.
    Below(f64),
    /// The number is at least this.
    AtLeast(f64),
    /// The number is above this.
    Above(f64),
}

impl Limit {
    /// Returns whether a number keeps to the limit.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Limit::AtMost(most) => value <= most,
            Limit::Below(end) => value < end,
            Limit::AtLeast(least) => value >= least,
            Limit::Above(end) => value > end,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::AtMost(most) => write!(f, "<= {most}"),
            Limit::Below(end) => write!(f, "< {end}"),
            Limit::AtLeast(least) => write!(f, ">= {least}"),
            Limit::Above(end) => write!(f, "> {end}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_ignores_values_that_are_not_finite() {
        let spread =
            Spread::from_values([3.0, f64::NAN, 1.0, 2.0, f64::INFINITY]).expect("three values");
        assert_eq!(spread, Spread { median: 2.0, low: 1.0, high: 3.0, count: 3 });
        assert_eq!(Spread::from_values([1.0, 2.0]).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::from_values([f64::NAN]), None);
    }
}
