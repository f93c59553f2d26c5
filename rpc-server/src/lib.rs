//! Serves Thrift services through the near-cache RPC engine. The engine is in the crate `rpc`. This
//! crate has the threads, the sockets and the handlers. A layout uses one thread for everything,
//! two threads divided at the application's interfaces, or four threads divided at all interfaces.
//! Frames arrive over TCP ([`RpcServer`]) or are passed in process ([`Loopback`]).
//!
//! ```text
//! inline       NetCore: sockets -> frames -> engine, handler -> frames -> sockets
//! two-thread   NetCore: sockets, engine  <-- words and lent buffers -->  AppCore: handler
//! four-thread  NetCore: sockets --> RxEngine --> AppCore: handler
//!                       sockets <-- TxEngine <--/
//! ```

mod app_core;
mod connection;
mod cores;
mod exchange;
mod four_thread;
mod handlers;
mod inline;
mod latency_probe;
mod loopback;
mod mailbox;
mod net_core;
mod two_thread;

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
pub use latency_probe::{cache_line_round_trip, mailbox_round_trip};
pub use loopback::{Loopback, LoopbackClient, WINDOW};

use exchange::{Engines, Exchange, SingleEngine};
use four_thread::FourThread;
use handlers::{Handler, Timed};
use inline::Inline;
use net_core::NetCore;
use two_thread::TwoThread;

/// The service to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcService {
    /// A cache: `Set` and `Get` on the embedded store.
    Memcached,
    /// Posts of a social network, which the embedded store holds.
    PostStorage,
    /// A generator of unique numbers.
    UniqueId,
}

/// The service, its threads and its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcOptions {
    /// The service.
    pub service: RpcService,
    /// The layout of the service's threads.
    pub layout: RpcLayout,
    /// The cores of the service's threads.
    pub cores: RpcCores,
    /// The maximum length of a message in each direction. A connection that announces a longer
    /// message is closed.
    pub message_bytes_max: ByteCount,
    /// The memory budget of the store, from 64 KiB to 64 TiB.
    pub memory: ByteCount,
    /// The seed of the store's hash, for runs that must be repeatable. Without a seed it is random,
    /// so that clients that choose keys cannot choose their positions in the store.
    pub hash_seed: Option<u64>,
    /// Whether to measure the time of each stage ([`RpcStages`]). Only [`RpcLayout::Inline`] supports this.
    pub time_stages: bool,
}

impl RpcOptions {
    /// Returns options for one thread, with limits that fit a small machine.
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

    /// Returns the cores of the threads, or an error if an option is not valid.
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

/// The address of a service and its limit of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcListen {
    /// The address. Port 0 means any free port.
    pub address: SocketAddr,
    /// The maximum number of open connections, at least 1. Further connections are closed as they arrive.
    pub connections_max: usize,
}

/// The reason why a service or a loopback did not start, or why it ended.
#[derive(Debug, Error)]
pub enum RpcError {
    /// An option is not valid. The message says which.
    #[error("{0}")]
    BadOptions(String),
    /// A system call failed, or a thread ended.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The valid range of [`RpcOptions::message_bytes_max`] (bytes).
pub const MESSAGE_BYTES_MAX: RangeInclusive<u64> = 1 << 10..=64 << 20;
/// The valid range of the store's memory (bytes).
const MEMORY_BYTES: RangeInclusive<u64> = 64 << 10..=64 << 40;
const CONNECTIONS: RangeInclusive<usize> = 1..=i32::MAX as usize;

/// The counters since the start.
#[derive(Debug, Default)]
pub(crate) struct RpcCounters {
    connections: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    times: Times,
}

/// The time counters of the one thread of [`RpcLayout::Inline`]. The stages share and update them.
#[derive(Clone, Debug, Default)]
struct Times {
    /// The CPU time of the thread while it served. It is set when the thread ends.
    thread_ns: Arc<AtomicU64>,
    /// The elapsed time from complete frames to their answers, including the handler.
    rpc_ns: Arc<AtomicU64>,
    /// The elapsed time in the handler.
    handler_ns: Arc<AtomicU64>,
}

/// The CPU time of a service's one thread while it serves, by stage. It includes reading the
/// clocks, four times per request. The times of the RPC layer and the handler are elapsed times,
/// because reading a thread's CPU clock costs more than these stages take. If other threads run on
/// this core, their time is counted in these two stages and missing from the network stage. To
/// avoid this, give the thread a core to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcStages {
    /// The time for sockets and for finding frames in bytes: the thread's CPU time without the
    /// other stages (ns).
    pub network_ns: u64,
    /// The elapsed time of the RPC layer, from a complete frame to its answer, without the handler
    /// (ns).
    pub rpc_ns: u64,
    /// The elapsed time of the business logic (ns).
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

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RpcCounts {
    /// The number of accepted connections.
    pub connections: u64,
    /// The number of answered requests. An exception of the service is an answer.
    pub requests: u64,
    /// The number of messages refused with an application exception or by closing the connection.
    pub refused: u64,
}

/// A running service. Dropping it ends the service.
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
    /// Listens and serves on new threads.
    ///
    /// # Errors
    /// Fails if the options are not valid, or if the system refuses an address, a thread or a core.
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
        let (options, placed, times) = (options.clone(), placement.clone(), counters.times.clone());
        let (sender, started) = channel();
        let thread = std::thread::Builder::new().name("rpc-net".into()).spawn(move || {
            let (engines, result) = match engines(&options, &placed, &times, clock) {
                Ok(engines) => (Some(engines), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // The caller of `start` waits for this result.
            let _ = sender.send(result);
            let Some(mut engines) = engines else { return Ok(()) };
            let begun_ns = thread_cpu_ns();
            let result = net.run(&mut *engines);
            times.thread_ns.store(thread_cpu_ns() - begun_ns, Ordering::Relaxed);
            result
        })?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("the service's thread ended")))?;
        Ok(Self { address, placement, counters, stop, wake, thread: Some(thread) })
    }

    /// Returns the address on which the service listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the service's threads and their cores.
    pub fn placement(&self) -> &RpcPlacement {
        &self.placement
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> RpcCounts {
        RpcCounts {
            connections: self.counters.connections.load(Ordering::Relaxed),
            requests: self.counters.requests.load(Ordering::Relaxed),
            refused: self.counters.refused.load(Ordering::Relaxed),
        }
    }

    /// Returns whether the service has ended by itself. Only a failure causes that, and
    /// [`RpcServer::stop`] returns the failure.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the service and closes its connections at once. Returns the time of each stage, if it
    /// was measured.
    ///
    /// # Errors
    /// Fails with the earlier failure if the service had already ended by itself.
    pub fn stop(mut self) -> io::Result<RpcStages> {
        self.end()?;
        Ok(self.counters.times.divided())
    }

    fn end(&mut self) -> io::Result<()> {
        self.stop.store(true, Ordering::Release);
        // The write fails only if the counter is full, and a full counter wakes the thread as well.
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

/// Creates the engines of a layout and starts its other threads. The calling thread becomes NetCore
/// and is pinned to its core.
fn engines(
    options: &RpcOptions,
    placement: &RpcPlacement,
    times: &Times,
    clock: Arc<dyn Clock>,
) -> io::Result<Box<dyn Engines>> {
    let (functions, handler) = handlers::functions_and_handler(options, clock);
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
            Box::new(SingleEngine::new(exchange, app, took_ns))
        }
        RpcLayout::TwoThread => {
            let mut exchange = exchange(functions, DEPTH);
            let core = placement.core(1);
            let app = TwoThread::start(handler, &mut exchange, DEPTH, buffer_bytes, core)?;
            Box::new(SingleEngine::new(exchange, app, None))
        }
        RpcLayout::FourThread => {
            let cores = [1, 2, 3].map(|thread| placement.core(thread));
            Box::new(FourThread::start(&functions, handler, DEPTH, buffer_bytes, cores)?)
        }
    })
}

/// Returns the CPU time of the calling thread (ns).
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The maximum number of requests in flight between the cores.
const DEPTH: usize = 16;
/// The size of a frame's head (bytes). The limit of a message does not include the frame's head,
/// but includes the message's header.
const MESSAGE_HEAD_BYTES: usize = rpc::wire::FRAME_HEAD_BYTES;
