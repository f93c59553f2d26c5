//! Connections to memcached servers: one per worker and server, shared by all sessions of the worker, pipelined.
//! Requests go out in one write per turn of the event loop and come back in order. What a request means is the
//! backend's; which server gets it is the ring's.

mod answer;
mod reader;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use device::Pool;
use tokio::net::{TcpStream, UnixStream};
use units::ByteCount;

pub(crate) use answer::{Answer, LinkError, LinkFault};

use crate::counters::Counters;
use crate::out::Out;
use crate::stream::Stream;
use reader::Reader;

/// A worker's connection to one server. Clones share it.
#[derive(Clone)]
pub(crate) struct Link(Rc<Shared>);

struct Shared {
    address: String,
    /// The connection while there is one.
    stream: RefCell<Option<Rc<Stream>>>,
    out: RefCell<Out>,
    waiting: RefCell<VecDeque<Waiting>>,
    work: Signal,
    health: RefCell<Health>,
    timing: Cell<Timing>,
    pool: Pool,
    counters: Arc<Counters>,
    value_bytes_max: usize,
    held_bytes_max: ByteCount,
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timing {
    pub(crate) request: Duration,
    pub(crate) connect: Duration,
    pub(crate) retry_min: Duration,
    pub(crate) retry_max: Duration,
}

/// What may answer a request; an error line may answer any. An answer of another kind means that requests and answers
/// are out of step, and ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// VALUE lines, at most one per key, and END.
    Values { keys_max: usize },
    /// `STORED`, `NOT_STORED`, `EXISTS` or `NOT_FOUND`. A bare `ERROR` is no answer, here and to ms: a server that
    /// did not know the command takes the value that went with it for the next.
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
}

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
        })
    }
}

impl Link {
    /// A link to `address` (host:port, or a path for a Unix socket); it connects with the first request. Values that
    /// would take what `pool` has out over `held_bytes_max` are refused.
    pub(crate) fn start(
        address: String,
        timing: Timing,
        value_bytes_max: usize,
        held_bytes_max: ByteCount,
        pool: Pool,
        counters: Arc<Counters>,
    ) -> Self {
        let link = Self(Rc::new(Shared {
            address,
            stream: RefCell::default(),
            out: RefCell::default(),
            waiting: RefCell::default(),
            work: Signal::default(),
            health: RefCell::new(Health::Untried),
            timing: Cell::new(timing),
            pool,
            counters,
            value_bytes_max,
            held_bytes_max,
        }));
        tokio::task::spawn_local(Rc::clone(&link.0).keep_running());
        link
    }

    pub(crate) fn set_timing(&self, timing: Timing) {
        self.0.timing.set(timing);
    }

    /// Sends a request, written by `compose`, and answers with a future of what comes back. A server that was found
    /// dead a moment ago fails at once.
    pub(crate) fn request(&self, expect: Expect, compose: impl FnOnce(&mut Out)) -> Issued {
        let shared = &self.0;
        if let Health::Down { until, why, .. } = &*shared.health.borrow()
            && Instant::now() < *until
        {
            let fault = LinkFault::Down(why.clone());
            return Issued(Slot::answered(Err(shared.error(fault))));
        }
        let slot = Slot::default();
        let nothing_under_way = shared.waiting.borrow().is_empty();
        compose(&mut shared.out.borrow_mut());
        let mut waiting = shared.waiting.borrow_mut();
        waiting.push_back(Waiting { slot: slot.clone(), expect, since: Instant::now() });
        drop(waiting);
        // A lone request goes out now; others wait for the link's turn, which sends all of them in one call.
        if !(nothing_under_way && shared.write_now()) {
            shared.work.raise();
        }
        Issued(slot)
    }
}

/// The answer to come of one request. Dropping it leaves the request to be answered and forgotten.
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

/// Word to the link's task that a session queued something.
#[derive(Default)]
struct Signal {
    raised: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Signal {
    fn raise(&self) {
        self.raised.set(true);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    fn poll(&self, task: &mut Context<'_>) -> Poll<()> {
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

struct Waiting {
    slot: Slot,
    expect: Expect,
    since: Instant,
}

enum Health {
    Untried,
    /// It answered since it was last found otherwise.
    Up,
    Down {
        until: Instant,
        backoff: Duration,
        why: String,
    },
}

/// What there was to read.
enum Read {
    All,
    /// More may be there.
    Some,
}

impl Shared {
    /// A defect in here costs the requests under way, never those to come.
    async fn keep_running(self: Rc<Self>) {
        while let Err(error) = tokio::task::spawn_local(Rc::clone(&self).run()).await {
            if !error.is_panic() {
                return;
            }
            tracing::error!(server = self.address, "a defect ended the connection");
            self.fail_all(&LinkFault::Lost("a defect ended the connection".to_owned()));
        }
    }

    /// Connects when there is work, serves until the connection ends, and starts over.
    async fn run(self: Rc<Self>) {
        *self.stream.borrow_mut() = None;
        loop {
            while self.waiting.borrow().is_empty() {
                poll_fn(|task| self.work.poll(task)).await;
            }
            let fault = match self.connect().await {
                Ok(stream) => {
                    self.counters.commands.upstream_connects.up();
                    let stream = Rc::new(stream);
                    *self.stream.borrow_mut() = Some(Rc::clone(&stream));
                    let fault = self.serve(&stream).await;
                    *self.stream.borrow_mut() = None;
                    fault
                }
                Err(error) => LinkFault::Down(error.to_string()),
            };
            match &fault {
                LinkFault::Down(why) => self.mark_down(why.clone()),
                LinkFault::TimedOut(limit) => {
                    self.mark_down(format!("no answer within {} ms", limit.as_millis()));
                }
                LinkFault::Lost(_) | LinkFault::Malformed(_) => {}
            }
            // Of an idle connection that the server closed no request hears.
            self.fail_all(&fault);
        }
    }

    async fn connect(&self) -> io::Result<Stream> {
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
        tracing::warn!(server = self.address, error = why, "memcached server is down");
        let timing = self.timing.get();
        let mut health = self.health.borrow_mut();
        let backoff = match &*health {
            Health::Down { backoff, .. } => (*backoff * 2).min(timing.retry_max),
            _ => timing.retry_min,
        };
        *health = Health::Down { until: Instant::now() + backoff, backoff, why };
    }

    fn fail_all(&self, fault: &LinkFault) {
        self.out.borrow_mut().clear();
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        self.counters.commands.upstream_errors.add(waiting.len() as u64);
        let now = Instant::now();
        for request in waiting {
            let fault = match fault {
                LinkFault::TimedOut(limit) if now < request.since + *limit => {
                    LinkFault::Lost("connection given up after a timeout".to_owned())
                }
                fault => fault.clone(),
            };
            request.slot.answer(Err(self.error(fault)));
        }
    }

    fn error(&self, fault: LinkFault) -> LinkError {
        LinkError { server: self.address.clone(), fault }
    }

    /// Writes what sessions queued and hands answers back, until the connection ends; answers why it did.
    async fn serve(&self, stream: &Stream) -> LinkFault {
        let mut reader = Reader::new(self.pool.clone(), self.value_bytes_max, self.held_bytes_max);
        let timer = tokio::time::sleep(self.timing.get().request);
        tokio::pin!(timer);
        loop {
            if let Err(error) = self.write(stream) {
                return LinkFault::Lost(error.to_string());
            }
            match self.read(stream, &mut reader) {
                Ok(Read::All) => {}
                Ok(Read::Some) => tokio::task::yield_now().await,
                Err(fault) => return fault,
            }
            let limit = self.timing.get().request;
            let due = self.waiting.borrow().front().map(|oldest| oldest.since + limit);
            if due.is_some_and(|due| due <= Instant::now()) {
                self.counters.commands.upstream_timeouts.up();
                return LinkFault::TimedOut(limit);
            }
            let woken = poll_fn(|task| {
                if self.work.poll(task).is_ready() {
                    return Poll::Ready(Ok(()));
                }
                // Also with nothing under way: a session may send a request without our turn.
                while timer.as_mut().poll(task).is_ready() {
                    let oldest = self.waiting.borrow().front().map(|oldest| oldest.since);
                    let due = oldest.unwrap_or_else(Instant::now) + limit;
                    if due <= Instant::now() {
                        return Poll::Ready(Ok(()));
                    }
                    timer.as_mut().reset(due.into());
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

    /// Writes what is queued, from a session's turn; false if the link has to go on with it.
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
        for _ in 0..READS_PER_TURN {
            let space = reader.space();
            let space_bytes = space.len();
            match stream.try_read(space) {
                Ok(0) => return Err(LinkFault::Lost("closed by the server".to_owned())),
                Ok(bytes) => {
                    reader.filled(bytes);
                    self.deliver(reader)?;
                    if bytes < space_bytes {
                        return Ok(Read::All);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::All),
                Err(error) => return Err(LinkFault::Lost(error.to_string())),
            }
        }
        Ok(Read::Some)
    }

    fn deliver(&self, reader: &mut Reader) -> Result<(), LinkFault> {
        loop {
            let expect = self.waiting.borrow().front().map(|request| request.expect);
            let Some(answer) = reader.next(expect).map_err(LinkFault::Malformed)? else {
                return Ok(());
            };
            if !matches!(&*self.health.borrow(), Health::Up) {
                *self.health.borrow_mut() = Health::Up;
            }
            let request = self.waiting.borrow_mut().pop_front();
            if let Some(request) = request {
                request.slot.answer(Ok(answer));
            }
        }
    }
}

/// A server that sends without end leaves the event loop to others after so many reads.
const READS_PER_TURN: usize = 16;
