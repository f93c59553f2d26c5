//! What the two protocols have in common: the content of requests and their outcomes. It knows no wire format.

use units::Nanos;
use workload::{Keys, Values};

use crate::source::Request;

/// The part of the workload that a connection needs.
pub(crate) struct Content<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) values: &'a Values,
    pub(crate) verify: bool,
    pub(crate) exptime_s: i32,
    /// A value longer than any that was written is refused before memory is taken for it.
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
    /// A hit with a value that was not written for its key.
    Wrong(String),
    Miss,
    Stored,
    Error(Failure),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The gRPC status; `None` on memcached.
    pub(crate) status: Option<&'static str>,
    /// The server's words, or how the connection ended.
    pub(crate) message: String,
}
