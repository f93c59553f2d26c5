//! Experiments on the cache as services: the configurations as processes of their own, one point of load on one of
//! them, and each stage of a request measured alone. It draws no conclusions; `demo` and `reproduce` do.

mod awake;
mod configuration;
mod deployment;
mod machine;
mod process;
mod sample;
mod stages;

pub(crate) use awake::Awake;
pub(crate) use configuration::{Configuration, Door, Software, VIRTUAL};
pub(crate) use deployment::{Backing, Deployment, PROCESSES};
pub(crate) use machine::Machine;
pub(crate) use process::{Process, memcached_is_here, start_memcached};
pub(crate) use sample::{Load, Sample, Usage};
pub(crate) use stages::{Probe, Stage};
