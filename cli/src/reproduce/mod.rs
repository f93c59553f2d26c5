//! `rebate reproduce NAME`: runs one research document's experiments here and sets the published numbers beside ours,
//! as rows for programs and a page for people. Every number is found in the run that reports it.

mod accelerometer;
mod accelflow;
mod cache;
mod explained;
mod figures;
mod findings;
mod plan;
mod rows;
mod runtime;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use units::{ByteCount, Nanos};

pub(crate) use rows::{Spread, command};

use crate::experiment::VIRTUAL;
use crate::{EXIT_FAILED, EXIT_USAGE};

const EXAMPLES: &str = "Examples:
  rebate reproduce cache --out results --quick
  rebate reproduce cache --out results
  rebate reproduce cache --out results --rate 2000 --sizes 4KiB,64KiB --gets 90 --runs 3
  rebate reproduce accelerometer --out results
  rebate reproduce accelflow --out results --quick
  rebate reproduce runtime --out results --quick
  rebate reproduce runtime --out results --runs 7

cache: the compressed cache as a monolith and as microservices, in software and with a virtual IAA: latency against
value size and against load, what each stage takes, and what the accelerator frees. Writes cache.json and report.html.
Needs memcached. --quick takes a minute or two; without it, on two cores, an estimated hour and a half.

accelerometer: the numbers that Accelerometer prints, computed by our model from its inputs (specs/profiles). Writes
accelerometer.json and accelerometer.html; measures nothing, and takes no other flag.

accelflow: AccelFlow's server simulated under nine orchestrators in two scenarios, and what is varied in it (see rebate
sim). Writes accelflow.json and accelflow.html; measures nothing; takes --runs. Some minutes; --quick takes less.

runtime: when and how to offload, on one core and on two: a virtual BlueField-2 beside the document's software, beside
our own codec, and worker threads: latency by size, five modes on three workloads, polling, load past saturation. Writes
runtime.json and runtime.html; takes --runs, --sizes, --loads and --duration (of one point of load). --quick takes less
than a minute; without it, on an idle machine, an estimated quarter of an hour.";

/// The flags of `rebate reproduce`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reproduce {
    /// The experiments to run.
    #[arg(value_enum)]
    name: Name,
    /// Where results go; made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Few points, one short run each: to see that it works.
    #[arg(long)]
    quick: bool,
    /// How often every point is measured.
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// How long each time.
    #[arg(long, value_parser = crate::load::time, value_name = "TIME")]
    duration: Option<Nanos>,
    /// The offered load of the size sweep (1/s); without it the seed's 4000, or 500 on fewer than 8 cores.
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// The value sizes.
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    sizes: Vec<ByteCount>,
    /// The shares of gets (percent).
    #[arg(long, value_delimiter = ',', value_name = "PERCENT")]
    gets: Vec<u32>,
    /// The loads of the load sweep (1/s).
    #[arg(long, value_delimiter = ',', value_name = "N")]
    loads: Vec<f64>,
}

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// The compressed cache.
    Cache,
    /// What acceleration gives: the model's numbers.
    Accelerometer,
    /// The offload runtime: scheduling for accelerators.
    Runtime,
    /// Orchestrating an ensemble of accelerators: simulated.
    Accelflow,
}

/// Why there are no results.
pub(crate) enum Problem {
    /// The command line cannot be used.
    Usage(String),
    /// The work failed.
    Failed(String),
}

impl Reproduce {
    /// Runs the experiments and writes what they came to.
    pub(crate) fn run(&self) -> ExitCode {
        let done = match self.name {
            Name::Cache => cache::run(self),
            Name::Accelerometer => accelerometer::run(self),
            Name::Runtime => runtime::run(self),
            Name::Accelflow => accelflow::run(self),
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(Problem::Usage(problem)) => crate::load::fail(EXIT_USAGE, &problem),
            Err(Problem::Failed(problem)) => crate::load::fail(EXIT_FAILED, &problem),
        }
    }
}

/// Of the whole run; on a terminal only.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{prefix} [{wide_bar}] {percent:>3} % {eta} {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
