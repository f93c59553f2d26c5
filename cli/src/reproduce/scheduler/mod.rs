//! The scheduler in charge against every static policy: the compressed cache with a virtual IAA at five loads and five
//! sizes. It measures and compares; what a policy does is the product's own.

mod arm;
mod grid;
mod page;
mod plan;
mod sample;

use super::rows::Rows;
use super::{Problem, Reproduce};
use crate::experiment::{Awake, Machine};
use crate::say;
use arm::Arms;
use grid::Grid;
use plan::Plan;

/// Measures, and writes `scheduler.json` and `scheduler.html`; interrupted, the cells that are done.
///
/// # Errors
/// Why there are no results.
pub(super) fn run(flags: &Reproduce) -> Result<(), Problem> {
    let plan = Plan::new(flags)?;
    flags.make_folder()?;
    let stop = crate::load::stop_on_signal()
        .map_err(|error| Problem::Failed(format!("cannot handle signals: {error}")))?;
    let machine = Machine::here();
    machine.keep_to_first_core(CORES);
    let awake = Awake::start();
    let conditions = conditions(&machine, awake.is_some());
    let mut rows = Rows::new("scheduler", &machine, &conditions);
    let mut arms = Arms::start(&machine).map_err(Problem::Failed)?;
    let grid = Grid::measure(plan, &mut arms, &stop, &super::progress_bar());
    let grid = grid.map_err(Problem::Failed)?;
    grid.write(&mut rows);
    rows.unfinished.clone_from(&grid.unfinished);
    say(&grid.summary());
    flags.write(&rows, "scheduler.html", &page::report(&grid, &rows))
}

fn conditions(machine: &Machine, awake: bool) -> String {
    let place = match machine.core(0, CORES) {
        Some(_) => "the load on one core, the cache and the scheduler on another",
        None => "all processes share the cores",
    };
    let sleep = if awake { "kept awake by an idle-class thread each" } else { "free to sleep" };
    format!("{place}; cores {sleep}")
}

/// One for the load, one for what is measured.
const CORES: usize = 2;
