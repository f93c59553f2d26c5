//! The numbers that \[AccelFlow\] prints, read from `specs/sim/accelflow-published.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The numbers of the paper's figures.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    pub(super) p99_ms: Figure,
    pub(super) mean_ms: Figure,
    pub(super) ablation_ms: Figure,
    pub(super) throughput_krps: Figure,
    pub(super) chiplets_ms: Figure,
    pub(super) pes_ms: Figure,
    pub(super) relief_apps_ratio: Figure,
    pub(super) overhead_percent: Figure,
    pub(super) loads_ms: Figure,
    pub(super) generations_ms: Figure,
}

/// The bars of one figure, by service or architecture, and by column.
#[derive(Debug, Deserialize)]
pub(super) struct Figure {
    pub(super) columns: Vec<String>,
    #[serde(flatten)]
    bars: BTreeMap<String, Vec<f64>>,
}

impl Figure {
    /// Returns the bar of a service, or of `mean`, in a column.
    pub(super) fn bar(&self, service: &str, column: &str) -> Option<f64> {
        let at = self.columns.iter().position(|name| name == column)?;
        self.bars.get(service)?.get(at).copied()
    }

    /// Returns by how much the bar in `column` is lower than the bar in `below`, for the same service (%).
    pub(super) fn cut(&self, service: &str, column: &str, below: &str) -> Option<f64> {
        Some(100.0 * (1.0 - self.bar(service, column)? / self.bar(service, below)?))
    }
}

/// Returns the published numbers. They are compiled in.
pub(super) fn published() -> Published {
    toml::from_str(include_str!("../../../specs/sim/accelflow-published.toml"))
        .expect("a test reads it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_cuts_are_ratios_of_the_mean_bars() {
        let p99 = published().p99_ms;
        for (other, cut) in
            [("non-acc", 90.7), ("cpu-centric", 81.2), ("relief", 68.8), ("cohort", 70.1)]
        {
            let found = p99.cut("mean", "accelflow", other).expect("two bars");
            assert!((found - cut).abs() < 0.1, "{other}: {found}");
        }
        let all = published();
        let ablation = [("per-type-queues", 6.7), ("direct", 32.7), ("control-flow", 55.1)];
        for (step, cut) in ablation {
            let found = all.ablation_ms.cut("mean", step, "relief").expect("two bars");
            assert!((found - cut).abs() < 0.1, "{step}: {found}");
        }
        assert_eq!(all.ablation_ms.bar("Login", "direct"), Some(5.908));
        assert_eq!(all.throughput_krps.bar("mean", "ideal"), Some(56.105));
        assert_eq!(all.pes_ms.bar("UniqId", "36"), Some(0.39));
        assert_eq!(all.chiplets_ms.bar("nobody", "1"), None);
        assert_eq!(all.overhead_percent.bar("direct", "15000"), Some(4.0));
        assert_eq!(all.generations_ms.bar("relief", "emerald-rapids"), Some(3.58));
    }
}
