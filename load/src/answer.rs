//! The parts that the two protocols share: the content of requests and their outcomes. The module knows no wire format.

use units::Nanos;
use workload::{Keys, Values};

use crate::source::Request;

/// The part of the workload that a connection needs.
pub(crate) struct Content<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) values: &'a Values,
    pub(crate) verify: bool,
    pub(crate) exptime_s: i32,
    /// The greatest length of a written value. A longer value is refused before memory is allocated for it.
    pub(crate) value_bytes_max: usize,
}

/// An answered request.
pub(crate) struct Answer {
    pub(crate) request: Request,
    pub(crate) sent: Nanos,
    pub(crate) outcome: Outcome,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Hit {
        value_bytes: usize,
    },
    /// A hit with a value that was never written for its key. The text says how the value differs.
    Wrong(String),
    Miss,
    Stored,
    Error(Failure),
}

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The gRPC status, or `None` on memcached.
    pub(crate) status: Option<&'static str>,
    /// The server's error message, or the way in which the connection ended.
    pub(crate) message: String,
}
