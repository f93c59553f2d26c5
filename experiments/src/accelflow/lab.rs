//! Where the studies behind the rows are made: any specification under any architecture, with keys set. Every run of a
//! scenario has the same seed, so architectures see the same requests. Each report is kept as soon as it is there, and
//! who was interrupted simulates only what is missing. What is compared with what is not decided here.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;
use sim::accelflow::{Architecture, SCENARIOS};
use sim::{Entries, Interval, KeptReport, Report, System};

use super::published::{Published, published};
use crate::base::Kept;
use crate::base::rows::{Kind, Row};
use crate::base::{Problem, entries, inputs, progress_bar, study};

/// What is simulated, how often, and the rows that came of it.
pub(super) struct Lab {
    pub(super) published: Published,
    pub(super) quick: bool,
    replications: u32,
    requests: u32,
    bar: ProgressBar,
    rows: RefCell<Vec<Row>>,
    kept: RefCell<Kept>,
    stop: Arc<AtomicBool>,
}

impl Lab {
    /// With what is kept in this folder of a run that was interrupted. Between two studies it stops when the flag says
    /// so.
    ///
    /// # Errors
    /// `runs` is out of range, or what is kept cannot be read.
    pub(super) fn new(
        quick: bool,
        runs: Option<usize>,
        folder: &Path,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, Problem> {
        let own = if quick { 5 } else { 10 };
        let replications = u32::try_from(runs.unwrap_or(own)).unwrap_or(u32::MAX);
        if !(5..=100).contains(&replications) {
            return Err(Problem::Usage(format!("--runs is {replications}; it must be 5 to 100")));
        }
        // Of eight services; the warm-up may take half, and a percentile needs a thousand of each.
        let requests = if quick { 24_000 } else { 40_000 };
        let bar = progress_bar();
        let kept = Kept::open(folder, "accelflow").map_err(Problem::Failed)?;
        if kept.len() > 0 {
            eprintln!("{} studies of an interrupted run are there already", kept.len());
        }
        let (rows, kept) = (RefCell::default(), RefCell::new(kept));
        Ok(Self { published: published(), quick, replications, requests, bar, rows, kept, stop })
    }

    /// Simulates all of it; what is kept may go when the rows are written.
    pub(super) fn rows(self) -> Result<(Vec<Row>, Kept), Problem> {
        for scenario in SCENARIOS {
            self.begin(scenario);
            self.scenario(scenario, &base(scenario)?)?;
            self.sweeps(scenario, &base(scenario)?)?;
        }
        let steady = base("steady")?;
        self.interrupts(&steady)?;
        self.loads(&steady)?;
        self.orchestration(&steady)?;
        self.peak(&steady)?;
        self.throughputs(&steady)?;
        self.figure_15()?;
        self.bar.finish_and_clear();
        Ok((self.rows.into_inner(), self.kept.into_inner()))
    }

    /// Parts of it in runs too short for percentiles: names and reasons, in no time.
    #[cfg(test)]
    pub(super) fn shortly(self) -> Result<Vec<Row>, Problem> {
        let lab = Self { requests: 200, ..self };
        let steady = base("steady")?;
        lab.scenario("steady", &steady)?;
        lab.sweeps("steady", &steady)?;
        lab.interrupts(&steady)?;
        lab.loads(&steady)?;
        lab.peak(&steady)?;
        Ok(lab.rows.into_inner())
    }

    /// What is simulated now.
    pub(super) fn begin(&self, part: &'static str) {
        self.bar.set_prefix(part);
    }

    /// How many requests of an application of RELIEF's.
    pub(super) fn graphs(&self) -> u32 {
        self.requests / 20
    }

    /// How many for a percentile: a thousand after a warm-up of half a run.
    pub(super) fn percentiles(&self) -> u32 {
        (self.requests / 16).max(2_400)
    }

    /// Twice as many requests as usual.
    pub(super) fn doubled(&self) -> u32 {
        2 * self.requests
    }

    /// A scenario with some keys set.
    pub(super) fn simulate(
        &self,
        base: &Entries,
        architecture: Architecture,
        set: &[(&str, String)],
    ) -> Result<Report, Problem> {
        self.simulate_case(base, architecture.name(), set, self.requests)
    }

    /// Any specification under any of its architectures, with so many requests.
    pub(super) fn simulate_case(
        &self,
        base: &Entries,
        architecture: &'static str,
        set: &[(&str, String)],
        requests: u32,
    ) -> Result<Report, Problem> {
        let mut entries = base.clone();
        let requests = requests.to_string();
        for (key, value) in set.iter().chain(&[("run.requests", requests)]) {
            entries.set(key, value).map_err(|error| Problem::Failed(error.to_string()))?;
        }
        let (name, runs) = (&entries.name, self.replications);
        let inputs = inputs(&entries, None).map_err(Problem::Failed)?;
        let key = format!("{name} {architecture} {runs} runs {inputs:016x}");
        let kept = self.kept.borrow().get::<KeptReport>(&key);
        if let Some(kept) = kept {
            return Ok(kept.into());
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(self.interrupted());
        }
        self.bar.inc_length(1);
        self.bar.set_message(architecture);
        let system = System::read(&entries).map_err(Problem::Failed)?;
        let report = study(&system, architecture, self.replications, system.extent())?;
        self.kept.borrow_mut().put(&key, &KeptReport::from(&report)).map_err(Problem::Failed)?;
        self.bar.inc(1);
        Ok(report)
    }

    fn interrupted(&self) -> Problem {
        self.bar.finish_and_clear();
        let kept = self.kept.borrow();
        let (count, path) = (kept.len(), kept.path().display());
        let rest = "the same command goes on with the rest";
        Problem::Failed(format!("interrupted: studies kept in {path}: {count}; {rest}"))
    }

    /// A row of a response time, beside a published one.
    pub(super) fn time(
        &self,
        id: &str,
        found: Option<Interval>,
        bar: Option<f64>,
        kind: Kind,
        of: &Report,
    ) {
        let found = found.map(|one| scaled(one, 1e-6));
        self.add(id, "response time", "ms", kind, (found, bar), why_not(of));
    }

    /// A row of the mean P99 of all services.
    pub(super) fn p99(&self, id: &str, bar: Option<f64>, kind: Kind, of: &Report) {
        self.time(id, of.across().and_then(|across| across.p99_ns), bar, kind, of);
    }

    /// A row; one without a number is unreachable and says why.
    pub(super) fn add(
        &self,
        id: &str,
        what: &str,
        unit: &'static str,
        kind: Kind,
        (found, published): (Option<Interval>, Option<f64>),
        reason: Option<String>,
    ) {
        let too_few = || found.is_none().then(|| TOO_FEW.to_owned());
        let row = Row {
            id: id.to_owned(),
            what: what.to_owned(),
            published,
            ours: found.map(|found| found.value),
            unit,
            ci95: found.map(|found| found.ci95).filter(|[low, high]| low < high),
            kind: if found.is_some() { kind } else { Kind::Unreachable },
            devices: Vec::new(),
            reason: reason.or_else(too_few),
        };
        self.rows.borrow_mut().push(row);
    }
}

/// A scenario as it is committed.
pub(super) fn base(scenario: &str) -> Result<Entries, Problem> {
    Ok(entries(scenario, &[])?)
}

/// The kind of a row of means that the window's inputs were fitted to.
pub(super) fn fitted(scenario: &str) -> Kind {
    if scenario == "window" { Kind::Calibrated } else { Kind::Predicted }
}

pub(super) fn row_id(what: &str, scenario: &str, architecture: &str, last: Option<&str>) -> String {
    let last = last.map_or(String::new(), |last| format!(".{}", last.to_lowercase()));
    format!("{what}.{scenario}.{}{last}", architecture.replace('-', "_"))
}

/// Why a report has no times.
pub(super) fn why_not(report: &Report) -> Option<String> {
    match &report.verdict {
        sim::Verdict::Refused { reason, .. } => Some(format!("no steady state: {reason}")),
        sim::Verdict::Steady | sim::Verdict::Window => None,
    }
}

/// A key's number.
pub(super) fn number(base: &Entries, key: &str) -> Option<f64> {
    let found = base.sources().find(|(own, ..)| *own == key);
    found.and_then(|(_, value, ..)| value.parse().ok())
}

/// In another unit, or with another sign.
pub(super) fn scaled(interval: Interval, by: f64) -> Interval {
    let [a, b] = interval.ci95.map(|end| end * by);
    Interval { value: interval.value * by, ci95: [a.min(b), a.max(b)] }
}

/// What cannot vary.
pub(super) fn exact(value: f64) -> Interval {
    Interval { value, ci95: [value, value] }
}

/// Their mean, wide enough however they hang together.
pub(super) fn mean_of(all: &[Interval]) -> Option<Interval> {
    let count = all.len() as f64;
    let mean = |of: fn(&Interval) -> f64| all.iter().map(of).sum::<f64>() / count;
    let interval = Interval {
        value: mean(|own| own.value),
        ci95: [mean(|own| own.ci95[0]), mean(|own| own.ci95[1])],
    };
    (!all.is_empty()).then_some(interval)
}

/// One positive number over another, wide enough however they hang together; none where there is no such ratio or it
/// has no upper end.
pub(super) fn ratio(over: Interval, under: Interval) -> Option<Interval> {
    let ci95 = [over.ci95[0] / under.ci95[1], over.ci95[1] / under.ci95[0]];
    let found = Interval { value: over.value / under.value, ci95 };
    let is_one = under.ci95[0] > 0.0 && found.value.is_finite();
    is_one.then_some(found)
}

pub(super) const TOO_FEW: &str = "fewer than 1,000 requests after the warm-up";

#[cfg(test)]
mod tests {
    use super::*;

    fn short(folder: &Path) -> Lab {
        let lab = Lab::new(true, Some(5), folder, Arc::default());
        Lab { requests: 300, ..lab.unwrap_or_else(|_| panic!("a folder")) }
    }

    fn study(lab: &Lab, pes: &str) -> Report {
        let base = base("steady").unwrap_or_else(|_| panic!("compiled in"));
        let set = [("hardware.pes", pes.to_owned())];
        let report = lab.simulate(&base, Architecture::AccelFlow, &set);
        report.unwrap_or_else(|_| panic!("a report"))
    }

    #[test]
    fn who_was_interrupted_simulates_only_what_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = short(folder.path());
        let found = study(&first, "4");
        // Interrupted: what is there is had, what is not is not begun, and nobody says that it is finished.
        first.stop.store(true, Ordering::Relaxed);
        assert_eq!(study(&first, "4"), found);
        let base = base("steady").unwrap_or_else(|_| panic!("compiled in"));
        let set = [("hardware.pes", "2".to_owned())];
        let said = match first.simulate(&base, Architecture::AccelFlow, &set) {
            Err(Problem::Failed(said)) => said,
            _ => panic!("it goes on"),
        };
        let file = folder.path().join("accelflow.unfinished");
        assert!(said.contains(&format!("studies kept in {}: 1", file.display())), "{said}");
        drop(first);
        let second = short(folder.path());
        assert_eq!(second.kept.borrow().len(), 1);
        assert_eq!(study(&second, "4"), found, "to the last bit");
        assert_eq!(second.kept.borrow().len(), 1, "it was not made again");
        assert_ne!(study(&second, "2"), found, "other inputs are another study");
        assert_eq!(second.kept.borrow().len(), 2);
        let longer = Lab { requests: 301, ..second };
        assert_ne!(study(&longer, "4"), found);
        let kept = longer.kept.into_inner();
        assert_eq!(kept.len(), 3);
        kept.finish().expect("removed");
        assert_eq!(short(folder.path()).kept.borrow().len(), 0);
    }

    #[test]
    fn intervals_stay_in_order_and_ratios_hold_both_ends() {
        let one = Interval { value: 2.0, ci95: [1.0, 4.0] };
        assert_eq!(scaled(one, -1.0).ci95, [-4.0, -1.0]);
        let two = Interval { value: 4.0, ci95: [2.0, 5.0] };
        assert_eq!(ratio(one, two), Some(Interval { value: 0.5, ci95: [0.2, 2.0] }));
        assert_eq!(ratio(one, Interval { value: 1.0, ci95: [0.0, 2.0] }), None);
        assert_eq!(mean_of(&[one, two]), Some(Interval { value: 3.0, ci95: [1.5, 4.5] }));
        assert_eq!(mean_of(&[]), None);
    }
}
