//! The offload runtime's experiments: chapters 2 and 4 of the seed and what it left to future work, in this process, on
//! our core loop. Each file measures one, adds its rows and draws its part of the page; nothing is tuned here.

mod closed;
mod cores;
mod lab;
mod loads;
mod mix;
mod mode;
mod modes;
mod open;
mod page;
mod plan;
mod platform;
mod predicted;
mod published;
mod sample;
mod simulated;
mod sizes;
mod sweeps;
mod web;
mod work;

use std::sync::atomic::Ordering;

use report::{Report, Section};

use super::rows::{Bar, Rows};
use super::{Part, Problem, Reproduce, figures};
use crate::experiment::Machine;
use crate::say;
use lab::Lab;
use plan::Plan;
use platform::Platform;

/// An experiment of its own.
type Experiment = fn(&Lab, &mut Rows) -> Result<Section, String>;

const EXPERIMENTS: [(Part, Experiment); 7] = [
    (Part::Sizes, sizes::run),
    (Part::Modes, modes::run),
    (Part::Web, web::run),
    (Part::Polling, sweeps::run),
    (Part::Cores, cores::run),
    (Part::Loads, loads::run),
    (Part::Mix, mix::run),
];

/// Runs everything and writes `runtime.json` and `runtime.html`; interrupted, the experiments that are done
/// and the whole runs of the open loop.
///
/// # Errors
/// Why there are no results.
pub(super) fn run(flags: &Reproduce) -> Result<(), Problem> {
    let plan = Plan::new(flags)?;
    flags.make_folder()?;
    let failed = |error: String| Problem::Failed(error);
    let stop = crate::load::stop_on_signal()
        .map_err(|error| Problem::Failed(format!("cannot handle signals: {error}")))?;
    // Nobody else uses them: one that does not open keeps no other experiment from its results.
    let libraries = match plan.parts.iter().any(|part| matches!(part, Part::Sizes | Part::Modes)) {
        true => Platform::libraries(flags.qpl_library.as_deref()).map_err(failed)?,
        false => Vec::new(),
    };
    let lab = Lab::new(plan, libraries, stop.clone(), super::progress_bar()).map_err(failed)?;
    let mut rows = Rows::new("runtime", &Machine::here(), &lab.conditions());
    let asked = EXPERIMENTS.iter().filter(|(part, _)| lab.plan.parts.contains(part));
    let mut sections = Vec::new();
    for (part, experiment) in asked {
        let done = (rows.rows.len(), rows.bars.len());
        match experiment(&lab, &mut rows) {
            Ok(section) => {
                sections.push(section);
                if rows.unfinished.is_some() {
                    break;
                }
            }
            Err(_) if stop.load(Ordering::Relaxed) && !sections.is_empty() => {
                rows.rows.truncate(done.0);
                rows.bars.truncate(done.1);
                rows.unfinished = Some(format!("interrupted within {}", part.word()));
                break;
            }
            Err(error) => return Err(failed(error)),
        }
    }
    lab.end();
    summary(&rows).iter().for_each(|line| say(line));
    flags.write(&rows, "runtime.html", &report(&lab.plan, &rows, sections))
}

/// Everything that has a published number beside it, and where jobs begin to pay.
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
    lines.extend(rows.bars.iter().map(Bar::line));
    lines
}

fn report(plan: &Plan, rows: &Rows, mut sections: Vec<Section>) -> Report {
    let facts = [
        ("machine", rows.machine.clone()),
        ("class", rows.machine_class.clone()),
        ("version", rows.version.to_owned()),
        ("command", format!("`{}`", rows.command)),
        ("runs of each point", plan.runs.to_string()),
        ("emulated devices", "from profiles in specs/devices; results made by software".to_owned()),
    ];
    sections.push(figures::all_rows(rows));
    Report {
        title: "When and how to offload: software, waiting or not".into(),
        subtitle: "Points are medians over runs on this machine; whiskers span the runs.".into(),
        facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        sections,
    }
}
