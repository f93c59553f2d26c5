//! Writes a view as lines for a terminal, and draws them over those of the last reading.

use std::collections::VecDeque;

use load::{Rate, View};
use planner::plain;
use rustix::termios::tcgetwinsize;

use crate::terminal::{numbers, print};

/// The last readings, for the small curves.
#[derive(Default)]
pub(super) struct History {
    gets_per_s: VecDeque<f64>,
    sets_per_s: VecDeque<f64>,
    hit_ratio: VecDeque<f64>,
}

impl History {
    pub(super) fn add(&mut self, view: &View) {
        let values = [
            (&mut self.gets_per_s, view.gets_per_s),
            (&mut self.sets_per_s, view.sets_per_s),
            (&mut self.hit_ratio, view.hit_ratio.unwrap_or(0.0)),
        ];
        for (list, value) in values {
            list.push_back(value);
            if list.len() > CURVE_VALUES {
                list.pop_front();
            }
        }
    }
}

/// Where the lines go: drawn in place on a terminal, and otherwise one block after the other.
pub(super) struct Screen {
    is_terminal: bool,
    has_shown: bool,
}

impl Screen {
    pub(super) fn new(is_terminal: bool) -> Self {
        Self { is_terminal, has_shown: false }
    }

    pub(super) fn show(&mut self, lines: &[String]) {
        let mut text = String::new();
        if self.is_terminal {
            let size = tcgetwinsize(std::io::stdout());
            let (rows, columns) = size
                .map_or((usize::MAX, usize::MAX), |size| (size.ws_row.into(), size.ws_col.into()));
            text += if self.has_shown { HOME } else { CLEAR };
            for line in lines.iter().take(rows.saturating_sub(1)) {
                text.extend(line.chars().take(columns));
                text += END_OF_LINE;
            }
            text += END_OF_SCREEN;
        } else {
            text = lines.join("\n") + "\n\n";
        }
        self.has_shown = true;
        print(text);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_terminal && self.has_shown {
            print(SHOW_CURSOR);
        }
    }
}

/// Returns the lines of a view.
pub(super) fn lines(address: &str, view: &View, history: &History) -> Vec<String> {
    let name = match &view.rebate_version {
        Some(version) => format!("rebate {version}"),
        None => format!("memcached {}", view.version),
    };
    let mut lines = vec![
        format!(
            "{name} at {address}, up {}, {} threads, {} connections, {:.2} cores busy",
            time(view.uptime_s),
            view.threads,
            view.connections,
            view.cores
        ),
        String::new(),
        format!("gets     {:>10}/s  {}", count(view.gets_per_s), curve(&history.gets_per_s, None)),
        format!(
            "hits     {:>11}   {}",
            ratio(view.hit_ratio),
            curve(&history.hit_ratio, Some(1.0))
        ),
        format!("sets     {:>10}/s  {}", count(view.sets_per_s), curve(&history.sets_per_s, None)),
        format!(
            "others   {:>10}/s  errors {}/s",
            count(view.others_per_s),
            count(view.errors_per_s)
        ),
        format!(
            "network  {:>10}/s  in, {}/s out",
            bytes(view.received_bytes_per_s),
            bytes(view.sent_bytes_per_s)
        ),
        format!(
            "items    {:>11}   {} of {}, {} evictions/s",
            count(view.items as f64),
            bytes(view.bytes as f64),
            bytes(view.limit_bytes as f64),
            count(view.evictions_per_s)
        ),
    ];
    if view.rebate_version.is_some() {
        lines.push(format!(
            "stored   {:>11}   bytes for each byte written",
            ratio(view.stored_ratio)
        ));
        lines.push(String::new());
        for (title, rates) in [
            ("written", &view.written),
            ("read", &view.read),
            ("jobs", &view.jobs),
            ("upstream", &view.upstream),
        ] {
            if !rates.is_empty() {
                lines.push(format!("{title:<8} {}", listed(rates)));
            }
        }
        lines.extend(classes(view));
    }
    lines
}

/// Returns a table of the classes of keys.
fn classes(view: &View) -> Vec<String> {
    if view.classes.is_empty() {
        return Vec::new();
    }
    let head = ["class of keys", "form", "values/s", "bytes/s", "stored"].map(str::to_owned);
    let rows = view.classes.iter().take(CLASSES_SHOWN).map(|class| {
        vec![
            class.name.clone(),
            class.form.clone(),
            count(class.values_per_s),
            bytes(class.bytes_per_s),
            ratio(class.stored_ratio),
        ]
    });
    let table: Vec<_> = std::iter::once(head.to_vec()).chain(rows).collect();
    std::iter::once(String::new()).chain(numbers(&table)).collect()
}

fn listed(rates: &[Rate]) -> String {
    let each = rates.iter().map(|rate| format!("{} {}/s", rate.name, count(rate.per_s)));
    each.collect::<Vec<_>>().join(", ")
}

/// Draws values as a row of blocks, from 0 to the largest, or to `top`.
fn curve(values: &VecDeque<f64>, top: Option<f64>) -> String {
    let top = top.unwrap_or_else(|| values.iter().copied().fold(0.0, f64::max));
    let block = |value: &f64| {
        let height = if top > 0.0 { value / top * (BLOCKS.len() - 1) as f64 } else { 0.0 };
        BLOCKS[(height.round() as usize).min(BLOCKS.len() - 1)]
    };
    values.iter().map(block).collect()
}

/// Formats a number with one decimal if it is below 10.
fn count(value: f64) -> String {
    plain(if value < 10.0 { (10.0 * value).round() / 10.0 } else { value.round() })
}

fn bytes(value: f64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.iter().find(|(_, shift)| value >= (1_u64 << shift) as f64);
    unit.map_or_else(
        || format!("{value:.0} B"),
        |(name, shift)| format!("{:.1} {name}", value / (1_u64 << shift) as f64),
    )
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"))
}

/// Writes a time with its two largest units.
fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// The readings of a curve, and the classes that are shown.
const CURVE_VALUES: usize = 60;
const CLASSES_SHOWN: usize = 12;

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Hides the cursor and clears the screen; goes to its first line; clears what is right of and below the text.
const CLEAR: &str = "\x1b[?25l\x1b[2J\x1b[H";
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const END_OF_SCREEN: &str = "\x1b[J";
const SHOW_CURSOR: &str = "\x1b[?25h";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.0, 3.12, 12.6, 12_345.0].map(count), ["0", "3.1", "13", "12,345"]);
        assert_eq!([10.0, 2_048.0, 5e9].map(bytes), ["10 B", "2.0 KiB", "4.7 GiB"]);
        let times = [59, 61, 3_700, 90_000].map(time);
        assert_eq!(times, ["59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn a_curve_reaches_from_nothing_to_its_top() {
        let values = VecDeque::from([0.0, 0.5, 1.0]);
        assert_eq!(curve(&values, Some(1.0)), " ▄█");
        assert_eq!(curve(&VecDeque::from([0.0, 0.0]), None), "  ");
    }
}
