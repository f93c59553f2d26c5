//! Page faults that a device has to wait for: how often they come, and how long they take. A draw is made from a
//! profile's points. The caller decides whether jobs suffer them.

use serde::{Deserialize, Serialize};
use units::{Nanos, Prng};

use super::Figure;

/// How often a job meets a page fault, and how long such faults took, if they were counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultTail {
    /// Jobs of a million that meet one, where buffers were not touched beforehand.
    pub jobs_per_million: Figure<u64>,
    /// Faults by how long each took.
    pub faults: Vec<FaultBucket>,
    /// The mean (us), if it is published.
    pub mean_us: Option<Figure<u64>>,
    /// The longest (us), if it is published.
    pub max_us: Option<Figure<u64>>,
}

/// Faults that took from one to another time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultBucket {
    /// At least (us).
    pub from_us: u64,
    /// Less than (us).
    pub to_us: u64,
    /// The number of such faults.
    pub count: Figure<u64>,
}

impl FaultTail {
    /// Returns the time that the next job waits for a page, which is mostly none. Within a bucket every time is as
    /// likely, up to the longest that is published.
    pub fn draw(&self, random: &mut Prng) -> Nanos {
        if random.below(1_000_000) >= self.jobs_per_million.value {
            return Nanos(0);
        }
        let total: u64 = self.faults.iter().map(|bucket| bucket.count.value).sum();
        if total == 0 {
            return Nanos(0);
        }
        let mut index = random.below(total);
        for bucket in &self.faults {
            if index < bucket.count.value {
                let longest_us = self.max_us.as_ref().map_or(u64::MAX, |max| max.value);
                let end_us = bucket.to_us.min(longest_us.max(bucket.from_us + 1));
                let span_ns = (end_us - bucket.from_us) * 1_000;
                return Nanos(bucket.from_us * 1_000 + random.below(span_ns));
            }
            index -= bucket.count.value;
        }
        Nanos(0)
    }
}
