//! AccelFlow's results beside the simulator's, in two named scenarios (docs/decisions/0018-accelflow-scenarios.md):
//! what arithmetic settles, what is predicted, what is calibrated, and what cannot be had. Nothing is fitted here.

mod arithmetic;
mod held_out;
mod published;
mod relief;
mod runs;

use super::rows::{Row, Rows};
use super::{Problem, Reproduce};
use crate::experiment::Machine;
use crate::report::{Report, Section, Table};
use crate::say;
use runs::Runs;

/// Simulates everything and writes `accelflow.json` and `accelflow.html`. Interrupted, it goes on the next time.
///
/// # Errors
/// Why there are no results.
pub(super) fn run(flags: &Reproduce) -> Result<(), Problem> {
    flags.refuse_measuring("accelflow")?;
    flags.make_folder()?;
    let mut rows = Rows::new("accelflow", &Machine::here(), "simulated: any machine gives this");
    rows.begun = None;
    rows.rows.extend(arithmetic::rows());
    let runs = Runs::new(flags.quick, flags.runs, &flags.out)?;
    let (simulated, kept) = runs.rows()?;
    rows.rows.extend(simulated);
    rows.rows.extend(unreachable_rows());
    rows.rows.extend(held_out_rows());
    rows.rows.iter().for_each(|row| say(&row.line()));
    flags.write(&rows, "accelflow.html", &report(&rows))?;
    kept.finish().map_err(Problem::Failed)
}

/// Experiments whose inputs are not published, and what is missing.
fn unreachable_rows() -> Vec<Row> {
    let row = Row::unreachable;
    vec![
        row("p99.hotel", "figure 12: HotelReservation", None, "ms", HOTEL_AND_MEDIA),
        row("p99.media", "figure 12: MediaServices", None, "ms", HOTEL_AND_MEDIA),
        row(
            "p99_reduction.serverless.relief",
            "figure 16: serverless functions",
            Some(37.0),
            "%",
            SERVERLESS,
        ),
        row(
            "p99_reduction.emerald_rapids.relief",
            "figure 20: processor generations",
            Some(71.7),
            "%",
            GENERATIONS,
        ),
        row(
            "energy_reduction.non_acc",
            "energy for 400 K requests",
            Some(74.0),
            "%",
            "energies per access are not published",
        ),
    ]
}

/// What was to be predicted and is not simulated.
fn held_out_rows() -> impl Iterator<Item = Row> {
    let row = |(id, what, published, unit, reason)| {
        Row::unreachable(id, what, Some(published), unit, reason)
    };
    held_out::HELD_OUT.into_iter().map(row)
}

fn report(rows: &Rows) -> Report {
    let facts = [
        ("version", rows.version.to_owned()),
        ("command", format!("`{}`", rows.command)),
        ("measured", "nothing: simulated, the same on any machine".to_owned()),
    ];
    let table = Table {
        caption: "Published and ours, with 95 % intervals".to_owned(),
        header: Row::columns(),
        rows: rows.rows.iter().map(|row| row.cells().to_vec()).collect(),
    };
    let prose = [
        "Two scenarios, defined and committed before anything was compared: steady takes published inputs wherever \
         there are any; window is an overloaded server for 20.7 ms from empty, with inputs that a prototype's search \
         chose against thirteen published means. Rows of those means are calibrated in it; all others are predicted.",
        "Services in a row's name are SocialNetwork's; no service means the mean of all eight.",
    ];
    let follow = Section {
        heading: "What does not follow from the published inputs".to_owned(),
        prose: DOES_NOT_FOLLOW.map(str::to_owned).to_vec(),
        figures: Vec::new(),
        tables: Vec::new(),
        notes: Vec::new(),
    };
    Report {
        title: "AccelFlow, simulated".to_owned(),
        subtitle: "The document's results beside a model of its server.".to_owned(),
        facts: facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        sections: vec![
            Section {
                heading: "The document's numbers".to_owned(),
                prose: prose.map(str::to_owned).to_vec(),
                figures: Vec::new(),
                tables: vec![table],
                notes: Vec::new(),
            },
            follow,
        ],
    }
}

const HOTEL_AND_MEDIA: &str = "missing: its services' paths through the traces (table IV has \
     SocialNetwork's only), their times on a core and the shares of their categories (figure 1: the same)";
const SERVERLESS: &str = "missing: FunctionBench's functions as paths through accelerators, their \
     times and shares; the Azure trace is public. The bars give 34.8 % as a ratio of means and 44.6 % as a mean of \
     ratios, the text 37 %";
const GENERATIONS: &str = "missing: how much faster each generation makes application and tax. \
     Ice Lake's bars are half of figure 11's, of the same setup (13.0, 3.88 and 1.21 ms for 26.1, 7.76 and 2.42)";

const DOES_NOT_FOLLOW: [&str; 6] = [
    "13.4 K requests/s for each service are 107 K in all: 115 busy cores of 36 without accelerators, and 4.9 times \
     what a manager of 1.5 us can do. So it is read as the load of the processor; then cores without accelerators are \
     40 % busy.",
    "8.3 times the throughput of Non-acc: eight TCP PEs of speedup 3.5, with 24 % of the work in TCP, do at most 119 \
     cores' work, 58 with the occupancy that figure 17 implies: 3.3 or 1.6 times 36 busy cores. It needs a Non-acc \
     that stops at 20 to 40 % utilisation.",
    "The utilisations at peak: TCP's follows from figure 1 and the speedups (row utilisation.tcp), those of RPC, LdB \
     and encryption do not, by factors that differ from one accelerator to the next.",
    "14 % more P99 from two to six chiplets: a hop of 60 cycles is 25 ns, and 87 ops with two such hops are 4 us, not \
     0.34 ms. Only a link's bandwidth could do it, and the printed 1 Gb/s a link would stop everything.",
    "A P99 that grows 2.3 times from 5 to 15 K requests/s under Non-acc is no queue's: at 40 % utilisation nothing \
     waits.",
    "Figure 15's 1.37, 1.68 and 1.64 for edge detection, deblurring and corners: by the public code one convolution \
     unit computes 2.8, 15.5 and 5.9 ms of each request, and RELIEF keeps it busy 99.9 % of the time, so that nobody \
     can do more than 3 % more (rows max_throughput.relief_apps). GRU's and LSTM's 2.33 and 2.20 lie between what \
     entries that hold 64 KiB of payload give and entries that hold all arguments; with section IV-A's pointers \
     AccelFlow loads from memory what RELIEF finds in the scratchpad, and is behind it.",
];
