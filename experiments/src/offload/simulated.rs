//! The open loop as the simulator has it: the same profiles, sizes, policy object and window, and what the runtime's
//! own work takes of the core as it was measured elsewhere. Its numbers are for holding against the runtime's.

use sim::OpenLoop;
use units::Nanos;

use super::mode::Mode;
use super::platform::Platform;
use super::work::Work;

/// A load as it is simulated; none where the platform is not emulated.
pub(super) fn open_loop(
    platform: &Platform,
    mode: Mode,
    work: &Work,
    (rate_per_s, window, warm_up): (f64, Nanos, Nanos),
) -> Option<OpenLoop> {
    let (software, device) = platform.profiles()?;
    Some(OpenLoop {
        policy: mode.policy(),
        software: software.clone(),
        device: device.clone(),
        sizes_bytes: work.sizes_bytes(),
        rate_per_s,
        window,
        warm_up,
        grace: super::open::GRACE,
        poll_interval: POLL_INTERVAL,
        place: if mode.policy().weighs_costs() { PLACE + WEIGH } else { PLACE },
        emulate: EMULATE,
        hand_back: HAND_BACK,
    })
}

/// The same, the choice itself taking no more time than a known answer does; none for a policy of which that is so.
pub(super) fn unweighed(plan: &OpenLoop) -> Option<OpenLoop> {
    (plan.place > PLACE).then(|| OpenLoop { place: PLACE, ..plan.clone() })
}

/// The simulator's median latency over the model's where nobody waits for anybody; none where the platform is not
/// emulated or the mode is none of the equations'. The model: a request takes what the runtime's own work does and
/// what its size does in software, or in the device from submission to result; who does other work meanwhile finds
/// the result half a poll interval late.
pub(super) fn over_model(platform: &Platform, mode: Mode, work: &Work) -> Option<f64> {
    let plan = open_loop(platform, mode, work, (LOW_PER_S, Nanos::secs(10), Nanos(0)))?;
    let of_software = |bytes| plan.software.compress().map(|op| op.latency(bytes));
    let of_device = |bytes| plan.device.compress().map(|op| op.latency(bytes) + HAND_BACK);
    let took = |bytes: u64| match mode {
        Mode::Software => of_software(bytes),
        Mode::Sync => of_device(bytes),
        Mode::Async => of_device(bytes).map(|took| took + Nanos(POLL_INTERVAL.0 / 2)),
        _ => None,
    };
    let each: Option<Vec<Nanos>> = plan.sizes_bytes.iter().map(|bytes| took(*bytes)).collect();
    let mut each = each?;
    each.sort_unstable();
    let model = PLACE + *each.get((each.len().max(1) - 1) / 2)?;
    Some(plan.run(1).quantile_us(0.5)? * 1e3 / model.0 as f64)
}

/// A hundredth of what the core carries: hardly two requests meet.
const LOW_PER_S: f64 = 1_000.0;

/// The core loop's own.
const POLL_INTERVAL: Nanos = Nanos::micros(1);
/// Not of the open loop, from bench/results/2c/runtime.json (2026-11-22, class 2c): a lone job of 64 B in software
/// (`latency.epyc7542.html.64B`, 3,401 ns) less what the profile says of it (2,919); `excess_per_request.async.cache1`;
/// `completion.bluefield2.html.64B`.
const PLACE: Nanos = Nanos(482);
const EMULATE: Nanos = Nanos(336);
const HAND_BACK: Nanos = Nanos(410);
/// What a policy that weighs costs takes more: bench/results/2c/offload.json (2026-11-22, class 2c),
/// `offload.core_loop_weighing_costs.32_outstanding` less `offload.core_loop.32_outstanding`.
const WEIGH: Nanos = Nanos(72);

#[cfg(test)]
mod tests {
    use workload::PayloadClass;

    use super::super::modes::CACHE1;
    use super::super::work::Stock;
    use super::*;

    #[test]
    fn where_nobody_waits_the_simulator_says_what_the_model_says() {
        let stock = Stock::new().expect("there is memory");
        let work = Work::of_preset(&stock, CACHE1, PayloadClass::Html).expect("a preset");
        let platform = Platform::published().expect("profiles");
        for mode in [Mode::Software, Mode::Sync, Mode::Async] {
            let ratio = over_model(&platform, mode, &work).expect("emulated");
            assert!((0.9..1.1).contains(&ratio), "{}: {ratio}", mode.name());
        }
        assert_eq!(over_model(&platform, Mode::LeastLatency, &work), None);
    }

    /// The recorded medians again, beside what the simulator says with the times above: for who changes one of them.
    #[test]
    #[ignore = "prints a table of what was recorded, asserts only that it is there: cargo test -p cli --bin rebate \
                recorded_medians -- --ignored --nocapture"]
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
