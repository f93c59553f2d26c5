//! One point of load on one configuration: latency per op, what each process cost, and whether it holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use device::virtual_device::LATE_SHARE_MAX;
use load::{LoadReport, LoadSpec, Pace, Payload, Phase, Progress};
use units::{ByteCount, Nanos, Op};
use workload::{ArrivalKind, PayloadClass, SizeDist};

use super::configuration::Work;
use super::deployment::Deployment;
use super::stages::stored_bytes;
use harness::Spent;

/// What is asked of a configuration at one point.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Every value's size.
    pub value_bytes: ByteCount,
    /// The fraction of requests that are gets.
    pub get_share: f64,
    /// How fast requests come.
    pub pace: Pace,
    /// Connections to the frontend.
    pub connections: usize,
    /// How long it is loaded before it is measured.
    pub warmup: Nanos,
    /// How long it is measured.
    pub duration: Nanos,
}

/// What one point came to.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What the load generator measured.
    pub report: LoadReport,
    /// By process.
    pub usage: BTreeMap<String, Usage>,
    /// The mean time of a job under this load, from submission to completion, as the frontend has it (us); by op.
    pub job_us: BTreeMap<&'static str, f64>,
    /// Why the numbers do not hold, if they do not.
    pub invalid: Option<String>,
}

/// What one process cost.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// CPU time per request (us).
    pub core_us: f64,
    /// Time per request ready to run and without a core (us).
    pub waited_us: f64,
    /// CPU time over the time measured: 1 is a whole core.
    pub share: f64,
}

impl Load {
    /// At a fixed offered rate, with even gaps.
    pub fn open(value_bytes: ByteCount, get_share: f64, rate_per_s: f64) -> Self {
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
    pub fn saturating(value_bytes: ByteCount, get_share: f64) -> Self {
        let pace = Pace::Closed { depth: SATURATING_DEPTH };
        Self {
            pace,
            connections: SATURATING_CONNECTIONS,
            ..Self::open(value_bytes, get_share, 1.0)
        }
    }

    fn spec(&self, deployment: &Deployment) -> Result<LoadSpec, String> {
        let mut spec = LoadSpec::new(vec![deployment.address().clone()]);
        let mut value_bytes = self.value_bytes;
        if deployment.configuration.work == Work::Nothing {
            // What the values compress to, and as dense.
            value_bytes = stored_bytes(value_bytes)?;
            spec.payload = Payload::Class(PayloadClass::Random);
        }
        spec.value_bytes = SizeDist::Fixed { bytes: value_bytes.0 };
        spec.value_bytes_max = value_bytes;
        spec.get_share = self.get_share;
        spec.pace = self.pace;
        spec.connections = self.connections;
        spec.warmup = self.warmup;
        spec.duration = self.duration;
        // A virtual device remembers the results of these: every set of a key writes the same bytes.
        spec.keys = KEYS;
        spec.versions = 1;
        spec.zipf_alpha = 0.0;
        Ok(spec)
    }
}

impl Sample {
    /// Loads the deployment, and reads beside it what its processes cost.
    ///
    /// # Errors
    /// That the load could not be run, or a page not be read.
    pub fn take(
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
        let report = load::run(&load.spec(deployment)?, mark, stop).map_err(|e| e.to_string())?;
        let after = Mark::of(deployment)?;
        let before = before.ok_or("the load ended before it was measured")??;
        Ok(Self::between(report, &before, &after))
    }

    fn between(report: LoadReport, before: &Mark, after: &Mark) -> Self {
        let wall_s = after.at.duration_since(before.at).as_secs_f64().max(1e-9);
        let achieved_per_s = report.get.achieved_per_s + report.set.achieved_per_s;
        let requests = (achieved_per_s * wall_s).max(1.0);
        let usage = before.spent.iter().zip(&after.spent).map(|((name, before), (_, after))| {
            let cpu_s = after.cpu_s - before.cpu_s;
            let waited_s = after.waited_s - before.waited_s;
            let usage = Usage {
                core_us: cpu_s * 1e6 / requests,
                waited_us: waited_s * 1e6 / requests,
                share: cpu_s / wall_s,
            };
            (name.clone(), usage)
        });
        let usage = usage.collect();
        let job_us = before.frontend_jobs.iter().zip(&after.frontend_jobs).map(
            |((op, before), (_, after))| (*op, (after.1 - before.1) * 1e6 / (after.0 - before.0)),
        );
        let job_us = job_us.collect();
        let invalid = invalid(&report, before, after);
        Self { report, usage, job_us, invalid }
    }

    /// Requests answered per second.
    pub fn achieved_per_s(&self) -> f64 {
        self.report.get.achieved_per_s + self.report.set.achieved_per_s
    }

    /// CPU time of frontend and compression service together per request (us).
    pub fn host_us(&self) -> f64 {
        let own = ["frontend", "compression"].iter().filter_map(|name| self.usage.get(*name));
        own.map(|usage| usage.core_us).sum()
    }

    /// Requests answered over requests offered.
    pub fn achieved(&self) -> f64 {
        let ops = [&self.report.get, &self.report.set];
        let offered: u64 = ops.iter().map(|op| op.offered).sum();
        self.achieved_per_s() * self.report.measured_s / (offered.max(1) as f64)
    }
}

/// Why the numbers do not hold, if they do not.
fn invalid(report: &LoadReport, before: &Mark, after: &Mark) -> Option<String> {
    let offered = (report.get.offered + report.set.offered).max(1) as f64;
    let failed = report.failures() as f64 / offered;
    let late = (after.late - before.late) / (after.virtual_jobs - before.virtual_jobs).max(1.0);
    let strays = after.strays - before.strays;
    let jobs = (after.jobs - before.jobs).max(1.0);
    let percent = |share: f64, what: &str| format!("{:.2} % {what}", share * 100.0);
    let open = matches!(report.spec.pace, Pace::Open { .. });
    if report.wrong.count > 0 {
        Some(format!("{} values were wrong", report.wrong.count))
    } else if report.stopped_early {
        Some("stopped early".to_owned())
    } else if failed > SHARE_MAX {
        Some(percent(failed, "of the requests failed"))
    } else if report.get.misses > 0 {
        Some(format!("{} gets missed", report.get.misses))
    } else if late > LATE_SHARE_MAX {
        Some(percent(late, "of the virtual device's jobs were late"))
    } else if strays / jobs > SHARE_MAX {
        Some(percent(strays / jobs, "of the jobs ran elsewhere"))
    } else if report.generator.was_bottleneck && open {
        report.generator.reason.clone()
    } else {
        None
    }
}

/// The counters of a deployment at one moment.
struct Mark {
    at: Instant,
    spent: Vec<(String, Spent)>,
    /// By op: how many, and their time (s).
    frontend_jobs: Vec<(&'static str, (f64, f64))>,
    jobs: f64,
    virtual_jobs: f64,
    late: f64,
    strays: f64,
}

impl Mark {
    fn of(deployment: &Deployment) -> Result<Self, String> {
        let (virtual_jobs, late) = deployment.late()?;
        let (jobs, strays) = (deployment.jobs()?, deployment.strays()?);
        let mut frontend_jobs = Vec::new();
        for op in [Op::Compress, Op::Decompress] {
            frontend_jobs.push((op.name(), deployment.frontend_jobs(op)?));
        }
        let (at, spent) = (Instant::now(), deployment.spent());
        Ok(Self { at, spent, frontend_jobs, jobs, virtual_jobs, late, strays })
    }
}

/// More failed requests or jobs in the wrong place than this share, and a run says nothing.
const SHARE_MAX: f64 = 0.001;

/// Enough values that none is in a processor's cache when it is asked for again, few enough to remember.
const KEYS: u64 = 64;

const CONNECTIONS: usize = 16;

const SATURATING_CONNECTIONS: usize = 4;
const SATURATING_DEPTH: usize = 8;
