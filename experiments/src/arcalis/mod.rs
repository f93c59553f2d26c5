//! Arcalis' results beside the simulator's (docs/decisions/0020-arcalis-model.md): what arithmetic settles, what is
//! predicted, what is calibrated, what cannot be had, and where the document contradicts itself; and beside the
//! functional engine's, timed and counted here. Nothing is fitted here.

mod arithmetic;
mod callgrind;
mod counted;
mod lab;
mod page;
mod prior;
mod sensitivity;
mod speed;
mod timed;
mod unreachable;

use harness::Machine;

use crate::base::rows::{Kind, Row, Rows};
use crate::base::{Problem, Session};
use lab::Lab;

const CONDITIONS: &str = "what is simulated any machine gives; timed and counted is this one";

/// A part of the rows, made by simulating.
type Part = fn(&Lab, &mut Vec<Row>) -> Result<(), Problem>;

const PARTS: [(&str, Part); 9] = [
    ("speedups", speed::speedups),
    ("throughputs", speed::throughputs),
    ("engine", speed::shares),
    ("interconnect", sensitivity::interconnect),
    ("packets", sensitivity::packets),
    ("cache", sensitivity::cache),
    ("decoupling", sensitivity::decoupling),
    ("dagger", prior::dagger),
    ("attachments", prior::attachments),
];

/// How much is simulated.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Options {
    /// Few points, one short run each: to see that it works.
    #[arg(long)]
    pub quick: bool,
    /// How many replications every study has: 5 to 100.
    #[arg(long, value_name = "N")]
    pub runs: Option<usize>,
}

/// Simulates, times and counts everything and writes `arcalis.json` and `arcalis.html`. Interrupted, it writes the
/// parts that are done.
///
/// # Errors
/// Why there are no results, or not all.
pub fn run(options: &Options, session: &Session) -> Result<(), Problem> {
    let lab = Lab::new(options.quick, options.runs, &session.stop)?;
    session.make_folder()?;
    let mut rows = Rows::new("arcalis", &Machine::here(), CONDITIONS);
    let mut left = None;
    for (name, part) in PARTS {
        lab.say(name);
        let mut found = Vec::new();
        match part(&lab, &mut found) {
            Ok(()) => rows.rows.extend(found),
            Err(_) if lab.stopped() => {
                left = Some(name);
                break;
            }
            Err(problem) => return Err(problem),
        }
    }
    if rows.rows.is_empty() {
        return Err(Problem::Failed("interrupted before anything was done".to_owned()));
    }
    let count = Count::of(&rows.rows);
    let stages = if left.is_none() { page::stages(&lab)? } else { Vec::new() };
    if left.is_none() {
        left = measure(&lab, options, &mut rows.rows);
    }
    lab.end();
    rows.rows.extend(arithmetic::rows());
    rows.rows.extend(unreachable::rows());
    session.say(rows.rows.iter().map(Row::line));
    session.say([count.line()]);
    session.write(&rows, "arcalis.html", &page::report(&rows, &count, stages, &lab.extent()))?;
    match left {
        Some(name) => {
            Err(Problem::Failed(format!("interrupted: the rows from {name} on are missing")))
        }
        None => Ok(()),
    }
}

/// The rows of the functional engine on this machine; what an interruption left out, if one did.
fn measure(lab: &Lab, options: &Options, rows: &mut Vec<Row>) -> Option<&'static str> {
    lab.say("timed");
    rows.extend(timed::rows(options.quick, &lab.stop_flag()));
    if lab.stopped() {
        return Some("timed");
    }
    lab.say("counted");
    rows.extend(counted::rows(options.quick, &|| lab.stopped()));
    lab.stopped().then_some("counted")
}

/// How many of the model's rows are tuned to a published number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    all: usize,
    free: usize,
    beside: usize,
    free_beside: usize,
}

impl Count {
    fn of(rows: &[Row]) -> Self {
        rows.iter().fold(Self::default(), |own, row| {
            let free = usize::from(matches!(row.kind, Kind::Predicted | Kind::Computed));
            let beside = usize::from(row.published.is_some());
            Self {
                all: own.all + 1,
                free: own.free + free,
                beside: own.beside + beside,
                free_beside: own.free_beside + free * beside,
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
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn rows(lab: &Lab) -> Result<Vec<Row>, Problem> {
        let mut rows = Vec::new();
        PARTS.iter().try_for_each(|(_, part)| part(lab, &mut rows))?;
        Ok(rows)
    }

    #[test]
    fn every_order_but_one_is_as_published_and_what_is_predicted_is_near() {
        let lab = Lab::with(5, 600, Arc::default());
        let rows = rows(&lab).unwrap_or_else(|_| panic!("the committed specifications run"));
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
        // What is fitted to speedups cannot be what the document says of them elsewhere.
        let fits = |row: &Row| {
            row.kind == Kind::Calibrated && !row.id.starts_with("throughput_gain.") && !order(row)
        };
        for (row, published, ours) in pairs().filter(|(row, ..)| fits(row)) {
            assert!((ours / published - 1.0).abs() < 0.03, "{}: {published} {ours}", row.id);
        }
        let count = Count::of(&rows);
        // As docs/decisions/0020-arcalis-model.md has them: two thirds of all, fewer beside a published number.
        let expected = Count { all: 108, free: 72, beside: 58, free_beside: 27 };
        assert_eq!(count, expected);
        let ids: std::collections::BTreeSet<&str> =
            rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len(), "every row has an id of its own");
    }

    /// Orders that fitted numbers imply.
    const FOLLOWING: [&str; 9] = [
        "order.speedup.memc",
        "order.speedup.post",
        "order.throughput.post",
        "order.throughput.memc",
        "order.deserialize",
        "order.deserialize_share.post",
        "order.rx_share.post",
        "order.packets",
        "order.gain_at_1518_bytes",
    ];

    #[test]
    fn who_is_told_to_stop_simulates_nothing_more() {
        let lab = Lab::with(5, 1_000, Arc::new(AtomicBool::new(true)));
        assert!(rows(&lab).is_err() && lab.stopped());
    }
}
