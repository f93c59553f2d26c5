//! The result of reading a profile: the samples by category, and those that could not be sorted or read.

use super::rules::Frames;
use super::weights::StandsFor;

/// Sums over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The number of samples of cycles, or of the event that is used instead of cycles.
    pub samples: u64,
    /// The weight of the samples: cycles if the profile has them, otherwise the counts of its event.
    pub weight: u64,
    /// The number of instructions, or 0 if they were not recorded.
    pub instructions: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: Sums) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
        self.instructions = self.instructions.saturating_add(other.instructions);
    }
}

/// The lines that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Malformed {
    /// The number of lines, including those that were too long.
    pub lines: u64,
    /// The first few of these lines: the line number and the beginning of the line.
    pub examples: Vec<(u64, String)>,
}

impl Malformed {
    pub(super) fn note(&mut self, number: u64, line: &[u8]) {
        self.lines += 1;
        if self.examples.len() < EXAMPLES_MAX {
            let line = &line[..line.len().min(EXAMPLE_BYTES_MAX)];
            let text = String::from_utf8_lossy(line).trim_end().escape_debug().to_string();
            self.examples.push((number, text));
        }
    }
}

const EXAMPLES_MAX: usize = 5;
const EXAMPLE_BYTES_MAX: usize = 80;

/// One category of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Category {
    /// The name of the category.
    pub name: String,
    /// The frames to which the rules of the category apply. None if its rules apply to different frames.
    pub frames: Option<Frames>,
    /// The sums of the samples in the category.
    pub sums: Sums,
    /// The named parts of the category, the largest first.
    pub parts: Vec<(String, Sums)>,
    /// The symbols with the most weight. Only the table of leaf functions has them.
    pub top: Vec<(String, u64)>,
}

/// One table of categories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// The categories, the largest first. Categories without a sample are left out.
    pub categories: Vec<Category>,
    /// The samples that no rule matched.
    pub uncategorised: Category,
}

impl Breakdown {
    /// Returns a category by its name, without regard to case.
    pub fn find(&self, name: &str) -> Option<&Category> {
        self.categories.iter().find(|one| one.name.eq_ignore_ascii_case(name))
    }
}

/// A profile whose samples are sorted into categories.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuProfile {
    /// The format of the input: `perf script`, `folded stacks` or `pprof`.
    pub format: &'static str,
    /// The unit of the weights: the name of the event, the names of several events if cores differ, or `samples`.
    pub event: String,
    /// True if the weights are cycles.
    pub counts_cycles: bool,
    /// The sampled time on cores (ns). None unless the profile has samples of both time and cycles.
    pub clock_ns: Option<u64>,
    /// The sums over all samples.
    pub total: Sums,
    /// The meaning of the counts of folded stacks. None in other formats.
    pub stands_for: Option<StandsFor>,
    /// The number of independent samples of equal weight that would give the same certainty. It is smaller
    /// than the number of samples if their weights differ.
    pub independent_samples: f64,
    /// The breakdown by leaf function (table 2).
    pub leaf: Breakdown,
    /// The breakdown by functionality (table 3).
    pub functionality: Breakdown,
    /// The lines that could not be read.
    pub malformed: Malformed,
    /// The number of samples of other events, which are not used.
    pub other_events: u64,
    /// The number of distinct symbols that were stored.
    pub symbols: usize,
    /// The number of frames whose symbol was not stored because the limit of distinct symbols was reached. No rule was
    /// applied to them.
    pub frames_beyond: u64,
}

impl CpuProfile {
    /// Returns the clock rate while the profile ran (GHz), if both cycles and the time on cores were sampled.
    pub fn clock_ghz(&self) -> Option<f64> {
        self.clock_ns.map(|ns| self.total.weight as f64 / ns as f64)
    }

    /// Returns the weight of `sums` as a fraction of all weight.
    pub fn share(&self, sums: Sums) -> f64 {
        if self.total.weight == 0 { 0.0 } else { sums.weight as f64 / self.total.weight as f64 }
    }

    /// Returns the instructions per cycle, if both were recorded.
    pub fn ipc(&self, sums: Sums) -> Option<f64> {
        let known = self.counts_cycles && self.total.instructions > 0 && sums.weight > 0;
        known.then(|| sums.instructions as f64 / sums.weight as f64)
    }

    /// Returns a category by its name. The functionalities are searched first, then the leaf functions.
    pub fn find(&self, name: &str) -> Option<&Category> {
        self.functionality.find(name).or_else(|| self.leaf.find(name))
    }
}
