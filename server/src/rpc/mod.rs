//! Thrift services over TCP through the near-cache RPC engine: the engine is `rpc`'s, this module has the threads, the
//! sockets and the handlers. One thread does it all (`Inline`), or the network core has the engine and an application
//! core the handlers (`Engine`).
//!
//! ```text
//! NetCore  sockets -> frames -> exchange: engine, data page -> frames -> sockets
//!                                  | words and lent buffers ^
//! AppCore                          v handler                |      (or the same thread)
//! ```

mod connection;
mod exchange;
mod handlers;
mod inline;
mod net_core;
mod split;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use units::{ByteCount, Clock};

use exchange::Exchange;
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

/// Which threads do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcLayout {
    /// One: sockets, engine and handlers.
    Inline,
    /// Two: sockets and engine, and the handlers.
    Engine,
}

/// What to serve, where, and within which bounds.
#[derive(Clone, Copy, Debug)]
pub struct RpcOptions {
    /// What.
    pub service: RpcService,
    /// Where; port 0 is any.
    pub listen: SocketAddr,
    /// How.
    pub layout: RpcLayout,
    /// The longest message, in and out; a connection that announces a longer one is closed.
    pub message_bytes_max: ByteCount,
    /// Budget of the store.
    pub memory: ByteCount,
    /// Connections at once; more are closed as they come.
    pub connections_max: usize,
}

impl RpcOptions {
    /// The service at `listen`, with the bounds that fit a small machine.
    pub fn new(service: RpcService, listen: SocketAddr) -> Self {
        Self {
            service,
            listen,
            layout: RpcLayout::Inline,
            message_bytes_max: ByteCount::mib(1),
            memory: ByteCount::mib(64),
            connections_max: 1024,
        }
    }
}

/// Messages from 1 KiB to 64 MiB.
pub const MESSAGE_BYTES_MAX: std::ops::RangeInclusive<u64> = 1 << 10..=64 << 20;

/// What was counted since the start.
#[derive(Debug, Default)]
pub(crate) struct RpcCounters {
    connections: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
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
    counters: Arc<RpcCounters>,
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl RpcServer {
    /// Listens, and serves from threads of its own.
    pub fn start(options: &RpcOptions, clock: Arc<dyn Clock>) -> io::Result<Self> {
        if !MESSAGE_BYTES_MAX.contains(&options.message_bytes_max.0) {
            let what = "the longest message is from 1 KiB to 64 MiB";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let listener = TcpListener::bind(options.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let counters = Arc::new(RpcCounters::default());
        let stop = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (functions, handler) = handlers::of(options, clock);
        let buffer_bytes = options.message_bytes_max.as_usize() + MESSAGE_HEAD_BYTES;
        let net = NetCore::new(listener, &wake, options, Arc::clone(&counters), Arc::clone(&stop))?;
        let thread = std::thread::Builder::new().name("rpc-net".into());
        let thread = match options.layout {
            RpcLayout::Inline => thread.spawn(move || {
                let mut exchange = Exchange::new(functions, 1, buffer_bytes);
                let app = Inline::new(handler, &mut exchange, buffer_bytes);
                net.run(exchange, app)
            })?,
            RpcLayout::Engine => thread.spawn(move || {
                let mut exchange = Exchange::new(functions, DEPTH, buffer_bytes);
                let app = Split::start(handler, &mut exchange, DEPTH, buffer_bytes)?;
                net.run(exchange, app)
            })?,
        };
        Ok(Self { address, counters, stop, wake, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
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

    /// Ends it: connections are closed as they are.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
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

/// Requests on their way between the two cores.
const DEPTH: usize = 16;
/// A frame's head; and the head, the function and the caller's number are part of a message's bytes.
const MESSAGE_HEAD_BYTES: usize = rpc::wire::FRAME_HEAD_BYTES;
