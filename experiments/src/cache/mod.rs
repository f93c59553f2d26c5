//! The experiments of the compressed cache (\[CacheTax\]). All configurations run at the same time, and each point is
//! measured on all of them in turn, so that drift of the machine affects all of them equally.

mod attribution;
mod claims;
mod criteria;
mod criteria_page;
mod figures;
mod plan;
mod results;

use std::path::{Path, PathBuf};

use harness::{Awake, Machine, Process, memcached_is_here};
use units::{ByteCount, Nanos, Op};

use crate::base::rows::Rows;
use crate::base::{ACHIEVED_MIN, Measurement, Problem, Session};
use crate::testbed::{
    Backing, Compressor, Configuration, Deployment, Load, PROCESSES, Probe, Sample, Site,
    StoreRoute, Topology, unavailable_reason,
};
use criteria::RATES_PER_S;
use plan::Plan;
use results::{Knee, LOAD_BYTES, LOAD_GETS, Point, Results, Stages};

/// The options of the experiment: what is measured, how often and how long.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// The flags that every measurement has.
    #[command(flatten)]
    pub measurement: Measurement,
    /// Requests per second in the size sweep. The default is the paper's 4000, or 500 on fewer than 8 cores.
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// Value sizes to measure, such as 4KiB,64KiB.
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<ByteCount>,
    /// Shares of gets to measure (percent).
    #[arg(long, value_delimiter = ',', value_name = "PERCENT")]
    pub gets: Vec<u32>,
    /// Loads of the load sweep (requests per second).
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub loads: Vec<f64>,
    /// Ids of the configurations to measure, such as lane_iaa_direct. The default is all.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    pub configurations: Vec<String>,
    /// Parts of the experiment to run. The default is all parts.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PART")]
    pub parts: Vec<Part>,
    /// Path of Intel QPL's library. The default is the path in REBATE_QPL_LIBRARY.
    #[arg(long, value_name = "FILE")]
    pub qpl_library: Option<PathBuf>,
}

/// A part of the experiment that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Latency by value size, and the time of each stage.
    Sizes,
    /// Latency by load, and the highest load that each configuration carries.
    Loads,
    /// Comparison of the lane with the monolith at 64 KiB, at the paper's load and in a closed loop.
    #[value(name = "bars")]
    Criteria,
}

impl Part {
    const ALL: [Part; 3] = [Part::Sizes, Part::Loads, Part::Criteria];
}

/// Runs the requested parts, and writes `cache.json` and `report.html`.
///
/// # Errors
/// The error says why there are no results.
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
    let experiment = Experiment::start(plan, machine, library, session.clone()).map_err(failed)?;
    let (results, unfinished) = experiment.run().map_err(failed)?;
    let results = Results { left_out, ..results };
    let mut rows = Rows::new("cache", &experiment.machine, &experiment.conditions());
    rows.unfinished = unfinished;
    results.write(&mut rows);
    session.say([results.summary()]);
    session.say(criteria::summary(&rows.criteria));
    session.write(&rows, "report.html", &figures::report(&results, &rows))
}

/// Removes from the plan the configurations that this machine cannot run. It prints each of them with the
/// reason.
fn leave_out(plan: &mut Plan, library: Option<&Path>) -> Vec<(Configuration, String)> {
    let mut left_out: Vec<(Configuration, String)> = Vec::new();
    for configuration in &plan.configurations {
        let known = left_out.iter().find(|(other, _)| other.compressor == configuration.compressor);
        let why = known
            .map(|(_, why)| why.clone())
            .or_else(|| unavailable_reason(configuration.compressor, library));
        left_out.extend(why.map(|why| (*configuration, why)));
    }
    for (configuration, why) in &left_out {
        eprintln!("rebate: {} is left out: {why}", configuration.id());
    }
    plan.configurations
        .retain(|configuration| !left_out.iter().any(|(other, _)| other == configuration));
    left_out
}

/// All configurations, as running processes.
struct Experiment {
    plan: Plan,
    machine: Machine,
    deployments: Vec<Deployment>,
    /// The guard that keeps the cores awake, or None if the cores may sleep.
    awake: Option<Awake>,
    /// The scheduler. It is dropped last, because the other processes report to it.
    _scheduler: Process,
    session: Session,
}

impl Experiment {
    fn start(
        plan: Plan,
        machine: Machine,
        qpl_library: Option<&Path>,
        session: Session,
    ) -> Result<Self, String> {
        let args = "serve --role scheduler --grpc-listen 127.0.0.1:0 --threads 1";
        let args: Vec<String> = args.split_whitespace().map(str::to_owned).collect();
        let mut scheduler = Process::rebate("scheduler", &args, machine.core(5, PROCESSES))?;
        let [address] = scheduler.lines_after(["grpc on "])?;
        let backing = Backing::Memcached;
        let site = Site { backing, machine: &machine, scheduler: Some(&address), qpl_library };
        let start = |configuration: &Configuration| Deployment::start(*configuration, &site);
        let deployments = plan.configurations.iter().map(start).collect::<Result<_, _>>()?;
        machine.keep_to_first_core(PROCESSES);
        let awake = Awake::start();
        Ok(Self { plan, machine, deployments, awake, _scheduler: scheduler, session })
    }

    /// Returns a text that says where the processes run and whether the cores may sleep.
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

    /// Returns the results. If the run was interrupted, it also returns the place of the interruption.
    fn run(&self) -> Result<(Results, Option<String>), String> {
        let mut results = Results::new(self.plan.clone());
        let end = self.measure(&mut results);
        self.session.progress.end();
        match end {
            Ok(()) => Ok((results, None)),
            Err(_) if self.session.is_stopped() && !results.points.is_empty() => {
                let at = format!(
                    "interrupted at {}, {}",
                    self.session.progress.part(),
                    self.session.progress.message()
                );
                Ok((results, Some(at)))
            }
            Err(error) => Err(error),
        }
    }

    fn measure(&self, results: &mut Results) -> Result<(), String> {
        let plan = &self.plan;
        self.session.progress.restart((plan.runs * self.samples()) as u64);
        for run in 0..plan.runs {
            self.session.progress.set_part(format!("run {} of {}", run + 1, plan.runs));
            if plan.has(Part::Criteria) {
                self.criteria(results, run)?;
            }
            if plan.has(Part::Sizes) {
                for &size in &plan.sizes {
                    self.size(results, run, size)?;
                }
            }
            if plan.has(Part::Loads) {
                self.loads(results, run)?;
            }
        }
        Ok(())
    }

    /// Returns the approximate number of samples of one run.
    fn samples(&self) -> usize {
        let plan = &self.plan;
        let mixes = plan.gets.len();
        let if_planned = |part: Part, samples: usize| if plan.has(part) { samples } else { 0 };
        // Per size and mix, the busy frontend takes two samples: one in software and one with the accelerator. A knee
        // takes about eight samples.
        let sizes = plan.sizes.len() * mixes * (self.deployments.len() + 2);
        let loads = self.deployments.len() * (plan.loads_per_s.len() + KNEE_SAMPLES);
        let criteria = 2 * self.deployments.len() * plan.criteria_gets().count();
        if_planned(Part::Sizes, sizes)
            + if_planned(Part::Loads, loads)
            + if_planned(Part::Criteria, criteria)
    }

    /// Measures one value size at two loads, for each route to the store. The first load is that of
    /// \[CacheTax\], or the highest that all compared configurations sustain. The second is a closed loop.
    fn criteria(&self, results: &mut Results, run: usize) -> Result<(), String> {
        for route in StoreRoute::ALL {
            if !self.plan.measures(Configuration::new(Topology::Lane, Compressor::Iaa, route)) {
                continue;
            }
            for gets in self.plan.criteria_gets() {
                if run == 0 {
                    let carried = self.carried(route, gets)?;
                    results.carried_per_s.extend(carried.map(|per_s| ((route, gets), per_s)));
                }
                let rate = results.carried_per_s.get(&(route, gets)).copied();
                let maximum = Load {
                    warmup: self.plan.warmup,
                    duration: self.plan.duration,
                    ..Load::saturating(LOAD_BYTES, f64::from(gets) / 100.0)
                };
                for deployment in
                    self.turns(run).filter(|deployment| deployment.configuration.route == route)
                {
                    let configuration = deployment.configuration;
                    if let Some(per_s) = rate {
                        let sample = self.at_load(deployment, gets, per_s)?;
                        let point = Point::carried(configuration, gets);
                        results.points.entry(point).or_default().push(sample);
                    }
                    let sample = self.take(deployment, &maximum, "as fast as answers come")?;
                    let point = Point::maximum(configuration, gets);
                    results.points.entry(point).or_default().push(sample);
                }
            }
        }
        Ok(())
    }

    /// Returns the highest load of [`RATES_PER_S`] that every compared configuration sustains.
    fn carried(&self, route: StoreRoute, gets: u32) -> Result<Option<f64>, String> {
        let judged = |deployment: &&Deployment| {
            deployment.configuration.route == route && is_judged(deployment)
        };
        for rate_per_s in RATES_PER_S {
            let mut all = true;
            for deployment in self.deployments.iter().filter(judged) {
                // A configuration gets a second try, because other work of the machine can disturb one sample.
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

    /// Measures one size: each stage alone, every mix at the fixed load, and the codec's cost in a busy frontend.
    fn size(&self, results: &mut Results, run: usize, size: ByteCount) -> Result<(), String> {
        self.session.progress.set_message(format!("{size}: stages"));
        for op in [Op::Compress, Op::Decompress] {
            results.stages.entry((size, op.name())).or_default().push(self.stages(size, op)?);
        }
        for &gets in &self.plan.gets {
            let load = self.load(size, gets, self.plan.rate_per_s);
            for deployment in self.turns(run) {
                let point = Point::at_size(deployment.configuration, size, gets);
                let load = self.learning(deployment, load);
                let sample = self.take(deployment, &load, &format!("{size}, {gets} % gets"))?;
                results.points.entry(point).or_default().push(sample);
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
                let configuration = deployment.configuration;
                // The route to the store does not affect the accelerator's saving in a frontend, so one route is
                // enough.
                let is_of_freed =
                    matches!(configuration.compressor, Compressor::Software | Compressor::Iaa);
                if configuration.is_microservice()
                    || !is_of_freed
                    || configuration.route == StoreRoute::Grpc
                {
                    continue;
                }
                let point = Point::saturated(deployment.configuration, size, gets);
                let sample = self.take(deployment, &load, &format!("{size}, saturated"))?;
                results.points.entry(point).or_default().push(sample);
            }
        }
        Ok(())
    }

    /// Returns the load. Its warm-up is longer if the deployment's policy learns.
    fn learning(&self, deployment: &Deployment, load: Load) -> Load {
        let times = if deployment.configuration.compressor == Compressor::LeastLatency {
            LEARNING
        } else {
            1
        };
        Load { warmup: Nanos(self.plan.warmup.0 * times), ..load }
    }

    fn stages(&self, value_bytes: ByteCount, op: Op) -> Result<Stages, String> {
        let (rate_per_s, jobs) = (self.plan.rate_per_s, self.plan.stage_jobs);
        let probe = Probe { value_bytes, op, rate_per_s, jobs };
        let hop = |topology| {
            let of_topology =
                |deployment: &&Deployment| deployment.configuration.topology == topology;
            // If one service uses a device and another one software, the service in software is chosen, so that the
            // device's time is not part of the hop.
            let services = self.deployments.iter().filter(of_topology);
            let service = services.min_by_key(|deployment| deployment.configuration.is_emulated());
            let way = service.and_then(Deployment::compression);
            way.map(|way| probe.hop(way)).transpose()
        };
        let stages = Stages {
            software: probe.software()?,
            busy: probe.busy_software()?,
            best: probe.best_software()?,
            device: probe.device()?,
            hop: hop(Topology::Microservice)?,
            lane: hop(Topology::Lane)?,
        };
        self.session.check()?;
        Ok(stages)
    }

    /// Runs the sweep's loads on every configuration in ascending order, and then searches the knee. After a
    /// load that is not sustained, the higher loads are skipped, because there only the queue grows.
    fn loads(&self, results: &mut Results, run: usize) -> Result<(), String> {
        for deployment in self.turns(run) {
            let mut search = Search::default();
            for &rate_per_s in &self.plan.loads_per_s {
                if search.bad.is_some() {
                    self.session.progress.advance(1);
                    continue;
                }
                let sample = self.at_load(deployment, LOAD_GETS, rate_per_s)?;
                search.learn(rate_per_s, &sample);
                let point = Point::at_load(deployment.configuration, rate_per_s);
                results.points.entry(point).or_default().push(sample);
            }
            let knee = self.knee(deployment, search)?;
            results.knees.entry(deployment.configuration.id()).or_default().push(knee);
        }
        Ok(())
    }

    /// Returns the highest load that the configuration sustains. The search continues beyond the sweep's
    /// loads in growing steps, and then bisects.
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

    fn at_load(
        &self,
        deployment: &Deployment,
        gets: u32,
        rate_per_s: f64,
    ) -> Result<Sample, String> {
        let load = self.load(LOAD_BYTES, gets, rate_per_s);
        self.take(deployment, &load, &format!("{gets} % gets, {rate_per_s:.0}/s"))
    }

    fn load(&self, size: ByteCount, gets: u32, rate_per_s: f64) -> Load {
        let load = Load::open(size, f64::from(gets) / 100.0, rate_per_s);
        Load { warmup: self.plan.warmup, duration: self.plan.duration, ..load }
    }

    fn take(&self, deployment: &Deployment, load: &Load, what: &str) -> Result<Sample, String> {
        self.session.progress.set_message(format!("{}: {what}", deployment.configuration.id()));
        // With other policies the sets of the load make the device remember its results. This policy may run those sets
        // in software, so the device is warmed here.
        if deployment.configuration.compressor == Compressor::LeastLatency
            && let Some(way) = deployment.compression()
        {
            Probe::warm(load.value_bytes, way)?;
        }
        let sample = Sample::take(deployment, load, &self.session.stop);
        self.session.check()?;
        self.session.progress.advance(1);
        sample.map_err(|error| format!("{}: {error}", deployment.configuration.id()))
    }

    /// Returns all deployments. Each run starts with another deployment.
    fn turns(&self, run: usize) -> impl Iterator<Item = &Deployment> {
        let count = self.deployments.len();
        self.deployments.iter().cycle().skip(run % count).take(count)
    }
}

/// Returns whether the configuration sustained the load.
fn keeps_up(sample: &Sample) -> bool {
    sample.achieved() >= ACHIEVED_MIN && sample.invalid.is_none()
}

/// Returns whether a criterion applies to the deployment.
fn is_judged(deployment: &Deployment) -> bool {
    let Configuration { topology, compressor, .. } = deployment.configuration;
    matches!(
        (topology, compressor),
        (Topology::Monolith, Compressor::Best | Compressor::Iaa)
            | (Topology::Lane, Compressor::Iaa)
    )
}

/// The highest load that was sustained (`good`) and the lowest load that was not sustained (`bad`), in 1/s.
#[derive(Default)]
struct Search {
    good: f64,
    bad: Option<f64>,
    /// The reason why the load `bad` failed, if the cause was not the configuration.
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

/// The factor that lengthens the warm-up of a policy that learns.
const LEARNING: u64 = 10;

/// The number of samples per knee that the progress bar expects.
const KNEE_SAMPLES: usize = 8;

/// The search ends below the lowest load of the sweep divided by this number.
const KNEE_GIVE_UP: f64 = 16.0;

/// The upper end of the search for the knee (1/s). No configuration with one core per service reaches it.
const KNEE_PER_S_MAX: f64 = 200_000.0;

/// The smallest value size for which the saved CPU time is measured. From this size on the accelerator must
/// save four fifths of the codec's cost.
const FREED_BYTES_MIN: ByteCount = ByteCount::kib(4);
