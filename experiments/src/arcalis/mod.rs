//! The experiment of \[Arcalis\] compares the paper's results with those of the simulator
//! (docs/decisions/0020-arcalis-model.md) and with those of the functional engine, which are timed and counted here.
//! Each row is computed, predicted, calibrated, measured or unreachable. Some rows show where the paper contradicts
//! itself. Nothing is fitted here.

mod arithmetic;
mod callgrind;
mod counted;
mod inputs;
mod layouts;
mod page;
mod prior;
mod runner;
mod sensitivity;
mod speed;
mod timed;
mod unreachable;
mod wires;

use std::sync::atomic::AtomicBool;

use harness::Machine;

use crate::base::agreement;
use crate::base::rows::{Kind, Row, Rows};
use crate::base::{Problem, Session, Simulation};
use runner::Runner;

const CONDITIONS: &str = "what is simulated any machine gives; timed and counted is this one";

/// A function that simulates one part and adds its rows.
type Part = fn(&Runner, &mut Vec<Row>) -> Result<(), Problem>;

const PARTS: [(&str, Part); 11] = [
    ("speedups", speed::speedups),
    ("throughputs", speed::throughputs),
    ("engine", speed::shares),
    ("interconnect", sensitivity::interconnect),
    ("packets", sensitivity::packets),
    ("cache", sensitivity::cache),
    ("decoupling", sensitivity::decoupling),
    ("dagger", prior::dagger),
    ("attachments", prior::attachments),
    ("measured inputs", inputs::measured),
    ("inputs", inputs::counts),
];

/// Simulates, times and counts everything and writes `arcalis.json` and `arcalis.html`. If the run is interrupted, it
/// writes the parts that are done.
///
/// # Errors
/// The problem says why results are missing.
pub fn run(options: &Simulation, session: &Session) -> Result<(), Problem> {
    let runner = Runner::new(options.quick, options.runs, session)?;
    session.make_folder()?;
    let mut rows = Rows::new("arcalis", &Machine::here(), CONDITIONS);
    let mut interrupted_at = None;
    for (name, part) in PARTS {
        session.progress.set_part(name);
        let mut added = Vec::new();
        match part(&runner, &mut added) {
            Ok(()) => rows.rows.extend(added),
            Err(_) if session.is_stopped() => {
                interrupted_at = Some(name);
                break;
            }
            Err(problem) => return Err(problem),
        }
    }
    if rows.rows.is_empty() {
        return Err(Problem::Failed("interrupted before anything was done".to_owned()));
    }
    let count = Count::new(&rows.rows);
    let stages = if interrupted_at.is_none() { page::stages(&runner)? } else { Vec::new() };
    if interrupted_at.is_none() {
        interrupted_at = measure(session, options, &mut rows.rows);
    }
    session.progress.end();
    rows.rows.extend(arithmetic::rows());
    rows.rows.extend(unreachable::rows());
    let report = page::report(&mut rows, &count, stages, &runner.extent())?;
    session.say(rows.rows.iter().map(Row::line));
    session.say([count.line(), agreement::line(&rows.rows)]);
    session.write(&rows, "arcalis.html", &report)?;
    match interrupted_at {
        Some(name) => {
            Err(Problem::Failed(format!("interrupted: the rows from {name} on are missing")))
        }
        None => Ok(()),
    }
}

/// A function that measures, quickly or not, until a flag is set.
type Measured = fn(bool, &AtomicBool) -> Vec<Row>;

/// Adds the rows of the functional engine on this machine. Returns the part at which the session was interrupted, or
/// none.
fn measure(session: &Session, options: &Simulation, rows: &mut Vec<Row>) -> Option<&'static str> {
    session.progress.set_part("timed");
    rows.extend(timed::rows(options.quick, &session.stop));
    if session.is_stopped() {
        return Some("timed");
    }
    for (part, rows_of) in [("wires", wires::rows as Measured), ("layouts", layouts::rows)] {
        session.progress.set_part(part);
        rows.extend(rows_of(options.quick, &session.stop));
        if session.is_stopped() {
            return Some(part);
        }
    }
    session.progress.set_part("counted");
    rows.extend(counted::rows(options.quick, &|| session.is_stopped()));
    session.is_stopped().then_some("counted")
}

/// The numbers of the model's rows: all rows, the rows that are not tuned to published numbers (`free`), the
/// rows with a published number (`beside`), and the rows that are both (`free_beside`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    all: usize,
    free: usize,
    beside: usize,
    free_beside: usize,
}

impl Count {
    fn new(rows: &[Row]) -> Self {
        rows.iter().fold(Self::default(), |count, row| {
            let free = usize::from(matches!(row.kind, Kind::Predicted | Kind::Computed));
            let beside = usize::from(row.published.is_some());
            Self {
                all: count.all + 1,
                free: count.free + free,
                beside: count.beside + beside,
                free_beside: count.free_beside + free * beside,
            }
        })
    }

    fn line(self) -> String {
        let Self { all, free, beside, free_beside } = self;
        format!(
            "{free} of the model's {all} rows are predicted; {free_beside} of the {beside} that \
             stand beside a published number"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;

    fn session(is_stopped: bool) -> Session {
        let stop = Arc::new(AtomicBool::new(is_stopped));
        Session::new(Path::new(""), stop, |_| ())
    }

    fn rows(runner: &Runner) -> Result<Vec<Row>, Problem> {
        let mut rows = Vec::new();
        PARTS.iter().try_for_each(|(_, part)| part(runner, &mut rows))?;
        Ok(rows)
    }

    #[test]
    fn all_orders_but_one_and_most_numbers_are_as_published() {
        let runner = Runner::with(5, 600, &session(false));
        let rows = rows(&runner).unwrap_or_else(|_| panic!("the committed specifications run"));
        let pairs = || rows.iter().filter_map(|row| Some((row, row.published?, row.ours?)));
        let order = |row: &Row| row.id.starts_with("order.");
        let other: Vec<&str> = pairs()
            .filter(|(row, published, ours)| order(row) && published != ours)
            .map(|(row, ..)| row.id.as_str())
            .collect();
        assert_eq!(other, ["order.throughput.memc"], "no mix has the printed order");
        let following: Vec<&str> = rows
            .iter()
            .filter(|row| order(row) && row.kind == Kind::Calibrated)
            .map(|row| row.id.as_str())
            .collect();
        assert_eq!(following, FOLLOWING, "what fits imply is not predicted");
        let sensitivity = |row: &Row| {
            ["slowdown.", "throughput_loss."].iter().any(|start| row.id.starts_with(start))
        };
        for (row, published, ours) in pairs().filter(|(row, ..)| sensitivity(row)) {
            assert!((published - ours).abs() <= 5.0, "{}: {published} {ours}", row.id);
        }
        // Some rows are fitted to speedups. These rows cannot also match the gains that the paper states in another
        // place. What only follows from fitted values has a reason.
        let fits = |row: &Row| row.kind == Kind::Calibrated && row.reason.is_none() && !order(row);
        for (row, published, ours) in pairs().filter(|(row, ..)| fits(row)) {
            assert!((ours / published - 1.0).abs() < 0.03, "{}: {published} {ours}", row.id);
        }
        let count = Count::new(&rows);
        // docs/decisions/0020-arcalis-model.md: of the rows beside a published number only one order and what measured
        // inputs give are predicted.
        let measured = rows.iter().filter(|row| row.id.starts_with("measured_inputs."));
        let measured = measured.filter(|row| row.published.is_some()).count();
        assert_eq!((count.beside, count.free_beside), (58 + measured, 1 + measured));
        let ids: std::collections::BTreeSet<&str> =
            rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len(), "every row has a unique id");
    }

    /// The ids of the rows about an order that follows from fitted numbers, or from any positive cost.
    const FOLLOWING: [&str; 17] = [
        "order.speedup.memc",
        "order.speedup.post",
        "order.throughput.post",
        "order.throughput.memc",
        "order.deserialize",
        "order.rx_share.memc",
        "order.deserialize_share.post",
        "order.rx_share.post",
        "order.slowdown",
        "order.packets",
        "order.gain_at_1518_bytes",
        "order.cache",
        "order.decoupling",
        "order.over_dagger.set_05.small",
        "order.over_dagger.writes",
        "order.attachment",
        "order.gain_at_700ns",
    ];

    #[test]
    fn a_stopped_runner_simulates_nothing_more() {
        let session = session(true);
        assert!(rows(&Runner::with(5, 1_000, &session)).is_err() && session.is_stopped());
    }
}
