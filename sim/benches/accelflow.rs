//! Measures the simulated requests per second on one core. The full model runs the eight services in equal shares, with
//! each architecture in the `steady` scenario. A result is the median of the runs, by the thread's processor time.
//! The flags are those of `harness::Bench`. `--count=N` sets the number of requests.
#![allow(missing_docs)]

use std::hint::black_box;

use harness::bench::thread_time;
use harness::{Bench, Limit};
use sim::accelflow::{AccelFlow, Architecture, Entries, Spec, builtin};
use sim::{Extent, Simulate, Streams};

/// The required rate for AccelFlow on one core (simulated requests per second).
const RATE_MIN: Limit = Limit::AtLeast(300_000.0);

fn main() {
    let mut bench = Bench::new("cargo bench -p sim --bench accelflow", 5);
    let requests = bench.count.unwrap_or(if bench.quick { 10_000 } else { 100_000 });
    let open = |name: &str| builtin(name).map(str::to_owned).ok_or_else(|| name.to_owned());
    let text = builtin("steady").expect("compiled in");
    let entries = Entries::read("steady", text, &open).expect("valid");
    let catalog = trace::accelflow();
    let spec = Spec::read(&entries, &catalog).expect("valid");
    for architecture in Architecture::ALL {
        let name = architecture.name();
        if !bench.wants(name) {
            continue;
        }
        let model = AccelFlow::new(&spec, architecture, &catalog).expect("a model");
        let mut events = Vec::new();
        let rates: Vec<f64> = bench
            .runs()
            .map(|run| {
                let start = thread_time();
                let streams = Streams::new(1, run as u32);
                let sample = model.replicate(&streams, Extent::Requests(requests), 1 << 40);
                events.push(black_box(sample).expect("a run").events as f64 / requests as f64);
                requests as f64 / (thread_time() - start).as_secs_f64()
            })
            .collect();
        let limit = matches!(architecture, Architecture::AccelFlow).then_some(RATE_MIN);
        bench.row(&format!("requests_per_second.{name}.steady"), "1/s", limit, rates);
        bench.row(&format!("events_per_request.{name}.steady"), "events", None, events);
    }
    bench.finish();
}
