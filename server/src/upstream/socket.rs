//! A pipelined connection to a memcached server. Requests are sent in one write per turn of the event loop,
//! and answers arrive in order. The timeout of an answer is extended by the bytes of its request, and while bytes of it
//! arrive.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use units::Nanos;

use super::answer::{Answer, LinkError, LinkFault};
use super::health::{AnswerTimes, Health};
use super::interactive::InteractiveLoad;
use super::login::{self, LoginRefused, StoreLogin};
use super::packets::Packets;
use super::reader::Reader;
use super::{Expect, Limits, Slot, Timing};
use crate::budget::Permit;
use crate::config::{LoginScheme, split_tls};
use crate::counters::Stage;
use crate::members::Member;
use crate::reply_buffer::ReplyBuffer;
use crate::stream::Stream;
use crate::supervise::keep;

/// A worker's connection to one server.
pub(crate) struct Socket {
    pub(super) address: String,
    /// The server of the ring, for errors.
    member: Arc<Member>,
    /// The open connection, if there is one.
    pub(super) stream: RefCell<Option<Rc<Stream>>>,
    pub(super) out: RefCell<ReplyBuffer>,
    pub(super) waiting: RefCell<VecDeque<Waiting>>,
    pub(super) work: Signal,
    /// The number of requests since there was none in flight or, if later, since the task last wrote.
    group_requests: Cell<usize>,
    /// True if the task's last write had several requests. More are then likely to follow the first one.
    comes_in_groups: Cell<bool>,
    /// The worker's other connection to the same server.
    pub(super) other: RefCell<Weak<Socket>>,
    /// True while the server refuses this connection and the other one carries the requests.
    pub(super) refused: Cell<bool>,
    /// True if the server has answered on this connection since it was opened.
    has_answered: Cell<bool>,
    /// True if the task has ended for good, so that nothing would send a request.
    is_closed: Cell<bool>,
    /// The health of the server, which both connections update.
    pub(super) health: Rc<Health>,
    times: Rc<AnswerTimes>,
    /// The time at which the oldest unanswered request became the first in the queue.
    head_since: Cell<Nanos>,
    /// The number of bytes that have arrived since `head_since`.
    head_bytes: Cell<u64>,
    pub(super) timing: Cell<Timing>,
    limits: Limits,
    /// The translation to the binary protocol, if the server speaks nothing else.
    packets: Option<RefCell<Packets>>,
    /// Counts the values in flight on this connection.
    load: Rc<InteractiveLoad>,
    /// The task that serves the connection.
    task: OnceCell<AbortHandle>,
}

/// The result of a read.
enum Read {
    All,
    /// There may be more bytes to read.
    Some,
}

/// Notifies the link's task that a session queued a request.
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
    request_bytes: usize,
}

impl Socket {
    pub(super) fn start(
        member: Arc<Member>,
        (health, times): (Rc<Health>, Rc<AnswerTimes>),
        timing: Timing,
        limits: Limits,
        load: Rc<InteractiveLoad>,
    ) -> Rc<Self> {
        let socket = Rc::new(Self {
            address: member.name.clone(),
            member,
            stream: RefCell::default(),
            out: RefCell::default(),
            waiting: RefCell::default(),
            work: Signal::default(),
            group_requests: Cell::default(),
            comes_in_groups: Cell::default(),
            other: RefCell::default(),
            refused: Cell::default(),
            has_answered: Cell::default(),
            is_closed: Cell::default(),
            health,
            times,
            head_since: Cell::default(),
            head_bytes: Cell::default(),
            timing: Cell::new(timing),
            packets: speaks_packets(&limits).then(RefCell::default),
            limits,
            load,
            task: OnceCell::new(),
        });
        let task = tokio::task::spawn_local(Rc::clone(&socket).keep_running());
        let _ = socket.task.set(task.abort_handle());
        socket
    }

    /// Returns the server of the ring.
    pub(super) fn member(&self) -> &Arc<Member> {
        &self.member
    }

    /// Returns whether no request waits for an answer on this connection.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// Ends the connection. Requests of callers that still have the link fail at once.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        if let Some(task) = self.task.get() {
            // Without a stream, the other connection to the server moves no requests here.
            *self.stream.borrow_mut() = None;
            task.abort();
        }
        self.fail_all(&LinkFault::Out);
    }

    /// Tells the connection's task of queued requests.
    pub(super) fn notify(&self) {
        if self.is_closed.get() {
            return self.fail_all(&LinkFault::Out);
        }
        self.work.raise();
    }

    pub(super) fn set_timing(&self, timing: Timing) {
        self.timing.set(timing);
    }

    pub(super) fn request_timeout(&self) -> Duration {
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
            return Slot::answered(Err(self.error(LinkFault::Down(why))));
        }
        self.send(now, expect, granted, compose)
    }

    /// Sends a probe to the server, even while the server is considered down.
    pub(super) fn probe(&self) -> Slot {
        self.send(self.now(), Expect::Noop, None, super::compose_probe)
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
        let is_idle = self.waiting.borrow().is_empty();
        let request_bytes = {
            let mut out = self.out.borrow_mut();
            let bytes_before = out.len();
            compose(&mut out);
            out.len() - bytes_before
        };
        let request = Waiting { slot: slot.clone(), expect, granted, since: now, request_bytes };
        self.waiting.borrow_mut().push_back(request);
        self.load.add(expect.values_max());
        self.group_requests.set(if is_idle { 1 } else { self.group_requests.get() + 1 });
        // A lone request is sent at once. Others are sent together by the link's task.
        if !(is_idle && !self.comes_in_groups.get() && self.write_now()) {
            self.notify();
        }
        slot
    }

    /// Restarts `run` after a panic. A panic fails the requests in flight, but not later ones.
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

    /// Connects when there are requests, serves until the connection ends, and repeats this.
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
                    if let Some(packets) = &self.packets {
                        *packets.borrow_mut() = Packets::default();
                    }
                    *self.stream.borrow_mut() = Some(Rc::clone(&stream));
                    self.begin_head();
                    let fault = self.serve(&stream).await;
                    *self.stream.borrow_mut() = None;
                    fault
                }
                Err(error) => match self.open_other() {
                    Some(other) => {
                        self.refuse(&error.to_string());
                        self.move_waiting_to(&other);
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
                LinkFault::Lost(_)
                | LinkFault::Malformed(_)
                | LinkFault::Refused(_)
                | LinkFault::Out => {
                    self.report(&fault);
                }
            }
            // If the server closed an idle connection, there are no requests to fail.
            self.fail_all(&fault);
        }
    }

    /// Connects and, if there is a login, logs in.
    pub(super) async fn connect(&self) -> io::Result<Stream> {
        let limit = self.timing.get().connect;
        let timed_out = |_| io::Error::new(io::ErrorKind::TimedOut, "connection timed out");
        let Some(StoreLogin { file, scheme }) = &self.limits.login else {
            return tokio::time::timeout(limit, self.open()).await.map_err(timed_out)?;
        };
        let (login, state) = (file.current(), self.health.login());
        if let Some(why) = state.waits(login.version(), self.now()) {
            return Err(io::Error::other(why));
        }
        let attempt = async {
            let mut stream = self.open().await?;
            login::log_in(&mut stream, &login, *scheme).await?;
            Ok(stream)
        };
        let connected = tokio::time::timeout(limit, attempt).await.map_err(timed_out)?;
        match &connected {
            Ok(_) => state.accepted(),
            Err(error) if LoginRefused::is_in(error) => {
                self.member.logins_refused.up();
                state.refused(login.version(), error.to_string(), self.now());
            }
            Err(_) => {}
        }
        connected
    }

    async fn open(&self) -> io::Result<Stream> {
        if let Some(network) = &self.limits.network {
            return network.connect(&self.address).await.map(Stream::Simulated);
        }
        if self.address.starts_with('/') {
            return UnixStream::connect(&self.address).await.map(Stream::Unix);
        }
        if let (true, address) = split_tls(&self.address) {
            let stream = tls::outgoing()?.connect(address, tls::Application::Plain).await?;
            return Ok(Stream::Tls(Box::new(stream)));
        }
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Returns whether the server speaks the binary protocol and no other.
    pub(super) const fn speaks_packets(&self) -> bool {
        self.packets.is_some()
    }

    fn mark_down(&self, why: String) {
        if self.health.is_down() {
            tracing::debug!(server = self.address, error = why, "memcached server is still down");
        } else {
            tracing::warn!(server = self.address, error = why, "memcached server is down");
        }
        self.health.mark_down(why, self.timing.get(), self.now());
    }

    /// Logs that a connection ended with requests in flight. Clients get only the kind of fault.
    fn report(&self, fault: &LinkFault) {
        if !self.waiting.borrow().is_empty() && self.health.may_report(self.now()) {
            tracing::warn!(server = self.address, error = %fault, "requests to memcached failed");
        }
    }

    #[cold]
    fn error(&self, fault: LinkFault) -> LinkError {
        LinkError { fault, server: Some(Arc::clone(&self.member)) }
    }

    fn fail_all(&self, fault: &LinkFault) {
        self.out.borrow_mut().clear();
        let waiting = self.take_waiting();
        let is_request = |request: &&Waiting| request.expect != Expect::Noop;
        self.health.record_failures(waiting.iter().filter(is_request).count());
        self.limits.counters.commands.upstream_errors.add(waiting.len() as u64);
        let now = self.now();
        for request in waiting {
            let fault = match fault {
                LinkFault::TimedOut(limit) if now < request.since + (*limit).into() => {
                    LinkFault::Lost("connection given up after a timeout".to_owned())
                }
                fault => fault.clone(),
            };
            request.slot.answer(Err(self.error(fault)));
        }
    }

    /// Removes and returns the requests that wait for an answer on this connection.
    fn take_waiting(&self) -> VecDeque<Waiting> {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        self.load.remove(values_max(&waiting));
        waiting
    }

    /// Moves the waiting requests to the connection `other`. None of them may have been sent.
    pub(super) fn move_waiting_to(&self, other: &Self) {
        if other.waiting.borrow().is_empty() {
            // The time that these requests have waited here does not count on the other connection.
            other.begin_head();
        }
        other.out.borrow_mut().append(std::mem::take(&mut *self.out.borrow_mut()));
        let mut waiting = self.take_waiting();
        other.load.add(values_max(&waiting));
        other.waiting.borrow_mut().append(&mut waiting);
        other.notify();
    }

    fn now(&self) -> Nanos {
        self.limits.clock.now()
    }

    /// Writes requests and delivers answers until the connection ends. Returns the reason for the end.
    async fn serve(&self, stream: &Stream) -> LinkFault {
        let mut reader = Reader::new(&self.limits);
        let timer = tokio::time::sleep(self.timing.get().request);
        tokio::pin!(timer);
        let mut is_timer_watched = false;
        loop {
            if let Err(error) = self.write(stream) {
                // The server may have sent an error before it closed the connection.
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
                    self.comes_in_groups.set(self.group_requests.take() > 1);
                    return Poll::Ready(Ok(()));
                }
                // The timer also runs without requests, because a session may send one without this task. It wakes this
                // task once it was polled, so that it need not be polled again before its end.
                if is_timer_watched && !timer.is_elapsed() {
                    return self.poll_stream(stream, task);
                }
                is_timer_watched = true;
                while timer.as_mut().poll(task).is_ready() {
                    let now = self.now();
                    let due = self.due(limit).unwrap_or(now + limit.into());
                    if due <= now {
                        return Poll::Ready(Ok(()));
                    }
                    timer.as_mut().reset(Instant::now() + Duration::from(due.since(now)));
                }
                self.poll_stream(stream, task)
            });
            if let Err(error) = woken.await {
                return LinkFault::Lost(error.to_string());
            }
        }
    }

    /// Polls whether the stream may be read or, if there are requests to write, written.
    fn poll_stream(&self, stream: &Stream, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_unwritten()
            && let Poll::Ready(ready) = stream.poll_writable(task)
        {
            return Poll::Ready(ready);
        }
        stream.poll_readable(task)
    }

    /// Starts the timeout of the next answer.
    pub(super) fn begin_head(&self) {
        self.head_bytes.set(0);
        self.head_since.set(self.now());
    }

    /// Returns the time at which the connection times out, or `None` if no requests are in flight. The
    /// timeout of an answer is `limit`, extended by each byte of its request and each byte that arrives.
    fn due(&self, limit: Duration) -> Option<Nanos> {
        let waiting = self.waiting.borrow();
        let head = waiting.front()?;
        let since = head.since.max(self.head_since.get());
        // What the kernel takes is not yet sent, so that bytes of a request count before they are written.
        let moved_bytes = self.head_bytes.get() + head.request_bytes as u64;
        let earned = Nanos(moved_bytes.saturating_mul(NANOS_PER_BYTE_MAX));
        Some(since + limit.into() + earned)
    }

    /// Writes the queued requests from a session's task. Returns false if the link's task must continue.
    fn write_now(&self) -> bool {
        let stream = self.stream.borrow();
        let written = stream.as_ref().is_some_and(|stream| self.write(stream).is_ok());
        written && !self.has_unwritten()
    }

    fn has_unwritten(&self) -> bool {
        let is_unwritten = |packets: &RefCell<Packets>| !packets.borrow().outgoing.is_empty();
        !self.out.borrow().is_empty() || self.packets.as_ref().is_some_and(is_unwritten)
    }

    fn write(&self, stream: &Stream) -> io::Result<()> {
        let mut out = self.out.borrow_mut();
        let Some(packets) = &self.packets else { return write_to(stream, &mut out) };
        let mut packets = packets.borrow_mut();
        if !out.is_empty() {
            packets.take_requests(std::mem::take(&mut *out))?;
        }
        write_to(stream, &mut packets.outgoing)
    }

    fn receive(&self, stream: &Stream, space: &mut [u8]) -> io::Result<usize> {
        match &self.packets {
            None => stream.try_read(space),
            Some(packets) => packets.borrow_mut().read(space, |space| stream.try_read(space)),
        }
    }

    fn read(&self, stream: &Stream, reader: &mut Reader) -> Result<Read, LinkFault> {
        let mut left_bytes = READ_BYTES_PER_TURN;
        while left_bytes > 0 {
            let space = reader.space();
            let space_bytes = space.len().min(left_bytes);
            match self.receive(stream, &mut space[..space_bytes]) {
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
            let Some(mut answer) = answer.map_err(LinkFault::from)? else { break };
            if let Answer::Error(line) = &answer
                && login::is_wanted_by(&line.text)
            {
                return Err(LinkFault::Down(login::wanted(self.limits.login.is_some()).to_owned()));
            }
            let now = self.now();
            self.health.mark_up(now);
            self.head_since.set(now);
            self.head_bytes.set(0);
            self.has_answered.set(true);
            let request = self.waiting.borrow_mut().pop_front();
            if let Some(request) = request {
                self.load.remove(request.expect.values_max());
                let time = now.since(request.since);
                self.times.record(time);
                if request.expect != Expect::Noop {
                    self.health.record_success();
                }
                if let Answer::Error(line) = &mut answer {
                    line.server = Some(Arc::clone(&self.member));
                }
                let stages = &self.limits.counters.stages;
                stages[Stage::Store as usize].record(time);
                request.slot.answer(Ok(answer));
            }
        }
        Ok(())
    }
}

fn speaks_packets(limits: &Limits) -> bool {
    limits.login.as_ref().is_some_and(|login| login.scheme == LoginScheme::Sasl)
}

fn write_to(stream: &Stream, out: &mut ReplyBuffer) -> io::Result<()> {
    while !out.is_empty() {
        match out.write(|slices| stream.try_write(slices)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn values_max(waiting: &VecDeque<Waiting>) -> usize {
    waiting.iter().map(|request| request.expect.values_max()).sum()
}

/// The extension of the timeout per byte of a request or an answer (ns), which requires at least 128 KiB per second.
const NANOS_PER_BYTE_MAX: u64 = 1_000_000_000 / (128 << 10);

/// The number of bytes to read before other tasks run. They take some tens of microseconds.
const READ_BYTES_PER_TURN: usize = 192 << 10;
