//! What orchestration takes of the time: figure 3 by load, figure 17 and RELIEF's 10 % of a server that has one request
//! at a time. Of the time in which somebody works for a request, decides what follows or moves its data; waiting for
//! the manager is deciding, waiting for a PE or a core is nobody's.

use sim::accelflow::Architecture;
use sim::{Entries, Interval, Report};

use super::lab::{Lab, mean_of, scaled, why_not};
use crate::base::Problem;
use crate::base::rows::Kind;

/// Figure 3's environments: in the published table, here, in row ids.
const ENVIRONMENTS: [(&str, Architecture, &str); 3] = [
    ("cpu-centric", Architecture::CpuCentric, "cpu_centric"),
    ("relief", Architecture::Relief, "hw_manager"),
    ("direct", Architecture::AccelFlow, "direct"),
];

impl Lab {
    /// Figure 3, then a server without load.
    pub(super) fn orchestration(&self, base: &Entries) -> Result<(), Problem> {
        self.begin("orchestration");
        let figure = &self.published.overhead_percent;
        for (column, architecture, name) in ENVIRONMENTS {
            for per_s in &figure.columns {
                let set = [("load.total_per_s", per_s.clone())];
                let report = self.simulate(base, architecture, &set)?;
                // The interrupt's cost was worked out from this one.
                let fitted = column == "cpu-centric" && per_s == "1000";
                let kind = if fitted { Kind::Calibrated } else { Kind::Predicted };
                let parts = ["orchestration.share", "transfer.share"];
                let parts = parts.iter().filter_map(|fact| report.fact(fact));
                let found = scaled_sum(&parts.collect::<Vec<_>>(), 2);
                let id = format!("overhead.{name}.load_{per_s}");
                let what =
                    "figure 3: deciding and moving, of the time that a request is worked for";
                let pair = (found, figure.bar(column, per_s));
                self.add(&id, what, "%", kind, pair, why_not(&report));
            }
        }
        self.unloaded(base)
    }

    /// Figure 17 and section VII-B1: each service alone, a request now and then.
    fn unloaded(&self, base: &Entries) -> Result<(), Problem> {
        let catalog = trace::accelflow();
        let names = || catalog.services().iter().map(|own| own.name.as_str());
        let keys: Vec<(String, &str)> =
            names().map(|name| (format!("services.{name}.weight"), name)).collect();
        let mut parts = vec![Vec::new(); PARTS.len()];
        let mut relief = Vec::new();
        for service in names() {
            let weight = |own: bool| if own { "1".to_owned() } else { WEIGHT_MIN.to_owned() };
            let weights = keys.iter().map(|(key, name)| (key.as_str(), weight(*name == service)));
            let load = [("load.total_per_s", UNLOADED_PER_S.to_owned())];
            let set: Vec<(&str, String)> = weights.chain(load).collect();
            let run =
                |own: Architecture| self.simulate_case(base, own.name(), &set, self.percentiles());
            let report = run(Architecture::AccelFlow)?;
            for (part, all) in PARTS.iter().zip(&mut parts) {
                all.extend(self.part(part, service, &report));
            }
            relief.extend(run(Architecture::Relief)?.fact("orchestration.share"));
        }
        for (part, all) in PARTS.iter().zip(&parts) {
            self.part_of_all(part, all);
        }
        let found = mean_of(&relief).map(|own| scaled(own, 100.0));
        let what = "section VII-B1: RELIEF's orchestration, unloaded, mean of the services";
        self.add("overhead.relief.unloaded", what, "%", Kind::Predicted, (found, Some(10.0)), None);
        Ok(())
    }

    /// A service's part of figure 17, whose bars are not printed.
    fn part(&self, part: &Part, service: &str, report: &Report) -> Option<Interval> {
        let found = report.fact(part.fact).map(|own| scaled(own, 100.0));
        let id = format!("{}.unloaded.{}", part.id, service.to_lowercase());
        self.add(&id, part.what, "%", part.kind, (found, None), None);
        found
    }

    /// The least, the most and the mean of the services, as far as they are published.
    fn part_of_all(&self, part: &Part, all: &[Interval]) {
        let by_value = |a: &&Interval, b: &&Interval| a.value.total_cmp(&b.value);
        let ends = [all.iter().min_by(by_value), all.iter().max_by(by_value)];
        for ((end, found), published) in ["least", "most"].into_iter().zip(ends).zip(part.ends) {
            let id = format!("{}.unloaded.{end}", part.id);
            let pair = (found.copied(), published);
            self.add(&id, part.what, "%", part.kind, pair, None);
        }
        let id = format!("{}.unloaded", part.id);
        let what = format!("{}, mean of the services", part.what);
        self.add(&id, &what, "%", part.kind, (mean_of(all), part.mean), None);
    }
}

/// A part of figure 17's bars.
struct Part {
    id: &'static str,
    fact: &'static str,
    what: &'static str,
    /// The least and the most of the services (%).
    ends: [Option<f64>; 2],
    mean: Option<f64>,
    kind: Kind,
}

/// `costs.occupancy` is derived from this figure's accelerators over its cores, so those two are no prediction.
const PARTS: [Part; 4] = [
    Part {
        id: "overhead.accelflow",
        fact: "orchestration.share",
        what: "figure 17: orchestration",
        ends: [None; 2],
        mean: Some(2.2),
        kind: Kind::Predicted,
    },
    Part {
        id: "transfer_share",
        fact: "transfer.share",
        what: "figure 17: communication",
        ends: [None; 2],
        mean: None,
        kind: Kind::Predicted,
    },
    Part {
        id: "accelerator_share",
        fact: "accelerators.time_share",
        what: "figure 17: accelerators",
        ends: [Some(48.0), Some(83.0)],
        mean: None,
        kind: Kind::Calibrated,
    },
    Part {
        id: "core_share",
        fact: "cores.time_share",
        what: "figure 17: CPU",
        ends: [Some(12.0), Some(50.0)],
        mean: None,
        kind: Kind::Calibrated,
    },
];

/// The sum of so many shares (%), wide enough however they hang together.
fn scaled_sum(parts: &[Interval], count: usize) -> Option<Interval> {
    let all = mean_of(parts).filter(|_| parts.len() == count);
    all.map(|mean| scaled(mean, 100.0 * count as f64))
}

/// One request takes 0.02 to 3 ms: mostly there is none.
const UNLOADED_PER_S: &str = "50";
/// The least that a service may have.
const WEIGHT_MIN: &str = "1e-6";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_with_both_intervals() {
        let part = |value: f64| Interval { value, ci95: [value - 0.01, value + 0.02] };
        let sum = scaled_sum(&[part(0.1), part(0.2)], 2).expect("both");
        assert!((sum.value - 30.0).abs() < 1e-9 && (sum.ci95[0] - 28.0).abs() < 1e-9);
        assert!((sum.ci95[1] - 34.0).abs() < 1e-9);
        assert_eq!(scaled_sum(&[part(0.1)], 2), None);
    }
}
