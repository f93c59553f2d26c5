//! The configuration of a runtime, and the errors that prevent its start. Nothing here acts.

use std::num::NonZeroU32;
use std::sync::Arc;

use device::{Capabilities, Device, DeviceError, Task, Waiting};
use policy::Policy;
use units::{Clock, Nanos};

use crate::admission::Limits;
use crate::reputation::Reputation;

/// The configuration of a runtime.
pub struct RuntimeConfig {
    /// The devices by preference. The first one is software.
    pub devices: Vec<Arc<dyn Device>>,
    /// The policy that decides where jobs run.
    pub policy: Arc<dyn Policy>,
    /// The fallback of compression.
    pub compress: Fallback,
    /// The fallback of decompression.
    pub decompress: Fallback,
    /// The time after which a job is redone in software. Its device keeps the job's buffers and is retired. With a
    /// short timeout, work is done twice under load. With a long one, a request waits as long as its device hangs.
    pub job_timeout: Nanos,
    /// The wait until a retired device is first tried again, with one job. Each failure doubles the wait, up
    /// to 64 times this value. With a short wait, jobs often run into the timeout of a hung device. With a
    /// long wait, a repaired device stays unused.
    pub reprobe_after: Nanos,
    /// The clock of the runtime.
    pub clock: Arc<dyn Clock>,
    /// The seed of the random draws that the policy receives.
    pub seed: u64,
    /// The limits on waiting jobs and on each tenant's jobs in flight on devices. By default there are none.
    pub limits: Limits,
    /// After a device has earned trust, one of its results in this many is read back in software before use.
    /// The first results are all read back, and then a decreasing share. With none, no result is read back.
    /// With a small number, verification costs the core many decompressions. With a large number, a device
    /// that turns wrong is found late.
    pub verify_every: Option<NonZeroU32>,
    /// Whether the ops of a chain may go to a device in one trip. With `false` each op is placed by itself.
    pub chains: bool,
    /// The process's knowledge about these devices. All runtimes of a process share it.
    pub reputation: Arc<Reputation>,
}

impl RuntimeConfig {
    /// Creates a configuration with default times and checks. Software does the jobs that devices refuse.
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
            chains: true,
        }
    }

    /// Checks that software can run every job, and that there is a device where one is required.
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

/// The rule for whether software may replace a device. Each direction has its own rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Devices run the job if the policy says so. Software runs it otherwise.
    #[default]
    Prefer,
    /// Only devices run the job. A job that no device accepts fails.
    Require,
    /// Only software runs the job.
    Forbid,
}

/// The reason why a runtime could not start. The operator must act.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The first device of the list is not software.
    #[error("the first device must be software: a job that no device takes needs a home")]
    NoSoftware,
    /// Software is forbidden and there is no other device.
    #[error("fallback is `require` and there is no device beside software; add one or `prefer`")]
    NothingToRequire,
    /// A device uses a codec that software does not read. If the device fails, its streams cannot be read.
    #[error("device {0:?} uses {1}, which software does not read: add that codec to software")]
    Unreadable(String, &'static str),
    /// The system did not start a thread.
    #[error("a core's thread did not start: {0}; fewer cores or a higher limit of threads help")]
    Thread(#[source] std::io::Error),
    /// A device cannot be opened as configured, or software is lost.
    #[error("device {0:?} did not open: {1}")]
    Open(String, DeviceError),
}

/// The default of `verify_every`. It costs a thousandth of a decompression per result. Under load, a device
/// that is sometimes wrong is detected within seconds.
const VERIFY_EVERY: NonZeroU32 = NonZeroU32::new(1_000).expect("not zero");

/// Returns a codec of `other` that software does not read, if there is one.
fn unreadable(home: &Capabilities, other: &Capabilities) -> Option<&'static str> {
    let original_bytes = home.work_bytes_max.min(other.work_bytes_max).as_usize();
    let mut dialects = other.writes.iter().chain(&other.reads).copied();
    let foreign = dialects.find(|dialect| {
        let task = Task::Decompress { dialect: *dialect, original_bytes };
        !home.accepts(&task, original_bytes)
    });
    foreign.map(|dialect| dialect.codec.name())
}
