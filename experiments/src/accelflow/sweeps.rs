//! Varies a scenario: PEs, chiplets and the links between them, accelerator speeds, and load. The rows belong to
//! figures 12, 18 and 19, and to sections VII-B4, C2, C3 and C5.

use sim::accelflow::Architecture;
use sim::{Entries, Interval, Report};

use super::published::Figure;
use super::runner::{Runner, fitted, mean_of, number, row_id, scaled, unavailable_reason};
use crate::base::Problem;
use crate::base::rows::Kind;

/// One value of the varied key, and its report.
type Point = (String, Report);

impl Runner {
    /// Simulates the sweeps of a scenario and adds their rows.
    pub(super) fn sweeps(&self, scenario: &str, base: &Entries) -> Result<(), Problem> {
        let chiplets = self.figure(
            scenario,
            base,
            "chiplets",
            "hardware.chiplets",
            &self.published.chiplets_ms,
        )?;
        let what = "section VII-C1: P99 of six chiplets above that of two";
        let id = format!("p99_growth.{scenario}.chiplets_6");
        self.growth(&id, what, (at(&chiplets, "6"), at(&chiplets, "2")), 14.0);
        if let Some(six) = at(&chiplets, "6") {
            self.links(scenario, base, six)?;
        }
        let pes = self.figure(scenario, base, "pes", "hardware.pes", &self.published.pes_ms)?;
        for (count, published) in [("4", 20.0), ("2", 35.7)] {
            let what = format!("section VII-C3: P99 of {count} PEs above that of eight");
            let id = format!("p99_growth.{scenario}.pes_{count}");
            self.growth(&id, &what, (at(&pes, count), at(&pes, "8")), published);
        }
        self.shortages(scenario, &pes);
        self.speeds(scenario, base)
    }

    /// Adds the rows of figure 18 or 19: every service's P99, and their mean.
    fn figure(
        &self,
        scenario: &str,
        base: &Entries,
        what: &str,
        key: &str,
        figure: &Figure,
    ) -> Result<Vec<Point>, Problem> {
        let mut points = Vec::new();
        for column in &figure.columns {
            let set = [(key, column.clone())];
            let report = self.simulate(base, Architecture::AccelFlow, &set)?;
            let id = format!("p99.{scenario}.accelflow.{what}_{column}");
            // At this value the study is identical to the unchanged scenario.
            let same = number(base, key) == column.parse().ok();
            let kind = if same { fitted(scenario) } else { Kind::Predicted };
            self.p99(&id, figure.bar("mean", column), kind, &report);
            for response in &report.responses {
                let id = format!("{id}.{}", response.name.to_lowercase());
                let bar = figure.bar(&response.name, column);
                self.time(&id, response.p99_ns, bar, Kind::Predicted, &report);
            }
            points.push((column.clone(), report));
        }
        Ok(points)
    }

    /// Adds the growth from one mean P99 to another (%).
    fn growth(
        &self,
        id: &str,
        what: &str,
        (above, below): (Option<&Report>, Option<&Report>),
        published: f64,
    ) {
        let (Some(above), Some(below)) = (above, below) else { return };
        let cut = above.reduction(below).and_then(|reduction| reduction.p99);
        let pair = (cut.map(|share| scaled(share, -100.0)), Some(published));
        let reason = unavailable_reason(above).or_else(|| unavailable_reason(below));
        self.add(id, what, "%", Kind::Predicted, pair, reason);
    }

    /// Adds the rows of section VII-C2, which varies the cycles between six chiplets. Also adds links with the slow
    /// speed that table III prints.
    fn links(&self, scenario: &str, base: &Entries, six: &Report) -> Result<(), Problem> {
        for cycles in ["20", "40", "80", "100"] {
            let set = [
                ("hardware.chiplets", "6".to_owned()),
                ("hardware.inter_chiplet_cycles", cycles.to_owned()),
            ];
            let report = self.simulate(base, Architecture::AccelFlow, &set)?;
            let id = format!("p99.{scenario}.accelflow.chiplets_6.cycles_{cycles}");
            self.p99(&id, None, Kind::Predicted, &report);
            if cycles == "100" {
                let id = format!("p99_growth.{scenario}.chiplets_6.cycles_100");
                let what = "section VII-C2: P99 of six chiplets, 100 cycles apart above 60";
                self.growth(&id, what, (Some(&report), Some(six)), 45.0);
            }
        }
        let narrow = ("hardware.inter_chiplet_gb_per_s", GIGABIT.to_owned());
        for chiplets in ["2", "6"] {
            let set = [("hardware.chiplets", chiplets.to_owned()), narrow.clone()];
            let report = self.simulate(base, Architecture::AccelFlow, &set)?;
            let id = format!("p99.{scenario}.accelflow.chiplets_{chiplets}.links_1_gbit");
            self.p99(&id, None, Kind::Predicted, &report);
        }
        Ok(())
    }

    /// Adds the rows of section VII-C3: missed deadlines, and ops that fall back, with fewer PEs.
    fn shortages(&self, scenario: &str, pes: &[Point]) {
        let published =
            [("2", Some(21.7), Some(39.0)), ("4", Some(8.2), Some(16.0)), ("8", None, None)];
        for (count, missed, refused) in published {
            let Some(report) = at(pes, count) else { continue };
            let rows = [
                ("deadline_misses", "slo.missed_share", missed, MISSED),
                ("fallback_share", "ops.fallback_share", None, "ops that fall back to a core"),
                ("encrypt_fallback_share", "encrypt.fallback_share", refused, REFUSED),
            ];
            for (name, fact, published, what) in rows {
                let ours = report.fact(fact).map(|share| scaled(share, 100.0));
                let id = format!("{name}.{scenario}.pes_{count}");
                let reason = unavailable_reason(report);
                self.add(&id, what, "%", Kind::Predicted, (ours, published), reason);
            }
        }
    }

    /// Adds the rows of section VII-C5 for percentiles: RELIEF's P99 divided by AccelFlow's, with faster and slower
    /// PEs. The section itself prints throughputs (`throughput.rs`).
    fn speeds(&self, scenario: &str, base: &Entries) -> Result<(), Problem> {
        for percent in [25, 50, 100, 200, 400] {
            let set = speed(base, percent);
            let ours = self.simulate(base, Architecture::AccelFlow, &set)?;
            let theirs = self.simulate(base, Architecture::Relief, &set)?;
            let cut = ours.reduction(&theirs).and_then(|reduction| reduction.p99);
            // If AccelFlow's P99 is lower by r, RELIEF's P99 is 1 / (1 - r) times AccelFlow's.
            let times = |cut: f64| 1.0 / (1.0 - cut);
            let ratio = cut
                .filter(|cut| cut.ci95[1] < 1.0)
                .map(|cut| Interval { value: times(cut.value), ci95: cut.ci95.map(times) });
            let id = row_id("p99_ratio", scenario, "relief", Some(&format!("speed_{percent}")));
            let what = "RELIEF's mean P99 over AccelFlow's, PEs at this percentage of their speed";
            let reason = unavailable_reason(&theirs).or_else(|| unavailable_reason(&ours));
            self.add(&id, what, "times", Kind::Predicted, (ratio, None), reason);
        }
        Ok(())
    }

    /// Adds the P99s of RELIEF's public code for the case that the interrupt of a DMA also takes time of the manager.
    pub(super) fn interrupts(&self, base: &Entries) -> Result<(), Problem> {
        for ns in [500, 1_500] {
            let set = [("costs.manager_dma_ns", ns.to_string())];
            let report = self.simulate(base, Architecture::ReliefArtifact, &set)?;
            let id = row_id("p99", "steady", "relief_artifact", Some(&format!("dma_{ns}")));
            self.p99(&id, None, Kind::Predicted, &report);
        }
        Ok(())
    }

    /// Adds the rows of figure 12: SocialNetwork at three loads, and AccelFlow's reduction below RELIEF.
    pub(super) fn loads(&self, base: &Entries) -> Result<(), Problem> {
        self.begin("loads");
        let figure = &self.published.loads_ms;
        for per_s in &figure.columns {
            let mut reports = Vec::new();
            for architecture in Architecture::COMPARED {
                let set = [("load.total_per_s", per_s.clone())];
                let report = self.simulate(base, architecture, &set)?;
                let name = architecture.name();
                let id = row_id("p99", "steady", name, Some(&format!("load_{per_s}")));
                self.p99(&id, figure.bar(name, per_s), Kind::Predicted, &report);
                reports.push((architecture, report));
            }
            let report = |architecture| {
                reports.iter().find(|(name, _)| *name == architecture).map(|(_, report)| report)
            };
            let pair = (report(Architecture::AccelFlow), report(Architecture::Relief));
            let (Some(ours), Some(theirs)) = pair else { continue };
            let cut = ours.reduction(theirs).and_then(|reduction| reduction.p99);
            let bars = (figure.bar("accelflow", per_s), figure.bar("relief", per_s));
            let published = bars.0.zip(bars.1).map(|(low, high)| 100.0 * (1.0 - low / high));
            let id = format!("p99_reduction.steady.relief.load_{per_s}");
            let what = "figure 12: SocialNetwork's bars, AccelFlow below RELIEF";
            let pair = (cut.map(|share| scaled(share, 100.0)), published);
            let reason = unavailable_reason(theirs).or_else(|| unavailable_reason(ours));
            self.add(&id, what, "%", Kind::Predicted, pair, reason);
        }
        Ok(())
    }

    /// Adds the utilisations, and the share of ops that fall back, at AccelFlow's published peak.
    pub(super) fn peak(&self, base: &Entries) -> Result<(), Problem> {
        self.begin("peak");
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
        for (name, kinds, published) in groups {
            let utilisations: Vec<Interval> = kinds
                .iter()
                .filter_map(|kind| report.fact(&format!("{kind}.utilisation")))
                .collect();
            let mean = mean_of(&utilisations).map(|share| scaled(share, 100.0));
            let what = "section VII-B4: busy PEs at 51.6 K requests/s";
            let id = format!("utilisation.{name}");
            let pair = (mean, Some(published));
            self.add(&id, what, "%", Kind::Predicted, pair, unavailable_reason(&report));
        }
        let share = report.fact("ops.fallback_share").map(|share| scaled(share, 100.0));
        let what = "section VII-B6: ops that fall back to a core at 51.6 K requests/s";
        let (pair, reason) = ((share, Some(5.9)), unavailable_reason(&report));
        self.add("fallback_share.peak", what, "%", Kind::Predicted, pair, reason);
        Ok(())
    }
}

/// Returns the keys of all accelerators' speeds, each with a percentage of its value in `base`.
pub(super) fn speed(base: &Entries, percent: u32) -> Vec<(&'static str, String)> {
    let scaled = |key: &'static str| {
        let speedup = number(base, key)?;
        Some((key, (speedup * f64::from(percent) / 100.0).to_string()))
    };
    SPEEDS.into_iter().filter_map(scaled).collect()
}

fn at<'a>(points: &'a [Point], column: &str) -> Option<&'a Report> {
    points.iter().find(|(value, _)| value == column).map(|(_, report)| report)
}

/// A gigabit per second, in gigabytes per second.
const GIGABIT: &str = "0.125";
const MISSED: &str = "section VII-C3: requests that take more than 5 times figure 1's time";
const REFUSED: &str = "section VII-C3: encryptions that fall back to a core";
const SPEEDS: [&str; 9] = [
    "accelerators.tcp.speedup",
    "accelerators.encrypt.speedup",
    "accelerators.decrypt.speedup",
    "accelerators.rpc.speedup",
    "accelerators.serialize.speedup",
    "accelerators.deserialize.speedup",
    "accelerators.compress.speedup",
    "accelerators.decompress.speedup",
    "accelerators.load-balance.speedup",
];

#[cfg(test)]
mod tests {
    use super::super::runner::base;
    use super::*;

    #[test]
    fn speed_scales_all_nine_accelerators() {
        let base = base("steady").unwrap_or_else(|_| panic!("compiled in"));
        let set = speed(&base, 400);
        assert_eq!(set.len(), 9);
        assert_eq!(set[0], ("accelerators.tcp.speedup", "14".to_owned()));
        let mut entries = base.clone();
        for (key, value) in &set {
            entries.set(key, value).expect("a key");
        }
        assert_eq!(number(&entries, "accelerators.encrypt.speedup"), Some(26.4));
    }
}
