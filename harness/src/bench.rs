//! The main of a benchmark: its flags, its runs, and its rows, which it prints as a table or as the record that
//! `bench/harness.py` writes too. A benchmark itself says what is measured.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::{Limit, Machine, Spread};

/// A benchmark with its flags and its rows. Its command line has these flags, and words that select the cases whose
/// names contain them:
/// - `--quick` makes one short run, which shows that the benchmark works;
/// - `--runs=N` sets the number of runs, and a row shows their median;
/// - `--json` prints the rows as a record;
/// - `--count=N` makes one run of N jobs or requests and reads no clock, so that a tool can count instructions. The
///   difference between two numbers is the cost without the start.
pub struct Bench {
    /// True if runs are short.
    pub quick: bool,
    /// The number of jobs or requests of the only run, if instructions are counted.
    pub count: Option<u64>,
    runs: usize,
    is_json: bool,
    words: Vec<String>,
    record: Record,
}

/// What a benchmark found, and how.
#[derive(Serialize)]
struct Record {
    name: &'static str,
    machine: String,
    machine_class: String,
    date: String,
    command: String,
    quick: bool,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    id: String,
    /// The median over the runs.
    value: f64,
    unit: &'static str,
    /// The least and the greatest value.
    spread: [f64; 2],
    /// The limit of the value as text, and whether the value keeps to it.
    bar: Option<String>,
    ok: Option<bool>,
}

impl Bench {
    /// Reads the command line of the benchmark that `command` starts. The last word of `command` is its name. `runs` is
    /// the number of runs that `--runs` replaces.
    pub fn new(command: &'static str, runs: usize) -> Self {
        // Cargo adds the flag `--bench`.
        let arguments = || std::env::args().skip(1).filter(|argument| argument != "--bench");
        let has = |flag: &str| arguments().any(|argument| argument == flag);
        let count = value("--count").and_then(|count| count.parse().ok());
        IS_COUNTED.store(count.is_some(), Ordering::Relaxed);
        let quick = has("--quick") || count.is_some();
        let runs = value("--runs").and_then(|runs| runs.parse().ok()).unwrap_or(runs).max(1);
        let machine = Machine::here();
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let record = Record {
            name: command.rsplit(' ').next().unwrap_or(command),
            machine: machine.description,
            machine_class: machine.class,
            date: date.split('T').next().unwrap_or_default().to_owned(),
            command: format!("{command} -- {}", arguments().collect::<Vec<_>>().join(" ")),
            quick,
            rows: Vec::new(),
        };
        Self {
            quick,
            count,
            runs: if quick { 1 } else { runs },
            is_json: has("--json"),
            words: arguments().filter(|argument| !argument.starts_with("--")).collect(),
            record,
        }
    }

    /// Returns whether the case with this name runs.
    pub fn wants(&self, name: &str) -> bool {
        self.words.iter().all(|word| name.contains(word))
    }

    /// Returns the numbers of the runs.
    pub fn runs(&self) -> Range<usize> {
        0..self.runs
    }

    /// Runs the case with this name, and adds its row.
    pub fn measure(
        &mut self,
        id: &str,
        unit: &'static str,
        limit: Option<Limit>,
        mut run: impl FnMut() -> f64,
    ) {
        if self.wants(id) {
            let values: Vec<f64> = self.runs().map(|_| run()).collect();
            self.row(id, unit, limit, values);
        }
    }

    /// Adds the row of one value for each run. Without a finite value there is no row.
    pub fn row(
        &mut self,
        id: &str,
        unit: &'static str,
        limit: Option<Limit>,
        values: impl IntoIterator<Item = f64>,
    ) {
        if let Some(Spread { median, low, high, .. }) = Spread::from_values(values) {
            self.record.rows.push(Row {
                id: id.to_owned(),
                value: median,
                unit,
                spread: [low, high],
                bar: limit.map(|limit| limit.to_string()),
                ok: limit.map(|limit| limit.holds(median)),
            });
        }
    }

    /// Adds a row for each number of a run. `rows` has the beginnings of their ids, and their units.
    pub fn rows<const N: usize>(
        &mut self,
        name: &str,
        rows: [(&str, &'static str); N],
        runs: &[[f64; N]],
    ) {
        for (at, (what, unit)) in rows.into_iter().enumerate() {
            self.row(&format!("{what}.{name}"), unit, None, runs.iter().map(|run| run[at]));
        }
    }

    /// Prints the rows.
    pub fn finish(self) {
        if self.is_json {
            let text = serde_json::to_string_pretty(&self.record);
            return println!("{}", text.expect("rows have finite numbers"));
        }
        println!("{}, {}", self.record.machine, self.record.date);
        let width = self.record.rows.iter().map(|row| row.id.len()).max().unwrap_or(0);
        for Row { id, value, unit, spread, bar, ok } in &self.record.rows {
            let [low, high] = spread.map(brief);
            let verdict = match ok {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            let (spread, bar) = (format!("[{low}, {high}]"), bar.as_deref().unwrap_or_default());
            let line = format!(
                "{id:<width$} {:>10} {unit:<15} {spread:<24} {bar:<8} {verdict}",
                brief(*value)
            );
            println!("{}", line.trim_end());
        }
        if self.quick {
            println!("quick: no number here is a measurement");
        }
    }
}

/// Returns the value of the flag `FLAG=VALUE` of the command line.
pub fn value(flag: &str) -> Option<String> {
    std::env::args()
        .find_map(|argument| argument.strip_prefix(flag)?.strip_prefix('=').map(str::to_owned))
}

/// Returns the processor time of the calling thread. Other processes on the machine do not add to it. It is zero if
/// instructions are counted, because the system call does not work under the tool.
pub fn thread_time() -> Duration {
    time(ClockId::ThreadCPUTime)
}

/// Returns the processor time of all threads of this process, otherwise as [`thread_time`].
pub fn process_time() -> Duration {
    time(ClockId::ProcessCPUTime)
}

fn time(clock: ClockId) -> Duration {
    if is_counted() {
        return Duration::ZERO;
    }
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns whether an external tool counts instructions.
pub fn is_counted() -> bool {
    IS_COUNTED.load(Ordering::Relaxed)
}

/// Formats a number with four digits, or without a fraction.
fn brief(value: f64) -> String {
    let digits = (3.0 - value.abs().log10().floor()).clamp(0.0, 3.0) as usize;
    format!("{value:.digits$}")
}

static IS_COUNTED: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_median_with_its_range() {
        let mut bench = Bench::new("cargo bench -p sim --bench events", 3);
        bench.row("a", "ns", Some(Limit::AtMost(2.0)), [3.0, 1.0, 2.0]);
        bench.row("b", "ns", None, [f64::NAN]);
        assert_eq!(bench.record.name, "events");
        let rows = serde_json::to_string(&bench.record.rows).expect("JSON");
        let row = r#"{"id":"a","value":2.0,"unit":"ns","spread":[1.0,3.0],"bar":"<= 2","ok":true}"#;
        assert_eq!(rows, format!("[{row}]"));
        assert_eq!([0.0, 1.96, 123.4, 25e6].map(brief), ["0.000", "1.960", "123.4", "25000000"]);
    }
}
