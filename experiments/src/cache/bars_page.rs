//! The page's first part: what a compression service next door comes to beside the monolith, and which bars it meets.

use report::{BarSeries, Category, Column, Figure, Origin, Panel, Section, Table};
use units::Op;

use super::bars::{Metric, is_by_size};
use super::figures::{door_id, door_name, doors, origin};
use super::findings::{Findings, LOAD_BYTES};
use crate::base::rows::{Bar, Rows, Spread};
use crate::testbed::{Configuration, Door};

/// The section, if a bar was measured.
pub(super) fn section(findings: &Findings, rows: &Rows) -> Option<Section> {
    if rows.bars.is_empty() {
        return None;
    }
    let (by_size, others): (Vec<&Bar>, Vec<&Bar>) =
        rows.bars.iter().partition(|bar| is_by_size(bar));
    let tables = [("At one load", others), ("By value size", by_size)];
    let tables = tables.into_iter().filter(|(_, bars)| !bars.is_empty());
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
        figures: doors(findings).flat_map(|door| figures(findings, door)).collect(),
        tables: tables.map(|(caption, bars)| table(caption, &bars)).collect(),
        ..Section::default()
    })
}

/// Latency, and cost; none where the bars were not measured.
fn figures(findings: &Findings, door: Door) -> Vec<Figure> {
    let is_measured = |own: &Configuration| {
        let mut mixes = findings.plan.bar_gets();
        mixes.any(|gets| !findings.numbers(Metric::Maximum, *own, gets, OP).is_empty())
    };
    let all: Vec<Configuration> = findings.plan.of(door).filter(is_measured).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let figure = |name: &str, what: &str, metrics: &[Metric]| Figure {
        id: format!("{name}-{}", door_id(door)),
        caption: format!("Values of {LOAD_BYTES}, {}: {what}.", door_name(door)),
        panels: metrics.iter().map(|metric| panel(findings, &all, *metric)).collect(),
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

fn panel(findings: &Findings, all: &[Configuration], metric: Metric) -> Panel {
    let category = |own: &Configuration| Category { name: own.label(), origin: origin(*own) };
    let series = findings.plan.bar_gets().enumerate().map(|(colour, gets)| {
        let values = all.iter().map(|own| median(findings, metric, *own, gets));
        let name = series_name(findings, all[0].door, gets);
        BarSeries::new(name, Origin::Measured, colour, values)
    });
    Panel::groups(metric.name(), metric.unit(), all.iter().map(category), series)
}

fn series_name(findings: &Findings, door: Door, gets: u32) -> String {
    let per_s = findings.carried_per_s.get(&(door, gets));
    let load = per_s.map_or("no load carried".to_owned(), |per_s| format!("{per_s}/s"));
    format!("{gets} % gets, {load}")
}

fn median(findings: &Findings, metric: Metric, own: Configuration, gets: u32) -> f64 {
    let values = findings.numbers(metric, own, gets, OP);
    Spread::of(values).map_or(f64::NAN, |own| own.median)
}

fn table(caption: &str, bars: &[&Bar]) -> Table {
    Table {
        caption: caption.into(),
        header: vec![
            Column::text("bar"),
            Column::number("ours"),
            Column::number("runs"),
            Column::number("limit"),
            Column::text(""),
        ],
        rows: bars.iter().map(|bar| bar.cells().into()).collect(),
    }
}

/// The figure shows gets.
const OP: Op = Op::Decompress;
