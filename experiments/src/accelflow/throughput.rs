//! Figure 14: the highest loads that keep the objective of every service, and of each; what orders by deadline, fewer
//! PEs and other speeds make of them. The objective is 5 times figure 1's time, by 99th percentile, in `steady`.

use std::cell::RefCell;

use sim::accelflow::Architecture;
use sim::{Entries, Interval, Report};

use super::lab::{Lab, number, ratio, scaled, why_not};
use super::search::{Range, Verdict, highest};
use super::sweeps::speed;
use crate::base::Problem;
use crate::base::rows::Kind;

/// A search's outcome, and why it is to be read with care.
#[derive(Clone, Debug)]
struct Found {
    per_s: Interval,
    note: Option<String>,
}

/// What is searched: an architecture with keys set.
struct Search<'a> {
    lab: &'a Lab,
    base: &'a Entries,
    architecture: Architecture,
    set: Vec<(&'static str, String)>,
    /// The last load without a steady state.
    note: RefCell<Option<String>>,
}

impl Lab {
    /// Everything about the highest loads.
    pub(super) fn throughputs(&self, base: &Entries) -> Result<(), Problem> {
        self.begin("throughput");
        let mut found = Vec::new();
        let architectures = Architecture::COMPARED.into_iter().chain([Architecture::Ideal]);
        for architecture in architectures {
            let name = architecture.name();
            let search = self.search(base, architecture, Vec::new());
            found.push((name, self.maximum(name, &search)?));
            if !self.quick {
                self.by_service(&search)?;
            }
        }
        let set = vec![("dispatcher.discipline", "deadline".to_owned())];
        let deadline = self.search(base, Architecture::AccelFlow, set);
        found.push(("deadline", self.maximum("deadline", &deadline)?));
        let of = |name: &str| found.iter().find(|(own, _)| *own == name).map(|(_, found)| found);
        let ratios = [
            ("max_throughput_ratio.steady.non_acc", "accelflow", "non-acc", 8.3),
            ("max_throughput_ratio.steady.relief", "accelflow", "relief", 2.2),
            ("max_throughput_ratio.steady.ideal", "ideal", "accelflow", 1.087),
            ("max_throughput_ratio.steady.deadline", "deadline", "accelflow", 1.6),
        ];
        for (id, ours, theirs, bar) in ratios {
            let (Some(over), Some(under)) = (of(ours), of(theirs)) else { continue };
            self.over(id, &format!("throughput, {ours} over {theirs}"), (over, under), bar);
        }
        if let Some(whole) = of("accelflow") {
            self.fewer_pes(base, whole)?;
        }
        self.speeds_of_throughput(base)
    }

    fn search<'a>(
        &'a self,
        base: &'a Entries,
        architecture: Architecture,
        set: Vec<(&'static str, String)>,
    ) -> Search<'a> {
        Search { lab: self, base, architecture, set, note: RefCell::default() }
    }

    /// The highest load of all services together, as a row.
    fn maximum(&self, name: &str, search: &Search<'_>) -> Result<Found, Problem> {
        let found = search.highest(None, self.within())?;
        let id = format!("max_throughput.steady.{}", name.replace('-', "_"));
        let what = "figure 14: highest load whose P99s are within 5 times figure 1's time";
        let bar = self.published.throughput_krps.bar("mean", name);
        self.load(&id, what, &found, bar);
        Ok(found)
    }

    /// Figure 14's bars: the highest load, of all services in equal shares, that keeps the objective of one of them.
    fn by_service(&self, search: &Search<'_>) -> Result<(), Problem> {
        let name = search.architecture.name();
        for service in trace::accelflow().services() {
            let found = search.highest(Some(&service.name), WITHIN_COARSE)?;
            let service = &service.name;
            let id = format!("max_throughput.steady.{name}.{}", service.to_lowercase());
            let what =
                "figure 14: highest load at which this service's P99 is within 5 times its time";
            let bar = self.published.throughput_krps.bar(service, name);
            self.load(&id.replace('-', "_"), what, &found, bar);
        }
        Ok(())
    }

    /// Section VII-C3: what fewer PEs take of AccelFlow's throughput.
    fn fewer_pes(&self, base: &Entries, whole: &Found) -> Result<(), Problem> {
        for (pes, published) in [("4", 11.0), ("2", 25.0)] {
            let set = vec![("hardware.pes", pes.to_owned())];
            let search = self.search(base, Architecture::AccelFlow, set);
            let found = self.maximum(&format!("accelflow.pes_{pes}"), &search)?;
            let share = ratio(found.per_s, whole.per_s);
            let loss = share.map(|own| Interval {
                value: 1.0 - own.value,
                ci95: [1.0 - own.ci95[1], 1.0 - own.ci95[0]],
            });
            let id = format!("throughput_loss.steady.pes_{pes}");
            let what = format!("section VII-C3: throughput with {pes} PEs below that with eight");
            let pair = (loss.map(|own| scaled(own, 100.0)), Some(published));
            let reason = found.note.or_else(|| loss.is_none().then(|| NO_RATIO.to_owned()));
            self.add(&id, &what, "%", Kind::Predicted, pair, reason);
        }
        Ok(())
    }

    /// Section VII-C5: AccelFlow's throughput over RELIEF's with quicker and slower PEs; 2.2 times as they are.
    fn speeds_of_throughput(&self, base: &Entries) -> Result<(), Problem> {
        for (percent, published) in [(25, 1.4), (400, 3.9)] {
            let mut found = Vec::new();
            for architecture in [Architecture::AccelFlow, Architecture::Relief] {
                let search = self.search(base, architecture, speed(base, percent));
                let name = format!("{}.speed_{percent}", architecture.name());
                found.push(self.maximum(&name, &search)?);
            }
            let [ours, theirs] = &found[..] else { continue };
            let id = format!("max_throughput_ratio.steady.relief.speed_{percent}");
            let what =
                "section VII-C5: throughput over RELIEF's, PEs at this percentage of their speed";
            self.over(&id, what, (ours, theirs), published);
        }
        Ok(())
    }

    fn load(&self, id: &str, what: &str, found: &Found, bar: Option<f64>) {
        let pair = (Some(scaled(found.per_s, 1e-3)), bar);
        self.add(id, what, "k/s", Kind::Predicted, pair, found.note.clone());
    }

    fn over(&self, id: &str, what: &str, (over, under): (&Found, &Found), bar: f64) {
        let ratio = ratio(over.per_s, under.per_s);
        let none = || ratio.is_none().then(|| NO_RATIO.to_owned());
        let reason = over.note.clone().or_else(|| under.note.clone()).or_else(none);
        self.add(id, what, "times", Kind::Predicted, (ratio, Some(bar)), reason);
    }

    /// How close a search comes.
    fn within(&self) -> f64 {
        if self.quick { WITHIN_COARSE } else { WITHIN }
    }
}

impl Search<'_> {
    /// The highest load that keeps the objective of one service, or of all.
    fn highest(&self, service: Option<&str>, within: f64) -> Result<Found, Problem> {
        self.note.take();
        let range = Range { least: LOAD_MIN_PER_S, most: LOAD_MAX_PER_S, within };
        let per_s = highest(range, &mut |load| self.judge(service, load))?;
        Ok(Found { per_s, note: self.note.take() })
    }

    /// Runs that do not say it are made twice as long once.
    fn judge(&self, service: Option<&str>, per_s: f64) -> Result<Verdict, Problem> {
        let load = [("load.total_per_s", per_s.to_string())];
        let set: Vec<(&str, String)> = self.set.iter().cloned().chain(load).collect();
        let report = self.lab.simulate(self.base, self.architecture, &set)?;
        if let Some(verdict) = keeps(self.base, &report, service) {
            return Ok(verdict);
        }
        let (name, requests) = (self.architecture.name(), self.lab.doubled());
        let report = self.lab.simulate_case(self.base, name, &set, requests)?;
        if let Some(verdict) = keeps(self.base, &report, service) {
            return Ok(verdict);
        }
        let why = why_not(&report).unwrap_or_else(|| super::lab::TOO_FEW.to_owned());
        let note = format!("not known between the ends: at {per_s:.0} requests/s {why}");
        self.note.replace(Some(note));
        Ok(Verdict::UNKNOWN)
    }
}

/// Whether the percentile of a service, or of every one, is within the objective: certainly not where more work comes
/// than can be done; none where the runs do not say it.
fn keeps(base: &Entries, report: &Report, service: Option<&str>) -> Option<Verdict> {
    if let sim::Verdict::Refused { overload, .. } = &report.verdict {
        return overload.then_some(Verdict::NO);
    }
    let factor = number(base, "work.slo_factor")?;
    let mut all = Verdict::YES;
    for response in &report.responses {
        if service.is_none_or(|own| own == response.name) {
            let time_us = number(base, &format!("services.{}.time_us", response.name))?;
            all = all.and(Verdict::at_most(response.p99_ns?, 1e3 * factor * time_us));
        }
    }
    Some(all)
}

const LOAD_MIN_PER_S: f64 = 500.0;
/// More than 36 cores can do of the applications' own work.
const LOAD_MAX_PER_S: f64 = 200_000.0;
/// The bracket that a search leaves, of its upper end.
const WITHIN: f64 = 0.02;
const WITHIN_COARSE: f64 = 0.06;
const NO_RATIO: &str = "one of the two may keep the objective at no load";
