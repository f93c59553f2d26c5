//! Formats results for a terminal and for programs. Results that a run does not support are not shown. An
//! overloaded architecture has a reason and the suggestion to simulate a window, instead of times.

use serde_json::{Value, json};
use sim::{Extent, Interval, Report, Verdict};

use super::{Assignment, Outcome, System};
use crate::terminal::{WIDTH, numbers, table};

/// Returns the lines of one point.
pub(super) fn lines(
    spec: &System,
    point: &[Assignment],
    outcomes: &[Outcome],
    precision: Option<f64>,
) -> Vec<String> {
    let Some(first) = outcomes.first() else { return Vec::new() };
    let mut lines = head(spec, point, &first.report);
    let shown: Vec<&Outcome> = outcomes.iter().filter(|one| !refused(&one.report)).collect();
    if !shown.is_empty() {
        lines.extend(times("99th percentile (us)", &shown, |report, name| match name {
            Some(name) => report.response(name).and_then(|response| response.p99_ns),
            None => report.across().and_then(|across| across.p99_ns),
        }));
        lines.extend(times("mean (us)", &shown, |report, name| match name {
            Some(name) => report.response(name).and_then(|response| response.mean_ns),
            None => report.across().map(|across| across.mean_ns),
        }));
        lines.extend(orders(&shown));
        lines.extend(reductions(&shown));
    }
    lines.extend(facts(outcomes));
    if let Some(wanted) = precision {
        lines.extend(shown.iter().map(|one| precise(one, wanted)));
    }
    for outcome in outcomes {
        if let Verdict::Refused { reason, window_ps, .. } = &outcome.report.verdict {
            let name = outcome.architecture;
            let window = window_ps.as_ns() * 1e-3;
            lines.push(format!("{name}: no steady state: {reason}."));
            if spec.has_window() {
                lines.push(format!("  Ask for a window instead: --set run.window_us={window:.0}"));
            }
        }
    }
    lines.push(String::new());
    lines
}

fn head(spec: &System, point: &[Assignment], report: &Report) -> Vec<String> {
    let extent = match report.extent {
        Extent::Requests(count) => format!("{count} requests each, the steady state"),
        Extent::WindowPs(window) => {
            format!("windows of {:.0} us from empty", window.as_ns() * 1e-3)
        }
    };
    let point: String = point.iter().map(|one| format!(" {one}")).collect();
    let (what, load) = spec.head();
    let what = match what.split_once(':') {
        Some((name, about)) => format!("{name}{point}:{about}"),
        None => what,
    };
    let (replications, seed) = (report.replications, report.seed);
    let how = format!("{load}, {replications} replications of {extent}, seed {seed}");
    vec![what, format!("{how}; 95 % intervals"), String::new()]
}

/// Says whether the requested precision was reached, and if not, what prevented it.
fn precise(outcome: &Outcome, wanted: f64) -> String {
    let (report, name) = (&outcome.report, outcome.architecture);
    let (runs, wanted) = (report.replications, (1e6 * wanted).round() / 1e4);
    if report.precise == Some(true) {
        return format!("{name}: within {wanted} % after {runs} replications.");
    }
    let means = report.responses.iter().map(|one| (one, "mean", one.mean_ns));
    let p99s = report.responses.iter().map(|one| (one, "99th percentile", one.p99_ns));
    let all: Vec<_> = means.chain(p99s).collect();
    let why = match all.iter().find(|(.., found)| found.is_none()) {
        Some((response, what, _)) => {
            format!("a replication has too few requests for the {what} of {}", response.name)
        }
        None => {
            let half = |found: &Option<Interval>| {
                found.map_or(0.0, |interval| interval.relative_half_width())
            };
            let widest = all.iter().max_by(|a, b| half(&a.2).total_cmp(&half(&b.2)));
            widest.map_or(String::new(), |(response, what, found)| {
                format!("the {what} of {} is known to ±{:.1} %", response.name, 100.0 * half(found))
            })
        }
    };
    format!("{name}: NOT within {wanted} % after {runs} replications: {why}.")
}

/// Names the architectures whose results an earlier run has written to the table already. This run neither simulates
/// nor shows them.
pub(super) fn kept(architectures: &[&str]) -> Vec<String> {
    if architectures.is_empty() {
        return Vec::new();
    }
    let names = architectures.join(", ");
    vec![format!("Kept from before, not shown and in no comparison here: {names}."), String::new()]
}

/// Returns a point whose results are not shown, and its architectures, as JSON.
pub(super) fn kept_json((point, architectures): &(Vec<Assignment>, Vec<&'static str>)) -> Value {
    json!({ "set": set(point), "architectures": architectures })
}

fn refused(report: &Report) -> bool {
    matches!(report.verdict, Verdict::Refused { .. })
}

/// Returns a table of services by architectures, with the mean over services.
fn times(
    title: &str,
    shown: &[&Outcome],
    pick: impl Fn(&Report, Option<&str>) -> Option<Interval>,
) -> Vec<String> {
    let names = shown[0].report.responses.iter().map(|response| Some(response.name.as_str()));
    let row = |name: Option<&str>| -> Vec<String> {
        let cells = shown.iter().map(|one| pick(&one.report, name).map_or("-".to_owned(), micros));
        std::iter::once(name.unwrap_or("mean of all").to_owned()).chain(cells).collect()
    };
    let head = shown.iter().map(|one| one.architecture.to_owned());
    let mut rows: Vec<Vec<String>> = vec![std::iter::once(title.to_owned()).chain(head).collect()];
    rows.extend(names.chain([None]).map(row));
    aligned(&rows)
}

/// Orders the architectures by 99th percentile for each service. A `=` means that the paired difference may be zero.
fn orders(shown: &[&Outcome]) -> Vec<String> {
    if shown.len() < 2 {
        return Vec::new();
    }
    let order = |name: &str| order(shown, name).map(|order| vec![name.to_owned(), order]);
    let names = shown[0].report.responses.iter().map(|response| response.name.as_str());
    let rows: Vec<Vec<String>> = names.filter_map(order).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let lines = table(&[("order of the percentiles", WIDTH), ("", WIDTH)], &rows);
    lines.iter().map(|line| format!("  {line}")).chain([String::new()]).collect()
}

fn order(shown: &[&Outcome], name: &str) -> Option<String> {
    let p99 = |one: &&Outcome| one.report.response(name).and_then(|found| found.p99_ns);
    let mut sorted: Vec<(&Outcome, f64)> =
        shown.iter().filter_map(|one| Some((*one, p99(one)?.value))).collect();
    sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut text = sorted.first()?.0.architecture.to_owned();
    for pair in sorted.windows(2) {
        let apart = pair[1].0.report.difference(&pair[0].0.report, name);
        let apart = apart.and_then(|difference| difference.p99_ns);
        let sign = if apart.is_some_and(|apart| apart.ci95[0] > 0.0) { "<" } else { "=" };
        text += &format!(" {sign} {}", pair[1].0.architecture);
    }
    Some(text)
}

/// Returns a table of the percentages by which AccelFlow's times are below those of the other architectures.
fn reductions(shown: &[&Outcome]) -> Vec<String> {
    let accelflow = shown.iter().find(|one| one.architecture == ACCELFLOW);
    let Some(accelflow) = accelflow else { return Vec::new() };
    let mut rows =
        vec![["accelflow below", "percentile (%)", "mean (%)"].map(str::to_owned).to_vec()];
    for other in shown.iter().filter(|one| one.architecture != ACCELFLOW) {
        let found = accelflow.report.reduction(&other.report);
        let p99 = found.as_ref().and_then(|found| found.p99).map_or("-".to_owned(), percent);
        let mean = found.map_or("-".to_owned(), |found| percent(found.mean));
        rows.push(vec![other.architecture.to_owned(), p99, mean]);
    }
    if rows.len() == 1 { Vec::new() } else { aligned(&rows) }
}

/// Returns facts of whole runs, including the warm-up: rates and times of a request's stages if a model has them, then
/// utilisation and how often rare events occurred.
fn facts(outcomes: &[Outcome]) -> Vec<String> {
    let mut lines = facts_table("of whole runs", &["_per_s", "_ns"], 1.0, outcomes);
    lines.extend(facts_table("shares (%)", &["utilisation", "share"], 100.0, outcomes));
    lines
}

/// Returns a table of the facts whose names end with one of `ends`. It omits facts that are always zero.
fn facts_table(title: &str, ends: &[&str], scale: f64, outcomes: &[Outcome]) -> Vec<String> {
    let head = outcomes.iter().map(|one| one.architecture.to_owned());
    let title = title.to_owned();
    let mut rows: Vec<Vec<String>> = vec![std::iter::once(title).chain(head).collect()];
    for name in outcomes[0].report.facts.iter().map(|fact| fact.name.as_str()) {
        if !ends.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let found = |one: &Outcome| one.report.fact(name).map(|fact| scale * fact.value);
        let values: Vec<Option<f64>> = outcomes.iter().map(found).collect();
        if values.iter().flatten().any(|value| *value >= 0.005) {
            let cell =
                |value: &Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
            let cells = values.iter().map(cell);
            rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
        }
    }
    if rows.len() == 1 { Vec::new() } else { aligned(&rows) }
}

/// Formats rows of numbers, indented by two columns, with an empty line below.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let lines = numbers(rows).into_iter().map(|line| format!("  {line}"));
    lines.chain([String::new()]).collect()
}

fn micros(interval: Interval) -> String {
    let half = (interval.ci95[1] - interval.ci95[0]) / 2.0;
    format!("{:.1} ±{:.1}", interval.value * 1e-3, half * 1e-3)
}

fn percent(interval: Interval) -> String {
    let half = (interval.ci95[1] - interval.ci95[0]) / 2.0;
    format!("{:.1} ±{:.1}", 100.0 * interval.value, 100.0 * half)
}

/// Describes one point as JSON.
pub(super) fn json(point: &[Assignment], outcomes: &[Outcome], kept: &[&str]) -> Value {
    let outcomes: Vec<Value> = outcomes
        .iter()
        .map(|one| {
            let (report, across) = (&one.report, one.report.across());
            json!({ "architecture": one.architecture, "report": report, "all": across })
        })
        .collect();
    json!({ "set": set(point), "architectures": outcomes, "kept": kept })
}

fn set(point: &[Assignment]) -> serde_json::Map<String, Value> {
    point.iter().map(|one| (one.key.clone(), json!(one.value))).collect()
}

const ACCELFLOW: &str = "accelflow";
