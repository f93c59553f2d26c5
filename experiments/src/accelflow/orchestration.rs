//! The share of the time that orchestration takes: figure 3 by load, figure 17, and RELIEF's 10 % in a server with one
//! request at a time. The whole is the time in which a component works for a request, decides what follows, or moves
//! its data. Waiting for the manager counts as deciding. Waiting for a PE or a core does not count.

use sim::accelflow::Architecture;
use sim::{Entries, Interval, Report};

use super::runner::{Runner, mean_of, scaled, unavailable_reason};
use crate::base::Problem;
use crate::base::rows::Kind;

/// The environments of figure 3: the column of the published table, the architecture, and the name in row ids.
const ENVIRONMENTS: [(&str, Architecture, &str); 3] = [
    ("cpu-centric", Architecture::CpuCentric, "cpu_centric"),
    ("relief", Architecture::Relief, "hw_manager"),
    ("direct", Architecture::AccelFlow, "direct"),
];

impl Runner {
    /// Adds the rows of figure 3 and then the rows of a server without load.
    pub(super) fn orchestration(&self, base: &Entries) -> Result<(), Problem> {
        self.begin("orchestration");
        let figure = &self.published.overhead_percent;
        for (column, architecture, name) in ENVIRONMENTS {
            for per_s in &figure.columns {
                let set = [("load.total_per_s", per_s.clone())];
                let report = self.simulate(base, architecture, &set)?;
                // The interrupt's cost was derived from this number.
                let fitted = column == "cpu-centric" && per_s == "1000";
                let kind = if fitted { Kind::Calibrated } else { Kind::Predicted };
                let parts = ["orchestration.share", "transfer.share"];
                let parts = parts.iter().filter_map(|fact| report.fact(fact));
                let ours = scaled_sum(&parts.collect::<Vec<_>>(), 2);
                let id = format!("overhead.{name}.load_{per_s}");
                let what =
                    "figure 3: deciding and moving, of the time that a request is worked for";
                let pair = (ours, figure.bar(column, per_s));
                self.add(&id, what, "%", kind, pair, unavailable_reason(&report));
            }
        }
        self.unloaded(base)
    }

    /// Adds the rows of figure 17 and section VII-B1: each service alone, at a very low load.
    fn unloaded(&self, base: &Entries) -> Result<(), Problem> {
        let catalog = trace::accelflow();
        let names = || catalog.services().iter().map(|service| service.name.as_str());
        let keys: Vec<(String, &str)> =
            names().map(|name| (format!("services.{name}.weight"), name)).collect();
        let mut parts = vec![Vec::new(); PARTS.len()];
        let mut relief = Vec::new();
        for service in names() {
            let weight = |name: &str| if name == service { "1" } else { WEIGHT_MIN };
            let weights = keys.iter().map(|(key, name)| (key.as_str(), weight(name).to_owned()));
            let load = [("load.total_per_s", UNLOADED_PER_S.to_owned())];
            let set: Vec<(&str, String)> = weights.chain(load).collect();
            let requests = self.percentiles();
            let run = |architecture: Architecture| {
                self.simulate_case(base, architecture.name(), &set, requests)
            };
            let report = run(Architecture::AccelFlow)?;
            for (part, all) in PARTS.iter().zip(&mut parts) {
                all.extend(self.part(part, service, &report));
            }
            relief.extend(run(Architecture::Relief)?.fact("orchestration.share"));
        }
        for (part, all) in PARTS.iter().zip(&parts) {
            self.part_of_all(part, all);
        }
        let mean = mean_of(&relief).map(|share| scaled(share, 100.0));
        let pair = (mean, Some(10.0));
        let what = "section VII-B1: RELIEF's orchestration, unloaded, mean of the services";
        self.add("overhead.relief.unloaded", what, "%", Kind::Predicted, pair, None);
        Ok(())
    }

    /// Adds the row of one part of a service's bar in figure 17. The paper does not print these numbers.
    fn part(&self, part: &Part, service: &str, report: &Report) -> Option<Interval> {
        let share = report.fact(part.fact).map(|share| scaled(share, 100.0));
        let id = format!("{}.unloaded.{}", part.id, service.to_lowercase());
        self.add(&id, part.what, "%", part.kind, (share, None), None);
        share
    }

    /// Adds the least, the most and the mean of the services, with the published numbers if there are any.
    fn part_of_all(&self, part: &Part, all: &[Interval]) {
        let by_value = |a: &&Interval, b: &&Interval| a.value.total_cmp(&b.value);
        let ends = [all.iter().min_by(by_value), all.iter().max_by(by_value)];
        for ((end, share), published) in ["least", "most"].into_iter().zip(ends).zip(part.ends) {
            let id = format!("{}.unloaded.{end}", part.id);
            let pair = (share.copied(), published);
            self.add(&id, part.what, "%", part.kind, pair, None);
        }
        let id = format!("{}.unloaded", part.id);
        let what = format!("{}, mean of the services", part.what);
        self.add(&id, &what, "%", part.kind, (mean_of(all), part.mean), None);
    }
}

/// A part of the bars of figure 17.
struct Part {
    id: &'static str,
    fact: &'static str,
    what: &'static str,
    /// The published least and most of the services (%).
    ends: [Option<f64>; 2],
    mean: Option<f64>,
    kind: Kind,
}

/// The parts of the bars of figure 17. `costs.occupancy` is derived from the figure's accelerators and cores,
/// so these two parts are calibrated.
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

/// Returns the sum of `count` shares (%), or none if some are missing. Its interval is wide enough for any dependence
/// between them.
fn scaled_sum(parts: &[Interval], count: usize) -> Option<Interval> {
    let all = mean_of(parts).filter(|_| parts.len() == count);
    all.map(|mean| scaled(mean, 100.0 * count as f64))
}

/// A load at which the server is mostly idle (requests per second). One request takes 0.02 to 3 ms.
const UNLOADED_PER_S: &str = "50";
/// The least weight that a service may have.
const WEIGHT_MIN: &str = "1e-6";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_with_their_intervals() {
        let part = |value: f64| Interval { value, ci95: [value - 0.01, value + 0.02] };
        let sum = scaled_sum(&[part(0.1), part(0.2)], 2).expect("both");
        assert!((sum.value - 30.0).abs() < 1e-9 && (sum.ci95[0] - 28.0).abs() < 1e-9);
        assert!((sum.ci95[1] - 34.0).abs() < 1e-9);
        assert_eq!(scaled_sum(&[part(0.1)], 2), None);
    }
}
