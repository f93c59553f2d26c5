//! `rebate reproduce EXPERIMENT`: runs a paper's experiment here and compares the result with the published numbers. It
//! turns flags into one call of the crate `experiments` and prints the outcome.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use experiments::{
    Measurement, Problem, Session, Simulation, accelerometer, accelflow, arcalis, cache, index,
    offload, scheduler,
};

use crate::terminal::{CliError, print_line, stop_on_signal};

/// The flags of `rebate reproduce`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reproduce {
    #[command(subcommand)]
    experiment: Experiment,
}

/// The experiments.
#[derive(Debug, Subcommand)]
enum Experiment {
    /// Measure the compressed cache [CacheTax]: monolith and microservices, software and a virtual IAA.
    ///
    /// Measures latency by value size and by load, the time of each stage, and the CPU time that the
    /// accelerator frees. At 64 KiB, compares a compression service on the same host with the monolith.
    /// Writes cache.json and report.html. Needs memcached, and measures Intel QPL if its library is given.
    /// Takes an estimated three hours on two cores, or some minutes with --quick. --configurations and
    /// --parts reduce the time.
    #[command(after_help = CACHE)]
    Cache(Run<cache::Options>),
    /// Compute the gains from acceleration [Accelerometer], and test the model with A/B runs on this machine.
    ///
    /// The first part computes the numbers of the paper from the paper's inputs (specs/profiles). The second
    /// part runs an example service with and without acceleration. It compares the measured gain with the
    /// model's estimate from the run without acceleration and a microbenchmark. Writes accelerometer.json and
    /// accelerometer.html. Takes an estimated ten minutes, or half a minute with --quick.
    #[command(after_help = ACCELEROMETER)]
    Accelerometer(Run<accelerometer::Options>),
    /// Measure when and how to offload jobs [OffloadSched], with the offload runtime and emulated devices.
    ///
    /// Compares a virtual BlueField-2 with the paper's software, our codec and worker threads, on one core
    /// and on two: latency by size, five modes on three workloads, polling, and load beyond saturation. Uses
    /// Intel QPL and DPDK, if there, for latency by size and the modes. Writes runtime.json and runtime.html.
    /// Takes an estimated quarter of an hour on an idle machine, or less than a minute with --quick.
    #[command(after_help = RUNTIME)]
    Runtime(Run<offload::Options>),
    /// Simulate the orchestration of an ensemble of accelerators [AccelFlow].
    ///
    /// Simulates AccelFlow's server under all orchestrators in three scenarios and with varied parameters, and
    /// RELIEF's own applications (see rebate sim). Measures nothing. Writes accelflow.json and
    /// accelflow.html. Takes some minutes, or less with --quick. Studies are saved in accelflow.unfinished,
    /// and the same command resumes after an interruption.
    Accelflow(Run<Simulation>),
    /// Simulate a near-cache RPC engine [Arcalis], and measure the engine in software.
    ///
    /// Simulates the engine between two cores (see rebate sim): its speedups, the parameters on which they
    /// depend, and contradictions between the paper's numbers. Then measures how the engine in software
    /// spends its CPU time and, with valgrind, what a core executes. Writes arcalis.json and arcalis.html.
    /// Takes an estimated few minutes, or less with --quick. Ctrl-C keeps the parts that are done.
    Arcalis(Run<Simulation>),
    /// Compare the compressed cache under a scheduler with the cache under every static policy.
    ///
    /// Uses a virtual IAA, five loads and five sizes. Writes scheduler.json and scheduler.html. Takes an
    /// estimated quarter of an hour, or less than a minute with --quick. Ctrl-C keeps the finished sizes and
    /// loads.
    #[command(after_help = SCHEDULER)]
    Scheduler(Run<scheduler::Options>),
    /// Run all experiments, one after the other, with their default flags, and write index.html with all claims.
    All(Run<All>),
}

/// The flags of one experiment, with the folder for its results.
#[derive(Debug, Args)]
struct Run<Options: Args> {
    /// Directory for the results. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// The flags of `rebate reproduce all`, which runs every experiment.
#[derive(Debug, Args)]
struct All {
    /// Measure only few points with short runs, to check that all experiments work.
    #[arg(long)]
    quick: bool,
}

impl Reproduce {
    /// Runs the experiments and writes their results.
    pub(crate) fn run(&self) -> Result<(), CliError> {
        self.experiment.run(&stop_on_signal()?).map_err(|problem| match problem {
            Problem::Usage(problem) => CliError::Usage(problem),
            Problem::Failed(problem) => CliError::Failed(problem),
        })
    }
}

impl Experiment {
    fn run(&self, stop: &Arc<AtomicBool>) -> Result<(), Problem> {
        match self {
            Self::Cache(run) => run.with(cache::run, stop),
            Self::Accelerometer(run) => run.with(accelerometer::run, stop),
            Self::Runtime(run) => run.with(offload::run, stop),
            Self::Accelflow(run) => run.with(accelflow::run, stop),
            Self::Arcalis(run) => run.with(arcalis::run, stop),
            Self::Scheduler(run) => run.with(scheduler::run, stop),
            Self::All(run) => run.all(stop),
        }
    }
}

impl<Options: Args> Run<Options> {
    fn with(
        &self,
        experiment: fn(&Options, &Session) -> Result<(), Problem>,
        stop: &Arc<AtomicBool>,
    ) -> Result<(), Problem> {
        experiment(&self.options, &Session::new(&self.out, Arc::clone(stop), print_line))
    }
}

impl Run<All> {
    /// Runs every experiment, the simulated ones first, and writes the index page. If one fails, the others still
    /// produce their results.
    fn all(&self, stop: &Arc<AtomicBool>) -> Result<(), Problem> {
        let mut failed = Vec::new();
        for (name, experiment) in self.experiments() {
            if stop.load(Ordering::Relaxed) {
                failed.push(format!("interrupted before {name}"));
                break;
            }
            print_line(&format!("{name}:"));
            if let Err(problem) = experiment.run(stop) {
                failed.push(format!("{name}: {problem}"));
            }
        }
        match index::write(&self.out) {
            Ok(path) => print_line(&format!("wrote {path}: claims, numbers and verdicts")),
            Err(problem) => failed.push(format!("index: {problem}")),
        }
        if failed.is_empty() { Ok(()) } else { Err(Problem::Failed(failed.join("; "))) }
    }

    fn experiments(&self) -> [(&'static str, Experiment); 6] {
        let quick = self.options.quick;
        let simulation = || self.one(Simulation { quick, ..Default::default() });
        let measurement = Measurement { quick, ..Default::default() };
        let accelerometer =
            accelerometer::Options { measurement: measurement.clone(), ..Default::default() };
        let offload = offload::Options { measurement: measurement.clone(), ..Default::default() };
        let scheduler =
            scheduler::Options { measurement: measurement.clone(), ..Default::default() };
        let cache = cache::Options { measurement, ..Default::default() };
        [
            ("accelflow", Experiment::Accelflow(simulation())),
            ("arcalis", Experiment::Arcalis(simulation())),
            ("accelerometer", Experiment::Accelerometer(self.one(accelerometer))),
            ("runtime", Experiment::Runtime(self.one(offload))),
            ("scheduler", Experiment::Scheduler(self.one(scheduler))),
            ("cache", Experiment::Cache(self.one(cache))),
        ]
    }

    fn one<Options: Args>(&self, options: Options) -> Run<Options> {
        Run { out: self.out.clone(), options }
    }
}

const EXAMPLES: &str = "Examples:
  rebate reproduce cache --out results --quick
  rebate reproduce accelflow --out results
  rebate reproduce runtime --out results --parts loads --duration 1s
  rebate reproduce all --out results --quick

`rebate reproduce EXPERIMENT --help` shows the flags and more examples. docs/references.md lists the papers.";

const CACHE: &str = "Examples:
  rebate reproduce cache --out results
  rebate reproduce cache --out results --rate 2000 --sizes 4KiB,64KiB --gets 90 --runs 3
  rebate reproduce cache --out results --parts bars --qpl-library /usr/local/lib/libqpl.so
  rebate reproduce cache --out results --quick --configurations monolith_software,lane_iaa";

const ACCELEROMETER: &str = "Examples:
  rebate reproduce accelerometer --out results --quick
  rebate reproduce accelerometer --out results --runs 51 --duration 100ms
  rebate reproduce accelerometer --out results --configurations iaa.async,remote.grpc";

const RUNTIME: &str = "Examples:
  rebate reproduce runtime --out results --quick
  rebate reproduce runtime --out results --runs 7
  rebate reproduce runtime --out results --parts sizes,modes --qpl-library /usr/local/lib/libqpl.so";

const SCHEDULER: &str = "Examples:
  rebate reproduce scheduler --out results --quick
  rebate reproduce scheduler --out results --runs 3 --sizes 4KiB,16KiB --duration 500ms";
