//! Simulates a scenario under every architecture: response times, the reductions by AccelFlow, the ablation,
//! and rare events. The rows belong to figures 11 and 13, and to the counts of section VII-B6.

use sim::accelflow::Architecture;
use sim::{Entries, Interval, Report};

use super::runner::{Runner, fitted, row_id, scaled, unavailable_reason};
use crate::base::Problem;
use crate::base::rows::Kind;

/// A scenario's reports, by architecture.
pub(super) struct ScenarioReports<'a> {
    pub(super) runner: &'a Runner,
    pub(super) scenario: &'a str,
    reports: Vec<(Architecture, Report)>,
}

impl Runner {
    /// Simulates a scenario under every architecture and adds its rows.
    pub(super) fn scenario(&self, scenario: &str, base: &Entries) -> Result<(), Problem> {
        let mut reports = Vec::new();
        for architecture in Architecture::ALL {
            reports.push((architecture, self.simulate(base, architecture, &[])?));
        }
        let reports = ScenarioReports { runner: self, scenario, reports };
        reports.times();
        reports.cuts();
        reports.ablation();
        reports.orders();
        reports.events();
        reports.stages();
        Ok(())
    }
}

impl ScenarioReports<'_> {
    pub(super) fn report(&self, architecture: Architecture) -> Option<&Report> {
        self.reports.iter().find(|(name, _)| *name == architecture).map(|(_, report)| report)
    }

    /// Adds the response times of figures 11 and 13.
    fn times(&self) {
        let (runner, scenario) = (self.runner, self.scenario);
        for (architecture, report) in &self.reports {
            let name = architecture.name();
            let published = &runner.published;
            let in_figure_11 = published.p99_ms.columns.iter().any(|column| column == name);
            let p99s = if in_figure_11 { &published.p99_ms } else { &published.ablation_ms };
            let means = &published.mean_ms;
            for response in &report.responses {
                let service = &response.name;
                let id = |what: &str| row_id(what, scenario, name, Some(service));
                let (p99, mean) = (p99s.bar(service, name), means.bar(service, name));
                runner.time(&id("p99"), response.p99_ns, p99, Kind::Predicted, report);
                runner.time(&id("mean"), response.mean_ns, mean, Kind::Predicted, report);
            }
            // The inputs of scenario `window` were fitted to these means if the means are published.
            let kind = |published: Option<f64>| match published {
                Some(_) => fitted(scenario),
                None => Kind::Predicted,
            };
            let id = |what: &str| row_id(what, scenario, name, None);
            let (p99, mean) = (p99s.bar("mean", name), means.bar("mean", name));
            runner.p99(&id("p99"), p99, kind(p99), report);
            let mean_ns = report.across().map(|across| across.mean_ns);
            runner.time(&id("mean"), mean_ns, mean, kind(mean), report);
        }
    }

    /// Adds AccelFlow's reductions below the other architectures.
    fn cuts(&self) {
        let others = [
            (Architecture::NonAcc, 90.7, 77.2),
            (Architecture::CpuCentric, 81.2, 53.9),
            (Architecture::Relief, 68.8, 40.7),
            (Architecture::Cohort, 70.1, 37.9),
        ];
        for (other, p99, mean) in others {
            let id = |what: &str| row_id(what, self.scenario, other.name(), None);
            let pair = (Architecture::AccelFlow, other);
            self.cut(&id("p99_reduction"), pair, p99, true);
            self.cut(&id("mean_reduction"), pair, mean, false);
        }
    }

    /// Adds the reductions below RELIEF in figure 13, which adds one technique after the other.
    fn ablation(&self) {
        let steps = [
            (Architecture::PerTypeQueues, 6.8),
            (Architecture::Direct, 32.7),
            (Architecture::ControlFlow, 55.1),
            (Architecture::AccelFlow, 68.7),
        ];
        for (step, published) in steps {
            let id = row_id("ablation_reduction", self.scenario, step.name(), None);
            self.cut(&id, (step, Architecture::Relief), published, true);
        }
    }

    /// Adds the reduction of one architecture's percentile or mean below another's.
    fn cut(
        &self,
        id: &str,
        (lower, higher): (Architecture, Architecture),
        published: f64,
        percentile: bool,
    ) {
        let (Some(lower_report), Some(higher_report)) = (self.report(lower), self.report(higher))
        else {
            return;
        };
        let reduction = lower_report.reduction(higher_report);
        let cut = reduction.and_then(|cuts| if percentile { cuts.p99 } else { Some(cuts.mean) });
        let pair = (cut.map(|share| scaled(share, 100.0)), Some(published));
        let what = format!("{} below {}", lower.name(), higher.name());
        let reason = unavailable_reason(higher_report).or_else(|| unavailable_reason(lower_report));
        self.runner.add(id, &what, "%", fitted(self.scenario), pair, reason);
    }

    /// Adds how busy the servers of every architecture are, which shows where requests wait.
    fn stages(&self) {
        for (architecture, report) in &self.reports {
            for (name, fact) in STAGES {
                let id =
                    format!("{}.{name}", row_id("stage", self.scenario, architecture.name(), None));
                let busy = report.fact(fact).map(|share| scaled(share, 100.0));
                let what = format!("share of the time in which {name} work");
                self.runner.add(&id, &what, "%", Kind::Predicted, (busy, None), None);
            }
        }
    }

    /// Adds the share of ops that fall back to a core, the only event of section VII-B6 that follows from the model.
    fn events(&self) {
        let Some(report) = self.report(Architecture::AccelFlow) else { return };
        let id = format!("fallback_share.{}", self.scenario);
        let ours: Option<Interval> =
            report.fact("ops.fallback_share").map(|share| scaled(share, 100.0));
        let what = "section VII-B6: ops that fall back to a core";
        let (pair, reason) = ((ours, Some(1.4)), Some(OVERFLOW.to_owned()));
        self.runner.add(&id, what, "%", Kind::Predicted, pair, reason);
    }
}

/// The servers whose work is shown, each with its fact in a report. TCP's PEs are the busiest.
const STAGES: [(&str, &str); 3] = [
    ("cores", "cores.utilisation"),
    ("manager", "manager.utilisation"),
    ("tcp", "tcp.utilisation"),
];
const OVERFLOW: &str =
    "the size of the overflow area is not published: hardware.overflow_entries is assumed";
