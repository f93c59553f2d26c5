//! Figure 14: the highest load for each service, and their mean, which the figure and the text compare. Beside it: the
//! highest loads that keep the objectives of all services at once. These searches are repeated with queues ordered by
//! deadline, with fewer PEs, and with other speeds. The objective is that the 99th percentile is at most 5 times figure
//! 1's time, in scenario `steady`.

use std::cell::RefCell;

use sim::accelflow::Architecture;
use sim::{Entries, Interval, Report};

use super::runner::{Runner, TOO_FEW, mean_of, number, ratio, scaled, unavailable_reason};
use super::search::{Range, Verdict, highest_load};
use super::sweeps::speed;
use crate::base::Problem;
use crate::base::rows::Kind;

/// The result of a search.
#[derive(Clone, Debug)]
struct HighestLoad {
    per_s: Interval,
    /// The reason why the result is uncertain, or None if it is certain.
    note: Option<String>,
}

/// A search for the highest load of an architecture with some keys set.
struct Search<'a> {
    runner: &'a Runner,
    base: &'a Entries,
    architecture: Architecture,
    set: Vec<(&'static str, String)>,
    /// The last load for which the runs give no verdict, and why they give none.
    note: RefCell<Option<String>>,
}

impl Runner {
    /// Adds all rows on the highest loads.
    pub(super) fn throughputs(&self, base: &Entries) -> Result<(), Problem> {
        self.begin("throughput");
        let (mut loads, mut means) = (Vec::new(), Vec::new());
        let architectures = Architecture::COMPARED.into_iter().chain([Architecture::Ideal]);
        for architecture in architectures {
            let name = architecture.name();
            let search = self.search(base, architecture, Vec::new());
            loads.push((name, self.maximum(name, &search)?));
            if !self.quick {
                means.extend(self.by_service(&search)?.map(|mean| (name, mean)));
            }
        }
        let set = vec![("dispatcher.discipline", "deadline".to_owned())];
        let deadline = self.search(base, Architecture::AccelFlow, set);
        loads.push(("deadline", self.maximum("deadline", &deadline)?));
        let load = |name: &str| loads.iter().find(|(id, _)| *id == name).map(|(_, load)| load);
        let mean = |name: &str| means.iter().find(|(id, _)| *id == name).map(|(_, load)| load);
        let ratios = [
            ("non_acc", "accelflow", "non-acc", Some(8.3)),
            ("relief", "accelflow", "relief", Some(2.2)),
            ("ideal", "ideal", "accelflow", Some(1.087)),
            ("deadline", "deadline", "accelflow", None),
        ];
        for (id, over_name, under_name, published) in ratios {
            // The text has the ratios of the means, and that by deadlines of one throughput.
            if let (Some(over), Some(under)) = (mean(over_name), mean(under_name)) {
                let what =
                    format!("mean throughput of the services, {over_name} over {under_name}");
                let id = format!("mean_throughput_ratio.steady.{id}");
                self.over(&id, &what, (over, under), published);
            }
            let (Some(over), Some(under)) = (load(over_name), load(under_name)) else { continue };
            let what = format!("throughput of all services at once, {over_name} over {under_name}");
            let published = (id == "deadline").then_some(1.6);
            let id = format!("max_throughput_ratio.steady.{id}");
            self.over(&id, &what, (over, under), published);
        }
        if let Some(whole) = load("accelflow") {
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
        Search { runner: self, base, architecture, set, note: RefCell::default() }
    }

    /// Finds the highest load at which all services keep their objectives, and adds its row.
    fn maximum(&self, name: &str, search: &Search<'_>) -> Result<HighestLoad, Problem> {
        let load = search.highest(None, self.within())?;
        let id = format!("max_throughput.steady.{}", name.replace('-', "_"));
        let what =
            "highest load at which the P99s of all services are within 5 times figure 1's time";
        self.load(&id, what, &load, None);
        Ok(load)
    }

    /// Adds the bars of figure 14. A bar is the highest load that keeps the objective of one service, if all services
    /// have equal shares. Returns their mean.
    fn by_service(&self, search: &Search<'_>) -> Result<Option<HighestLoad>, Problem> {
        let name = search.architecture.name();
        let (mut all, mut note) = (Vec::new(), None);
        for service in trace::accelflow().services() {
            let load = search.highest(Some(&service.name), WITHIN_COARSE)?;
            let service = &service.name;
            let id = format!("max_throughput.steady.{name}.{}", service.to_lowercase());
            let what =
                "figure 14: highest load at which this service's P99 is within 5 times its time";
            let published = self.published.throughput_krps.bar(service, name);
            self.load(&id.replace('-', "_"), what, &load, published);
            all.push(load.per_s);
            note = note.or(load.note);
        }
        let Some(per_s) = mean_of(&all) else { return Ok(None) };
        let mean = HighestLoad { per_s, note };
        let id = format!("mean_throughput.steady.{}", name.replace('-', "_"));
        let published = self.published.throughput_krps.bar("mean", name);
        self.load(&id, "figure 14: mean of the services' highest loads", &mean, published);
        Ok(Some(mean))
    }

    /// Adds the rows of section VII-C3: the share of AccelFlow's throughput that is lost with fewer PEs.
    fn fewer_pes(&self, base: &Entries, whole: &HighestLoad) -> Result<(), Problem> {
        for (pes, published) in [("4", 11.0), ("2", 25.0)] {
            let set = vec![("hardware.pes", pes.to_owned())];
            let search = self.search(base, Architecture::AccelFlow, set);
            let load = self.maximum(&format!("accelflow.pes_{pes}"), &search)?;
            let loss = ratio(load.per_s, whole.per_s).map(|share| Interval {
                value: 1.0 - share.value,
                ci95: [1.0 - share.ci95[1], 1.0 - share.ci95[0]],
            });
            let id = format!("throughput_loss.steady.pes_{pes}");
            let what = format!("section VII-C3: throughput with {pes} PEs below that with eight");
            let pair = (loss.map(|share| scaled(share, 100.0)), Some(published));
            let reason = load.note.or_else(|| loss.is_none().then(|| NO_RATIO.to_owned()));
            self.add(&id, &what, "%", Kind::Predicted, pair, reason);
        }
        Ok(())
    }

    /// Adds the rows of section VII-C5: AccelFlow's throughput divided by RELIEF's, with faster and slower PEs. With
    /// the published speeds the ratio is 2.2.
    fn speeds_of_throughput(&self, base: &Entries) -> Result<(), Problem> {
        for (percent, published) in [(25, 1.4), (400, 3.9)] {
            let mut loads = Vec::new();
            for architecture in [Architecture::AccelFlow, Architecture::Relief] {
                let search = self.search(base, architecture, speed(base, percent));
                let name = format!("{}.speed_{percent}", architecture.name());
                loads.push(self.maximum(&name, &search)?);
            }
            let [accelflow, relief] = &loads[..] else { continue };
            let id = format!("max_throughput_ratio.steady.relief.speed_{percent}");
            let what =
                "section VII-C5: throughput over RELIEF's, PEs at this percentage of their speed";
            self.over(&id, what, (accelflow, relief), Some(published));
        }
        Ok(())
    }

    fn load(&self, id: &str, what: &str, load: &HighestLoad, published: Option<f64>) {
        let pair = (Some(scaled(load.per_s, 1e-3)), published);
        self.add(id, what, "k/s", Kind::Predicted, pair, load.note.clone());
    }

    fn over(
        &self,
        id: &str,
        what: &str,
        (over, under): (&HighestLoad, &HighestLoad),
        published: Option<f64>,
    ) {
        let ratio = ratio(over.per_s, under.per_s);
        let none = || ratio.is_none().then(|| NO_RATIO.to_owned());
        let reason = over.note.clone().or_else(|| under.note.clone()).or_else(none);
        self.add(id, what, "times", Kind::Predicted, (ratio, published), reason);
    }

    /// Returns the precision of a search.
    fn within(&self) -> f64 {
        if self.quick { WITHIN_COARSE } else { WITHIN }
    }
}

impl Search<'_> {
    /// Finds the highest load that keeps the objective of `service`, or of all services if it is None.
    fn highest(&self, service: Option<&str>, within: f64) -> Result<HighestLoad, Problem> {
        self.note.take();
        let range = Range { least: LOAD_MIN_PER_S, most: LOAD_MAX_PER_S, within };
        let per_s = highest_load(range, &mut |load| self.judge(service, load))?;
        Ok(HighestLoad { per_s, note: self.note.take() })
    }

    /// Judges a load. If the runs give no verdict, they are repeated once with twice the length.
    fn judge(&self, service: Option<&str>, per_s: f64) -> Result<Verdict, Problem> {
        let load = [("load.total_per_s", per_s.to_string())];
        let set: Vec<(&str, String)> = self.set.iter().cloned().chain(load).collect();
        let report = self.runner.simulate(self.base, self.architecture, &set)?;
        if let Some(verdict) = keeps(self.base, &report, service) {
            return Ok(verdict);
        }
        let (name, requests) = (self.architecture.name(), self.runner.doubled());
        let report = self.runner.simulate_case(self.base, name, &set, requests)?;
        if let Some(verdict) = keeps(self.base, &report, service) {
            return Ok(verdict);
        }
        let reason = unavailable_reason(&report).unwrap_or_else(|| TOO_FEW.to_owned());
        let note = format!("not known between the ends: at {per_s:.0} requests/s {reason}");
        self.note.replace(Some(note));
        Ok(Verdict::UNKNOWN)
    }
}

/// Judges whether the percentile of `service` is within its objective, or the percentiles of all services if
/// it is None. Under overload the verdict is no. Returns none if the runs give no verdict.
fn keeps(base: &Entries, report: &Report, service: Option<&str>) -> Option<Verdict> {
    if let sim::Verdict::Refused { overload, .. } = &report.verdict {
        return overload.then_some(Verdict::NO);
    }
    let factor = number(base, "work.slo_factor")?;
    let mut all = Verdict::YES;
    for response in &report.responses {
        if service.is_none_or(|name| name == response.name) {
            let time_us = number(base, &format!("services.{}.time_us", response.name))?;
            all = all.and(Verdict::at_most(response.p99_ns?, 1e3 * factor * time_us));
        }
    }
    Some(all)
}

const LOAD_MIN_PER_S: f64 = 500.0;
/// The highest load of a search (requests per second). The application work at this load exceeds the capacity
/// of 36 cores.
const LOAD_MAX_PER_S: f64 = 200_000.0;
/// The width of the bracket at which a search ends, as a share of its upper end.
const WITHIN: f64 = 0.02;
const WITHIN_COARSE: f64 = 0.06;
const NO_RATIO: &str = "one of the two may keep the objective at no load";
