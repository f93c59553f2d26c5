//! Makes small networks, and runs studies of them.
#![allow(dead_code, missing_docs, unreachable_pub)]

use sim::*;

/// The mean service time (ns). It is a microsecond, so that loads are easy to read.
pub const SERVICE_NS: f64 = 1_000.0;

pub fn exponential() -> DurationSpec {
    DurationSpec::Exponential { mean_ns: SERVICE_NS }
}

pub fn serve(servers: u32, service: DurationSpec) -> StationKind {
    let discipline = Discipline::Fifo;
    StationKind::Serve { servers, service, discipline, waiting_max: None, overflow: None }
}

pub fn station(name: &str, does: StationKind, next: &[&str]) -> StationSpec {
    let share = 1.0 / next.len().max(1) as f64;
    let next = next.iter().map(|to| RouteSpec { to: (*to).to_owned(), share }).collect();
    StationSpec { name: name.to_owned(), does, next }
}

pub fn source(name: &str, load: f64, to: &str) -> SourceSpec {
    let arrivals = ArrivalSpec::Poisson { per_s: load * 1e9 / SERVICE_NS };
    let (name, to) = (name.to_owned(), to.to_owned());
    SourceSpec { name, arrivals, to, priority: 0, deadline_ns: None }
}

/// Returns a network with Poisson arrivals `web` at the first of `stations`. `load` is the mean number of
/// arrivals per service time.
pub fn network(load: f64, stations: Vec<StationSpec>) -> NetworkSpec {
    let first = stations[0].name.clone();
    NetworkSpec { sources: vec![source("web", load, &first)], stations, tokens_max: 1 << 20 }
}

/// Returns a network with Poisson arrivals at one station `cpu`.
pub fn queue(servers: u32, load: f64, service: DurationSpec) -> NetworkSpec {
    network(load * f64::from(servers), vec![station("cpu", serve(servers, service), &[])])
}

pub fn plan(requests: u64) -> Plan {
    Plan { extent: Extent::Requests(requests), threads: 2, ..Plan::default() }
}

pub fn study(plan: &Plan, spec: &NetworkSpec) -> Report {
    let network = Network::new(spec).expect("the specification is valid");
    plan.run(&network, &|_| ()).expect("the study ends")
}
