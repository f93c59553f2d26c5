//! The compressed cache's experiments: every configuration side by side, each point measured on all of them in turn, so
//! that drift of the machine meets all alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use units::{ByteCount, Op};

use super::findings::{Findings, Knee, Point, Stages};
use super::plan::Plan;
use super::rows::Rows;
use super::{Problem, Reproduce, figures};
use crate::experiment::{
    Awake, Backing, Configuration, Deployment, Door, Load, Machine, PROCESSES, Probe, Process,
    Sample, Software, memcached_is_here,
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
    let mut rows = Rows::new("cache", &experiment.machine, &experiment.conditions());
    findings.write(&mut rows);
    rows.write(&flags.out).map_err(failed)?;
    let page = flags.out.join("report.html");
    let html = figures::report(&findings, &rows).html();
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
        let mut scheduler = Process::rebate("scheduler", &args, machine.core(5, PROCESSES))?;
        let [address] = scheduler.lines_after(["grpc on "])?;
        let mut deployments = Vec::new();
        for door in [Door::Grpc, Door::Direct] {
            for configuration in Configuration::all(door) {
                let backing = Backing::Memcached;
                let started = Deployment::start(configuration, backing, &machine, Some(&address))?;
                deployments.push(started);
            }
        }
        let bar = super::progress_bar();
        machine.keep_to_first_core(PROCESSES);
        let awake = Awake::start();
        Ok(Self { plan, machine, deployments, awake, _scheduler: scheduler, stop, bar })
    }

    /// What a reader must know of how the machine was used.
    fn conditions(&self) -> String {
        let place = match self.machine.core(0, PROCESSES) {
            Some(_) => "each process on a core of its own",
            None => "all processes share the cores",
        };
        let sleep = match self.awake {
            Some(_) => "kept awake by an idle-class thread each",
            None => "free to sleep: latencies have the time that it takes to wake them",
        };
        format!("{place}; cores {sleep}")
    }

    fn run(&self) -> Result<Findings, String> {
        let plan = &self.plan;
        let mut findings = Findings::new(plan.clone());
        // The busy frontend, in software and not, is two samples a size and mix; a knee is some eight.
        let mixes = plan.sizes.len() * plan.gets.len();
        let loads = plan.loads_per_s.len() + KNEE_SAMPLES;
        let samples = self.deployments.len() * (mixes + loads) + 2 * mixes;
        self.bar.set_length((plan.runs * samples) as u64);
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
                let own = deployment.configuration;
                // What the accelerator frees of a frontend does not depend on where its store is.
                if own.microservice || own.software == Software::Best || own.door == Door::Grpc {
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
            busy: probe.busy_software()?,
            device: probe.device()?,
            hop: probe.hop(service)?,
        };
        self.not_stopped()?;
        Ok(stages)
    }

    /// Every load on every configuration, as far as it keeps up: beyond that only the queue grows. Then its knee.
    fn loads(&self, findings: &mut Findings, run: usize) -> Result<(), String> {
        for deployment in self.turns(run) {
            let mut search = Search::default();
            for &rate_per_s in &self.plan.loads_per_s {
                if search.bad.is_some() {
                    self.bar.inc(1);
                    continue;
                }
                let sample = self.at_load(deployment, rate_per_s)?;
                search.learn(rate_per_s, &sample);
                let point = Point::at_load(deployment.configuration, rate_per_s);
                findings.points.entry(point).or_default().push(sample);
            }
            let knee = self.knee(deployment, search)?;
            findings.knees.entry(deployment.configuration.id()).or_default().push(knee);
        }
        Ok(())
    }

    /// The highest load that the configuration keeps up with: on from the sweep in growing steps, then by halving.
    fn knee(&self, deployment: &Deployment, mut search: Search) -> Result<Knee, String> {
        let lowest = self.plan.loads_per_s[0];
        while search.bad.is_none() && search.good < KNEE_PER_S_MAX {
            let next = (search.good * KNEE_STEP).max(lowest);
            search.learn(next, &self.at_load(deployment, next)?);
        }
        while let Some(bad) = search.bad
            && bad - search.good > search.good * self.plan.knee_precision
            && bad > lowest / KNEE_GIVE_UP
        {
            let middle = f64::midpoint(search.good, bad);
            search.learn(middle, &self.at_load(deployment, middle)?);
        }
        Ok(Knee { per_s: search.good, limit: search.limit })
    }

    fn at_load(&self, deployment: &Deployment, rate_per_s: f64) -> Result<Sample, String> {
        let load = self.load(LOAD_BYTES, LOAD_GETS, rate_per_s);
        self.take(deployment, &load, &format!("{rate_per_s:.0}/s"))
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

/// What is known of where a configuration stops keeping up.
#[derive(Default)]
struct Search {
    good: f64,
    bad: Option<f64>,
    /// Why the lowest load that failed did, where that was not the configuration.
    limit: Option<String>,
}

impl Search {
    fn learn(&mut self, rate_per_s: f64, sample: &Sample) {
        let keeps_up = sample.achieved() >= ACHIEVED_MIN;
        if keeps_up && sample.invalid.is_none() {
            self.good = self.good.max(rate_per_s);
        } else if self.bad.is_none_or(|bad| rate_per_s < bad) {
            self.bad = Some(rate_per_s);
            self.limit = sample.invalid.clone();
        }
    }
}

/// Where the seed's figure 2 is.
const LOAD_BYTES: ByteCount = super::findings::LOAD_BYTES;
const LOAD_GETS: u32 = super::findings::LOAD_GETS;

/// A configuration keeps up while it answers this share of what is offered.
const ACHIEVED_MIN: f64 = 0.98;

const KNEE_STEP: f64 = 1.5;

/// For the progress bar.
const KNEE_SAMPLES: usize = 8;

/// Below this part of the lowest load the search ends: the configuration does not serve.
const KNEE_GIVE_UP: f64 = 16.0;

/// No configuration of one core a service reaches it.
const KNEE_PER_S_MAX: f64 = 200_000.0;

/// From here on the accelerator must free four fifths of what the codec costs.
const FREED_BYTES_MIN: ByteCount = ByteCount::kib(4);
