//! The cost of one op as a function of its size and of how well the data compresses, and the pace at which jobs can
//! follow. It is arithmetic on a profile's points, and knows no device.

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::Figure;

/// The cost of one op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpProfile {
    /// Time from submission to completion of a lone job, by uncompressed size; sizes rise.
    pub latency: Vec<LatencyPoint>,
    /// Time per page when several are inside; counts rise. Software on a core has none.
    #[serde(default)]
    pub batch: Vec<BatchPoint>,
    /// The dependence of the time on the data. Without points it does not depend on them.
    #[serde(default)]
    pub ratio: Vec<RatioPoint>,
}

/// The latency of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyPoint {
    /// The uncompressed side of the job.
    pub bytes: u64,
    /// Its latency.
    pub ns: Figure<u64>,
}

/// The cost of a 4 KiB page when several are inside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchPoint {
    /// Pages submitted together.
    pub pages_in_flight: u64,
    /// Time of the batch over its pages.
    pub ns_per_page: Figure<u64>,
}

/// The dependence of the time on how well the data compresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RatioPoint {
    /// The compressed side over the uncompressed one, in percent; shares rise.
    pub output_percent: u64,
    /// Time over that of the latency curve, in percent: of what a job takes beyond the curve's first point, and of the
    /// device's pace.
    pub time_percent: Figure<u64>,
}

impl OpProfile {
    /// Returns the latency of a lone job on the data that the curve was measured with. It is linear between two points,
    /// goes on beyond the last with the last slope, and is the first point's below it.
    pub fn latency(&self, bytes: u64) -> Nanos {
        Nanos(line(&self.latency, bytes).round() as u64)
    }

    /// Returns the latency of a lone job on data whose compressed side is so many percent of the other.
    pub fn latency_at(&self, bytes: u64, output_percent: f64) -> Nanos {
        let whole = line(&self.latency, bytes);
        let fixed = self.latency.first().map_or(0.0, |point| point.ns.value as f64);
        Nanos((fixed + (whole - fixed) * self.factor(output_percent)).round() as u64)
    }

    /// Returns the least time between the starts of two jobs on the whole device, however many engines are free: the
    /// time per page of the largest batch, in proportion to the size.
    pub fn interval(&self, bytes: u64) -> Nanos {
        Nanos(self.interval_ns(bytes).round() as u64)
    }

    /// Returns the same on data whose compressed side is so many percent of the other.
    pub fn interval_at(&self, bytes: u64, output_percent: f64) -> Nanos {
        Nanos((self.interval_ns(bytes) * self.factor(output_percent)).round() as u64)
    }

    fn interval_ns(&self, bytes: u64) -> f64 {
        let page_ns = self.batch.last().map_or(0, |point| point.ns_per_page.value);
        page_ns as f64 * bytes as f64 / PAGE_BYTES
    }

    /// Returns the time on such data over the curve's. Outside the points it is that of the nearest point.
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

/// Returns the value of a line through the points (ns). It is linear between two points, goes on beyond the last with
/// the last slope, and is the first point's below it.
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
