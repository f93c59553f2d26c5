//! Elements of a page that every experiment uses: its rows as tables, and points with the range over runs.

use std::time::SystemTime;

use harness::Machine;
use report::{Column, Point, Section, Table};

use super::rows::{Row, Rows, Spread, command};

/// Returns the facts at the top of every page: the machine, the version, the date and the command.
pub fn page_facts() -> Vec<(String, String)> {
    begin_facts(&Machine::here().description, &command())
}

fn begin_facts(machine: &str, command: &str) -> Vec<(String, String)> {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let facts = [
        ("machine", machine.to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("date", now.replace('T', " ").replace('Z', " UTC")),
        ("command", format!("`{command}`")),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns the facts of an experiment's page, with the facts that only this experiment has.
pub(crate) fn facts(
    rows: &Rows,
    more: impl IntoIterator<Item = (&'static str, String)>,
) -> Vec<(String, String)> {
    let class = ("class", rows.machine_class.clone());
    let more = std::iter::once(class).chain(more).map(|(name, value)| (name.to_owned(), value));
    begin_facts(&rows.machine, &rows.command).into_iter().chain(more).collect()
}

/// Returns the section that lists everything in the JSON file.
pub(crate) fn all_rows(rows: &Rows) -> Section {
    Section {
        heading: "All numbers".into(),
        prose: vec![format!("As in `{}.json`.", rows.name)],
        tables: vec![table("Rows", rows.rows.iter())],
        ..Section::default()
    }
}

/// Returns rows as a table. It has a column of published numbers if there are any.
pub(crate) fn table<'a>(caption: &str, rows: impl Iterator<Item = &'a Row>) -> Table {
    let rows: Vec<&Row> = rows.collect();
    let is_published = rows.iter().any(|row| row.published.is_some());
    let number = |value: f64| match value.abs() {
        0.0..10.0 => format!("{value:.3}"),
        _ => format!("{value:.1}"),
    };
    let row = |row: &&Row| {
        let range = row
            .ci95
            .map_or(String::new(), |[low, high]| format!("{} to {}", number(low), number(high)));
        let published = row.published.map_or(String::new(), number);
        let mut cells = vec![
            row.id.clone(),
            row.ours.map_or("-".to_owned(), number),
            row.unit.to_owned(),
            range,
            format!("{:?}", row.kind).to_lowercase(),
            row.reason.clone().unwrap_or_default(),
        ];
        cells.splice(1..1, is_published.then_some(published));
        cells
    };
    let mut header = vec![
        Column::text("id"),
        Column::number("median"),
        Column::text("unit"),
        Column::number("runs"),
        Column::text("kind"),
        Column::text("remark"),
    ];
    header.splice(1..1, is_published.then(|| Column::number("published")));
    Table { caption: caption.into(), header, rows: rows.iter().map(row).collect() }
}

/// Returns the median with the range over runs, or None if there is no finite value.
pub(crate) fn point(x: f64, values: impl IntoIterator<Item = f64>) -> Option<Point> {
    let spread = Spread::from_values(values)?;
    Some(Point::with_spread(x, spread.median, spread.low, spread.high))
}
