//! The reasons why a device did not qualify. The caller decides what follows from them.

use std::time::Duration;

use device::{DeviceError, RefusedReason};

/// The reason why a device did not qualify. The kind says who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The device's queue did not open.
    #[error("{0}")]
    Open(DeviceError),
    /// The device refused a job that it claims to accept.
    #[error("{op}: refused ({reason:?})")]
    Refused {
        /// The op of the job.
        op: &'static str,
        /// The device's reason.
        reason: RefusedReason,
    },
    /// The device did not return a job in time.
    #[error("{op}: no completion within {timeout:?}")]
    Late {
        /// The op of the job.
        op: &'static str,
        /// The time that the job was allowed.
        timeout: Duration,
    },
    /// The device failed a job.
    #[error("{op}: {error}")]
    Failed {
        /// The op of the job.
        op: &'static str,
        /// The device's error.
        error: DeviceError,
    },
    /// The device did not shrink the sample, which every other device shrinks.
    #[error("{op}: the sample, which compresses, did not shrink")]
    DidNotShrink {
        /// The op of the job.
        op: &'static str,
    },
    /// The device returned other bytes than software.
    #[error("WRONG RESULT: it does not {what} {how} as software does ({why})")]
    Wrong {
        /// The verb for the work that the device did wrong.
        what: &'static str,
        /// The codec or the kernel.
        how: &'static str,
        /// The reason why the result is wrong.
        why: String,
    },
    /// Software does not return a correct result for a job that the device fails.
    #[error("software does not stand in for it: {0}")]
    Fallback(String),
}

impl Problem {
    /// Returns whether the device must not be used, because its results are wrong or because a failure would lose jobs.
    /// Every other problem costs only time, and the runtime retires the device while it is lost or hangs.
    pub fn disqualifies(&self) -> bool {
        match self {
            Problem::Wrong { .. } | Problem::Fallback(_) => true,
            Problem::Open(_)
            | Problem::Refused { .. }
            | Problem::Late { .. }
            | Problem::Failed { .. }
            | Problem::DidNotShrink { .. } => false,
        }
    }
}
