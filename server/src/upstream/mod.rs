//! Links to stores. Each worker has one link per store, which all its sessions share. A link reaches a
//! memcached server over sockets, or a store service over gRPC. Both use memcached's format.
//!
//! A memcached server answers the requests of a connection in order, so a long answer delays all later ones.
//! A link therefore has two connections to a server: one for short requests, and one for long transfers.

mod answer;
mod health;
mod interactive;
mod login;
mod packets;
mod reader;
mod refused;
mod service;
mod socket;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use device::Pool;
use telemetry::timeline::{self, Detail, Kind, OpenStage};
use units::{ByteCount, Clock, Nanos};

pub(crate) use answer::{Answer, ErrorLine, LinkError, LinkFault, Returned, Value};
pub(crate) use interactive::InteractiveLoad;
pub(crate) use login::{Conversation, StoreLogin, is_wanted_by, value_of_packet, wanted};

use crate::budget::{Budget, Permit};
use crate::counters::Counters;
use crate::members::{Member, MemberAddress};
use crate::reply_buffer::ReplyBuffer;
use crate::simulated::Network;
use crate::stream::Stream;
use health::{AnswerTimes, Health};
use service::Service;
use socket::Socket;

/// A worker's link to one store. Clones share the same link.
#[derive(Clone)]
pub(crate) enum Link {
    Server(Rc<Server>),
    Service(Rc<Service>),
}

/// A memcached server and the connections to it.
pub(crate) struct Server {
    interactive: Rc<Socket>,
    bulk: Rc<Socket>,
    /// The health of the server, which both connections update.
    health: Rc<Health>,
    times: Rc<AnswerTimes>,
}

/// What a link has seen of its store since it was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// The requests failed since the last one that was answered, whenever they were.
    pub(crate) failures_in_row: u32,
    /// The sum of the times of answers to short requests, and their number.
    pub(crate) latency_sum: Nanos,
    pub(crate) answers: u64,
}

/// The connection to a server that a request uses. Requests on one connection take effect in order; requests
/// on different connections take effect in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// The connection for short requests with answers that are expected to be short.
    #[default]
    Interactive,
    /// The connection for all other requests.
    Bulk,
}

/// The memory limits of answers, and the counters, the login and the clock of a link.
#[derive(Clone)]
pub(crate) struct Limits {
    pub(crate) pool: Pool,
    /// The budget for long values. A long value that gets no permit is refused.
    pub(crate) budget: Budget,
    pub(crate) counters: Arc<Counters>,
    pub(crate) value_bytes_max: usize,
    /// The limit on the memory of an answer without values, or of a message of a store service.
    pub(crate) held_bytes_max: ByteCount,
    /// The login of connections and calls, if there is one.
    pub(crate) login: Option<StoreLogin>,
    pub(crate) clock: Arc<dyn Clock>,
    /// The network of a simulation, if this is one.
    pub(crate) network: Option<Arc<dyn Network>>,
}

/// The timeouts of a link and its waits between connection attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) request: Duration,
    pub(crate) connect: Duration,
    pub(crate) retry_min: Duration,
    pub(crate) retry_max: Duration,
}

/// The kind of answer that a request expects. Any request may get an error line. An answer of another kind
/// means that requests and answers are out of step, and ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// VALUE lines, at most one per key, and END.
    Values { keys_max: usize },
    /// `STORED`, `NOT_STORED`, `EXISTS` or `NOT_FOUND`. A bare `ERROR` is not valid here or for `ms`: a
    /// server that does not know the command interprets the value as the next command.
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
    /// `MN`, or `ERROR` of a server without meta commands.
    Noop,
}

impl Server {
    /// Returns the connection for a request. If the server refuses that connection, returns the other one.
    #[inline]
    fn socket(&self, traffic: Traffic) -> &Socket {
        let (first, other) = match traffic {
            Traffic::Interactive => (&self.interactive, &self.bulk),
            Traffic::Bulk => (&self.bulk, &self.interactive),
        };
        if first.is_refused() { other } else { first }
    }

    /// Ends both connections once neither has requests under way. Until then each may take over those of the other.
    async fn retire(self: Rc<Self>) {
        let both = [&self.interactive, &self.bulk];
        while !both.iter().all(|socket| socket.is_idle()) {
            tokio::time::sleep(RETIRE_PAUSE).await;
        }
        both.iter().for_each(|socket| socket.close());
    }
}

impl Expect {
    /// Returns the maximum number of values in the answer.
    const fn values_max(self) -> usize {
        match self {
            Expect::Values { keys_max } => keys_max,
            Expect::Meta => 1,
            _ => 0,
        }
    }
}

impl Traffic {
    /// Returns the traffic class of a request that sends `bytes` bytes and requests no value.
    pub(crate) const fn of_request(bytes: usize) -> Self {
        if bytes <= INTERACTIVE_BYTES_MAX { Traffic::Interactive } else { Traffic::Bulk }
    }
}

/// The interval at which a link that is to end checks for requests under way.
const RETIRE_PAUSE: Duration = Duration::from_millis(20);

/// The limit on what one session may have in flight on the connection for short requests: its requests and the answers
/// that it expects (bytes).
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
    /// Creates a link to a server of the ring. It connects with the first request.
    pub(crate) fn new(
        member: &Arc<Member>,
        timing: Timing,
        limits: Limits,
        load: &Rc<InteractiveLoad>,
    ) -> Self {
        if let MemberAddress::Service(address) = &member.address {
            let service = Service::new(address.clone(), Arc::clone(member), timing, limits);
            return Self::Service(Rc::new(service));
        }
        let (health, times) = (Rc::<Health>::default(), Rc::<AnswerTimes>::default());
        let start = |times, load| {
            let health = (Rc::clone(&health), times);
            Socket::start(Arc::clone(member), health, timing, limits.clone(), load)
        };
        // The load and the times of the connection for long transfers are not used.
        let interactive = start(Rc::clone(&times), Rc::clone(load));
        let bulk = start(Rc::default(), Rc::default());
        interactive.set_other(&bulk);
        bulk.set_other(&interactive);
        Self::Server(Rc::new(Server { interactive, bulk, health, times }))
    }

    /// Ends the link to a server that is no longer in the ring, once the requests under way have their answers.
    pub(crate) fn retire(&self) {
        // Calls to a store service end by themselves.
        if let Link::Server(server) = self {
            tokio::task::spawn_local(Rc::clone(server).retire());
        }
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

    /// Opens a separate connection to a memcached server, and returns it with the request timeout. Returns
    /// `None` for a store service, and for a server that does not speak text.
    pub(crate) async fn dial(&self) -> Option<(std::io::Result<Stream>, Duration)> {
        match self {
            Link::Server(server) => {
                let socket = &server.interactive;
                if socket.speaks_packets() {
                    return None;
                }
                Some((socket.connect().await, socket.request_timeout()))
            }
            Link::Service(_) => None,
        }
    }

    /// Sends a request that `compose` writes, and returns a future of its answer. The request fails at once
    /// while the store is considered down.
    pub(crate) fn request(
        &self,
        traffic: Traffic,
        expect: Expect,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Issued {
        self.request_with_permit(traffic, expect, None, compose)
    }

    /// Like `request`, with a permit for the values of the answer.
    #[inline]
    pub(crate) fn request_with_permit(
        &self,
        traffic: Traffic,
        expect: Expect,
        granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Issued {
        let stage = timeline::open(Kind::Store);
        let slot = match self {
            Link::Server(server) => server.socket(traffic).request(expect, granted, compose),
            Link::Service(service) => service.request(expect, granted, stage.context(), compose),
        };
        let issued = Issued::new(slot);
        if stage.is_recorded() {
            let (member, answered_at) = (Arc::clone(self.member()), None);
            issued.slot.0.recorded.set(Some(Box::new(AnswerStage { stage, member, answered_at })));
        }
        issued
    }
}

impl Link {
    /// Sends a probe to the store, even while the store is considered down.
    pub(crate) fn probe(&self) -> Issued {
        Issued::new(match self {
            Link::Server(server) => server.socket(Traffic::Interactive).probe(),
            Link::Service(service) => service.probe(),
        })
    }

    /// Returns the number of answers of the store so far.
    pub(crate) fn answers(&self) -> u64 {
        self.health().answers()
    }

    /// Returns what the link has seen since the last call.
    pub(crate) fn take_seen(&self) -> Seen {
        let (latency_sum, answers) = match self {
            Link::Server(server) => server.times.take(),
            Link::Service(service) => service.times().take(),
        };
        Seen { failures_in_row: self.health().failures_in_row(), latency_sum, answers }
    }

    /// Forgets the failures of a store that comes back into the ring.
    pub(crate) fn forget_failures(&self) {
        self.health().record_success();
    }

    fn member(&self) -> &Arc<Member> {
        match self {
            Link::Server(server) => server.interactive.member(),
            Link::Service(service) => service.member(),
        }
    }

    fn health(&self) -> &Health {
        match self {
            Link::Server(server) => &server.health,
            Link::Service(service) => service.health(),
        }
    }
}

/// Composes a probe: the cheapest request. memcached before 1.6 answers it with `ERROR`, which is an answer, too.
fn compose_probe(out: &mut ReplyBuffer) {
    out.text().extend_from_slice(b"mn\r\n");
}

/// The future of one request's answer. Dropping it does not cancel the request; the answer is discarded.
pub(crate) struct Issued {
    slot: Slot,
    /// True if the keys of the request are misses if the server cannot answer.
    pub(crate) may_miss: bool,
}

/// The stage of a client's request in which a server answers.
pub(crate) struct AnswerStage {
    stage: OpenStage,
    member: Arc<Member>,
    answered_at: Option<Instant>,
}

impl AnswerStage {
    /// Closes the stage at the time of the answer.
    pub(crate) fn close(self) {
        let end = self.answered_at.unwrap_or_else(Instant::now);
        self.stage.close_at(end, || Detail::Server(self.member.name.as_str().into()));
    }
}

impl Issued {
    #[inline]
    fn new(slot: Slot) -> Self {
        Self { slot, may_miss: false }
    }

    /// Takes the stage out, for a request that another task waits for.
    pub(crate) fn take_stage(&self) -> Option<Box<AnswerStage>> {
        self.slot.0.recorded.take()
    }

    /// Returns a request that was not sent.
    #[cold]
    pub(crate) fn failed(error: LinkError) -> Self {
        Self::new(Slot::answered(Err(error)))
    }
}

impl Future for Issued {
    type Output = Result<Answer, LinkError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.0.state.borrow_mut();
        if let SlotState::Open(waker) = &mut *state {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        let taken = std::mem::replace(&mut *state, SlotState::Taken);
        drop(state);
        if let Some(stage) = self.take_stage() {
            stage.close();
        }
        match taken {
            SlotState::Answered(answer) => Poll::Ready(answer),
            SlotState::Open(_) | SlotState::Taken => unreachable!("an answer is taken once"),
        }
    }
}

#[derive(Clone)]
struct Slot(Rc<SlotShared>);

struct SlotShared {
    state: RefCell<SlotState>,
    /// The stage in which the answer comes, if the client's request is recorded.
    recorded: Cell<Option<Box<AnswerStage>>>,
}

/// The answer is not boxed, so that a request takes memory once.
enum SlotState {
    Open(Option<Waker>),
    Answered(Result<Answer, LinkError>),
    Taken,
}

impl Default for Slot {
    fn default() -> Self {
        Self::new(SlotState::Open(None))
    }
}

impl Slot {
    fn new(state: SlotState) -> Self {
        Self(Rc::new(SlotShared { state: RefCell::new(state), recorded: Cell::new(None) }))
    }

    fn answered(answer: Result<Answer, LinkError>) -> Self {
        Self::new(SlotState::Answered(answer))
    }

    fn answer(self, answer: Result<Answer, LinkError>) {
        if let Some(mut recorded) = self.0.recorded.take() {
            recorded.answered_at = Some(Instant::now());
            self.0.recorded.set(Some(recorded));
        }
        let mut state = self.0.state.borrow_mut();
        let waker = match &mut *state {
            SlotState::Open(waker) => waker.take(),
            SlotState::Answered(_) | SlotState::Taken => None,
        };
        *state = SlotState::Answered(answer);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
