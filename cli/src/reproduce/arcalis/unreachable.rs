//! Results that neither the timed model nor arithmetic can give, each with why.

use crate::reproduce::rows::Row;

/// Identity, what it is, published number, unit, why not.
type Missing = (&'static str, &'static str, f64, &'static str, &'static str);

const MISSING: [Missing; 22] = [
    ("instructions_saved.least", "figure 13", 65.4, "%", CORE),
    ("instructions_saved.most", "figure 13", 85.7, "%", CORE),
    ("instruction_cache_accesses_saved.least", "figure 13", 61.0, "%", CORE),
    ("instruction_cache_accesses_saved.most", "figure 13", 87.2, "%", CORE),
    ("data_cache_accesses_saved.least", "figure 13", 19.6, "%", CORE),
    ("data_cache_accesses_saved.most", "figure 13", 48.6, "%", CORE),
    ("load_to_use_saved.least", "figure 13", 63.1, "%", CORE),
    ("load_to_use_saved.most", "figure 13", 88.0, "%", CORE),
    ("instruction_cache_stalls_saved.least", "figure 13", 60.5, "%", CORE),
    ("instruction_cache_stalls_saved.most", "figure 13", 86.1, "%", CORE),
    ("l1i_mpki.cpu.most", "figure 14: without Arcalis", 32.8, "1", CORE),
    ("l1i_mpki.arcalis.most", "figure 14: with Arcalis", 28.3, "1", CORE),
    ("l1d_mpki.cpu.most", "figure 14: without Arcalis", 13.3, "1", CORE),
    ("l1d_mpki.arcalis.most", "figure 14: with Arcalis", 25.5, "1", CORE),
    ("slots_retiring.most", "figure 5a: pipeline slots that retire", 47.9, "%", SLOTS),
    ("slots_lost.most", "abstract: pipeline slots lost", 67.6, "%", SLOTS),
    ("cycles_on_memory.most", "III-A: cycles that wait for memory", 12.0, "%", SLOTS),
    ("network_share.kernel", "figure 6: time in kernel networking", 50.0, "%", HOST),
    ("network_time.kernel_over_dpdk", "figure 6", 3.38, "times", HOST),
    ("power.all", "VI-F", 379.0, "mW", POWER),
    ("power.dynamic", "VI-F", 263.0, "mW", POWER),
    ("speedup.rpcnic.unique_id", "VI-E: what RpcNIC prints", 1.4, "times", RPCNIC),
];

pub(super) fn rows() -> impl Iterator<Item = Row> {
    MISSING.into_iter().map(|(id, what, published, unit, reason)| {
        Row::unreachable(id, what, Some(published), unit, reason)
    })
}

const CORE: &str = "a core's instructions, caches and stalls are not in a model of stations";
const SLOTS: &str = "needs the counters of the seed's host";
const HOST: &str = "a profile of the seed's host and its network card";
const POWER: &str = "a synthesis tool's estimate; nothing to compute it from";
const RPCNIC: &str = "its split between host and card is not published with its costs";
