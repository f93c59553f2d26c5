//! The results that no model with the published inputs can give. Each row names the missing input.

use super::published::Published;
use crate::base::rows::Row;

/// Returns the rows of all unreachable results.
pub(super) fn rows(published: &Published) -> Vec<Row> {
    let mut rows = other_suites();
    rows.extend(generations(published));
    rows.extend(OTHERS.map(|(id, what, published, unit, reason)| {
        Row::unreachable(id, what, Some(published), unit, reason)
    }));
    rows
}

/// Returns the rows of figure 12 and section III on the suites other than SocialNetwork.
fn other_suites() -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, suite) in [("hotel", "HotelReservation"), ("media", "MediaServices")] {
        for per_s in [5_000, 10_000, 15_000] {
            let id = format!("p99.{name}.load_{per_s}");
            let what = format!("figure 12: {suite}");
            rows.push(Row::unreachable(&id, &what, None, "ms", SUITES));
        }
    }
    for (per_s, cut) in [(5_000, 55.1), (10_000, 60.9), (15_000, 68.3)] {
        let id = format!("p99_reduction.three_suites.relief.load_{per_s}");
        let what = "section VII-A1: AccelFlow below RELIEF, mean of the three suites of figure 12";
        rows.push(Row::unreachable(&id, what, Some(cut), "%", THREE_SUITES));
    }
    let what = "section III: sequences of accelerators with a condition";
    rows.push(Row::unreachable("conditions.train_ticket", what, Some(53.8), "%", PATHS));
    rows
}

/// Returns the rows of figure 20.
fn generations(published: &Published) -> Vec<Row> {
    let mut rows = Vec::new();
    for generation in &published.generations_ms.columns {
        let name = generation.replace('-', "_");
        for architecture in ["non-acc", "relief", "accelflow"] {
            let id = format!("p99.{name}.{}", architecture.replace('-', "_"));
            let p99_ms = published.generations_ms.bar(architecture, generation);
            rows.push(Row::unreachable(&id, "figure 20", p99_ms, "ms", GENERATIONS));
        }
    }
    for (generation, cut) in [("ice_lake", 68.8), ("emerald_rapids", 71.7)] {
        let id = format!("p99_reduction.{generation}.relief");
        let what = "section VII-C4: AccelFlow below RELIEF";
        rows.push(Row::unreachable(&id, what, Some(cut), "%", GENERATIONS));
    }
    rows
}

/// Unreachable results: id, description, published number, unit, and what is missing.
const OTHERS: [(&str, &str, f64, &str, &str); 11] = [
    ("p99_reduction.serverless.relief", "figure 16: serverless functions", 37.0, "%", SERVERLESS),
    (
        "timeouts_per_million",
        "section VII-B6: requests of a million whose TCP entry times out",
        3.2,
        "1",
        TIMEOUTS,
    ),
    (
        "page_faults_per_million",
        "section VII-B6: page faults a million instructions",
        0.13,
        "1",
        FAULTS,
    ),
    (
        "tlb_misses.data",
        "section VII-B6: a thousand instructions' first-level misses",
        3.4,
        "1",
        TLB,
    ),
    (
        "tlb_misses.instructions",
        "section VII-B6: a thousand instructions' first-level misses",
        0.6,
        "1",
        TLB,
    ),
    ("power.accelerators", "section VII-B5: maximum power", 12.5, "W", POWER),
    ("power.orchestration", "section VII-B5: maximum power", 5.0, "W", POWER),
    ("power_share.accelerators", "section VII-B5: of the server's maximum power", 3.1, "%", POWER),
    ("energy_reduction.non_acc", "section VII-B5: energy for 400 K requests", 74.0, "%", ENERGY),
    ("performance_per_watt_ratio.non_acc", "section VII-B5", 7.2, "times", ENERGY),
    ("performance_per_watt_ratio.relief", "section VII-B5", 2.1, "times", ENERGY),
];

const SUITES: &str = "missing: its services' times on a core and the shares of their categories (figure 1 has \
     SocialNetwork's only); their paths are in specs/services";
const THREE_SUITES: &str = "two of the three suites are missing: times and shares of their services; \
     SocialNetwork's own cut is in rows p99_reduction.steady.relief.load_";
const PATHS: &str = "missing: its services' paths through the traces; its suite is not among those whose code was read";
const SERVERLESS: &str = "missing: FunctionBench's functions as paths through accelerators, their times and \
     shares; the Azure trace is public";
const GENERATIONS: &str = "missing: how much faster each generation makes application and tax; the text says only \
     that tax gains less";
const TIMEOUTS: &str = "missing: the timeout (the text says `a specified timeout`) and how long other services take to \
     answer; the model has both as keys (work.timeout_ns, work.remote_ns), and with two free inputs any number comes \
     out; in the scenarios an answer comes at once, so their zero is an input";
const FAULTS: &str = "missing: how many instructions a request or an op executes; and faults are an input of the \
     model (hardware.page_fault_share), not a result";
const TLB: &str = "a model of stations has no addresses and no first-level TLBs; misses of the accelerators' own are \
     an input (hardware.tlb_miss_share)";
const POWER: &str = "McPAT's and the literature's estimates; their inputs are not published";
const ENERGY: &str =
    "missing: energies per access, and what the server draws under each architecture and load";

#[cfg(test)]
mod tests {
    use super::super::published::published;
    use super::*;

    #[test]
    fn every_row_says_what_is_missing() {
        let rows = rows(&published());
        assert_eq!(rows.iter().filter(|row| row.id.starts_with("p99.")).count(), 6 + 15);
        assert!(rows.iter().all(|row| row.ours.is_none() && row.reason.is_some()));
    }
}
