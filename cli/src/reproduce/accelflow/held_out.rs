//! Results that decision 0018 holds out for a prediction and that no run here gives, each with what is missing. When
//! one is simulated its line goes.

/// Identity, what it is, published number, unit, what is missing.
pub(super) type Missing = (&'static str, &'static str, f64, &'static str, &'static str);

pub(super) const HELD_OUT: [Missing; 22] = [
    ("overhead.cpu_centric.load_1000", FIGURE_3, 7.0, "%", OVERHEAD),
    ("overhead.cpu_centric.load_10000", FIGURE_3, 16.0, "%", OVERHEAD),
    ("overhead.cpu_centric.load_15000", FIGURE_3, 25.0, "%", OVERHEAD),
    ("overhead.cpu_centric.load_20000", FIGURE_3, 48.0, "%", OVERHEAD),
    ("overhead.hw_manager.load_1000", FIGURE_3, 5.0, "%", OVERHEAD),
    ("overhead.hw_manager.load_10000", FIGURE_3, 8.0, "%", OVERHEAD),
    ("overhead.hw_manager.load_15000", FIGURE_3, 15.0, "%", OVERHEAD),
    ("overhead.hw_manager.load_20000", FIGURE_3, 29.0, "%", OVERHEAD),
    ("overhead.direct.load_1000", FIGURE_3, 2.0, "%", OVERHEAD),
    ("overhead.direct.load_10000", FIGURE_3, 4.0, "%", OVERHEAD),
    ("overhead.direct.load_15000", FIGURE_3, 4.0, "%", OVERHEAD),
    ("overhead.direct.load_20000", FIGURE_3, 5.0, "%", OVERHEAD),
    ("overhead.relief.unloaded", "RELIEF's orchestration, unloaded", 10.0, "%", OVERHEAD),
    ("overhead.accelflow.unloaded", "figure 17: orchestration, unloaded", 2.2, "%", FIGURE_17),
    ("dispatcher.instructions_mean", "section VII-B2: of one op", 18.0, "1", INSTRUCTIONS),
    ("dispatcher.instructions_max", "section VII-B2: of one op", 50.0, "1", INSTRUCTIONS),
    ("fallback_share.peak", "ops that fall back to a core at peak", 5.9, "%", EVENTS),
    ("timeouts_per_million", "timeouts of requests in TCP", 3.2, "1", EVENTS),
    ("deadline_misses.pes_2", "figure 19's text: two PEs", 21.7, "%", DEADLINES),
    ("deadline_misses.pes_4", "figure 19's text: four PEs", 8.2, "%", DEADLINES),
    ("p99_growth.inter_chiplet_100", "six chiplets, 60 to 100 cycles", 45.0, "%", CYCLES),
    ("p99_ratio.speedup_4.relief", "RELIEF over AccelFlow, PEs 4 times", 3.9, "times", SPEEDS),
];

const FIGURE_3: &str = "figure 3: orchestration's share";
const OVERHEAD: &str =
    "what counts as orchestration is not published, and the simulator has no such share";
const FIGURE_17: &str =
    "costs.occupancy is derived from this figure; the simulator has no share of orchestration";
const INSTRUCTIONS: &str = "the simulator does not count a dispatcher's instructions by op";
const EVENTS: &str = "the overflow area's size, the timeout and the burstiness are not published";
const DEADLINES: &str = "how a step's deadline is set is not published, and no miss is counted";
const CYCLES: &str =
    "no run varies it: 40 cycles are 17 ns a hop, and a link's bandwidth is not published";
const SPEEDS: &str = "no run varies the speeds yet; the load of the published ratio is not known";
