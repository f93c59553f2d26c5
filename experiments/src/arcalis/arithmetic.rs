//! The results that follow from printed numbers by arithmetic: area, cycles, and the points at which \[Arcalis\]
//! contradicts itself. In a row of a contradiction, `published` is one printed number, and `ours` is the value that
//! other numbers of the paper give for it.

use super::speed::SPEEDUPS;
use crate::base::rows::{Kind, Row};

/// Returns the rows, each computed from printed inputs.
pub(super) fn rows() -> Vec<Row> {
    let what = "VI-E: unique_id's 3.33 times over the 1.4 that RpcNIC prints";
    let over_rpcnic = computed("over_rpcnic.unique_id", what, None, 3.33 / 1.4, "times");
    let agreeing = area().into_iter().chain(cycles()).chain([over_rpcnic]);
    agreeing.chain(contradictions()).collect()
}

fn area() -> [Row; 4] {
    let elements = (5_706.0_f64 / 4.0).max(5_609.0 / 8.0).max(32.0).ceil();
    let area = elements / 2_190.0 * 4.34;
    let row = |id, what, published, ours, unit| computed(id, what, Some(published), ours, unit);
    [
        computed(
            "area.elements",
            "VI-F: compute elements of 4 LUT, 8 FF, 1 CARRY8",
            None,
            elements,
            "1",
        ),
        row("area.engine", "VI-F: 4.34 mm2 hold 2,190 elements", 2.83, area, "mm2"),
        row("area.system", "VI-F: with eight cores", 26.35, 23.52 + area, "mm2"),
        computed(
            "area.share",
            "VI-F: the engine's of the system",
            None,
            100.0 * area / (23.52 + area),
            "%",
        ),
    ]
}

/// Returns the rows on the saved cycles. They follow from the speedups of figure 11a.
fn cycles() -> [Row; 2] {
    let cut = |speedup: f64| 100.0 * (1.0 - 1.0 / speedup);
    let least = SPEEDUPS.into_iter().fold(f64::INFINITY, f64::min);
    let most = SPEEDUPS.into_iter().fold(0.0, f64::max);
    let what = "VI-C: cycles saved; 1 - 1/speedup of figure 11a, so both are one measurement";
    [
        computed("cycles_saved.least", what, Some(44.2), cut(least), "%"),
        computed("cycles_saved.most", what, Some(76.0), cut(most), "%"),
    ]
}

/// Returns the rows of printed numbers that other printed numbers contradict.
fn contradictions() -> Vec<Row> {
    let row = |(id, what, published, ours, unit): &Contradiction| {
        computed(&format!("contradiction.{id}"), what, Some(*published), *ours, unit)
    };
    throughputs().iter().chain(&others()).map(row).collect()
}

/// A contradiction: id, description, the printed number, the value that other numbers give for it, and unit.
type Contradiction = (&'static str, &'static str, f64, f64, &'static str);

fn throughputs() -> [Contradiction; 6] {
    let (low_us, high_us) = (1e3 / 248.0, 1e3 / 258.0);
    let mid_per_s = 1e3 / f64::midpoint(low_us, high_us);
    // The CPU's time for a SET and for a GET follows from the mixes with 20 and 80 % SET.
    let (cpu_low_us, cpu_high_us) = (4.16 * low_us, 3.05 * high_us);
    let set_us = (4.0 * cpu_high_us - cpu_low_us) / 3.0;
    let get_us = (4.0 * cpu_low_us - cpu_high_us) / 3.0;
    [
        ("gain_least", GAIN, 2.5, 1.79, "times"),
        ("gain_most", GAIN, 3.3, 4.16, "times"),
        ("throughput_most", "VI-A: 74 to 247 k and, a sentence later, 258 k", 247.0, 258.0, "k/s"),
        ("throughput_memc_mid", MIX, 202.0, mid_per_s, "k/s"),
        ("get_over_set", GET_OVER_SET, 1.0, get_us / set_us, "times"),
        ("cpu_least", CPU_LEAST, 25.0, 74.0 / 1.79, "k/s"),
    ]
}

fn others() -> [Contradiction; 5] {
    let figure_15_ns = (1.0 / 0.84 - 1.0) * 4_950.0 / 1_454.0;
    let figure_16_ns = (1e3 / 0.91 - 1e3) / 32.0;
    [
        ("over_dagger", OVER_DAGGER, 1.62, 1.0 / 0.6, "times"),
        ("memc_same_mix", SAME_MIX, 1.0 / 0.84, 910.0 / 202.0, "times"),
        ("ns_per_byte", PER_BYTE, figure_15_ns, figure_16_ns, "ns/B"),
        ("slowdown_700ns", AT_700_NS, 21.0, 13.0 * 695.0 / 395.0, "%"),
        ("data_cache_accesses", DATA_CACHE, 48.6, 48.8, "%"),
    ]
}

fn computed(id: &str, what: &str, published: Option<f64>, ours: f64, unit: &'static str) -> Row {
    Row::modelled(id, what, (published, Some(ours)), unit, Kind::Computed)
}

const GAIN: &str = "VI-A: throughput gains 2.5 to 3.3 times, 'mirroring' speedups of 1.79 to 4.16";
const MIX: &str = "VI-A: 202 k at half SET, where 248 k and 258 k at 20 and 80 % leave one number";
const GET_OVER_SET: &str =
    "VI-A: SET is said to cost the CPU more; by these speedups and throughputs GET does";
const CPU_LEAST: &str =
    "VI-A: the CPU's least is 25 k; of the workloads with a printed throughput it is 74 k / 1.79";
const OVER_DAGGER: &str =
    "abstract: up to 1.62 times prior work; figure 16's pairs give 1.67, 1.52, 1.05, 0.98";
const SAME_MIX: &str =
    "figures 11b and 16: the same mix at 202 k and 910 k; packets cost at most 16 % (15b)";
const PER_BYTE: &str =
    "figure 15b: 16 % of 4.95 us for 1,454 B; figure 16: 32 B more take 1/0.91 - 1/1.00 us";
const AT_700_NS: &str = "VI-D: 13 % for 395 ns make 23 % for 695 ns";
const DATA_CACHE: &str = "VI-C: cut by 19.6 to 48.6 %, and in the next sentence by 48.8 %";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_and_cycles_give_the_printed_digits() {
        for row in area().into_iter().chain(cycles()) {
            let ours = row.ours.expect("computed");
            if let Some(published) = row.published {
                assert!((published - ours).abs() < 0.1, "{}: {published} {ours}", row.id);
            }
        }
    }

    #[test]
    fn contradictions_are_not_rounding_errors() {
        for row in contradictions() {
            let (published, ours) = (row.published.expect("printed"), row.ours.expect("computed"));
            assert!((published / ours - 1.0).abs() > 0.003, "{}: {published} {ours}", row.id);
        }
    }
}
