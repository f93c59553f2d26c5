//! The successions of ops that a device runs in one request, and the time that it takes to hand data from one op to the
//! next.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::{Nanos, Op};

use super::Figure;
use super::curve::{LatencyPoint, line};

/// The successions that a device runs without giving the work back in between.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainsProfile {
    /// The pairs of ops of which the second may follow the first.
    pub successions: Figure<Vec<Succession>>,
    /// The part of an op's latency that an op which follows another does not pay (ns): the submission, the way to the
    /// device, and the notification.
    pub trip_ns: Figure<u64>,
    /// The time between the end of an op and the start of the next one, by the size of what is handed over.
    pub hand_over: Vec<LatencyPoint>,
}

/// Two ops of which the second follows the first. Its text form is `compress > encrypt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Succession {
    /// The op that hands its result over.
    pub first: Op,
    /// The op that takes the result.
    pub second: Op,
}

impl ChainsProfile {
    /// Returns the time to hand over `bytes` bytes.
    pub fn hand_over(&self, bytes: u64) -> Nanos {
        Nanos(line(&self.hand_over, bytes).round() as u64)
    }

    pub(super) fn figures_mut(&mut self) -> impl Iterator<Item = &mut Figure<u64>> {
        self.hand_over.iter_mut().map(|point| &mut point.ns).chain([&mut self.trip_ns])
    }
}

impl FromStr for Succession {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let op = |name: &str| Op::ALL.into_iter().find(|op| op.name() == name.trim());
        let pair = text.split_once('>').and_then(|(first, second)| op(first).zip(op(second)));
        let (first, second) = pair.ok_or_else(|| {
            format!("{text:?} is no succession; two ops, like compress > encrypt")
        })?;
        Ok(Self { first, second })
    }
}

impl TryFrom<String> for Succession {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Succession> for String {
    fn from(succession: Succession) -> Self {
        succession.to_string()
    }
}

impl fmt::Display for Succession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.first, self.second)
    }
}
