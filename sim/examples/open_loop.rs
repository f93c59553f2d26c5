//! Prints the median and the 99th percentile (us) of the runtime's simulated open loop: Cache-1 on the machine of
//! [OffloadSched], for each policy and load. It measures nothing. Run it with
//! `cargo run --release -p sim --example open_loop`.

use std::sync::Arc;

use policy::{AlwaysSoftware, AsyncOffload, LeastHostCycles, LeastLatency, Policy, SyncOffload};
use sim::RuntimeModel;
use units::Nanos;
use workload::{DeviceProfile, Preset, Sizes, Weighting};

const LOADS_PER_S: [f64; 11] =
    [10e3, 25e3, 50e3, 75e3, 100e3, 125e3, 150e3, 200e3, 300e3, 400e3, 500e3];
const INLINE_BYTES_MAX: usize = 256 << 10;
const INPUTS: usize = 512;
const RUNS: u64 = 5;

fn main() {
    let policies: [Arc<dyn Policy>; 5] = [
        Arc::new(AlwaysSoftware),
        Arc::new(SyncOffload { work_bytes_min: 0 }),
        Arc::new(AsyncOffload { work_bytes_min: 0 }),
        Arc::new(LeastLatency { inline_bytes_max: INLINE_BYTES_MAX }),
        Arc::new(LeastHostCycles {
            latency_max: Nanos::micros(200),
            inline_bytes_max: INLINE_BYTES_MAX,
        }),
    ];
    let found = policies.map(|policy| {
        let cells = LOADS_PER_S.map(|per_s| measure(&policy, per_s));
        let text = |cell: &Option<[f64; 2]>| match cell {
            Some([median, p99]) => format!(" {median:.1}/{p99:.1}"),
            None => " -".to_owned(),
        };
        println!("{:18}{}", policy.name(), cells.iter().map(text).collect::<String>());
        cells.map(|cell| cell.map(|[_, p99]| p99))
    });
    let [statics @ .., least_latency, _] = &found;
    let over_best = |at: usize| {
        let best = statics.iter().filter_map(|row| row[at]).reduce(f64::min);
        let ratio = least_latency[at].zip(best).map(|(p99, best)| p99 / best);
        ratio.map_or_else(|| " -".to_owned(), |ratio| format!(" {ratio:.2}"))
    };
    let over_best = (0..LOADS_PER_S.len()).map(over_best).collect::<String>();
    println!("{:18}{over_best}", "p99 over best");
}

/// Returns the median and the 99th percentile, each as the mean of several runs. Returns none if a run falls behind.
fn measure(policy: &Arc<dyn Policy>, per_s: f64) -> Option<[f64; 2]> {
    let mut sum = [0.0; 2];
    for seed in 0..RUNS {
        let found = plan(Arc::clone(policy), per_s).run(seed);
        if found.achieved < 0.995 {
            return None;
        }
        for (sum, share) in sum.iter_mut().zip([0.5, 0.99]) {
            *sum += found.quantile_us(share)? / RUNS as f64;
        }
    }
    Some(sum)
}

fn plan(policy: Arc<dyn Policy>, rate_per_s: f64) -> RuntimeModel {
    let profile = |name| DeviceProfile::find(name).expect("compiled in");
    let preset = Preset::find("accelerometer-cache1").expect("compiled in");
    let sizes = Sizes::new(&preset.value_bytes.value, Weighting::Calls).expect("a preset is valid");
    let at = |index: usize| sizes.at((index as f64 + 0.5) / INPUTS as f64) as u64;
    RuntimeModel {
        policy,
        software: profile("epyc7542-isal"),
        device: profile("bluefield2"),
        sizes_bytes: (0..INPUTS).map(at).collect(),
        rate_per_s,
        window: Nanos::secs(1),
        warm_up: Nanos::millis(200),
        grace: Nanos::millis(1),
        // These are the values of `rebate reproduce runtime`, which explains how they were measured.
        poll_interval: Nanos::micros(1),
        place: Nanos(330),
        emulate: Nanos(320),
        completion: Nanos(220),
    }
}
