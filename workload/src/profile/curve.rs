//! Computes the cost of one op from its size and from how well the data compresses, and the least time
//! between the starts of jobs. The inputs are the points of a profile.

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::Figure;

/// The cost of one op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpProfile {
    /// The time from submission to completion of a single job, in ascending order of the uncompressed size.
    pub latency: Vec<LatencyPoint>,
    /// The time per page of a batch, in ascending order of the pages in flight. Empty for software on a core.
    #[serde(default)]
    pub batch: Vec<BatchPoint>,
    /// The dependence of the time on how well the data compresses. If empty, the data has no influence.
    #[serde(default)]
    pub ratio: Vec<RatioPoint>,
    /// The number of jobs of this op that run at the same time, if the op has engines of its own.
    pub engines: Option<Figure<u64>>,
    /// The number of jobs that the op's own engines hold, if they have a queue of their own.
    pub entries_total: Option<Figure<u64>>,
}

/// The latency of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyPoint {
    /// The uncompressed size of the job.
    pub bytes: u64,
    /// The latency of the job (ns).
    pub ns: Figure<u64>,
}

/// The cost of a 4 KiB page when several are in flight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchPoint {
    /// The number of pages that are submitted together.
    pub pages_in_flight: u64,
    /// The time of the batch divided by its pages (ns).
    pub ns_per_page: Figure<u64>,
}

/// The dependence of the time on how well the data compresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatioPoint {
    /// The compressed size as a percentage of the uncompressed size. The points are in ascending order.
    pub output_percent: u64,
    /// The time as a percentage of the time on the data of the latency curve. It applies to the interval
    /// between jobs, and to the part of a latency above the latency of the first point.
    pub time_percent: Figure<u64>,
}

impl OpProfile {
    /// Returns the latency of a single job on data like that of the measured curve. It is linear between two points.
    /// Beyond the last point the last slope continues, and below the first point the latency is that of the first
    /// point.
    pub fn latency(&self, bytes: u64) -> Nanos {
        Nanos(line(&self.latency, bytes).round() as u64)
    }

    /// Returns the latency of a single job on data whose compressed size is `output_percent` percent of the
    /// uncompressed size.
    pub fn latency_at(&self, bytes: u64, output_percent: f64) -> Nanos {
        let whole = line(&self.latency, bytes);
        let fixed = self.latency.first().map_or(0.0, |point| point.ns.value as f64);
        Nanos((fixed + (whole - fixed) * self.factor(output_percent)).round() as u64)
    }

    /// Returns the least time between the starts of two jobs on the whole device, even if engines are free.
    /// It is the time per 4 KiB page of the largest batch, scaled to `bytes`.
    pub fn interval(&self, bytes: u64) -> Nanos {
        Nanos(self.interval_ns(bytes).round() as u64)
    }

    /// Returns the least time between the starts of two jobs on data whose compressed size is `output_percent` percent
    /// of the uncompressed size.
    pub fn interval_at(&self, bytes: u64, output_percent: f64) -> Nanos {
        Nanos((self.interval_ns(bytes) * self.factor(output_percent)).round() as u64)
    }

    fn interval_ns(&self, bytes: u64) -> f64 {
        let page_ns = self.batch.last().map_or(0, |point| point.ns_per_page.value);
        page_ns as f64 * bytes as f64 / PAGE_BYTES
    }

    /// Returns the factor by which the compression ratio of the data changes the time of a job. It is 1 for the data of
    /// the latency curve. The result is linear between two points, and constant outside the range of the points.
    fn factor(&self, output_percent: f64) -> f64 {
        let at =
            |point: &RatioPoint| (point.output_percent as f64, point.time_percent.value as f64);
        let (Some(first), Some(last)) = (self.ratio.first(), self.ratio.last()) else { return 1.0 };
        let share = output_percent.clamp(at(first).0, at(last).0);
        let between = self.ratio.windows(2).map(|pair| (at(&pair[0]), at(&pair[1])));
        let percent = between
            .filter(|((low, _), (high, _))| (*low..=*high).contains(&share))
            .map(|((low, left), (high, right))| {
                left + (right - left) * (share - low) / (high - low)
            })
            .next();
        percent.unwrap_or(at(last).1) / 100.0
    }

    pub(super) fn figures_mut(&mut self) -> impl Iterator<Item = &mut Figure<u64>> {
        let latency = self.latency.iter_mut().map(|point| &mut point.ns);
        let batch = self.batch.iter_mut().map(|point| &mut point.ns_per_page);
        latency.chain(batch).chain(self.ratio.iter_mut().map(|point| &mut point.time_percent))
    }
}

/// Returns the time at `bytes` on the line through the points (ns). It is linear between two points. Beyond the last
/// point the last slope continues, and below the first point the time is that of the first point.
pub(super) fn line(points: &[LatencyPoint], bytes: u64) -> f64 {
    let after = points.iter().position(|point| bytes <= point.bytes);
    let index = after.unwrap_or(points.len().saturating_sub(1));
    let Some([left, right]) = index.checked_sub(1).and_then(|before| points.get(before..=index))
    else {
        return points.first().map_or(0.0, |point| point.ns.value as f64);
    };
    let slope =
        (right.ns.value as f64 - left.ns.value as f64) / (right.bytes as f64 - left.bytes as f64);
    left.ns.value as f64 + slope * (bytes as f64 - left.bytes as f64)
}

const PAGE_BYTES: f64 = 4_096.0;
