//! One pipelined connection to a memcached server. Requests are sent in one write per turn of the event loop, and
//! answers come in order. The connection does not know what requests mean. A server has time for an answer as long as
//! it keeps sending it: a connection times out when nothing moves on it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use units::Nanos;

use super::answer::{LinkError, LinkFault};
use super::health::Health;
use super::interactive::InteractiveLoad;
use super::reader::Reader;
use super::{Expect, Limits, Slot, Timing};
use crate::budget::Permit;
use crate::counters::Stage;
use crate::reply_buffer::ReplyBuffer;
use crate::stream::Stream;
use crate::supervise::keep;

/// A worker's connection to one server.
pub(crate) struct Socket {
    pub(super) address: String,
    /// The open connection, if there is one.
    pub(super) stream: RefCell<Option<Rc<Stream>>>,
    pub(super) out: RefCell<ReplyBuffer>,
    pub(super) waiting: RefCell<VecDeque<Waiting>>,
    pub(super) work: Signal,
    /// The other connection to the server.
    pub(super) other: RefCell<Weak<Socket>>,
    /// Whether the server has no room for this connection and the other one takes the requests.
    pub(super) refused: Cell<bool>,
    /// Whether the server has answered on this connection since it was opened.
    has_answered: Cell<bool>,
    /// The health of the server, which both connections report to.
    pub(super) health: Rc<Health>,
    /// The time at which the request that is answered next became the first in the queue.
    head_since: Cell<Nanos>,
    /// The bytes that have come since `head_since`.
    head_bytes: Cell<u64>,
    pub(super) timing: Cell<Timing>,
    limits: Limits,
    /// Counts the values in flight on this connection.
    load: Rc<InteractiveLoad>,
}

/// The result of a read.
enum Read {
    All,
    /// There may be more to read.
    Some,
}

/// Tells the link's task that a session queued something.
#[derive(Default)]
pub(super) struct Signal {
    raised: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    pub(super) fn raise(&self) {
        self.raised.set(true);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    pub(super) fn poll(&self, task: &mut Context<'_>) -> Poll<()> {
        if self.raised.take() {
            return Poll::Ready(());
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(task.waker())) {
            *waker = Some(task.waker().clone());
        }
        Poll::Pending
    }
}

pub(super) struct Waiting {
    slot: Slot,
    expect: Expect,
    /// The permit for the values of the answer.
    granted: Option<Permit>,
    since: Nanos,
}

impl Socket {
    pub(super) fn start(
        address: String,
        health: Rc<Health>,
        timing: Timing,
        limits: Limits,
        load: Rc<InteractiveLoad>,
    ) -> Rc<Self> {
        let socket = Rc::new(Self {
            address,
            stream: RefCell::default(),
            out: RefCell::default(),
            waiting: RefCell::default(),
            work: Signal::default(),
            other: RefCell::default(),
            refused: Cell::default(),
            has_answered: Cell::default(),
            health,
            head_since: Cell::default(),
            head_bytes: Cell::default(),
            timing: Cell::new(timing),
            limits,
            load,
        });
        tokio::task::spawn_local(Rc::clone(&socket).keep_running());
        socket
    }

    pub(super) fn set_timing(&self, timing: Timing) {
        self.timing.set(timing);
    }

    pub(super) fn patience(&self) -> Duration {
        self.timing.get().request
    }

    pub(super) fn request(
        &self,
        expect: Expect,
        granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Slot {
        let now = self.now();
        if let Some(why) = self.health.down(now) {
            return Slot::answered(Err(LinkError { fault: LinkFault::Down(why) }));
        }
        self.send(now, expect, granted, compose)
    }

    /// Sends a probe to the server, even while requests are not sent because the server is down.
    pub(super) fn probe(&self) -> Slot {
        self.send(self.now(), Expect::Noop, None, super::compose_probe)
    }

    pub(super) fn answers(&self) -> u64 {
        self.health.answers()
    }

    #[inline]
    fn send(
        &self,
        now: Nanos,
        expect: Expect,
        granted: Option<Permit>,
        compose: impl FnOnce(&mut ReplyBuffer),
    ) -> Slot {
        let slot = Slot::default();
        let nothing_under_way = self.waiting.borrow().is_empty();
        compose(&mut self.out.borrow_mut());
        let mut waiting = self.waiting.borrow_mut();
        waiting.push_back(Waiting { slot: slot.clone(), expect, granted, since: now });
        drop(waiting);
        self.load.add(expect.values_max());
        // A lone request is sent now. Others wait for the link's turn, which sends all of them in one call.
        if !(nothing_under_way && self.write_now()) {
            self.work.raise();
        }
        slot
    }

    /// Restarts `run` after a defect. A defect fails the requests in flight, but no later ones.
    async fn keep_running(self: Rc<Self>) {
        let defect = Cell::new(None);
        let run = || {
            let defect = defect.replace(Some("a defect ended the connection"));
            let link = &self;
            async move {
                if let Some(why) = defect {
                    link.fail_all(&LinkFault::Lost(why.to_owned()));
                }
                link.run().await;
            }
        };
        keep("link", &self.limits.counters.tasks.restarts_link, run).await;
    }

    /// Connects when there is work, serves until the connection ends, and starts over.
    async fn run(&self) {
        *self.stream.borrow_mut() = None;
        loop {
            let came_back = if self.refused.get() { self.come_back().await } else { None };
            self.has_answered.set(came_back.is_some());
            let connected = match came_back {
                Some(stream) => Ok(stream),
                None => {
                    while self.waiting.borrow().is_empty() {
                        poll_fn(|task| self.work.poll(task)).await;
                    }
                    self.connect().await
                }
            };
            let fault = match connected {
                Ok(stream) => {
                    self.limits.counters.commands.upstream_connects.up();
                    let stream = Rc::new(stream);
                    *self.stream.borrow_mut() = Some(Rc::clone(&stream));
                    self.begin_head();
                    let fault = self.serve(&stream).await;
                    *self.stream.borrow_mut() = None;
                    fault
                }
                Err(error) => match self.open_other() {
                    Some(other) => {
                        self.refuse(&error.to_string());
                        self.hand_over(&other);
                        continue;
                    }
                    None => LinkFault::Down(error.to_string()),
                },
            };
            match &fault {
                LinkFault::Down(why) => self.mark_down(why.clone()),
                LinkFault::TooManyClients | LinkFault::Lost(_)
                    if !self.has_answered.get() && self.open_other().is_some() =>
                {
                    self.refuse(&fault.to_string());
                }
                LinkFault::TooManyClients => self.mark_down(fault.to_string()),
                // A server that answers on its other connection is not down.
                LinkFault::TimedOut(limit) if self.health.has_answered(self.now(), *limit) => {}
                LinkFault::TimedOut(limit) => {
                    self.mark_down(format!("no answer within {} ms", limit.as_millis()));
                }
                LinkFault::Lost(_) | LinkFault::Malformed(_) | LinkFault::Refused(_) => {
                    self.report(&fault);
                }
            }
            // If the server closed an idle connection, no request fails.
            self.fail_all(&fault);
        }
    }

    pub(super) async fn connect(&self) -> io::Result<Stream> {
        let attempt = async {
            if self.address.starts_with('/') {
                return UnixStream::connect(&self.address).await.map(Stream::Unix);
            }
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tcp(stream))
        };
        let limit = self.timing.get().connect;
        let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "connection timed out");
        tokio::time::timeout(limit, attempt).await.map_err(timed_out)?
    }

    fn mark_down(&self, why: String) {
        if self.health.is_down() {
            tracing::debug!(server = self.address, error = why, "memcached server is still down");
        } else {
            tracing::warn!(server = self.address, error = why, "memcached server is down");
        }
        self.health.mark_down(why, self.timing.get(), self.now());
    }

    /// Logs that a connection ended with requests in flight. Clients learn only the kind of the fault.
    fn report(&self, fault: &LinkFault) {
        if !self.waiting.borrow().is_empty() && self.health.may_report(self.now()) {
            tracing::warn!(server = self.address, error = %fault, "requests to memcached failed");
        }
    }

    fn fail_all(&self, fault: &LinkFault) {
        self.out.borrow_mut().clear();
        let waiting = self.take_waiting();
        self.limits.counters.commands.upstream_errors.add(waiting.len() as u64);
        let now = self.now();
        for request in waiting {
            let fault = match fault {
                LinkFault::TimedOut(limit) if now < request.since + (*limit).into() => {
                    LinkFault::Lost("connection given up after a timeout".to_owned())
                }
                fault => fault.clone(),
            };
            request.slot.answer(Err(LinkError { fault }));
        }
    }

    /// Takes the requests that wait for an answer. No answer to them will come on this connection.
    fn take_waiting(&self) -> VecDeque<Waiting> {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        self.load.remove(values_max(&waiting));
        waiting
    }

    /// Sends the waiting requests over the other connection. None of them has been sent yet.
    pub(super) fn hand_over(&self, other: &Self) {
        if other.waiting.borrow().is_empty() {
            // The other connection is not to blame for the time that these requests have waited here.
            other.begin_head();
        }
        other.out.borrow_mut().append(std::mem::take(&mut *self.out.borrow_mut()));
        let mut waiting = self.take_waiting();
        other.load.add(values_max(&waiting));
        other.waiting.borrow_mut().append(&mut waiting);
        other.work.raise();
    }

    fn now(&self) -> Nanos {
        self.limits.clock.now()
    }

    /// Writes the queued requests and returns their answers to the sessions, until the connection ends. Returns why it
    /// ended.
    async fn serve(&self, stream: &Stream) -> LinkFault {
        let mut reader = Reader::new(&self.limits);
        let timer = tokio::time::sleep(self.timing.get().request);
        tokio::pin!(timer);
        loop {
            if let Err(error) = self.write(stream) {
                // The server's words before it closed the connection tell more.
                let said = self.read(stream, &mut reader).err();
                return match said {
                    Some(fault @ LinkFault::TooManyClients) => fault,
                    _ => LinkFault::Lost(error.to_string()),
                };
            }
            match self.read(stream, &mut reader) {
                Ok(Read::All) => {}
                Ok(Read::Some) => tokio::task::yield_now().await,
                Err(fault) => return fault,
            }
            let limit = self.timing.get().request;
            if self.due(limit).is_some_and(|due| due <= self.now()) {
                self.limits.counters.commands.upstream_timeouts.up();
                return LinkFault::TimedOut(limit);
            }
            let woken = poll_fn(|task| {
                if self.work.poll(task).is_ready() {
                    return Poll::Ready(Ok(()));
                }
                // The timer also runs with nothing in flight, because a session may send a request outside of the
                // link's turn.
                while timer.as_mut().poll(task).is_ready() {
                    let now = self.now();
                    let due = self.due(limit).unwrap_or(now + limit.into());
                    if due <= now {
                        return Poll::Ready(Ok(()));
                    }
                    timer.as_mut().reset(Instant::now() + Duration::from(due.since(now)));
                }
                if !self.out.borrow().is_empty()
                    && let Poll::Ready(ready) = stream.poll_writable(task)
                {
                    return Poll::Ready(ready);
                }
                stream.poll_readable(task)
            });
            if let Err(error) = woken.await {
                return LinkFault::Lost(error.to_string());
            }
        }
    }

    /// Starts the time for the next answer.
    pub(super) fn begin_head(&self) {
        self.head_bytes.set(0);
        self.head_since.set(self.now());
    }

    /// Returns when the connection times out if no more bytes arrive, or none if nothing is in flight. An answer has
    /// the time `limit`, and each byte that arrives extends it, so that a long answer may take longer.
    fn due(&self, limit: Duration) -> Option<Nanos> {
        let waiting = self.waiting.borrow();
        let since = waiting.front()?.since.max(self.head_since.get());
        let earned = Nanos(self.head_bytes.get().saturating_mul(NANOS_PER_BYTE_MAX));
        Some(since + limit.into() + earned)
    }

    /// Writes the queued requests in a session's turn. Returns false if the link has to continue.
    fn write_now(&self) -> bool {
        let stream = self.stream.borrow();
        let written = stream.as_ref().is_some_and(|stream| self.write(stream).is_ok());
        written && self.out.borrow().is_empty()
    }

    fn write(&self, stream: &Stream) -> io::Result<()> {
        let mut out = self.out.borrow_mut();
        while !out.is_empty() {
            match out.write(|slices| stream.try_write(slices)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&self, stream: &Stream, reader: &mut Reader) -> Result<Read, LinkFault> {
        let mut left_bytes = READ_BYTES_PER_TURN;
        while left_bytes > 0 {
            let space = reader.space();
            let space_bytes = space.len().min(left_bytes);
            match stream.try_read(&mut space[..space_bytes]) {
                Ok(0) => return Err(LinkFault::Lost("closed by the server".to_owned())),
                Ok(bytes) => {
                    self.head_bytes.set(self.head_bytes.get() + bytes as u64);
                    reader.filled(bytes);
                    self.deliver(reader)?;
                    if bytes < space_bytes {
                        return Ok(Read::All);
                    }
                    left_bytes -= bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::All),
                Err(error) => return Err(LinkFault::Lost(error.to_string())),
            }
        }
        Ok(Read::Some)
    }

    fn deliver(&self, reader: &mut Reader) -> Result<(), LinkFault> {
        while !reader.is_empty() {
            let answer = match self.waiting.borrow_mut().front_mut() {
                Some(request) => reader.next(Some(request.expect), &mut request.granted),
                None => reader.next(None, &mut None),
            };
            let Some(answer) = answer.map_err(LinkFault::from)? else { break };
            let now = self.now();
            self.health.mark_up(now);
            self.head_since.set(now);
            self.head_bytes.set(0);
            self.has_answered.set(true);
            let request = self.waiting.borrow_mut().pop_front();
            if let Some(request) = request {
                self.load.remove(request.expect.values_max());
                let stages = &self.limits.counters.stages;
                stages[Stage::Store as usize].record(now.since(request.since));
                request.slot.answer(Ok(answer));
            }
        }
        Ok(())
    }
}

fn values_max(waiting: &VecDeque<Waiting>) -> usize {
    waiting.iter().map(|request| request.expect.values_max()).sum()
}

/// The longest time per byte. A server that sends less than 128 KiB per second (7.6 us per byte) times out like a
/// silent server.
const NANOS_PER_BYTE_MAX: u64 = 1_000_000_000 / (128 << 10);

/// The bytes that a server may send before the event loop serves others. They take some tens of microseconds.
const READ_BYTES_PER_TURN: usize = 192 << 10;
