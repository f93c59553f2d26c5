//! The requests for a part of a cache's keys in their order, with what was told of the size of each item. It draws no
//! conclusions.

use super::listing::RequestKind;

/// The requests for the keys whose hash is below a threshold.
#[derive(Debug)]
pub(super) struct RequestLog {
    share: f64,
    /// The sets that would fill a cache with the items that it held at the start, the least recently used one first.
    pub(super) filled: Vec<LoggedRequest>,
    /// The requests after that.
    pub(super) requests: Vec<LoggedRequest>,
}

/// A request for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoggedRequest {
    pub(super) hash: u64,
    /// The item's size as memcached counts it (bytes), or 0 if it is not known.
    pub(super) item_bytes: u32,
    /// The class of the key, by its index.
    pub(super) class: u16,
    pub(super) kind: RequestKind,
}

impl RequestLog {
    /// Makes an empty log of this share of the keys.
    pub(super) fn new(share: f64) -> Self {
        Self { share: share.clamp(0.0, 1.0), filled: Vec::new(), requests: Vec::new() }
    }

    /// Returns the share of the keys that are followed.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// Returns whether the key with this hash is followed.
    pub(super) fn follows(&self, hash: u64) -> bool {
        hash as f64 <= self.share * u64::MAX as f64
    }

    /// Appends the request if its key is followed.
    pub(super) fn push(&mut self, request: LoggedRequest) {
        if self.follows(request.hash) {
            self.requests.push(request);
        }
    }
}
