//! Simulated time in whole picoseconds, because a cycle of 2.4 GHz is not a whole number of nanoseconds.

use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// A duration, or an instant counted from the start of the run (ps). The longest is 213 days.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Picos(pub u64);

impl Picos {
    /// The longest time.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns `count` nanoseconds.
    pub const fn nanos(count: u64) -> Self {
        Self(count * 1_000)
    }

    /// Returns `count` microseconds.
    pub const fn micros(count: u64) -> Self {
        Self(count * 1_000_000)
    }

    /// Returns `count` milliseconds.
    pub const fn millis(count: u64) -> Self {
        Self(count * 1_000_000_000)
    }

    /// Returns the time of `ns` nanoseconds, rounded to a whole picosecond. It is zero for negative numbers
    /// and NaN, and [`Picos::MAX`] for larger numbers.
    pub fn from_ns(ns: f64) -> Self {
        Self((ns * 1e3 + 0.5) as u64)
    }

    /// Returns the time in nanoseconds.
    pub fn as_ns(self) -> f64 {
        self.0 as f64 * 1e-3
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Picos {
    type Output = Self;
    /// Adds two times. The sum stops at [`Picos::MAX`].
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
