//! The reasons why a trace did not run, together with its input. Nothing here acts.

use std::fmt;

use device::DeviceError;
use units::{Nanos, Op};

use super::input::TraceInput;
use super::ports::PortError;

/// The error of a trace that did not run or did not end. It contains the whole input, so that the caller's code can
/// still do the work.
#[derive(Debug, thiserror::Error)]
#[error("trace {trace}{}: {cause}", At(*.op))]
pub struct TraceError {
    /// The input as it was given to `run_trace`.
    pub input: TraceInput,
    /// The name of the trace that was in flight. In a chain of tails this is the last trace.
    pub trace: String,
    /// The op that failed, if one did.
    pub op: Option<Op>,
    /// The cause.
    pub cause: Cause,
}

/// The reason why a trace ended without a result. Each variant says who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The caller must act: no trace has this name.
    #[error("no such trace is registered")]
    Unknown,
    /// The caller must act: the payload is larger than allowed.
    #[error("a payload of {bytes} bytes; at most {max} are taken (TraceLimits::payload_bytes_max)")]
    TooLarge {
        /// The size of the payload in bytes.
        bytes: usize,
        /// The largest size in bytes.
        max: usize,
    },
    /// The caller must act: the payload does not have the format that the trace expects.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The caller must act: the trace encrypts or decrypts, and the input has no keys.
    #[error("the input has no session, and with it no keys")]
    NoSession,
    /// The caller must act: the session has encrypted as often as its nonces allow.
    #[error("the session's nonces are used up; agree on new keys")]
    NoNonce,
    /// The tenant has as many traces in flight as it may have. The caller may try again later.
    #[error(
        "the tenant has {max} traces under way, as many as it may (TraceLimits::tenant_live_max)"
    )]
    TenantFull {
        /// The most traces of one tenant.
        max: usize,
    },
    /// As many traces are in flight as are allowed. The caller may try again later.
    #[error("{max} traces are under way, as many as may (TraceLimits::live_max)")]
    Full {
        /// The most traces in flight.
        max: usize,
    },
    /// The operator of the peer must act: no answer came in time.
    #[error("no answer came within {} us", .0.0 / 1_000)]
    NoAnswer(Nanos),
    /// The operator of the peer must act: the peer is gone, and no answer will come.
    #[error("the peer is gone and will not answer")]
    PeerGone,
    /// The author of the port must act: the port refused the work.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A job failed, and software could not or must not replace the device. The error says who must act.
    #[error("{0}")]
    Device(DeviceError),
}

/// The causes without their details, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CauseKind {
    Unknown,
    TooLarge,
    Malformed,
    NoSession,
    NoNonce,
    TenantFull,
    Full,
    NoAnswer,
    PeerGone,
    Port,
    Device,
}

impl CauseKind {
    pub(crate) const COUNT: usize = CauseKind::Device as usize + 1;

    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            CauseKind::Unknown => "unknown",
            CauseKind::TooLarge => "too_large",
            CauseKind::Malformed => "malformed",
            CauseKind::NoSession => "no_session",
            CauseKind::NoNonce => "no_nonce",
            CauseKind::TenantFull => "tenant_full",
            CauseKind::Full => "full",
            CauseKind::NoAnswer => "no_answer",
            CauseKind::PeerGone => "peer_gone",
            CauseKind::Port => "port",
            CauseKind::Device => "device",
        }
    }
}

impl Cause {
    /// Returns the kind of the cause.
    pub const fn kind(&self) -> CauseKind {
        match self {
            Cause::Unknown => CauseKind::Unknown,
            Cause::TooLarge { .. } => CauseKind::TooLarge,
            Cause::Malformed(_) => CauseKind::Malformed,
            Cause::NoSession => CauseKind::NoSession,
            Cause::NoNonce => CauseKind::NoNonce,
            Cause::TenantFull { .. } => CauseKind::TenantFull,
            Cause::Full { .. } => CauseKind::Full,
            Cause::NoAnswer(_) => CauseKind::NoAnswer,
            Cause::PeerGone => CauseKind::PeerGone,
            Cause::Port(_) => CauseKind::Port,
            Cause::Device(_) => CauseKind::Device,
        }
    }
}

/// A payload that does not have the expected format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not {what}: {why}")]
pub struct Malformed {
    /// The expected format.
    pub what: &'static str,
    /// The reason why the payload does not have the format.
    pub why: String,
}

impl Malformed {
    pub(crate) fn because(what: &'static str, why: impl fmt::Display) -> Self {
        Self { what, why: why.to_string() }
    }
}

/// Writes the op, such as `, step decrypt`, or nothing if there is no op.
struct At(Option<Op>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |op| write!(f, ", step {op}"))
    }
}
