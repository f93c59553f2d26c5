//! The page of the grid: latency against load for each size, the scheduler next to the best static policy in every
//! cell, and each static policy over all cells.

use report::{Axis, Figure, Origin, Panel, Report, Section, Series, Style};

use super::grid::{Cell, Grid};
use super::variant::Variant;
use crate::base::figures::{all_rows, facts, point, table};
use crate::base::rows::Rows;

/// Returns the page.
pub(super) fn report(grid: &Grid, rows: &Rows) -> Report {
    let plan = &grid.plan;
    let seconds = plan.duration.0 as f64 / 1e9;
    let more = [
        ("runs of each point", format!("{}, {seconds} s each, arms in turn", plan.runs)),
        (
            "requests",
            "half gets, half sets, due at random (Poisson) times; every value verified".into(),
        ),
        ("emulated device", "virtual IAA, from specs/devices/iaa.toml".into()),
    ];
    Report {
        title: "The scheduler against every static policy".into(),
        subtitle: "Points are medians over runs on this machine; whiskers span the runs.".into(),
        facts: facts(rows, more),
        sections: vec![loads(grid), cells(rows), policies(rows), all_rows(rows)],
    }
}

fn loads(grid: &Grid) -> Section {
    let figure = |size: &units::ByteCount| {
        let of_size: Vec<&Cell> = grid.cells.iter().filter(|cell| cell.size == *size).collect();
        let line = |(index, variant): (usize, Variant)| Series {
            name: variant.name().to_owned(),
            label: variant.id().to_owned(),
            origin: if variant == Variant::Software { Origin::Measured } else { Origin::Emulated },
            style: Style::nth(index),
            points: of_size
                .iter()
                .filter_map(|cell| point(cell.rate_per_s / 1e3, cell.latencies_us(variant)))
                .collect(),
        };
        let series = Variant::ALL.into_iter().enumerate().map(line).collect();
        let x = Axis::linear("offered load (1000 requests/s)");
        let panels = vec![Panel::lines("median", x, Axis::log10("latency (us)"), series)];
        Figure { id: format!("load-{size}"), caption: format!("Values of {size}."), panels }
    };
    Section {
        heading: "Latency against load, by size".into(),
        prose: vec![
            "A request's latency, from when it was due: the median of gets and that of sets, weighed \
             by how many there are. It has the job's own time in it and the time that requests wait \
             for a core that others hold, so it is what both a quick device and a free core are good \
             for, and no load needs another measure. Loads are shares of the highest that a static \
             policy answers at that size."
                .into(),
        ],
        figures: grid.plan.sizes.iter().map(figure).collect(),
        ..Section::default()
    }
}

fn cells(rows: &Rows) -> Section {
    let chosen = rows.rows.iter().filter(|row| row.id.starts_with("over_best."));
    Section {
        heading: "Beside the best static policy, cell by cell".into(),
        prose: vec![
            "All values of a cell have one size, so a static policy does one of three things to all \
             of them: software, offload, or offload and wait. The best of the three is chosen by its \
             median after all runs, which favours it where two are alike: how far two processes that \
             both always offload are apart is in the rows twin."
                .into(),
        ],
        tables: vec![table("The scheduler's latency over that of the best", chosen)],
        ..Section::default()
    }
}

fn policies(rows: &Rows) -> Section {
    let chosen = rows.rows.iter().filter(|row| row.id.starts_with("over_scheduler."));
    Section {
        heading: "Each static policy over the whole grid".into(),
        prose: vec![
            "A policy's latency over the scheduler's in the same run, the geometric mean of all \
             cells whose load the policy carries: above 1 the scheduler is better. Every threshold \
             between two sizes of the grid is there, the best in hindsight among them, which nobody \
             has who did not measure first."
                .into(),
        ],
        tables: vec![table("Latency over the scheduler's", chosen)],
        ..Section::default()
    }
}
