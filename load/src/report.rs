//! The result of a run as data: serde gives it to programs, [`LoadReport::table`] to people.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::LoadSpec;

/// The result of one run. Everything but `prepopulate` and `connections` counts requests that were
/// due within the measured window.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The description of the run.
    pub spec: LoadSpec,
    /// The measured window; shorter than asked for when the run was stopped (s).
    pub measured_s: f64,
    /// Whether the stop flag ended the run.
    pub stopped_early: bool,
    /// The phase before the load.
    pub prepopulate: Option<PopulateReport>,
    /// Gets.
    pub get: OpReport,
    /// Sets.
    pub set: OpReport,
    /// Sets that followed a miss; not part of the offered rate.
    pub fill: OpReport,
    /// Requests dropped because the backlog was full, or still waiting for room at the end.
    pub unsent: u64,
    /// Requests sent that had no answer when the wait for stragglers ended.
    pub unanswered: u64,
    /// Failed requests by what the server said or how the connection ended.
    pub errors: BTreeMap<String, u64>,
    /// The same by gRPC status as a client sees it (`DEADLINE_EXCEEDED`, also for the generator's timeout). Empty on
    /// memcached.
    pub statuses: BTreeMap<&'static str, u64>,
    /// Values read that were not what was written.
    pub wrong: WrongBytes,
    /// Bytes written to sockets, protocol included, warm-up and drain too.
    pub bytes_out: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// What happened to connections.
    pub connections: ConnectionReport,
    /// Whether the generator can be believed.
    pub generator: GeneratorReport,
}

/// One kind of request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OpReport {
    /// Requests that were due.
    pub offered: u64,
    /// `offered` per second of the window.
    pub offered_per_s: f64,
    /// Requests that were answered, without an error.
    pub answered: u64,
    /// Answers that arrived within the window, per second of it.
    pub achieved_per_s: f64,
    /// Gets that found a value, wrong values included.
    pub hits: u64,
    /// Gets that found none.
    pub misses: u64,
    /// Hits over hits and misses; `None` without either.
    pub hit_ratio: Option<f64>,
    /// Requests that failed.
    pub errors: u64,
    /// Bytes of the values read.
    pub value_bytes: u64,
    /// Time from when the request was due to its answer.
    pub latency: Percentiles,
    /// Time from when the request was handed to its connection to its answer.
    pub service: Percentiles,
}

/// A distribution of times (ns).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Percentiles {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

/// Values that were not what was written.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WrongBytes {
    /// How many.
    pub count: u64,
    /// The first few: key number and what was wrong.
    pub examples: Vec<String>,
}

/// What happened to connections, over the whole run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ConnectionReport {
    /// Connections lost after they were up.
    pub lost: u64,
    /// Lost connections that were opened again.
    pub reopened: u64,
    /// Attempts to open again that failed.
    pub failed_attempts: u64,
}

/// How well the generator kept up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GeneratorReport {
    /// How late the generator took up requests that were due. This is the generator's part of the latency. Empty for a
    /// closed loop.
    pub lateness: Percentiles,
    /// The busiest thread's CPU time over the window; 1 is a whole core.
    pub cpu_utilisation: f64,
    /// Whether the generator limited the result.
    pub was_bottleneck: bool,
    /// Why the generator limited the result.
    pub reason: Option<String>,
}

/// The phase that sets every key once.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PopulateReport {
    /// Keys stored.
    pub stored: u64,
    /// Keys whose set failed.
    pub failed: u64,
    /// How long it took (s).
    pub elapsed_s: f64,
    /// Failures by kind.
    pub errors: BTreeMap<String, u64>,
}

impl Percentiles {
    pub(crate) fn from_histogram(histogram: &Histogram<u64>) -> Self {
        Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        }
    }
}

impl LoadReport {
    /// Returns the number of failed, unanswered and unsent requests.
    pub fn failures(&self) -> u64 {
        let ops = [&self.get, &self.set, &self.fill];
        ops.iter().map(|op| op.errors).sum::<u64>() + self.unanswered + self.unsent
    }
}
