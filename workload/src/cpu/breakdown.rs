//! The result of a profile: samples by category, and those that could not be sorted or read. These are values only.

use super::rules::Frames;
use super::weights::StandsFor;

/// Sums over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Samples of cycles, or of the event that stands for them.
    pub samples: u64,
    /// Their weight: cycles if the profile has them, otherwise the counts of its event.
    pub weight: u64,
    /// Instructions, if they were recorded.
    pub instructions: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: Sums) {
        self.samples = self.samples.saturating_add(other.samples);
        self.weight = self.weight.saturating_add(other.weight);
        self.instructions = self.instructions.saturating_add(other.instructions);
    }
}

/// Lines that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Malformed {
    /// The number of lines, including those that were too long.
    pub lines: u64,
    /// The number and the beginning of the first few.
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

/// One category, or one part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Category {
    /// Its name.
    pub name: String,
    /// The frames that its rules look at. None if they differ.
    pub frames: Option<Frames>,
    /// The sums of its samples.
    pub sums: Sums,
    /// Its named parts, the largest first.
    pub parts: Vec<(String, Sums)>,
    /// For leaf functions: the symbols with the most weight.
    pub top: Vec<(String, u64)>,
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakdown {
    /// The categories, the largest first. Those without a sample are left out.
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

/// A profile, sorted.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuProfile {
    /// `perf script` or `folded stacks`.
    pub format: &'static str,
    /// The unit of the weights: the name of the event, several names for several kinds of cores, or `samples`.
    pub event: String,
    /// True if weights are cycles.
    pub counts_cycles: bool,
    /// The time on a core that was sampled beside cycles (ns), if it was.
    pub clock_ns: Option<u64>,
    /// The sums over everything.
    pub total: Sums,
    /// The meaning of the counts of folded stacks. None in other formats.
    pub stands_for: Option<StandsFor>,
    /// The number of independent samples of one weight that would be as sure. There are fewer than samples if weights
    /// differ.
    pub independent_samples: f64,
    /// The breakdown by leaf function (table 2).
    pub leaf: Breakdown,
    /// The breakdown by functionality (table 3).
    pub functionality: Breakdown,
    /// The lines that could not be read.
    pub malformed: Malformed,
    /// Samples of further events, which are not used.
    pub other_events: u64,
    /// Distinct symbols seen, as far as they are kept.
    pub symbols: usize,
    /// Frames whose symbol was beyond the bound on distinct ones, so that no rule was asked.
    pub frames_beyond: u64,
}

impl CpuProfile {
    /// Returns the clock while the profile ran (GHz), if both cycles and the time on cores were sampled.
    pub fn clock_ghz(&self) -> Option<f64> {
        self.clock_ns.map(|ns| self.total.weight as f64 / ns as f64)
    }

    /// Returns the fraction of all weight.
    pub fn share(&self, sums: Sums) -> f64 {
        if self.total.weight == 0 { 0.0 } else { sums.weight as f64 / self.total.weight as f64 }
    }

    /// Returns instructions per cycle, if both were recorded.
    pub fn ipc(&self, sums: Sums) -> Option<f64> {
        let known = self.counts_cycles && self.total.instructions > 0 && sums.weight > 0;
        known.then(|| sums.instructions as f64 / sums.weight as f64)
    }

    /// Returns a category of either table, functionalities first, and the table it is in.
    pub fn find(&self, name: &str) -> Option<&Category> {
        self.functionality.find(name).or_else(|| self.leaf.find(name))
    }
}
