//! `rebate reproduce EXPERIMENT`: runs a paper's experiment here and compares the result with the published numbers. It
//! turns flags into one call of the crate `experiments` and prints the outcome.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Subcommand};
use experiments::{Problem, Session, accelerometer, accelflow, arcalis, cache, offload, scheduler};

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
    /// The compressed cache [CacheTax]: as a monolith and as microservices, in software and with a virtual IAA.
    ///
    /// Latency against value size and against load, what each stage takes, and what the accelerator frees; at 64 KiB,
    /// what a compression service next door comes to beside the monolith. Writes cache.json and report.html. Needs
    /// memcached; with Intel QPL's library the monolith is measured in that too. --quick takes some minutes; without
    /// it, on two cores, an estimated three hours. --configurations and --parts take less.
    #[command(after_help = CACHE)]
    Cache(Run<cache::Options>),
    /// What acceleration gives [Accelerometer]: the printed numbers, and A/B runs on this machine.
    ///
    /// The numbers that Accelerometer prints, computed by our model from its inputs (specs/profiles); and A/B runs of
    /// an example service, with and without acceleration, held against what the model says from the run without it and
    /// a microbenchmark. Writes accelerometer.json and accelerometer.html. --quick takes half a minute, estimated;
    /// without it some ten minutes.
    #[command(after_help = ACCELEROMETER)]
    Accelerometer(Run<accelerometer::Options>),
    /// When and how to offload [OffloadSched]: the offload runtime, emulated and measured.
    ///
    /// On one core and on two: a virtual BlueField-2 beside the paper's software, beside our own codec, and worker
    /// threads: latency by size, five modes on three workloads, polling, load past saturation. Writes runtime.json and
    /// runtime.html. With Intel QPL's library, or in a build with DPDK, latency by size and the modes are measured on
    /// those, too. --quick takes less than a minute; without it, on an idle machine, an estimated quarter of an hour.
    #[command(after_help = RUNTIME)]
    Runtime(Run<offload::Options>),
    /// Orchestrating an ensemble of accelerators [AccelFlow]: simulated.
    ///
    /// AccelFlow's server under ten orchestrators in two scenarios, what is varied in it, and RELIEF's own applications
    /// (see rebate sim). Writes accelflow.json and accelflow.html; measures nothing. Some minutes; --quick takes less.
    /// Interrupted, the same command goes on where it was: studies are kept in accelflow.unfinished.
    Accelflow(Run<accelflow::Options>),
    /// A near-cache RPC engine [Arcalis]: simulated, and in software.
    ///
    /// The engine between two cores (see rebate sim): speedups, what they depend on, what the paper's numbers say of
    /// each other; and the engine in software: where its CPU time goes, and with valgrind what a core executes. Writes
    /// arcalis.json and arcalis.html. Some minutes, estimated; --quick takes less. Ctrl-C keeps the parts that are
    /// done.
    Arcalis(Run<arcalis::Options>),
    /// The scheduler in charge of the compressed cache, against every static policy.
    ///
    /// With a virtual IAA, at five loads and five sizes. Writes scheduler.json and scheduler.html. --quick takes less
    /// than a minute; without it an estimated quarter of an hour. Ctrl-C keeps the sizes and loads that are done.
    #[command(after_help = SCHEDULER)]
    Scheduler(Run<scheduler::Options>),
    /// All of them, one after the other, as they are without flags.
    All(All),
}

/// The flags of one experiment, with the folder for its results.
#[derive(Debug, Args)]
struct Run<Options: Args> {
    /// Where results go; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    options: Options,
}

/// The flags of `rebate reproduce all`, which runs every experiment.
#[derive(Debug, Args)]
struct All {
    /// Where results go; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Few points, one short run each: to see that all of them work.
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
            Self::All(all) => all.run(stop),
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

impl All {
    /// Runs every experiment, the simulated ones first. If one fails, the others still produce their results.
    fn run(&self, stop: &Arc<AtomicBool>) -> Result<(), Problem> {
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
        if failed.is_empty() { Ok(()) } else { Err(Problem::Failed(failed.join("; "))) }
    }

    fn experiments(&self) -> [(&'static str, Experiment); 6] {
        let quick = self.quick;
        [
            (
                "accelflow",
                Experiment::Accelflow(self.one(accelflow::Options { quick, runs: None })),
            ),
            ("arcalis", Experiment::Arcalis(self.one(arcalis::Options { quick, runs: None }))),
            (
                "accelerometer",
                Experiment::Accelerometer(
                    self.one(accelerometer::Options { quick, ..Default::default() }),
                ),
            ),
            (
                "runtime",
                Experiment::Runtime(self.one(offload::Options { quick, ..Default::default() })),
            ),
            (
                "scheduler",
                Experiment::Scheduler(self.one(scheduler::Options { quick, ..Default::default() })),
            ),
            ("cache", Experiment::Cache(self.one(cache::Options { quick, ..Default::default() }))),
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

`rebate reproduce EXPERIMENT --help` has the flags and more examples of each. docs/references.md names the papers.";

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
