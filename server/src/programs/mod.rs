//! The example service of programs, which the runtime calls traces. Trace T1 receives a request, which is encrypted,
//! serialized and perhaps compressed. A function answers it, and T2 sends the answer, or T3 if the answer is long
//! enough to be compressed. If one of these traces fails, software does its work, so that no request is lost to a
//! device fault or a lack of capacity. Functions ask peers through the other traces, T4 to T12. The service exists to
//! run traces.
//!
//! ```text
//! socket -> wire -> T1 -> function -> T2 or T3 -> outbox -> socket
//!                    `- software -'     `- software -'
//!                           function -> T4, T8, T9 or T11 -> outbox -> peers
//!                                    <- T5, T6, T7, T10 or T12   <--------'
//! ```

mod client;
mod functions;
mod peers;
mod wire;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use device::{Dialect, Job, Level, Pool, TenantId};
use policy::Reason;
use runtime::trace::jobs::Maker;
use runtime::trace::{
    Answer, Cause, Origin, PortError, SameCore, Session, Tcp, TraceConfig, TraceError, TraceInput,
    TraceLimits, TraceMetrics, Traces, in_software,
};
use runtime::{Finished, StartError, TokioRuntime};
use tokio::io::AsyncReadExt;
use units::{ByteCount, Clock, Nanos};

use crate::access::{Admission, Client, Origin as Caller, Rights};
use crate::config::ProgramsConfig;
use crate::context::{self, WorkerContext};
use crate::counters::Programs as Counters;
use crate::session::Open;
use crate::stream::Stream;
use crate::worker::ListenerProtocol;
pub use client::{CallError, ProgramClient};
use peers::{Asked, Peers};

/// The service in one worker.
pub(crate) struct ProgramService {
    executor: Traces,
    outbox: Outbox,
    peers: Rc<Peers>,
    /// Does the work of T1 to T3 in software.
    maker: Maker,
    runtime: TokioRuntime,
    clock: Arc<dyn Clock>,
    due: Option<Nanos>,
}

/// The caller of one connection.
struct Peer {
    /// Who the caller is, if there are rules.
    client: Option<Rc<Client>>,
    /// The tenant of callers whose role has none.
    tenant: context::Peer,
    session: Rc<Session>,
    line: Line,
    caller: peers::Caller,
}

impl Peer {
    fn tenant(&self) -> TenantId {
        let of_role = self.client.as_ref().and_then(|client| client.tenant());
        of_role.map_or_else(|| self.tenant.tenant(), TenantId)
    }

    /// Checks that the caller may call the service, and waits for its quota.
    async fn admit(&self, request_bytes: usize) -> io::Result<()> {
        let Some(client) = &self.client else { return Ok(()) };
        let denied = |_| io::Error::from(io::ErrorKind::PermissionDenied);
        client.check("programs", Rights::PROGRAMS_SERVICE, |_| true).map_err(denied)?;
        client.spend_bytes(request_bytes);
        match client.admit() {
            Admission::Now => Ok(()),
            Admission::After(wait) => {
                tokio::time::sleep(wait).await;
                Ok(())
            }
            Admission::OverQuota => Err(io::ErrorKind::QuotaExceeded.into()),
        }
    }
}

impl ProgramService {
    /// Creates the service on the worker's runtime. It compresses in this dialect.
    ///
    /// # Errors
    /// The peers have no software.
    pub(crate) fn new(
        config: &ProgramsConfig,
        dialect: Dialect,
        runtime: &TokioRuntime,
        clock: Arc<dyn Clock>,
        worker: usize,
    ) -> Result<Self, StartError> {
        let mut traces = TraceConfig::new(trace::accelflow());
        traces.limits = TraceLimits {
            live_max: config.live_max,
            tenant_live_max: config.tenant_live_max,
            payload_bytes_max: config.payload_bytes_max.as_usize(),
            overflow_max: config.overflow_max,
            answer_within: Nanos::secs(PEER_WITHIN.as_secs()),
        };
        let peers = Rc::new(Peers::new(dialect, &traces.limits, &clock)?);
        let outbox = Outbox { lines: Rc::default(), peers: Rc::clone(&peers) };
        traces.dialect = dialect;
        traces.tcp = Box::new(outbox.clone());
        traces.load_balance = Box::new(SameCore(worker));
        let maker = Maker {
            dialect,
            level: Level::Fast,
            pool: Pool::heap(POOL_RETAINED_MAX),
            payload_bytes_max: traces.limits.payload_bytes_max,
        };
        let executor = Traces::in_tokio(runtime, traces);
        let due = (config.due_us > 0).then(|| Nanos::micros(config.due_us));
        Ok(Self { executor, outbox, peers, maker, runtime: runtime.clone(), clock, due })
    }

    /// Returns the counts of the service's executor.
    pub(crate) fn metrics(&self) -> Arc<TraceMetrics> {
        self.executor.metrics()
    }

    /// Returns the answer to `message`, or `None` if the message is invalid.
    async fn answer(&self, message: Bytes, peer: &Peer, counters: &Counters) -> Option<Bytes> {
        let input = self.input(message, peer);
        let (function, request) = match self.executor.run_trace("T1", input).await {
            Ok(ended) => (ended.function, ended.payload),
            // There was no capacity, a device failed, or the message is invalid. Software tries the whole
            // input.
            Err(error) => {
                counters.received_in_software.up();
                let run = |job| self.in_software(job, reason(&error.cause));
                in_software::receive(run, &self.maker, &error.input).await.ok()?
            }
        };
        let reply = self.call(&function, request, peer).await;
        let compress = reply.len() >= COMPRESS_FROM_BYTES;
        let input = self.input(reply, peer).function(function);
        let ended = self.executor.run_trace(if compress { "T3" } else { "T2" }, input).await;
        match (peer.line.take(), ended) {
            (Some(message), _) => Some(message),
            (None, Ok(_)) => None,
            (None, Err(error)) => {
                counters.answered_in_software.up();
                self.respond_in_software(error, compress).await
            }
        }
    }

    async fn respond_in_software(&self, failed: Box<TraceError>, compress: bool) -> Option<Bytes> {
        let TraceError { mut input, cause, .. } = *failed;
        let run = |job| self.in_software(job, reason(&cause));
        let error = match in_software::respond(run, &self.maker, &input, compress).await {
            Ok(message) => return Some(message),
            Err(error) => error,
        };
        // If the answer cannot be encoded, the client gets an error instead.
        input.payload = refusal(&error.to_string());
        in_software::respond(run, &self.maker, &input, false).await.ok()
    }

    /// Runs a job in software, after yielding to other tasks of this worker.
    async fn in_software(&self, job: Box<Job>, reason: Reason) -> Finished {
        tokio::task::yield_now().await;
        self.runtime.run_in_software(job, reason).await
    }

    fn input(&self, payload: Bytes, peer: &Peer) -> TraceInput {
        let mut input = TraceInput::new(payload).session(&peer.session);
        self.mark(&mut input, peer);
        input
    }

    /// Says for whom a program runs, and by when it should end.
    fn mark(&self, input: &mut TraceInput, peer: &Peer) {
        input.connection = peer.line.number;
        input.tenant = peer.tenant();
        input.deadline = self.due.map(|due| Nanos(self.clock.now().0.saturating_add(due.0)));
    }
}

/// Serves one connection to its end.
pub(crate) async fn serve(stream: Stream, from: Option<SocketAddr>, context: Rc<WorkerContext>) {
    let _open = Open::count(&context, ListenerProtocol::Programs);
    let Some(service) = &context.programs else { return };
    let caller = Caller::new(&stream, from);
    let Ok(client) = Client::enter(&context, || caller.clone()) else { return };
    if client.is_none() && !caller.is_local() {
        // As with the other services: without rules, only clients of this host may use it.
        context.counters.access.refused_service.up();
        return;
    }
    if let Err(error) = converse(stream, client, &context, service).await {
        tracing::debug!(%error, "a connection of traces ended");
    }
}

/// Answers requests one after the other, so that answers are in order.
async fn converse(
    stream: Stream,
    client: Option<Rc<Client>>,
    context: &Rc<WorkerContext>,
    service: &ProgramService,
) -> io::Result<()> {
    // The configuration has no other addresses for programs.
    let Stream::Tls(mut stream) = stream else { return Err(io::ErrorKind::Unsupported.into()) };
    let counters = &context.counters.programs;
    let tenant = context::Peer::enter(context);
    let caller = peers::Caller { client: client.clone(), context: Rc::clone(context) };
    let line = service.outbox.open(caller.clone());
    let peer = Peer { client, tenant, session: wire::service_session(&stream)?, line, caller };
    let bytes_max = service.maker.payload_bytes_max;
    // A caller that connects without a request is no use of the service.
    let mut silent_max = PEER_WITHIN;
    while let Some(first) = first_byte(&mut stream, context, silent_max).await? {
        let length = within(wire::read_length_after(&mut stream, first, bytes_max)).await;
        let length = length.inspect_err(|_| counters.requests_refused.up())?;
        peer.admit(length).await.inspect_err(|_| counters.requests_refused.up())?;
        let Some(_permit) = context.admit(length).await else { return Ok(()) };
        let message = receive(&mut stream, length, context).await;
        let message = message.inspect_err(|_| counters.requests_refused.up())?;
        let Some(answer) = service.answer(message, &peer, counters).await else {
            // An invalid message ends its connection without an answer.
            counters.requests_refused.up();
            return Err(io::ErrorKind::InvalidData.into());
        };
        if let Some(client) = &peer.client {
            client.spend_bytes(answer.len());
        }
        within(wire::write_message(&mut stream, answer)).await?;
        counters.requests_answered.up();
        silent_max = context.idle_timeout.unwrap_or(Duration::MAX);
    }
    Ok(())
}

/// Returns the first byte of the next request. Returns `None` if the timeout, the end of the connection or the end of
/// the server comes first.
async fn first_byte(
    stream: &mut tls::Stream,
    context: &WorkerContext,
    silent_max: Duration,
) -> io::Result<Option<u8>> {
    tokio::select! {
        biased;
        first = stream.read_u8() => match first {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            first => first.map(Some),
        },
        () = context.shutdown.begun() => Ok(None),
        () = tokio::time::sleep(silent_max) => {
            context.counters.commands.idle_kicks.up();
            Ok(None)
        }
    }
}

/// Reads a message whose memory is already granted. Fails after [`PEER_WITHIN`], or earlier if memory is
/// short and less than a proportional part of the message has arrived.
async fn receive(
    stream: &mut tls::Stream,
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

/// Applies the timeout [`PEER_WITHIN`] to a part of the exchange, because the peer holds memory meanwhile.
async fn within<T>(part: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    tokio::time::timeout(PEER_WITHIN, part).await.map_err(late)?
}

/// Returns the reason why software does the work of a failed trace.
fn reason(cause: &Cause) -> Reason {
    match cause {
        Cause::Device(_) => Reason::DeviceFault,
        Cause::Full { .. } | Cause::TenantFull { .. } => Reason::QueueFull,
        _ => Reason::Configured,
    }
}

fn refusal(why: &str) -> Bytes {
    serde_json::json!({ "error": why }).to_string().into()
}

/// The TCP port of the traces. It stores a message to a caller until the connection takes it, and passes on a message
/// to a peer. Clones share it.
#[derive(Clone)]
struct Outbox {
    lines: Rc<RefCell<Lines>>,
    peers: Rc<Peers>,
}

#[derive(Default)]
struct Lines {
    last: u64,
    open: HashMap<u64, Destination>,
}

/// The message to the caller of a connection, if there is one, and the caller.
struct Destination {
    message: Option<Bytes>,
    caller: peers::Caller,
}

/// A connection's entry in the outbox.
struct Line {
    number: u64,
    outbox: Outbox,
}

impl Outbox {
    fn open(&self, caller: peers::Caller) -> Line {
        let mut lines = self.lines.borrow_mut();
        lines.last += 1;
        let number = lines.last;
        lines.open.insert(number, Destination { message: None, caller });
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
        let mut lines = self.lines.borrow_mut();
        let Some(line) = lines.open.get_mut(&origin.connection) else {
            return refused("the connection is closed");
        };
        match answer {
            Some(answer) => {
                let Some(asked) = Asked::by(origin.trace) else {
                    return refused("this service has no peer for this program");
                };
                let (peers, caller) = (Rc::clone(&self.peers), line.caller.clone());
                tokio::task::spawn_local(peers.answer(asked, payload, answer, caller));
            }
            // The function sees from the program's end that a peer has answered with an exception, and tells the
            // caller.
            None if origin.trace == EXCEPTION => {}
            None if line.message.is_some() => return refused("the request is answered already"),
            None => line.message = Some(payload),
        }
        Ok(())
    }
}

impl Line {
    fn take(&self) -> Option<Bytes> {
        self.outbox.lines.borrow_mut().open.get_mut(&self.number)?.message.take()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = self.outbox.lines.borrow_mut().open.remove(&self.number);
        // The caller's context may be the last that keeps the service.
        drop(line);
    }
}

/// The program that tells the user of an exception.
const EXCEPTION: &str = "error";

/// The shortest answer that is compressed (bytes). Compressing shorter answers costs more than it saves.
const COMPRESS_FROM_BYTES: usize = 1_024;

/// The timeout of a peer for the first request, the rest of a message, and taking an answer.
const PEER_WITHIN: Duration = Duration::from_secs(10);

/// The number of checks within [`PEER_WITHIN`] that a message arrives fast enough. There is one every 2 s, as
/// for slow memcached clients.
const PARTS: u32 = 5;

/// The number of characters of an unknown function's name that are shown in the error.
const NAME_SHOWN: usize = 40;

/// The largest total size of free buffers that are kept.
const POOL_RETAINED_MAX: ByteCount = ByteCount::mib(4);
