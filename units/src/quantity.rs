//! Byte counts and durations as types. They can be parsed from and printed in the forms that people write in
//! configuration and read in reports.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// Returns `count` KiB.
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    /// Returns `count` MiB.
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// Returns the count as a `usize`, which saturates if `usize` is narrower.
    pub const fn as_usize(self) -> usize {
        if self.0 > usize::MAX as u64 { usize::MAX } else { self.0 as usize }
    }
}

/// A duration, or an instant relative to the start of its owner (ns).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Returns `count` microseconds.
    pub const fn micros(count: u64) -> Self {
        Self(count * 1_000)
    }

    /// Returns `count` milliseconds.
    pub const fn millis(count: u64) -> Self {
        Self(count * 1_000_000)
    }

    /// Returns `count` seconds.
    pub const fn secs(count: u64) -> Self {
        Self(count * 1_000_000_000)
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl FromStr for Nanos {
    type Err = NotATime;

    /// Parses one or several numbers with their units: `500ms`, `10s`, `2m 30s`.
    fn from_str(text: &str) -> Result<Self, NotATime> {
        humantime::parse_duration(text)
            .map(Nanos::from)
            .map_err(|error| NotATime(error.to_string()))
    }
}

/// The error for a text that is not a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotATime(String);

impl fmt::Display for NotATime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write 500ms, 10s or 2m", self.0)
    }
}

impl std::error::Error for NotATime {}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl From<Nanos> for Duration {
    fn from(value: Nanos) -> Duration {
        Duration::from_nanos(value.0)
    }
}

impl From<Duration> for Nanos {
    fn from(value: Duration) -> Nanos {
        Nanos(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The error for a text that is not a byte count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAByteCount {
    /// The text.
    pub text: String,
    /// The problem with the text. A message prints it after the text.
    pub problem: &'static str,
}

impl fmt::Display for NotAByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}; give a size {}", self.text, self.problem, ByteCount::FORMS)
    }
}

impl std::error::Error for NotAByteCount {}

impl ByteCount {
    /// The valid forms of a byte count. A message prints them after "a size".
    pub const FORMS: &str = "in bytes or with k, m or g (4096, 64KiB, 1m, 2GiB)";

    /// Returns advice if the text has a unit that the next version will refuse. `KB`, `MB` and `GB` are powers of 1024
    /// here, like memcached's `k`, `m` and `g`. Elsewhere they are powers of ten.
    pub fn outdated_unit(text: &str) -> Option<String> {
        let text = text.trim();
        let (number, unit) =
            text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
        let is_outdated = ["kb", "mb", "gb"].contains(&unit.to_ascii_lowercase().as_str());
        let letter = unit.get(..1).filter(|_| is_outdated && text.parse::<Self>().is_ok())?;
        let current = format!("{}{}iB", number.trim_end(), letter.to_ascii_uppercase());
        Some(format!(
            "{text} is read as {current}; the next version will refuse it: write {current}"
        ))
    }
}

impl FromStr for ByteCount {
    type Err = NotAByteCount;

    /// Parses a number of bytes, or a whole number with a binary unit (`k` and `KiB` both mean 1024, as in memcached).
    /// Until the next version it also accepts the units that [`ByteCount::outdated_unit`] reports.
    fn from_str(text: &str) -> Result<Self, NotAByteCount> {
        let fail = |problem| NotAByteCount { text: text.to_owned(), problem };
        let trimmed = text.trim();
        let digits = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match trimmed[digits.len()..].to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => return Err(fail("has an unknown unit")),
        };
        let digits = digits.trim_end();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(fail("is not a whole number of bytes"));
        }
        let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift));
        count.map(ByteCount).ok_or_else(|| fail("is above 2^64 bytes"))
    }
}

impl fmt::Display for ByteCount {
    /// Writes the count in the largest binary unit that divides it exactly, so that parsing the text gives the same
    /// count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let exact =
            units.iter().find(|(shift, _)| self.0 != 0 && self.0.is_multiple_of(1 << shift));
        match exact {
            Some((shift, unit)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for ByteCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Count(u64),
            Text(String),
        }
        match Form::deserialize(deserializer)? {
            Form::Count(count) => Ok(ByteCount(count)),
            Form::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_round_trip_through_text() {
        for count in [0, 1, 1023, 1024, 1536, 1 << 20, 3 << 30, u64::MAX] {
            let printed = ByteCount(count).to_string();
            assert_eq!(printed.parse(), Ok(ByteCount(count)), "{printed}");
        }
    }

    #[test]
    fn errors_of_byte_counts_say_what_is_wrong() {
        for (text, problem) in [
            ("", "is not a whole number"),
            ("k", "is not a whole number"),
            ("-1", "is not a whole number"),
            ("1.5m", "is not a whole number"),
            ("12 parsecs", "has an unknown unit"),
            ("1TiB", "has an unknown unit"),
            ("99999999999g", "is above 2^64 bytes"),
            ("99999999999999999999", "is above 2^64 bytes"),
        ] {
            let error = text.parse::<ByteCount>().expect_err("refused").to_string();
            assert!(error.starts_with(&format!("{text:?} {problem}")), "{error}");
            assert!(error.ends_with(ByteCount::FORMS), "{error}");
        }
    }

    #[test]
    fn outdated_units_are_read_with_advice() {
        for (text, current) in [("1GB", "1GiB"), ("64 kb", "64KiB"), ("3mB", "3MiB")] {
            assert_eq!(text.parse::<ByteCount>(), current.parse());
            let advice = ByteCount::outdated_unit(text).expect("advice");
            assert!(advice.ends_with(&format!(": write {current}")), "{advice}");
        }
        for text in ["1GiB", "1g", "4096", "12b", "", "xGB", "GB"] {
            assert_eq!(ByteCount::outdated_unit(text), None, "{text:?}");
        }
    }
}
