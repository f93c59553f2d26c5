//! The compressed cache as services. A deployment runs one configuration as processes, a sample measures one load on
//! it, and a probe measures one stage of a request alone. The module draws no conclusions; the experiments and the demo
//! do.

mod configuration;
mod deployment;
mod qpl;
mod sample;
mod stages;

pub use configuration::{Compressor, Configuration, StoreRoute, Topology, VIRTUAL};
pub use deployment::{Backing, Deployment, PROCESSES, Site};
pub use qpl::unavailable_reason;
pub use sample::{Load, Sample, Usage};
pub use stages::{Probe, Stage};
