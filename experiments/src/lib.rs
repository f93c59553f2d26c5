//! The experiments of the papers in docs/references.md, one folder each. An experiment measures or simulates
//! on this machine, compares the published numbers with ours, and writes rows for programs and a page for
//! people. `testbed`, `records` and `compression` also serve the demo, which belongs to no paper, `rpc` the commands of
//! the RPC engine, and `added_time` the estimate. Every number comes from the run that reports it. The caller parses
//! the command line and prints.

pub mod accelerometer;
pub mod accelflow;
pub mod added_time;
pub mod arcalis;
mod base;
pub mod cache;
pub mod compression;
pub mod index;
pub mod offload;
pub mod records;
pub mod rpc;
pub mod scheduler;
pub mod testbed;

pub use base::{Measurement, Problem, Session, Simulation, Spread, command, inputs, page_facts};
