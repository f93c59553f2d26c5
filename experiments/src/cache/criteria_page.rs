//! The first part of the page: how a compression service on the same host compares with the monolith, and which
//! criteria it meets.

use report::{BarSeries, Category, Column, Figure, Origin, Panel, Section, Table};
use units::Op;

use super::bars::{Metric, is_by_size};
use super::figures::{door_id, door_name, doors, origin};
use super::results::{LOAD_BYTES, Results};
use crate::base::rows::{Criterion, Rows, Spread};
use crate::testbed::{Configuration, Door};

/// Returns the section, or None without a criterion.
pub(super) fn section(results: &Results, rows: &Rows) -> Option<Section> {
    if rows.bars.is_empty() {
        return None;
    }
    let (by_size, others): (Vec<&Criterion>, Vec<&Criterion>) =
        rows.bars.iter().partition(|criterion| is_by_size(criterion));
    let tables = [("At one load", others), ("By value size", by_size)];
    let tables = tables.into_iter().filter(|(_, criteria)| !criteria.is_empty());
    Some(Section {
        heading: "The compression service next door".into(),
        prose: vec![
            "A ratio is made of two samples of one run, taken in turn with all others; the median \
             over runs is held against the bar. Host CPU is that of frontend and compression \
             service together. A closed loop keeps 32 requests under way."
                .into(),
            "By size: never slower than 1.05 times the monolith in its best software and 5 us \
             more, where the policy may keep a job at home; and quicker from the size on at which \
             the stages, measured alone, say so (rows break_even)."
                .into(),
        ],
        figures: doors(results).flat_map(|door| figures(results, door)).collect(),
        tables: tables.map(|(caption, criteria)| table(caption, &criteria)).collect(),
        ..Section::default()
    })
}

/// Returns the figures of latency and cost, or none where the criteria were not measured.
fn figures(results: &Results, door: Door) -> Vec<Figure> {
    let is_measured = |configuration: &Configuration| {
        let mut mixes = results.plan.criteria_gets();
        mixes.any(|gets| !results.numbers(Metric::Maximum, *configuration, gets, OP).is_empty())
    };
    let all: Vec<Configuration> = results.plan.by_door(door).filter(is_measured).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let figure = |name: &str, what: &str, metrics: &[Metric]| Figure {
        id: format!("{name}-{}", door_id(door)),
        caption: format!("Values of {LOAD_BYTES}, {}: {what}.", door_name(door)),
        panels: metrics.iter().map(|metric| panel(results, &all, *metric)).collect(),
    };
    let [p50, p90, host, maximum] = Metric::ALL;
    vec![
        figure("bars-latency", "latency of gets at a load that all carry", &[p50, p90]),
        figure(
            "bars-cost",
            "what a request costs, and how many there are at most",
            &[host, maximum],
        ),
    ]
}

fn panel(results: &Results, all: &[Configuration], metric: Metric) -> Panel {
    let category = |configuration: &Configuration| Category {
        name: configuration.label(),
        origin: origin(*configuration),
    };
    let series = results.plan.criteria_gets().enumerate().map(|(colour, gets)| {
        let found = |configuration: &Configuration| {
            Spread::of(results.numbers(metric, *configuration, gets, OP))
        };
        let values = all.iter().map(|one| found(one).map_or(f64::NAN, |spread| spread.median));
        let spreads = all.iter().map(|one| found(one).map(|spread| [spread.low, spread.high]));
        let name = series_name(results, all[0].door, gets);
        BarSeries::new(name, Origin::Measured, colour, values).with_spreads(spreads)
    });
    Panel::groups(metric.name(), metric.unit(), all.iter().map(category), series)
}

fn series_name(results: &Results, door: Door, gets: u32) -> String {
    let per_s = results.carried_per_s.get(&(door, gets));
    let load = per_s.map_or("no load carried".to_owned(), |per_s| format!("{per_s}/s"));
    format!("{gets} % gets, {load}")
}

fn table(caption: &str, criteria: &[&Criterion]) -> Table {
    Table {
        caption: caption.into(),
        header: vec![
            Column::text("bar"),
            Column::number("ours"),
            Column::number("runs"),
            Column::number("limit"),
            Column::text(""),
        ],
        rows: criteria.iter().map(|criterion| criterion.cells().into()).collect(),
    }
}

/// The figures show gets.
const OP: Op = Op::Decompress;
