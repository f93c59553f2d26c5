//! A/B runs on this machine: the example service with and without acceleration, and what the model says from the run
//! without it and a microbenchmark. Each file has one part: the cases, the two sides, the rounds, the estimate, the
//! interval, the rows and the page.

mod cases;
mod estimate;
mod interval;
mod measure;
mod page;
mod plan;
mod results;
mod sides;

use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;

use crate::experiment::Machine;
use crate::report::Section;
use crate::reproduce::rows::Rows;
use crate::reproduce::{Problem, Reproduce};
use measure::{Bench, Found, SLICES};
use plan::Plan;
use sides::Sides;

/// What was found of every case.
pub(super) struct Cases(Vec<Found>);

impl Cases {
    /// Adds the rows, and what all of them come to.
    pub(super) fn write(&self, rows: &mut Rows) {
        results::write(rows, &self.0);
    }

    /// The page's part.
    pub(super) fn sections(&self) -> Vec<Section> {
        page::sections(&self.0)
    }
}

/// Measures every case.
///
/// # Errors
/// A flag out of range; what does not start or fails; that the run is to stop.
pub(super) fn measure(flags: &Reproduce, machine: &Machine) -> Result<Cases, Problem> {
    let plan = Plan::new(flags)?;
    let stop = crate::load::stop_on_signal()
        .map_err(|error| Problem::Failed(format!("cannot handle signals: {error}")))?;
    let bar = crate::reproduce::progress_bar();
    let cases = cases::all();
    bar.set_length((cases.len() * plan.rounds * SLICES) as u64);
    let found = cases.iter().map(|case| one(case, plan, machine, (&bar, &stop)));
    let found: Result<Vec<Found>, Problem> = found.collect();
    bar.finish_and_clear();
    found.map(Cases)
}

fn one(
    case: &cases::Case,
    plan: Plan,
    machine: &Machine,
    (bar, stop): (&ProgressBar, &AtomicBool),
) -> Result<Found, Problem> {
    bar.set_prefix(case.id);
    let mut tick = || {
        bar.inc(1);
        if stop.load(Ordering::Relaxed) { Err("stopped".to_owned()) } else { Ok(()) }
    };
    let sides = Sides::start(case, machine);
    let found = sides.and_then(|sides| Bench::new(case, sides, plan).run(plan.rounds, &mut tick));
    found.map_err(|problem| Problem::Failed(format!("{}: {problem}", case.id)))
}

/// Whether the flags are those of A/B runs.
///
/// # Errors
/// The flag that is not, or is out of range.
pub(super) fn check(flags: &Reproduce) -> Result<(), Problem> {
    Plan::new(flags).map(drop)
}
