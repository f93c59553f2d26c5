//! A scenario under every architecture: response times, by how much AccelFlow is below the others, the ablation, and
//! the rare events. Figures 11 and 13, and what section VII-B6 counts.

use sim::accelflow::Architecture;
use sim::{Entries, Interval, Report};

use super::lab::{Lab, fitted, row_id, scaled, why_not};
use crate::base::Problem;
use crate::base::rows::Kind;

/// A scenario's reports, by architecture.
pub(super) struct Compared<'a> {
    pub(super) lab: &'a Lab,
    pub(super) scenario: &'a str,
    reports: Vec<(Architecture, Report)>,
}

impl Lab {
    /// Every architecture in a scenario.
    pub(super) fn scenario(&self, scenario: &str, base: &Entries) -> Result<(), Problem> {
        let mut reports = Vec::new();
        for architecture in Architecture::ALL {
            reports.push((architecture, self.simulate(base, architecture, &[])?));
        }
        let compared = Compared { lab: self, scenario, reports };
        compared.times();
        compared.cuts();
        compared.ablation();
        compared.orders();
        compared.events();
        Ok(())
    }
}

impl Compared<'_> {
    pub(super) fn report(&self, architecture: Architecture) -> Option<&Report> {
        self.reports.iter().find(|(own, _)| *own == architecture).map(|(_, report)| report)
    }

    /// Figures 11 and 13.
    fn times(&self) {
        let (lab, scenario) = (self.lab, self.scenario);
        for (architecture, report) in &self.reports {
            let name = architecture.name();
            let in_figure_11 = lab.published.p99_ms.columns.iter().any(|own| own == name);
            let p99s =
                if in_figure_11 { &lab.published.p99_ms } else { &lab.published.ablation_ms };
            let means = &lab.published.mean_ms;
            for response in &report.responses {
                let service = &response.name;
                let id = |what: &str| row_id(what, scenario, name, Some(service));
                let (p99, mean) = (p99s.bar(service, name), means.bar(service, name));
                lab.time(&id("p99"), response.p99_ns, p99, Kind::Predicted, report);
                lab.time(&id("mean"), response.mean_ns, mean, Kind::Predicted, report);
            }
            // What the window's inputs were fitted to are these means, where they are published.
            let kind = |bar: Option<f64>| match bar {
                Some(_) => fitted(scenario),
                None => Kind::Predicted,
            };
            let id = |what: &str| row_id(what, scenario, name, None);
            let (p99, mean) = (p99s.bar("mean", name), means.bar("mean", name));
            lab.p99(&id("p99"), p99, kind(p99), report);
            let found = report.across().map(|across| across.mean_ns);
            lab.time(&id("mean"), found, mean, kind(mean), report);
        }
    }

    /// By how much AccelFlow is below the others.
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

    /// Figure 13's cuts below RELIEF, one technique after the other.
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

    /// By how much one architecture's percentile or mean is below another's.
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
        let found = lower_report.reduction(higher_report);
        let found = found.and_then(|own| if percentile { own.p99 } else { Some(own.mean) });
        let found = found.map(|own| scaled(own, 100.0));
        let what = format!("{} below {}", lower.name(), higher.name());
        let reason = why_not(higher_report).or_else(|| why_not(lower_report));
        self.lab.add(id, &what, "%", fitted(self.scenario), (found, Some(published)), reason);
    }

    /// Section VII-B6, as far as the model has it.
    fn events(&self) {
        let Some(report) = self.report(Architecture::AccelFlow) else { return };
        let events: [(&str, &str, &str, f64, f64, &str); 2] = [
            ("fallback_share", "ops.fallback_share", "%", 100.0, 1.4, OVERFLOW),
            ("timeouts_per_million", "timeouts_per_million", "1", 1.0, 3.2, TIMEOUTS),
        ];
        for (what, fact, unit, by, published, reason) in events {
            let id = format!("{what}.{}", self.scenario);
            let found: Option<Interval> = report.fact(fact).map(|own| scaled(own, by));
            let what = "section VII-B6: high-overhead events";
            let pair = (found, Some(published));
            self.lab.add(&id, what, unit, Kind::Predicted, pair, Some(reason.to_owned()));
        }
    }
}

const OVERFLOW: &str =
    "the size of the overflow area is not published: hardware.overflow_entries is assumed";
const TIMEOUTS: &str = "neither the timeout nor what another service takes to answer is published; in both scenarios \
     work.remote_ns is 0, an answer comes at once, and nothing times out";
