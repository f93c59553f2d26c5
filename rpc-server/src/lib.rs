//! Thrift services through the near-cache RPC engine: the engine is `rpc`'s, this module has the threads, the sockets
//! and the handlers. One thread does it all, two share it at the application's interfaces, or four at all of them;
//! over TCP ([`RpcServer`]), or with frames that are handed over in process ([`Loopback`]).
//!
//! ```text
//! inline       NetCore: sockets -> frames -> engine, handler -> frames -> sockets
//! two-thread   NetCore: sockets, engine  <-- words and lent buffers -->  AppCore: handler
//! four-thread  NetCore: sockets --> RxEngine --> AppCore: handler
//!                       sockets <-- TxEngine <--/
//! ```

mod apart;
mod app_core;
mod connection;
mod cores;
mod exchange;
mod handlers;
mod hop;
mod inline;
mod loopback;
mod mailbox;
mod net_core;
mod split;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use rpc::Functions;
use rustix::event::{EventfdFlags, eventfd};
use thiserror::Error;
use units::{ByteCount, Clock};

pub use cores::{RpcCores, RpcLayout, RpcPlacement, allowed as allowed_cores};
pub use hop::{cache_line_round_trip, mailbox_round_trip};
pub use loopback::{Loopback, LoopbackClient, WINDOW};

use apart::Apart;
use exchange::{Engines, Exchange, Together};
use handlers::{Handler, Timed};
use inline::Inline;
use net_core::NetCore;
use split::Split;

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcService {
    /// A cache: `Set` and `Get` on the embedded store.
    Memcached,
    /// Posts of a social network, kept in the embedded store.
    PostStorage,
    /// Numbers that are given out once.
    UniqueId,
}

/// What to serve, with which threads, and within which bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcOptions {
    /// What.
    pub service: RpcService,
    /// With which threads.
    pub layout: RpcLayout,
    /// On which cores.
    pub cores: RpcCores,
    /// The longest message, in and out; a connection that announces a longer one is closed.
    pub message_bytes_max: ByteCount,
    /// Budget of the store: 64 KiB to 64 TiB.
    pub memory: ByteCount,
    /// The seed of the store's hash, for runs that are to repeat. By chance if none: then clients that choose keys
    /// cannot choose where they fall.
    pub hash_seed: Option<u64>,
    /// Measure where the time of the one thread goes; only [`RpcLayout::Inline`].
    pub time_stages: bool,
}

impl RpcOptions {
    /// The service on one thread, with the bounds that fit a small machine.
    pub fn new(service: RpcService) -> Self {
        Self {
            service,
            layout: RpcLayout::Inline,
            cores: RpcCores::Auto,
            message_bytes_max: ByteCount::mib(1),
            memory: ByteCount::mib(64),
            hash_seed: None,
            time_stages: false,
        }
    }

    /// The cores of its threads; an error if anything here cannot be.
    fn placed(&self) -> Result<RpcPlacement, RpcError> {
        if !MESSAGE_BYTES_MAX.contains(&self.message_bytes_max.0) {
            let given = self.message_bytes_max;
            let problem = format!("a longest message of {given}; give 1KiB to 64MiB");
            return Err(RpcError::BadOptions(problem));
        }
        if !MEMORY_BYTES.contains(&self.memory.0) {
            let problem = format!("{} of memory; give 64KiB to 64TiB", self.memory);
            return Err(RpcError::BadOptions(problem));
        }
        if self.time_stages && self.layout != RpcLayout::Inline {
            let layout = self.layout.name();
            let problem = format!("stages are timed on the layout inline, not {layout}");
            return Err(RpcError::BadOptions(problem));
        }
        self.cores.place(self.layout)
    }

    fn buffer_bytes(&self) -> usize {
        self.message_bytes_max.as_usize() + MESSAGE_HEAD_BYTES
    }
}

/// Where a service listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcListen {
    /// Port 0 is any.
    pub address: SocketAddr,
    /// Connections at once, at least 1; more are closed as they come.
    pub connections_max: usize,
}

/// Why a service or a loopback is not there, or ended.
#[derive(Debug, Error)]
pub enum RpcError {
    /// The caller has to ask for something else.
    #[error("{0}")]
    BadOptions(String),
    /// The system refused, or a thread ended.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Messages from 1 KiB to 64 MiB.
pub const MESSAGE_BYTES_MAX: RangeInclusive<u64> = 1 << 10..=64 << 20;
/// Stores from 64 KiB to 64 TiB.
const MEMORY_BYTES: RangeInclusive<u64> = 64 << 10..=64 << 40;
const CONNECTIONS: RangeInclusive<usize> = 1..=i32::MAX as usize;

/// What was counted since the start.
#[derive(Debug, Default)]
pub(crate) struct RpcCounters {
    connections: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    times: Times,
}

/// Where the time of a thread went (ns): clocks that several hands advance.
#[derive(Clone, Debug, Default)]
struct Times {
    /// The thread's own CPU time from when it serves, once it has ended.
    thread_ns: Arc<AtomicU64>,
    /// From whole frames to their answers, the handler included, elapsed.
    rpc_ns: Arc<AtomicU64>,
    /// Elapsed.
    handler_ns: Arc<AtomicU64>,
}

/// The CPU time of a service's one thread since it serves, divided. Reading the clocks, four times a request, is part
/// of it. RPC layer and handler are elapsed time, as a thread's CPU clock costs more to read than they take: what
/// others run on this thread's core in the meantime is in theirs and missing from the network's. Give the thread a core
/// to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcStages {
    /// Sockets, and frames found in their bytes: the thread's CPU time less the others (ns).
    pub network_ns: u64,
    /// The RPC layer, from a whole frame to its answer, elapsed (ns).
    pub rpc_ns: u64,
    /// The business logic, elapsed (ns).
    pub handler_ns: u64,
}

impl Times {
    fn divided(&self) -> RpcStages {
        let [thread, rpc, handler] =
            [&self.thread_ns, &self.rpc_ns, &self.handler_ns].map(|ns| ns.load(Ordering::Relaxed));
        RpcStages {
            network_ns: thread.saturating_sub(rpc),
            rpc_ns: rpc.saturating_sub(handler),
            handler_ns: handler,
        }
    }
}

/// The counts at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Requests answered, exceptions of the service included.
    pub requests: u64,
    /// Messages refused with an application exception, or by closing the connection.
    pub refused: u64,
}

/// A service that is served until this is dropped.
#[derive(Debug)]
pub struct RpcServer {
    address: SocketAddr,
    placement: RpcPlacement,
    counters: Arc<RpcCounters>,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RpcServer {
    /// Listens, and serves from threads of its own.
    ///
    /// # Errors
    /// The options cannot be, or the system refuses an address, a thread or a core.
    pub fn start(
        options: &RpcOptions,
        listen: &RpcListen,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, RpcError> {
        let placement = options.placed()?;
        if !CONNECTIONS.contains(&listen.connections_max) {
            let (given, most) = (listen.connections_max, CONNECTIONS.end());
            let problem = format!("{given} connections at most; give 1 to {most}");
            return Err(RpcError::BadOptions(problem));
        }
        let listener = TcpListener::bind(listen.address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let counters = Arc::new(RpcCounters::default());
        let stop = Arc::new(AtomicBool::new(false));
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = Arc::new(eventfd(0, flags).map_err(io::Error::from)?);
        let bounds = (options, listen);
        let net = NetCore::new(listener, &wake, bounds, Arc::clone(&counters), Arc::clone(&stop))?;
        let (own, placed, times) = (options.clone(), placement.clone(), counters.times.clone());
        let (told, started) = channel();
        let thread = std::thread::Builder::new().name("rpc-net".into()).spawn(move || {
            let (engines, result) = match engines(&own, &placed, &times, clock) {
                Ok(engines) => (Some(engines), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // Whoever starts it waits for this.
            let _ = told.send(result);
            let Some(mut engines) = engines else { return Ok(()) };
            let begun_ns = thread_cpu_ns();
            let result = net.run(&mut *engines);
            times.thread_ns.store(thread_cpu_ns() - begun_ns, Ordering::Relaxed);
            result
        })?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("the service's thread ended")))?;
        Ok(Self { address, placement, counters, stop, wake, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its threads and their cores.
    pub fn placement(&self) -> &RpcPlacement {
        &self.placement
    }

    /// What was counted so far.
    pub fn counts(&self) -> RpcCounts {
        RpcCounts {
            connections: self.counters.connections.load(Ordering::Relaxed),
            requests: self.counters.requests.load(Ordering::Relaxed),
            refused: self.counters.refused.load(Ordering::Relaxed),
        }
    }

    /// Whether it has ended by itself, which only a failure makes it do; [`RpcServer::stop`] says which.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it: connections are closed as they are. Returns where its thread's time went, if that was asked for.
    ///
    /// # Errors
    /// It had ended already: this is why.
    pub fn stop(mut self) -> io::Result<RpcStages> {
        self.end()?;
        Ok(self.counters.times.divided())
    }

    fn end(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Release);
        // A full counter wakes as well.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread of the service panicked")),
            None => Ok(()),
        }
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The engines of a layout, its other threads started, for the calling thread, which becomes its NetCore: on its core.
fn engines(
    options: &RpcOptions,
    placement: &RpcPlacement,
    times: &Times,
    clock: Arc<dyn Clock>,
) -> io::Result<Box<dyn Engines>> {
    let (functions, handler) = handlers::of(options, clock);
    let handler: Box<dyn Handler> = match options.time_stages {
        true => Box::new(Timed { handler, took_ns: Arc::clone(&times.handler_ns) }),
        false => handler,
    };
    let took_ns = options.time_stages.then(|| Arc::clone(&times.rpc_ns));
    let buffer_bytes = options.buffer_bytes();
    cores::pin(placement.core(0))?;
    let exchange =
        |functions: Arc<dyn Functions>, depth| Exchange::new(functions, depth, buffer_bytes);
    Ok(match options.layout {
        RpcLayout::Inline => {
            let mut exchange = exchange(functions, 1);
            let app = Inline::new(handler, &mut exchange, buffer_bytes);
            Box::new(Together::new(exchange, app, took_ns))
        }
        RpcLayout::TwoThread => {
            let mut exchange = exchange(functions, DEPTH);
            let core = placement.core(1);
            let app = Split::start(handler, &mut exchange, DEPTH, buffer_bytes, core)?;
            Box::new(Together::new(exchange, app, None))
        }
        RpcLayout::FourThread => {
            let cores = [1, 2, 3].map(|thread| placement.core(thread));
            Box::new(Apart::start(&functions, handler, DEPTH, buffer_bytes, cores)?)
        }
    })
}

/// What this thread has had of the processor so far.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Requests on their way between the cores.
const DEPTH: usize = 16;
/// A frame's head; and the head, the function and the caller's number are part of a message's bytes.
const MESSAGE_HEAD_BYTES: usize = rpc::wire::FRAME_HEAD_BYTES;
