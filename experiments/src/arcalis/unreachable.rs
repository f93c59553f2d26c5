//! The results that our models, arithmetic and measurements cannot give. Each row has the reason.

use crate::base::rows::Row;

/// An unreachable result: id, description, published number, unit, and the reason.
type Missing = (&'static str, &'static str, f64, &'static str, &'static str);

const MISSING: [Missing; 13] = [
    ("instruction_cache_accesses_saved.least", "figure 13", 61.0, "%", FETCH),
    ("instruction_cache_accesses_saved.most", "figure 13", 87.2, "%", FETCH),
    ("load_to_use_saved.least", "figure 13", 63.1, "%", CORE),
    ("load_to_use_saved.most", "figure 13", 88.0, "%", CORE),
    ("instruction_cache_stalls_saved.least", "figure 13", 60.5, "%", CORE),
    ("instruction_cache_stalls_saved.most", "figure 13", 86.1, "%", CORE),
    ("slots_retiring.most", "figure 5a: pipeline slots that retire", 47.9, "%", SLOTS),
    ("slots_lost.most", "abstract: pipeline slots lost", 67.6, "%", SLOTS),
    ("cycles_on_memory.most", "III-A: cycles that wait for memory", 12.0, "%", SLOTS),
    ("network_time.kernel_over_dpdk", "figure 6", 3.38, "times", HOST),
    ("power.all", "VI-F", 379.0, "mW", POWER),
    ("power.dynamic", "VI-F", 263.0, "mW", POWER),
    ("speedup.rpcnic.unique_id", "VI-E: what RpcNIC prints", 1.4, "times", RPCNIC),
];

/// Returns the rows of all unreachable results.
pub(super) fn rows() -> impl Iterator<Item = Row> {
    MISSING.into_iter().map(|(id, what, published, unit, reason)| {
        Row::unreachable(id, what, Some(published), unit, reason)
    })
}

const CORE: &str = "neither a model of stations nor callgrind has a pipeline that waits";
const FETCH: &str = "callgrind has no fetch buffer: each of its instructions is an access";
const SLOTS: &str = "needs the counters of the paper's host";
const HOST: &str = "a profile of the paper's host; ours has no card that DPDK drives";
const POWER: &str = "a synthesis tool's estimate; nothing to compute it from";
const RPCNIC: &str = "its split between host and card is not published with its costs";
