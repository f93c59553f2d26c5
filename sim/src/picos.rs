//! Simulated time. Whole picoseconds, because a cycle of 2.4 GHz is no whole number of nanoseconds.

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// A duration, or an instant counted from the start of the run (ps); the longest is 213 days.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Picos(pub u64);

impl Picos {
    /// The longest time.
    pub const MAX: Self = Self(u64::MAX);

    /// `count` nanoseconds.
    pub const fn nanos(count: u64) -> Self {
        Self(count * 1_000)
    }

    /// `count` microseconds.
    pub const fn micros(count: u64) -> Self {
        Self(count * 1_000_000)
    }

    /// `count` milliseconds.
    pub const fn millis(count: u64) -> Self {
        Self(count * 1_000_000_000)
    }

    /// The nearest whole picosecond; negative numbers and NaN are none, more than [`Picos::MAX`] is that.
    pub fn from_ns(ns: f64) -> Self {
        Self((ns * 1e3 + 0.5) as u64)
    }

    /// The time as nanoseconds.
    pub fn as_ns(self) -> f64 {
        self.0 as f64 * 1e-3
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Picos {
    type Output = Self;
    /// Stops at [`Picos::MAX`].
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Picos {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_nanoseconds_becomes_a_time() {
        assert_eq!(Picos::from_ns(1.25), Picos(1_250));
        assert_eq!(Picos::from_ns(-1.0), Picos(0));
        assert_eq!(Picos::from_ns(f64::NAN), Picos(0));
        assert_eq!(Picos::from_ns(f64::INFINITY), Picos::MAX);
        assert_eq!(Picos::MAX + Picos(1), Picos::MAX);
    }
}
