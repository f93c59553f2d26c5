//! One frontend under one load: what a request takes, and what it costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::virtual_device::LATE_SHARE_MAX;
use load::{LoadReport, LoadSpec, Pace};
use units::{ByteCount, Nanos};
use workload::{ArrivalKind, SizeDist};

use super::arm::Frontend;
use crate::cache::bars::ACHIEVED_MIN;

/// What one run came to.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The median of gets and that of sets, weighed by how many there are (us).
    pub(super) latency_us: f64,
    /// CPU time per request (us).
    pub(super) core_us: f64,
    /// Requests answered over requests offered.
    pub(super) achieved: f64,
    /// Why the numbers do not hold, if they do not.
    pub(super) invalid: Option<String>,
    /// Whether that is the load's own lack of CPU time: no arm has a part in it.
    pub(super) is_disturbed: bool,
}

impl Sample {
    /// Its latency (us), for comparing: not a number where the run does not hold; infinite where the load was not
    /// carried, since what was measured is the length of the queue then.
    pub(super) fn compared_us(&self) -> f64 {
        match &self.invalid {
            Some(_) => f64::NAN,
            None if self.is_overloaded() => f64::INFINITY,
            None => self.latency_us,
        }
    }

    /// Whether it answered too little of what was offered.
    pub(super) fn is_overloaded(&self) -> bool {
        self.achieved < ACHIEVED_MIN
    }
}

/// What is asked of a frontend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) size: ByteCount,
    pub(super) pace: Pace,
    pub(super) warmup: Nanos,
    pub(super) duration: Nanos,
}

impl Load {
    /// Requests due at random times.
    pub(super) fn open(size: ByteCount, rate_per_s: f64) -> Self {
        let pace = Pace::Open { rate_per_s, arrivals: ArrivalKind::Poisson };
        Self { size, pace, warmup: Nanos(0), duration: Nanos::secs(1) }
    }

    /// As fast as answers come.
    pub(super) fn saturating(size: ByteCount) -> Self {
        let pace = Pace::Closed { depth: SATURATING_DEPTH };
        let (warmup, duration) = (Nanos::millis(200), Nanos::millis(500));
        Self { size, pace, warmup, duration }
    }

    /// Requests answered per second.
    ///
    /// # Errors
    /// That the load could not be run.
    pub(super) fn answered_per_s(
        &self,
        frontend: &Frontend,
        stop: &Arc<AtomicBool>,
    ) -> Result<f64, String> {
        let report = self.run(frontend, stop)?;
        Ok(report.get.achieved_per_s + report.set.achieved_per_s)
    }

    /// How busy the load generator's thread is with it, 1 for all of the time. It takes a moment, whatever its
    /// duration.
    ///
    /// # Errors
    /// That the load could not be run.
    pub(super) fn generator_busy(
        &self,
        frontend: &Frontend,
        stop: &Arc<AtomicBool>,
    ) -> Result<f64, String> {
        let short = Self { duration: OFFER_FOR, ..*self };
        Ok(short.run(frontend, stop)?.generator.cpu_utilisation)
    }

    /// Loads the frontend, and again where something else kept the load from its core; with how often that was.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub(super) fn take_undisturbed(
        &self,
        frontend: &Frontend,
        stop: &Arc<AtomicBool>,
    ) -> Result<(Sample, usize), String> {
        let mut sample = self.take(frontend, stop)?;
        let mut again = 0;
        while sample.is_disturbed && again < AGAIN_MAX {
            sample = self.take(frontend, stop)?;
            again += 1;
        }
        Ok((sample, again))
    }

    /// Loads the frontend.
    ///
    /// # Errors
    /// That the load could not be run, or a page not be read.
    pub(super) fn take(
        &self,
        frontend: &Frontend,
        stop: &Arc<AtomicBool>,
    ) -> Result<Sample, String> {
        let (jobs_before, late_before) = frontend.late()?;
        let cpu_before_s = frontend.cpu_s();
        let report = self.run(frontend, stop)?;
        let cpu_s = frontend.cpu_s() - cpu_before_s;
        let (jobs, late) = frontend.late()?;
        let late = (late - late_before) / (jobs - jobs_before).max(1.0);
        let ops = [&report.get, &report.set];
        let offered = ops.iter().map(|op| op.offered).sum::<u64>().max(1) as f64;
        let median = |op: &&load::OpReport| op.offered as f64 * op.latency.p50_ns as f64 / 1e3;
        let achieved_per_s: f64 = ops.iter().map(|op| op.achieved_per_s).sum();
        // The warm-up and the first pass over the keys are in the CPU time as well.
        let all_s = (self.warmup + self.duration).0 as f64 / 1e9;
        let requests = (offered / report.measured_s.max(1e-9)) * all_s;
        let invalid = invalid(&report, late);
        Ok(Sample {
            latency_us: ops.iter().map(median).sum::<f64>() / offered,
            core_us: cpu_s * 1e6 / requests,
            achieved: achieved_per_s * report.measured_s / offered,
            is_disturbed: invalid.is_some() && invalid == report.generator.reason,
            invalid,
        })
    }

    fn run(&self, frontend: &Frontend, stop: &Arc<AtomicBool>) -> Result<LoadReport, String> {
        let mut spec = LoadSpec::new(vec![frontend.address.clone()]);
        spec.value_bytes = SizeDist::Fixed { bytes: self.size.0 };
        spec.value_bytes_max = self.size;
        spec.get_share = GET_SHARE;
        spec.pace = self.pace;
        spec.connections = CONNECTIONS;
        spec.warmup = self.warmup;
        spec.duration = self.duration;
        // A virtual device remembers the results of these: every set of a key writes the same bytes.
        spec.keys = KEYS;
        spec.versions = 1;
        spec.zipf_alpha = 0.0;
        let report = load::run(&spec, |_| {}, stop).map_err(|error| error.to_string())?;
        if stop.load(Ordering::Relaxed) { Err("stopped".to_owned()) } else { Ok(report) }
    }
}

fn invalid(report: &LoadReport, late: f64) -> Option<String> {
    let percent = |share: f64, what: &str| format!("{:.2} % {what}", share * 100.0);
    let offered = (report.get.offered + report.set.offered).max(1) as f64;
    let failed = report.failures() as f64 / offered;
    if report.wrong.count > 0 {
        Some(format!("{} values were wrong", report.wrong.count))
    } else if report.get.misses > 0 {
        Some(format!("{} gets missed", report.get.misses))
    } else if failed > FAILED_MAX {
        Some(percent(failed, "of the requests failed"))
    } else if late > LATE_SHARE_MAX {
        Some(percent(late, "of the virtual device's jobs were late"))
    } else if report.generator.was_bottleneck {
        report.generator.reason.clone()
    } else {
        None
    }
}

/// Both ops alike.
const GET_SHARE: f64 = 0.5;

/// Enough values that none is in a processor's cache when it is asked for again, few enough to remember.
const KEYS: u64 = 64;

const CONNECTIONS: usize = 16;

/// On each connection.
const SATURATING_DEPTH: usize = 4;

/// How long a load is offered to see whether it can be.
const OFFER_FOR: Nanos = Nanos::millis(300);

/// A run is taken so often again before it stays as it is.
const AGAIN_MAX: usize = 3;

/// More failed requests than this share, and a run says nothing.
const FAILED_MAX: f64 = 0.001;
