//! Decides what to ask for next. It draws operation and key, and creates requests in one of three ways.

use std::ops::Range;

use units::{Nanos, Prng};
use workload::{Arrivals, Popularity};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Get,
    Set,
    /// A set that follows a get's miss; it is not part of the offered rate.
    Fill,
}

/// A request that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) id: u64,
    /// When the request is due; in a closed loop, when it is sent.
    pub(crate) intended: Nanos,
}

/// The three sources of requests.
pub(crate) enum Source {
    /// Requests that are due at set times, until the end of the run.
    Open(OpenSource),
    /// A request whenever one of `depth` places on a connection is free.
    Closed { depth: usize, mix: Mix },
    /// One set of each key, as fast as they are stored.
    Populate { depth: usize, ids: Range<u64> },
}

/// The arrivals of an open loop.
pub(crate) struct OpenSource {
    arrivals: Arrivals,
    start: Nanos,
    next_due: Nanos,
    mix: Mix,
}

/// Draws operations and keys.
pub(crate) struct Mix {
    pub(crate) prng: Prng,
    pub(crate) get_share: f64,
    pub(crate) popularity: Popularity,
}

impl Source {
    /// Creates requests that are due from `start` on.
    pub(crate) fn open(mut arrivals: Arrivals, mut mix: Mix, start: Nanos) -> Self {
        let next_due = start + arrivals.next_due(&mut mix.prng);
        Self::Open(OpenSource { arrivals, start, next_due, mix })
    }

    /// Returns a request for a free place at `now`, unless requests come by the clock.
    pub(crate) fn next_now(&mut self, now: Nanos) -> Option<Request> {
        match self {
            Self::Open(_) => None,
            Self::Closed { mix, .. } => Some(mix.draw(now)),
            Self::Populate { ids, .. } => {
                ids.next().map(|id| Request { op: Op::Set, id, intended: now })
            }
        }
    }
}

impl OpenSource {
    /// Returns when the next request is due.
    pub(crate) fn next_due(&self) -> Nanos {
        self.next_due
    }

    /// Takes the next request, due or not.
    pub(crate) fn take(&mut self) -> Request {
        let request = self.mix.draw(self.next_due);
        self.next_due = self.start + self.arrivals.next_due(&mut self.mix.prng);
        request
    }
}

impl Mix {
    fn draw(&mut self, intended: Nanos) -> Request {
        let op = if self.prng.unit() < self.get_share { Op::Get } else { Op::Set };
        Request { op, id: self.popularity.draw(&mut self.prng), intended }
    }
}
