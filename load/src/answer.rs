//! What the two protocols have in common: the content of requests, and what became of one. It knows
//! no wire.

use units::Nanos;
use workload::{Keys, Values};

use crate::source::Request;

/// What a connection needs to know of the workload.
pub(crate) struct Content<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) values: &'a Values,
    pub(crate) verify: bool,
    pub(crate) exptime_s: i32,
    /// A longer value than any that was written is refused before its memory is taken.
    pub(crate) value_bytes_max: usize,
}

/// An answered request.
pub(crate) struct Answer {
    pub(crate) request: Request,
    pub(crate) sent: Nanos,
    pub(crate) outcome: Outcome,
}

/// What became of a request.
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
    /// gRPC's word for it; none on memcached.
    pub(crate) status: Option<&'static str>,
    /// In the server's words, or how the connection ended.
    pub(crate) message: String,
}
