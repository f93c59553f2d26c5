//! Figure 15: RELIEF's own applications under it and under AccelFlow, from the public code's graphs and times. The
//! document says neither what limits the throughput (both are run: work that always waits, and figure 14's objective)
//! nor what an entry of a queue holds of 64 KiB (it is varied).

use sim::{Interval, Report};

use super::lab::{Lab, TOO_FEW, base, exact, ratio, why_not};
use super::search::{Range, Verdict, highest};
use crate::base::Problem;
use crate::base::rows::Kind;

/// The applications, in the order in which figure 15 draws them.
const APPLICATIONS: [&str; 5] = ["canny", "deblur", "harris", "gru", "lstm"];
/// Figure 14's, of the time that a request takes alone under RELIEF.
const OBJECTIVE_FACTOR: f64 = 5.0;
const WAITING: &str = "figure 15: throughput when work always waits, AccelFlow over RELIEF";
const OBJECTIVE: &str =
    "figure 15: highest load within figure 14's objective, AccelFlow over RELIEF";
/// The bracket that a search leaves, of its upper end.
const WITHIN: f64 = 0.02;
/// What an entry of AccelFlow's queues holds: the published reading first.
const HOLDS: [&str; 3] = ["pointer", "payload", "arguments"];

impl Lab {
    /// Figure 15, both ways.
    pub(super) fn figure_15(&self) -> Result<(), Problem> {
        self.begin("relief");
        let mut ratios = vec![Vec::new(); HOLDS.len()];
        let mut within = Vec::new();
        for application in APPLICATIONS {
            let relief = self.saturated("relief", &set(application, &[]))?;
            self.throughput(&format!("max_throughput.relief_apps.relief.{application}"), relief);
            for (hold, ratios) in HOLDS.into_iter().zip(&mut ratios) {
                let holds = [("accelflow.entries_hold", hold)];
                let found = self.saturated("accelflow", &set(application, &holds))?;
                let id = |what: &str| named(what, hold, Some(application));
                self.throughput(&id("max_throughput.relief_apps.accelflow"), found);
                let (id, what) = (id("throughput_ratio.relief_apps"), WAITING);
                let ratio = ratio(found, relief);
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

    /// The highest loads whose percentile is within the objective, AccelFlow's over RELIEF's; none where that is not
    /// known.
    fn within_objective(&self, application: &str) -> Result<Option<Interval>, Problem> {
        let objective_ns = self.objective_ns(application)?;
        let mut found = Vec::new();
        for architecture in ["relief", "accelflow"] {
            let (per_s, note) = self.highest_load(architecture, application, objective_ns)?;
            let id = format!("max_throughput.relief_apps_objective.{architecture}.{application}");
            let what = "figure 15: highest load whose P99 is within 5 times the unloaded time";
            self.add(&id, what, "1/s", Kind::Predicted, (Some(per_s), None), note);
            found.push(per_s);
        }
        let ratio = match found[..] {
            [relief, accelflow] => ratio(accelflow, relief),
            _ => None,
        };
        let id = format!("throughput_ratio.relief_apps_objective.{application}");
        self.ratio(&id, OBJECTIVE, ratio, application);
        Ok(ratio)
    }

    /// Of what the architecture can do and a little more; and the last load of which runs do not say it.
    fn highest_load(
        &self,
        architecture: &'static str,
        application: &str,
        objective_ns: f64,
    ) -> Result<(Interval, Option<String>), Problem> {
        let most_per_s = self.saturated(architecture, &set(application, &[]))?.value;
        let range = Range { least: 0.01 * most_per_s, most: 1.1 * most_per_s, within: WITHIN };
        let mut note = None;
        let found = highest(range, &mut |per_s| {
            let kept = self.keeps_at(architecture, application, per_s, objective_ns)?;
            Ok(match kept {
                Ok(verdict) => verdict,
                // More comes than it can do: times that grow are no accident of a short run.
                Err(_) if per_s > most_per_s => Verdict::NO,
                Err(reason) => {
                    let at = format!("at {per_s:.0} requests/s {reason}");
                    note = Some(format!("not known between the ends: {at}"));
                    Verdict::UNKNOWN
                }
            })
        })?;
        Ok((found, note))
    }

    /// Whether the objective is met at a load; runs that do not say it are made twice as long once.
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
            if let Some(keeps) = keeps(&report, objective_ns) {
                return Ok(Ok(keeps));
            }
            reason = why_not(&report);
        }
        Ok(Err(reason.unwrap_or_else(|| TOO_FEW.to_owned())))
    }

    /// Five times what a request takes alone under RELIEF.
    fn objective_ns(&self, application: &str) -> Result<f64, Problem> {
        let alone = self.saturated("relief", &set(application, &[("load.in_flight", "1")]))?;
        Ok(OBJECTIVE_FACTOR * 1e9 / alone.value)
    }

    fn ratio(&self, id: &str, what: &str, ratio: Option<Interval>, application: &str) {
        let reason = ratio.is_none().then(|| "one of the two throughputs is not known".to_owned());
        let pair = (ratio, self.bar(application));
        self.add(id, what, "times", Kind::Predicted, pair, reason);
    }

    /// The mean of the ratios, and in how many pairs of applications the larger one is the published one.
    fn summary(&self, of: &str, what: &str, ratios: &[Interval]) {
        let whole = ratios.len() == APPLICATIONS.len();
        let reason = (!whole).then(|| "a ratio is not known".to_owned());
        let mean = whole.then(|| geometric(ratios));
        let (id, named) = (format!("throughput_ratio.{of}"), format!("{what}; geometric mean"));
        let pair = (mean, self.bar("mean"));
        self.add(&id, &named, "times", Kind::Predicted, pair, reason.clone());
        let published = APPLICATIONS.map(|own| self.bar(own).unwrap_or(f64::NAN));
        let ours: Vec<f64> = ratios.iter().map(|own| own.value).collect();
        let what = "figure 15: of ten pairs of applications, those ordered as published";
        let pairs = whole.then(|| exact(concordant(&ours, &published) as f64));
        self.add(&format!("order.{of}"), what, "1", Kind::Predicted, (pairs, Some(10.0)), reason);
    }

    fn bar(&self, application: &str) -> Option<f64> {
        self.published.relief_apps_ratio.bar(application, "accelflow")
    }

    /// Requests each second with work always waiting.
    fn saturated(
        &self,
        architecture: &'static str,
        set: &[(&str, String)],
    ) -> Result<Interval, Problem> {
        let report = self.simulate_case(&base("relief")?, architecture, set, self.graphs())?;
        let missing = || Problem::Failed(format!("relief under {architecture} has no throughput"));
        report.fact("throughput_per_s").ok_or_else(missing)
    }

    fn throughput(&self, id: &str, found: Interval) {
        let what = "figure 15: requests each second when work always waits";
        self.add(id, what, "1/s", Kind::Predicted, (Some(found), None), None);
    }
}

/// The reading is part of the name unless it is the published one.
fn named(what: &str, hold: &str, application: Option<&str>) -> String {
    let reading = if hold == HOLDS[0] { String::new() } else { format!(".entries_hold_{hold}") };
    let application = application.map_or(String::new(), |name| format!(".{name}"));
    format!("{what}{application}{reading}")
}

/// An application with some keys set.
fn set(application: &str, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let own = [("run.application", application)];
    own.iter().chain(more).map(|(key, value)| (*key, (*value).to_owned())).collect()
}

/// Whether the percentile is within the objective: certainly not where more comes than can be done; none where a run
/// does not say it.
fn keeps(report: &Report, objective_ns: f64) -> Option<Verdict> {
    if let sim::Verdict::Refused { overload, .. } = report.verdict {
        return overload.then_some(Verdict::NO);
    }
    Some(Verdict::at_most(report.responses.first()?.p99_ns?, objective_ns))
}

/// The geometric mean, wide enough however they hang together.
fn geometric(all: &[Interval]) -> Interval {
    let mean =
        |of: fn(&Interval) -> f64| all.iter().map(of).product::<f64>().powf(1.0 / all.len() as f64);
    Interval {
        value: mean(|own| own.value),
        ci95: [mean(|own| own.ci95[0]), mean(|own| own.ci95[1])],
    }
}

/// Pairs that both lists order alike.
fn concordant(ours: &[f64], theirs: &[f64]) -> usize {
    let pairs = (0..ours.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    pairs.filter(|(a, b)| (ours[*a] > ours[*b]) == (theirs[*a] > theirs[*b])).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_mean_is_the_bars_geometric_one() {
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
        let mean =
            geometric(&[1.0, 4.0].map(|own| Interval { value: own, ci95: [own, 4.0 * own] }));
        assert_eq!(mean, Interval { value: 2.0, ci95: [2.0, 8.0] });
    }
}
