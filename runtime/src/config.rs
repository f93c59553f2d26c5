//! The configuration of a runtime and the errors that keep one from starting. Nothing here acts.

use std::num::NonZeroU32;
use std::sync::Arc;

use device::{Capabilities, Device, DeviceError, Task, Waiting};
use policy::Policy;
use units::{Clock, Nanos};

use crate::admission::Limits;
use crate::reputation::Reputation;

/// The configuration of a runtime.
pub struct RuntimeConfig {
    /// Devices by preference; the first is software.
    pub devices: Vec<Arc<dyn Device>>,
    /// The policy that decides where jobs run.
    pub policy: Arc<dyn Policy>,
    /// The fallback of compression.
    pub compress: Fallback,
    /// The fallback of decompression.
    pub decompress: Fallback,
    /// After this a job is redone in software, and its device keeps the buffers it has and is
    /// retired. Too short: work done twice under load. Too long: a hung device is a hung request.
    pub job_timeout: Nanos,
    /// A retired device is first tried again after this, with one job; each failure doubles the
    /// wait, up to 64 times this. Too short: a hung device costs a job its timeout that often.
    /// Too long: a device that was mended stays unused.
    pub reprobe_after: Nanos,
    /// The runtime's time.
    pub clock: Arc<dyn Clock>,
    /// Seed of the draws that the policy is given.
    pub seed: u64,
    /// The limits that keep jobs from devices, between tenants and where devices are full. By default there are none.
    pub limits: Limits,
    /// One in so many results of devices is read back in software before it is used, once a device has earned trust;
    /// all of its first results are, and a larger share until then. None means no result at all. With a small number,
    /// each such result costs the core a decompression. With a large one, a device that turns wrong is found late.
    pub verify_every: Option<NonZeroU32>,
    /// The process's knowledge about these devices. Its runtimes share one.
    pub reputation: Arc<Reputation>,
}

impl RuntimeConfig {
    /// Creates a configuration with software for what devices do not do, and with times and checks that serve well.
    pub fn new(
        devices: Vec<Arc<dyn Device>>,
        policy: Arc<dyn Policy>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            reputation: Reputation::new(&devices),
            devices,
            policy,
            compress: Fallback::Prefer,
            decompress: Fallback::Prefer,
            job_timeout: Nanos::secs(1),
            reprobe_after: Nanos::secs(1),
            clock,
            seed: 0,
            limits: Limits::NONE,
            verify_every: Some(VERIFY_EVERY),
        }
    }

    /// Checks that every job has a device that runs it and every requirement a device that may meet it.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        let (home, others) = self.devices.split_first().ok_or(StartError::NoSoftware)?;
        if home.capabilities().waiting != Waiting::Inline {
            return Err(StartError::NoSoftware);
        }
        if others.is_empty() && [self.compress, self.decompress].contains(&Fallback::Require) {
            return Err(StartError::NothingToRequire);
        }
        for other in others {
            if let Some(codec) = unreadable(home.capabilities(), other.capabilities()) {
                return Err(StartError::Unreadable(other.name().to_owned(), codec));
            }
        }
        Ok(())
    }
}

/// Whether software may stand in for a device, per direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Devices when the policy says so, software otherwise.
    #[default]
    Prefer,
    /// Devices only: a job that none takes fails.
    Require,
    /// Software only.
    Forbid,
}

/// A runtime that could not start; the operator must act.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The first device of the list is not software.
    #[error("the first device must be software: a job that no device takes needs a home")]
    NoSoftware,
    /// Software is forbidden and there is nothing else.
    #[error("fallback is `require` and there is no device beside software; add one or `prefer`")]
    NothingToRequire,
    /// A device and a codec that software does not read: its streams would be lost with it.
    #[error("device {0:?} uses {1}, which software does not read: add that codec to software")]
    Unreadable(String, &'static str),
    /// The system gave no thread.
    #[error("a core's thread did not start: {0}; fewer cores or a higher limit of threads help")]
    Thread(#[source] std::io::Error),
    /// A device did not open.
    #[error("device {0:?} did not open: {1}")]
    Open(String, DeviceError),
}

/// Costs a thousandth of what decompression does, and finds a device that errs now and then within seconds of load.
const VERIFY_EVERY: NonZeroU32 = NonZeroU32::new(1_000).expect("not zero");

/// A codec of the other device's that software does not read.
fn unreadable(home: &Capabilities, other: &Capabilities) -> Option<&'static str> {
    let original_bytes = home.work_bytes_max.min(other.work_bytes_max).as_usize();
    let mut dialects = other.writes.iter().chain(&other.reads).copied();
    let foreign = dialects.find(|dialect| {
        let task = Task::Decompress { dialect: *dialect, original_bytes };
        !home.accepts(&task, original_bytes)
    });
    foreign.map(|dialect| dialect.codec.name())
}
