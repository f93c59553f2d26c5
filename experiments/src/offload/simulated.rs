//! The open loop in the simulator: the same profiles, sizes, policy object and window, and the measured times of the
//! runtime's own work. The simulator's numbers are compared with those of the runtime.

use sim::RuntimeModel;
use units::Nanos;

use super::mode::Mode;
use super::platform::Platform;
use super::work::Work;

/// Returns a load for the simulator, or None if the platform is not emulated.
pub(super) fn open_loop(
    platform: &Platform,
    mode: Mode,
    work: &Work,
    (rate_per_s, window, warm_up): (f64, Nanos, Nanos),
) -> Option<RuntimeModel> {
    let (software, device) = platform.profiles()?;
    Some(RuntimeModel {
        policy: mode.policy(),
        software: software.clone(),
        device: device.clone(),
        sizes_bytes: work.sizes_bytes(),
        rate_per_s,
        window,
        warm_up,
        grace: super::open::GRACE,
        poll_interval: POLL_INTERVAL,
        place: if mode.policy().uses_costs() { PLACE + WEIGH } else { PLACE },
        emulate: EMULATE,
        completion: COMPLETION,
    })
}

/// Returns the same load with a policy that takes no additional time to weigh costs. Returns None if the
/// load's policy takes no such time.
pub(super) fn unweighed(plan: &RuntimeModel) -> Option<RuntimeModel> {
    (plan.place > PLACE).then(|| RuntimeModel { place: PLACE, ..plan.clone() })
}

/// Returns the simulator's median latency divided by the model's, at a load at which no request waits for another.
/// Returns None if the platform is not emulated, or if the equations do not cover the mode. In the model a request
/// takes the time of the runtime's own work and the time for its size: in software, or in the device from submission to
/// result. A core that does other work in the meantime finds the result half a poll interval late.
pub(super) fn over_model(platform: &Platform, mode: Mode, work: &Work) -> Option<f64> {
    let plan = open_loop(platform, mode, work, (LOW_PER_S, Nanos::secs(10), Nanos(0)))?;
    let of_software = |bytes| plan.software.compress().map(|op| op.latency(bytes));
    let of_device = |bytes| plan.device.compress().map(|op| op.latency(bytes) + COMPLETION);
    let time_taken = |bytes: u64| match mode {
        Mode::Software => of_software(bytes),
        Mode::Sync => of_device(bytes),
        Mode::Async => of_device(bytes).map(|time_taken| time_taken + Nanos(POLL_INTERVAL.0 / 2)),
        _ => None,
    };
    let each: Option<Vec<Nanos>> =
        plan.sizes_bytes.iter().map(|bytes| time_taken(*bytes)).collect();
    let mut each = each?;
    each.sort_unstable();
    let model = PLACE + *each.get((each.len().max(1) - 1) / 2)?;
    Some(plan.run(1).quantile_us(0.5)? * 1e3 / model.0 as f64)
}

/// The offered load (1/s), about 1 % of the core's capacity, so that requests rarely wait for each other.
const LOW_PER_S: f64 = 1_000.0;

/// The poll interval, which is the default of the core loop.
const POLL_INTERVAL: Nanos = Nanos::micros(1);
/// The times of the runtime's own work. They come from bench/results/2c/runtime.json (2026-11-22, class 2c),
/// but not from its open loop. `PLACE` is the latency of a single job of 64 B in software
/// (`latency.epyc7542.html.64B`, 3,401 ns) less its time in the profile (2,919 ns). `EMULATE` is
/// `excess_per_request.async.cache1`, and `COMPLETION` is `completion.bluefield2.html.64B`.
const PLACE: Nanos = Nanos(482);
const EMULATE: Nanos = Nanos(336);
const COMPLETION: Nanos = Nanos(410);
/// The additional time of a policy that weighs costs. It comes from bench/results/2c/offload.json (2026-11-22, class
/// 2c): `offload.core_loop_weighing_costs.32_outstanding` less `offload.core_loop.32_outstanding`.
const WEIGH: Nanos = Nanos(72);

#[cfg(test)]
mod tests {
    use workload::PayloadClass;

    use super::super::modes::CACHE1;
    use super::super::work::Stock;
    use super::*;

    #[test]
    fn the_simulator_agrees_with_the_model_without_queueing() {
        let stock = Stock::new().expect("there is memory");
        let work = Work::of_preset(&stock, CACHE1, PayloadClass::Html).expect("a preset");
        let platform = Platform::published().expect("profiles");
        for mode in [Mode::Software, Mode::Sync, Mode::Async] {
            let ratio = over_model(&platform, mode, &work).expect("emulated");
            assert!((0.9..1.1).contains(&ratio), "{}: {ratio}", mode.name());
        }
        assert_eq!(over_model(&platform, Mode::LeastLatency, &work), None);
    }

    /// Prints the simulated medians divided by the recorded ones. Run it after a change of `PLACE`,
    /// `EMULATE`, `COMPLETION` or `WEIGH`.
    #[test]
    #[ignore = "prints a table for a person to compare, asserts only that rows were recorded: \
                cargo test --release -p experiments --lib recorded_medians -- --ignored --nocapture"]
    fn recorded_medians_beside_the_simulator() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../bench/results/2c/runtime.json");
        let text = std::fs::read_to_string(path).expect("recorded");
        let recorded: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let stock = Stock::new().expect("there is memory");
        let work = Work::of_preset(&stock, CACHE1, PayloadClass::Html).expect("a preset");
        let platform = Platform::published().expect("profiles");
        let (mut within, mut all) = (0, 0);
        for mode in Mode::ALL {
            for per_s in [10e3, 25e3, 50e3, 75e3, 100e3, 125e3, 150e3, 200e3, 300e3, 400e3] {
                let id = format!("p50.{}.cache1.{per_s}_per_s.bluefield2", mode.id());
                let rows = recorded["rows"].as_array().expect("rows");
                let row = rows.iter().find(|row| row["id"] == id.as_str());
                let Some(ours) = row.and_then(|row| row["ours"].as_f64()) else { continue };
                let load = (per_s, Nanos::millis(300), Nanos::millis(60));
                let plan = open_loop(&platform, mode, &work, load);
                let found = plan.and_then(|plan| plan.run(1).quantile_us(0.5));
                let ratio = found.expect("emulated") / ours;
                println!("{id} {ratio:.3}");
                (within, all) = (within + i32::from((0.9..=1.1).contains(&ratio)), all + 1);
            }
        }
        println!("{within} of {all} within 10 %");
        assert!(all > 30, "{all} rows are there");
    }
}
