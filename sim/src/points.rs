//! Replaces values of a specification's keys, and makes the points of sweeps over values.

use std::fmt;
use std::str::FromStr;

use crate::entries::ReadText;
use crate::{Entries, Recordings, entries};

/// A key and its value, written `key=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The key with its section, such as `hardware.pes`.
    pub key: String,
    /// The value, as a specification writes it.
    pub value: String,
}

/// A key and several values for it, written `key=a,b,c`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The key with its section.
    pub key: String,
    values: Vec<String>,
}

impl Assignment {
    /// Makes an assignment of `value` to `key`.
    pub fn new(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: value.to_owned() }
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
                Ok(Self { key: key.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err("write KEY=VALUE, such as hardware.pes=4".to_owned()),
        }
    }
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let valid = || "write KEY=A,B,C, such as hardware.pes=2,4,8".to_owned();
        let Assignment { key, value } = text.parse().map_err(|_| valid())?;
        let values: Vec<String> = value.split(',').map(|value| value.trim().to_owned()).collect();
        if values.iter().any(String::is_empty) { Err(valid()) } else { Ok(Self { key, values }) }
    }
}

/// Returns every combination of the sweeps' values. The values of the last sweep change fastest. Without sweeps there
/// is one empty point.
///
/// # Errors
/// Fails if there are too many combinations.
pub fn points(sweeps: &[Sweep]) -> Result<Vec<Vec<Assignment>>, String> {
    let mut points = vec![Vec::new()];
    for sweep in sweeps {
        if points.len() * sweep.values.len() > POINTS_MAX {
            return Err(format!("more than {POINTS_MAX} combinations"));
        }
        let more = |point: &Vec<Assignment>| {
            let point = point.clone();
            sweep.values.clone().into_iter().map(move |value| {
                let mut point = point.clone();
                point.push(Assignment { key: sweep.key.clone(), value });
                point
            })
        };
        points = points.iter().flat_map(more).collect();
    }
    Ok(points)
}

/// Returns the keys with the values of `point`, and loads the recording that they name. `read` returns its text.
///
/// # Errors
/// Returns the key that does not exist, or the problem of the recording.
pub fn set(
    mut entries: Entries,
    point: &[Assignment],
    known: &mut Recordings,
    read: ReadText<'_>,
) -> Result<Entries, String> {
    for Assignment { key, value } in point {
        entries.set(key, value).map_err(|error| error.to_string())?;
    }
    entries.record(known, read).map_err(|error| error.to_string())?;
    Ok(entries)
}

/// Returns the keys of a specification with the values of `point`, and loads its recording. The specification is
/// compiled in or a file.
///
/// # Errors
/// Returns the first error, with its place.
pub fn read_entries(
    spec: &str,
    point: &[Assignment],
    read: ReadText<'_>,
) -> Result<Entries, String> {
    let entries = entries(spec, read).map_err(|error| error.to_string())?;
    set(entries, point, &mut Recordings::default(), read)
}

const POINTS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_combine_and_the_last_changes_fastest() {
        let sweeps = ["a=1,2", "b=x,y"].map(|text| text.parse::<Sweep>().expect("valid"));
        let points = points(&sweeps).expect("four");
        let texts: Vec<String> = points
            .iter()
            .map(|point| point.iter().map(Assignment::to_string).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(texts, ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"]);
        let wide: Sweep = format!("a={}", vec!["1"; 101].join(",")).parse().expect("valid");
        assert!(super::points(&[wide.clone(), wide]).is_err());
    }

    #[test]
    fn half_an_assignment_is_refused() {
        for text in ["", "a", "=1", "a=", "a=1,,2"] {
            assert!(text.parse::<Sweep>().is_err(), "{text:?}");
        }
        let set: Assignment = "a.b = c".parse().expect("valid");
        assert_eq!((set.key.as_str(), set.value.as_str()), ("a.b", "c"));
    }
}
