//! `rebate reproduce NAME`: runs one research document's experiments here and sets the published numbers beside ours,
//! as rows for programs and a page for people. Every number is found in the run that reports it.

mod accelerometer;
mod accelflow;
mod arcalis;
mod bars;
mod bars_page;
mod cache;
mod explained;
mod figures;
mod findings;
mod lines;
mod plan;
mod rows;
mod runtime;
mod scheduler;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use report::Report;
use sim::{Extent, System};
use units::{ByteCount, Nanos};

pub(crate) use rows::{Spread, command};

use crate::experiment::{CoreTime, VIRTUAL};
use crate::{EXIT_FAILED, EXIT_USAGE, say};
use rows::Rows;

const EXAMPLES: &str = "Examples:
  rebate reproduce cache --out results --quick
  rebate reproduce cache --out results
  rebate reproduce cache --out results --rate 2000 --sizes 4KiB,64KiB --gets 90 --runs 3
  rebate reproduce cache --out results --parts bars --qpl-library /usr/local/lib/libqpl.so
  rebate reproduce cache --out results --quick --configurations monolith_software,lane_iaa
  rebate reproduce accelerometer --out results --quick
  rebate reproduce accelerometer --out results
  rebate reproduce accelflow --out results --quick
  rebate reproduce arcalis --out results
  rebate reproduce runtime --out results --quick
  rebate reproduce runtime --out results --runs 7
  rebate reproduce runtime --out results --parts loads --duration 1s
  rebate reproduce scheduler --out results

cache: the compressed cache as a monolith and as microservices, in software and with a virtual IAA: latency against
value size and against load, what each stage takes, and what the accelerator frees; at 64 KiB, what a compression
service next door comes to beside the monolith. Writes cache.json and report.html. Needs memcached; with Intel QPL's
library the monolith is measured in that too. --quick takes some minutes; without it, on two cores, an estimated three
hours. --configurations and --parts take less.

accelerometer: the numbers that Accelerometer prints, computed by our model from its inputs (specs/profiles); and A/B
runs of an example service on this machine, with and without acceleration, held against what the model says from the run
without it and a microbenchmark. Writes accelerometer.json and accelerometer.html; takes --runs (rounds of slices),
--duration (of one slice) and --configurations (cases). --quick takes half a minute, estimated; without it some ten
minutes.

accelflow: AccelFlow's server simulated under ten orchestrators in two scenarios, what is varied in it, and RELIEF's
own applications (see rebate sim). Writes accelflow.json and accelflow.html; measures nothing; takes --runs. Some
minutes; --quick takes less. Interrupted, the same command goes on where it was: studies are kept in
accelflow.unfinished.

arcalis: a near-cache RPC engine simulated between two cores (see rebate sim): speedups, what they depend on, what the
document's numbers say of each other; and the engine in software: where its CPU time goes, and with valgrind what a core
executes. Writes arcalis.json and arcalis.html; takes --runs (of what is simulated). Some minutes, estimated; --quick
takes less. Ctrl-C keeps the parts that are done.

runtime: when and how to offload, on one core and on two: a virtual BlueField-2 beside the document's software, beside
our own codec, and worker threads: latency by size, five modes on three workloads, polling, load past saturation. Writes
runtime.json and runtime.html; takes --runs, --sizes, --loads, --duration (of one point of load) and --parts. With Intel
QPL's library, or in a build with DPDK, latency by size and the modes are measured on those, too. --quick takes less
than a minute; without it, on an idle machine, an estimated quarter of an hour.

scheduler: the compressed cache with a virtual IAA as the scheduler says, against every static policy, at five loads and
five sizes. Writes scheduler.json and scheduler.html; takes --runs, --sizes and --duration (of one run). --quick takes
less than a minute; without it an estimated quarter of an hour. Ctrl-C keeps the sizes and loads that are done.";

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
    /// The configurations of cache by their ids, such as lane_iaa_direct, or the A/B cases of accelerometer, such as
    /// aes_ni.pages; without it all.
    #[arg(long, value_delimiter = ',', value_name = "ID")]
    configurations: Vec<String>,
    /// The parts of cache or of runtime; without it all.
    #[arg(long, value_delimiter = ',', value_enum, value_name = "PART")]
    parts: Vec<Part>,
    /// Intel QPL's library, for cache and runtime; without it REBATE_QPL_LIBRARY names it.
    #[arg(long, value_name = "FILE")]
    qpl_library: Option<PathBuf>,
}

/// A part of an experiment that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Latency against size; of cache, with the stages of each size.
    Sizes,
    /// Latency against offered load; of cache, and the highest load kept up with.
    Loads,
    /// Cache at 64 KiB: the lane against the monolith, at the seed's load and as fast as answers come.
    Bars,
    /// Runtime: the seed's workloads in every mode.
    Modes,
    /// Runtime: the seed's web server.
    Web,
    /// Runtime: polling interval and dequeue batch.
    Polling,
    /// Runtime: one core and two.
    Cores,
    /// Runtime: latency-critical and batch requests on one core.
    Mix,
}

impl Part {
    const OF_CACHE: [Part; 3] = [Part::Sizes, Part::Loads, Part::Bars];
    const OF_RUNTIME: [Part; 7] =
        [Part::Sizes, Part::Modes, Part::Web, Part::Polling, Part::Cores, Part::Loads, Part::Mix];

    /// Its word on the command line.
    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |own| own.get_name().to_owned())
    }
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
    /// A near-cache RPC engine: simulated, and in software.
    Arcalis,
    /// The scheduler in charge of the compressed cache, against every static policy.
    Scheduler,
}

/// Why there are no results.
pub(crate) enum Problem {
    /// The command line cannot be used.
    Usage(String),
    /// The work failed.
    Failed(String),
}

impl From<crate::sim::Problem> for Problem {
    /// What an experiment asks of the simulator is no command line's.
    fn from(problem: crate::sim::Problem) -> Self {
        match problem {
            crate::sim::Problem::Usage(text) | crate::sim::Problem::Failed(text) => {
                Self::Failed(text)
            }
        }
    }
}

/// A study of so many replications, on as many threads as there are.
pub(crate) fn study(
    system: &System,
    architecture: &str,
    replications: u32,
    extent: Extent,
) -> Result<sim::Report, Problem> {
    let threads = std::thread::available_parallelism().map_or(1, |own| own.get().min(64));
    let plan = sim::Plan {
        extent,
        replications_min: replications,
        replications_max: replications,
        threads,
        ..sim::Plan::default()
    };
    let report = system.simulate(architecture, &plan, &|_| {});
    Ok(report.map_err(crate::sim::Problem::from)?)
}

impl Reproduce {
    /// Runs the experiments and writes what they came to.
    pub(crate) fn run(&self) -> ExitCode {
        match self.measure() {
            Ok(()) => ExitCode::SUCCESS,
            Err(Problem::Usage(problem)) => crate::load::fail(EXIT_USAGE, &problem),
            Err(Problem::Failed(problem)) => crate::load::fail(EXIT_FAILED, &problem),
        }
    }

    fn measure(&self) -> Result<(), Problem> {
        self.refuse_what_is_of_others()?;
        match self.name {
            Name::Cache => cache::run(self),
            Name::Accelerometer => accelerometer::run(self),
            Name::Runtime => runtime::run(self),
            Name::Accelflow => accelflow::run(self),
            Name::Arcalis => arcalis::run(self),
            Name::Scheduler => scheduler::run(self),
        }
    }

    /// The flags that this experiment has no use for and another has.
    fn refuse_what_is_of_others(&self) -> Result<(), Problem> {
        let has_configurations = matches!(self.name, Name::Cache | Name::Accelerometer);
        if !has_configurations && !self.configurations.is_empty() {
            let problem = "--configurations: only cache and accelerometer take it";
            return Err(Problem::Usage(problem.to_owned()));
        }
        let parts: &[Part] = match self.name {
            Name::Cache => &Part::OF_CACHE,
            Name::Runtime => &Part::OF_RUNTIME,
            _ => &[],
        };
        if parts.is_empty() && self.qpl_library.is_some() {
            let problem = "--qpl-library: only cache and runtime take it";
            return Err(Problem::Usage(problem.to_owned()));
        }
        let Some(other) = self.parts.iter().find(|own| !parts.contains(own)) else {
            return Ok(());
        };
        let valid = parts.iter().map(|own| own.word()).collect::<Vec<_>>().join(", ");
        let valid = if valid.is_empty() { "none here" } else { &valid };
        Err(Problem::Usage(format!("--parts is {}; valid is {valid}", other.word())))
    }

    /// The flags of experiments that measure.
    fn refuse_measuring(&self, name: &str) -> Result<(), Problem> {
        let given = [
            ("--duration", self.duration.is_some()),
            ("--rate", self.rate.is_some()),
            ("--sizes", !self.sizes.is_empty()),
            ("--gets", !self.gets.is_empty()),
            ("--loads", !self.loads.is_empty()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Problem::Usage(format!("{flag}: {name} has no use for it"))),
            None => Ok(()),
        }
    }

    /// Makes the folder for results, before anything is measured in vain.
    fn make_folder(&self) -> Result<(), Problem> {
        std::fs::create_dir_all(&self.out)
            .map_err(|error| Problem::Usage(format!("--out {}: {error}", self.out.display())))
    }

    /// Writes the rows and the page of this name, and says where they are. Those of an interrupted run go beside a
    /// whole one's.
    ///
    /// # Errors
    /// They cannot be written, or the run was interrupted.
    fn write(&self, rows: &Rows, page: &str, report: &Report) -> Result<(), Problem> {
        let mark = if rows.unfinished.is_some() { "unfinished-" } else { "" };
        let path = self.out.join(format!("{mark}{}.json", rows.name));
        let page = self.out.join(format!("{mark}{page}"));
        let text = lines::text(rows).map_err(|e| Problem::Failed(e.to_string()))?;
        for (path, text) in [(&path, text), (&page, report.html())] {
            std::fs::write(path, text)
                .map_err(|error| Problem::Failed(format!("{}: {error}", path.display())))?;
        }
        say(&format!("wrote {} and {}", path.display(), page.display()));
        let stolen = rows.begun.map_or(0.0, CoreTime::stolen_since);
        if stolen > STOLEN_NOTED {
            let percent = 100.0 * stolen;
            say(&format!("note: for {percent:.1} % of the cores' time the host ran others"));
        }
        match &rows.unfinished {
            Some(at) => Err(Problem::Failed(format!("{at}; the rest is missing"))),
            None => Ok(()),
        }
    }
}

/// Share of the cores' time: less is the work of any system.
const STOLEN_NOTED: f64 = 0.01;

/// Of the whole run; on a terminal only.
fn progress_bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{prefix} [{wide_bar}] {percent:>3} % {eta} {msg}");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::experiment::Machine;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        own: Reproduce,
    }

    #[test]
    fn what_an_interrupted_run_found_goes_beside_a_whole_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().to_str().expect("text");
        let flags = CommandLine::parse_from(["rebate", "runtime", "--out", out]).own;
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
        let mut rows = Rows::new("runtime", &Machine::here(), "idle");
        assert!(flags.write(&rows, "runtime.html", &Report::default()).is_ok());
        let whole = read("runtime.json").expect("rows");
        assert!(!whole.contains("unfinished"));
        rows.unfinished = Some("interrupted within loads".to_owned());
        let end = flags.write(&rows, "runtime.html", &Report::default());
        let Err(Problem::Failed(said)) = end else { panic!("it is not finished") };
        assert_eq!(said, "interrupted within loads; the rest is missing");
        assert_eq!(read("runtime.json").expect("rows"), whole, "it is not written over");
        let part = read("unfinished-runtime.json").expect("rows");
        assert!(part.contains("\"unfinished\": \"interrupted within loads\""), "{part}");
        assert!(read("unfinished-runtime.html").is_ok());
    }
}
