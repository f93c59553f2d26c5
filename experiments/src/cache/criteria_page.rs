//! The first part of the page: a comparison of a compression service on the same host with the monolith, and the
//! criteria that it meets.

use report::{BarSeries, Category, Column, Figure, Origin, Panel, Section, Table};
use units::Op;

use super::criteria::{Metric, is_by_size};
use super::figures::{origin, route_id, route_name, routes};
use super::results::{LOAD_BYTES, Results};
use crate::base::rows::{Criterion, Rows, Spread};
use crate::testbed::{Configuration, StoreRoute};

/// Returns the section, or None if there is no criterion.
pub(super) fn section(results: &Results, rows: &Rows) -> Option<Section> {
    if rows.criteria.is_empty() {
        return None;
    }
    let (by_size, others): (Vec<&Criterion>, Vec<&Criterion>) =
        rows.criteria.iter().partition(|criterion| is_by_size(criterion));
    let tables = [("At one load", others), ("By value size", by_size)];
    let tables = tables.into_iter().filter(|(_, criteria)| !criteria.is_empty());
    Some(Section {
        heading: "The compression service next door".into(),
        prose: vec![
            "A ratio is made of two samples of one run, taken in turn with all others; the median \
             over runs is held against the bar. Host CPU is that of frontend and compression \
             service together. A closed loop keeps 32 requests in flight."
                .into(),
            "By size: never slower than 1.05 times the monolith in its best software and 5 us \
             more, where the policy may keep a job at home; and quicker from the size on at which \
             the stages, measured alone, say so (rows break_even)."
                .into(),
        ],
        figures: routes(results).flat_map(|route| figures(results, route)).collect(),
        tables: tables.map(|(caption, criteria)| table(caption, &criteria)).collect(),
        ..Section::default()
    })
}

/// Returns the figures of latency and cost, or no figures if the criteria were not measured.
fn figures(results: &Results, route: StoreRoute) -> Vec<Figure> {
    let is_measured = |configuration: &Configuration| {
        let mut mixes = results.plan.criteria_gets();
        mixes.any(|gets| !results.numbers(Metric::Maximum, *configuration, gets, OP).is_empty())
    };
    let all: Vec<Configuration> = results.plan.by_route(route).filter(is_measured).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let figure = |name: &str, what: &str, metrics: &[Metric]| Figure {
        id: format!("{name}-{}", route_id(route)),
        caption: format!("Values of {LOAD_BYTES}, {}: {what}.", route_name(route)),
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
            Spread::from_values(results.numbers(metric, *configuration, gets, OP))
        };
        let values = all.iter().map(|one| found(one).map_or(f64::NAN, |spread| spread.median));
        let spreads = all.iter().map(|one| found(one).map(|spread| [spread.low, spread.high]));
        let name = series_name(results, all[0].route, gets);
        BarSeries::new(name, Origin::Measured, colour, values).with_spreads(spreads)
    });
    Panel::groups(metric.name(), metric.unit(), all.iter().map(category), series)
}

fn series_name(results: &Results, route: StoreRoute, gets: u32) -> String {
    let per_s = results.carried_per_s.get(&(route, gets));
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

/// The op in the figures, which show only gets.
const OP: Op = Op::Decompress;
