//! One generator thread on gRPC: its runtime, its HTTP/2 connections, and a task for each call. A timer file wakes the
//! thread at due times, because the runtime's timers are coarse. A task reports its result as an event, and only the
//! engine counts. The module reads no message and opens no socket.

mod call;
mod link;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::unix::pipe;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use units::{Clock, Nanos};

use crate::address::Address;
use crate::answer::{Answer, Outcome};
use crate::recorder::Recorder;
use crate::run::Opened;
use crate::source::Request;
use crate::timer::{self, Timer};
use crate::turns::Turns;
use crate::work::{BACKOFF_FIRST, BACKOFF_LAST, HOUSEKEEPING_EVERY, OPEN_TIMEOUT, Work};
use call::{Ask, Client, Given};
use link::{Link, Traffic};

/// Runs until the end of the phase, and then waits for late answers.
pub(crate) fn run(work: Work<'_>, opened: Vec<Opened>) -> rustix::io::Result<Recorder> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(as_errno)?.block_on(async { Engine::new(work, opened).await?.run().await })
}

struct Engine<'a> {
    work: Work<'a>,
    connections: Vec<Connection>,
    /// Decides which connection gets the next request of the backlog.
    turns: Turns,
    /// The events from tasks. The number of calls in flight bounds their number.
    arriving: UnboundedReceiver<Event>,
    sender: UnboundedSender<Event>,
    events: Vec<Event>,
    timer: Timer<pipe::Receiver>,
    traffic: Arc<Traffic>,
    next_housekeeping: Nanos,
}

struct Connection {
    address: Address,
    state: State,
    backoff: Nanos,
    in_flight: usize,
    /// The number of bytes in the values that are being written.
    out_bytes: usize,
}

enum State {
    /// The connection is lost. It is opened again at `retry_at`.
    Down {
        retry_at: Nanos,
    },
    Opening,
    Up(Client),
}

/// A message from a task to the engine.
enum Event {
    Done(Done),
    Opened { index: usize, opened: Option<Link> },
    Lost { index: usize },
}

/// A call that has ended.
struct Done {
    index: usize,
    request: Request,
    out_bytes: usize,
    sent: Nanos,
    at: Nanos,
    given: Result<Given, call::Failed>,
}

impl<'a> Engine<'a> {
    async fn new(work: Work<'a>, opened: Vec<Opened>) -> rustix::io::Result<Self> {
        // The runtime can wait for any file that reads like a pipe.
        let timer = pipe::Receiver::from_owned_fd_unchecked(timer::file()?).map_err(as_errno)?;
        let (sender, arriving) = unbounded_channel();
        let mut engine = Self {
            work,
            connections: Vec::with_capacity(opened.len()),
            turns: Turns::new(),
            arriving,
            sender,
            events: Vec::new(),
            timer: Timer::new(timer),
            traffic: Arc::default(),
            next_housekeeping: Nanos(0),
        };
        for (index, Opened { address, socket }) in opened.into_iter().enumerate() {
            let adopted = link::adopt(&address, socket, &engine.traffic);
            let state = match adopted.await {
                Ok(link) => State::Up(engine.take_into_use(index, &address, link)),
                // The server was reachable but ended the connection at once, so the connection counts as lost.
                Err(_) => {
                    engine.work.recorder.connections.lost += 1;
                    State::Down { retry_at: engine.now() + BACKOFF_FIRST }
                }
            };
            let (backoff, in_flight, out_bytes) = (BACKOFF_FIRST, 0, 0);
            engine.connections.push(Connection { address, state, backoff, in_flight, out_bytes });
        }
        Ok(engine)
    }

    async fn run(mut self) -> rustix::io::Result<Recorder> {
        let mut now = self.now();
        for index in 0..self.connections.len() {
            self.refill(index, now);
        }
        while !self.work.is_finished(now) {
            self.work.take_due(now);
            self.send_backlog(now);
            self.wait().await?;
            self.take_events();
            now = self.now();
            if now >= self.next_housekeeping {
                self.next_housekeeping = now + HOUSEKEEPING_EVERY;
                self.run_housekeeping(now);
            }
        }
        (self.work.recorder.bytes_out, self.work.recorder.bytes_in) = self.traffic.read();
        Ok(self.work.settle())
    }

    fn now(&self) -> Nanos {
        self.work.shared.clock.now()
    }

    /// Waits for an event or the next due time. In both cases the runtime's other tasks and its sockets get their turn.
    async fn wait(&mut self) -> rustix::io::Result<()> {
        let (now, until) = (self.now(), self.work.wake_at(self.next_housekeeping));
        let blocking = self.timer.arm(now, until)?;
        if !blocking {
            tokio::task::yield_now().await;
        }
        let Self { timer, arriving, events, .. } = self;
        poll_fn(|cx| {
            let arrived = arriving.poll_recv_many(cx, events, EVENTS_AT_ONCE).is_ready();
            let mut expiries = [0; 8];
            let mut expiries = ReadBuf::new(&mut expiries);
            let due = match Pin::new(&mut timer.file).poll_read(cx, &mut expiries) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(as_errno(error))),
                read => read.is_ready(),
            };
            if arrived || due || !blocking { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Passes the backlog in order to connections with capacity.
    fn send_backlog(&mut self, now: Nanos) {
        let depth = self.work.shared.spec.pipeline_max;
        while self.work.has_backlog() {
            let has_capacity = |index: usize| self.connections[index].has_capacity(depth);
            let Some(index) = self.turns.take(self.connections.len(), has_capacity) else { return };
            if let Some(request) = self.work.next_waiting() {
                self.push(index, request, now);
            }
        }
    }

    /// Fills a connection up to its depth in a closed loop or a populate phase. Does nothing in an open loop.
    fn refill(&mut self, index: usize, now: Nanos) {
        let Some(depth) = self.work.depth() else { return };
        while self.connections[index].has_capacity(depth) {
            let Some(request) = self.work.next_now(now) else { return };
            self.push(index, request, now);
        }
    }

    /// Starts a call. If the connection has just been lost, the request fails. This can happen to a set after a miss.
    fn push(&mut self, index: usize, request: Request, now: Nanos) {
        let version = self.work.sent(&request);
        let connection = &mut self.connections[index];
        let State::Up(client) = &connection.state else {
            return self.work.failed(&request, &call::unsent());
        };
        let ask = Ask::new(&request, version, &self.work.shared.content);
        let out_bytes = ask.value_bytes();
        connection.in_flight += 1;
        connection.out_bytes += out_bytes;
        let timeout = Duration::from(self.work.shared.spec.request_timeout);
        let (client, events) = (client.clone(), self.sender.clone());
        let clock = self.work.shared.clock.clone();
        tokio::spawn(async move {
            let given = call::call(client, ask, timeout).await;
            let at = clock.now();
            let done = Done { index, request, out_bytes, sent: now, at, given };
            let _ended = events.send(Event::Done(done));
        });
    }

    fn take_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            let now = self.now();
            let index = match event {
                Event::Done(done) => self.take_done(done),
                Event::Opened { index, opened } => {
                    self.finish_opening(index, opened, now);
                    index
                }
                Event::Lost { index } => {
                    self.work.recorder.connections.lost += 1;
                    self.connections[index].back_off(now);
                    index
                }
            };
            self.turns.open();
            self.refill(index, now);
        }
        self.events = events;
    }

    fn take_done(&mut self, done: Done) -> usize {
        let Done { index, request, out_bytes, sent, at, given } = done;
        let connection = &mut self.connections[index];
        connection.in_flight -= 1;
        connection.out_bytes -= out_bytes;
        let outcome = match given {
            Ok(given) => given.outcome(&request, &self.work.shared.content),
            Err(call::Failed::ByServer(why)) => Outcome::Error(why),
            Err(call::Failed::InTransit(why)) => {
                self.work.failed(&request, &why);
                return index;
            }
        };
        connection.backoff = BACKOFF_FIRST;
        if let Some(fill) = self.work.answered(&Answer { request, sent, outcome }, at) {
            self.push(index, fill, at);
        }
        index
    }

    /// Does the periodic work, which may be slightly delayed: reconnects and CPU time.
    fn run_housekeeping(&mut self, now: Nanos) {
        self.work.run_housekeeping(now);
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if !matches!(connection.state, State::Down { retry_at } if now >= retry_at) {
                continue;
            }
            connection.state = State::Opening;
            let (address, traffic) = (connection.address.clone(), Arc::clone(&self.traffic));
            let events = self.sender.clone();
            tokio::spawn(async move {
                let opening = link::open(&address, &traffic);
                let opened = tokio::time::timeout(OPEN_TIMEOUT.into(), opening).await;
                let opened = opened.ok().and_then(Result::ok);
                let _ended = events.send(Event::Opened { index, opened });
            });
        }
    }

    /// Starts the link's task, which reports the link's end. Returns a client that makes calls on the link.
    fn take_into_use(&self, index: usize, address: &Address, link: Link) -> Client {
        let events = self.sender.clone();
        tokio::spawn(async move {
            link.life.await;
            let _ended = events.send(Event::Lost { index });
        });
        call::client(address, link.sender, self.work.shared.content.value_bytes_max)
    }

    fn finish_opening(&mut self, index: usize, opened: Option<Link>, now: Nanos) {
        let address = &self.connections[index].address;
        let client = opened.map(|link| self.take_into_use(index, address, link));
        match client {
            Some(client) => {
                self.work.recorder.connections.reopened += 1;
                self.connections[index].state = State::Up(client);
            }
            None => {
                self.work.recorder.connections.failed_attempts += 1;
                self.connections[index].back_off(now);
            }
        }
    }
}

impl Connection {
    /// Returns whether the connection is up and can take another call. It may have at most `depth` calls in flight.
    fn has_capacity(&self, depth: usize) -> bool {
        matches!(self.state, State::Up(_))
            && self.in_flight < depth
            && self.out_bytes < OUT_BYTES_ENOUGH
    }

    fn back_off(&mut self, now: Nanos) {
        self.state = State::Down { retry_at: now + self.backoff };
        self.backoff = Nanos(self.backoff.0 * 2).min(BACKOFF_LAST);
    }
}

fn as_errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// The number of bytes being written from which on a connection takes no more calls. The limit prevents a server that
/// does not read from filling our memory.
const OUT_BYTES_ENOUGH: usize = api::wire::CONNECTION_WINDOW_BYTES as usize;
/// The most events that are taken at once. More events would delay requests that become due in the meantime.
const EVENTS_AT_ONCE: usize = 16;
