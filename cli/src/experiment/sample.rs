//! One point of load on one configuration: latency per op, what each process cost, and whether it holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use device::virtual_device::LATE_SHARE_MAX;
use load::{LoadReport, LoadSpec, Pace, Phase, Progress};
use units::{ByteCount, Nanos};
use workload::{ArrivalKind, SizeDist};

use super::deployment::Deployment;

/// What is asked of a configuration at one point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Every value's size.
    pub(crate) value_bytes: ByteCount,
    /// The fraction of requests that are gets.
    pub(crate) get_share: f64,
    pub(crate) pace: Pace,
    pub(crate) connections: usize,
    pub(crate) warmup: Nanos,
    pub(crate) duration: Nanos,
}

/// What one point came to.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) report: LoadReport,
    /// By process.
    pub(crate) usage: BTreeMap<String, Usage>,
    /// Jobs per request, and the mean time that a device worked on one (us).
    pub(crate) jobs_per_request: f64,
    pub(crate) service_us: f64,
    /// Why the numbers do not hold, if they do not.
    pub(crate) invalid: Option<String>,
}

/// What one process cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU time per request (us).
    pub(crate) core_us: f64,
    /// CPU time over the time measured: 1 is a whole core.
    pub(crate) share: f64,
}

impl Load {
    /// At a fixed offered rate, with even gaps.
    pub(crate) fn open(value_bytes: ByteCount, get_share: f64, rate_per_s: f64) -> Self {
        let pace = Pace::Open { rate_per_s, arrivals: ArrivalKind::Uniform };
        Self {
            value_bytes,
            get_share,
            pace,
            connections: CONNECTIONS,
            warmup: Nanos::millis(500),
            duration: Nanos::secs(2),
        }
    }

    /// As fast as answers come, with so many requests under way that the frontend never waits.
    pub(crate) fn saturating(value_bytes: ByteCount, get_share: f64) -> Self {
        let pace = Pace::Closed { depth: SATURATING_DEPTH };
        Self {
            pace,
            connections: SATURATING_CONNECTIONS,
            ..Self::open(value_bytes, get_share, 1.0)
        }
    }

    fn spec(&self, deployment: &Deployment) -> LoadSpec {
        let mut spec = LoadSpec::new(vec![deployment.address().clone()]);
        spec.value_bytes = SizeDist::Fixed { bytes: self.value_bytes.0 };
        spec.value_bytes_max = self.value_bytes;
        spec.get_share = self.get_share;
        spec.pace = self.pace;
        spec.connections = self.connections;
        spec.warmup = self.warmup;
        spec.duration = self.duration;
        // A virtual device remembers the results of these: every set of a key writes the same bytes.
        spec.keys = KEYS;
        spec.versions = 1;
        spec.zipf_alpha = 0.0;
        spec
    }
}

impl Sample {
    /// Loads the deployment, and reads beside it what its processes cost.
    ///
    /// # Errors
    /// That the load could not be run, or a page not be read.
    pub(crate) fn take(
        deployment: &Deployment,
        load: &Load,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let mut before = None;
        let mark = |progress: &Progress| {
            if before.is_none() && progress.phase == Phase::Measure {
                before = Some(Mark::of(deployment));
            }
        };
        let report = load::run(&load.spec(deployment), mark, stop).map_err(|e| e.to_string())?;
        let after = Mark::of(deployment)?;
        let before = before.ok_or("the load ended before it was measured")??;
        Ok(Self::between(report, &before, &after))
    }

    fn between(report: LoadReport, before: &Mark, after: &Mark) -> Self {
        let requests = (report.get.answered + report.set.answered).max(1) as f64;
        let usage = before.cpu_s.iter().zip(&after.cpu_s).map(|((name, before), (_, after))| {
            let cpu_s = after - before;
            let share = cpu_s / report.measured_s.max(1e-9);
            (name.clone(), Usage { core_us: cpu_s * 1e6 / requests, share })
        });
        let usage = usage.collect();
        let jobs = after.jobs - before.jobs;
        let service_us = (after.service_s - before.service_s) * 1e6 / jobs.max(1.0);
        let late = (after.late - before.late) / (after.virtual_jobs - before.virtual_jobs).max(1.0);
        let fallbacks = after.fallbacks - before.fallbacks;
        let invalid = if report.wrong.count > 0 {
            Some(format!("{} values were wrong", report.wrong.count))
        } else if late > LATE_SHARE_MAX {
            Some(format!("{:.2} % of the virtual device's jobs were late", late * 100.0))
        } else if fallbacks > 0.0 {
            Some(format!("{fallbacks} jobs fell back to software"))
        } else if report.generator.was_bottleneck && matches!(report.spec.pace, Pace::Open { .. }) {
            report.generator.reason.clone()
        } else {
            None
        };
        Self { report, usage, jobs_per_request: jobs / requests, service_us, invalid }
    }

    /// Requests answered over requests offered.
    pub(crate) fn achieved(&self) -> f64 {
        let ops = [&self.report.get, &self.report.set];
        let offered: u64 = ops.iter().map(|op| op.offered).sum();
        let achieved_per_s: f64 = ops.iter().map(|op| op.achieved_per_s).sum();
        achieved_per_s * self.report.measured_s / (offered.max(1) as f64)
    }
}

/// The counters of a deployment at one moment.
struct Mark {
    cpu_s: Vec<(String, f64)>,
    jobs: f64,
    service_s: f64,
    virtual_jobs: f64,
    late: f64,
    fallbacks: f64,
}

impl Mark {
    fn of(deployment: &Deployment) -> Result<Self, String> {
        let (jobs, service_s) = deployment.work()?;
        let (virtual_jobs, late) = deployment.late()?;
        let (cpu_s, fallbacks) = (deployment.cpu_s(), deployment.fallbacks()?);
        Ok(Self { cpu_s, jobs, service_s, virtual_jobs, late, fallbacks })
    }
}

/// Enough values that none is in a processor's cache when it is asked for again, few enough to remember.
const KEYS: u64 = 64;

const CONNECTIONS: usize = 16;

const SATURATING_CONNECTIONS: usize = 4;
const SATURATING_DEPTH: usize = 8;
