//! The load of the machine: Poisson arrivals of Cache-1-like sizes, from a seed.

use std::ops::Range;

use device::Class;
use units::{Nanos, Prng};

#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) jobs: usize,
    pub(crate) per_second: f64,
    /// The share of the jobs that are batch jobs.
    pub(crate) batch: f64,
    pub(crate) seed: u64,
    /// The jobs during which the first device is slow, and the factor on its time.
    pub(crate) slow: Option<(Range<usize>, f64)>,
    /// The deadline, counted from the arrival.
    pub(crate) deadline: Option<Nanos>,
}

impl Load {
    pub(crate) fn at_rate(per_second: f64) -> Self {
        Self { jobs: 30_000, per_second, batch: 0.0, seed: 11, slow: None, deadline: None }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) index: usize,
    pub(crate) at_ns: u64,
    pub(crate) bytes: usize,
    pub(crate) class: Class,
    /// The factor by which the content changes the job's time.
    pub(crate) factor: f64,
}

pub(crate) fn arrivals(load: &Load) -> Vec<Arrival> {
    let mut draws = Prng::new(load.seed);
    let mut at = 0.0;
    let mut one = |index| {
        at += -(1.0 - draws.unit()).ln() * 1e9 / load.per_second;
        let bytes = cache_1(draws.unit(), draws.unit());
        let class = match draws.unit() < load.batch {
            true => Class::Batch,
            false => Class::LatencyCritical,
        };
        let factor = 1.0 + SPREAD * (2.0 * draws.unit() - 1.0);
        Arrival { index, at_ns: at as u64, bytes, class, factor }
    };
    (0..load.jobs).map(&mut one).collect()
}

/// Returns a Cache-1-like size, distributed log-uniformly within steps. Few sizes are below 256 B, 85 % take less than
/// 10 us in software, and the mean is 2.4 KB.
fn cache_1(step: f64, within: f64) -> usize {
    const STEPS: [(f64, f64); 9] = [
        (0.00, 64.0),
        (0.05, 256.0),
        (0.20, 512.0),
        (0.45, 1_024.0),
        (0.67, 2_048.0),
        (0.85, 3_700.0),
        (0.95, 8_192.0),
        (0.99, 16_384.0),
        (1.00, 32_768.0),
    ];
    let at = STEPS.iter().rposition(|(share, _)| *share <= step).unwrap();
    let (low, high) = (STEPS[at].1, STEPS[at + 1].1);
    (low * (high / low).powf(within)) as usize
}

/// The largest relative difference of a time from its line, in both directions, which the content causes.
pub(crate) const SPREAD: f64 = 0.2;
