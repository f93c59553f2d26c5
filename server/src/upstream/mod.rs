//! Links to stores. Each worker has one link per store, and all sessions of the worker share it. A link reaches a
//! memcached server over sockets and a store service over gRPC. Requests and answers are memcached's in both cases. The
//! backend knows what a request means, and the ring decides which store gets it.
//!
//! A memcached server answers a connection's requests in their order, so a long answer delays all answers behind it. A
//! link therefore has two connections to a server: one for short exchanges, and one for long exchanges, which wait only
//! for each other.

mod answer;
mod health;
mod interactive;
mod reader;
mod refused;
mod service;
mod socket;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use device::Pool;
use units::{ByteCount, Clock};

pub(crate) use answer::{Answer, LinkError, LinkFault, Returned, Value};
pub(crate) use interactive::InteractiveLoad;

use crate::budget::{Budget, Permit};
use crate::counters::Counters;
use crate::reply_buffer::ReplyBuffer;
use crate::stream::Stream;
use health::Health;
use service::Service;
use socket::Socket;

/// A worker's link to one store. Clones share it.
#[derive(Clone)]
pub(crate) enum Link {
    Server(Rc<Server>),
    Service(Rc<Service>),
}

/// A memcached server and the connections to it.
pub(crate) struct Server {
    interactive: Rc<Socket>,
    bulk: Rc<Socket>,
}

/// The kind of connection that carries a request to a server. Requests on one connection take effect in their order.
/// Requests on different connections take effect in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Short requests with answers that are expected to be short.
    #[default]
    Interactive,
    /// Everything else.
    Bulk,
}

/// The limits on the memory of answers, their counters, and the clock that decides whether a server is down or late.
#[derive(Clone)]
pub(crate) struct Limits {
    pub(crate) pool: Pool,
    /// The budget for long values. A long value that gets no part of it is refused.
    pub(crate) budget: Budget,
    pub(crate) counters: Arc<Counters>,
    pub(crate) value_bytes_max: usize,
    /// The bytes that an answer without values, or a message of a store service, may hold.
    pub(crate) held_bytes_max: ByteCount,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The limits on the time that a link waits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) request: Duration,
    pub(crate) connect: Duration,
    pub(crate) retry_min: Duration,
    pub(crate) retry_max: Duration,
}

/// The answers that a request may have. An error line may answer any request. An answer of another kind means that
/// requests and answers are out of step, and ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// VALUE lines, at most one per key, and END.
    Values { keys_max: usize },
    /// `STORED`, `NOT_STORED`, `EXISTS` or `NOT_FOUND`. A bare `ERROR` is not a valid answer, neither here nor to `ms`.
    /// A server that did not know the command takes the value behind it for the next command.
    Written,
    /// `HD`, `NS`, `EX` or `NF`.
    MetaWritten,
    /// `DELETED`, `TOUCHED` or `NOT_FOUND`.
    Found,
    /// A number or `NOT_FOUND`.
    Number,
    /// `VA` with its value, `HD`, `EN`, `NF`, `NS` or `EX`.
    Meta,
    /// `ME` or `EN`.
    Debug,
    /// `OK`
    Done,
    /// STAT lines and END, `RESET` or `OK`.
    Stats,
    /// `MN`
    Noop,
}

impl Server {
    /// Returns the connection for a request. While the server has no room for that connection, it returns the other
    /// one.
    #[inline]
    fn socket(&self, traffic: Traffic) -> &Socket {
        let (first, other) = match traffic {
            Traffic::Interactive => (&self.interactive, &self.bulk),
            Traffic::Bulk => (&self.bulk, &self.interactive),
        };
        if first.is_refused() { other } else { first }
    }
}

impl Expect {
    /// Returns the most values that the answer may contain.
    const fn values_max(self) -> usize {
        match self {
            Expect::Values { keys_max } => keys_max,
            Expect::Meta => 1,
            _ => 0,
        }
    }
}

impl Traffic {
    /// Returns the traffic class of a request that sends this many bytes and requests no value.
    pub(crate) const fn of_request(bytes: usize) -> Self {
        if bytes <= INTERACTIVE_BYTES_MAX { Traffic::Interactive } else { Traffic::Bulk }
    }
}

/// The most bytes that one session's requests and answers may be expected to have on the connection for short
/// exchanges, where others wait behind them. 32 KiB take some tens of microseconds.
pub(crate) const INTERACTIVE_BYTES_MAX: usize = 32 << 10;

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Expect::Values { .. } => "values",
            Expect::Written => "a write",
            Expect::MetaWritten => "a meta write",
            Expect::Found => "a delete or touch",
            Expect::Number => "counting",
            Expect::Meta => "a meta command",
            Expect::Debug => "meta debug",
            Expect::Done => "a flush",
            Expect::Stats => "stats",
            Expect::Noop => "a meta no-op",
        })
    }
}
impl Link {
    /// Creates a link to the memcached server at `address` (host:port, or a path for a Unix socket). It connects with
    /// the first request.
    pub(crate) fn to_server(
        address: String,
        timing: Timing,
        limits: Limits,
        load: &Rc<InteractiveLoad>,
    ) -> Self {
        let health = Rc::<Health>::default();
        let start =
            |load| Socket::start(address.clone(), Rc::clone(&health), timing, limits.clone(), load);
        // The load on the connection for long exchanges is never read.
        let (interactive, bulk) = (start(Rc::clone(load)), start(Rc::default()));
        interactive.set_other(&bulk);
        bulk.set_other(&interactive);
        Self::Server(Rc::new(Server { interactive, bulk }))
    }

    /// Creates a link to the store service at `address`. It connects with the first request.
    pub(crate) fn to_service(address: api::Address, timing: Timing, limits: Limits) -> Self {
        Self::Service(Rc::new(Service::new(address, timing, limits)))
    }

    pub(crate) fn set_timing(&self, timing: Timing) {
        match self {
            Link::Server(server) => {
                server.interactive.set_timing(timing);
                server.bulk.set_timing(timing);
            }
            Link::Service(service) => service.set_timing(timing),
        }
    }

    /// Returns whether requests of one traffic class take effect in the order in which they were made.
    pub(crate) const fn keeps_order(&self) -> bool {
        matches!(self, Link::Server(_))
    }

    /// Opens a separate connection to a memcached server and returns it with the longest silence that the server may
    /// keep. Returns none for a store service.
    pub(crate) async fn dial(&self) -> Option<(std::io::Result<Stream>, Duration)> {
        match self {
            Link::Server(server) => {
                let socket = &server.interactive;
                Some((socket.connect().await, socket.patience()))
            }
            Link::Service(_) => None,
        }
    }

    /// Sends a request that `compose` writes, and returns a future of its answer. The request fails at once if the
    /// store was found dead a moment ago.
    pub(crate) fn request(
        &self,
        traffic: Traffic,
        expect: Expect,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Issued {
        self.request_with_permit(traffic, expect, None, compose)
    }

    /// Does the same as `request`, with a part of the budget for the values of the answer.
    #[inline]
    pub(crate) fn request_with_permit(
        &self,
        traffic: Traffic,
        expect: Expect,
        granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Issued {
        Issued(match self {
            Link::Server(server) => server.socket(traffic).request(expect, granted, compose),
            Link::Service(service) => service.request(expect, granted, compose),
        })
    }
}

impl Link {
    /// Sends a probe to the store, even if the store was found dead a moment ago.
    pub(crate) fn probe(&self) -> Issued {
        Issued(match self {
            Link::Server(server) => server.socket(Traffic::Interactive).probe(),
            Link::Service(service) => service.probe(),
        })
    }

    /// Returns the number of answers of the store so far.
    pub(crate) fn answers(&self) -> u64 {
        match self {
            Link::Server(server) => server.interactive.answers(),
            Link::Service(service) => service.answers(),
        }
    }
}

/// Composes the cheapest request that every memcached with meta commands answers, to probe a server.
fn compose_probe(out: &mut ReplyBuffer) {
    out.text().extend_from_slice(b"mn\r\n");
}

/// The future of one request's answer. If it is dropped, the request is still answered, and the answer is discarded.
pub(crate) struct Issued(Slot);

impl Future for Issued {
    type Output = Result<Answer, LinkError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.0.borrow_mut();
        match std::mem::replace(&mut *state, SlotState::Taken) {
            SlotState::Answered(answer) => Poll::Ready(*answer),
            SlotState::Open(_) => {
                *state = SlotState::Open(Some(context.waker().clone()));
                Poll::Pending
            }
            SlotState::Taken => unreachable!("an answer is taken once"),
        }
    }
}

#[derive(Clone)]
struct Slot(Rc<RefCell<SlotState>>);

enum SlotState {
    Open(Option<Waker>),
    Answered(Box<Result<Answer, LinkError>>),
    Taken,
}

impl Default for Slot {
    fn default() -> Self {
        Self(Rc::new(RefCell::new(SlotState::Open(None))))
    }
}

impl Slot {
    fn answered(answer: Result<Answer, LinkError>) -> Self {
        Self(Rc::new(RefCell::new(SlotState::Answered(Box::new(answer)))))
    }

    fn answer(self, answer: Result<Answer, LinkError>) {
        let answered = SlotState::Answered(Box::new(answer));
        if let SlotState::Open(Some(waker)) = self.0.replace(answered) {
            waker.wake();
        }
    }
}
