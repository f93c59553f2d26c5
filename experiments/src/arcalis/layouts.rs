//! Replays the workloads' packets through the functional engine in this process, once with the engine and the handlers
//! on one core (inline) and once with the engine on a core of its own (two-thread). Both have two cores, so inline runs
//! twice at the same time. No network takes part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use load::rpc::{Mix, Recording};
use rpc_server::RpcLayout;

use super::runner::WORKLOADS;
use crate::base::rows::Row;
use crate::rpc::replay::{Plan, run};
use crate::rpc::{Quantity, Replayed};

const LAYOUTS: [(RpcLayout, &str); 2] = [
    (RpcLayout::Inline, "engine and handlers on one core, twice"),
    (RpcLayout::TwoThread, "the engine on a core of its own"),
];

/// A quantity, its name in ids, words for people, and the unit.
const QUANTITIES: [(Quantity, &str, &str, &str); 2] = [
    (Quantity::Rate, "rate", "requests of both cores, 16 in flight in each copy", "1/s"),
    (Quantity::P50, "p50", "median time of a request that is alone", "ns"),
];

/// Returns the rows. They have a reason instead of numbers where the machine has fewer than two cores. Returns no rows
/// if `stop` is set before they are complete.
pub(super) fn rows(quick: bool, stop: &AtomicBool) -> Vec<Row> {
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        for (window, (quantity, name, what, unit)) in WINDOWS.into_iter().zip(QUANTITIES) {
            if stop.load(Ordering::Relaxed) {
                return Vec::new();
            }
            let replayed = replayed(workload, window, quick);
            for (layout, words) in LAYOUTS {
                let id = format!("layout.{}.{workload}.{name}", layout.name());
                let (values, reason) = match &replayed {
                    Ok(replayed) => (replayed.runs(layout, quantity), None),
                    Err(reason) => (&[][..], Some(reason.clone())),
                };
                let values = values.iter().copied();
                let what = format!("{words}: {what}");
                rows.push(Row::from_values(id, what, unit, values, Vec::new(), reason));
            }
        }
    }
    rows
}

fn replayed(workload: &str, window: usize, quick: bool) -> Result<Replayed, String> {
    let mix = Mix::named(workload).ok_or_else(|| format!("no workload {workload}"))?;
    let recording = Recording::from_mix(&mix, RECORDED, 1).map_err(|error| error.to_string())?;
    let mut plan = Plan::new(Arc::new(recording), LAYOUTS.map(|(layout, _)| layout).to_vec());
    plan.window = window;
    plan.requests = if quick { 2_000 } else { 200_000 };
    plan.runs = if quick { 1 } else { 5 };
    let replayed = run(&plan).map_err(|error| error.to_string())?;
    Ok(replayed)
}

/// The requests in flight when a rate and when a time is measured.
const WINDOWS: [usize; 2] = [16, 1];
/// The number of requests of a recording, which is repeated.
const RECORDED: usize = 10_000;
