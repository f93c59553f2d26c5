//! The compressed cache's experiments: every configuration side by side, each point measured on all of them in turn, so
//! that drift of the machine meets all alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::{ProgressBar, ProgressStyle};
use units::{ByteCount, Op};

use super::findings::{Findings, Point, Stages};
use super::plan::Plan;
use super::rows::Rows;
use super::{Problem, Reproduce, figures};
use crate::experiment::{
    Awake, Backing, Configuration, Deployment, Door, Load, Machine, Probe, Process, Sample,
    memcached_is_here,
};
use crate::say;

/// Runs everything and writes `cache.json` and `report.html`.
///
/// # Errors
/// Why there are no results.
pub(super) fn run(flags: &Reproduce) -> Result<(), Problem> {
    let machine = Machine::here();
    let plan = Plan::new(flags, &machine)?;
    let failed = |error: String| Problem::Failed(error);
    std::fs::create_dir_all(&flags.out)
        .map_err(|error| Problem::Usage(format!("--out {}: {error}", flags.out.display())))?;
    if !memcached_is_here() {
        let how = "install it (Debian: apt install memcached)";
        return Err(failed(format!("memcached is not on the PATH; {how} and run this again")));
    }
    let stop = crate::load::stop_on_signal()
        .map_err(|error| Problem::Failed(format!("cannot handle signals: {error}")))?;
    let experiment = Experiment::start(plan, machine, stop).map_err(failed)?;
    let findings = experiment.run().map_err(failed)?;
    let mut rows = Rows::new("cache", &experiment.machine);
    findings.write(&mut rows);
    rows.write(&flags.out).map_err(failed)?;
    let page = flags.out.join("report.html");
    let html = figures::report(&findings, &rows, experiment.awake.is_some()).html();
    std::fs::write(&page, html).map_err(|error| failed(format!("{}: {error}", page.display())))?;
    say(&findings.summary());
    say(&format!("wrote {} and {}", flags.out.join("cache.json").display(), page.display()));
    Ok(())
}

/// All configurations, running.
struct Experiment {
    plan: Plan,
    machine: Machine,
    deployments: Vec<Deployment>,
    /// None where the cores were free to sleep.
    awake: Option<Awake>,
    /// Ends last: the others report to it.
    _scheduler: Process,
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Experiment {
    fn start(plan: Plan, machine: Machine, stop: Arc<AtomicBool>) -> Result<Self, String> {
        let args = "serve --role scheduler --grpc-listen 127.0.0.1:0 --threads 1";
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        let mut scheduler = Process::rebate("scheduler", &args, machine.core(5, 6))?;
        let [address] = scheduler.lines_after(["grpc on "])?;
        let mut deployments = Vec::new();
        for door in [Door::Grpc, Door::Direct] {
            for configuration in Configuration::all(door) {
                let backing = Backing::Memcached;
                let started = Deployment::start(configuration, backing, &machine, Some(&address))?;
                deployments.push(started);
            }
        }
        let bar = ProgressBar::new(0);
        let style =
            ProgressStyle::with_template("{prefix} [{wide_bar}] {percent:>3} % {eta} {msg}");
        let bar = style.map_or(bar.clone(), |style| bar.with_style(style));
        let awake = Awake::start();
        Ok(Self { plan, machine, deployments, awake, _scheduler: scheduler, stop, bar })
    }

    fn run(&self) -> Result<Findings, String> {
        let plan = &self.plan;
        let mut findings = Findings::new(plan.clone());
        let points = plan.sizes.len() * (plan.gets.len() + 1) + plan.loads_per_s.len();
        self.bar.set_length((plan.runs * points * self.deployments.len()) as u64);
        for run in 0..plan.runs {
            self.bar.set_prefix(format!("run {} of {}", run + 1, plan.runs));
            for &size in &plan.sizes {
                self.size(&mut findings, run, size)?;
            }
            self.loads(&mut findings, run)?;
        }
        self.bar.finish_and_clear();
        Ok(findings)
    }

    /// One size: each stage alone, every mix at the fixed load, and what the codec costs a frontend that is busy.
    fn size(&self, findings: &mut Findings, run: usize, size: ByteCount) -> Result<(), String> {
        self.bar.set_message(format!("{size}: stages"));
        for op in [Op::Compress, Op::Decompress] {
            findings.stages.entry((size, op.name())).or_default().push(self.stages(size, op)?);
        }
        for &gets in &self.plan.gets {
            let load = self.load(size, gets, self.plan.rate_per_s);
            for deployment in self.turns(run) {
                let point = Point::at_size(deployment.configuration, size, gets);
                let sample = self.take(deployment, &load, &format!("{size}, {gets} % gets"))?;
                findings.points.entry(point).or_default().push(sample);
            }
            if size < FREED_BYTES_MIN {
                continue;
            }
            let load = Load {
                warmup: self.plan.warmup,
                duration: self.plan.duration,
                ..Load::saturating(size, f64::from(gets) / 100.0)
            };
            for deployment in self.turns(run) {
                if deployment.configuration.microservice {
                    continue;
                }
                let point = Point::saturated(deployment.configuration, size, gets);
                let sample = self.take(deployment, &load, &format!("{size}, saturated"))?;
                findings.points.entry(point).or_default().push(sample);
            }
        }
        Ok(())
    }

    fn stages(&self, value_bytes: ByteCount, op: Op) -> Result<Stages, String> {
        let (rate_per_s, jobs) = (self.plan.rate_per_s, self.plan.stage_jobs);
        let probe = Probe { value_bytes, op, rate_per_s, jobs };
        let service = self
            .deployments
            .iter()
            .find(|own| own.configuration.microservice && !own.configuration.accelerated)
            .and_then(Deployment::compression)
            .ok_or("no deployment has a compression service")?;
        let stages = Stages {
            software: probe.software()?,
            device: probe.device()?,
            hop: probe.hop(service)?,
        };
        self.not_stopped()?;
        Ok(stages)
    }

    /// Every load on every configuration, as far as it keeps up: beyond that only the queue grows.
    fn loads(&self, findings: &mut Findings, run: usize) -> Result<(), String> {
        for deployment in self.turns(run) {
            let mut kept_up = true;
            for (step, &rate_per_s) in self.plan.loads_per_s.iter().enumerate() {
                if !kept_up {
                    let left = self.plan.loads_per_s.len() - step;
                    self.bar.inc(left as u64);
                    break;
                }
                let load = self.load(LOAD_BYTES, LOAD_GETS, rate_per_s);
                let sample = self.take(deployment, &load, &format!("{rate_per_s}/s"))?;
                kept_up = sample.achieved() >= ACHIEVED_MIN;
                let point = Point::at_load(deployment.configuration, rate_per_s);
                findings.points.entry(point).or_default().push(sample);
            }
            let knee = self.knee(findings, deployment)?;
            findings.knees.entry(deployment.configuration.id()).or_default().push(knee);
        }
        Ok(())
    }

    /// The highest load that the configuration keeps up with, by doubling the step and then halving the interval
    /// (1/s).
    fn knee(&self, findings: &mut Findings, deployment: &Deployment) -> Result<f64, String> {
        let keeps_up = |rate_per_s: f64| {
            let load = self.load(LOAD_BYTES, LOAD_GETS, rate_per_s);
            let sample = self.take(deployment, &load, &format!("knee: {rate_per_s:.0}/s"))?;
            Ok::<_, String>(sample.achieved() >= ACHIEVED_MIN)
        };
        let configuration = deployment.configuration;
        let (mut good, mut bad) = findings.bracket(configuration, ACHIEVED_MIN);
        while bad.is_none() && good < KNEE_PER_S_MAX {
            let next = (good * 1.5).max(self.plan.loads_per_s[0]);
            if keeps_up(next)? { good = next } else { bad = Some(next) }
        }
        let mut bad = bad.unwrap_or(KNEE_PER_S_MAX);
        while bad - good > good.max(1.0) * self.plan.knee_precision {
            let middle = f64::midpoint(good, bad);
            if keeps_up(middle)? { good = middle } else { bad = middle }
        }
        Ok(good)
    }

    fn load(&self, size: ByteCount, gets: u32, rate_per_s: f64) -> Load {
        let load = Load::open(size, f64::from(gets) / 100.0, rate_per_s);
        Load { warmup: self.plan.warmup, duration: self.plan.duration, ..load }
    }

    fn take(&self, deployment: &Deployment, load: &Load, what: &str) -> Result<Sample, String> {
        self.bar.set_message(format!("{}: {what}", deployment.configuration.id()));
        let sample = Sample::take(deployment, load, &self.stop);
        self.not_stopped()?;
        self.bar.inc(1);
        sample.map_err(|error| format!("{}: {error}", deployment.configuration.id()))
    }

    fn not_stopped(&self) -> Result<(), String> {
        if self.stop.load(Ordering::Relaxed) { Err("stopped".to_owned()) } else { Ok(()) }
    }

    /// All deployments, each run beginning with another one.
    fn turns(&self, run: usize) -> impl Iterator<Item = &Deployment> {
        let count = self.deployments.len();
        self.deployments.iter().cycle().skip(run % count).take(count)
    }
}

/// Where the seed's figure 2 is.
const LOAD_BYTES: ByteCount = super::findings::LOAD_BYTES;
const LOAD_GETS: u32 = super::findings::LOAD_GETS;

/// A configuration keeps up while it answers this share of what is offered.
const ACHIEVED_MIN: f64 = 0.98;

/// No configuration of one core a service reaches it.
const KNEE_PER_S_MAX: f64 = 200_000.0;

/// From here on the accelerator must free four fifths of what the codec costs.
const FREED_BYTES_MIN: ByteCount = ByteCount::kib(4);
