//! Measures how the CPU time of a request is divided, as in \[Arcalis\] figure 6: network, RPC layer and business
//! logic. Our service runs on one thread and uses TCP on loopback. It has its own core if the machine has more than
//! one. `bench/rpc_cycles.py` measures the same for stock Thrift.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use load::rpc::{Mix, RpcReport, RpcSpec};
use rpc_server::{RpcCores, RpcListen, RpcOptions, RpcServer, RpcService, allowed_cores};
use rustix::thread::{CpuSet, sched_setaffinity};
use units::{Nanos, SystemClock};

use crate::base::rows::Row;

/// The time of a request in each stage (ns): network, RPC layer, business logic.
type Stages = [f64; 3];

const STAGES: [(&str, &str); 3] = [
    ("network", "CPU time of our one thread, less the others"),
    ("rpc", "time elapsed from a whole frame to its answer, less our handler's"),
    ("handler", "time elapsed in our handler"),
];
/// The workloads, each with its share of requests that are sets (%).
const WORKLOADS: [(&str, u32); 3] = [("memc_low", 20), ("memc_mid", 50), ("memc_high", 80)];

/// Returns the rows. They have a reason instead of numbers if the service or its load did not run. Returns no rows if
/// `stop` is set before they are complete.
pub(super) fn rows(quick: bool, stop: &AtomicBool) -> Vec<Row> {
    match measured(quick, stop) {
        _ if stop.load(Ordering::Relaxed) => Vec::new(),
        Ok(runs) => as_rows(&runs, None),
        Err(reason) => as_rows(&WORKLOADS.map(|_| Vec::new()), Some(&reason)),
    }
}

/// Measures each workload several times and returns its runs.
fn measured(quick: bool, stop: &AtomicBool) -> Result<[Vec<Stages>; 3], String> {
    let (runs, duration) =
        if quick { (1, Nanos(100_000_000)) } else { (RUNS, Nanos(1_000_000_000)) };
    let mut measured = WORKLOADS.map(|_| Vec::new());
    for _ in 0..runs {
        for ((workload, _), runs) in WORKLOADS.into_iter().zip(&mut measured) {
            if !stop.load(Ordering::Relaxed) {
                runs.push(one(workload, duration, stop)?);
            }
        }
    }
    Ok(measured)
}

fn as_rows(measured: &[Vec<Stages>; 3], reason: Option<&str>) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((workload, sets), runs) in WORKLOADS.into_iter().zip(measured) {
        for (index, (stage, words)) in STAGES.into_iter().enumerate() {
            let what = format!("SET {sets} %: {words}");
            let mut row = |id: &str, unit, values: Vec<f64>| {
                let id = format!("{id}.{workload}.{stage}");
                let reason = reason.map(str::to_owned);
                rows.push(Row::from_values(id, what.clone(), unit, values, Vec::new(), reason));
            };
            row("time", "ns", runs.iter().map(|run| run[index]).collect());
            row("share", "%", runs.iter().map(|run| share(run, index)).collect());
        }
    }
    let network = measured.iter().flatten().map(|run| share(run, 0));
    let what = "figure 6: the kernel's network, of all CPU time; ours at all three ratios";
    let reason = Some(reason.unwrap_or(OURS).to_owned());
    rows.push(
        Row::from_values(NETWORK.into(), what.into(), "%", network, Vec::new(), reason)
            .beside(50.0),
    );
    rows
}

fn share(run: &Stages, index: usize) -> f64 {
    100.0 * run[index] / run.iter().sum::<f64>()
}

/// Starts a service, loads it for `duration`, and returns the time of a request in each stage.
fn one(workload: &str, duration: Nanos, stop: &AtomicBool) -> Result<Stages, String> {
    let (cores, load_cores) = separate_cores()?;
    let options = RpcOptions { time_stages: true, cores, ..RpcOptions::new(RpcService::Memcached) };
    let listen = RpcListen { address: ([127, 0, 0, 1], 0).into(), connections_max: CONNECTIONS };
    let server = RpcServer::start(&options, &listen, Arc::new(SystemClock::new()));
    let server = server.map_err(|error| error.to_string())?;
    let mix = Mix::named(workload).ok_or_else(|| format!("no workload {workload}"))?;
    let address = server.address();
    let spec =
        RpcSpec { address, connections: CONNECTIONS, duration, requests: None, mix, seed: 1 };
    run_load(&spec, load_cores.as_ref(), stop)?;
    let requests = server.counts().requests as f64;
    let stages = server.stop().map_err(|error| error.to_string())?;
    Ok([stages.network_ns, stages.rpc_ns, stages.handler_ns].map(|ns| ns as f64 / requests))
}

/// Returns a core for the service and the other cores for its load. If there is only one core, they share it.
fn separate_cores() -> Result<(RpcCores, Option<CpuSet>), String> {
    let allowed = allowed_cores().map_err(|error| format!("no cores are told: {error}"))?;
    let Some((first, others @ [_, ..])) = allowed.split_first() else {
        return Ok((RpcCores::Any, None));
    };
    let mut set = CpuSet::new();
    others.iter().for_each(|core| set.set(*core));
    Ok((RpcCores::List(vec![*first]), Some(set)))
}

/// Runs the load on these cores. It runs on a new thread, because a thread's cores are inherited by the threads that it
/// starts.
fn run_load(
    spec: &RpcSpec,
    cores: Option<&CpuSet>,
    stop: &AtomicBool,
) -> Result<RpcReport, String> {
    let load = || {
        if let Some(cores) = cores {
            sched_setaffinity(None, cores).map_err(|error| format!("the load's cores: {error}"))?;
        }
        load::rpc::run(spec, stop).map_err(|error| error.to_string())
    };
    thread::scope(|scope| scope.spawn(load).join().expect("a load does not panic"))
}

const RUNS: usize = 5;
const CONNECTIONS: usize = 4;
const NETWORK: &str = "network_share.kernel";
const OURS: &str = "ours is this service, the paper's is Thrift's on its host";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rows::Kind;

    #[test]
    fn rows_have_times_and_shares_or_a_reason() {
        let runs = |network| vec![[network, 30.0, 10.0]; 5];
        let rows = as_rows(&[runs(60.0), runs(60.0), runs(160.0)], None);
        let ours = |id: &str| rows.iter().find(|row| row.id == id).and_then(|row| row.ours);
        assert_eq!(ours("time.memc_high.network"), Some(160.0));
        assert_eq!(ours("share.memc_low.rpc"), Some(30.0));
        assert_eq!(ours("share.memc_high.network"), Some(80.0));
        let network = rows.iter().find(|row| row.id == NETWORK).expect("it is there");
        assert_eq!((network.published, network.ours), (Some(50.0), Some(60.0)));
        assert_eq!(network.kind, Kind::Measured);
        let without = as_rows(&WORKLOADS.map(|_| Vec::new()), Some("no port"));
        assert_eq!(without.len(), rows.len());
        for (row, missing) in rows.iter().zip(&without) {
            assert_eq!((&row.id, row.published), (&missing.id, missing.published));
            assert_eq!((missing.kind, missing.ours), (Kind::Unreachable, None));
            assert_eq!(missing.reason.as_deref(), Some("no port"));
        }
    }

    #[test]
    fn a_loaded_service_spends_time_in_each_stage() {
        let stages = one("memc_mid", Nanos(20_000_000), &AtomicBool::new(false)).expect("it runs");
        // If other processes use the core as well, the time that is left for the network can be zero.
        let [network, parts @ ..] = stages;
        assert!(network.is_finite() && network >= 0.0, "{stages:?}");
        assert!(parts.iter().all(|ns| ns.is_finite() && *ns > 0.0), "{stages:?}");
    }
}
