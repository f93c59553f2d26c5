//! The result of a run as data. The caller shows it.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::LoadSpec;

/// The result of one run. It counts the requests that were due within the measured window. `connections`,
/// `wrong` and the numbers of bytes also include the warm-up and the wait at the end. `prepopulate` covers
/// the populate phase.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The description of the run.
    pub spec: LoadSpec,
    /// The length of the measured window (s). It is shorter than requested if the run was stopped.
    pub measured_s: f64,
    /// True if the stop flag ended the run.
    pub stopped_early: bool,
    /// The result of the populate phase, or `None` if there was none.
    pub prepopulate: Option<PopulateReport>,
    /// The results of gets.
    pub get: OpReport,
    /// The results of sets.
    pub set: OpReport,
    /// The results of sets that followed a miss. They are not part of the offered rate.
    pub fill: OpReport,
    /// Requests that were dropped because the backlog was full, or that still waited for capacity at the end.
    pub unsent: u64,
    /// Requests that were sent and had no answer when the wait for late answers ended.
    pub unanswered: u64,
    /// The number of failed requests by the server's error message, or by the way in which the connection ended.
    pub errors: BTreeMap<String, u64>,
    /// The number of failed requests by the gRPC status that a client sees (`DEADLINE_EXCEEDED`, also for the
    /// generator's timeout). It is empty for memcached targets.
    pub statuses: BTreeMap<&'static str, u64>,
    /// The values that differ from those that were written.
    pub wrong: WrongBytes,
    /// Bytes written to sockets. They include the protocol, the warm-up and the wait at the end.
    pub bytes_out: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// The losses of connections and the attempts to reopen them.
    pub connections: ConnectionReport,
    /// The facts that show whether the generator was fast enough.
    pub generator: GeneratorReport,
}

/// The results of one kind of request.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OpReport {
    /// Requests that were due.
    pub offered: u64,
    /// `offered` per second of the window.
    pub offered_per_s: f64,
    /// Requests that were answered without an error.
    pub answered: u64,
    /// Answers that arrived within the window, per second of the window.
    pub achieved_per_s: f64,
    /// Gets that found a value, including wrong values.
    pub hits: u64,
    /// Gets that found no value.
    pub misses: u64,
    /// Hits divided by the sum of hits and misses, or `None` if there are neither.
    pub hit_ratio: Option<f64>,
    /// Requests that failed.
    pub errors: u64,
    /// Bytes of the values read.
    pub value_bytes: u64,
    /// The time from a request's due time to its answer.
    pub latency: Percentiles,
    /// The time from passing a request to its connection until its answer.
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

/// Values that differ from those that were written.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WrongBytes {
    /// The number of wrong values.
    pub count: u64,
    /// The first few wrong values: the key number and the difference.
    pub examples: Vec<String>,
}

/// The losses of connections and the attempts to reopen them, from the warm-up to the wait at the end.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ConnectionReport {
    /// Connections that were lost after they were up.
    pub lost: u64,
    /// Lost connections that were opened again.
    pub reopened: u64,
    /// Failed attempts to reopen a connection.
    pub failed_attempts: u64,
}

/// The generator's delays and load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GeneratorReport {
    /// The time from a request's due time until the generator takes it up. This is the generator's part of the latency.
    /// It is empty for a closed loop.
    pub lateness: Percentiles,
    /// The busiest thread's CPU time divided by the window. A value of 1 is a whole core.
    pub cpu_utilisation: f64,
    /// True if the generator limited the result.
    pub was_bottleneck: bool,
    /// The reason why the generator limited the result, or `None` if it did not.
    pub reason: Option<String>,
}

/// The result of the populate phase, which sets every key once.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PopulateReport {
    /// The number of keys that were stored.
    pub stored: u64,
    /// The number of keys whose set failed.
    pub failed: u64,
    /// The length of the phase (s).
    pub elapsed_s: f64,
    /// The number of failures by error message.
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
