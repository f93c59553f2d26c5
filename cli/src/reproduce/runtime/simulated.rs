//! The open loop as the simulator has it: the same profiles, sizes, policy object and window, and what the runtime's
//! own work takes of the core as it was measured elsewhere. Its numbers are for holding against the runtime's.

use sim::{OpenLoop, OpenLoopRun};
use units::Nanos;

use super::mode::Mode;
use super::platform::Platform;
use super::work::Work;

/// Simulates a load as often as it was measured, with the same seeds; none where the platform is not emulated.
pub(super) fn open_loop(
    platform: &Platform,
    mode: Mode,
    work: &Work,
    (rate_per_s, window, warm_up): (f64, Nanos, Nanos),
    seeds: impl Iterator<Item = u64>,
) -> Option<Vec<OpenLoopRun>> {
    let (software, device) = platform.profiles()?;
    let plan = OpenLoop {
        policy: mode.policy(),
        software: software.clone(),
        device: device.clone(),
        sizes_bytes: work.sizes_bytes(),
        rate_per_s,
        window,
        warm_up,
        grace: super::open::GRACE,
        poll_interval: POLL_INTERVAL,
        place: PLACE,
        emulate: EMULATE,
        hand_back: HAND_BACK,
    };
    Some(seeds.map(|seed| plan.run(seed)).collect())
}

/// The core loop's own.
const POLL_INTERVAL: Nanos = Nanos::micros(1);
/// Not of the open loop, from bench/results/2c/runtime.json (2026-11-22, class 2c): a lone job of 64 B in software
/// (`latency.epyc7542.html.64B`, 3,250 ns) less what the profile says of it (2,919); `excess_per_request.async.cache1`;
/// `completion.bluefield2.html.64B`.
const PLACE: Nanos = Nanos(330);
const EMULATE: Nanos = Nanos(320);
const HAND_BACK: Nanos = Nanos(220);
