//! Experiments on the cache as services: the configurations as processes of their own, one point of load on one of
//! them, and each stage of a request measured alone; and what is kept of any long experiment that is interrupted. It
//! draws no conclusions; `demo` and `reproduce` do.

mod awake;
mod configuration;
mod deployment;
mod kept;
mod machine;
mod port;
mod process;
mod qpl;
mod sample;
mod stages;

pub(crate) use awake::Awake;
pub(crate) use configuration::{Configuration, Door, Place, VIRTUAL, Work};
pub(crate) use deployment::{Backing, Deployment, PROCESSES, Site};
pub(crate) use kept::Kept;
pub(crate) use machine::{CoreTime, Machine};
pub(crate) use port::Port;
pub(crate) use process::{PATIENCE, Process, memcached_is_here, metrics, start_memcached};
pub(crate) use qpl::why_not;
pub(crate) use sample::{Load, Sample, Usage};
pub(crate) use stages::{Probe, Stage};
