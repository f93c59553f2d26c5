//! The measured points, their number of runs and their duration. The module has values only.

use units::{ByteCount, Nanos};

use super::{Options, Part};
use crate::base::Problem;

/// The points of `reproduce runtime`.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    pub(super) runs: usize,
    /// The number of requests of each task.
    pub(super) requests: usize,
    /// The sizes of chapter 2.
    pub(super) sizes: Vec<ByteCount>,
    /// The number of jobs per size, class of data and device in one run.
    pub(super) size_jobs: usize,
    pub(super) intervals: Vec<Nanos>,
    /// The dequeue batches: the greatest numbers of completions that one poll takes.
    pub(super) batches: Vec<usize>,
    /// The offered loads (1/s).
    pub(super) loads_per_s: Vec<f64>,
    /// The time for which each load is offered.
    pub(super) window: Nanos,
}

impl Plan {
    /// Makes a plan from the options. The defaults are those of \[OffloadSched\].
    ///
    /// # Errors
    /// An option is out of range; the text names it.
    pub(super) fn new(options: &Options) -> Result<Self, Problem> {
        let base = if options.measurement.quick { Self::quick() } else { Self::whole() };
        let plan = Self {
            parts: if options.parts.is_empty() { base.parts } else { options.parts.clone() },
            runs: options.measurement.runs.unwrap_or(base.runs),
            sizes: if options.sizes.is_empty() { base.sizes } else { options.sizes.clone() },
            loads_per_s: if options.loads.is_empty() {
                base.loads_per_s
            } else {
                options.loads.clone()
            },
            window: options.measurement.duration.unwrap_or(base.window),
            ..base
        };
        plan.check().map_err(Problem::Usage)?;
        Ok(plan)
    }

    fn whole() -> Self {
        Self {
            parts: Part::ALL.to_vec(),
            runs: 7,
            requests: REQUESTS,
            sizes: (6..=20).map(|log2| ByteCount(1 << log2)).collect(),
            size_jobs: 100,
            intervals: [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000].map(Nanos).to_vec(),
            batches: vec![1, 2, 4, 8, 16, 32, 64],
            loads_per_s: LOADS_PER_S.to_vec(),
            window: Nanos::millis(300),
        }
    }

    fn quick() -> Self {
        Self {
            parts: Part::ALL.to_vec(),
            runs: 1,
            requests: REQUESTS / 10,
            sizes: [64, 256, 1 << 10, 8 << 10, 64 << 10, 1 << 20].map(ByteCount).to_vec(),
            size_jobs: 10,
            intervals: [50, 1_000, 10_000].map(Nanos).to_vec(),
            batches: vec![1, 2, 16],
            loads_per_s: vec![50e3, 150e3, 400e3],
            window: Nanos::millis(100),
        }
    }

    fn check(&self) -> Result<(), String> {
        let bad = |flag: &str, value: &dyn std::fmt::Display, valid: &str| {
            Err(format!("{flag} is {value}; valid is {valid}"))
        };
        if !(1..=100).contains(&self.runs) {
            return bad("--runs", &self.runs, "1 to 100");
        }
        let (lowest, highest) = (ByteCount(16), ByteCount::mib(1));
        if let Some(size) = self.sizes.iter().find(|size| !(lowest..=highest).contains(*size)) {
            return bad("--sizes", size, "16 to 1MiB");
        }
        if let Some(load) = self.loads_per_s.iter().find(|load| !(1e3..=1e7).contains(*load)) {
            return bad("--loads", load, "1000 to 10000000");
        }
        let (least, most) = (Nanos::millis(10), Nanos::secs(10));
        if !(least..=most).contains(&self.window) {
            return bad("--duration", &format!("{} ns", self.window.0), "10ms to 10s");
        }
        Ok(())
    }
}

/// The number of threads in the benchmark of \[OffloadSched\]. Each thread makes `REQUESTS` requests.
pub(super) const TASKS: usize = 100;
const REQUESTS: usize = 100;

/// The offered loads (1/s), from nearly idle to more requests of Cache-1 than the device can serve.
const LOADS_PER_S: [f64; 12] =
    [10e3, 25e3, 50e3, 75e3, 100e3, 125e3, 150e3, 200e3, 300e3, 400e3, 500e3, 650e3];
