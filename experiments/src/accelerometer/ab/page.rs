//! The A/B runs' part of the page: measured and estimated gains, the errors of the model and of simpler
//! estimates, and the time of a request by stage. The module measures nothing.

use report::{
    BarSeries, Bars, Category, Column, Figure, Layout, Origin, Panel, Plot, Section, Table,
};

use super::interval::Interval;
use super::measure::{Measurements, Round};
use super::results::{SIDES, part_names};

/// Returns the three sections.
pub(super) fn sections(found: &[Measurements]) -> Vec<Section> {
    vec![errors(found), offs(found), breakdown(found)]
}

fn errors(found: &[Measurements]) -> Section {
    let table = |caption: &str, is_held_out: bool| {
        let header = ["gain measured (%)", "estimated (%)", "error (points)", "no change errs (%)"]
            .into_iter()
            .chain(["Amdahl errs (%)", "alpha"])
            .map(Column::number);
        let texts = [Column::text("case"), Column::text("design")];
        let found = found.iter().filter(|measured| measured.case.is_held_out == is_held_out);
        Table {
            caption: caption.to_owned(),
            header: texts.into_iter().chain(header).collect(),
            rows: found.map(cells).collect(),
        }
    };
    Section {
        heading: "A/B runs on this machine".to_owned(),
        prose: vec![
            "An example service, a cache whose values are compressed, checked and encrypted, with \
             its load in the same thread. The two sides differ in what does one of the three. The \
             estimate is the model's, from the run without acceleration and a microbenchmark of \
             the kernel both ways among other work than the service's; nothing of the service with \
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
        tables: vec![
            table("Estimated and measured", false),
            table(
                "The same of cases held out: written down before anything of them was seen",
                true,
            ),
        ],
        ..Section::default()
    }
}

fn offs(found: &[Measurements]) -> Section {
    let valid = || found.iter().filter(|measured| measured.invalid.is_none());
    let mut parts: Vec<String> = Vec::new();
    for (part, ..) in valid().flat_map(Measurements::off_by_part) {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    let numbers = ["off (%)".to_owned()].into_iter().chain(parts.iter().cloned());
    let cells = |measured: &Measurements| {
        let of_parts = measured.off_by_part();
        let of_part = |part: &String| {
            let found = of_parts.iter().find(|(name, ..)| name == part);
            found.map_or(String::new(), |(.., off)| format!("{:+.2}", off.median))
        };
        let off = with_interval(measured, measured.over_rounds(Round::off_pct));
        let first = [measured.case.id.to_owned(), off];
        first.into_iter().chain(parts.iter().map(of_part)).collect()
    };
    Section {
        heading: "Where the errors are".to_owned(),
        prose: vec![
            "What a request with acceleration took more than estimated, in percent of the estimate, \
             and of that each part of a request: the kernel over what the estimate has it still cost \
             (with waiting and other threads), each other stage over what it took without \
             acceleration, and by how much they were to be quicker (beside: what the microbenchmark \
             says that the kernel costs them). In a round the parts add up to the whole; here are \
             medians over rounds."
                .to_owned(),
        ],
        tables: vec![Table {
            caption: "Taken more than estimated, by part".to_owned(),
            header: [Column::text("case")]
                .into_iter()
                .chain(numbers.map(Column::number))
                .collect(),
            rows: valid().map(cells).collect(),
        }],
        ..Section::default()
    }
}

fn with_interval(found: &Measurements, value: Option<Interval>) -> String {
    let Some(value) = value.filter(|_| found.invalid.is_none()) else { return "-".to_owned() };
    let ends = value.ci95.map(|[low, high]| format!(" [{low:.2}, {high:.2}]"));
    format!("{:.2}{}", value.median, ends.unwrap_or_default())
}

fn cells(found: &Measurements) -> Vec<String> {
    let with_interval = |value| with_interval(found, value);
    let design = &found.case.design;
    let amdahl = found.ratio(|round| round.estimate.amdahl);
    vec![
        found.case.name.to_owned(),
        format!("{}, {}", design.threading.name(), design.strategy.name()),
        with_interval(found.gain()),
        with_interval(found.over_rounds(|round| 100.0 * (round.estimate.speedup - 1.0))),
        with_interval(found.error_points()),
        with_interval(found.ratio(|_| 1.0).map(Interval::error_percent)),
        with_interval(amdahl.map(Interval::error_percent)),
        with_interval(found.over_rounds(|round| round.estimate.values.alpha)),
    ]
}

fn gains(found: &[Measurements]) -> Figure {
    type Value<'a> = &'a dyn Fn(&Measurements) -> Option<Interval>;
    let series = |name: &str, origin, colour, value: Value<'_>| {
        let valid = found.iter().map(|case| value(case).filter(|_| case.invalid.is_none()));
        let medians = valid.clone().map(|found| found.map_or(f64::NAN, |found| found.median));
        BarSeries::new(name, origin, colour, medians)
            .with_spreads(valid.map(|found| found.and_then(|found| found.ci95)))
    };
    let estimated =
        |case: &Measurements| case.over_rounds(|round| 100.0 * (round.estimate.speedup - 1.0));
    let categories = found.iter().map(|measured| category(measured, measured.case.id.to_owned()));
    let series = [
        series("measured", Origin::Measured, 0, &Measurements::gain),
        series("estimated", Origin::Computed, 1, &estimated),
    ];
    Figure {
        id: "ab-gains".to_owned(),
        caption: "What acceleration gave, and what the model said it would".to_owned(),
        panels: vec![Panel::groups("", "gain in throughput (%)", categories, series)],
    }
}

fn category(found: &Measurements, name: String) -> Category {
    let origin = if found.virtuals.is_empty() { Origin::Measured } else { Origin::Emulated };
    Category { name, origin }
}

fn breakdown(found: &[Measurements]) -> Section {
    let sides = || found.iter().flat_map(|measured| SIDES.map(|side| (measured, side)));
    let categories = sides()
        .map(|(measured, (side, _))| category(measured, format!("{} {side}", measured.case.id)));
    let series = part_names().enumerate().map(|(index, name)| {
        let values = sides().map(|(measured, (_, parts))| {
            let share = measured.over_rounds(|round| 100.0 * parts(round)[index] / round.before_ns);
            share.filter(|_| measured.invalid.is_none()).map_or(f64::NAN, |share| share.median)
        });
        BarSeries::new(name, Origin::Measured, index, values)
    });
    let bars = Bars {
        label: "of a request without acceleration (%)".to_owned(),
        layout: Layout::Stacked,
        categories: categories.collect(),
        series: series.collect(),
        mark: None,
    };
    Section {
        heading: "Where the time of a request goes, before and after".to_owned(),
        prose: vec![
            "As the paper's figures 16 to 18: the functions of the service, from slices with a \
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
