//! The A/B runs' part of the page: gains beside each other, errors beside those of simpler expectations, and where the
//! time of a request went before and after. It measures nothing.

use super::interval::Interval;
use super::measure::Found;
use super::results::{SIDES, part_names};
use crate::report::{
    BarSeries, Bars, Category, Column, Figure, Layout, Origin, Panel, Plot, Section, Table,
};

/// Two sections.
pub(super) fn sections(found: &[Found]) -> Vec<Section> {
    vec![errors(found), breakdown(found)]
}

fn errors(found: &[Found]) -> Section {
    let header = ["gain measured (%)", "estimated (%)", "error (%)", "no change errs (%)"]
        .into_iter()
        .chain(["Amdahl errs (%)", "alpha"])
        .map(Column::number);
    Section {
        heading: "A/B runs on this machine".to_owned(),
        prose: vec![
            "An example service, a cache whose values are compressed, checked and encrypted, with \
             its load in the same thread. The two sides differ in what does one of the three. The \
             estimate is the model's, from the run without acceleration and a microbenchmark of \
             the accelerated kernel without the service; nothing that was measured with \
             acceleration is in it. Sides and microbenchmark take turns in short slices; in \
             brackets are 95 % intervals of the medians over the rounds."
                .to_owned(),
            "Throughput is requests per second of CPU time of the service's thread; of the \
             process where a connection has a thread of its own; per second of the core where \
             other threads run while one sleeps. The A/A run has two sides that are alike: its \
             error is the noise."
                .to_owned(),
        ],
        figures: vec![gains(found)],
        tables: vec![Table {
            caption: "Estimated and measured".to_owned(),
            header: [Column::text("case"), Column::text("design")]
                .into_iter()
                .chain(header)
                .collect(),
            rows: found.iter().map(cells).collect(),
        }],
        ..Section::default()
    }
}

fn cells(found: &Found) -> Vec<String> {
    let with_interval = |value: Option<Interval>| {
        let Some(value) = value.filter(|_| found.invalid.is_none()) else { return "-".to_owned() };
        let ends = value.ci95.map(|[low, high]| format!(" [{low:.2}, {high:.2}]"));
        format!("{:.2}{}", value.median, ends.unwrap_or_default())
    };
    let design = &found.case.design;
    let amdahl = found.ratio(|round| round.estimate.amdahl);
    vec![
        found.case.name.to_owned(),
        format!("{}, {}", design.threading.name(), design.strategy.name()),
        with_interval(found.gain()),
        with_interval(found.of(|round| 100.0 * (round.estimate.speedup - 1.0))),
        with_interval(found.error()),
        with_interval(found.ratio(|_| 1.0).map(Interval::error_percent)),
        with_interval(amdahl.map(Interval::error_percent)),
        with_interval(found.of(|round| round.estimate.values.alpha)),
    ]
}

fn gains(found: &[Found]) -> Figure {
    let median = |value: Option<Interval>| value.map_or(f64::NAN, |own| own.median);
    let series = |name: &str, colour, of: &dyn Fn(&Found) -> Option<Interval>| BarSeries {
        name: name.to_owned(),
        origin: Origin::Measured,
        colour,
        values: found.iter().map(|own| median(of(own).filter(|_| own.invalid.is_none()))).collect(),
    };
    let estimated = |own: &Found| own.of(|round| 100.0 * (round.estimate.speedup - 1.0));
    let bars = Bars {
        y_label: "gain in throughput (%)".to_owned(),
        layout: Layout::Grouped,
        categories: found.iter().map(|own| category(own, own.case.id.to_owned())).collect(),
        series: vec![series("measured", 0, &Found::gain), series("estimated", 1, &estimated)],
        mark: None,
    };
    Figure {
        id: "ab-gains".to_owned(),
        caption: "What acceleration gave, and what the model said it would".to_owned(),
        panels: vec![Panel { title: String::new(), plot: Plot::Bars(bars) }],
    }
}

fn category(found: &Found, name: String) -> Category {
    let origin = if found.virtuals.is_empty() { Origin::Measured } else { Origin::Emulated };
    Category { name, origin }
}

fn breakdown(found: &[Found]) -> Section {
    let sides = || found.iter().flat_map(|own| SIDES.map(|side| (own, side)));
    let categories =
        sides().map(|(own, (side, _))| category(own, format!("{} {side}", own.case.id)));
    let series = part_names().enumerate().map(|(index, name)| BarSeries {
        name: name.to_owned(),
        origin: Origin::Measured,
        colour: index,
        values: sides()
            .map(|(own, (_, of))| {
                let share = own.of(|round| 100.0 * of(round)[index] / round.before_ns);
                share.filter(|_| own.invalid.is_none()).map_or(f64::NAN, |own| own.median)
            })
            .collect(),
    });
    let bars = Bars {
        y_label: "of a request without acceleration (%)".to_owned(),
        layout: Layout::Stacked,
        categories: categories.collect(),
        series: series.collect(),
        mark: None,
    };
    Section {
        heading: "Where the time of a request goes, before and after".to_owned(),
        prose: vec![
            "As the document's figures 16 to 18: the functions of the service, from slices with a \
             clock read at each stage (its cost taken out), of the time that a request takes \
             without acceleration. What is missing up to 100 % was freed."
                .to_owned(),
        ],
        figures: vec![Figure {
            id: "ab-breakdown".to_owned(),
            caption: "Functionality breakdown of each case, before and after".to_owned(),
            panels: vec![Panel { title: String::new(), plot: Plot::Bars(bars) }],
        }],
        ..Section::default()
    }
}
