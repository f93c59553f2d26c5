//! The section `[requests]`: the requests of which the process records where their time went.

use serde::{Deserialize, Serialize};

use crate::config::keys::{Key, Kind, LATENCY_US_MAX, hot};

/// The requests of which the process records where their time went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequestsConfig {
    /// One request in so many is recorded, by chance, with the time of each stage; `0` records none. `/requests` shows
    /// the latest. Low: more is seen, at the cost of memory and of two looks at the clock for each stage.
    pub sample_every: u64,
    /// The time from which a request is slow (us), counted from when the server turns to it until its answer is
    /// written. Slow requests are logged with their stages, at most 10 per second, and shown on `/requests`. `0` looks
    /// for none. Any other value records every request.
    pub slow_us: u64,
}

impl Default for RequestsConfig {
    fn default() -> Self {
        Self { sample_every: 1_000, slow_us: 0 }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    hot("requests.sample_every", Kind::Count(0, SAMPLE_EVERY_MAX)),
    hot("requests.slow_us", Kind::Count(0, LATENCY_US_MAX)),
];

/// The largest interval between sampled requests.
const SAMPLE_EVERY_MAX: i64 = 1_000_000_000;
