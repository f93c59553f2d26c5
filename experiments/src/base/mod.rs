//! The parts that belong to no single experiment: a run, and its results as rows for programs and a page for people.

mod build;
mod checkpoint;
pub(crate) mod figures;
mod lines;
pub(crate) mod rows;
mod session;

pub use build::inputs;
pub(crate) use checkpoint::Checkpoint;
pub use figures::page_facts;
pub use rows::{Spread, command};
pub use session::{Problem, Session};
pub(crate) use session::{entries, replications, study};

/// A configuration keeps up while it answers at least this share of what is offered. The limit is for medians and 90th
/// percentiles: they come from a few hundred requests in one run, where half a percent would be less than two requests
/// and a short absence of the host would decide.
pub(crate) const ACHIEVED_MIN: f64 = 0.98;

/// The same limit for 99th percentiles. At most half of the percent beyond them may be late, because otherwise the
/// percentile is the length of a queue. Such runs have thousands of requests, so one late request does not decide.
pub(crate) const ACHIEVED_MIN_P99: f64 = 0.995;
