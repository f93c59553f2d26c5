//! Shows the answers as one page that needs no network. It has a figure of the shares of a profile, a figure
//! of the projected gains with their intervals, and the tables and remarks that the terminal shows.

use planner::{Answer, Outcome, Ratio};
use report::{BarSeries, Category, Column, Figure, Origin, Panel, Report, Section, Table};

use super::{profile, show};

/// Builds the page.
pub(super) fn report(outcome: &Outcome) -> Report {
    let Outcome { answers, profile, left_out, .. } = outcome;
    let mut sections: Vec<Section> = profile.iter().map(shares).collect();
    if !answers.is_empty() {
        sections.push(gains(answers, left_out));
    }
    sections.extend(answers.iter().map(answer));
    Report {
        title: "What acceleration would give".to_owned(),
        subtitle: "Accelerometer's equations on the numbers given; ends are of 95 % intervals."
            .to_owned(),
        facts: experiments::page_facts(),
        sections,
    }
}

fn shares(report: &planner::profile::Report) -> Section {
    let panels = profile::shares(report).map(|(title, rows)| {
        let (names, values): (Vec<String>, Vec<f64>) = rows.into_iter().unzip();
        let values = values.into_iter().map(|share| 100.0 * share);
        panel(title, "share (%)", names, BarSeries::new("share", Origin::Computed, 0, values))
    });
    Section {
        heading: "Where the samples are".to_owned(),
        figures: vec![Figure {
            id: "profile".to_owned(),
            caption: "Shares of all samples; without a bar for what has none.".to_owned(),
            panels: panels.into(),
        }],
        tables: profile::tables(report)
            .map(|(title, rows)| table(title, "category", &profile::COLUMNS, rows))
            .into(),
        notes: profile::remarks(report),
        ..Section::default()
    }
}

fn gains(answers: &[Answer], left_out: &[String]) -> Section {
    let chart = |title: &str, ratio_of: &dyn Fn(&Answer) -> Option<Ratio>| {
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        let found = answers.iter().map(ratio_of);
        let values = found.clone().map(|found| found.and_then(|found| found.value));
        let values = values.map(|value| value.map_or(f64::NAN, percent));
        let ends = found.map(|found| found.and_then(|found| found.ci95.or(found.range)));
        let ends = ends.map(|ends| ends.map(|ends| ends.map(percent)));
        let gains = BarSeries::new("estimate", Origin::Computed, 0, values).with_spreads(ends);
        let label = |answer: &Answer| answer.device.clone().unwrap_or_else(|| name(answer));
        panel(title, "gain (%)", answers.iter().map(label), gains)
    };
    let rows = answers.iter().map(|answer| {
        let device = answer.device.is_none().then(|| answer.name.clone());
        let mut cells = show::device(answer);
        cells[0] = device.unwrap_or_else(|| cells[0].clone());
        cells
    });
    let [_, columns @ ..] = &show::DEVICE_COLUMNS;
    Section {
        heading: "Projected gains".to_owned(),
        figures: vec![Figure {
            id: "gains".to_owned(),
            caption: ENDS.to_owned(),
            panels: vec![
                chart("speedup", &|answer| Some(answer.speedup)),
                chart("latency reduction", &|answer| answer.latency_reduction),
            ],
        }],
        tables: vec![table("All beside each other.", "what", columns, rows.collect())],
        notes: left_out.iter().map(|why| format!("Left out: {why}.")).collect(),
        ..Section::default()
    }
}

const ENDS: &str = "What each would give, with its interval; an interval without a bar where only a \
                    range can be told.";

fn answer(answer: &Answer) -> Section {
    let parameters = answer.parameters.iter().map(show::parameter).collect();
    let [(parameter, _), rest @ ..] = &show::PARAMETER_COLUMNS;
    Section {
        heading: name(answer),
        tables: vec![
            table(
                "The answer.",
                "",
                &[("estimate", 0), ("95 % interval", 0)],
                show::estimates(answer),
            ),
            table("What it rests on.", parameter, rest, parameters),
        ],
        notes: show::remarks(answer),
        ..Section::default()
    }
}

/// Builds a table. `title` is the title of the column with the rows' names.
fn table(caption: &str, title: &str, columns: &[(&str, usize)], rows: Vec<Vec<String>>) -> Table {
    let names = [title].into_iter().chain(columns.iter().map(|(name, _)| *name));
    Table { caption: caption.to_owned(), header: names.map(Column::text).collect(), rows }
}

fn name(answer: &Answer) -> String {
    let device = answer.device.as_ref().map_or(String::new(), |name| format!(" on {name}"));
    format!("{}{device}", answer.name)
}

fn panel(
    title: &str,
    unit: &str,
    names: impl IntoIterator<Item = String>,
    series: BarSeries,
) -> Panel {
    Panel::groups(title, unit, names.into_iter().map(Category::new), [series])
}
