//! Starting the server, and what can be done with one that runs: ask its addresses, reload, drain.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::Device;
use policy::{AlwaysSoftware, BoundedInline, Policy};
use store::{Embedded, embedded};
use tokio::sync::oneshot;
use units::{Clock, SystemClock};

use crate::accept::{Dealer, accept_tcp, accept_unix, listen_tcp, listen_unix};
use crate::backend::Seconds;
use crate::config::Config;
use crate::config_source::StoreUrl;
use crate::context::Connections;
use crate::counters::Counters;
use crate::worker::{Plan, Word, Worker};

/// The way to a running server.
pub struct Server;

impl Server {
    /// Listens and serves. `devices` are by preference; the first must be software.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind.
    pub fn start(config: Config, devices: Vec<Arc<dyn Device>>) -> Result<Running, StartError> {
        let url: StoreUrl = config.store.url.parse().map_err(|error| {
            StartError::Config(format!("store.url: {error}"))
        })?;
        let listeners = Listeners::bind(&config)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let embedded = (url == StoreUrl::Embedded).then(|| {
            Arc::new(Embedded::new(embedded::Options {
                limit: config.store.memory,
                item_bytes_max: config.store.item_bytes_max,
                evict: config.store.evict,
                seed: hash_seed(),
            }))
        });
        let policy: Arc<dyn Policy> = match devices.len() {
            0 | 1 => Arc::new(AlwaysSoftware),
            _ => {
                let inline_bytes_max = config.runtime.inline_bytes_max.as_usize();
                Arc::new(BoundedInline { inline_bytes_max })
            }
        };
        let threads = config.server.threads.max(1);
        let plan = Arc::new(Plan {
            url,
            devices,
            policy,
            embedded,
            time: Seconds::start(Arc::clone(&clock)),
            clock,
            counters: (0..threads).map(|_| Arc::new(Counters::default())).collect(),
            runtimes: Arc::default(),
            connections: Arc::new(Connections::new(config.server.connections_max)),
            config: Arc::new(config),
        });
        let start = |index| Worker::start(Arc::clone(&plan), index);
        let workers: Arc<[Worker]> =
            (0..threads).map(start).collect::<Result<Vec<_>, _>>()?.into();
        Running::take_over(plan, workers, listeners)
    }
}

/// A server that serves until it is drained or dropped.
pub struct Running {
    plan: Arc<Plan>,
    workers: Arc<[Worker]>,
    control: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    addresses: Vec<SocketAddr>,
    unix_socket: Option<PathBuf>,
}

impl Running {
    /// The TCP addresses that clients may connect to, with the ports that were chosen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Takes over what may change while serving; the rest of `config` is not looked at.
    pub fn reload(&self, config: Config) {
        self.plan.connections.set_max(config.server.connections_max);
        let config = Arc::new(config);
        for worker in self.workers.iter() {
            worker.tell(Word::Reload(Arc::clone(&config)));
        }
    }

    /// Stops accepting, lets requests under way finish and ends; after `limit` connections are cut. True if none was.
    pub fn drain(mut self, limit: Duration) -> bool {
        self.stop_accepting();
        self.tell_all(|| Word::Drain);
        let deadline = Instant::now() + limit;
        while self.plan.connections.open() > 0 && Instant::now() < deadline {
            std::thread::sleep(DRAIN_POLL);
        }
        self.plan.connections.open() == 0
    }

    fn take_over(
        plan: Arc<Plan>,
        workers: Arc<[Worker]>,
        listeners: Listeners,
    ) -> Result<Self, StartError> {
        let addresses = listeners.addresses()?;
        let unix_socket = listeners.unix.as_ref().map(|(_, path)| path.clone());
        let dealer = Dealer {
            workers: Arc::clone(&workers),
            connections: Arc::clone(&plan.connections),
            counters: Arc::clone(&plan.counters),
            next: Arc::default(),
        };
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let executor = executor.map_err(StartError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("rebate-control".to_owned())
            .spawn(move || executor.block_on(control(listeners, dealer, stopped)))
            .map_err(StartError::Thread)?;
        Ok(Self { plan, workers, control: Some((stop, thread)), addresses, unix_socket })
    }

    fn tell_all(&self, word: impl Fn() -> Word) {
        for worker in self.workers.iter() {
            worker.tell(word());
        }
    }

    fn stop_accepting(&mut self) {
        if let Some((stop, thread)) = self.control.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
        if let Some(path) = self.unix_socket.take() {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop_accepting();
        self.tell_all(|| Word::Cut);
        for worker in self.workers.iter() {
            worker.join();
        }
    }
}

/// Why the server did not start; the operator must act.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: String,
        /// Why.
        error: std::io::Error,
    },
    /// The offload runtime did not start.
    #[error(transparent)]
    Runtime(#[from] runtime::StartError),
    /// No thread or event loop was to be had.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A worker ended while it started.
    #[error("worker {0} ended while it started")]
    Worker(usize),
}

struct Listeners {
    tcp: Vec<std::net::TcpListener>,
    unix: Option<(std::os::unix::net::UnixListener, PathBuf)>,
}

impl Listeners {
    fn bind(config: &Config) -> Result<Self, StartError> {
        let server = &config.server;
        let mut tcp = Vec::new();
        for address in &server.listen {
            let bound = listen_tcp(address, server.backlog);
            tcp.extend(bound.map_err(|error| StartError::Listen { address: address.clone(), error })?);
        }
        let unix = match &server.unix_socket {
            None => None,
            Some(path) => {
                let bound = listen_unix(path, server.unix_socket_mode);
                let address = path.display().to_string();
                let listener = bound.map_err(|error| StartError::Listen { address, error })?;
                Some((listener, path.clone()))
            }
        };
        if tcp.is_empty() && unix.is_none() {
            return Err(StartError::Config("nowhere to listen: give an address or a socket".into()));
        }
        Ok(Self { tcp, unix })
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>, StartError> {
        let address = |listener: &std::net::TcpListener| listener.local_addr();
        let addresses = self.tcp.iter().map(address).collect::<Result<_, _>>();
        addresses.map_err(StartError::Thread)
    }
}

/// Accepts until it is told to stop.
async fn control(listeners: Listeners, dealer: Dealer, stopped: oneshot::Receiver<()>) {
    let mut tasks = tokio::task::JoinSet::new();
    for listener in listeners.tcp {
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => drop(tasks.spawn(accept_tcp(listener, dealer.clone()))),
            Err(error) => tracing::error!(%error, "a listener could not be taken over"),
        }
    }
    if let Some((listener, _)) = listeners.unix {
        match tokio::net::UnixListener::from_std(listener) {
            Ok(listener) => drop(tasks.spawn(accept_unix(listener, dealer))),
            Err(error) => tracing::error!(%error, "a listener could not be taken over"),
        }
    }
    let _ = stopped.await;
}

/// A seed that clients cannot guess, so that nobody chooses keys that collide.
fn hash_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// How often a drain looks whether the last connection is gone.
const DRAIN_POLL: Duration = Duration::from_millis(5);
