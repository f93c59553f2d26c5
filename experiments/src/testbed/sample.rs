//! One load on one configuration: the latency per op, the cost of each process, and whether the numbers are valid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use device::virtual_device::LATE_SHARE_MAX;
use load::{LoadReport, LoadSpec, Pace, Payload, Phase, Progress};
use units::{ByteCount, Nanos, Op};
use workload::{ArrivalKind, PayloadClass, SizeDist};

use super::configuration::Compressor;
use super::deployment::Deployment;
use super::stages::stored_bytes;
use harness::CpuUsage;

/// A load on a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The size of every value.
    pub value_bytes: ByteCount,
    /// The fraction of requests that are gets.
    pub get_share: f64,
    /// The pace of the requests.
    pub pace: Pace,
    /// The number of connections to the frontend.
    pub connections: usize,
    /// The duration of the load before the measurement.
    pub warmup: Nanos,
    /// The duration of the measurement.
    pub duration: Nanos,
}

/// The results of one point.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The load generator's results.
    pub report: LoadReport,
    /// The cost of each process, by its name.
    pub usage: BTreeMap<String, Usage>,
    /// The mean time of a job under this load, from submission to completion, by op (us). The frontend measures it.
    pub job_us: BTreeMap<&'static str, f64>,
    /// The reason why the numbers are invalid, or None if they are valid.
    pub invalid: Option<String>,
}

/// The cost of one process.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// The CPU time per request (us).
    pub core_us: f64,
    /// The time per request in which the process was ready to run but had no core (us).
    pub waited_us: f64,
    /// The CPU time divided by the measured time. One whole core is 1.
    pub share: f64,
}

impl Load {
    /// Makes a load at a fixed offered rate, with equal gaps between requests.
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

    /// Makes a closed loop that keeps enough requests in flight that the frontend is always busy.
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
        if deployment.configuration.compressor == Compressor::Nothing {
            // The size is that of the compressed values, and the payload is as incompressible as compressed bytes are.
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
        // Every set of a key writes the same bytes, so that a virtual device can remember the results of its jobs.
        spec.keys = KEYS;
        spec.versions = 1;
        spec.zipf_alpha = 0.0;
        Ok(spec)
    }
}

impl Sample {
    /// Loads the deployment, and reads the cost of its processes in that time.
    ///
    /// # Errors
    /// The load could not be run, or a page of metrics could not be read.
    pub fn take(
        deployment: &Deployment,
        load: &Load,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let mut before = None;
        let mark = |progress: &Progress| {
            if before.is_none() && progress.phase == Phase::Measure {
                before = Some(Counters::read(deployment));
            }
        };
        let report = load::run(&load.spec(deployment)?, mark, stop).map_err(|e| e.to_string())?;
        let after = Counters::read(deployment)?;
        let before = before.ok_or("the load ended before it was measured")??;
        Ok(Self::between(report, &before, &after))
    }

    fn between(report: LoadReport, before: &Counters, after: &Counters) -> Self {
        let wall_s = after.at.duration_since(before.at).as_secs_f64().max(1e-9);
        let achieved_per_s = report.get.achieved_per_s + report.set.achieved_per_s;
        let requests = (achieved_per_s * wall_s).max(1.0);
        let usage =
            before.cpu_usage.iter().zip(&after.cpu_usage).map(|((name, before), (_, after))| {
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

    /// Returns the requests answered per second.
    pub fn achieved_per_s(&self) -> f64 {
        self.report.get.achieved_per_s + self.report.set.achieved_per_s
    }

    /// Returns the CPU time per request of the frontend and the compression service together (us).
    pub fn host_us(&self) -> f64 {
        let usages = ["frontend", "compression"].iter().filter_map(|name| self.usage.get(*name));
        usages.map(|usage| usage.core_us).sum()
    }

    /// Returns the answered requests divided by the offered requests.
    pub fn achieved(&self) -> f64 {
        let ops = [&self.report.get, &self.report.set];
        let offered: u64 = ops.iter().map(|op| op.offered).sum();
        self.achieved_per_s() * self.report.measured_s / (offered.max(1) as f64)
    }
}

/// Returns the reason why the numbers are invalid, or None if they are valid.
fn invalid(report: &LoadReport, before: &Counters, after: &Counters) -> Option<String> {
    let offered = (report.get.offered + report.set.offered).max(1) as f64;
    let failed = report.failures() as f64 / offered;
    let late = (after.late - before.late) / (after.virtual_jobs - before.virtual_jobs).max(1.0);
    let misplaced = after.misplaced_jobs - before.misplaced_jobs;
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
    } else if misplaced / jobs > SHARE_MAX {
        Some(percent(misplaced / jobs, "of the jobs ran elsewhere"))
    } else if report.generator.was_bottleneck && open {
        report.generator.reason.clone()
    } else {
        None
    }
}

/// The counters of a deployment at one moment.
struct Counters {
    at: Instant,
    cpu_usage: Vec<(String, CpuUsage)>,
    /// The number of jobs and the sum of their times (s), by op.
    frontend_jobs: Vec<(&'static str, (f64, f64))>,
    jobs: f64,
    virtual_jobs: f64,
    late: f64,
    misplaced_jobs: f64,
}

impl Counters {
    fn read(deployment: &Deployment) -> Result<Self, String> {
        let (virtual_jobs, late) = deployment.late()?;
        let (jobs, misplaced_jobs) = (deployment.jobs()?, deployment.misplaced_jobs()?);
        let mut frontend_jobs = Vec::new();
        for op in [Op::Compress, Op::Decompress] {
            frontend_jobs.push((op.name(), deployment.frontend_jobs(op)?));
        }
        let (at, cpu_usage) = (Instant::now(), deployment.cpu_usage());
        Ok(Self { at, cpu_usage, frontend_jobs, jobs, virtual_jobs, late, misplaced_jobs })
    }
}

/// The greatest share of failed requests, or of misplaced jobs, in a valid run.
const SHARE_MAX: f64 = 0.001;

/// The number of keys. There are enough that no value is still in a processor's cache at its next request, and few
/// enough that a virtual device can remember their results.
const KEYS: u64 = 64;

const CONNECTIONS: usize = 16;

const SATURATING_CONNECTIONS: usize = 4;
const SATURATING_DEPTH: usize = 8;
