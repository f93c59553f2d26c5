//! An answer as text for a terminal: estimates with their intervals, parameters with where they come from, and the
//! limits.

use super::answer::{Answer, Number, Parameter, Ratio};
use crate::devices::{WIDTH, table, wrapped};

/// The lines of one answer.
pub(crate) fn lines(answer: &Answer) -> Vec<String> {
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
    let columns = [
        ("parameter", 9),
        ("value", 14),
        ("interval", 24),
        ("unit", 15),
        ("provenance", 10),
        ("share of variance", 8),
        ("elasticity", 10),
    ];
    let rows: Vec<Vec<String>> = answer.parameters.iter().map(parameter).collect();
    lines.extend(indented(&table(&columns, &rows)));
    lines.push(String::new());
    lines.push(match answer.measure_better {
        Some(symbol) => format!("  measure better: {symbol}"),
        None => {
            "  every parameter is taken as exact: the interval says nothing of their errors".into()
        }
    });
    for one in &answer.parameters {
        if let Some(source) = &one.source {
            lines.extend(bullet(&format!("{}: {source}", one.symbol)));
        }
    }
    for note in answer.notes.iter().chain(&answer.limits) {
        lines.extend(bullet(note));
    }
    lines
}

fn indented(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| format!("  {line}").trim_end().to_owned()).collect()
}

fn bullet(text: &str) -> Vec<String> {
    let lines = wrapped(text, WIDTH - 4);
    let start = |index: usize| if index == 0 { "  - " } else { "    " };
    lines.iter().enumerate().map(|(index, line)| format!("{}{line}", start(index))).collect()
}

fn estimates(answer: &Answer) -> Vec<Vec<String>> {
    let published = answer.published.as_ref();
    let mut rows = vec![ratio("speedup", answer.speedup)];
    if let Some(latency) = answer.latency_reduction {
        rows.push(ratio("latency reduction", latency));
    }
    let row = |name: &str, value: String, interval: String| vec![name.to_owned(), value, interval];
    match &answer.break_even_bytes {
        Some(bytes) => rows.push(row("break-even size", size(bytes.value), between(bytes, size))),
        None => {
            let how = "give the sizes (--sizes) or Cb".to_owned();
            rows.push(row("break-even size", "unknown".to_owned(), how));
        }
    }
    if let (Some(offloads), Some(calls)) = (&answer.offloads, answer.calls) {
        let value = format!("{} of {}", plain(offloads.value), plain(calls));
        rows.push(row("offloads that pay", value, between(offloads, plain)));
    }
    let share = |value: f64| format!("{:.2} %", 100.0 * value);
    let whose = if answer.offloads.is_some() { "alpha of those" } else { "alpha" };
    rows.push(row(whose, share(answer.alpha.value), between(&answer.alpha, share)));
    if let Some(program) = answer.public_program_percent {
        let exact = "its single precision and one thread switch".to_owned();
        rows.push(row("the public program", format!("{program:.4} %"), exact));
    }
    let told = [
        ("published speedup", published.and_then(|own| own.speedup_percent)),
        ("published ideal speedup", published.and_then(|own| own.ideal_speedup_percent)),
        ("published latency", published.and_then(|own| own.latency_reduction_percent)),
        ("published measurement", published.and_then(|own| own.measured_speedup_percent)),
    ];
    for (name, value) in told {
        if let Some(value) = value {
            let source = published.and_then(|own| own.source.clone()).unwrap_or_default();
            rows.push(row(name, format!("{value:+} %"), source));
        }
    }
    rows
}

fn ratio(name: &str, ratio: Ratio) -> Vec<String> {
    let gain = |ratio: f64| format!("{:+.2} %", 100.0 * (ratio - 1.0));
    let (value, interval) = match (ratio.value, ratio.ci95, ratio.range) {
        (Some(value), Some([low, high]), _) if low == high => {
            (gain(value), "exact parameters".to_owned())
        }
        (Some(value), Some([low, high]), _) => {
            (gain(value), format!("{} to {}", gain(low), gain(high)))
        }
        (_, _, Some([low, high])) => {
            (format!("{} to {}", gain(low), gain(high)), "a range: n and sizes unknown".to_owned())
        }
        _ => ("unknown".to_owned(), String::new()),
    };
    vec![name.to_owned(), value, interval]
}

fn between(number: &Number, text: impl Fn(f64) -> String) -> String {
    let [low, high] = number.ci95;
    if low == high { String::new() } else { format!("{} to {}", text(low), text(high)) }
}

fn size(bytes: f64) -> String {
    if bytes.is_finite() { format!("{} B", plain(bytes)) } else { "no size pays".to_owned() }
}

fn parameter(own: &Parameter) -> Vec<String> {
    let interval = own.interval.map(|[low, high]| format!("{} to {}", plain(low), plain(high)));
    vec![
        own.symbol.to_owned(),
        plain(own.value),
        interval.unwrap_or_default(),
        own.unit.to_owned(),
        own.provenance.to_owned(),
        format!("{:.0} %", 100.0 * own.variance_share),
        format!("{:+.3}", own.elasticity),
    ]
}

/// Five digits, thousands apart, and powers of ten where there would be more than a dozen digits.
pub(crate) fn plain(value: f64) -> String {
    if !value.is_finite() {
        return "inf".to_owned();
    }
    if value != 0.0 && !(1e-4..1e12).contains(&value.abs()) {
        return format!("{value:.4e}");
    }
    let decimals = if value.abs() >= 1e4 || value.fract() == 0.0 {
        0
    } else {
        (4 - value.abs().log10().floor() as i32).clamp(0, 8) as usize
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let rest = rest.trim_end_matches('0');
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if rest.is_empty() { grouped } else { format!("{grouped}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_exact_enough() {
        let expected = [
            (0.0, "0"),
            (425.0, "425"),
            (0.165844, "0.16584"),
            (2.3e9, "2,300,000,000"),
            (12_345.6, "12,346"),
            (-1_234.5, "-1,234.5"),
            (1e13, "1.0000e13"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in expected {
            assert_eq!(plain(value), text);
        }
    }
}
