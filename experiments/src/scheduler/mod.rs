//! Compares the scheduler with every static policy, on the compressed cache with a virtual IAA at five loads
//! and five sizes. The policies are part of the product, and this experiment only measures them.

mod grid;
mod page;
mod plan;
mod sample;
mod variant;

use harness::{Awake, Machine};
use units::ByteCount;

use crate::base::rows::Rows;
use crate::base::{Measurement, Problem, Session};
use grid::Grid;
use plan::Plan;
use variant::Variants;

/// The options of the experiment: what is measured, how often and how long.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// The flags that every measurement has.
    #[command(flatten)]
    pub measurement: Measurement,
    /// Value sizes to measure, such as 4KiB,64KiB.
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<ByteCount>,
}

/// Measures the grid, and writes `scheduler.json` and `scheduler.html`. If the run is interrupted, the files have the
/// cells that are done.
///
/// # Errors
/// The error says why there are no results.
pub fn run(options: &Options, session: &Session) -> Result<(), Problem> {
    let plan = Plan::new(options)?;
    session.make_folder()?;
    let machine = Machine::here();
    machine.keep_to_first_core(CORES);
    let awake = Awake::start();
    let conditions = conditions(&machine, awake.is_some());
    let mut rows = Rows::new("scheduler", &machine, &conditions);
    let mut variants = Variants::start(&machine).map_err(Problem::Failed)?;
    let grid = Grid::measure(plan, &mut variants, session);
    let grid = grid.map_err(Problem::Failed)?;
    grid.write(&mut rows);
    rows.unfinished.clone_from(&grid.unfinished);
    session.say([grid.summary()]);
    session.write(&rows, "scheduler.html", &page::report(&grid, &rows))
}

fn conditions(machine: &Machine, awake: bool) -> String {
    let place = match machine.core(0, CORES) {
        Some(_) => "the load on one core, the cache and the scheduler on another",
        None => "all processes share the cores",
    };
    let sleep = if awake { "kept awake by an idle-class thread each" } else { "free to sleep" };
    format!("{place}; cores {sleep}")
}

/// The number of cores: one for the load, and one for the measured processes.
const CORES: usize = 2;
