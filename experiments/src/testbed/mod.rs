//! The compressed cache as services: its configurations as processes of their own, one point of load on one of them,
//! and each stage of a request measured alone. It draws no conclusions; the experiments and the demo do.

mod configuration;
mod deployment;
mod qpl;
mod sample;
mod stages;

pub use configuration::{Configuration, Door, Place, VIRTUAL, Work};
pub use deployment::{Backing, Deployment, PROCESSES, Site};
pub use qpl::why_not;
pub use sample::{Load, Sample, Usage};
pub use stages::{Probe, Stage};
