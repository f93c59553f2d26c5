//! The experiments of the papers in docs/references.md, one folder each. An experiment measures or simulates here, sets
//! the published numbers beside ours, and writes rows for programs and a page for people. Every number comes from the
//! run that reports it. The caller parses the command line and prints.

pub mod accelerometer;
pub mod accelflow;
pub mod arcalis;
mod base;
pub mod cache;
pub mod offload;
pub mod scheduler;
pub mod testbed;

pub use base::{Problem, Session, Spread, command, inputs, page_facts};
