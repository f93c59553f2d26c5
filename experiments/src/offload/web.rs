//! Experiment 3, section 4.2.2: the synthetic web server. It encrypts and then compresses objects of 8 KiB.
//! The profiles were calibrated to the software, sync and async rows of table 4.2.

use report::Section;

use super::closed::warm;
use super::mode::Mode;
use super::modes::FEW;
use super::platform::Platform;
use super::published;
use super::sample::{Sample, invalid};
use super::setup::Setup;
use super::work::Work;
use crate::base::Spread;
use crate::base::figures::table;
use crate::base::rows::{Kind, Row, Rows};

/// Measures, adds the rows, and returns the section of the page with their table.
///
/// # Errors
/// A job failed, or the run has to stop.
pub(super) fn run(setup: &Setup, rows: &mut Rows) -> Result<Section, String> {
    let first = rows.rows.len();
    let work = Work::web_server(&setup.stock)?;
    let platforms = setup.platforms();
    platforms.into_iter().try_for_each(|platform| warm(platform, &work))?;
    setup.session.begin("web server", setup.plan.runs * platforms.len() * Mode::ALL.len());
    let mut samples = vec![vec![Vec::new(); Mode::ALL.len()]; platforms.len()];
    for _ in 0..setup.plan.runs {
        for (platform, samples) in platforms.iter().zip(&mut samples) {
            for (mode, samples) in Mode::ALL.into_iter().zip(samples) {
                let closed = setup.closed(FEW);
                let what = format!("web server, {}, {}", mode.id(), platform.id);
                samples.push(setup.session.take(&what, || closed.run(platform, mode, &work))?);
            }
        }
    }
    for (platform, samples) in platforms.iter().zip(&samples) {
        for (mode, of_mode) in Mode::ALL.into_iter().zip(samples) {
            write(rows, platform, mode, of_mode, &samples[0]);
        }
    }
    Ok(section(&rows.rows[first..]))
}

fn write(rows: &mut Rows, platform: &Platform, mode: Mode, samples: &[Sample], base: &[Sample]) {
    let suffix = if platform.id == "bluefield2" { "" } else { platform.id };
    let at = [mode.id(), WORKLOAD, suffix].join(".");
    let at = at.trim_end_matches('.');
    let published = TABLE_4_2.iter().find(|row| row.mode == mode && suffix.is_empty());
    // The virtual software is in the path of every mode, because it runs the encryption.
    let devices = || platform.virtuals(mode);
    let mut add = |metric: &str, what: &str, unit, values: Vec<f64>, number: Option<Published>| {
        let what = format!("web server, {}, {}: {what}", mode.name(), platform.name);
        let row = Row::from_values(
            format!("{metric}.{at}"),
            what,
            unit,
            values,
            devices(),
            invalid(samples),
        );
        rows.rows.push(match number {
            Some(number) => number.beside(row),
            None => row,
        });
    };
    let values = |value: &dyn Fn(&Sample) -> f64| samples.iter().map(value).collect::<Vec<_>>();
    let input = published.is_some_and(|row| row.input);
    let per_s = values(&Sample::per_s);
    let median_per_s =
        Spread::from_values(per_s.iter().copied()).map_or(f64::NAN, |spread| spread.median);
    let number = |column: fn(&Line) -> f64, input| {
        published.map(|row| Published { value: column(row), input, cause: row.times(median_per_s) })
    };
    add("throughput", "requests done", "1/s", per_s, number(|row| row.per_s, input));
    let p50 = values(&|sample: &Sample| sample.quantile_us(0.5));
    add("p50", "median latency", "us", p50, number(|row| row.p50_us, input));
    let p90 = values(&|sample: &Sample| sample.quantile_us(0.9));
    let p90_number = number(|row| row.p90_us, false);
    let p90_number = p90_number.map(|number| Published { cause: NO_SPREAD.to_owned(), ..number });
    add("p90", "90th percentile of latency", "us", p90, p90_number);
    if mode != Mode::Software {
        let ratios = samples.iter().zip(base).map(|(sample, base)| sample.per_s() / base.per_s());
        let ratio = number(|row| row.per_s / TABLE_4_2[0].per_s, input);
        add("throughput_ratio", "throughput over software's", "ratio", ratios.collect(), ratio);
    }
}

fn section(rows: &[Row]) -> Section {
    let published = rows.iter().filter(|row| row.published.is_some());
    let others = rows.iter().filter(|row| row.published.is_none());
    Section {
        heading: "The synthetic web server (the paper's table 4.2)".into(),
        prose: vec![
            "Objects of 8 KiB, encrypted on the core, then compressed, two requests in flight. The \
             rows of Software, Sync and Async are what the profiles were fitted to, and prove \
             nothing. The Custom rows take the path of Sync or Async at this size, so only the \
             90th percentiles were held out."
                .into(),
        ],
        tables: vec![
            table("Table 4.2, emulated", published),
            table("Other policies, our own codec, a worker thread", others),
        ],
        ..Section::default()
    }
}

/// A published number, whether it is an input of the profiles, and the reason why the number that Rebate obtained may
/// deviate from it.
struct Published {
    value: f64,
    input: bool,
    cause: String,
}

impl Published {
    fn beside(&self, row: Row) -> Row {
        let row = match self.input {
            true => {
                let input = "an input of the profiles (docs/decisions/0015)".to_owned();
                published::with(row.by(Kind::Calibrated), Some(input))
            }
            false => row,
        };
        published::beside(row, self.value, &self.cause)
    }
}

struct Line {
    mode: Mode,
    per_s: f64,
    p50_us: f64,
    p90_us: f64,
    /// True if throughput and median are inputs of the profiles.
    input: bool,
}

impl Line {
    /// Describes the time of a request: according to the published numbers, according to the profiles, and as measured
    /// here at the throughput `per_s`.
    fn times(&self, per_s: f64) -> String {
        let in_flight = if self.mode.keeps_core() { 1.0 } else { FEW as f64 };
        let [by_rate, by_median] = [1e6 / self.per_s, self.p50_us / in_flight];
        let (fitted, here) = ((by_rate * by_median).sqrt(), 1e6 / per_s);
        format!(
            "by the published throughput a request takes the core {by_rate:.1} us, by the published \
             median {by_median:.1}; the profiles are fitted to the middle, {fitted:.1} \
             (docs/decisions/0015), and here it takes {here:.1}: what is more is the runtime's and \
             the emulation's own, and what else ran"
        )
    }
}

/// The reason why a 90th percentile may be off.
const NO_SPREAD: &str = "the profiles have one time for a size and its data, and no spread: \
     published 90th percentiles say only when a completion counts as late (docs/decisions/0015)";

const fn of_table(mode: Mode, numbers: [f64; 3], input: bool) -> Line {
    Line { mode, per_s: numbers[0], p50_us: numbers[1], p90_us: numbers[2], input }
}

const TABLE_4_2: [Line; 5] = [
    of_table(Mode::Software, [28.1e3, 38.4, 42.4], true),
    of_table(Mode::Sync, [39.3e3, 27.6, 30.3], true),
    of_table(Mode::LatencyCritical, [39.3e3, 27.6, 30.2], false),
    of_table(Mode::Async, [60.2e3, 36.1, 39.4], true),
    of_table(Mode::Batch, [60.3e3, 36.0, 39.9], false),
];

const WORKLOAD: &str = "web8KiB";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_is_missed_has_a_reason() {
        let line = TABLE_4_2.iter().find(|line| line.mode == Mode::Async).expect("of the table");
        let beside = |per_s: f64| {
            let devices = vec!["virtual-bluefield2".to_owned()];
            let row = Row::from_values("a".into(), "b".into(), "1/s", [per_s], devices, None);
            let number = Published { value: line.per_s, input: true, cause: line.times(per_s) };
            number.beside(row)
        };
        let off = beside(53_200.0);
        assert_eq!((off.kind, off.published), (Kind::Calibrated, Some(60_200.0)));
        let said = off.reason.expect("a reason");
        for part in ["an input of the profiles", "-12 %", "16.6 us", "18.1;", "17.3 ", "18.8:"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let near = beside(57_000.0).reason.expect("a reason");
        assert_eq!(near, "an input of the profiles (docs/decisions/0015)");
    }
}
