//! The rounds as rows: gains, errors with their intervals, the model's parameters, where the time of a request went,
//! and of an error the part that is the kernel's and the part that is the rest's. It measures nothing.

use std::collections::BTreeSet;

use bench_service::Stage;

use super::cases::By;
use super::interval::Interval;
use super::measure::{Found, Parts, Round};
use crate::reproduce::rows::{Kind, Limit, Row, Rows};

/// Adds the rows of every case, and what all of them come to.
pub(super) fn write(rows: &mut Rows, found: &[Found]) {
    found.iter().for_each(|own| case(rows, own));
    totals(rows, found);
}

/// What the cases but A/A come to. Of those that hold; where one does not, nothing is judged.
fn totals(rows: &mut Rows, found: &[Found]) {
    let (cases, left): (Vec<&Found>, Vec<&Found>) = found
        .iter()
        .filter(|own| own.case.by != By::Nothing)
        .partition(|own| own.invalid.is_none());
    let errors: Vec<f64> =
        cases.iter().filter_map(|own| own.error().map(|own| own.median)).collect();
    let devices: BTreeSet<String> = cases.iter().flat_map(|own| own.virtuals.clone()).collect();
    let missing: Vec<&str> = left.iter().map(|own| own.case.id).collect();
    let is_whole = missing.is_empty();
    let reason = (!is_whole).then(|| format!("not judged: without {}", missing.join(", ")));
    let mut add = |id: &str, what: &str, unit, value: Option<f64>, limit: Limit| {
        let (id, devices) = (format!("ab.{id}"), devices.iter().cloned().collect());
        let row = Row::of(id, what.to_owned(), unit, value, devices, reason.clone());
        let met = row.ours.filter(|_| is_whole).map(|ours| limit.holds(ours));
        rows.set(row, None, limit, met);
    };
    let median = Interval::of(errors.iter().copied()).map(|own| own.median);
    add("error_median", "A/B: the median case's error", "%", median, Limit::Below(ERROR_MEDIAN));
    let most = errors.iter().copied().reduce(f64::max).filter(|_| is_whole);
    add("error_most", "A/B: the largest error", "%", most, Limit::AtMost(ERROR_MOST));
    let gains = cases.iter().filter_map(|own| own.gain());
    let gains = gains.filter(|own| own.median >= GAIN_LEAST).count();
    let what = "A/B: cases with a gain of 10 % or more";
    add("gains", what, "cases", Some(gains as f64), Limit::AtLeast(GAINS));
}

fn case(rows: &mut Rows, found: &Found) {
    let id = |metric: &str| format!("ab.{}.{metric}", found.case.id);
    let row = |metric: &str, what: &str, unit, value: Option<Interval>| {
        let what = format!("{}: {what}", found.case.name);
        let value = value.filter(|_| found.invalid.is_none());
        let (median, reason) = (value.map(|own| own.median), found.invalid.clone());
        let row = Row::of(id(metric), what, unit, median, found.virtuals.clone(), reason);
        Row { ci95: value.and_then(|own| own.ci95), ..row }
    };
    let per = found.case.per.name();
    let gain = row("gain_pct", &format!("gain, by {per}"), "%", found.gain());
    rows.rows.push(gain);
    let estimated = found.of(|round| percent(round.estimate.speedup));
    let what = "gain estimated from the run without acceleration and a microbenchmark";
    rows.rows.push(row("estimated_gain_pct", what, "%", estimated).by(Kind::Computed));
    let error = row("error_pct", "estimated throughput over measured, less 1", "%", found.error());
    match found.case.by {
        By::Nothing => rows.rows.push(error),
        _ => {
            let reason = error.reason.clone().or_else(|| found.cause());
            rows.judge(Row { reason, ..error }, None, Limit::AtMost(ERROR_MOST));
        }
    }
    let none = found.ratio(|_| 1.0).map(Interval::error_percent);
    rows.rows.push(row("error_no_change_pct", "error of expecting no change", "%", none));
    let amdahl = found.ratio(|round| round.estimate.amdahl).map(Interval::error_percent);
    rows.rows.push(row("error_amdahl_pct", "error of Amdahl's law alone", "%", amdahl));
    let kernel = found.of(|round| found.kernel_residual_pct(round));
    let what = "of a request with acceleration: what the kernel took more than estimated";
    rows.rows.push(row("residual_kernel_pct", what, "%", kernel));
    let rest = found.of(|round| found.rest_residual_pct(round));
    let what = "of a request with acceleration: what the rest took more than without";
    rows.rows.push(row("residual_rest_pct", what, "%", rest));
    for (metric, what, unit, of) in PARAMETERS {
        let value = found.of(of).filter(|own| own.median > 0.0);
        if let Some(value) = value.filter(|own| own.median.is_finite()) {
            rows.rows.push(row(metric, what, unit, Some(value)));
        }
    }
    for (side, of) in SIDES {
        for (index, name) in part_names().enumerate() {
            let share = found.of(|round| 100.0 * of(round)[index] / round.before_ns);
            let Some(share) = share.filter(|own| own.median > 0.0) else { continue };
            let what = format!("{side} acceleration: {name}, of a request without");
            let word = name.replace([' ', '/'], "_").to_lowercase();
            rows.rows.push(row(&format!("{side}.{word}_pct"), &what, "%", Some(share)));
        }
    }
}

impl Found {
    /// An interval over the rounds.
    pub(super) fn of(&self, of: impl Fn(&Round) -> f64) -> Option<Interval> {
        Interval::of(self.rounds.iter().map(of))
    }

    /// What was measured, with acceleration over without (percent more).
    pub(super) fn gain(&self) -> Option<Interval> {
        self.of(|round| percent(round.speedup()))
    }

    /// An expectation of the speedup over what was measured, round by round.
    pub(super) fn ratio(&self, expected: impl Fn(&Round) -> f64) -> Option<Interval> {
        self.of(|round| expected(round) / round.speedup())
    }

    /// How far off the model is (percent). Of an A/A run, where there is nothing to estimate: how far apart two sides
    /// are that are alike.
    pub(super) fn error(&self) -> Option<Interval> {
        let nothing = self.case.by == By::Nothing;
        let expected = |round: &Round| if nothing { 1.0 } else { round.estimate.speedup };
        self.ratio(expected).map(Interval::error_percent)
    }

    /// What the kernel still cost more than the model had it cost, of a request with acceleration (percent).
    fn kernel_residual_pct(&self, round: &Round) -> f64 {
        let index = self.case.kernel.stage() as usize;
        let values = &round.estimate.values;
        let expected = round.before_ns / round.estimate.speedup - values.c * (1.0 - values.alpha);
        let beside = |parts: &Parts| parts[WAIT] + parts[OTHERS];
        let host = round.after[index] + beside(&round.after) - beside(&round.before);
        100.0 * (host - expected) / round.after_ns
    }

    /// What everything else cost more than without acceleration, which the model holds to be the same (percent).
    fn rest_residual_pct(&self, round: &Round) -> f64 {
        let index = self.case.kernel.stage() as usize;
        let rest =
            |parts: &Parts| parts.iter().sum::<f64>() - parts[index] - parts[WAIT] - parts[OTHERS];
        100.0 * (rest(&round.after) - rest(&round.before)) / round.after_ns
    }

    /// Where the error comes from, of a case that misses the bar.
    fn cause(&self) -> Option<String> {
        self.error().filter(|error| error.median > ERROR_MOST)?;
        let kernel = self.of(|round| self.kernel_residual_pct(round))?.median;
        let rest = self.of(|round| self.rest_residual_pct(round))?.median;
        Some(format!(
            "with acceleration a request spent {kernel:+.1} % more in the kernel than estimated \
             and {rest:+.1} % more in the rest than before"
        ))
    }
}

/// Stages, and the other threads.
pub(super) fn part_names() -> impl Iterator<Item = &'static str> {
    Stage::ALL.into_iter().map(Stage::name).chain(["connection threads"])
}

fn percent(ratio: f64) -> f64 {
    100.0 * (ratio - 1.0)
}

/// A number of a round, with its row's metric, text and unit.
type Parameter = (&'static str, &'static str, &'static str, fn(&Round) -> f64);

const PARAMETERS: [Parameter; 9] = [
    ("request_us", "C: a request without acceleration", "us", |round| {
        round.estimate.values.c / 1e3
    }),
    ("alpha", "alpha: the kernel's share", "ratio", |round| round.estimate.values.alpha),
    ("calls", "n: kernel calls of a request", "calls", |round| round.estimate.values.n),
    ("o0_us", "o0", "us", |round| round.estimate.values.o0 / 1e3),
    ("l_us", "L", "us", |round| round.estimate.values.l / 1e3),
    ("o1_us", "o1", "us", |round| round.estimate.values.o1 / 1e3),
    ("a", "A", "times", |round| round.estimate.values.a),
    ("watched", "a watched request, less its clocks, over one that is not", "ratio", |round| {
        round.watched
    }),
    ("after_us", "a request with acceleration", "us", |round| round.after_ns / 1e3),
];

/// What a side is called, and its stages.
type Side = (&'static str, fn(&Round) -> &Parts);

pub(super) const SIDES: [Side; 2] =
    [("before", |round| &round.before), ("after", |round| &round.after)];

const WAIT: usize = Stage::Wait as usize;
const OTHERS: usize = Stage::ALL.len();

/// The document errs by so much at most (percent); so may we.
const ERROR_MOST: f64 = 3.7;
const ERROR_MEDIAN: f64 = 2.0;
const GAIN_LEAST: f64 = 10.0;
const GAINS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use model::Values;

    use super::super::cases::{self, Case};
    use super::super::estimate::Estimate;
    use super::*;

    /// A gain of a quarter, estimated exactly.
    fn found(case: &Case) -> Found {
        let values =
            Values { c: 1e3, alpha: 0.4, n: 1.0, o0: 0.0, q: 0.0, l: 0.0, o1: 0.0, a: 2.0 };
        let round = || Round {
            before_ns: 1_000.0,
            after_ns: 800.0,
            estimate: Estimate { values, speedup: 1.25, amdahl: 1.25 },
            before: [1.0; Stage::ALL.len() + 1],
            after: [1.0; Stage::ALL.len() + 1],
            watched: 1.0,
        };
        let rounds = (0..6).map(|_| round()).collect();
        let is_virtual = matches!(case.by, By::VirtualIaa(_));
        let virtuals = is_virtual.then(|| "virtual-iaa".to_owned()).into_iter().collect();
        Found { case: case.clone(), rounds, virtuals, invalid: None }
    }

    fn totals_of(found: &[Found]) -> (Vec<Row>, Vec<Option<bool>>) {
        let mut rows = Rows::new("accelerometer", &crate::experiment::Machine::here(), "idle");
        write(&mut rows, found);
        let is_total = |id: &str| id.matches('.').count() == 1;
        let met = rows.bars.iter().filter(|bar| is_total(&bar.id)).map(|bar| bar.met).collect();
        (rows.rows.into_iter().filter(|row| is_total(&row.id)).collect(), met)
    }

    #[test]
    fn a_case_that_does_not_hold_is_in_no_total_and_leaves_them_unjudged() {
        let mut all: Vec<Found> = cases::all().iter().map(found).collect();
        let (rows, met) = totals_of(&all);
        assert_eq!(met, [Some(true); 3]);
        assert!(
            rows.iter().all(|row| row.kind == Kind::Emulated && !row.what.contains("measured"))
        );
        assert!(rows.iter().all(|row| row.devices == ["virtual-iaa"]));
        let whole = rows[2].ours.expect("a count");
        // As good as could be, but late; and one that never was.
        all[1].invalid = Some("late".to_owned());
        all[2] = Found::nothing(&all[2].case, "does not start".to_owned());
        let (rows, met) = totals_of(&all);
        assert_eq!(met, [None; 3]);
        assert_eq!((rows[1].ours, rows[2].ours), (None, Some(whole - 2.0)));
        assert!(rows[0].reason.as_ref().is_some_and(|why| why.contains(all[2].case.id)));
    }

    #[test]
    fn a_case_that_does_not_start_is_there_with_its_reason() {
        let case = &cases::all()[1];
        let mut rows = Rows::new("accelerometer", &crate::experiment::Machine::here(), "idle");
        write(&mut rows, &[Found::nothing(case, "no such thing".to_owned())]);
        let of_case: Vec<&Row> = rows.rows.iter().filter(|row| row.id.contains(case.id)).collect();
        assert!(of_case.len() > 3);
        assert!(of_case.iter().all(|row| row.kind == Kind::Unreachable));
        assert!(of_case.iter().all(|row| row.reason.as_deref() == Some("no such thing")));
    }
}
