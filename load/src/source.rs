//! Chooses the next request. Its source is an open loop, a closed loop or the populate phase.

use std::ops::Range;

use units::{Nanos, Prng};
use workload::{Arrivals, Popularity};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Get,
    Set,
    /// A set that follows a get's miss. It is not part of the offered rate.
    Fill,
}

/// A request of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) id: u64,
    /// The time at which the request is due. In a closed loop it is the time at which the request is sent.
    pub(crate) intended: Nanos,
}

/// The source of requests.
pub(crate) enum Source {
    /// Requests that are due at given times, until the end of the run.
    Open(OpenSource),
    /// A request as soon as fewer than `depth` requests are in flight on a connection.
    Closed { depth: usize, mix: Mix },
    /// One set of each key, as fast as the server stores them. Each connection has up to `depth` in flight.
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
    /// Creates a source of requests that are due from `start` on.
    pub(crate) fn open(mut arrivals: Arrivals, mut mix: Mix, start: Nanos) -> Self {
        let next_due = start + arrivals.next_due(&mut mix.prng);
        Self::Open(OpenSource { arrivals, start, next_due, mix })
    }

    /// Returns the request that is sent at `now`, or `None` in an open loop.
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
    /// Returns the time at which the next request is due.
    pub(crate) fn next_due(&self) -> Nanos {
        self.next_due
    }

    /// Takes the next request, even if it is not due yet.
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
