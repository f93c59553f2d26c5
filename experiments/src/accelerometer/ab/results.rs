//! Writes the rounds as rows: gains, errors with their intervals, the model's parameters, the time of a request by
//! stage, and the kernel's part of an error. The module measures nothing.

use std::collections::BTreeSet;

use crate::accelerometer::service::Stage;

use super::cases::By;
use super::interval::Interval;
use super::measure::{Measurements, Parts, Round};
use crate::base::rows::{Kind, Limit, Row, Rows};

/// Adds the rows of every case, and the totals. The held-out cases have totals of their own, because they were written
/// down before any of them was measured.
pub(super) fn write(rows: &mut Rows, found: &[Measurements]) {
    found.iter().for_each(|measured| case(rows, measured));
    let is_case = |measured: &&Measurements| measured.case.by != By::Nothing;
    let (held_out, shown) =
        found.iter().filter(is_case).partition(|measured| measured.case.is_held_out);
    totals(rows, "", shown);
    totals(rows, "held_out_", held_out);
}

/// Adds the totals of the valid cases. If one case is invalid, no total is compared with its limit.
fn totals(rows: &mut Rows, set: &str, found: Vec<&Measurements>) {
    if found.is_empty() {
        return;
    }
    let (cases, left): (Vec<&Measurements>, Vec<&Measurements>) =
        found.into_iter().partition(|measured| measured.invalid.is_none());
    let errors: Vec<f64> =
        cases.iter().filter_map(|measured| Some(measured.error_points()?.median)).collect();
    let devices: BTreeSet<String> =
        cases.iter().flat_map(|measured| measured.virtuals.clone()).collect();
    let missing: Vec<&str> = left.iter().map(|measured| measured.case.id).collect();
    let is_whole = missing.is_empty();
    let reason = (!is_whole).then(|| format!("not judged: without {}", missing.join(", ")));
    let mut add = |id: &str, what: &str, unit, value: Option<f64>, limit: Limit| {
        let (id, devices) = (format!("ab.{set}{id}"), devices.iter().cloned().collect());
        let which = if set.is_empty() { "A/B" } else { "A/B, held out" };
        let row =
            Row::from_values(id, format!("{which}: {what}"), unit, value, devices, reason.clone());
        let met = row.ours.filter(|_| is_whole).map(|ours| limit.holds(ours));
        rows.set(row, None, limit, met);
    };
    let median = Interval::from_values(errors.iter().copied()).map(|interval| interval.median);
    let what = "the median case's error";
    add("error_points_median", what, "points", median, Limit::Below(ERROR_MEDIAN));
    let most = errors.iter().copied().reduce(f64::max).filter(|_| is_whole);
    add("error_points_most", "the largest error", "points", most, Limit::AtMost(ERROR_MOST));
    // A model that is right only about cases without a gain proves little. The held-out cases need not have gains.
    if set.is_empty() {
        let gains = cases.iter().filter_map(|measured| measured.gain());
        let gains = gains.filter(|gain| gain.median >= GAIN_LEAST).count() as f64;
        let what = "cases with a gain of 10 % or more";
        add("gains", what, "cases", Some(gains), Limit::AtLeast(GAINS));
    }
}

fn case(rows: &mut Rows, found: &Measurements) {
    let id = |metric: &str| format!("ab.{}.{metric}", found.case.id);
    let row = |metric: &str, what: &str, unit, value: Option<Interval>| {
        let what = format!("{}: {what}", found.case.name);
        let value = value.filter(|_| found.invalid.is_none());
        let (median, reason) = (value.map(|interval| interval.median), found.invalid.clone());
        let row = Row::from_values(id(metric), what, unit, median, found.virtuals.clone(), reason);
        Row { ci95: value.and_then(|interval| interval.ci95), ..row }
    };
    let per = found.case.per.name();
    let gain = row("gain_pct", &format!("gain, by {per}"), "%", found.gain());
    rows.rows.push(gain);
    let estimated = found.over_rounds(|round| percent(round.estimate.speedup));
    let what = "gain estimated from the run without acceleration and a microbenchmark";
    rows.rows.push(row("estimated_gain_pct", what, "%", estimated).by(Kind::Computed));
    let what = "estimated gain less the measured one, without its sign";
    let error = row("error_points", what, "points", found.error_points());
    match found.case.by {
        By::Nothing => rows.rows.push(error),
        _ => {
            let reason = error.reason.clone().or_else(|| found.cause());
            rows.judge(Row { reason, ..error }, None, Limit::AtMost(ERROR_MOST));
        }
    }
    let what = "estimated throughput over measured, less 1";
    rows.rows.push(row("error_pct", what, "%", found.error()));
    let none = found.ratio(|_| 1.0).map(Interval::error_percent);
    rows.rows.push(row("error_no_change_pct", "error of expecting no change", "%", none));
    let amdahl = found.ratio(|round| round.estimate.amdahl).map(Interval::error_percent);
    rows.rows.push(row("error_amdahl_pct", "error of Amdahl's law alone", "%", amdahl));
    let what = "of the time estimated: what a request with acceleration took more";
    rows.rows.push(row("off_pct", what, "%", found.over_rounds(Round::off_pct)));
    for (part, what, value) in found.off_by_part() {
        let what = format!("of the time estimated, more than that: {what}");
        rows.rows.push(row(&format!("off.{part}_pct"), &what, "%", Some(value)));
    }
    for (metric, what, unit, parameter) in PARAMETERS {
        let value = found.over_rounds(parameter).filter(|interval| interval.median > 0.0);
        if let Some(value) = value.filter(|interval| interval.median.is_finite()) {
            rows.rows.push(row(metric, what, unit, Some(value)));
        }
    }
    for (side, parts) in SIDES {
        for (index, name) in part_names().enumerate() {
            let share = found.over_rounds(|round| 100.0 * parts(round)[index] / round.before_ns);
            let Some(share) = share.filter(|share| share.median > 0.0) else { continue };
            let what = format!("{side} acceleration: {name}, of a request without");
            rows.rows.push(row(&format!("{side}.{}_pct", word(name)), &what, "%", Some(share)));
        }
    }
}

impl Measurements {
    /// Returns the interval of a value over the rounds.
    pub(super) fn over_rounds(&self, value: impl Fn(&Round) -> f64) -> Option<Interval> {
        Interval::from_values(self.rounds.iter().map(value))
    }

    /// Returns the measured gain: how much higher the throughput is with acceleration (percent).
    pub(super) fn gain(&self) -> Option<Interval> {
        self.over_rounds(|round| percent(round.speedup()))
    }

    /// Returns an expected speedup divided by the measured one, round by round.
    pub(super) fn ratio(&self, expected: impl Fn(&Round) -> f64) -> Option<Interval> {
        self.over_rounds(|round| expected(round) / round.speedup())
    }

    /// Returns the model's error as a part of the measured throughput (percent).
    pub(super) fn error(&self) -> Option<Interval> {
        self.ratio(|round| self.expected(round)).map(Interval::error_percent)
    }

    /// Returns the model's error as \[Accelerometer\] counts it: the estimated speedup less the measured one. A speedup
    /// of 1.25 has 25 points.
    pub(super) fn error_points(&self) -> Option<Interval> {
        let off = |round: &Round| percent(self.expected(round)) - percent(round.speedup());
        self.over_rounds(off).map(Interval::absolute)
    }

    /// Returns the estimated speedup. An A/A run has nothing to estimate, so its error is the difference between two
    /// equal sides.
    fn expected(&self, round: &Round) -> f64 {
        if self.case.by == By::Nothing { 1.0 } else { round.estimate.speedup }
    }

    /// Returns the error by part of a request (percent of the estimated time). The kernel's part is the time
    /// of the accelerated kernel beyond its estimate. Another stage's part is its time with acceleration less
    /// its time without. The part `beside` is the time that the kernel adds to the other stages, which the
    /// estimate assumes to be saved. In a round the parts add up to the error of the estimate.
    pub(super) fn off_by_part(&self) -> Vec<(String, String, Interval)> {
        let kernel = self.case.kernel.stage() as usize;
        let of_kernel = self.over_rounds(|round| round.kernel_off_pct(kernel));
        let named = |part: &str, what: &str, off: Option<Interval>| {
            off.map(|off| (part.to_owned(), what.to_owned(), off))
        };
        let of_rest = self.over_rounds(|round| 100.0 * round.beside_ns / round.estimated_ns());
        let first = named("kernel", "the kernel, over its estimate", of_kernel);
        let rest = named("beside", "that the rest was to be quicker by", of_rest);
        let others = part_names().enumerate().take(WAIT).filter(|(index, _)| *index != kernel);
        let stage = |(index, name): (usize, &'static str)| {
            let off = self.over_rounds(|round| round.stage_off_pct(index))?;
            let is_there = self.rounds.iter().any(|round| round.before[index] > 0.0);
            is_there.then(|| (word(name), format!("{name}, over the same without"), off))
        };
        first.into_iter().chain(rest).chain(others.filter_map(stage)).collect()
    }

    /// Returns the parts of a request that cause the error of a case, if the error exceeds the limit.
    fn cause(&self) -> Option<String> {
        self.error_points().filter(|error| error.median > ERROR_MOST)?;
        let off = self.over_rounds(Round::off_pct)?.median;
        let mut parts: Vec<_> =
            self.off_by_part().into_iter().map(|(_, what, off)| (what, off.median)).collect();
        parts.sort_by(|one, other| other.1.abs().total_cmp(&one.1.abs()));
        let shown =
            parts.iter().take(CAUSES).map(|(what, percent)| format!("{percent:+.1} % {what}"));
        let shown = shown.collect::<Vec<_>>().join("; ");
        Some(format!("a request with acceleration took {off:+.1} % of its estimate more: {shown}"))
    }
}

impl Round {
    /// Returns the estimated time of a request with acceleration (ns).
    fn estimated_ns(&self) -> f64 {
        self.before_ns / self.estimate.speedup
    }

    /// Returns how much longer the request took than estimated (percent of the estimate).
    pub(super) fn off_pct(&self) -> f64 {
        percent(self.after_ns / self.estimated_ns())
    }

    /// Returns how much longer the kernel took than estimated (percent of the estimate of the request). The kernel's
    /// time includes the wait for it and the work of other threads.
    fn kernel_off_pct(&self, kernel: usize) -> f64 {
        let beside = |parts: &Parts| parts[WAIT..].iter().sum::<f64>();
        let kernel_ns = self.after[kernel] + beside(&self.after) - beside(&self.before);
        let rest = self.before_ns - self.before[kernel] - self.beside_ns;
        100.0 * (kernel_ns - (self.estimated_ns() - rest)) / self.estimated_ns()
    }

    fn stage_off_pct(&self, stage: usize) -> f64 {
        100.0 * (self.after[stage] - self.before[stage]) / self.estimated_ns()
    }
}

fn word(name: &str) -> String {
    name.replace([' ', '/'], "_").to_lowercase()
}

/// Returns the names of the stages, and then the name of the other threads.
pub(super) fn part_names() -> impl Iterator<Item = &'static str> {
    Stage::ALL.into_iter().map(Stage::name).chain(["connection threads"])
}

fn percent(ratio: f64) -> f64 {
    100.0 * (ratio - 1.0)
}

/// A parameter of a round: the row's metric, its text, its unit, and the function that reads the value.
type Parameter = (&'static str, &'static str, &'static str, fn(&Round) -> f64);

const PARAMETERS: [Parameter; 11] = [
    ("request_us", "C: a request without acceleration", "us", |round| {
        round.estimate.values.c / 1e3
    }),
    ("alpha", "alpha: the kernel's share", "ratio", |round| round.estimate.values.alpha),
    ("calls", "n: kernel calls of a request", "calls", |round| round.estimate.values.n),
    ("o0_us", "o0", "us", |round| round.estimate.values.o0 / 1e3),
    ("l_us", "L", "us", |round| round.estimate.values.l / 1e3),
    ("o1_us", "o1", "us", |round| round.estimate.values.o1 / 1e3),
    ("a", "A", "times", |round| round.estimate.values.a),
    ("beside_us", "of C: what the kernel costs the rest, by the microbenchmark", "us", |round| {
        round.beside_ns / 1e3
    }),
    ("filler", "the microbenchmark's other work over what it stands for", "ratio", |round| {
        round.filler
    }),
    ("watched", "a watched request, less its clocks, over one that is not", "ratio", |round| {
        round.watched
    }),
    ("after_us", "a request with acceleration", "us", |round| round.after_ns / 1e3),
];

/// The name of a side, and the function that reads its stages.
type Side = (&'static str, fn(&Round) -> &Parts);

pub(super) const SIDES: [Side; 2] =
    [("before", |round| &round.before), ("after", |round| &round.after)];

/// The index of the first part that is waiting, sleep or other threads. These parts count as time of the
/// kernel.
const WAIT: usize = Stage::Wait as usize;
/// The number of parts that a cause names.
const CAUSES: usize = 3;

/// The greatest error that \[Accelerometer\] reports (points of speedup). It is the limit for the errors here.
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

    /// Returns rounds with a gain of 25 %, which was estimated exactly.
    fn found(case: &Case) -> Measurements {
        let values =
            Values { c: 1e3, alpha: 0.4, n: 1.0, o0: 0.0, q: 0.0, l: 0.0, o1: 0.0, a: 2.0 };
        let round = || Round {
            before_ns: 1_000.0,
            after_ns: 800.0,
            estimate: Estimate { values, speedup: 1.25, amdahl: 1.25 },
            before: [1.0; Stage::ALL.len() + 1],
            after: [1.0; Stage::ALL.len() + 1],
            beside_ns: 0.0,
            filler: 1.0,
            watched: 1.0,
        };
        let rounds = (0..6).map(|_| round()).collect();
        let is_virtual = matches!(case.by, By::VirtualIaa(_));
        let virtuals = is_virtual.then(|| "virtual-iaa".to_owned()).into_iter().collect();
        Measurements { case: case.clone(), rounds, virtuals, invalid: None }
    }

    fn totals_of(found: &[Measurements]) -> (Vec<Row>, Vec<Option<bool>>) {
        let mut rows = Rows::new("accelerometer", &harness::Machine::here(), "idle");
        write(&mut rows, found);
        let is_total = |id: &str| id.matches('.').count() == 1;
        let met = rows
            .criteria
            .iter()
            .filter(|criterion| is_total(&criterion.id))
            .map(|criterion| criterion.passed)
            .collect();
        (rows.rows.into_iter().filter(|row| is_total(&row.id)).collect(), met)
    }

    #[test]
    fn the_parts_of_an_error_add_up_to_it() {
        let mut measured = found(&cases::all()[1]);
        let kernel = measured.case.kernel.stage() as usize;
        for round in &mut measured.rounds {
            // The kernel takes 40 % and the table 60 % of the time. The estimate is 800 ns, and the request takes 900
            // ns.
            (round.before, round.after) =
                ([0.0; Stage::ALL.len() + 1], [0.0; Stage::ALL.len() + 1]);
            (round.before[kernel], round.before[Stage::KeyValue as usize]) = (400.0, 600.0);
            (round.after[kernel], round.after[Stage::KeyValue as usize]) = (220.0, 672.0);
            (round.after[WAIT], round.after_ns, round.beside_ns) = (8.0, 900.0, 20.0);
        }
        let parts: Vec<(String, f64)> =
            measured.off_by_part().into_iter().map(|(part, _, off)| (part, off.median)).collect();
        let named: Vec<&str> = parts.iter().map(|(part, _)| part.as_str()).collect();
        assert_eq!(named, ["kernel", "beside", "key-value_store"]);
        // The kernel takes 228 ns, 8 ns of it waiting, and 220 ns were expected. 20 ns of the other stages should have
        // been gone. The table takes 72 ns.
        let off: Vec<f64> = parts.iter().map(|(_, off)| (off * 10.0).round() / 10.0).collect();
        assert_eq!(off, [1.0, 2.5, 9.0], "{parts:?}");
        let sum: f64 = parts.iter().map(|(_, off)| off).sum();
        assert!((sum - measured.over_rounds(Round::off_pct).expect("rounds").median).abs() < 1e-9);
        let cause = measured.cause().expect("it misses");
        assert!(cause.contains("+12.5 %") && cause.contains("+9.0 % key-value store"), "{cause}");
        measured.rounds.iter_mut().for_each(|round| round.after_ns = 810.0);
        assert_eq!(measured.cause(), None);
    }

    #[test]
    fn held_out_cases_have_separate_totals() {
        let mut all: Vec<Measurements> = cases::held_out().iter().map(found).collect();
        all.extend(cases::all().iter().map(found));
        all[0].rounds.iter_mut().for_each(|round| round.after_ns = 1_000.0);
        let (rows, met) = totals_of(&all);
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let shown = ["ab.error_points_median", "ab.error_points_most", "ab.gains"];
        assert_eq!(ids[..3], shown);
        assert_eq!(ids[3..], ["ab.held_out_error_points_median", "ab.held_out_error_points_most"]);
        assert_eq!(met, [true, true, true, true, false].map(Some));
    }

    #[test]
    fn totals_without_a_case_are_not_judged() {
        let mut all: Vec<Measurements> = cases::all().iter().map(found).collect();
        let (rows, met) = totals_of(&all);
        assert_eq!(met, [Some(true); 3]);
        assert!(
            rows.iter().all(|row| row.kind == Kind::Emulated && !row.what.contains("measured"))
        );
        assert!(rows.iter().all(|row| row.devices == ["virtual-iaa"]));
        let whole = rows[2].ours.expect("a count");
        // One case is invalid because it was late, although it has good numbers, and one never ran.
        all[1].invalid = Some("late".to_owned());
        all[2] = Measurements::nothing(&all[2].case, "does not start".to_owned());
        let (rows, met) = totals_of(&all);
        assert_eq!(met, [None; 3]);
        assert_eq!((rows[1].ours, rows[2].ours), (None, Some(whole - 2.0)));
        assert!(rows[0].reason.as_ref().is_some_and(|why| why.contains(all[2].case.id)));
    }

    #[test]
    fn a_case_that_does_not_start_has_a_reason() {
        let case = &cases::all()[1];
        let mut rows = Rows::new("accelerometer", &harness::Machine::here(), "idle");
        write(&mut rows, &[Measurements::nothing(case, "no such thing".to_owned())]);
        let of_case: Vec<&Row> = rows.rows.iter().filter(|row| row.id.contains(case.id)).collect();
        assert!(of_case.len() > 3);
        assert!(of_case.iter().all(|row| row.kind == Kind::Unreachable));
        assert!(of_case.iter().all(|row| row.reason.as_deref() == Some("no such thing")));
    }
}
