//! Figure 15: the applications of RELIEF's paper under RELIEF and under AccelFlow, with the graphs and times of the
//! public code. \[AccelFlow\] does not say what limits the throughput, so the experiment uses two limits: work that
//! always waits, and the objective of figure 14. The paper also does not say how much of 64 KiB an entry of a queue
//! holds, so the experiment varies this.

use sim::{Interval, Report};

use super::runner::{Runner, TOO_FEW, base, exact, ratio, unavailable_reason};
use super::search::{Range, Verdict, highest_load};
use crate::base::Problem;
use crate::base::rows::Kind;

/// The applications, in the order of figure 15.
const APPLICATIONS: [&str; 5] = ["canny", "deblur", "harris", "gru", "lstm"];
/// The objective of figure 14, as a multiple of the time that a request takes alone under RELIEF.
const OBJECTIVE_FACTOR: f64 = 5.0;
const WAITING: &str = "figure 15: throughput when work always waits, AccelFlow over RELIEF";
const OBJECTIVE: &str =
    "figure 15: highest load within figure 14's objective, AccelFlow over RELIEF";
/// The width of the bracket at which a search ends, as a share of its upper end.
const WITHIN: f64 = 0.02;
/// The possible contents of an entry of AccelFlow's queues. The paper describes the first value.
const HOLDS: [&str; 3] = ["pointer", "payload", "arguments"];

impl Runner {
    /// Adds the rows of figure 15 with both limits.
    pub(super) fn figure_15(&self) -> Result<(), Problem> {
        self.begin("relief");
        let mut ratios = vec![Vec::new(); HOLDS.len()];
        let mut within = Vec::new();
        for application in APPLICATIONS {
            let relief = self.saturated("relief", &set(application, &[]))?;
            self.throughput(&format!("max_throughput.relief_apps.relief.{application}"), relief);
            for (hold, ratios) in HOLDS.into_iter().zip(&mut ratios) {
                let holds = [("accelflow.entries_hold", hold)];
                let accelflow = self.saturated("accelflow", &set(application, &holds))?;
                let id = |what: &str| named(what, hold, Some(application));
                self.throughput(&id("max_throughput.relief_apps.accelflow"), accelflow);
                let (id, what) = (id("throughput_ratio.relief_apps"), WAITING);
                let ratio = ratio(accelflow, relief);
                self.ratio(&id, what, ratio, application);
                ratios.extend(ratio);
            }
            let dma = set(application, &[("manager.dma_ns", "1500")]);
            let id = format!("max_throughput.relief_apps.relief.{application}.dma_1500");
            self.throughput(&id, self.saturated("relief", &dma)?);
            within.extend(self.within_objective(application)?);
        }
        for (hold, ratios) in HOLDS.into_iter().zip(ratios) {
            self.summary(&named("relief_apps", hold, None), WAITING, &ratios);
        }
        self.summary("relief_apps_objective", OBJECTIVE, &within);
        Ok(())
    }

    /// Returns AccelFlow's highest load whose percentile is within the objective, divided by RELIEF's. Returns none if
    /// one of the two loads is not known.
    fn within_objective(&self, application: &str) -> Result<Option<Interval>, Problem> {
        let objective_ns = self.objective_ns(application)?;
        let mut loads = Vec::new();
        for architecture in ["relief", "accelflow"] {
            let (per_s, note) = self.highest_within(architecture, application, objective_ns)?;
            let id = format!("max_throughput.relief_apps_objective.{architecture}.{application}");
            let what = "figure 15: highest load whose P99 is within 5 times the unloaded time";
            self.add(&id, what, "1/s", Kind::Predicted, (Some(per_s), None), note);
            loads.push(per_s);
        }
        let ratio = match loads[..] {
            [relief, accelflow] => ratio(accelflow, relief),
            _ => None,
        };
        let id = format!("throughput_ratio.relief_apps_objective.{application}");
        self.ratio(&id, OBJECTIVE, ratio, application);
        Ok(ratio)
    }

    /// Searches the highest load within the objective, up to 1.1 times the architecture's throughput. The
    /// returned note names the last load at which the runs give no verdict, if there is one.
    fn highest_within(
        &self,
        architecture: &'static str,
        application: &str,
        objective_ns: f64,
    ) -> Result<(Interval, Option<String>), Problem> {
        let most_per_s = self.saturated(architecture, &set(application, &[]))?.value;
        let range = Range { least: 0.01 * most_per_s, most: 1.1 * most_per_s, within: WITHIN };
        let mut note = None;
        let load = highest_load(range, &mut |per_s| {
            let verdict = self.keeps_at(architecture, application, per_s, objective_ns)?;
            Ok(match verdict {
                Ok(verdict) => verdict,
                // The load exceeds what the architecture can do, so the growth of the times is not an accident of a
                // short run.
                Err(_) if per_s > most_per_s => Verdict::NO,
                Err(reason) => {
                    let at = format!("at {per_s:.0} requests/s {reason}");
                    note = Some(format!("not known between the ends: {at}"));
                    Verdict::UNKNOWN
                }
            })
        })?;
        Ok((load, note))
    }

    /// Judges whether the objective is kept at a load. If the runs give no verdict, they are repeated once
    /// with twice the length. The inner error says why there is no verdict.
    fn keeps_at(
        &self,
        architecture: &'static str,
        application: &str,
        per_s: f64,
        objective_ns: f64,
    ) -> Result<Result<Verdict, String>, Problem> {
        let load = [("load.per_s", per_s.to_string())];
        let set: Vec<_> = set(application, &[]).into_iter().chain(load).collect();
        let base = base("relief")?;
        let mut reason = None;
        for requests in [self.percentiles(), 2 * self.percentiles()] {
            let report = self.simulate_case(&base, architecture, &set, requests)?;
            if let Some(verdict) = keeps(&report, objective_ns) {
                return Ok(Ok(verdict));
            }
            reason = unavailable_reason(&report);
        }
        Ok(Err(reason.unwrap_or_else(|| TOO_FEW.to_owned())))
    }

    /// Returns the objective (ns), which is five times the time that a request takes alone under RELIEF.
    fn objective_ns(&self, application: &str) -> Result<f64, Problem> {
        let alone = self.saturated("relief", &set(application, &[("load.in_flight", "1")]))?;
        Ok(OBJECTIVE_FACTOR * 1e9 / alone.value)
    }

    fn ratio(&self, id: &str, what: &str, ratio: Option<Interval>, application: &str) {
        let reason = ratio.is_none().then(|| "one of the two throughputs is not known".to_owned());
        let pair = (ratio, self.published_ratio(application));
        self.add(id, what, "times", Kind::Predicted, pair, reason);
    }

    /// Adds the mean of the ratios, and the number of pairs of applications that have the published order.
    fn summary(&self, name: &str, what: &str, ratios: &[Interval]) {
        let whole = ratios.len() == APPLICATIONS.len();
        let reason = (!whole).then(|| "a ratio is not known".to_owned());
        let mean = whole.then(|| geometric(ratios));
        let (id, mean_of) = (format!("throughput_ratio.{name}"), format!("{what}; geometric mean"));
        let pair = (mean, self.published_ratio("mean"));
        self.add(&id, &mean_of, "times", Kind::Predicted, pair, reason.clone());
        let published = APPLICATIONS.map(|name| self.published_ratio(name).unwrap_or(f64::NAN));
        let ours: Vec<f64> = ratios.iter().map(|ratio| ratio.value).collect();
        let what = "figure 15: of ten pairs of applications, those ordered as published";
        let pairs = whole.then(|| exact(concordant(&ours, &published) as f64));
        self.add(&format!("order.{name}"), what, "1", Kind::Predicted, (pairs, Some(10.0)), reason);
    }

    fn published_ratio(&self, application: &str) -> Option<f64> {
        self.published.relief_apps_ratio.bar(application, "accelflow")
    }

    /// Returns the saturated throughput (requests per second), with work always in the queue.
    fn saturated(
        &self,
        architecture: &'static str,
        set: &[(&str, String)],
    ) -> Result<Interval, Problem> {
        let report = self.simulate_case(&base("relief")?, architecture, set, self.graphs())?;
        let missing = || Problem::Failed(format!("relief under {architecture} has no throughput"));
        report.fact("throughput_per_s").ok_or_else(missing)
    }

    fn throughput(&self, id: &str, per_s: Interval) {
        let what = "figure 15: requests each second when work always waits";
        self.add(id, what, "1/s", Kind::Predicted, (Some(per_s), None), None);
    }
}

/// Returns the name of a row. It contains the value of `entries_hold`, except for the value in the paper.
fn named(what: &str, hold: &str, application: Option<&str>) -> String {
    let reading = if hold == HOLDS[0] { String::new() } else { format!(".entries_hold_{hold}") };
    let application = application.map_or(String::new(), |name| format!(".{name}"));
    format!("{what}{application}{reading}")
}

/// Returns the settings that choose an application, followed by the settings `more`.
fn set(application: &str, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let chosen = [("run.application", application)];
    chosen.iter().chain(more).map(|(key, value)| (*key, (*value).to_owned())).collect()
}

/// Judges whether the percentile is within the objective. Under overload the verdict is no. Returns none if
/// the run gives no verdict.
fn keeps(report: &Report, objective_ns: f64) -> Option<Verdict> {
    if let sim::Verdict::Refused { overload, .. } = report.verdict {
        return overload.then_some(Verdict::NO);
    }
    Some(Verdict::at_most(report.responses.first()?.p99_ns?, objective_ns))
}

/// Returns the geometric mean. Its interval is wide enough for any dependence between the numbers.
fn geometric(all: &[Interval]) -> Interval {
    let mean = |part: fn(&Interval) -> f64| {
        all.iter().map(part).product::<f64>().powf(1.0 / all.len() as f64)
    };
    Interval {
        value: mean(|interval| interval.value),
        ci95: [mean(|interval| interval.ci95[0]), mean(|interval| interval.ci95[1])],
    }
}

/// Returns the number of pairs that have the same order in both lists.
fn concordant(ours: &[f64], theirs: &[f64]) -> usize {
    let pairs = (0..ours.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.filter(|(a, b)| (ours[*a] > ours[*b]) == (theirs[*a] > theirs[*b])).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_mean_is_geometric() {
        let figure = super::super::published::published().relief_apps_ratio;
        let bar = |name: &str| figure.bar(name, "accelflow").expect("a bar");
        let product: f64 = APPLICATIONS.iter().map(|name| bar(name)).product();
        assert!((product.powf(0.2) - bar("mean")).abs() < 0.02);
    }

    #[test]
    fn pairs_are_counted_once() {
        assert_eq!(concordant(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 3);
        assert_eq!(concordant(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]), 0);
        assert_eq!(named("a", "payload", Some("gru")), "a.gru.entries_hold_payload");
        let interval = |value: f64| Interval { value, ci95: [value, 4.0 * value] };
        let mean = geometric(&[1.0, 4.0].map(interval));
        assert_eq!(mean, Interval { value: 2.0, ci95: [2.0, 8.0] });
    }
}
