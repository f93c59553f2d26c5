//! The reasons why a device did not qualify. The caller decides what follows from them.

use std::time::Duration;

use device::{DeviceError, RefusedReason};

/// The reason why a device did not qualify. The kind says who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Its queue did not open.
    #[error("{0}")]
    Open(DeviceError),
    /// It did not take a job that it says it takes.
    #[error("{op}: refused ({reason:?})")]
    Refused {
        /// The op of the job.
        op: &'static str,
        /// Its word.
        reason: RefusedReason,
    },
    /// It kept a job.
    #[error("{op}: no completion within {patience:?}")]
    Late {
        /// The op of the job.
        op: &'static str,
        /// The time that the job was given.
        patience: Duration,
    },
    /// It failed a job.
    #[error("{op}: {error}")]
    Failed {
        /// The op of the job.
        op: &'static str,
        /// Its word.
        error: DeviceError,
    },
    /// It found no shorter form of what every other device shortens.
    #[error("{op}: the sample, which compresses, did not shrink")]
    DidNotShrink {
        /// The op of the job.
        op: &'static str,
    },
    /// It gave other bytes than software does.
    #[error("WRONG RESULT: it does not {what} {how} as software does ({why})")]
    Wrong {
        /// The verb.
        what: &'static str,
        /// The codec or the kernel.
        how: &'static str,
        /// How the result is wrong.
        why: String,
    },
    /// A job that it fails does not come back whole from software.
    #[error("software does not stand in for it: {0}")]
    Fallback(String),
}

impl Problem {
    /// Returns whether the device must not be used: its results are wrong, or a failure of it would not be survived.
    /// Any other device costs time at most, and the runtime retires it while it is lost or hangs.
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
