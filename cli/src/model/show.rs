//! Formats an answer as text for a terminal: estimates with their intervals, parameters with their sources, and the
//! limits.

use planner::{Answer, LogCaSizes, Number, ParameterUsed, Ratio, plain};

use crate::terminal::{WIDTH, table, wrapped};

/// The titles and largest widths of the columns of a table of parameters.
pub(super) const PARAMETER_COLUMNS: [(&str, usize); 7] = [
    ("parameter", 9),
    ("value", 14),
    ("interval", 24),
    ("unit", 15),
    ("provenance", 10),
    ("share of variance", 8),
    ("elasticity", 10),
];
pub(super) const DEVICE_COLUMNS: [(&str, usize); 8] = [
    ("device", 14),
    ("where", 8),
    ("speedup", 9),
    ("95 % interval", 20),
    ("latency reduction", 9),
    ("break-even", 10),
    ("LogCA's", 10),
    ("pays for", 8),
];

/// Returns the lines of one answer.
pub(super) fn lines(answer: &Answer) -> Vec<String> {
    let device = answer.device.as_ref().map_or(String::new(), |name| format!(" on {name}"));
    let mut lines = vec![
        format!("{}{device}", answer.name),
        format!("{}, {}, {} reading", answer.threading, answer.strategy, answer.variant),
        String::new(),
    ];
    lines.extend(indented(&table(
        &[("", 24), ("estimate", 24), ("95 % interval", 40)],
        &estimates(answer),
    )));
    lines.push(String::new());
    let rows: Vec<Vec<String>> = answer.parameters.iter().map(parameter).collect();
    lines.extend(indented(&table(&PARAMETER_COLUMNS, &rows)));
    lines.push(String::new());
    lines.push(match answer.measure_better {
        Some(symbol) => format!("  measure better: {symbol}"),
        None => {
            "  every parameter is taken as exact: the interval says nothing of their errors".into()
        }
    });
    lines.extend(remarks(answer).iter().flat_map(|text| bullet(text)));
    lines
}

/// Returns the sources of the numbers, notes on their use, and the limits of the answer.
pub(super) fn remarks(answer: &Answer) -> Vec<String> {
    let source = |one: &ParameterUsed| Some(format!("{}: {}", one.symbol, one.source.as_ref()?));
    let mut all: Vec<String> = answer.parameters.iter().filter_map(source).collect();
    if let Some(sizes) = &answer.sizes {
        let (calls, bins) = (plain(sizes.calls), plain(sizes.bins as f64));
        let source = sizes.source.as_deref().unwrap_or("no source is stated");
        let provenance = sizes.provenance;
        all.push(format!("sizes ({provenance}; calls {calls}, bins {bins}): {source}"));
    }
    all.extend(answer.notes.iter().chain(&answer.limits).cloned());
    all
}

fn indented(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| format!("  {line}").trim_end().to_owned()).collect()
}

fn bullet(text: &str) -> Vec<String> {
    let lines = wrapped(text, WIDTH - 4);
    let start = |index: usize| if index == 0 { "  - " } else { "    " };
    lines.iter().enumerate().map(|(index, line)| format!("{}{line}", start(index))).collect()
}

/// Returns the estimates as rows.
pub(super) fn estimates(answer: &Answer) -> Vec<Vec<String>> {
    let published = answer.published.as_ref();
    let exact = match answer.sizes.as_ref().map(|sizes| sizes.provenance) {
        None => "exact parameters".to_owned(),
        Some(provenance) => format!("exact parameters, {provenance} sizes"),
    };
    let mut rows = vec![ratio("speedup", answer.speedup, &exact).to_vec()];
    if let Some(latency) = answer.latency_reduction {
        rows.push(ratio("latency reduction", latency, &exact).to_vec());
    }
    let row = |name: &str, value: String, interval: String| vec![name.to_owned(), value, interval];
    match &answer.break_even_bytes {
        Some(bytes) => rows.push(row("break-even size", size(bytes.value), between(bytes, size))),
        None => {
            let how = "give the sizes (--sizes) or Cb".to_owned();
            rows.push(row("break-even size", "unknown".to_owned(), how));
        }
    }
    if let Some(logca) = &answer.logca {
        rows.push(row("LogCA break-even", size(logca.break_even_bytes), half_of_a(logca)));
    }
    let is_chosen = answer.sizes.is_some();
    if let (Some(offloads), Some(calls)) = (&answer.offloads, answer.calls) {
        let (pay, all) = (plain(offloads.value), plain(calls));
        rows.push(match is_chosen {
            true => row("offloads that pay", format!("{pay} of {all}"), between(offloads, plain)),
            false => {
                row("offloads", format!("all {all}"), "sizes unknown: taken to pay".to_owned())
            }
        });
    }
    let share = |value: f64| format!("{:.2} %", 100.0 * value);
    let whose = if answer.offloads.is_some() && is_chosen { "alpha of those" } else { "alpha" };
    rows.push(row(whose, share(answer.alpha.value), between(&answer.alpha, share)));
    if let Some(program) = answer.public_program_percent {
        let exact = "its single precision and one thread switch".to_owned();
        rows.push(row("the public program", format!("{program:.4} %"), exact));
    }
    let published_rows = [
        ("published speedup", published.and_then(|figures| figures.speedup_percent)),
        ("published ideal speedup", published.and_then(|figures| figures.ideal_speedup_percent)),
        ("published latency", published.and_then(|figures| figures.latency_reduction_percent)),
        ("published measurement", published.and_then(|figures| figures.measured_speedup_percent)),
    ];
    for (name, value) in published_rows {
        if let Some(value) = value {
            let source = published.and_then(|figures| figures.source.clone()).unwrap_or_default();
            rows.push(row(name, format!("{value:+} %"), source));
        }
    }
    rows
}

/// Returns a table that compares the answers on several devices.
pub(super) fn devices(answers: &[Answer]) -> Vec<String> {
    let on_device = |answer: &&Answer| answer.device.is_some();
    let rows: Vec<Vec<String>> = answers.iter().filter(on_device).map(device).collect();
    if rows.len() < 2 {
        return Vec::new();
    }
    table(&DEVICE_COLUMNS, &rows)
}

/// Returns the cells of an answer in a table of several answers.
pub(super) fn device(answer: &Answer) -> Vec<String> {
    let [_, speedup, interval] = ratio("", answer.speedup, "exact");
    let latency = answer.latency_reduction.map(|reduction| ratio("", reduction, "exact"));
    let pay = answer.offloads.zip(answer.calls);
    vec![
        answer.device.clone().unwrap_or_default(),
        answer.strategy.to_owned(),
        speedup,
        interval,
        latency.map_or(String::new(), |[_, value, _]| value),
        answer.break_even_bytes.map_or("unknown".to_owned(), |bytes| size(bytes.value)),
        answer.logca.map_or("unknown".to_owned(), |logca| size(logca.break_even_bytes)),
        pay.map_or(String::new(), |(pay, all)| format!("{:.1} %", 100.0 * pay.value / all)),
    ]
}

/// Describes the size from which, according to LogCA, an offload is faster by half of A.
fn half_of_a(logca: &LogCaSizes) -> String {
    match logca.half_acceleration_bytes {
        Some(bytes) if bytes.is_finite() => format!("half of A from {}", size(bytes)),
        _ => String::new(),
    }
}

fn ratio(name: &str, ratio: Ratio, exact: &str) -> [String; 3] {
    let gain = |ratio: f64| format!("{:+.2} %", 100.0 * (ratio - 1.0));
    let (value, interval) = match (ratio.value, ratio.ci95, ratio.range) {
        (Some(value), Some([low, high]), _) if low == high => (gain(value), exact.to_owned()),
        (Some(value), Some([low, high]), _) => {
            (gain(value), format!("{} to {}", gain(low), gain(high)))
        }
        (_, _, Some([low, high])) => {
            (format!("{} to {}", gain(low), gain(high)), "a range: n and sizes unknown".to_owned())
        }
        _ => ("unknown".to_owned(), String::new()),
    };
    [name.to_owned(), value, interval]
}

fn between(number: &Number, text: impl Fn(f64) -> String) -> String {
    let [low, high] = number.ci95;
    if low == high { String::new() } else { format!("{} to {}", text(low), text(high)) }
}

fn size(bytes: f64) -> String {
    if bytes.is_finite() { format!("{} B", plain(bytes)) } else { "no size pays".to_owned() }
}

/// Returns the cells of one parameter.
pub(super) fn parameter(used: &ParameterUsed) -> Vec<String> {
    let interval = used.interval.map(|[low, high]| format!("{} to {}", plain(low), plain(high)));
    vec![
        used.symbol.to_owned(),
        plain(used.value),
        interval.unwrap_or_default(),
        used.unit.to_owned(),
        used.provenance.to_owned(),
        format!("{:.0} %", 100.0 * used.variance_share),
        format!("{:+.3}", used.elasticity),
    ]
}
