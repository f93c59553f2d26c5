//! Starting the server, and what can be done with one that runs: ask its addresses, reload, drain.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::Device;
use parking_lot::RwLock;
use store::{Embedded, embedded};
use tokio::sync::oneshot;
use units::{Clock, SystemClock};

use crate::accept::{
    Dealer, SocketFile, accept_lanes, accept_tcp, accept_unix, listen_tcp, listen_unix,
};
use crate::admin::{self, Admin};
use crate::backend::Seconds;
use crate::config::{Config, Services};
use crate::config_source::StoreUrl;
use crate::context::Connections;
use crate::counters::Counters;
use crate::grpc::Health;
use crate::rules;
use crate::scheduler::{Reporter, Reporting, Scheduler};
use crate::traces;
use crate::worker::{Door, Plan, Word, Worker};

/// What a server's jobs may run on.
pub struct Devices {
    /// By preference; the first must be software.
    pub all: Vec<Arc<dyn Device>>,
    /// How many of those behind software are accelerators or compression services.
    pub accelerators: usize,
}

/// The way to a running server.
pub struct Server;

impl Server {
    /// Listens and serves.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind.
    pub fn start(config: Config, devices: Devices) -> Result<Running, StartError> {
        let url: StoreUrl = config
            .store
            .url
            .parse()
            .map_err(|error| StartError::Config(format!("store.url: {error}")))?;
        let secrets = traces::secrets(&config.traces)
            .map_err(|problem| StartError::Config(format!("traces.secrets_file: {problem}")))?;
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
        let Devices { all: devices, accelerators } = devices;
        let policy =
            rules::policy(config.runtime.policy, &config.runtime, devices.len(), accelerators);
        let services = Services::of(&config.server.roles);
        let (health, grpc_others) = Health::new(services);
        // Without gRPC nobody could report.
        let scheduler = (services.scheduler && !config.server.grpc_listen.is_empty())
            .then(|| Arc::new(Scheduler::new(&config.scheduler)));
        let threads = config.server.threads.max(1);
        let plan = Arc::new(Plan {
            url,
            devices,
            policy,
            accelerators,
            embedded,
            time: Seconds::start(Arc::clone(&clock)),
            clock,
            counters: (0..threads).map(|_| Arc::new(Counters::default())).collect(),
            runtimes: Arc::default(),
            secrets: Arc::new(secrets),
            traces: RwLock::default(),
            connections: Arc::new(Connections::new(config.server.connections_max)),
            health,
            grpc_others,
            scheduler,
            reporting: Reporting::default(),
            config: Arc::new(config),
        });
        let start = |index| Worker::start(Arc::clone(&plan), index);
        let workers: Arc<[Worker]> = (0..threads).map(start).collect::<Result<Vec<_>, _>>()?.into();
        Running::take_over(plan, workers, listeners)
    }
}

/// A server that serves until it is drained or dropped.
pub struct Running {
    plan: Arc<Plan>,
    workers: Arc<[Worker]>,
    admin: Arc<Admin>,
    control: Control,
    addresses: Vec<SocketAddr>,
    grpc_addresses: Vec<SocketAddr>,
    trace_addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    unix_sockets: Vec<SocketFile>,
}

impl Running {
    /// The TCP addresses that clients may connect to, with the ports that were chosen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The TCP addresses for gRPC, with the ports that were chosen.
    pub fn grpc_addresses(&self) -> &[SocketAddr] {
        &self.grpc_addresses
    }

    /// The TCP addresses for callers of traces, with the ports that were chosen.
    pub fn trace_addresses(&self) -> &[SocketAddr] {
        &self.trace_addresses
    }

    /// The address of the admin pages, with the port that was chosen; none if they are off.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Takes over what may change while serving; the rest of `config` is not looked at.
    pub fn reload(&self, config: Config) {
        self.plan.connections.set_max(config.server.connections_max);
        if let Some(scheduler) = &self.plan.scheduler {
            scheduler.reload(&config.scheduler);
        }
        let config = Arc::new(config);
        for worker in self.workers.iter() {
            worker.tell(Word::Reload(Arc::clone(&config)));
        }
        self.admin.reloaded(config);
    }

    /// Counts, for the admin pages, a reload that was refused before it came here.
    pub fn reload_failed(&self) {
        self.admin.reload_failed();
    }

    /// Stops accepting, lets requests under way finish and ends; after `limit` connections are cut. True if none was.
    /// Admin pages stay until the end, and say from the beginning that the server is not ready.
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
        let bound = |own| bound(listeners.tcp.iter().filter(move |(_, door)| *door == own));
        let addresses = bound(Door::Memcached)?;
        let admin = listeners.admin.first().map(std::net::TcpListener::local_addr).transpose();
        let admin_address = admin.map_err(StartError::Thread)?;
        let grpc_addresses = bound(Door::Grpc)?;
        let trace_addresses = bound(Door::Traces)?;
        let lanes = plan.config.server.lane_listen.as_ref();
        let unix_sockets = listeners.unix.iter().map(|listener| &listener.path).chain(lanes);
        let unix_sockets = unix_sockets.map(|path| SocketFile::of(path)).collect();
        let dealer = Dealer {
            workers: Arc::clone(&workers),
            connections: Arc::clone(&plan.connections),
            counters: Arc::clone(&plan.counters),
            turns: Arc::default(),
        };
        let admin = Arc::new(Admin::new(Arc::clone(&plan)));
        let control = Control::start(listeners, dealer, Arc::clone(&admin), Arc::clone(&plan))?;
        Ok(Self {
            plan,
            workers,
            admin,
            control,
            addresses,
            grpc_addresses,
            trace_addresses,
            admin_address,
            unix_sockets,
        })
    }

    fn tell_all(&self, word: impl Fn() -> Word) {
        for worker in self.workers.iter() {
            worker.tell(word());
        }
    }

    fn stop_accepting(&mut self) {
        self.admin.begin_drain();
        // First: once a listener is gone, another process may take its path, and its file may look the same.
        self.unix_sockets.drain(..).for_each(SocketFile::remove);
        self.control.stop_accepting();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop_accepting();
        self.tell_all(|| Word::Cut);
        for worker in self.workers.iter() {
            worker.join();
        }
        self.control.end();
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
    admin: Vec<std::net::TcpListener>,
    tcp: Vec<(std::net::TcpListener, Door)>,
    unix: Vec<UnixDoor>,
    lanes: Option<std::os::unix::net::UnixListener>,
}

struct UnixDoor {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
    door: Door,
}

impl Listeners {
    fn bind(config: &Config) -> Result<Self, StartError> {
        let server = &config.server;
        let listen = |address: &String| {
            let bound = listen_tcp(address, server.backlog);
            bound.map_err(|error| StartError::Listen { address: address.clone(), error })
        };
        let admin = match server.admin_listen.is_empty() {
            true => Vec::new(),
            false => listen(&server.admin_listen)?,
        };
        let mut tcp = Vec::new();
        let mut unix = Vec::new();
        if Services::of(&server.roles).frontend {
            for address in &server.listen {
                tcp.extend(listen(address)?.into_iter().map(|socket| (socket, Door::Memcached)));
            }
            if let Some(path) = &server.unix_socket {
                unix.push(UnixDoor::bind(path, server.unix_socket_mode, Door::Memcached)?);
            }
        }
        for address in &server.grpc_listen {
            match address.parse() {
                Ok(api::Address::Unix(path)) => {
                    unix.push(UnixDoor::bind(&path, server.unix_socket_mode, Door::Grpc)?);
                }
                Ok(api::Address::Tcp(address)) => {
                    tcp.extend(listen(&address)?.into_iter().map(|socket| (socket, Door::Grpc)));
                }
                Err(error) => {
                    return Err(StartError::Config(format!("server.grpc_listen: {error}")));
                }
            }
        }
        for address in &config.traces.listen {
            tcp.extend(listen(address)?.into_iter().map(|socket| (socket, Door::Traces)));
        }
        let lane = server.lane_listen.as_ref();
        let lanes = lane.map(|path| bind_unix(path, server.unix_socket_mode)).transpose()?;
        if tcp.is_empty() && unix.is_empty() && lanes.is_none() {
            return Err(StartError::Config(
                "nowhere to listen: give an address or a socket".into(),
            ));
        }
        Ok(Self { admin, tcp, unix, lanes })
    }
}

impl UnixDoor {
    fn bind(path: &Path, mode: u32, door: Door) -> Result<Self, StartError> {
        Ok(Self { listener: bind_unix(path, mode)?, path: path.to_owned(), door })
    }
}

fn bind_unix(path: &Path, mode: u32) -> Result<std::os::unix::net::UnixListener, StartError> {
    let address = path.display().to_string();
    listen_unix(path, mode).map_err(|error| StartError::Listen { address, error })
}

fn bound<'a>(
    listeners: impl Iterator<Item = &'a (std::net::TcpListener, Door)>,
) -> Result<Vec<SocketAddr>, StartError> {
    let address = |(listener, _): &(std::net::TcpListener, Door)| listener.local_addr();
    listeners.map(address).collect::<Result<_, _>>().map_err(StartError::Thread)
}

/// The thread that accepts clients and shows the admin pages; the one ends before the other.
struct Control {
    accepting: Option<(oneshot::Sender<()>, mpsc::Receiver<()>)>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Control {
    fn start(
        listeners: Listeners,
        dealer: Dealer,
        admin: Arc<Admin>,
        plan: Arc<Plan>,
    ) -> Result<Self, StartError> {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let executor = executor.map_err(StartError::Thread)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (stopping, has_stopped) = mpsc::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let Listeners { admin: pages, tcp, unix, lanes } = listeners;
        let run = async move {
            plan.health.set_serving(true).await;
            let reporter = report(&plan, &dealer.workers);
            let mut tasks = accept(tcp, unix, lanes, dealer);
            // These two last until the end.
            let mut shown = tokio::task::JoinSet::new();
            shown.spawn(admin::serve(pages, admin));
            if let Some(reporter) = reporter {
                shown.spawn(reporter.run());
            }
            let _ = stopped.await;
            plan.health.set_serving(false).await;
            tasks.shutdown().await;
            drop(stopping);
            let _ = ended.await;
        };
        let thread = std::thread::Builder::new()
            .name("rebate-control".to_owned())
            .spawn(move || {
                executor.block_on(run);
                // A name that is still being resolved is not waited for.
                executor.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Self { accepting: Some((stop, has_stopped)), thread: Some((end, thread)) })
    }

    /// Closes the clients' listeners; when it returns, no connection is dealt any more.
    fn stop_accepting(&mut self) {
        if let Some((stop, has_stopped)) = self.accepting.take() {
            let _ = stop.send(());
            // Nothing is ever sent: the other end goes away when it is done.
            let _ = has_stopped.recv();
        }
    }

    fn end(&mut self) {
        self.stop_accepting();
        if let Some((end, thread)) = self.thread.take() {
            let _ = end.send(());
            let _ = thread.join();
        }
    }
}

/// What tells the scheduler of this process, where it has one.
fn report(plan: &Arc<Plan>, workers: &Arc<[Worker]>) -> Option<Reporter> {
    if plan.config.scheduler.address.is_empty() {
        return None;
    }
    match Reporter::new(Arc::clone(plan), Arc::clone(workers)) {
        Ok(reporter) => Some(reporter),
        Err(error) => {
            tracing::error!("scheduler.address: {error}: nothing is reported");
            None
        }
    }
}

/// Accepts clients, in tasks of their own.
fn accept(
    tcp: Vec<(std::net::TcpListener, Door)>,
    unix: Vec<UnixDoor>,
    lanes: Option<std::os::unix::net::UnixListener>,
    dealer: Dealer,
) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for (listener, door) in tcp {
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => drop(tasks.spawn(accept_tcp(listener, door, dealer.clone()))),
            Err(error) => tracing::error!(%error, "a listener could not be taken over"),
        }
    }
    for UnixDoor { listener, door, .. } in unix {
        match tokio::net::UnixListener::from_std(listener) {
            Ok(listener) => drop(tasks.spawn(accept_unix(listener, door, dealer.clone()))),
            Err(error) => tracing::error!(%error, "a listener could not be taken over"),
        }
    }
    match lanes.map(tokio::net::UnixListener::from_std) {
        Some(Ok(listener)) => drop(tasks.spawn(accept_lanes(listener, dealer))),
        Some(Err(error)) => tracing::error!(%error, "a listener could not be taken over"),
        None => {}
    }
    tasks
}

/// A seed that clients cannot guess, so that nobody chooses keys that collide.
fn hash_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// How often a drain looks whether the last connection is gone.
const DRAIN_POLL: Duration = Duration::from_millis(5);
