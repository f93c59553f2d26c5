//! Shows where a service's cycles go. It reads CPU profiles (`perf script` text and folded stacks as a stream, pprof)
//! in bounded memory, and sorts the samples by an ordered file of rules into the categories of \[Accelerometer\] tables
//! 2 and 3. The module opens no file, resolves no symbols, and estimates no gain of acceleration.

mod advice;
mod breakdown;
mod events;
mod lines;
mod pprof;
mod read;
mod rules;
mod symbols;
#[cfg(test)]
mod tests;
mod weights;

pub use advice::{Advice, advice};
pub use breakdown::{Breakdown, Category, CpuProfile, Malformed, Sums};
pub use read::{CpuProfileError, Limits, read, read_within};
pub use rules::{BadRules, Explained, Frames, Rules, Table};
pub use weights::StandsFor;
