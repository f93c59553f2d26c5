//! A number with the interval in which it lies, and intervals by resampling.

use serde::{Deserialize, Serialize};

/// A number and its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Makes the interval of a number that is known.
    pub fn exact(value: f64) -> Self {
        Self { value, low: value, high: value }
    }

    /// Makes the interval of an estimate whose resampled values are `draws`.
    pub(super) fn from_draws(value: f64, draws: impl IntoIterator<Item = f64>) -> Self {
        let mut draws: Vec<f64> = draws.into_iter().filter(|draw| draw.is_finite()).collect();
        if draws.is_empty() {
            return Self::exact(value);
        }
        draws.sort_by(f64::total_cmp);
        let at = |share: f64| draws[((draws.len() - 1) as f64 * share).round() as usize];
        Self { value, low: at(0.025).min(value), high: at(0.975).max(value) }
    }

    /// Moves both ends outwards by a distance from the value that sampling does not show.
    #[must_use]
    pub(super) fn widened(self, distance: f64) -> Self {
        Self { low: self.low - distance, high: self.high + distance, ..self }
    }

    /// Multiplies by a number that is known and positive.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_95_of_100_draws() {
        let found = Interval::from_draws(50.0, (0..=100).map(f64::from));
        assert_eq!(found, Interval { value: 50.0, low: 3.0, high: 98.0 });
        assert_eq!(Interval::from_draws(1.0, [f64::NAN]), Interval::exact(1.0));
    }

    #[test]
    fn the_value_is_always_inside() {
        let found = Interval::from_draws(5.0, [1.0, 2.0]);
        assert_eq!((found.low, found.high), (1.0, 5.0));
    }
}
