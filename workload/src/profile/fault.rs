//! Draws the page faults for which a device waits: how often they happen, and how long they take. The numbers come from
//! a profile. The caller decides whether jobs have such faults.

use serde::{Deserialize, Serialize};
use units::{Nanos, Prng};

use super::Figure;

/// The frequency of page faults per job, and the durations of the counted faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultTail {
    /// The number of jobs per million that have a page fault if their buffers were not touched beforehand.
    pub jobs_per_million: Figure<u64>,
    /// The counted faults by their duration.
    pub faults: Vec<FaultBucket>,
    /// The mean duration (us), if it is published.
    pub mean_us: Option<Figure<u64>>,
    /// The longest duration (us), if it is published.
    pub max_us: Option<Figure<u64>>,
}

/// The number of page faults whose duration is between two bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultBucket {
    /// The lower bound of the duration (us), included.
    pub from_us: u64,
    /// The upper bound of the duration (us), excluded.
    pub to_us: u64,
    /// The number of faults between the bounds.
    pub count: Figure<u64>,
}

impl FaultTail {
    /// Draws the time that the next job waits for a page, which is zero for most jobs. All durations within a bucket
    /// have the same probability, up to the longest published duration.
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
