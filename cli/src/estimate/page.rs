//! Shows an estimate as one page that needs no network: the figures with their intervals, the classes, the ratio of
//! each codec, and the curve of misses.

use planner::estimate::{Estimate, Figures, Interval, PlacedCurve, Savings};
use report::{
    Axis, BarSeries, Category, Column, Figure, Origin, Panel, Plot, Point, Report, Section, Series,
    Style, Table, Threshold,
};

use super::show;

/// Builds the page.
pub(super) fn report(estimate: &Estimate) -> Report {
    let mut facts = experiments::page_facts();
    facts.extend(show::source(estimate).into_iter().map(|(name, text)| (name.to_owned(), text)));
    let mut sections = vec![savings(estimate), classes(estimate), codecs(estimate)];
    sections.extend(estimate.curve.as_ref().map(hits));
    Report {
        title: "What Rebate would save".to_owned(),
        subtitle: "Estimated from a sample of the values that the cache holds; intervals are 95 %."
            .to_owned(),
        facts,
        sections,
    }
}

fn savings(estimate: &Estimate) -> Section {
    Section {
        heading: "All values".to_owned(),
        tables: vec![table(
            "What Rebate would save, with dictionaries where they save more.",
            &["", "estimate", "95 % interval", "without dictionaries"],
            show::totals(&estimate.total),
        )],
        notes: estimate.notes.iter().chain(&estimate.assumptions).cloned().collect(),
        ..Section::default()
    }
}

fn classes(estimate: &Estimate) -> Section {
    let panel = |title: &str, label: &str, number: fn(&Savings) -> Interval| {
        let found = || drawn(estimate).map(|figures| number(&figures.savings));
        let bars =
            BarSeries::new("estimate", Origin::Computed, 0, found().map(|found| found.value))
                .with_spreads(found().map(|found| Some([found.low, found.high])));
        Panel::groups(title, label, categories(estimate), [bars])
    };
    Section {
        heading: "Classes of keys".to_owned(),
        figures: vec![Figure {
            id: "classes".to_owned(),
            caption: "Items that Rebate holds where memcached holds one in the same memory, and memory saved."
                .to_owned(),
            panels: vec![
                panel("items held", "items where memcached holds 1", |savings| savings.items_held_ratio),
                panel("memory saved", "MB", show::megabytes_saved),
            ],
        }],
        tables: vec![table("All classes.", &show::CLASS_COLUMNS, show::classes(estimate).collect())],
        ..Section::default()
    }
}

fn codecs(estimate: &Estimate) -> Section {
    let series = estimate.total.codecs.iter().enumerate().map(|(at, codec)| {
        let found = || drawn(estimate).map(move |figures| figures.codecs[at].stored_ratio);
        BarSeries::new(codec.codec, Origin::Measured, at, found().map(|found| found.value))
            .with_spreads(found().map(|found| Some([found.low, found.high])))
    });
    Section {
        heading: "Codecs".to_owned(),
        figures: vec![Figure {
            id: "codecs".to_owned(),
            caption: "Stored bytes for each byte of the values, headers included. Less is better."
                .to_owned(),
            panels: vec![Panel::groups("by codec", "stored ratio", categories(estimate), series)],
        }],
        tables: vec![table(
            "The ratio of each codec.",
            &show::codec_columns(estimate),
            show::codecs(estimate).collect(),
        )],
        ..Section::default()
    }
}

fn hits(placed: &PlacedCurve) -> Section {
    let point = |point: &planner::estimate::CurvePoint| Point {
        x: point.bytes / 1e6,
        y: point.miss_ratio,
        low: None,
        high: None,
    };
    let series = Series {
        name: "miss ratio".to_owned(),
        label: String::new(),
        origin: Origin::Computed,
        style: Style::nth(0),
        points: placed.curve.points.iter().map(point).collect(),
    };
    let mut panel = Panel::lines(
        "misses",
        Axis::linear("memory in Rebate (MB)"),
        Axis::linear("miss ratio"),
        vec![series],
    );
    if let Plot::Lines(lines) = &mut panel.plot {
        let threshold = |name: &str, bytes: f64, colour| Threshold {
            name: name.to_owned(),
            x: bytes / 1e6,
            colour,
        };
        lines.thresholds = vec![
            threshold("items now", placed.held_bytes, 1),
            threshold("Rebate", placed.rebate_bytes, 2),
        ];
    }
    Section {
        heading: "Hits".to_owned(),
        figures: vec![Figure {
            id: "misses".to_owned(),
            caption: "Share of gets that find nothing, by the memory that items take in Rebate. On the left is the \
                      memory of the server's items, and on the right what Rebate has in the same memory as the server."
                .to_owned(),
            panels: vec![panel],
        }],
        ..Section::default()
    }
}

/// Returns the figures that have bars: those of all values, and of the classes with the most memory.
fn drawn(estimate: &Estimate) -> impl Iterator<Item = &Figures> {
    [&estimate.total].into_iter().chain(&estimate.classes).take(BARS_MAX)
}

fn categories(estimate: &Estimate) -> Vec<Category> {
    drawn(estimate).map(|figures| Category::new(show::name(figures))).collect()
}

fn table(caption: &str, head: &[&str], rows: Vec<Vec<String>>) -> Table {
    let header = head
        .iter()
        .enumerate()
        .map(|(at, name)| if at == 0 { Column::text(*name) } else { Column::number(*name) });
    Table { caption: caption.to_owned(), header: header.collect(), rows }
}

/// The most bars of a figure.
const BARS_MAX: usize = 13;
