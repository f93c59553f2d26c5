//! What one op costs as a function of its size, and how close together jobs can follow. Arithmetic
//! on a profile's points; it knows no device.

use serde::{Deserialize, Serialize};
use units::Nanos;

use super::Figure;

/// What one op costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpProfile {
    /// Time from submission to completion of a lone job, by uncompressed size; sizes rise.
    pub latency: Vec<LatencyPoint>,
    /// Time per page when several are inside; counts rise.
    pub batch: Vec<BatchPoint>,
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

impl OpProfile {
    /// Latency of a lone job: linear between two points, on beyond the last with the last slope,
    /// and the first point's below it.
    pub fn latency(&self, bytes: u64) -> Nanos {
        let after = self.latency.iter().position(|point| bytes <= point.bytes);
        let last = self.latency.len().saturating_sub(1);
        let index = after.unwrap_or(last);
        let Some([left, right]) = index.checked_sub(1).and_then(|i| self.latency.get(i..=index))
        else {
            return Nanos(self.latency.first().map_or(0, |point| point.ns.value));
        };
        let slope = (right.ns.value as f64 - left.ns.value as f64)
            / (right.bytes as f64 - left.bytes as f64);
        let latency_ns = left.ns.value as f64 + slope * (bytes as f64 - left.bytes as f64);
        Nanos(latency_ns.round() as u64)
    }

    /// The least time between the starts of two jobs on the whole device, however many engines are
    /// free: the time per page of the largest batch, in proportion to the size.
    pub fn interval(&self, bytes: u64) -> Nanos {
        let page_ns = self.batch.last().map_or(0, |point| point.ns_per_page.value);
        Nanos((page_ns as f64 * bytes as f64 / PAGE_BYTES).round() as u64)
    }

    pub(super) fn figures_mut(&mut self) -> impl Iterator<Item = &mut Figure<u64>> {
        let latency = self.latency.iter_mut().map(|point| &mut point.ns);
        latency.chain(self.batch.iter_mut().map(|point| &mut point.ns_per_page))
    }
}

const PAGE_BYTES: f64 = 4_096.0;
