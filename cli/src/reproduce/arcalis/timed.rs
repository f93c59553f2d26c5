//! Where the CPU time of a request goes, as the document's figure 6 asks: network, RPC layer and business logic of our
//! service on one thread, over TCP on loopback. Stock Thrift is asked the same by `bench/rpc_cycles.py`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use load::rpc::{Mix, RpcSpec};
use server::rpc::{RpcListen, RpcOptions, RpcServer, RpcService};
use units::{Nanos, SystemClock};

use crate::reproduce::rows::Row;

/// A request's CPU time (ns): network, RPC layer, business logic.
type Stages = [f64; 3];

const STAGES: [&str; 3] = ["network", "rpc", "handler"];
/// And the share of its requests that are sets (%).
const WORKLOADS: [(&str, u32); 3] = [("memc_low", 20), ("memc_mid", 50), ("memc_high", 80)];

/// The rows; none if `stop` is set before they are whole.
///
/// # Errors
/// Why the service or its load did not run.
pub(super) fn rows(quick: bool, stop: &AtomicBool) -> Result<Vec<Row>, String> {
    let (runs, duration) =
        if quick { (1, Nanos(100_000_000)) } else { (RUNS, Nanos(1_000_000_000)) };
    let mut found = WORKLOADS.map(|_| Vec::new());
    for _ in 0..runs {
        for ((workload, _), found) in WORKLOADS.into_iter().zip(&mut found) {
            let stages = one(workload, duration, stop)?;
            if stop.load(Ordering::Relaxed) {
                return Ok(Vec::new());
            }
            found.push(stages);
        }
    }
    Ok(as_rows(&found))
}

fn as_rows(found: &[Vec<Stages>; 3]) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((workload, sets), runs) in WORKLOADS.into_iter().zip(found) {
        for (place, stage) in STAGES.into_iter().enumerate() {
            let what = format!("SET {sets} %: CPU time of our one thread, {stage}");
            let mut row = |id: &str, unit, values: Vec<f64>| {
                let id = format!("{id}.{workload}.{stage}");
                rows.push(Row::of(id, what.clone(), unit, values, Vec::new(), None));
            };
            row("time", "ns", runs.iter().map(|run| run[place]).collect());
            row("share", "%", runs.iter().map(|run| share(run, place)).collect());
        }
    }
    let network = found.iter().flatten().map(|run| share(run, 0));
    let what = "figure 6: the kernel's network, of all CPU time; ours at all three ratios";
    let row = Row::of(NETWORK.into(), what.into(), "%", network, Vec::new(), Some(OURS.into()));
    rows.push(row.beside(50.0));
    rows
}

fn share(run: &Stages, place: usize) -> f64 {
    100.0 * run[place] / run.iter().sum::<f64>()
}

/// A service of its own under load for so long.
fn one(workload: &str, duration: Nanos, stop: &AtomicBool) -> Result<Stages, String> {
    let options = RpcOptions { time_stages: true, ..RpcOptions::new(RpcService::Memcached) };
    let listen = RpcListen { address: ([127, 0, 0, 1], 0).into(), connections_max: CONNECTIONS };
    let server = RpcServer::start(&options, &listen, Arc::new(SystemClock::new()));
    let server = server.map_err(|error| error.to_string())?;
    let mix = Mix::named(workload).ok_or_else(|| format!("no workload {workload}"))?;
    let address = server.address();
    let spec =
        RpcSpec { address, connections: CONNECTIONS, duration, requests: None, mix, seed: 1 };
    load::rpc::run(&spec, stop).map_err(|error| error.to_string())?;
    let requests = server.counts().requests as f64;
    let stages = server.stop().map_err(|error| error.to_string())?;
    Ok([stages.network_ns, stages.engine_ns, stages.handler_ns].map(|ns| ns as f64 / requests))
}

const RUNS: usize = 5;
const CONNECTIONS: usize = 4;
const NETWORK: &str = "network_share.kernel";
const OURS: &str = "ours is this service, the document's is Thrift's on its host";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::rows::Kind;

    #[test]
    fn shares_are_of_each_run_and_the_networks_stands_beside_the_documents() {
        let runs = |network| vec![[network, 30.0, 10.0]; 5];
        let rows = as_rows(&[runs(60.0), runs(60.0), runs(160.0)]);
        let ours = |id: &str| rows.iter().find(|row| row.id == id).and_then(|row| row.ours);
        assert_eq!(ours("time.memc_high.network"), Some(160.0));
        assert_eq!(ours("share.memc_low.rpc"), Some(30.0));
        assert_eq!(ours("share.memc_high.network"), Some(80.0));
        let network = rows.iter().find(|row| row.id == NETWORK).expect("it is there");
        assert_eq!((network.published, network.ours), (Some(50.0), Some(60.0)));
        assert_eq!(network.kind, Kind::Measured);
    }

    #[test]
    fn a_service_under_load_says_where_its_time_goes() {
        let stages = one("memc_mid", Nanos(20_000_000), &AtomicBool::new(false)).expect("it runs");
        assert!(stages.iter().all(|ns| ns.is_finite() && *ns > 0.0), "{stages:?}");
    }
}
