//! The simulations behind the rows: both scenarios under every architecture, and what is varied in them. Every run of a
//! scenario has the same seed, so architectures see the same requests. Each report is kept as soon as it is there, and
//! who was interrupted simulates only what is missing.

use std::cell::RefCell;
use std::path::Path;

use indicatif::ProgressBar;
use sim::accelflow::{Architecture, SCENARIOS};
use sim::{Entries, Interval, KeptReport, Plan, Report};

use super::published::{Figure, Published, published};
use crate::experiment::Kept;
use crate::reproduce::rows::{Kind, Row};
use crate::reproduce::{Problem, progress_bar};
use crate::sim::{System, entries, inputs};

/// What is simulated, and how often.
pub(super) struct Runs {
    pub(super) published: Published,
    replications: u32,
    requests: u32,
    bar: ProgressBar,
    rows: RefCell<Vec<Row>>,
    kept: RefCell<Kept>,
}

/// A scenario's reports, by architecture.
type Reports = Vec<(Architecture, Report)>;

impl Runs {
    /// With what is kept in this folder of a run that was interrupted.
    ///
    /// # Errors
    /// `runs` is out of range, or what is kept cannot be read.
    pub(super) fn new(quick: bool, runs: Option<usize>, folder: &Path) -> Result<Self, Problem> {
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
        Ok(Self { published: published(), replications, requests, bar, rows, kept })
    }

    /// Simulates all of it; what is kept may go when the rows are written.
    pub(super) fn rows(self) -> Result<(Vec<Row>, Kept), Problem> {
        for scenario in SCENARIOS {
            self.bar.set_prefix(scenario);
            let base = base(scenario)?;
            let mut reports = Vec::new();
            for architecture in Architecture::ALL {
                reports.push((architecture, self.simulate(&base, architecture, &[])?));
            }
            self.times(scenario, &reports);
            self.cuts(scenario, &reports);
            self.orders(scenario, &reports);
            self.varied(scenario, &base)?;
        }
        self.interrupts(&base("steady")?)?;
        self.loads(&base("steady")?)?;
        self.peak(&base("steady")?)?;
        self.throughputs(&base("steady")?)?;
        self.figure_15()?;
        self.bar.finish_and_clear();
        Ok((self.rows.into_inner(), self.kept.into_inner()))
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

    fn simulate(
        &self,
        base: &Entries,
        architecture: Architecture,
        set: &[(&str, String)],
    ) -> Result<Report, Problem> {
        self.simulate_long(base, architecture, set, self.requests)
    }

    /// With so many requests.
    fn simulate_long(
        &self,
        base: &Entries,
        architecture: Architecture,
        set: &[(&str, String)],
        requests: u32,
    ) -> Result<Report, Problem> {
        self.simulate_case(base, architecture.name(), set, requests)
    }

    /// Any specification under any of its architectures.
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
        self.bar.inc_length(1);
        self.bar.set_message(architecture);
        let (name, runs) = (&entries.name, self.replications);
        let inputs = inputs(&entries, None).map_err(Problem::Failed)?;
        let key = format!("{name} {architecture} {runs} runs {inputs:016x}");
        let kept = self.kept.borrow().get::<KeptReport>(&key);
        let report = match kept {
            Some(kept) => kept.into(),
            None => {
                let report = self.study(&entries, architecture)?;
                let kept = KeptReport::from(&report);
                self.kept.borrow_mut().put(&key, &kept).map_err(Problem::Failed)?;
                report
            }
        };
        self.bar.inc(1);
        Ok(report)
    }

    fn study(&self, entries: &Entries, architecture: &str) -> Result<Report, Problem> {
        let spec = System::read(entries).map_err(Problem::Failed)?;
        let threads = std::thread::available_parallelism().map_or(1, |own| own.get().min(64));
        let plan = Plan {
            extent: spec.extent(),
            replications_min: self.replications,
            replications_max: self.replications,
            threads,
            ..Plan::default()
        };
        spec.simulate(architecture, &plan, &|_| {}).map_err(failed)
    }

    /// Figures 11 and 13.
    fn times(&self, scenario: &str, reports: &Reports) {
        for (architecture, report) in reports {
            let name = architecture.name();
            let figure = if self.published.p99_ms.columns.iter().any(|own| own == name) {
                &self.published.p99_ms
            } else {
                &self.published.ablation_ms
            };
            let mean = |service: &str| self.published.mean_ms.bar(service, name);
            for response in &report.responses {
                let service = &response.name;
                let bar = figure.bar(service, name);
                let id = |what: &str| row_id(what, scenario, name, Some(service));
                self.time(&id("p99"), response.p99_ns, bar, Kind::Predicted, report);
                self.time(&id("mean"), response.mean_ns, mean(service), Kind::Predicted, report);
            }
            let across = report.across();
            let kind = fitted(scenario);
            let p99 = across.as_ref().and_then(|across| across.p99_ns);
            let unfitted = [Architecture::Ideal, Architecture::ReliefArtifact];
            let kind = if unfitted.contains(architecture) { Kind::Predicted } else { kind };
            let id = |what: &str| row_id(what, scenario, name, None);
            self.time(&id("p99"), p99, figure.bar("mean", name), kind, report);
            let kind = if mean("mean").is_some() { kind } else { Kind::Predicted };
            let found = across.map(|across| across.mean_ns);
            self.time(&id("mean"), found, mean("mean"), kind, report);
        }
    }

    fn time(&self, id: &str, found: Option<Interval>, bar: Option<f64>, kind: Kind, of: &Report) {
        let found = found.map(|one| scaled(one, 1e-6));
        self.add(id, "response time", "ms", kind, (found, bar), why_not(of));
    }

    /// By how much AccelFlow is below the others.
    fn cuts(&self, scenario: &str, reports: &Reports) {
        let Some(accelflow) = report(reports, Architecture::AccelFlow) else { return };
        let others = [
            (Architecture::NonAcc, 90.7, 77.2),
            (Architecture::CpuCentric, 81.2, 53.9),
            (Architecture::Relief, 68.8, 40.7),
            (Architecture::Cohort, 70.1, 37.9),
        ];
        for (other, p99, mean) in others {
            let Some(theirs) = report(reports, other) else { continue };
            let found = accelflow.reduction(theirs);
            let percent = |interval: Interval| scaled(interval, 100.0);
            let id = |what: &str| row_id(what, scenario, other.name(), None);
            let kind = fitted(scenario);
            let cut = found.as_ref().and_then(|found| found.p99).map(percent);
            let what = "AccelFlow below";
            let reason = why_not(theirs).or_else(|| why_not(accelflow));
            let pair = (cut, Some(p99));
            self.add(&id("p99_reduction"), what, "%", kind, pair, reason.clone());
            let pair = (found.map(|found| percent(found.mean)), Some(mean));
            self.add(&id("mean_reduction"), what, "%", kind, pair, reason);
        }
    }

    /// In how many services AccelFlow is best beyond the interval, and the published order comes out.
    fn orders(&self, scenario: &str, reports: &Reports) {
        let Some(accelflow) = report(reports, Architecture::AccelFlow) else { return };
        let (mut best, mut whole) = (0.0, 0.0);
        let services: Vec<&str> =
            accelflow.responses.iter().map(|response| response.name.as_str()).collect();
        for service in &services {
            let apart = |other: &Architecture| {
                let theirs = report(reports, *other)?.difference(accelflow, service)?;
                Some(theirs.p99_ns?.ci95[0] > 0.0)
            };
            let mut others = Architecture::COMPARED.iter();
            best +=
                f64::from(u8::from(others.all(|other| {
                    *other == Architecture::AccelFlow || apart(other).unwrap_or(false)
                })));
            let ours = |name: &str| {
                let own = report(reports, Architecture::of_name(name)?)?.response(service)?;
                Some(own.p99_ns?.value)
            };
            let theirs = |name: &str| self.published.p99_ms.bar(service, name);
            let order = order(&self.published.p99_ms, &ours);
            whole += f64::from(u8::from(
                order.is_some() && order == self::order(&self.published.p99_ms, &theirs),
            ));
        }
        // Who has no percentile is neither first nor last.
        let compared = || Architecture::COMPARED.iter().filter_map(|own| report(reports, *own));
        let known = compared().all(|own| own.across().is_some_and(|own| own.p99_ns.is_some()));
        let reason = compared().find_map(why_not);
        let count = |value: f64| known.then(|| exact(value));
        let all = Some(services.len() as f64);
        let what = "services in which AccelFlow's percentile is lowest beyond its interval";
        let id = format!("accelflow_best.{scenario}");
        self.add(&id, what, "1", Kind::Predicted, (count(best), all), reason.clone());
        let what = "services in which the order of the five percentiles is the published one";
        let id = format!("order_as_published.{scenario}");
        self.add(&id, what, "1", Kind::Predicted, (count(whole), all), reason);
    }

    /// Figures 18 and 19.
    fn varied(&self, scenario: &str, base: &Entries) -> Result<(), Problem> {
        let swept = [
            ("chiplets", "hardware.chiplets", &self.published.chiplets_ms),
            ("pes", "hardware.pes", &self.published.pes_ms),
        ];
        for (what, key, figure) in swept {
            for column in &figure.columns {
                let set = [(key, column.clone())];
                let report = self.simulate(base, Architecture::AccelFlow, &set)?;
                let p99 = report.across().and_then(|across| across.p99_ns);
                let id = format!("p99.{scenario}.accelflow.{what}_{column}");
                let bar = figure.bar("mean", column);
                // The scenario as it is, once more.
                let same = number(base, key) == column.parse().ok();
                let kind = if same { fitted(scenario) } else { Kind::Predicted };
                self.time(&id, p99, bar, kind, &report);
            }
        }
        Ok(())
    }

    /// RELIEF's public code, if an interrupt by DMA costs its manager something as well.
    fn interrupts(&self, base: &Entries) -> Result<(), Problem> {
        for ns in [500, 1_500] {
            let set = [("costs.manager_dma_ns", ns.to_string())];
            let report = self.simulate(base, Architecture::ReliefArtifact, &set)?;
            let p99 = report.across().and_then(|across| across.p99_ns);
            let id = row_id("p99", "steady", "relief_artifact", Some(&format!("dma_{ns}")));
            self.time(&id, p99, None, Kind::Predicted, &report);
        }
        Ok(())
    }

    /// Figure 12: SocialNetwork at three loads.
    fn loads(&self, base: &Entries) -> Result<(), Problem> {
        self.bar.set_prefix("loads");
        let bars = [
            (Architecture::NonAcc, [15.2, 22.1, 35.5]),
            (Architecture::CpuCentric, [9.5, 13.1, 17.3]),
            (Architecture::Relief, [5.3, 6.6, 9.2]),
            (Architecture::Cohort, [5.3, 6.5, 8.8]),
            (Architecture::AccelFlow, [2.2, 2.5, 3.0]),
        ];
        for (architecture, bars) in bars {
            for (per_s, bar) in [5_000, 10_000, 15_000].into_iter().zip(bars) {
                let set = [("load.total_per_s", per_s.to_string())];
                let report = self.simulate(base, architecture, &set)?;
                let p99 = report.across().and_then(|across| across.p99_ns);
                let id =
                    row_id("p99", "steady", architecture.name(), Some(&format!("load_{per_s}")));
                self.time(&id, p99, Some(bar), Kind::Predicted, &report);
            }
        }
        Ok(())
    }

    /// Utilisations at the published peak of AccelFlow.
    fn peak(&self, base: &Entries) -> Result<(), Problem> {
        self.bar.set_prefix("peak");
        let set = [("load.total_per_s", "51600".to_owned())];
        let report = self.simulate(base, Architecture::AccelFlow, &set)?;
        let groups: [(&str, &[&str], f64); 6] = [
            ("tcp", &["tcp"], 92.0),
            ("encryption", &["encrypt", "decrypt"], 82.0),
            ("rpc", &["rpc"], 68.0),
            ("serialization", &["serialize", "deserialize"], 73.0),
            ("compression", &["compress", "decompress"], 38.0),
            ("load_balance", &["load-balance"], 71.0),
        ];
        for (name, kinds, bar) in groups {
            let found: Vec<Interval> = kinds
                .iter()
                .filter_map(|kind| report.fact(&format!("{kind}.utilisation")))
                .collect();
            let count = found.len() as f64;
            let mean = |of: fn(&Interval) -> f64| 100.0 * found.iter().map(of).sum::<f64>() / count;
            let ci95 = [mean(|one| one.ci95[0]), mean(|one| one.ci95[1])];
            let interval = Interval { value: mean(|one| one.value), ci95 };
            let interval = (!found.is_empty()).then_some(interval);
            let what = "section VII-B4: busy PEs at 51.6 K requests/s";
            let (id, pair) = (format!("utilisation.{name}"), (interval, Some(bar)));
            self.add(&id, what, "%", Kind::Predicted, pair, why_not(&report));
        }
        Ok(())
    }

    /// Figure 14: the highest load at which every service's percentile is within five times its unloaded time.
    fn throughputs(&self, base: &Entries) -> Result<(), Problem> {
        self.bar.set_prefix("throughput");
        let mut found: Vec<(&str, Result<f64, String>)> = Vec::new();
        let architectures = Architecture::COMPARED.into_iter().chain([Architecture::Ideal]);
        let named = architectures.map(|architecture| (architecture.name(), architecture, "fifo"));
        for (name, architecture, discipline) in
            named.chain([("deadline", Architecture::AccelFlow, "deadline")])
        {
            let set = [("dispatcher.discipline", discipline.to_owned())];
            let highest = self.highest(base, architecture, &set)?;
            let bar = self.published.throughput_krps.bar("mean", name);
            let id = format!("max_throughput.steady.{}", name.replace('-', "_"));
            let what = "highest load whose P99s are within 5 times figure 1's time";
            let pair = (highest.as_ref().ok().map(|per_s| exact(per_s * 1e-3)), bar);
            self.add(&id, what, "k/s", Kind::Predicted, pair, highest.clone().err());
            found.push((name, highest));
        }
        let of = |name: &str| {
            let own = found.iter().find(|(own, _)| *own == name);
            own.map_or_else(|| Err(format!("{name} was not run")), |own| own.1.clone())
        };
        let ratios = [
            ("max_throughput_ratio.steady.non_acc", "accelflow", "non-acc", 8.3),
            ("max_throughput_ratio.steady.relief", "accelflow", "relief", 2.2),
            ("max_throughput_ratio.steady.ideal", "ideal", "accelflow", 1.087),
            ("max_throughput_ratio.steady.deadline", "deadline", "accelflow", 1.6),
        ];
        for (id, ours, theirs, bar) in ratios {
            let ratio = of(ours).and_then(|ours| Ok(ours / of(theirs)?));
            let what = format!("throughput, {ours} over {theirs}");
            let reason = match &ratio {
                Err(reason) => Some(reason.clone()),
                Ok(ratio) if !ratio.is_finite() => Some("no load is low enough".to_owned()),
                Ok(_) => None,
            };
            let ratio = ratio.ok().filter(|ratio| ratio.is_finite()).map(exact);
            self.add(id, &what, "times", Kind::Predicted, (ratio, Some(bar)), reason);
        }
        Ok(())
    }

    /// By halving, to 2 %; zero if none is low enough; the inner error is why it cannot be said.
    fn highest(
        &self,
        base: &Entries,
        architecture: Architecture,
        set: &[(&str, String)],
    ) -> Result<Result<f64, String>, Problem> {
        let (mut low, mut high) = (0.0, LOAD_MAX_PER_S);
        let mut middle = LOAD_MIN_PER_S;
        while high - low > 0.02 * high && high > LOAD_MIN_PER_S {
            let load = [("load.total_per_s", middle.to_string())];
            let set: Vec<(&str, String)> = set.iter().cloned().chain(load).collect();
            match self.holds(base, architecture, &set)? {
                Ok(true) => low = middle,
                Ok(false) => high = middle,
                Err(reason) => return Ok(Err(format!("at {middle:.0} requests/s {reason}"))),
            }
            middle = f64::midpoint(low, high);
        }
        Ok(Ok(low))
    }

    /// Whether the objective is met; runs that do not say it are made twice as long once.
    fn holds(
        &self,
        base: &Entries,
        architecture: Architecture,
        set: &[(&str, String)],
    ) -> Result<Result<bool, String>, Problem> {
        let mut reason = None;
        for requests in [self.requests, 2 * self.requests] {
            let report = self.simulate_long(base, architecture, set, requests)?;
            if let Some(holds) = within(base, &report) {
                return Ok(Ok(holds));
            }
            reason = why_not(&report);
        }
        Ok(Err(reason.unwrap_or_else(|| TOO_FEW.to_owned())))
    }

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
    entries(scenario, &[]).map_err(failed)
}

fn failed(problem: crate::sim::Problem) -> Problem {
    match problem {
        crate::sim::Problem::Usage(text) | crate::sim::Problem::Failed(text) => {
            Problem::Failed(text)
        }
    }
}

/// The kind of a row of means that the window's inputs were fitted to.
fn fitted(scenario: &str) -> Kind {
    if scenario == "window" { Kind::Calibrated } else { Kind::Predicted }
}

fn row_id(what: &str, scenario: &str, architecture: &str, service: Option<&str>) -> String {
    let service = service.map_or(String::new(), |service| format!(".{}", service.to_lowercase()));
    format!("{what}.{scenario}.{}{service}", architecture.replace('-', "_"))
}

fn report(reports: &Reports, architecture: Architecture) -> Option<&Report> {
    reports.iter().find(|(own, _)| *own == architecture).map(|(_, report)| report)
}

/// Why a report has no times.
pub(super) fn why_not(report: &Report) -> Option<String> {
    match &report.verdict {
        sim::Verdict::Refused { reason, .. } => Some(format!("no steady state: {reason}")),
        sim::Verdict::Steady | sim::Verdict::Window => None,
    }
}

/// The columns by their numbers, lowest first.
fn order<'a>(figure: &'a Figure, of: &dyn Fn(&str) -> Option<f64>) -> Option<Vec<&'a str>> {
    let columns = figure.columns.iter().map(|column| Some((column.as_str(), of(column)?)));
    let mut columns = columns.collect::<Option<Vec<_>>>()?;
    columns.sort_by(|a, b| a.1.total_cmp(&b.1));
    Some(columns.into_iter().map(|(name, _)| name).collect())
}

/// A key's number.
fn number(base: &Entries, key: &str) -> Option<f64> {
    let found = base.sources().find(|(own, ..)| *own == key);
    found.and_then(|(_, value, ..)| value.parse().ok())
}

/// Whether every service's percentile is within the objective: certainly not where more work comes than can be done;
/// none where the runs do not say it.
fn within(base: &Entries, report: &Report) -> Option<bool> {
    if let sim::Verdict::Refused { overload, .. } = &report.verdict {
        return overload.then_some(false);
    }
    let factor = number(base, "work.slo_factor").unwrap_or(f64::NAN);
    let met = report.responses.iter().map(|response| {
        let time_us = number(base, &format!("services.{}.time_us", response.name));
        let most_ns = 1e3 * factor * time_us.unwrap_or(f64::NAN);
        Some(response.p99_ns?.value <= most_ns)
    });
    let met: Vec<Option<bool>> = met.collect();
    // One that is over decides, whatever the others are.
    if met.contains(&Some(false)) {
        Some(false)
    } else {
        met.iter().all(|one| one.is_some()).then_some(true)
    }
}

fn scaled(interval: Interval, by: f64) -> Interval {
    Interval { value: interval.value * by, ci95: interval.ci95.map(|end| end * by) }
}

fn exact(value: f64) -> Interval {
    Interval { value, ci95: [value, value] }
}

const TOO_FEW: &str = "fewer than 1,000 requests after the warm-up";
const LOAD_MIN_PER_S: f64 = 500.0;
const LOAD_MAX_PER_S: f64 = 100_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn short(folder: &Path) -> Runs {
        let runs = Runs::new(true, Some(5), folder).unwrap_or_else(|_| panic!("a folder"));
        Runs { requests: 300, ..runs }
    }

    fn study(runs: &Runs, pes: &str) -> Report {
        let base = base("steady").unwrap_or_else(|_| panic!("compiled in"));
        let set = [("hardware.pes", pes.to_owned())];
        let report = runs.simulate(&base, Architecture::AccelFlow, &set);
        report.unwrap_or_else(|_| panic!("a report"))
    }

    #[test]
    fn who_was_interrupted_simulates_only_what_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = short(folder.path());
        let found = study(&first, "4");
        // Interrupted: nobody says that it is finished.
        drop(first);
        let second = short(folder.path());
        assert_eq!(second.kept.borrow().len(), 1);
        assert_eq!(study(&second, "4"), found, "to the last bit");
        assert_eq!(second.kept.borrow().len(), 1, "it was not made again");
        assert_ne!(study(&second, "2"), found, "other inputs are another study");
        assert_eq!(second.kept.borrow().len(), 2);
        let longer = Runs { requests: 301, ..second };
        assert_ne!(study(&longer, "4"), found);
        let kept = longer.kept.into_inner();
        assert_eq!(kept.len(), 3);
        kept.finish().expect("removed");
        assert_eq!(short(folder.path()).kept.borrow().len(), 0);
    }
}
