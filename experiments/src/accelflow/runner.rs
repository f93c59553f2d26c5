//! Runs the studies that the rows come from: any specification under any architecture, with some keys set. Every run of
//! a scenario has the same random seed, so all architectures see the same requests. Each report is saved as soon as it
//! exists. A run that continues an interrupted run therefore simulates only the missing studies. The other modules
//! decide what is compared.

use std::cell::RefCell;

use sim::accelflow::{Architecture, SCENARIOS};
use sim::{Entries, Interval, Report, StoredReport, System};

use super::published::{Published, published};
use crate::base::Checkpoint;
use crate::base::rows::{Kind, Row};
use crate::base::{Problem, Session, entries, inputs, replications, study};

/// Runs studies and collects their rows.
pub(super) struct Runner {
    pub(super) published: Published,
    pub(super) quick: bool,
    replications: u32,
    requests: u32,
    rows: RefCell<Vec<Row>>,
    checkpoint: RefCell<Checkpoint>,
    session: Session,
}

impl Runner {
    /// Makes a runner, with the studies that an interrupted run saved in the session's folder. If the session
    /// is interrupted, the runner stops between two studies.
    ///
    /// # Errors
    /// `runs` is out of range, or the saved studies cannot be read.
    pub(super) fn new(
        quick: bool,
        runs: Option<usize>,
        session: &Session,
    ) -> Result<Self, Problem> {
        let replications = replications(runs, quick)?;
        // The requests are for eight services. The warm-up may take half of them, and a percentile needs a thousand of
        // each service.
        let requests = if quick { 24_000 } else { 40_000 };
        let checkpoint = Checkpoint::open(&session.out, "accelflow").map_err(Problem::Failed)?;
        if checkpoint.len() > 0 {
            eprintln!("{} studies of an interrupted run are there already", checkpoint.len());
        }
        Ok(Self {
            published: published(),
            quick,
            replications,
            requests,
            rows: RefCell::default(),
            checkpoint: RefCell::new(checkpoint),
            session: session.clone(),
        })
    }

    /// Simulates everything. Returns the rows and the checkpoint. The checkpoint can be removed once the rows are
    /// written.
    pub(super) fn rows(self) -> Result<(Vec<Row>, Checkpoint), Problem> {
        for scenario in SCENARIOS {
            self.begin(scenario);
            self.scenario(scenario, &base(scenario)?)?;
            // What is varied in `steady` and `window` says nothing new about arrivals or cores.
            if scenario != "production" {
                self.sweeps(scenario, &base(scenario)?)?;
            }
        }
        let steady = base("steady")?;
        self.interrupts(&steady)?;
        self.loads(&steady)?;
        self.orchestration(&steady)?;
        self.peak(&steady)?;
        self.throughputs(&steady)?;
        self.figure_15()?;
        self.session.progress.end();
        Ok((self.rows.into_inner(), self.checkpoint.into_inner()))
    }

    /// Simulates some parts, in runs that are too short for percentiles. A test needs only the rows' ids and reasons.
    #[cfg(test)]
    pub(super) fn short_rows(self) -> Result<Vec<Row>, Problem> {
        let runner = Self { requests: 200, ..self };
        let steady = base("steady")?;
        runner.scenario("steady", &steady)?;
        runner.sweeps("steady", &steady)?;
        runner.interrupts(&steady)?;
        runner.loads(&steady)?;
        runner.peak(&steady)?;
        Ok(runner.rows.into_inner())
    }

    /// Shows which part is simulated now.
    pub(super) fn begin(&self, part: &'static str) {
        self.session.progress.set_part(part);
    }

    /// Returns the number of requests for one of RELIEF's applications.
    pub(super) fn graphs(&self) -> u32 {
        self.requests / 20
    }

    /// Returns the number of requests for a percentile. At least a thousand remain after the warm-up.
    pub(super) fn percentiles(&self) -> u32 {
        (self.requests / 16).max(2_400)
    }

    /// Returns twice the usual number of requests.
    pub(super) fn doubled(&self) -> u32 {
        2 * self.requests
    }

    /// Simulates a scenario with some keys set.
    pub(super) fn simulate(
        &self,
        base: &Entries,
        architecture: Architecture,
        set: &[(&str, String)],
    ) -> Result<Report, Problem> {
        self.simulate_case(base, architecture.name(), set, self.requests)
    }

    /// Simulates any specification under any of its architectures, with `requests` requests.
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
        let saved = self.checkpoint.borrow().get::<StoredReport>(&key);
        if let Some(saved) = saved {
            return Ok(saved.into());
        }
        if self.session.is_stopped() {
            return Err(self.interrupted());
        }
        self.session.progress.expect_more(1);
        self.session.progress.set_message(architecture);
        let system = System::read(&entries).map_err(Problem::Failed)?;
        let report = study(&system, architecture, self.replications, system.extent())?;
        self.checkpoint
            .borrow_mut()
            .put(&key, &StoredReport::from(&report))
            .map_err(Problem::Failed)?;
        self.session.progress.advance(1);
        Ok(report)
    }

    fn interrupted(&self) -> Problem {
        self.session.progress.end();
        let checkpoint = self.checkpoint.borrow();
        let (count, path) = (checkpoint.len(), checkpoint.path().display());
        let rest = "the same command goes on with the rest";
        Problem::Failed(format!("interrupted: studies kept in {path}: {count}; {rest}"))
    }

    /// Adds a row with the response time that Rebate obtained (`ours_ns`) and the published response time.
    pub(super) fn time(
        &self,
        id: &str,
        ours_ns: Option<Interval>,
        published_ms: Option<f64>,
        kind: Kind,
        report: &Report,
    ) {
        let pair = (ours_ns.map(|time_ns| scaled(time_ns, 1e-6)), published_ms);
        self.add(id, "response time", "ms", kind, pair, unavailable_reason(report));
    }

    /// Adds a row with the mean P99 of all services.
    pub(super) fn p99(&self, id: &str, published_ms: Option<f64>, kind: Kind, report: &Report) {
        let p99_ns = report.across().and_then(|across| across.p99_ns);
        self.time(id, p99_ns, published_ms, kind, report);
    }

    /// Adds a row. A row without a number is unreachable, and `reason` says why.
    pub(super) fn add(
        &self,
        id: &str,
        what: &str,
        unit: &'static str,
        kind: Kind,
        (ours, published): (Option<Interval>, Option<f64>),
        reason: Option<String>,
    ) {
        let too_few = || ours.is_none().then(|| TOO_FEW.to_owned());
        let row = Row {
            id: id.to_owned(),
            what: what.to_owned(),
            published,
            ours: ours.map(|interval| interval.value),
            unit,
            ci95: ours.map(|interval| interval.ci95).filter(|[low, high]| low < high),
            kind: if ours.is_some() { kind } else { Kind::Unreachable },
            devices: Vec::new(),
            reason: reason.or_else(too_few),
        };
        self.rows.borrow_mut().push(row);
    }
}

/// Returns the committed specification of a scenario.
pub(super) fn base(scenario: &str) -> Result<Entries, Problem> {
    entries(scenario, &[])
}

/// Returns the kind of a row of means. It is calibrated in scenario `window`, because the inputs of that scenario were
/// fitted to published means.
pub(super) fn fitted(scenario: &str) -> Kind {
    if scenario == "window" { Kind::Calibrated } else { Kind::Predicted }
}

pub(super) fn row_id(what: &str, scenario: &str, architecture: &str, last: Option<&str>) -> String {
    let last = last.map_or(String::new(), |last| format!(".{}", last.to_lowercase()));
    format!("{what}.{scenario}.{}{last}", architecture.replace('-', "_"))
}

/// Returns why a report has no response times, or none if it has them.
pub(super) fn unavailable_reason(report: &Report) -> Option<String> {
    match &report.verdict {
        sim::Verdict::Refused { reason, .. } => Some(format!("no steady state: {reason}")),
        sim::Verdict::Steady | sim::Verdict::Window => None,
    }
}

/// Returns the value of a key as a number.
pub(super) fn number(base: &Entries, key: &str) -> Option<f64> {
    let entry = base.sources().find(|(name, ..)| *name == key);
    entry.and_then(|(_, value, ..)| value.parse().ok())
}

/// Returns the interval multiplied by a factor, which may be negative.
pub(super) fn scaled(interval: Interval, by: f64) -> Interval {
    let [a, b] = interval.ci95.map(|end| end * by);
    Interval { value: interval.value * by, ci95: [a.min(b), a.max(b)] }
}

/// Returns the interval of a value that cannot vary. Both ends are the value.
pub(super) fn exact(value: f64) -> Interval {
    Interval { value, ci95: [value, value] }
}

/// Returns the mean of all intervals, or none without intervals. The interval of the mean is wide enough for any
/// dependence between them.
pub(super) fn mean_of(all: &[Interval]) -> Option<Interval> {
    let count = all.len() as f64;
    let mean = |part: fn(&Interval) -> f64| all.iter().map(part).sum::<f64>() / count;
    let interval = Interval {
        value: mean(|interval| interval.value),
        ci95: [mean(|interval| interval.ci95[0]), mean(|interval| interval.ci95[1])],
    };
    (!all.is_empty()).then_some(interval)
}

/// Returns the ratio of two positive numbers. Its interval is wide enough for any dependence between them. Returns none
/// if the ratio does not exist or its interval has no upper end.
pub(super) fn ratio(over: Interval, under: Interval) -> Option<Interval> {
    let ci95 = [over.ci95[0] / under.ci95[1], over.ci95[1] / under.ci95[0]];
    let ratio = Interval { value: over.value / under.value, ci95 };
    let exists = under.ci95[0] > 0.0 && ratio.value.is_finite();
    exists.then_some(ratio)
}

pub(super) const TOO_FEW: &str = "fewer than 1,000 requests after the warm-up";

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use super::*;

    fn short(folder: &Path) -> Runner {
        let session = Session::new(folder, Arc::default(), |_| ());
        let runner = Runner::new(true, Some(5), &session);
        Runner { requests: 300, ..runner.unwrap_or_else(|_| panic!("a folder")) }
    }

    fn study(runner: &Runner, pes: &str) -> Report {
        let base = base("steady").unwrap_or_else(|_| panic!("compiled in"));
        let set = [("hardware.pes", pes.to_owned())];
        let report = runner.simulate(&base, Architecture::AccelFlow, &set);
        report.unwrap_or_else(|_| panic!("a report"))
    }

    #[test]
    fn an_interrupted_run_simulates_only_what_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = short(folder.path());
        let found = study(&first, "4");
        // After an interruption, saved studies are returned and missing studies do not begin.
        first.session.stop.store(true, Ordering::Relaxed);
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
        assert_eq!(second.checkpoint.borrow().len(), 1);
        assert_eq!(study(&second, "4"), found, "to the last bit");
        assert_eq!(second.checkpoint.borrow().len(), 1, "it was not made again");
        assert_ne!(study(&second, "2"), found, "other inputs are another study");
        assert_eq!(second.checkpoint.borrow().len(), 2);
        let longer = Runner { requests: 301, ..second };
        assert_ne!(study(&longer, "4"), found);
        let checkpoint = longer.checkpoint.into_inner();
        assert_eq!(checkpoint.len(), 3);
        checkpoint.finish().expect("removed");
        assert_eq!(short(folder.path()).checkpoint.borrow().len(), 0);
    }

    #[test]
    fn intervals_stay_in_order() {
        let one = Interval { value: 2.0, ci95: [1.0, 4.0] };
        assert_eq!(scaled(one, -1.0).ci95, [-4.0, -1.0]);
        let two = Interval { value: 4.0, ci95: [2.0, 5.0] };
        assert_eq!(ratio(one, two), Some(Interval { value: 0.5, ci95: [0.2, 2.0] }));
        assert_eq!(ratio(one, Interval { value: 1.0, ci95: [0.0, 2.0] }), None);
        assert_eq!(mean_of(&[one, two]), Some(Interval { value: 3.0, ci95: [1.5, 4.5] }));
        assert_eq!(mean_of(&[]), None);
    }
}
