//! Shows the results as one page that needs no network: percentiles and means of all response times, and
//! utilisation. If a swept key has numbers as values, times are lines over the first such key. Otherwise they
//! are bars. Both have intervals. A value that a run does not support is a gap.

use std::collections::BTreeMap;

use report::{
    Axis, BarSeries, Category, Column, Figure, Origin, Panel, Point, Report, Section, Series,
    Style, Table,
};
use sim::{Interval, Verdict};

use super::{Assignment, Outcome};

/// The data of one architecture at one point.
#[derive(Clone, Debug)]
pub(super) struct Row {
    point: Vec<Assignment>,
    architecture: &'static str,
    /// The reason why there are no times, if any.
    refused: Option<String>,
    /// The percentile and the mean (us), for each response and for the mean of all responses.
    times: Vec<(String, [Option<Interval>; 2])>,
    /// The utilisation of each kind of component (%).
    busy: Vec<(String, Option<Interval>)>,
}

impl Row {
    pub(super) fn new(point: &[Assignment], outcome: &Outcome) -> Self {
        let report = &outcome.report;
        let us = |found: Option<Interval>| found.map(|found| scaled(found, 1e-3));
        let time = |one: &sim::Response| (one.name.clone(), [one.p99_ns, one.mean_ns].map(us));
        let across = report.across();
        let mean = across.as_ref().map(|across| across.mean_ns);
        let all = [across.and_then(|across| across.p99_ns), mean].map(us);
        let busy = report.facts.iter().filter(|fact| fact.name.ends_with(UTILISATION));
        let busy = busy.map(|fact| {
            let name = fact.name.trim_end_matches(UTILISATION).to_owned();
            (name, fact.value.map(|found| scaled(found, 100.0)))
        });
        Self {
            point: point.to_vec(),
            architecture: outcome.architecture,
            refused: match &report.verdict {
                Verdict::Refused { reason, .. } => Some(reason.clone()),
                Verdict::Steady | Verdict::Window => None,
            },
            times: report.responses.iter().map(time).chain([("mean of all".into(), all)]).collect(),
            busy: busy.collect(),
        }
    }

    /// Returns the architecture and the point's values, without the value of the key `but`.
    fn name(&self, but: Option<&str>) -> String {
        let values = self.point.iter().filter(|one| but != Some(one.key.as_str()));
        let values = values.map(|one| one.value.as_str());
        std::iter::once(self.architecture).chain(values).collect::<Vec<_>>().join(" ")
    }

    fn number(&self, key: &str) -> Option<f64> {
        let found = self.point.iter().find(|one| one.key == key)?;
        found.value.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// Builds the page. `kept` is the number of studies that were made earlier and are not shown.
pub(super) fn report(title: &str, how: &str, rows: &[Row], kept: usize) -> Report {
    let key = swept(rows);
    let mut sections = Vec::new();
    let names = rows.first().map_or(&[][..], |row| row.times.as_slice());
    // A sweep may change the names of the responses.
    let is_alike = |index: usize, name: &str| {
        rows.iter().all(|row| row.times.get(index).is_some_and(|one| one.0 == name))
    };
    let all_alike = names.iter().enumerate().all(|(index, (name, _))| is_alike(index, name));
    if key.is_none() && all_alike {
        sections.push(side_by_side(names, rows));
    } else {
        for (index, (name, _)) in names.iter().enumerate() {
            let name = if is_alike(index, name) { name } else { "responses" };
            sections.push(times(name, index, key, rows));
        }
    }
    sections.push(busy(key, rows));
    let mut notes: Vec<String> = rows
        .iter()
        .filter_map(|row| {
            Some(format!("{}: no steady state: {}.", row.name(None), row.refused.as_ref()?))
        })
        .collect();
    if kept > 0 {
        notes.push(format!("{kept} studies were kept from before (`--resume`) and are not here."));
    }
    if let Some(last) = sections.last_mut() {
        last.notes = notes;
    }
    Report {
        title: title.to_owned(),
        subtitle: how.to_owned(),
        facts: experiments::page_facts(),
        sections,
    }
}

/// Returns the first swept key whose values are numbers and not all equal.
fn swept(rows: &[Row]) -> Option<&str> {
    let keys = rows.first()?.point.iter().map(|one| one.key.as_str());
    let is_axis = |key: &&str| {
        let numbers: Option<Vec<f64>> = rows.iter().map(|row| row.number(key)).collect();
        numbers.is_some_and(|numbers| numbers.iter().any(|number| *number != numbers[0]))
    };
    keys.into_iter().find(is_axis)
}

/// Shows all response times, with architectures and points side by side.
fn side_by_side(names: &[(String, [Option<Interval>; 2])], rows: &[Row]) -> Section {
    let names: Vec<String> = names.iter().map(|(name, _)| name.clone()).collect();
    let found = |row: &Row, index: usize, which: usize| row.times[index].1[which];
    let panel = |(which, title): (usize, &&str)| {
        let values = |row: &Row| (0..names.len()).map(|at| found(row, at, which)).collect();
        let series = rows.iter().map(|row| (row.name(None), values(row)));
        groups(title, TIME_UNIT, names.clone(), series)
    };
    let table = |(which, title): (usize, &&str)| {
        let row = |(index, name): (usize, &String)| {
            let cells = rows.iter().map(|row| found(row, index, which));
            let cells = cells.map(|time| time.map_or("-".into(), plus_minus));
            std::iter::once(name.clone()).chain(cells).collect()
        };
        let columns = rows.iter().map(|row| Column::number(row.name(None)));
        Table {
            caption: format!("{title} ({TIME_UNIT}), with half of the 95 % interval."),
            header: [Column::text("")].into_iter().chain(columns).collect(),
            rows: names.iter().enumerate().map(row).collect(),
        }
    };
    Section {
        heading: "Response times".to_owned(),
        figures: vec![Figure {
            id: "responses".to_owned(),
            caption: "Response times, simulated; 95 % intervals.".to_owned(),
            panels: TIMES.iter().enumerate().map(panel).collect(),
        }],
        tables: TIMES.iter().enumerate().map(table).collect(),
        ..Section::default()
    }
}

/// Shows the times of one response.
fn times(name: &str, index: usize, key: Option<&str>, rows: &[Row]) -> Section {
    let found = |row: &Row, which: usize| row.times.get(index).and_then(|(_, both)| both[which]);
    let panels = TIMES.iter().enumerate().map(|(which, title)| match key {
        Some(key) => lines(title, key, rows, &|row| found(row, which)),
        None => bars(title, rows, &|row| found(row, which)),
    });
    let row = |row: &Row| {
        let cells = (0..TIMES.len()).map(|which| found(row, which).map_or("-".into(), plus_minus));
        std::iter::once(row.name(None)).chain(cells).collect()
    };
    let columns = TIMES.iter().map(|title| Column::number(format!("{title} ({TIME_UNIT})")));
    Section {
        heading: name.to_owned(),
        figures: vec![Figure {
            id: name.to_owned(),
            caption: format!("Response time of {name}; 95 % intervals."),
            panels: panels.collect(),
        }],
        tables: vec![Table {
            caption: "With half of their 95 % intervals.".to_owned(),
            header: [Column::text("")].into_iter().chain(columns).collect(),
            rows: rows.iter().map(row).collect(),
        }],
        ..Section::default()
    }
}

/// Shows utilisation: a panel for each architecture and each combination of values of keys other than `key`.
fn busy(key: Option<&str>, rows: &[Row]) -> Section {
    let mut alike: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        alike.entry(row.name(key)).or_default().push(row);
    }
    let figures = alike.into_iter().map(|(name, rows)| {
        let used = |kind: &&String| {
            rows.iter().any(|row| busy_of(row, kind).is_some_and(|one| one.value > 0.0))
        };
        let all = rows.first().into_iter().flat_map(|row| row.busy.iter().map(|(name, _)| name));
        let kinds: Vec<&String> = all.filter(used).collect();
        let panel = match key {
            Some(key) => {
                let series = kinds.iter().enumerate().map(|(nth, kind)| {
                    let point = |row: &&Row| Some((row.number(key)?, busy_of(row, kind)?));
                    series(kind, nth, rows.iter().filter_map(point).collect())
                });
                let (x, y) = (Axis::linear(key), Axis::linear(BUSY_UNIT));
                Panel::lines(name.as_str(), x, y, series.collect())
            }
            None => {
                let names = kinds.iter().map(|kind| (*kind).clone()).collect();
                let values = kinds.iter().map(|kind| busy_of(rows[0], kind)).collect();
                groups(&name, BUSY_UNIT, names, [("busy".to_owned(), values)])
            }
        };
        Figure {
            id: format!("busy {name}"),
            caption: format!("What was busy under {name}, of the whole runs."),
            panels: vec![panel],
        }
    });
    Section { heading: "Utilisation".to_owned(), figures: figures.collect(), ..Section::default() }
}

fn busy_of(row: &Row, kind: &str) -> Option<Interval> {
    row.busy.iter().find(|(name, _)| name == kind)?.1
}

/// Draws a line for each architecture and each combination of the other swept keys.
fn lines(title: &str, key: &str, rows: &[Row], found: &dyn Fn(&Row) -> Option<Interval>) -> Panel {
    let mut names: Vec<String> = rows.iter().map(|row| row.name(Some(key))).collect();
    let mut seen = std::collections::BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let line = |(nth, name): (usize, &String)| {
        let points = rows.iter().filter(|row| row.name(Some(key)) == *name);
        let points = points.filter_map(|row| Some((row.number(key)?, found(row)?)));
        series(name, nth, points.collect())
    };
    let (x, y) = (Axis::linear(key), Axis::linear(TIME_UNIT));
    Panel::lines(title, x, y, names.iter().enumerate().map(line).collect())
}

fn series(name: &str, nth: usize, mut points: Vec<(f64, Interval)>) -> Series {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let point = |(x, Interval { value, ci95: [low, high] }): (f64, Interval)| {
        Point::with_spread(x, value, low, high)
    };
    Series {
        name: name.to_owned(),
        label: String::new(),
        origin: Origin::Computed,
        style: Style::nth(nth),
        points: points.into_iter().map(point).collect(),
    }
}

/// Draws bars for each architecture and point.
fn bars(title: &str, rows: &[Row], found: &dyn Fn(&Row) -> Option<Interval>) -> Panel {
    let names = rows.iter().map(|row| row.name(None)).collect();
    groups(title, TIME_UNIT, names, [("simulated".to_owned(), rows.iter().map(found).collect())])
}

fn groups(
    title: &str,
    unit: &str,
    names: Vec<String>,
    series: impl IntoIterator<Item = (String, Vec<Option<Interval>>)>,
) -> Panel {
    let one = |(colour, (name, values)): (usize, (String, Vec<Option<Interval>>))| {
        let spreads = values.iter().map(|found| found.map(|found| found.ci95));
        let values = values.iter().map(|found| found.map_or(f64::NAN, |found| found.value));
        BarSeries::new(name, Origin::Computed, colour, values).with_spreads(spreads)
    };
    let series = series.into_iter().enumerate().map(one);
    Panel::groups(title, unit, names.into_iter().map(Category::new), series)
}

fn scaled(interval: Interval, factor: f64) -> Interval {
    let [low, high] = interval.ci95;
    Interval { value: factor * interval.value, ci95: [factor * low, factor * high] }
}

fn plus_minus(interval: Interval) -> String {
    let [low, high] = interval.ci95;
    format!("{:.1} ±{:.1}", interval.value, (high - low) / 2.0)
}

const TIMES: [&str; 2] = ["99th percentile", "mean"];
const TIME_UNIT: &str = "us";
const BUSY_UNIT: &str = "busy (%)";
const UTILISATION: &str = ".utilisation";

#[cfg(test)]
mod tests {
    use super::*;
    use report::Plot;

    fn row(architecture: &'static str, point: &[(&str, &str)], value: Option<f64>) -> Row {
        let one = value.map(|value| Interval { value, ci95: [value - 1.5, value + 1.5] });
        Row {
            point: point.iter().map(|(key, value)| Assignment::new(key, value)).collect(),
            architecture,
            refused: value.is_none().then(|| "the manager: too much".to_owned()),
            times: vec![("UniqId".to_owned(), [one, one]), ("mean of all".to_owned(), [one, one])],
            busy: vec![("cores".to_owned(), one), ("manager".to_owned(), None)],
        }
    }

    #[test]
    fn without_a_sweep_architectures_stand_beside_each_other() {
        let rows = [row("relief", &[], Some(77.25)), row("accelflow", &[], None)];
        let page = report("steady", "how", &rows, 2);
        assert_eq!(page.sections.len(), 2);
        let Plot::Bars(bars) = &page.sections[0].figures[0].panels[0].plot else { panic!("bars") };
        let names: Vec<&str> = bars.categories.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["UniqId", "mean of all"]);
        assert_eq!((bars.series[0].name.as_str(), bars.series[0].values[1]), ("relief", 77.25));
        assert_eq!(bars.series[0].spreads[1], Some([75.75, 78.75]));
        assert_eq!(bars.series[1].name, "accelflow");
        assert!(bars.series[1].values[0].is_nan(), "no steady state, no bar");
        let html = page.html();
        for said in [
            "77.2 ±1.5",
            "accelflow: no steady state: the manager: too much.",
            "2 studies",
            "<dt>machine</dt>",
            "<dt>date</dt>",
            "<dt>command</dt>",
        ] {
            assert!(html.contains(said), "{said}");
        }
    }

    #[test]
    fn over_a_sweep_there_are_lines_with_intervals() {
        let at = |pes, order| [("dispatcher.discipline", order), ("hardware.pes", pes)];
        let rows = [
            row("accelflow", &at("8", "fifo"), Some(20.0)),
            row("accelflow", &at("2", "fifo"), Some(90.0)),
            row("accelflow", &at("2", "deadline"), Some(80.0)),
        ];
        let page = report("steady", "how", &rows, 0);
        for section in &page.sections {
            let Plot::Lines(lines) = &section.figures[0].panels[0].plot else { panic!("lines") };
            assert_eq!(lines.x.label, "hardware.pes");
        }
        let Plot::Lines(lines) = &page.sections[1].figures[0].panels[1].plot else {
            panic!("lines")
        };
        let [fifo, deadline] = lines.series.as_slice() else { panic!("{:?}", lines.series) };
        assert_eq!((fifo.name.as_str(), fifo.points.len()), ("accelflow fifo", 2));
        assert_eq!(deadline.name, "accelflow deadline");
        let first = fifo.points[0];
        assert_eq!((first.x, first.y, first.low, first.high), (2.0, 90.0, Some(88.5), Some(91.5)));
    }
}
