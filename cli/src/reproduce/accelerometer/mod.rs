//! Accelerometer: what it prints, computed from its inputs (`published`), and A/B runs on this machine in which the
//! same model estimates what is then measured (`ab`).

mod ab;
mod published;

use report::Report;

use super::rows::Rows;
use super::{Problem, Reproduce};
use crate::experiment::Machine;
use crate::say;

/// Computes and measures everything, and writes `accelerometer.json` and `accelerometer.html`. Interrupted, it writes
/// what is computed and the cases that are done.
///
/// # Errors
/// Why there are no results, or not all.
pub(super) fn run(flags: &Reproduce) -> Result<(), Problem> {
    ab::check(flags)?;
    flags.make_folder()?;
    let machine = Machine::here();
    let mut rows = Rows::new("accelerometer", &machine, &conditions(&machine));
    published::add(&mut rows)?;
    published::summary(&rows).iter().for_each(|line| say(line));
    let mut sections = vec![published::section(&rows)];
    let found = ab::measure(flags, &machine)?;
    found.write(&mut rows);
    rows.bars.iter().for_each(|bar| say(&bar.line()));
    sections.extend(found.sections());
    let facts = [
        ("machine", rows.machine.clone()),
        ("class", rows.machine_class.clone()),
        ("version", rows.version.to_owned()),
        ("command", format!("`{}`", rows.command)),
    ];
    let report = Report {
        title: "What acceleration gives: Accelerometer's numbers, and A/B runs here".to_owned(),
        subtitle: "The document's estimates from the document's inputs, and ours held against \
                   measurements on this machine."
            .to_owned(),
        facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        sections,
    };
    flags.write(&rows, "accelerometer.html", &report)?;
    match found.stopped_at {
        Some(id) => {
            Err(Problem::Failed(format!("interrupted: the A/B cases from {id} on are missing")))
        }
        None => Ok(()),
    }
}

fn conditions(machine: &Machine) -> String {
    match machine.core(1, 2) {
        Some(_) => "the service on one core, what accelerates it on another",
        None => "the service and what accelerates it share the core",
    }
    .to_owned()
}
