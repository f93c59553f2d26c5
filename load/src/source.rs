//! What to ask for next: draws of operation and key, and the three ways in which requests come
//! about.

use std::ops::Range;

use units::{Nanos, Prng};
use workload::{Arrivals, Popularity};

/// What a request does.
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
    /// When it is due; in a closed loop, when it is sent.
    pub(crate) intended: Nanos,
}

/// Where requests come from.
pub(crate) enum Source {
    /// Due at set times, until the end of the run.
    Open(OpenSource),
    /// Whenever one of `depth` places on a connection is free.
    Closed { depth: usize, mix: Mix },
    /// A set of each key, as fast as they are stored.
    Populate { depth: usize, ids: Range<u64> },
}

/// Arrivals of an open loop.
pub(crate) struct OpenSource {
    arrivals: Arrivals,
    start: Nanos,
    next_due: Nanos,
    mix: Mix,
}

/// Draws of operation and key.
pub(crate) struct Mix {
    pub(crate) prng: Prng,
    pub(crate) get_share: f64,
    pub(crate) popularity: Popularity,
}

impl Source {
    /// Requests due from `start` on.
    pub(crate) fn open(mut arrivals: Arrivals, mut mix: Mix, start: Nanos) -> Self {
        let next_due = start + arrivals.next_due(&mut mix.prng);
        Self::Open(OpenSource { arrivals, start, next_due, mix })
    }

    /// A request for a free place at `now`, if requests do not come by the clock.
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
    /// When the next request is due.
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
