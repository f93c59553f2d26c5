//! One run of a frontend under a load: the latency of a request and the frontend's CPU time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::virtual_device::LATE_SHARE_MAX;
use load::{LoadReport, LoadSpec, Pace};
use units::{ByteCount, Nanos};
use workload::{ArrivalKind, SizeDist};

use super::variant::Frontend;
use crate::base::ACHIEVED_MIN;

/// The result of one run.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The mean of the gets' median and the sets' median, weighted by their numbers of requests (us).
    pub(super) latency_us: f64,
    /// CPU time per request (us).
    pub(super) core_us: f64,
    /// The answered requests divided by the offered requests.
    pub(super) achieved: f64,
    /// The reason why the sample is invalid, or None if it is valid.
    pub(super) invalid: Option<String>,
    /// True if the sample is invalid because the load generator lacked CPU time. The variant is then not the cause.
    pub(super) is_disturbed: bool,
}

impl Sample {
    /// Returns the latency for comparisons (us). It is NaN if the run is invalid. It is infinite if the
    /// frontend did not sustain the load, because then the latency shows only the length of the queue.
    pub(super) fn compared_us(&self) -> f64 {
        match &self.invalid {
            Some(_) => f64::NAN,
            None if self.is_overloaded() => f64::INFINITY,
            None => self.latency_us,
        }
    }

    /// Returns whether too few of the offered requests were answered.
    pub(super) fn is_overloaded(&self) -> bool {
        self.achieved < ACHIEVED_MIN
    }
}

/// The load on a frontend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) size: ByteCount,
    pub(super) pace: Pace,
    pub(super) warmup: Nanos,
    pub(super) duration: Nanos,
}

impl Load {
    /// Returns a load of requests that are due at random times.
    pub(super) fn open(size: ByteCount, rate_per_s: f64) -> Self {
        let pace = Pace::Open { rate_per_s, arrivals: ArrivalKind::Poisson };
        Self { size, pace, warmup: Nanos(0), duration: Nanos::secs(1) }
    }

    /// Returns a closed loop, which sends requests as fast as answers arrive.
    pub(super) fn saturating(size: ByteCount) -> Self {
        let pace = Pace::Closed { depth: SATURATING_DEPTH };
        let (warmup, duration) = (Nanos::millis(200), Nanos::millis(500));
        Self { size, pace, warmup, duration }
    }

    /// Runs the load and returns the answered requests per second.
    ///
    /// # Errors
    /// The load could not be run.
    pub(super) fn answered_per_s(
        &self,
        frontend: &Frontend,
        stop: &Arc<AtomicBool>,
    ) -> Result<f64, String> {
        let report = self.run(frontend, stop)?;
        Ok(report.get.achieved_per_s + report.set.achieved_per_s)
    }

    /// Returns the utilisation of the load generator's thread under this load. A value of 1 means that it is always
    /// busy. The load runs for `OFFER_FOR` instead of its own duration.
    ///
    /// # Errors
    /// The load could not be run.
    pub(super) fn generator_busy(
        &self,
        frontend: &Frontend,
        stop: &Arc<AtomicBool>,
    ) -> Result<f64, String> {
        let short = Self { duration: OFFER_FOR, ..*self };
        Ok(short.run(frontend, stop)?.generator.cpu_utilisation)
    }

    /// Loads the frontend, and repeats the run if other work kept the load generator from its core. Returns the sample
    /// and the number of reruns.
    ///
    /// # Errors
    /// The errors of [`Self::take`].
    pub(super) fn take_undisturbed(
        &self,
        frontend: &Frontend,
        stop: &Arc<AtomicBool>,
    ) -> Result<(Sample, usize), String> {
        let mut sample = self.take(frontend, stop)?;
        let mut reruns = 0;
        while sample.is_disturbed && reruns < RERUNS_MAX {
            sample = self.take(frontend, stop)?;
            reruns += 1;
        }
        Ok((sample, reruns))
    }

    /// Loads the frontend and returns the result.
    ///
    /// # Errors
    /// The load could not be run, or a page of metrics could not be read.
    pub(super) fn take(
        &self,
        frontend: &Frontend,
        stop: &Arc<AtomicBool>,
    ) -> Result<Sample, String> {
        let (jobs_before, late_before) = frontend.device_jobs()?;
        let cpu_before_s = frontend.cpu_s();
        let report = self.run(frontend, stop)?;
        let cpu_s = frontend.cpu_s() - cpu_before_s;
        let (jobs, late) = frontend.device_jobs()?;
        let late = (late - late_before) / (jobs - jobs_before).max(1.0);
        let ops = [&report.get, &report.set];
        let offered = ops.iter().map(|op| op.offered).sum::<u64>().max(1) as f64;
        let median = |op: &&load::OpReport| op.offered as f64 * op.latency.p50_ns as f64 / 1e3;
        let achieved_per_s: f64 = ops.iter().map(|op| op.achieved_per_s).sum();
        // The CPU time includes the warm-up and the first pass over the keys.
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
        // Every set of a key writes the same bytes, so that a virtual device can remember the results of these jobs.
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

/// The share of gets. The other half of the requests are sets.
const GET_SHARE: f64 = 0.5;

/// The number of keys. There are enough that no value is still in a processor's cache at its next request, and few
/// enough that the device can remember their results.
const KEYS: u64 = 64;

const CONNECTIONS: usize = 16;

/// The number of requests in flight on each connection.
const SATURATING_DEPTH: usize = 4;

/// The time for which a load is offered to see whether the generator can offer it.
const OFFER_FOR: Nanos = Nanos::millis(300);

/// The most reruns of a disturbed run. After them the sample stays invalid.
const RERUNS_MAX: usize = 3;

/// The greatest share of failed requests in a valid run.
const FAILED_MAX: f64 = 0.001;
