//! Figure 15: interconnect, packet size and engine cache. The file also has the gains from decoupling and from several
//! requests in flight.

use sim::arcalis::SET_OVERHEAD_BYTES;

use super::runner::{Case, MEMC, Runner, WORKLOADS};
use super::speed::{ends, ordered};
use crate::base::Problem;
use crate::base::rows::{Kind, Row};

/// Adds the rows of figure 15a: interconnect latencies of 400 and 700 ns compared with 5 ns.
pub(super) fn interconnect(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    let at = |workload: &str, ns: u32| {
        let base = Case::new(workload);
        runner.slowdown(&base.clone().with(NEAR, ns), &base)
    };
    let mut add = |id: String, what: &str, published: Option<f64>, ours: f64| {
        let pair = (published, Some(ours));
        rows.push(match published {
            Some(_) => Row::modelled(&id, what, pair, "%", Kind::Calibrated).because(ONE_ACCESS),
            None => Row::modelled(&id, what, pair, "%", Kind::Predicted),
        });
    };
    for ns in [400, 700] {
        let (least, most) = ends(MEMC.map(|workload| at(workload, ns)))?;
        let figure = "figure 15a: a request's time against 5 ns, memcached";
        let (low, high) = if ns == 400 { (Some(8.0), 13.0) } else { (None, 21.0) };
        add(format!("slowdown.{ns}ns.memc.least"), figure, low, least);
        add(format!("slowdown.{ns}ns.memc.most"), figure, Some(high), most);
        let figure = "figure 15a: a request's time against 5 ns, printed as below";
        let bound = if ns == 400 { 7.0 } else { 10.0 };
        for workload in WORKLOADS.into_iter().filter(|name| !MEMC.contains(name)) {
            add(format!("slowdown.{ns}ns.{workload}"), figure, Some(bound), at(workload, ns)?);
        }
    }
    let (least, _) = ends(MEMC.map(|workload| at(workload, 400)))?;
    let others = ["post_low", "post_mid", "post_high", "unique_id"];
    let (_, most) = ends(others.map(|workload| at(workload, 400)))?;
    let what = "figure 15a: memcached is slowed down more than any other";
    let order = ordered("order.slowdown", what, [Ok(most), Ok(least)], |most, least| most < least)?;
    let alone = |workload: &str| {
        let base = Case::new(workload).with("run.window", 1);
        runner.slowdown(&base.clone().with(NEAR, 400), &base)
    };
    let (least, most) = ends(MEMC.map(alone))?;
    let what = "listing 1 as printed, one request in flight: 400 against 5 ns";
    add("slowdown.400ns.memc.one_request.least".to_owned(), what, None, least);
    add("slowdown.400ns.memc.one_request.most".to_owned(), what, None, most);
    rows.push(order.by(Kind::Calibrated).because(ONE_ACCESS));
    Ok(())
}

/// Adds the rows of figure 15b.
pub(super) fn packets(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    let case = |bytes: usize| {
        let value = bytes - SET_OVERHEAD_BYTES - KEY_BYTES;
        Case::new("memc_mid").with("shapes.key_bytes", KEY_BYTES).with("shapes.value_bytes", value)
    };
    let base = runner.per_s(&case(64))?;
    for (bytes, published) in [(512, 7.0), (1_024, 12.0), (1_518, 16.0)] {
        let ours = 100.0 * (1.0 - runner.per_s(&case(bytes))? / base);
        let id = format!("throughput_loss.packet_{bytes}");
        let what = "figure 15b: memcached, SET's packet; against 64 B, which is not said";
        let row = Row::modelled(&id, what, (Some(published), Some(ours)), "%", Kind::Calibrated);
        rows.push(if bytes == 1_518 { row } else { row.because(PER_BYTE) });
    }
    let losses = [64, 512, 1_024, 1_518].map(|bytes| runner.per_s(&case(bytes)));
    let what = "figure 15b: the larger, the slower";
    let order = ordered("order.packets", what, losses, |small, large| small > large)?;
    rows.push(order.by(Kind::Calibrated).because("any cost of a byte does so, and it is fitted"));
    let gain = runner.speedup(&case(1_518));
    let what = "VI-D: at 1,518 B memcached still gains over the CPU";
    let order = ordered("order.gain_at_1518_bytes", what, [Ok(1.0), gain], |one, gain| one < gain)?;
    rows.push(order.by(Kind::Calibrated).because("follows from fitted speedups and a fitted loss"));
    Ok(())
}

/// Adds the rows of figure 15c.
pub(super) fn cache(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    let ratio = |workload: &str, kib: u32| {
        let base = Case::new(workload);
        Ok(runner.per_s(&base.clone().with("engine.cache_kib", kib))? / runner.per_s(&base)?)
    };
    for (kib, published) in
        [(0, None), (16, None), (64, None), (128, None), (256, Some(1.0)), (2_048, Some(1.0))]
    {
        // The number of buffers was fitted to 256 KiB, and so that more changes nothing.
        let kind = if kib >= 256 { Kind::Calibrated } else { Kind::Predicted };
        let (least, most) = ends(WORKLOADS.map(|workload| ratio(workload, kib)))?;
        let what = "figure 15c: throughput over that with 512 KiB, the workload that differs most";
        let ours = if least < 1.0 { least } else { most };
        let id = format!("throughput_ratio.cache_{kib}_kib");
        rows.push(Row::modelled(&id, what, (published, Some(ours)), "times", kind));
    }
    let rises = WORKLOADS.map(|workload| ratio(workload, 0));
    let (_, most) = ends(rises)?;
    let what = "figure 15c: every workload gains by having a cache";
    let order = ordered("order.cache", what, [Ok(most), Ok(0.95)], |none, small| none < small)?;
    rows.push(order.by(Kind::Calibrated).because("follows from any cost of a miss"));
    Ok(())
}

/// Adds the rows on the decoupling of section IV-A.
pub(super) fn decoupling(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    let gain = |workload: &str, window: u32| {
        let base = Case::new(workload).with("run.window", window);
        runner.slowdown(&base.clone().with("engine.decoupled", "no"), &base)
    };
    let (least, most) = ends(WORKLOADS.map(|workload| gain(workload, 4)))?;
    for (end, ours) in [("least", least), ("most", most)] {
        let id = format!("decoupling_gain.{end}");
        let what = "IV-A: throughput of two engines that overlap over one at a time";
        rows.push(Row::modelled(&id, what, (None, Some(ours)), "%", Kind::Predicted));
    }
    let what = "IV-A: decoupled engines are faster, for every workload";
    let order = ordered("order.decoupling", what, [Ok(0.0), Ok(least)], |none, gain| none < gain)?;
    rows.push(order.by(Kind::Calibrated).because("follows from any overlap of the two engines"));
    Ok(())
}

/// The reason why figure 15a is no prediction.
pub(super) const ONE_ACCESS: &str = "follows from fitted values: one access more for each request, over the fitted \
     time of a request; `run.window` is 4 because 1 gave twice the printed slowdown";
/// The reason why the smaller packets of figure 15b are no predictions.
const PER_BYTE: &str = "follows from fitted values: the cost of a byte is fitted at 1,518 B, and the loss grows with \
     bytes";
pub(super) const NEAR: &str = "attachment.near_cache_ns";
const KEY_BYTES: usize = 8;
