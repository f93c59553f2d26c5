//! Where the time of a request went. A worker's [`Recorder`] chooses requests, [`timeline`] collects the stages of the
//! one that the current task works on, and [`Requests`] keeps those that were sampled or slow, counts them, and passes
//! them on to an exporter. The crate knows no protocol and no device; it gets names.

pub mod otlp;
mod recorder;
mod requests;
pub mod timeline;

pub use recorder::{Chosen, Recorder, Started};
pub use requests::{Counts, Requests, Rules};
pub use timeline::{Detail, Kind, Record, RecordedStage, Why};
