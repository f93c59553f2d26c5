//! The claims of the papers, each with the row that shows it.

/// A paper and its claims.
pub(super) struct Paper {
    /// The key by which documents refer to the paper.
    pub(super) key: &'static str,
    pub(super) about: &'static str,
    /// The name of the experiment, which is the name of its results.
    pub(super) experiment: &'static str,
    pub(super) claims: &'static [Claim],
}

/// A claim of a paper.
pub(super) struct Claim {
    pub(super) text: &'static str,
    /// The id of the row that shows it.
    pub(super) row: &'static str,
}

const fn claim(text: &'static str, row: &'static str) -> Claim {
    Claim { text, row }
}

/// The papers in the order of the page.
pub(super) const PAPERS: [Paper; 5] = [
    Paper {
        key: "[CacheTax]",
        about: "A compressed cache: monolith in software, and microservices with an accelerator.",
        experiment: "cache",
        claims: &CACHE_TAX,
    },
    Paper {
        key: "[OffloadSched]",
        about: "A runtime that offloads compression to a BlueField-2, waiting or not.",
        experiment: "runtime",
        claims: &OFFLOAD_SCHED,
    },
    Paper {
        key: "[Accelerometer]",
        about: "An analytical model of what acceleration gives, and its test by A/B runs.",
        experiment: "accelerometer",
        claims: &ACCELEROMETER,
    },
    Paper {
        key: "[AccelFlow]",
        about: "Orchestration of an ensemble of accelerators, simulated.",
        experiment: "accelflow",
        claims: &ACCELFLOW,
    },
    Paper {
        key: "[Arcalis]",
        about: "A near-cache RPC engine, simulated and in software.",
        experiment: "arcalis",
        claims: &ARCALIS,
    },
];

const CACHE_TAX: [Claim; 8] = [
    claim(
        "figure 1, gets: faster than the monolith with QPL, at every size",
        "claim.figure_1.qpl.get",
    ),
    claim(
        "figure 1, sets: faster than the monolith with QPL, at every size",
        "claim.figure_1.qpl.set",
    ),
    claim(
        "figure 2, gets: faster than the monolith with QPL, at every load",
        "claim.figure_2.qpl.get",
    ),
    claim(
        "figure 2, sets: faster than the monolith with QPL, at every load",
        "claim.figure_2.qpl.set",
    ),
    claim("figure 1, gets, over the monolith with ISA-L", "claim.figure_1.isa_l.get"),
    claim("figure 1, sets, over the monolith with ISA-L", "claim.figure_1.isa_l.set"),
    claim("figure 2, gets, over the monolith with ISA-L", "claim.figure_2.isa_l.get"),
    claim("figure 2, sets, over the monolith with ISA-L", "claim.figure_2.isa_l.set"),
];

const OFFLOAD_SCHED: [Claim; 17] = [
    claim("4.2.1: Cache-1 in software (1/s)", "throughput.software.cache1"),
    claim("4.2.1: Feed-1 in software (1/s)", "throughput.software.feed1"),
    claim("4.2.1: Cache-1, waiting, over software", "throughput_ratio.sync.cache1"),
    claim("4.2.1: Feed-1, waiting, over software", "throughput_ratio.sync.feed1"),
    claim("4.2.1: Cache-1, not waiting, over software", "throughput_ratio.async.cache1"),
    claim("4.2.1: Feed-1, not waiting, over software", "throughput_ratio.async.feed1"),
    claim(
        "4.2.1: both together, not waiting, within a tenth",
        "off_published.async.cache1_and_feed1",
    ),
    claim("4.2.1: Cache-1 under 10 us, waiting", "under_10us.sync.cache1"),
    claim("4.2.1: Feed-1 under 10 us, waiting", "under_10us.sync.feed1"),
    claim("4.2.1: Cache-1, three in flight (1/s)", "paper_loop.in_flight.throughput.cache1.3"),
    claim("4.2.1: Feed-1, three in flight (1/s)", "paper_loop.in_flight.throughput.feed1.3"),
    claim(
        "4.2.1: Cache-1 under 10 us, three in flight",
        "paper_loop.in_flight.under_10us.cache1.3",
    ),
    claim("4.2.1: Feed-1 under 10 us, three in flight", "paper_loop.in_flight.under_10us.feed1.3"),
    claim(
        "4.3: Cache-1, polls fitted to this number (1/s)",
        "paper_loop.poll.throughput.cache1.interval_1000ns",
    ),
    claim("4.3: Feed-1 with these polls (1/s)", "paper_loop.poll.throughput.feed1"),
    claim("table 4.2: not waiting, with these polls (1/s)", "paper_loop.poll.throughput.web8KiB"),
    claim("table 4.2: not waiting (1/s)", "throughput.async.web8KiB"),
];

const ACCELEROMETER: [Claim; 10] = [
    claim("case study 1: estimated speedup", "speedup.aes_ni"),
    claim("case study 2: estimated speedup", "speedup.encryption"),
    claim("case study 3: estimated speedup", "speedup.inference"),
    claim("case study 1: error", "error.aes_ni"),
    claim("case study 2: error", "error.encryption"),
    claim("case study 3: error", "error.inference"),
    claim("case study 1: cycles freed", "freed.aes_ni"),
    claim("the model errs by at most 3.7 points (A/B runs here)", "ab.error_points_most"),
    claim("the same in the median of our cases", "ab.error_points_median"),
    claim("the same in cases that were held out", "ab.held_out_error_points_most"),
];

const ACCELFLOW: [Claim; 22] = [
    claim("published numbers that are predicted", "agreement.numbers.all"),
    claim("of these predicted to 10 %", "agreement.within_10.all"),
    claim("of these predicted to 50 %", "agreement.within_50.all"),
    claim("P99 below Non-acc, published inputs", "p99_reduction.steady.non_acc"),
    claim("P99 below CPU-Centric, published inputs", "p99_reduction.steady.cpu_centric"),
    claim("P99 below RELIEF, published inputs", "p99_reduction.steady.relief"),
    claim("P99 below Cohort, published inputs", "p99_reduction.steady.cohort"),
    claim(
        "P99 below Non-acc, arrivals and cores of production",
        "p99_reduction.production.non_acc",
    ),
    claim(
        "P99 below CPU-Centric, arrivals and cores of production",
        "p99_reduction.production.cpu_centric",
    ),
    claim("P99 below RELIEF, arrivals and cores of production", "p99_reduction.production.relief"),
    claim("P99 below Cohort, arrivals and cores of production", "p99_reduction.production.cohort"),
    claim("P99 below RELIEF, an overloaded server, fitted", "p99_reduction.window.relief"),
    claim("order of the five architectures, of eight services", "order_as_published.production"),
    claim("AccelFlow's P99 is the lowest, of eight services", "accelflow_best.production"),
    claim("throughput over Non-acc", "mean_throughput_ratio.steady.non_acc"),
    claim("throughput over RELIEF", "mean_throughput_ratio.steady.relief"),
    claim("throughput of Ideal over AccelFlow", "mean_throughput_ratio.steady.ideal"),
    claim("figure 15: LSTM over RELIEF", "throughput_ratio.relief_apps.lstm"),
    claim("figure 15: Canny over RELIEF", "throughput_ratio.relief_apps.canny"),
    claim("figure 3: CPU-Centric at 20 kRPS", "overhead.cpu_centric.load_20000"),
    claim("figure 17: orchestration", "overhead.accelflow.unloaded"),
    claim("area of accelerators and AccelFlow", "area.all"),
];

const ARCALIS: [Claim; 13] = [
    claim("speedup of memc_low, fitted", "speedup.memc_low"),
    claim("speedup of memc_mid, from two fitted mixes", "speedup.memc_mid"),
    claim("more time at 400 ns, most of memcached", "slowdown.400ns.memc.most"),
    claim("speedup of memc_low with our handlers and software", "measured_inputs.speedup.memc_low"),
    claim("speedup of memc_mid with our handlers and software", "measured_inputs.speedup.memc_mid"),
    claim(
        "speedup of memc_high with our handlers and software",
        "measured_inputs.speedup.memc_high",
    ),
    claim("speedup of post_low with our handlers and software", "measured_inputs.speedup.post_low"),
    claim(
        "speedup of post_high with our handlers and software",
        "measured_inputs.speedup.post_high",
    ),
    claim(
        "speedup of unique_id with our handlers and software",
        "measured_inputs.speedup.unique_id",
    ),
    claim("figure 6: the kernel's network, of a request", "network_share.kernel"),
    claim(
        "deserialization has more of the cycles with more writes",
        "order.deserialize_share.memc",
    ),
    claim("decoupled engines are faster", "order.decoupling"),
    claim("the nearer the faster", "order.attachment"),
];
