//! The papers' experiments (docs/references.md), each in a folder of its own: it measures or simulates here, sets the
//! published numbers beside ours, and writes rows for programs and a page for people. Every number is found in the run
//! that reports it. Parsing a command line and printing are the caller's.

pub mod accelerometer;
pub mod accelflow;
pub mod arcalis;
mod base;
pub mod cache;
pub mod offload;
pub mod scheduler;
pub mod testbed;

pub use base::{Problem, Session, Spread, command, inputs};
