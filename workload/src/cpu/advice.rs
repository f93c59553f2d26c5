//! Suggests improvements for the findings of a profile, from \[Accelerometer\] table 4. A suggestion is
//! listed if its category has a large share of the weight. Suggestions are texts for a person.

use super::breakdown::{Category, CpuProfile, Sums};

/// One finding and its suggestion.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The finding as text, with its numbers.
    pub finding: String,
    /// The suggestion of \[Accelerometer\] table 4 for the finding.
    pub opportunity: &'static str,
}

/// Returns the findings of a profile, in the order of table 4. A share is significant if it is at least 5 % of all
/// weight, or 40 % for orchestration. An IPC is poor if it is below three quarters of the whole profile's IPC.
/// \[Accelerometer\] gives no thresholds.
pub fn advice(profile: &CpuProfile) -> Vec<Advice> {
    let mut found = Vec::new();
    orchestration(profile, &mut found);
    poor_ipc(profile, &mut found);
    let counted = if profile.counts_cycles { "cycles" } else { &profile.event };
    for (category, parts, name, opportunity) in BY_SHARE {
        let sums = significant(profile, category, parts);
        if let Some(share) = sums.map(|sums| profile.share(sums)) {
            let finding = format!("{name}: {} of all {counted}", percent(share));
            found.push(Advice { finding, opportunity });
        }
    }
    found
}

fn orchestration(profile: &CpuProfile, found: &mut Vec<Advice>) {
    let categories = &profile.functionality.categories;
    let orchestrating = categories.iter().filter(|one| !CORE.contains(&one.name.as_str()));
    let orchestrating: Vec<&Category> = orchestrating.collect();
    let share: f64 = orchestrating.iter().map(|one| profile.share(one.sums)).sum();
    if share < ORCHESTRATION {
        return;
    }
    found.push(Advice {
        finding: format!("orchestration rather than application logic: {}", percent(share)),
        opportunity: "software and hardware acceleration for orchestration, not for application \
                      logic alone",
    });
    let common = orchestrating.iter().filter(|one| profile.share(one.sums) >= SIGNIFICANT);
    let names: Vec<&str> = common.map(|one| one.name.as_str()).collect();
    if names.len() > 1 {
        found.push(Advice {
            finding: format!("several orchestration overheads: {}", names.join(", ")),
            opportunity: "accelerating overheads that services share can win fleet-wide",
        });
    }
}

fn poor_ipc(profile: &CpuProfile, found: &mut Vec<Advice>) {
    let Some(whole) = profile.ipc(profile.total) else { return };
    let all = profile.leaf.categories.iter().chain(&profile.functionality.categories);
    let significant = all.filter(|one| profile.share(one.sums) >= SIGNIFICANT);
    let poor = significant.filter_map(|one| {
        let ipc = profile.ipc(one.sums).filter(|ipc| *ipc < POOR * whole)?;
        Some(format!("{} {ipc:.2}", one.name))
    });
    let poor: Vec<String> = poor.collect();
    if !poor.is_empty() {
        let finding = format!("poor IPC against {whole:.2} on the whole: {}", poor.join(", "));
        found.push(Advice { finding, opportunity: "optimisations for these categories" });
    }
}

/// Returns the sums of a category, or only of its `parts` if any are named. Returns none if the sums are not
/// significant. The category is looked up first in the leaf table, then among the functionalities.
fn significant(profile: &CpuProfile, category: &str, parts: &[&str]) -> Option<Sums> {
    let found = profile.leaf.find(category).or_else(|| profile.functionality.find(category))?;
    let mut sums = if parts.is_empty() { found.sums } else { Sums::default() };
    for (name, part) in &found.parts {
        if parts.contains(&name.as_str()) {
            sums.add(*part);
        }
    }
    (profile.share(sums) >= SIGNIFICANT).then_some(sums)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

const SIGNIFICANT: f64 = 0.05;
const ORCHESTRATION: f64 = 0.4;
const POOR: f64 = 0.75;

/// The functionalities that are not orchestration (\[Accelerometer\] section 2.4).
const CORE: [&str; 3] = ["Application logic", "Prediction/ranking", "Feature extraction"];

/// Table 4 from its fourth row on. Each row has a category, parts of the category, a name for the finding, and the
/// suggestion.
const BY_SHARE: [(&str, &[&str], &str, &str); 7] = [
    (
        "Memory",
        &["copy", "move", "allocation"],
        "memory copies and allocations",
        "dense copies via SIMD, copying in DRAM, I/O acceleration, DMA via accelerators, processing \
         in memory",
    ),
    (
        "Memory",
        &["free"],
        "memory frees",
        "faster software libraries (sized deallocation), hardware support to remove pages",
    ),
    (
        "Kernel",
        &[],
        "kernel",
        "coalesce I/O, user-space drivers, in-line accelerators, kernel bypass",
    ),
    ("Logging", &[], "logging", "reduce log size or the number of updates"),
    (
        "Compression",
        &[],
        "compression",
        "dedicated compression hardware, bit-plane or buddy compression",
    ),
    (
        "Synchronization",
        &[],
        "synchronization",
        "better thread pool tuning and scheduling, transactional memory, coalesce I/O, vDSO",
    ),
    (
        "Kernel",
        &["event"],
        "event notification",
        "RDMA-style notification, hardware support for notifications, spin or block hybrids",
    ),
];
