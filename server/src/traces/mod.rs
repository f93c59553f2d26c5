//! The example service of traces. A request comes in encrypted, serialized and perhaps compressed, and goes through T1.
//! A function answers it. The answer goes out through T2, or through T3 if it is long enough to be worth compressing.
//! Software does by hand what a trace returns, so that no request is lost because a device fails or capacity is
//! missing. The service exists to run traces; its only function is `echo`.
//!
//! ```text
//! socket -> wire -> T1 -> function -> T2 or T3 -> outbox -> socket
//!                    `-- by hand --`     `-- by hand --'
//! ```

mod client;
mod secrets;
mod wire;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use device::{Codec, Dialect, Job, Level, Pool, TenantId};
use policy::Reason;
use runtime::trace::jobs::Maker;
use runtime::trace::{
    Answer, Cause, Origin, PortError, SameCore, Session, Tcp, TraceConfig, TraceError, TraceInput,
    TraceLimits, TraceMetrics, Traces, by_hand,
};
use runtime::{Finished, TokioRuntime};
use tokio::net::TcpStream;
use units::{ByteCount, Clock, Nanos};

use crate::config::ProgramsConfig;
use crate::context::WorkerContext;
use crate::counters::Traced as Counters;
use crate::session::Open;
use crate::stream::Stream;
use crate::worker::ListenerProtocol;
pub use client::{CallError, TraceClient};
pub use secrets::Secrets;

/// One worker's part of the service.
pub(crate) struct Traced {
    executor: Traces,
    outbox: Outbox,
    /// The maker that does T1 to T3 by hand.
    maker: Maker,
    runtime: TokioRuntime,
    secrets: Arc<Secrets>,
    clock: Arc<dyn Clock>,
    due: Option<Nanos>,
}

/// The peer that sends requests.
struct Peer {
    tenant: TenantId,
    session: Rc<Session>,
    line: Line,
}

/// Returns the secrets of this configuration; no secrets if it serves no traces.
///
/// # Errors
/// Describes what is wrong with the file.
pub fn secrets(config: &ProgramsConfig) -> Result<Secrets, String> {
    match &config.secrets_file {
        Some(path) if !config.listen.is_empty() => Secrets::read(path),
        _ => Ok(Secrets::default()),
    }
}

impl Traced {
    /// Creates the service on the worker's runtime.
    pub(crate) fn new(
        config: &ProgramsConfig,
        secrets: Arc<Secrets>,
        runtime: &TokioRuntime,
        clock: Arc<dyn Clock>,
        worker: usize,
    ) -> Self {
        let outbox = Outbox::default();
        let mut traces = TraceConfig::new(trace::accelflow());
        traces.limits = TraceLimits {
            live_max: config.live_max,
            tenant_live_max: config.tenant_live_max,
            payload_bytes_max: config.payload_bytes_max.as_usize(),
            overflow_max: config.overflow_max,
            ..TraceLimits::default()
        };
        traces.tcp = Box::new(outbox.clone());
        traces.load_balance = Box::new(SameCore(worker));
        let maker = Maker {
            dialect: Dialect::new(Codec::Deflate),
            level: Level::Fast,
            pool: Pool::heap(POOL_RETAINED_MAX),
            payload_bytes_max: traces.limits.payload_bytes_max,
        };
        let executor = Traces::in_tokio(runtime, traces);
        let due = (config.due_us > 0).then(|| Nanos::micros(config.due_us));
        Self { executor, outbox, maker, runtime: runtime.clone(), secrets, clock, due }
    }

    /// Returns the counts of the service's executor.
    pub(crate) fn metrics(&self) -> Arc<TraceMetrics> {
        self.executor.metrics()
    }

    /// Returns the answer to this message; none if the message cannot be read.
    async fn answer(&self, message: Bytes, peer: &Peer, counters: &Counters) -> Option<Bytes> {
        let input = self.input(message, peer);
        let (function, request) = match self.executor.run_trace("T1", input).await {
            Ok(ended) => (ended.function, ended.payload),
            // Capacity was missing, a device failed, or the message is not valid. Software finds out, with all of the
            // input.
            Err(error) => {
                counters.received_by_hand.up();
                let run = |job| self.in_software(job, reason(&error.cause));
                by_hand::receive(run, &self.maker, &error.input).await.ok()?
            }
        };
        let reply = call(&function, request);
        let compress = reply.len() >= COMPRESS_FROM_BYTES;
        let input = self.input(reply, peer).function(function);
        let ended = self.executor.run_trace(if compress { "T3" } else { "T2" }, input).await;
        match (peer.line.take(), ended) {
            (Some(message), _) => Some(message),
            (None, Ok(_)) => None,
            (None, Err(error)) => {
                counters.answered_by_hand.up();
                self.respond_by_hand(error, compress).await
            }
        }
    }

    async fn respond_by_hand(&self, failed: Box<TraceError>, compress: bool) -> Option<Bytes> {
        let TraceError { mut input, cause, .. } = *failed;
        let run = |job| self.in_software(job, reason(&cause));
        let error = match by_hand::respond(run, &self.maker, &input, compress).await {
            Ok(message) => return Some(message),
            Err(error) => error,
        };
        // If an answer cannot be sent, the client gets an answer that says so.
        input.payload = refusal(&error.to_string());
        by_hand::respond(run, &self.maker, &input, false).await.ok()
    }

    /// Runs a job in software in a turn of its own, so that other tasks of this worker have their turns in between.
    async fn in_software(&self, job: Box<Job>, reason: Reason) -> Finished {
        tokio::task::yield_now().await;
        self.runtime.run_in_software(job, reason).await
    }

    fn input(&self, payload: Bytes, peer: &Peer) -> TraceInput {
        let mut input = TraceInput::new(payload).session(&peer.session);
        input.connection = peer.line.number;
        input.tenant = peer.tenant;
        input.deadline = self.due.map(|due| Nanos(self.clock.now().0.saturating_add(due.0)));
        input
    }
}

/// Serves one connection to its end.
pub(crate) async fn serve(stream: Stream, context: Rc<WorkerContext>) {
    let _open = Open::count(&context, ListenerProtocol::Programs);
    let (Stream::Tcp(stream), Some(traced)) = (stream, &context.traced) else { return };
    if let Err(error) = converse(stream, &context, traced).await {
        tracing::debug!(%error, "a connection of traces ended");
    }
}

/// Answers one request after the other, so that answers are in order.
async fn converse(
    mut stream: TcpStream,
    context: &WorkerContext,
    traced: &Traced,
) -> io::Result<()> {
    let counters = &context.counters.traced;
    let welcomed = within(wire::welcome(&mut stream, &traced.secrets)).await;
    let (tenant, session) = welcomed.inspect_err(|_| counters.hellos_refused.up())?;
    let peer = Peer { tenant, session, line: traced.outbox.open() };
    let bytes_max = traced.maker.payload_bytes_max;
    // A peer that has not sent a request yet may be anyone.
    let mut silent_max = PEER_WITHIN;
    while is_asked(&stream, context, silent_max).await? {
        let length = within(wire::read_length(&mut stream, bytes_max)).await;
        let length = length.inspect_err(|_| counters.requests_refused.up())?;
        let Some(_permit) = context.admit(length).await else { return Ok(()) };
        let message = receive(&mut stream, length, context).await;
        let message = message.inspect_err(|_| counters.requests_refused.up())?;
        let Some(answer) = traced.answer(message, &peer, counters).await else {
            // A peer that sends an unreadable message gets no answer, and its connection ends.
            counters.requests_refused.up();
            return Err(io::ErrorKind::InvalidData.into());
        };
        within(wire::write_message(&mut stream, answer)).await?;
        counters.requests_answered.up();
        silent_max = context.idle_timeout.unwrap_or(Duration::MAX);
    }
    Ok(())
}

/// Returns whether a request comes in time, before the connection or the server ends.
async fn is_asked(
    stream: &TcpStream,
    context: &WorkerContext,
    silent_max: Duration,
) -> io::Result<bool> {
    let mut first = [0];
    tokio::select! {
        biased;
        peeked = stream.peek(&mut first) => Ok(peeked? > 0),
        () = context.shutdown.begun() => Ok(false),
        () = tokio::time::sleep(silent_max) => {
            context.counters.commands.idle_kicks.up();
            Ok(false)
        }
    }
}

/// Reads a message for which the budget has granted memory. Whenever others wait for memory, so much of the message
/// must have come that the rest can come in time.
async fn receive(
    stream: &mut TcpStream,
    length: usize,
    context: &WorkerContext,
) -> io::Result<Bytes> {
    let mut message = BytesMut::with_capacity(length);
    for part in 1..=PARTS {
        let rest = wire::read_on(stream, &mut message, length);
        match tokio::time::timeout(PEER_WITHIN / PARTS, rest).await {
            Ok(read) => return read.map(|()| message.freeze()),
            Err(_) => {
                let is_slow = message.len() < length / PARTS as usize * part as usize;
                if is_slow && context.is_short_of_memory() {
                    break;
                }
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Bounds the time in which a peer must finish what it has begun, because it holds memory that others need.
async fn within<T>(part: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    tokio::time::timeout(PEER_WITHIN, part).await.map_err(late)?
}

/// Returns the reason why software does by hand what a trace returned.
fn reason(cause: &Cause) -> Reason {
    match cause {
        Cause::Device(_) => Reason::DeviceFault,
        Cause::Full { .. } | Cause::TenantFull { .. } => Reason::QueueFull,
        _ => Reason::Configured,
    }
}

/// Runs the service's function.
fn call(function: &str, request: Bytes) -> Bytes {
    match function {
        "echo" => request,
        _ => {
            let name: String = function.chars().take(NAME_SHOWN).collect();
            refusal(&format!("no function is called {name:?}; there is echo"))
        }
    }
}

fn refusal(why: &str) -> Bytes {
    serde_json::json!({ "error": why }).to_string().into()
}

/// The TCP port. It keeps the message that a trace sends until its connection takes it. Clones share it.
#[derive(Clone, Default)]
struct Outbox(Rc<RefCell<Lines>>);

#[derive(Default)]
struct Lines {
    last: u64,
    open: HashMap<u64, Option<Bytes>>,
}

/// A connection's place in the outbox.
struct Line {
    number: u64,
    outbox: Outbox,
}

impl Outbox {
    fn open(&self) -> Line {
        let mut lines = self.0.borrow_mut();
        lines.last += 1;
        let number = lines.last;
        lines.open.insert(number, None);
        Line { number, outbox: self.clone() }
    }
}

impl Tcp for Outbox {
    fn send(
        &mut self,
        origin: &Origin<'_>,
        payload: Bytes,
        answer: Option<Answer>,
    ) -> Result<(), PortError> {
        let refused = |why: &str| Err(PortError(why.to_owned()));
        if answer.is_some() {
            return refused("this service asks nobody");
        }
        match self.0.borrow_mut().open.get_mut(&origin.connection) {
            None => refused("the connection is closed"),
            Some(Some(_)) => refused("the request is answered already"),
            Some(place) => {
                *place = Some(payload);
                Ok(())
            }
        }
    }
}

impl Line {
    fn take(&self) -> Option<Bytes> {
        self.outbox.0.borrow_mut().open.get_mut(&self.number)?.take()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.outbox.0.borrow_mut().open.remove(&self.number);
    }
}

/// The shortest answer that is compressed (bytes). Compressing shorter answers costs more than it saves.
const COMPRESS_FROM_BYTES: usize = 1_024;

/// The longest time that a peer may take for its greeting, until its first request, for a message that it has begun,
/// and to take an answer.
const PEER_WITHIN: Duration = Duration::from_secs(10);

/// How often, within [`PEER_WITHIN`], the server checks that a message arrives fast enough. This is every 2 s, the same
/// as for slow memcached clients.
const PARTS: u32 = 5;

/// The number of characters of an unknown function's name that are shown.
const NAME_SHOWN: usize = 40;

/// The bytes of returned buffers that are kept.
const POOL_RETAINED_MAX: ByteCount = ByteCount::mib(4);
