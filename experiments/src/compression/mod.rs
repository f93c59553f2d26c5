//! Compares a cache with compression off and on in the same memory, by medians over runs. `variant.rs` runs one side.
//! The caller loads the sides and shows the results.

mod variant;

use load::LoadSpec;
use serde::Serialize;
use units::ByteCount;

use crate::testbed::Backing;

pub use variant::{Sample, Variant, item_overhead_bytes};

/// A side of the comparison: compression off or on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Values are stored as they come.
    Off,
    /// Values are compressed.
    On,
}

impl Side {
    /// Returns the value of `rebate serve --compress` for this side.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Off => "off",
            Side::On => "on",
        }
    }
}

/// The results with compression off and on under one workload.
#[derive(Serialize)]
pub struct Comparison {
    preset: String,
    store: &'static str,
    memory: ByteCount,
    keys: u64,
    offered_per_s: f64,
    #[serde(skip)]
    samples: [Vec<Sample>; 2],
    off: Numbers,
    on: Numbers,
    saved: Saved,
}

/// The median and the range of a value over several runs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// The results of one side of the comparison.
#[derive(Clone, Debug, Default, Serialize)]
struct Numbers {
    runs: usize,
    hit_ratio: Spread,
    items: Spread,
    held_bytes: Spread,
    logical_bytes_per_value: Spread,
    stored_bytes_per_value: Spread,
    memory_bytes_per_item: Spread,
    cpu_core_s: Spread,
    cpu_us_per_request: Spread,
    p50_us: Spread,
    p99_us: Spread,
    requests_per_s: Spread,
    failures: u64,
    generator_was_bottleneck: bool,
}

/// The savings and the costs of compression.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Saved {
    /// The logical bytes held with compression, divided by those held without.
    held_ratio: f64,
    /// The additional memory that a cache without compression would need to hold as much (bytes).
    memory_bytes: f64,
    /// The additional core-seconds that compression cost in the measured window.
    extra_core_s: f64,
    /// The additional core-seconds per GB (10^9 bytes) saved. It is `None` if nothing was saved.
    extra_core_s_per_gb: Option<f64>,
    /// The share of backend fetches that compression avoided. It is the difference of the miss ratios, divided by the
    /// miss ratio without compression.
    misses_avoided: f64,
}

impl Comparison {
    /// Creates a comparison without results.
    pub fn new(spec: &LoadSpec, backing: Backing, memory: ByteCount) -> Self {
        Self {
            preset: spec.preset.clone().unwrap_or_default(),
            store: match backing {
                Backing::Memcached => "memcached",
                Backing::Embedded => "embedded",
            },
            memory,
            keys: spec.keys,
            offered_per_s: spec.rate_per_s().unwrap_or(0.0),
            samples: [Vec::new(), Vec::new()],
            off: Numbers::default(),
            on: Numbers::default(),
            saved: Saved::default(),
        }
    }

    /// Returns the name of the workload.
    pub fn preset(&self) -> &str {
        &self.preset
    }

    /// Adds a run of a side.
    pub fn add(&mut self, side: Side, sample: Sample) {
        self.samples[side as usize].push(sample);
        self.off = Numbers::from_samples(&self.samples[0], self.memory);
        self.on = Numbers::from_samples(&self.samples[1], self.memory);
        self.saved = Saved::between(&self.off, &self.on, self.memory);
    }

    /// Describes the comparison in one line.
    pub fn caption(&self) -> String {
        format!(
            "{} in {}, {} keys, {:.0} requests/s offered, medians of {}",
            self.memory, self.store, self.keys, self.offered_per_s, self.off.runs
        )
    }

    /// Describes the result in one sentence.
    pub fn sentence(&self) -> String {
        self.saved.sentence(&self.off, &self.on)
    }

    /// Returns the values to draw: a title, a unit, and the number off and on.
    pub fn pairs(&self) -> Vec<(&'static str, &'static str, [f64; 2])> {
        let both = |value: fn(&Numbers) -> f64| [value(&self.off), value(&self.on)];
        vec![
            ("hit ratio", "hits over gets", both(|numbers| numbers.hit_ratio.median)),
            (
                "data held",
                "MiB, uncompressed",
                both(|numbers| numbers.held_bytes.median / f64::from(1 << 20)),
            ),
            ("get median", "us", both(|numbers| numbers.p50_us.median)),
            ("CPU per request", "us", both(|numbers| numbers.cpu_us_per_request.median)),
        ]
    }

    /// Returns the cells of a table: a head and a row for each side.
    pub fn rows(&self) -> [Vec<String>; 3] {
        let head = [
            "compression",
            "hit ratio",
            "items",
            "stored B/val",
            "data MiB",
            "CPU us/req",
            "p50 us",
            "p99 us",
            "",
        ];
        [head.map(str::to_owned).to_vec(), self.off.row(Side::Off), self.on.row(Side::On)]
    }
}

impl Numbers {
    fn from_samples(samples: &[Sample], memory: ByteCount) -> Self {
        let over = |number: fn(&Sample) -> f64| {
            Spread::from_values(samples.iter().map(number).collect::<Vec<f64>>())
        };
        let per_item: Vec<f64> =
            samples.iter().map(|sample| memory.0 as f64 / sample.items.max(1.0)).collect();
        Self {
            runs: samples.len(),
            hit_ratio: over(|sample| sample.hit_ratio),
            items: over(|sample| sample.items),
            held_bytes: over(|sample| sample.held_bytes),
            logical_bytes_per_value: over(|sample| sample.logical_bytes),
            stored_bytes_per_value: over(|sample| sample.logical_bytes * sample.stored_share),
            memory_bytes_per_item: Spread::from_values(per_item),
            cpu_core_s: over(|sample| sample.cpu_s),
            cpu_us_per_request: over(|sample| sample.cpu_us),
            p50_us: over(|sample| sample.p50_us),
            p99_us: over(|sample| sample.p99_us),
            requests_per_s: over(|sample| sample.requests_per_s),
            failures: samples.iter().map(|sample| sample.failures).sum(),
            generator_was_bottleneck: samples.iter().any(|sample| sample.was_bottleneck),
        }
    }

    fn row(&self, side: Side) -> Vec<String> {
        let whole = |value: f64| format!("{value:.0}");
        vec![
            side.name().to_owned(),
            format!("{:.4}", self.hit_ratio.median),
            whole(self.items.median),
            whole(self.stored_bytes_per_value.median),
            whole(self.held_bytes.median / f64::from(1 << 20)),
            format!("{:.1}", self.cpu_us_per_request.median),
            whole(self.p50_us.median),
            whole(self.p99_us.median),
            match (self.failures, self.generator_was_bottleneck) {
                (0, false) => String::new(),
                (0, true) => "(the generator was too slow)".to_owned(),
                (failures, _) => format!("({failures} requests failed)"),
            },
        ]
    }
}

impl Saved {
    fn between(off: &Numbers, on: &Numbers, memory: ByteCount) -> Self {
        if off.runs == 0 || on.runs == 0 {
            return Self::default();
        }
        let held_ratio = on.held_bytes.median / off.held_bytes.median.max(1.0);
        let memory_bytes = memory.0 as f64 * (held_ratio - 1.0);
        let extra_core_s = on.cpu_core_s.median - off.cpu_core_s.median;
        let (off_misses, on_misses) = (1.0 - off.hit_ratio.median, 1.0 - on.hit_ratio.median);
        Self {
            held_ratio,
            memory_bytes,
            extra_core_s,
            extra_core_s_per_gb: (memory_bytes > 0.0).then(|| extra_core_s / memory_bytes * 1e9),
            misses_avoided: (off_misses - on_misses) / off_misses.max(1e-9),
        }
    }

    fn sentence(&self, off: &Numbers, on: &Numbers) -> String {
        let mib = self.memory_bytes / f64::from(1 << 20);
        let cpu = on.cpu_us_per_request.median - off.cpu_us_per_request.median;
        let cost = match self.extra_core_s_per_gb {
            Some(cost) => format!("{cost:.0} core-seconds per GB saved while measured"),
            None => "nothing saved".to_owned(),
        };
        format!(
            "on / off: {:.2}x the data in the same memory ({mib:.0} MiB saved), {:.0} % fewer misses, \
             {cpu:+.1} CPU us per request ({cost})",
            self.held_ratio,
            self.misses_avoided * 100.0
        )
    }
}

impl Spread {
    fn from_values(values: Vec<f64>) -> Self {
        let found = crate::Spread::from_values(values);
        found.map_or_else(Self::default, |spread| Self {
            median: spread.median,
            min: spread.low,
            max: spread.high,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_of_odd_and_even_counts() {
        let odd = Spread::from_values(vec![3.0, 1.0, 2.0]);
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::from_values(vec![4.0, 1.0, 3.0, 2.0]).median, 2.5);
    }
}
