//! The compressed cache's experiments: every configuration side by side, each point measured on all of them in turn, so
//! that drift of the machine meets all alike.

pub(crate) mod bars;
mod bars_page;
mod explained;
mod figures;
mod findings;
mod plan;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use harness::{Awake, Machine, Process, memcached_is_here};
use indicatif::ProgressBar;
use units::{ByteCount, Nanos, Op};

use crate::base::rows::Rows;
use crate::base::{Problem, Session, progress_bar};
use crate::testbed::{
    Backing, Configuration, Deployment, Door, Load, PROCESSES, Place, Probe, Sample, Site, Work,
    why_not,
};
use bars::{ACHIEVED_MIN, RATES_PER_S};
use findings::{Findings, Knee, LOAD_BYTES, LOAD_GETS, Point, Stages};
use plan::Plan;

/// What is measured, how often and how long.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Few points, one short run each: to see that it works.
    #[arg(long)]
    pub quick: bool,
    /// How often every point is measured.
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
    /// How long each time.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Nanos>,
    /// The offered load of the size sweep (1/s); without it the paper's 4000, or 500 on fewer than 8 cores.
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// The value sizes.
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<ByteCount>,
    /// The shares of gets (percent).
    #[arg(long, value_delimiter = ',', value_name = "PERCENT")]
    pub gets: Vec<u32>,
    /// The loads of the load sweep (1/s).
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub loads: Vec<f64>,
    /// The configurations by their ids, such as lane_iaa_direct; without it all.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    pub configurations: Vec<String>,
    /// The parts; without it all.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PART")]
    pub parts: Vec<Part>,
    /// Intel QPL's library; without it REBATE_QPL_LIBRARY names it.
    #[arg(long, value_name = "FILE")]
    pub qpl_library: Option<PathBuf>,
}

/// A part of the experiment that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Latency against size, with the stages of each size.
    Sizes,
    /// Latency against offered load, and the highest load kept up with.
    Loads,
    /// The lane against the monolith at 64 KiB, at the paper's load and as fast as answers come.
    Bars,
}

impl Part {
    const ALL: [Part; 3] = [Part::Sizes, Part::Loads, Part::Bars];
}

/// Runs what is asked for and writes `cache.json` and `report.html`.
///
/// # Errors
/// Why there are no results.
pub fn run(options: &Options, session: &Session) -> Result<(), Problem> {
    let machine = Machine::here();
    let mut plan = Plan::new(options, &machine)?;
    let failed = |error: String| Problem::Failed(error);
    session.make_folder()?;
    if !memcached_is_here() {
        let how = "install it (Debian: apt install memcached)";
        return Err(failed(format!("memcached is not on the PATH; {how} and run this again")));
    }
    let left_out = leave_out(&mut plan, options.qpl_library.as_deref());
    if plan.configurations.is_empty() {
        return Err(failed("no configuration is left".to_owned()));
    }
    let library = options.qpl_library.as_deref();
    let experiment =
        Experiment::start(plan, machine, library, Arc::clone(&session.stop)).map_err(failed)?;
    let (findings, unfinished) = experiment.run().map_err(failed)?;
    let findings = Findings { left_out, ..findings };
    let mut rows = Rows::new("cache", &experiment.machine, &experiment.conditions());
    rows.unfinished = unfinished;
    findings.write(&mut rows);
    session.say([findings.summary()]);
    session.say(bars::summary(&rows.bars));
    session.write(&rows, "report.html", &figures::report(&findings, &rows))
}

/// Takes out of the plan what this machine has not got, and says so at once: an absence is not to be found in a table.
fn leave_out(plan: &mut Plan, library: Option<&Path>) -> Vec<(Configuration, String)> {
    let mut left_out: Vec<(Configuration, String)> = Vec::new();
    for own in &plan.configurations {
        let known = left_out.iter().find(|(other, _)| other.work == own.work);
        let why = known.map(|(_, why)| why.clone()).or_else(|| why_not(own.work, library));
        left_out.extend(why.map(|why| (*own, why)));
    }
    for (own, why) in &left_out {
        eprintln!("rebate: {} is left out: {why}", own.id());
    }
    plan.configurations.retain(|own| !left_out.iter().any(|(other, _)| other == own));
    left_out
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
    fn start(
        plan: Plan,
        machine: Machine,
        qpl_library: Option<&Path>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let args = "serve --role scheduler --grpc-listen 127.0.0.1:0 --threads 1";
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        let mut scheduler = Process::rebate("scheduler", &args, machine.core(5, PROCESSES))?;
        let [address] = scheduler.lines_after(["grpc on "])?;
        let backing = Backing::Memcached;
        let site = Site { backing, machine: &machine, scheduler: Some(&address), qpl_library };
        let start = |own: &Configuration| Deployment::start(*own, &site);
        let deployments = plan.configurations.iter().map(start).collect::<Result<_, _>>()?;
        let bar = progress_bar();
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

    /// What was found; interrupted, what was until then, and where that was.
    fn run(&self) -> Result<(Findings, Option<String>), String> {
        let mut findings = Findings::new(self.plan.clone());
        let end = self.measure(&mut findings);
        self.bar.finish_and_clear();
        match end {
            Ok(()) => Ok((findings, None)),
            Err(_) if self.not_stopped().is_err() && !findings.points.is_empty() => {
                let at = format!("interrupted at {}, {}", self.bar.prefix(), self.bar.message());
                Ok((findings, Some(at)))
            }
            Err(error) => Err(error),
        }
    }

    fn measure(&self, findings: &mut Findings) -> Result<(), String> {
        let plan = &self.plan;
        self.bar.set_length((plan.runs * self.samples()) as u64);
        for run in 0..plan.runs {
            self.bar.set_prefix(format!("run {} of {}", run + 1, plan.runs));
            if plan.has(Part::Bars) {
                self.bars(findings, run)?;
            }
            if plan.has(Part::Sizes) {
                for &size in &plan.sizes {
                    self.size(findings, run, size)?;
                }
            }
            if plan.has(Part::Loads) {
                self.loads(findings, run)?;
            }
        }
        Ok(())
    }

    /// About how many samples one run takes.
    fn samples(&self) -> usize {
        let plan = &self.plan;
        let mixes = plan.gets.len();
        let of = |part: Part, samples: usize| if plan.has(part) { samples } else { 0 };
        // The busy frontend, in software and not, is two samples a size and mix; a knee is some eight.
        let sizes = plan.sizes.len() * mixes * (self.deployments.len() + 2);
        let loads = self.deployments.len() * (plan.loads_per_s.len() + KNEE_SAMPLES);
        let bars = 2 * self.deployments.len() * plan.bar_gets().count();
        of(Part::Sizes, sizes) + of(Part::Loads, loads) + of(Part::Bars, bars)
    }

    /// At one size, each way to the store by itself: the seed's load, or the highest that all can carry that are
    /// judged; then as fast as answers come.
    fn bars(&self, findings: &mut Findings, run: usize) -> Result<(), String> {
        for door in Door::ALL {
            if !self.plan.measures(Configuration::new(Place::Lane, Work::Iaa, door)) {
                continue;
            }
            for gets in self.plan.bar_gets() {
                if run == 0 {
                    let carried = self.carried(door, gets)?;
                    findings.carried_per_s.extend(carried.map(|per_s| ((door, gets), per_s)));
                }
                let rate = findings.carried_per_s.get(&(door, gets)).copied();
                let maximum = Load {
                    warmup: self.plan.warmup,
                    duration: self.plan.duration,
                    ..Load::saturating(LOAD_BYTES, f64::from(gets) / 100.0)
                };
                for deployment in self.turns(run).filter(|own| own.configuration.door == door) {
                    let own = deployment.configuration;
                    if let Some(per_s) = rate {
                        let sample = self.at_load(deployment, gets, per_s)?;
                        findings.points.entry(Point::carried(own, gets)).or_default().push(sample);
                    }
                    let sample = self.take(deployment, &maximum, "as fast as answers come")?;
                    findings.points.entry(Point::maximum(own, gets)).or_default().push(sample);
                }
            }
        }
        Ok(())
    }

    /// The highest of the loads that every judged configuration carries.
    fn carried(&self, door: Door, gets: u32) -> Result<Option<f64>, String> {
        let judged = |own: &&Deployment| own.configuration.door == door && is_judged(own);
        for rate_per_s in RATES_PER_S {
            let mut all = true;
            for deployment in self.deployments.iter().filter(judged) {
                // One sample can fail for what else the machine does.
                let sample = || self.at_load(deployment, gets, rate_per_s);
                all = keeps_up(&sample()?) || keeps_up(&sample()?);
                if !all {
                    break;
                }
            }
            if all {
                return Ok(Some(rate_per_s));
            }
        }
        Ok(None)
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
                let load = self.learning(deployment, load);
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
                let is_of_freed = matches!(own.work, Work::Software | Work::Iaa);
                if own.is_microservice() || !is_of_freed || own.door == Door::Grpc {
                    continue;
                }
                let point = Point::saturated(deployment.configuration, size, gets);
                let sample = self.take(deployment, &load, &format!("{size}, saturated"))?;
                findings.points.entry(point).or_default().push(sample);
            }
        }
        Ok(())
    }

    /// The load, with the time to learn where a policy does.
    fn learning(&self, deployment: &Deployment, load: Load) -> Load {
        let times = if deployment.configuration.work == Work::LeastLatency { LEARNING } else { 1 };
        Load { warmup: Nanos(self.plan.warmup.0 * times), ..load }
    }

    fn stages(&self, value_bytes: ByteCount, op: Op) -> Result<Stages, String> {
        let (rate_per_s, jobs) = (self.plan.rate_per_s, self.plan.stage_jobs);
        let probe = Probe { value_bytes, op, rate_per_s, jobs };
        let hop = |place| {
            let of_place = |own: &&Deployment| own.configuration.place == place;
            // Where a service has both, that in software: what its device takes is not the hop's.
            let services = self.deployments.iter().filter(of_place);
            let service = services.min_by_key(|own| own.configuration.is_emulated());
            let way = service.and_then(Deployment::compression);
            way.map(|way| probe.hop(way)).transpose()
        };
        let stages = Stages {
            software: probe.software()?,
            busy: probe.busy_software()?,
            best: probe.best_software()?,
            device: probe.device()?,
            hop: hop(Place::Microservice)?,
            lane: hop(Place::Lane)?,
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
                let sample = self.at_load(deployment, LOAD_GETS, rate_per_s)?;
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
            let step = KNEE_STEP.max(1.0 + self.plan.knee_precision);
            let next = (search.good * step).max(lowest);
            search.learn(next, &self.at_load(deployment, LOAD_GETS, next)?);
        }
        while let Some(bad) = search.bad
            && bad - search.good > search.good * self.plan.knee_precision
            && bad > lowest / KNEE_GIVE_UP
        {
            let middle = f64::midpoint(search.good, bad);
            search.learn(middle, &self.at_load(deployment, LOAD_GETS, middle)?);
        }
        Ok(Knee { per_s: search.good, limit: search.limit })
    }

    fn at_load(&self, own: &Deployment, gets: u32, rate_per_s: f64) -> Result<Sample, String> {
        let load = self.load(LOAD_BYTES, gets, rate_per_s);
        self.take(own, &load, &format!("{gets} % gets, {rate_per_s:.0}/s"))
    }

    fn load(&self, size: ByteCount, gets: u32, rate_per_s: f64) -> Load {
        let load = Load::open(size, f64::from(gets) / 100.0, rate_per_s);
        Load { warmup: self.plan.warmup, duration: self.plan.duration, ..load }
    }

    fn take(&self, deployment: &Deployment, load: &Load, what: &str) -> Result<Sample, String> {
        self.bar.set_message(format!("{}: {what}", deployment.configuration.id()));
        // Elsewhere the load's own sets have the device remember its results; this policy may keep them at home.
        if deployment.configuration.work == Work::LeastLatency
            && let Some(way) = deployment.compression()
        {
            Probe::warm(load.value_bytes, way)?;
        }
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

/// Whether the load was carried.
fn keeps_up(sample: &Sample) -> bool {
    sample.achieved() >= ACHIEVED_MIN && sample.invalid.is_none()
}

/// Whether a bar is about it.
fn is_judged(own: &Deployment) -> bool {
    let Configuration { place, work, .. } = own.configuration;
    matches!((place, work), (Place::Monolith, Work::Best | Work::Iaa) | (Place::Lane, Work::Iaa))
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
        if keeps_up(sample) {
            self.good = self.good.max(rate_per_s);
        } else if self.bad.is_none_or(|bad| rate_per_s < bad) {
            self.bad = Some(rate_per_s);
            self.limit = sample.invalid.clone();
        }
    }
}

const KNEE_STEP: f64 = 1.5;

/// A policy that learns is loaded so many times as long before it is measured.
const LEARNING: u64 = 10;

/// For the progress bar.
const KNEE_SAMPLES: usize = 8;

/// Below this part of the lowest load the search ends: the configuration does not serve.
const KNEE_GIVE_UP: f64 = 16.0;

/// No configuration of one core a service reaches it.
const KNEE_PER_S_MAX: f64 = 200_000.0;

/// From here on the accelerator must free four fifths of what the codec costs.
const FREED_BYTES_MIN: ByteCount = ByteCount::kib(4);
