//! Formats an estimate as text for a terminal: the figures of all values with their intervals, one line per class, and
//! the ratio of each codec.

use planner::estimate::{Estimate, Figures, Interval, Savings};
use planner::plain;

use crate::terminal::{WIDTH, numbers, pairs, table, wrapped};

/// The name of a figure, and the function that returns it.
type SavingsFigure = (&'static str, fn(&Savings) -> Option<Interval>);

/// Returns the lines of the estimate.
pub(super) fn lines(estimate: &Estimate) -> Vec<String> {
    let mut lines = pairs(&source(estimate));
    lines.push(String::new());
    let columns =
        [("all values", 40), ("estimate", 14), ("95 % interval", 24), ("no dictionary", 14)];
    lines.extend(table(&columns, &totals(&estimate.total)));
    lines.push(String::new());
    lines.extend(numbers(&with_head(&CLASS_COLUMNS, classes(estimate).take(CLASSES_SHOWN))));
    let more = estimate.classes.len().saturating_sub(CLASSES_SHOWN);
    if more > 0 {
        lines.push(format!("and {more} more classes with less memory; --json has them"));
    }
    lines.push(String::new());
    lines.extend(numbers(&with_head(
        &codec_columns(estimate),
        codecs(estimate).take(CLASSES_SHOWN + 1),
    )));
    lines.push(String::new());
    for (word, texts) in [("note", &estimate.notes), ("assumed", &estimate.assumptions)] {
        for text in texts {
            lines.extend(wrapped(&format!("{word}: {text}"), WIDTH));
        }
    }
    lines
}

/// Returns what was read, as names and texts.
pub(super) fn source(estimate: &Estimate) -> Vec<(&'static str, String)> {
    let source = &estimate.source;
    let version =
        source.version.as_ref().map_or(String::new(), |version| format!(", memcached {version}"));
    let limit = source
        .limit_bytes
        .map_or(String::new(), |bytes| format!(", limit {} MiB", plain((bytes >> 20) as f64)));
    let read = format!(
        "{} of {} items listed, {} values read",
        plain(source.items_listed as f64),
        plain(source.items as f64),
        plain(source.values_read as f64),
    );
    let mut rows = vec![("source", format!("{}{version}{limit}", source.name)), ("read", read)];
    if let (Some(gets), Some(ratio), Some(sets)) =
        (source.gets_per_s, source.hit_ratio, source.sets_per_s)
    {
        let traffic =
            format!("{} gets/s, hit ratio {}, {} sets/s", short(gets), short(ratio), short(sets));
        rows.push(("requests", traffic));
    }
    rows
}

/// Returns the figures of all values: name, estimate, interval, and the estimate without dictionaries.
pub(super) fn totals(total: &Figures) -> Vec<Vec<String>> {
    let mut rows = vec![
        row("values", Some(total.values), None),
        row("bytes of values", Some(total.bytes), None),
    ];
    let savings: [SavingsFigure; 9] = [
        ("stored bytes for each byte", |savings| Some(savings.stored_ratio)),
        ("items held where memcached holds 1", |savings| Some(savings.items_held_ratio)),
        ("memory of an item (bytes)", |savings| Some(savings.rebate_item_bytes)),
        ("memory saved (MB)", |savings| Some(megabytes_saved(savings))),
        ("price saved per month", |savings| savings.price_saved_month),
        ("cores for compression", |savings| savings.cores),
        ("hit ratio gained in the same memory", |savings| savings.hit_ratio_gain),
        ("time to compress a value (us)", |savings| Some(savings.compress_us)),
        ("time to decompress a value (us)", |savings| Some(savings.decompress_us)),
    ];
    for (name, number) in savings {
        if let Some(best) = number(&total.savings) {
            rows.push(row(name, Some(best), number(&total.without_dictionary)));
        }
    }
    rows
}

fn row(name: &str, best: Option<Interval>, plain_form: Option<Interval>) -> Vec<String> {
    let ends = |found: Interval| format!("{} to {}", short(found.low), short(found.high));
    vec![
        name.to_owned(),
        best.map_or(String::new(), |found| short(found.value)),
        best.map_or(String::new(), ends),
        plain_form.map_or(String::new(), |found| short(found.value)),
    ]
}

/// Returns the memory saved in MB, the unit of all tables: a class of a small cache saves little of a GB.
pub(super) fn megabytes_saved(savings: &Savings) -> Interval {
    savings.gb_saved.times(1e3)
}

/// The titles of the columns of classes.
pub(super) const CLASS_COLUMNS: [&str; 8] =
    ["class", "values", "MB", "stored", "items held", "MB saved", "cores", "hit ratio"];

/// Returns one row of numbers for each class.
pub(super) fn classes(estimate: &Estimate) -> impl Iterator<Item = Vec<String>> {
    estimate.classes.iter().map(|class| {
        let savings = &class.savings;
        let optional = |found: Option<Interval>| {
            found.map_or_else(|| "-".to_owned(), |found| short(found.value))
        };
        vec![
            name(class),
            plain(class.values.value.round()),
            short(class.bytes.value / 1e6),
            short(savings.stored_ratio.value),
            short(savings.items_held_ratio.value),
            short(megabytes_saved(savings).value),
            optional(savings.cores),
            optional(savings.hit_ratio_gain),
        ]
    })
}

/// Returns the titles of the columns of codecs.
pub(super) fn codec_columns(estimate: &Estimate) -> Vec<&'static str> {
    let names = estimate.total.codecs.iter().map(|ratio| ratio.codec);
    ["stored bytes for each byte"].into_iter().chain(names).collect()
}

/// Returns one row for all values and for each class, with the ratio of each codec.
pub(super) fn codecs(estimate: &Estimate) -> impl Iterator<Item = Vec<String>> {
    [&estimate.total].into_iter().chain(&estimate.classes).map(|figures| {
        let ratios = figures.codecs.iter().map(|ratio| short(ratio.stored_ratio.value));
        [name(figures)].into_iter().chain(ratios).collect()
    })
}

fn with_head(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    [head.iter().map(ToString::to_string).collect()].into_iter().chain(rows).collect()
}

/// Returns a class's name without control characters, cut to a length that fits a table.
pub(super) fn name(figures: &Figures) -> String {
    let visible: String =
        figures.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if visible.chars().count() <= NAME_CHARS_MAX {
        return visible;
    }
    visible.chars().take(NAME_CHARS_MAX - 3).chain("...".chars()).collect()
}

/// Formats a number with three significant digits.
pub(super) fn short(value: f64) -> String {
    if value == 0.0 || !value.is_finite() || value.abs() >= 1_000.0 {
        return plain(value.round());
    }
    let scale = 10_f64.powi(2 - value.abs().log10().floor() as i32);
    plain((value * scale).round() / scale)
}

/// The number of classes that are shown.
const CLASSES_SHOWN: usize = 12;

const NAME_CHARS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let expected = [(0.0, "0"), (0.26543, "0.265"), (12.345, "12.3"), (123_456.7, "123,457")];
        for (value, text) in expected {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(-0.012_34), "-0.0123");
        assert_eq!(short(f64::NAN), "inf");
    }
}
