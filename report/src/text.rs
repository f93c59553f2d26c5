//! Formats text for pages: code, anchors, numbers and line breaks. The templates escape their input.

use maud::{Markup, html};
use units::ByteCount;

use super::Ticks;

/// Replaces characters that HTML cannot contain. Also replaces characters that reverse the direction of text,
/// because they can make a text look like a different text.
pub(super) fn clean(html: String) -> String {
    let is_bidi = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let is_bad = |c: char| is_bidi(c) || (c.is_control() && !matches!(c, '\n' | '\t'));
    if html.contains(is_bad) { html.replace(is_bad, "\u{fffd}") } else { html }
}

/// Returns the text with parts between backticks as code, unchanged if the number of backticks is odd.
pub(super) fn rich(text: &str) -> Markup {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return html! { (text) };
    }
    html! {
        @for (index, part) in parts.iter().enumerate() {
            @if index % 2 == 0 { (part) } @else { code { (part) } }
        }
    }
}

/// Returns the text as an anchor of letters, digits and hyphens.
pub(super) fn slug(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let slug: String = text.chars().map(keep).collect();
    let words: Vec<&str> = slug.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() { String::from("part") } else { words.join("-") }
}

/// Returns a finite number in the format of the axis.
pub(super) fn number(value: f64, ticks: Ticks) -> String {
    match ticks {
        Ticks::Plain => plain(value),
        Ticks::Bytes => bytes(value),
    }
}

/// Returns the number with four significant digits, separated thousands, and `M` or `G` if it is large.
fn plain(value: f64) -> String {
    let size = value.abs();
    let (scaled, letter) = match size {
        s if s >= 999_950_000.0 => (size / 1e9, "G"),
        s if s >= 999_950.0 => (size / 1e6, "M"),
        _ => (size, ""),
    };
    let decimals = match scaled {
        s if s == 0.0 || s >= 1_000.0 => 0,
        // The number of decimals is at most 12 + 3, because drawings treat numbers below 1e-12 as zero.
        s => (3 - s.log10().floor() as i32).clamp(0, 15) as usize,
    };
    let digits = format!("{scaled:.decimals$}");
    let is_whole = decimals == 0;
    let digits =
        if is_whole { &digits } else { digits.trim_end_matches('0').trim_end_matches('.') };
    signed(value, digits) + letter
}

/// Returns a number for a column. All numbers of a column have the same number of decimals, so that the
/// `smallest` one has three significant digits.
pub(super) fn aligned(value: f64, smallest: f64, ticks: Ticks) -> String {
    if ticks == Ticks::Bytes || value.abs() >= 1e9 {
        return number(value, ticks);
    }
    let digits = if smallest > 0.0 { 2 - smallest.log10().floor() as i32 } else { 0 };
    let decimals = digits.clamp(0, 6) as usize;
    signed(value, &format!("{:.decimals$}", value.abs()))
}

/// Returns the digits with the sign of `value` and with separated thousands.
fn signed(value: f64, digits: &str) -> String {
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut out = String::from(if value < 0.0 { "\u{2212}" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index < whole && (whole - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn bytes(value: f64) -> String {
    let units =
        [("GiB", ByteCount::mib(1024)), ("MiB", ByteCount::mib(1)), ("KiB", ByteCount::kib(1))];
    for (unit, size) in units {
        if value.abs() >= size.0 as f64 {
            return format!("{} {unit}", plain(value / size.0 as f64));
        }
    }
    format!("{} B", plain(value))
}

/// Breaks a text into lines of at most `columns` characters, at spaces and within words longer than a line.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for part in letters.chunks(columns.max(1)) {
            let is_start = std::ptr::eq(part.as_ptr(), letters.as_ptr());
            match lines.last_mut() {
                Some(line) if is_start && line.chars().count() + 1 + part.len() <= columns => {
                    line.push(' ');
                    line.extend(part);
                }
                _ => lines.push(part.iter().collect()),
            }
        }
    }
    lines
}
