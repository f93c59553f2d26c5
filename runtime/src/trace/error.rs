//! The reasons why a trace did not run, with the input that it was given. Nothing here acts.

use std::fmt;

use device::DeviceError;
use units::{Nanos, Op};

use super::input::TraceInput;
use super::ports::PortError;

/// A trace that did not run or did not end, and its whole input: the caller's own code can still do the work.
#[derive(Debug, thiserror::Error)]
#[error("trace {trace}{}: {cause}", At(*.op))]
pub struct TraceError {
    /// The input as it was given to `run_trace`.
    pub input: TraceInput,
    /// The trace that was under way: of a chain of tails the last one.
    pub trace: String,
    /// The op that failed, if one did.
    pub op: Option<Op>,
    /// The cause.
    pub cause: Cause,
}

/// The reason why a trace ended without telling, sorted by who must act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The caller: no trace is registered by this name.
    #[error("no such trace is registered")]
    Unknown,
    /// The caller: the payload is larger than one may be.
    #[error("a payload of {bytes} bytes; at most {max} are taken (TraceLimits::payload_bytes_max)")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The bound.
        max: usize,
    },
    /// The caller: the payload is not what the trace takes it for.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The caller: encryption without keys.
    #[error("the input has no session, and with it no keys")]
    NoSession,
    /// The caller: a session that has encrypted as often as its nonces allow.
    #[error("the session's nonces are used up; agree on new keys")]
    NoNonce,
    /// The caller, later: the tenant has as many traces under way as it may.
    #[error(
        "the tenant has {max} traces under way, as many as it may (TraceLimits::tenant_live_max)"
    )]
    TenantFull {
        /// The bound.
        max: usize,
    },
    /// The caller, later: as many traces are under way as may be.
    #[error("{max} traces are under way, as many as may (TraceLimits::live_max)")]
    Full {
        /// The bound.
        max: usize,
    },
    /// The operator of the peer must act: no answer came in time.
    #[error("no answer came within {} us", .0.0 / 1_000)]
    NoAnswer(Nanos),
    /// The operator of the peer must act: it is gone, and no answer will come.
    #[error("the peer is gone and will not answer")]
    PeerGone,
    /// The author of the port must act: it refused.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The device's error says who must act; software failed, or was not allowed to stand in.
    #[error("{0}")]
    Device(DeviceError),
}

/// The causes without their particulars, for metrics.
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

    /// The word that metrics use.
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

/// A payload that is not what it was taken for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not {what}: {why}")]
pub struct Malformed {
    /// The format that it was taken for.
    pub what: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl Malformed {
    pub(crate) fn because(what: &'static str, why: impl fmt::Display) -> Self {
        Self { what, why: why.to_string() }
    }
}

/// `, step decrypt`, or nothing.
struct At(Option<Op>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |op| write!(f, ", step {op}"))
    }
}
