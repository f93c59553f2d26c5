//! Figure 16: Arcalis compared with the numbers that Dagger's paper prints. The file also simulates our
//! engine with the attachments of other engines. Dagger and RpcNIC themselves are not simulated.

use sim::arcalis::Attachment;

use super::runner::{Case, Runner, WORKLOADS};
use super::speed::{ends, ordered};
use crate::base::Problem;
use crate::base::rows::{Kind, Row};

/// Adds the rows of figure 16.
pub(super) fn dagger(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    let case = |mix: &str, small: bool| {
        let (key, value) = if small { (16, 32) } else { (8, 8) };
        Case::dagger(mix).with("shapes.key_bytes", key).with("shapes.value_bytes", value)
    };
    let bars = [
        ("set_50.tiny", case("set_50", false), 0.6, 1.67, Kind::Calibrated),
        ("set_50.small", case("set_50", true), 0.6, 1.52, Kind::Calibrated),
        ("set_05.tiny", case("set_05", false), 1.5, 1.05, Kind::Calibrated),
        ("set_05.small", case("set_05", true), 1.5, 0.98, Kind::Calibrated),
    ];
    for (name, case, theirs, published, kind) in &bars {
        let ours = runner.per_s(case)? * 1e-6 / theirs;
        let id = format!("over_dagger.{name}");
        let what = format!("figure 16: throughput over the {theirs} M/s that Dagger prints");
        let row = Row::modelled(&id, &what, (Some(*published), Some(ours)), "times", *kind);
        rows.push(if *name == "set_05.small" { row.because(OTHER_BARS) } else { row });
    }
    let over = runner.per_s(&bars[3].1)? * 1e-6 / 1.5;
    let what = "figure 16: memc_small at SET 0.05 is the one that Dagger wins";
    let order = ordered("order.over_dagger.set_05.small", what, [Ok(over), Ok(1.0)], |a, b| a < b)?;
    rows.push(order.by(Kind::Calibrated).because(OTHER_BARS));
    let writes = runner.per_s(&bars[1].1)? * 1e-6 / 0.6;
    let what = "figure 16: what is gained over Dagger is gained where there are writes, memc_small";
    let order = ordered("order.over_dagger.writes", what, [Ok(over), Ok(writes)], |a, b| a < b)?;
    rows.push(order.by(Kind::Calibrated).because(OTHER_BARS));
    for (name, case, ..) in &bars {
        let ours = runner.per_s(case)? / runner.per_s(&case.clone().at(Attachment::Upi))?;
        let id = format!("near_cache_over_upi.{name}");
        let what =
            "our engine near the cache over the same at 400 ns; Dagger batches, this does not";
        rows.push(Row::modelled(&id, what, (None, Some(ours)), "times", Kind::Predicted));
    }
    Ok(())
}

/// Adds the speedups at the other attachments, their order, and whether there is still a gain at 700 ns.
pub(super) fn attachments(runner: &Runner, rows: &mut Vec<Row>) -> Result<(), Problem> {
    for attachment in [Attachment::OnChip, Attachment::Upi, Attachment::Pcie] {
        for workload in WORKLOADS {
            let ours = runner.speedup(&Case::new(workload).at(attachment))?;
            let id = format!("speedup.{workload}.{}", attachment.name().replace('-', "_"));
            let what = "our engine elsewhere, over one core";
            rows.push(Row::modelled(&id, what, (None, Some(ours)), "times", Kind::Predicted));
        }
    }
    let steps = |workload: &str| -> Result<f64, Problem> {
        let speedups = Attachment::ENGINES
            .map(|attachment| runner.speedup(&Case::new(workload).at(attachment)));
        let speedups = speedups.into_iter().collect::<Result<Vec<f64>, Problem>>()?;
        Ok(speedups.windows(2).map(|pair| pair[0] - pair[1]).fold(f64::INFINITY, f64::min))
    };
    let (least, _) = ends(WORKLOADS.map(steps))?;
    let what = "sections I and VI-D: the nearer the faster, for every workload";
    let order = ordered("order.attachment", what, [Ok(0.0), Ok(least)], |none, step| none < step)?;
    rows.push(
        order.by(Kind::Calibrated).because("follows from any latency: more of it takes longer"),
    );
    let (least, _) =
        ends(WORKLOADS.map(|workload| {
            runner.speedup(&Case::new(workload).with(super::sensitivity::NEAR, 700))
        }))?;
    let what = "VI-D: at 700 ns every workload still gains over the CPU";
    let order = ordered("order.gain_at_700ns", what, [Ok(1.0), Ok(least)], |one, gain| one < gain)?;
    rows.push(order.by(Kind::Calibrated).because(super::sensitivity::ONE_ACCESS));
    Ok(())
}

/// The reason why the fourth bar of figure 16 is no prediction.
const OTHER_BARS: &str =
    "follows from fitted values: the three other bars fix the cost of a SET, a GET and a byte";
