//! Measures the simulated requests per second on one core. The full model runs the eight services in equal shares, with
//! each architecture in the `steady` scenario. A result is the median of the runs, by the thread's processor time.
//!
//! `--json` prints the rows as JSON, and `--quick` makes short runs. `--only NAME` makes one short run of one
//! architecture, to count instructions: the difference between `--requests 20000` and `--requests 10000` is the cost of
//! 10,000 requests without the start.
#![allow(missing_docs)]

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use sim::accelflow::{AccelFlow, Architecture, Entries, Spec, builtin};
use sim::{Extent, Simulate, Streams};

const RUNS: usize = 5;
/// The rate that the design requires of one core for AccelFlow.
const BAR_PER_S: f64 = 300_000.0;

fn main() {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let (quick, as_json) = (has("--quick"), has("--json"));
    let requests: u64 = if quick { 10_000 } else { 100_000 };
    let open = |name: &str| builtin(name).map(str::to_owned).ok_or_else(|| name.to_owned());
    let text = builtin("steady").expect("compiled in");
    let entries = Entries::read("steady", text, &open).expect("valid");
    let catalog = trace::accelflow();
    let spec = Spec::read(&entries, &catalog).expect("valid");
    if let Some(name) = value("--only") {
        let architecture = Architecture::from_name(&name).expect("an architecture's name");
        let count = value("--requests").map_or(10_000, |count| count.parse().expect("a number"));
        let model = AccelFlow::new(&spec, architecture, &catalog).expect("a model");
        let sample = model.replicate(&Streams::new(1, 0), Extent::Requests(count), 1 << 40);
        let events = black_box(sample).expect("a run").events;
        println!("{name}: {:.2} events for each request", events as f64 / count as f64);
        return;
    }
    for architecture in Architecture::ALL {
        let model = AccelFlow::new(&spec, architecture, &catalog).expect("a model");
        let mut events = 0;
        let mut rates: Vec<f64> = (0..RUNS as u32)
            .map(|run| {
                let start = processor_s();
                let sample =
                    model.replicate(&Streams::new(1, run), Extent::Requests(requests), 1 << 40);
                events = black_box(sample).expect("a run").events;
                requests as f64 / (processor_s() - start)
            })
            .collect();
        rates.sort_unstable_by(f64::total_cmp);
        let (median, low, high) = (rates[RUNS / 2], rates[0], rates[RUNS - 1]);
        let each = events as f64 / requests as f64;
        let name = architecture.name();
        if as_json {
            let row = json!({
                "id": format!("requests_per_second.{name}.steady"), "value": median, "low": low,
                "high": high, "unit": "1/s", "runs": RUNS, "bar": BAR_PER_S,
                "events_per_request": each,
            });
            println!("{row}");
        } else {
            let [median, low, high] = [median, low, high].map(|rate| rate / 1e3);
            println!(
                "{name:16} {median:7.0} k requests/s ({low:.0} to {high:.0}), {each:.1} events each"
            );
        }
    }
}

/// Returns the value after a flag.
fn value(flag: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != flag).nth(1)
}

/// Returns the processor time of this thread (s). Other processes on the machine do not add to it.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
