//! The experiments on the offload runtime: chapters 2 and 4 of \[OffloadSched\], and the work that it left for the
//! future. They run in this process, on our core loop. Each file measures one experiment, adds its rows and draws its
//! part of the page. Nothing is tuned here.

mod closed;
mod cores;
mod loads;
mod mix;
mod mode;
mod modes;
mod open;
mod page;
mod paper_loop;
mod plan;
mod platform;
mod predicted;
mod published;
mod sample;
mod setup;
mod simulated;
mod sizes;
mod sweeps;
mod web;
mod work;

use std::path::PathBuf;

use clap::ValueEnum;
use harness::Machine;
use report::{Report, Section};
use units::ByteCount;

use crate::base::rows::{Criterion, Rows};
use crate::base::{Measurement, Problem, Session, agreement, figures};
use plan::Plan;
use platform::Platform;
use setup::Setup;

/// A function that measures one part, adds its rows and returns its section of the page.
type Experiment = fn(&Setup, &mut Rows) -> Result<Section, String>;

const EXPERIMENTS: [(Part, Experiment); 8] = [
    (Part::Sizes, sizes::run),
    (Part::Modes, modes::run),
    (Part::Web, web::run),
    (Part::Polling, sweeps::run),
    (Part::Paper, paper_loop::run),
    (Part::Cores, cores::run),
    (Part::Loads, loads::run),
    (Part::Mix, mix::run),
];

/// The options of the experiment: what is measured, how often and how long.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(mut_arg("duration", |arg| arg.help("Duration of each load")))]
pub struct Options {
    /// The flags that every measurement has.
    #[command(flatten)]
    pub measurement: Measurement,
    /// Value sizes to measure, such as 4KiB,64KiB.
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<ByteCount>,
    /// Offered loads (requests per second).
    #[arg(long, value_delimiter = ',', value_name = "N")]
    pub loads: Vec<f64>,
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
    /// Latency by value size.
    Sizes,
    /// Every mode on the paper's workloads.
    Modes,
    /// The paper's web server.
    Web,
    /// Polling intervals and dequeue batches.
    Polling,
    /// The paper's own scheduler, simulated.
    Paper,
    /// Comparison of one core with two cores.
    Cores,
    /// Latency by load.
    Loads,
    /// Latency-critical and batch requests on one core.
    Mix,
}

impl Part {
    const ALL: [Part; 8] = [
        Part::Sizes,
        Part::Modes,
        Part::Web,
        Part::Polling,
        Part::Paper,
        Part::Cores,
        Part::Loads,
        Part::Mix,
    ];

    /// Returns the part's name on the command line.
    fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Runs the requested parts, and writes `runtime.json` and `runtime.html`. An interrupted run writes the finished
/// experiments, and the complete passes of the open loop.
///
/// # Errors
/// The error says why there are no results.
pub fn run(options: &Options, session: &Session) -> Result<(), Problem> {
    let plan = Plan::new(options)?;
    session.make_folder()?;
    let failed = |error: String| Problem::Failed(error);
    // The libraries are opened only for the parts that use them, so that a library that fails to open does not affect
    // the other parts.
    let libraries = match plan.parts.iter().any(|part| matches!(part, Part::Sizes | Part::Modes)) {
        true => Platform::libraries(options.qpl_library.as_deref()).map_err(failed)?,
        false => Vec::new(),
    };
    let setup = Setup::new(plan, libraries, session).map_err(failed)?;
    let mut rows = Rows::new("runtime", &Machine::here(), &setup.conditions());
    let asked = EXPERIMENTS.iter().filter(|(part, _)| setup.plan.parts.contains(part));
    let mut sections = Vec::new();
    for (part, experiment) in asked {
        let done = (rows.rows.len(), rows.criteria.len());
        match experiment(&setup, &mut rows) {
            Ok(section) => {
                sections.push(section);
                if rows.unfinished.is_some() {
                    break;
                }
            }
            Err(_) if session.is_stopped() && !sections.is_empty() => {
                rows.rows.truncate(done.0);
                rows.criteria.truncate(done.1);
                rows.unfinished = Some(format!("interrupted within {}", part.word()));
                break;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    session.progress.end();
    session.say(summary(&rows));
    let agreement = agreement::section(
        &mut rows.rows,
        |row| vec![paper_loop::group(&row.id)],
        |row| Some(paper_loop::number(&row.id)),
    );
    sections.insert(0, agreement);
    session.write(&rows, "runtime.html", &report(&setup.plan, &rows, sections))
}

/// Returns the lines of the summary: the rows with a published number, the break-even sizes, the scaling, and then the
/// criteria.
fn summary(rows: &Rows) -> Vec<String> {
    let number = |value: Option<f64>| match value {
        None => "-".to_owned(),
        Some(value) if value.abs() < 100.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.0}"),
    };
    let shown = rows.rows.iter().filter(|row| {
        row.published.is_some()
            || row.id.starts_with("break_even.")
            || row.id.starts_with("scaling.")
    });
    let mut lines = vec![format!("{:<44} {:>10} {:>10}", "", "published", "ours")];
    lines.extend(shown.map(|row| {
        let kind = format!("{:?}", row.kind).to_lowercase();
        let (published, ours) = (number(row.published), number(row.ours));
        format!("{:<44} {published:>10} {ours:>10} {} {kind}", row.id, row.unit)
    }));
    lines.push("calibrated: an input; it proves nothing. emulated: a virtual device".to_owned());
    lines.extend(rows.criteria.iter().map(Criterion::line));
    lines
}

fn report(plan: &Plan, rows: &Rows, mut sections: Vec<Section>) -> Report {
    let more = [
        ("runs of each point", plan.runs.to_string()),
        ("emulated devices", "from profiles in specs/devices; results made by software".to_owned()),
    ];
    sections.push(figures::all_rows(rows));
    Report {
        title: "When and how to offload: software, waiting or not".into(),
        subtitle: "Points are medians over runs on this machine; whiskers span the runs.".into(),
        facts: figures::facts(rows, more),
        sections,
    }
}
