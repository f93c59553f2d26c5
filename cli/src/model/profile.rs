//! Formats the report of a CPU profile as text and as tables.

use std::path::Path;

use planner::plain;
use planner::profile::{self, Explained, Report, Row};
use serde_json::json;
use workload::cpu::Table;

use crate::terminal::{WIDTH, table, wrapped};

/// Returns lines that say which rules match a symbol, as text or as JSON.
///
/// # Errors
/// The rules are not valid.
pub(super) fn explain(
    symbol: &str,
    more_rules: Option<&Path>,
    json: bool,
) -> Result<Vec<String>, String> {
    let found = profile::explain(symbol, more_rules)?;
    let category = |one: &Explained| match &one.part {
        Some(part) => format!("{}, {part}", one.category),
        None => one.category.clone(),
    };
    if json {
        let rows = found.iter().map(|one| {
            json!({"table": one.table.name(), "place": one.place, "category": one.category,
                   "part": one.part, "frames": one.frames.name(), "pattern": one.pattern})
        });
        return Ok(vec![json!({"symbol": symbol, "rules": rows.collect::<Vec<_>>()}).to_string()]);
    }
    let mut lines = Vec::new();
    for rules in Table::ALL {
        let mut first = true;
        for one in found.iter().filter(|one| one.table == rules) {
            let counts = if first { "counts" } else { "comes too late" };
            let (place, frames, pattern) = (one.place, one.frames.name(), &one.pattern);
            let category = category(one);
            let name = rules.name();
            lines
                .push(format!("{name}: {category} by rule {place} ({frames}) {pattern}: {counts}"));
            first = false;
        }
        if first {
            lines.push(format!("{}: no rule matches: uncategorised", rules.name()));
        }
    }
    Ok(lines)
}

/// Returns the leaf functions and the functionalities, each as a title and a list of names with shares.
pub(super) fn shares(report: &Report) -> [(&'static str, Vec<(String, f64)>); 2] {
    let shares = |rows: &[Row]| rows.iter().map(|row| (row.category.clone(), row.share)).collect();
    [("leaf functions", shares(&report.leaf)), ("functionalities", shares(&report.functionality))]
}

/// Returns the tables of leaf functions and functionalities, each as a title and rows (see [`COLUMNS`]).
pub(super) fn tables(report: &Report) -> [(&'static str, Vec<Vec<String>>); 2] {
    let rows = |rows: &[Row]| rows.iter().map(cells).collect();
    [
        ("leaf functions (table 2)", rows(&report.leaf)),
        ("functionalities (table 3)", rows(&report.functionality)),
    ]
}

/// Returns the remarks that accompany the tables.
pub(super) fn remarks(report: &Report) -> Vec<String> {
    let advice = report.advice.iter().map(|one| format!("{}: {}", one.finding, one.opportunity));
    report.counts.iter().cloned().chain(advice).chain(unread(report)).collect()
}

/// The columns to the right of the title's column.
pub(super) const COLUMNS: [(&str, usize); 5] =
    [("share", 8), ("frames", 9), ("IPC", 5), ("at most", 9), ("most in", 30)];

/// Formats the report as text.
pub(super) fn lines(report: &Report) -> Vec<String> {
    let event = match report.event.as_str() {
        "samples" => String::new(),
        event => format!(" of {event}"),
    };
    let samples = plain(report.samples as f64);
    let mut lines = vec![format!("{}: {samples} samples{event}", report.format)];
    lines.extend(report.counts.iter().flat_map(|text| wrapped(text, WIDTH)));
    for (title, rows) in tables(report) {
        lines.push(String::new());
        let columns: Vec<_> = [(title, 28)].into_iter().chain(COLUMNS).collect();
        lines.extend(table(&columns, &rows));
    }
    if !report.advice.is_empty() {
        lines.extend([
            String::new(),
            "what the findings suggest (Accelerometer's table 4)".to_owned(),
        ]);
    }
    for one in &report.advice {
        let text = format!("{}: {}", one.finding, one.opportunity);
        let wrapped = wrapped(&text, WIDTH - 2);
        let start = |index: usize| if index == 0 { "- " } else { "  " };
        lines.extend(wrapped.iter().enumerate().map(|(at, line)| format!("{}{line}", start(at))));
    }
    lines.push(String::new());
    lines.extend(unread(report));
    let range = "a profile gives alpha, not n or sizes: \"at most\" is the speedup if a category took \
                 no time. --kernel CATEGORY asks the model, with --sizes for more than a range";
    lines.extend(wrapped(range, WIDTH));
    lines
}

fn cells(row: &Row) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let parts = row.parts.iter().map(|part| format!("{} {}", part.part, percent(part.share)));
    let top = row.top.iter().map(|top| format!("{} {}", top.symbol, percent(top.share)));
    let most: Vec<String> = parts.chain(top.take(TOP)).collect();
    vec![
        row.category.clone(),
        percent(row.share),
        row.frames.unwrap_or("").to_owned(),
        row.ipc.map_or(String::new(), |ipc| format!("{ipc:.2}")),
        row.speedup_at_most
            .map_or(String::new(), |speedup| format!("{:+.1} %", 100.0 * (speedup - 1.0))),
        most.join(", "),
    ]
}

/// The number of a category's symbols that fit into its cell.
const TOP: usize = 2;

fn unread(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if report.malformed_lines > 0 {
        lines.push(format!("lines that could not be read: {}, among them", report.malformed_lines));
        let example = |(number, text): &(u64, String)| format!("  line {number}: {text}");
        lines.extend(report.malformed.iter().map(example));
    }
    if report.other_events > 0 {
        lines.push(format!("{} samples of other events are left out", report.other_events));
    }
    if report.frames_beyond > 0 {
        let (frames, symbols) = (report.frames_beyond, report.symbols);
        lines.push(format!("{frames} frames beyond {symbols} distinct symbols matched no rule"));
    }
    lines
}
