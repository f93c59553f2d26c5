//! Parts that all experiments share: a run, and its results as rows for programs and as a page for people.

pub(crate) mod agreement;
mod build;
mod checkpoint;
pub(crate) mod figures;
mod flags;
mod lines;
mod published;
pub(crate) mod rows;
mod session;

pub use build::inputs;
pub(crate) use checkpoint::Checkpoint;
pub use figures::page_facts;
pub use flags::{Measurement, Simulation};
pub use harness::Spread;
pub use rows::command;
pub use session::{Problem, Session};
pub(crate) use session::{entries, replications, study};

/// The share of the offered load that a configuration must answer to keep up, for medians and 90th
/// percentiles. They come from runs of a few hundred requests. There, half a percent is less than two
/// requests, so with a stricter limit a short pause of the host would decide.
pub(crate) const ACHIEVED_MIN: f64 = 0.98;

/// The share of the offered load that a configuration must answer to keep up, for 99th percentiles. At most half of the
/// slowest percent may be late, because otherwise the percentile shows the length of a queue. These runs have thousands
/// of requests, so one late request does not decide.
pub(crate) const ACHIEVED_MIN_P99: f64 = 0.995;
