//! Starts the server. Its handle tells the server's addresses, reloads it and drains it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::Device;
use device::lane::WatchLane;
use parking_lot::RwLock;
use store::embedded::CoarseClock;
use store::{Embedded, embedded};
use tokio::sync::oneshot;
use units::{Clock, SystemClock};

use crate::accept::{
    AcceptErrors, Dispatcher, SocketFile, accept_tcp, accept_unix, listen_tcp, listen_unix,
};
use crate::admin::{self, Admin};
use crate::config::{Config, Services, StoreConfig, StoreUrl, convert};
use crate::context::Connections;
use crate::counters::Counters;
use crate::device_log;
use crate::grpc::Health;
use crate::idle_memory;
use crate::memory::MemoryParts;
use crate::scheduler::{Reporter, Reporting, Scheduler};
use crate::supervise::{Vitals, keep};
use crate::traces;
use crate::worker::{ListenerProtocol, Plan, Worker, WorkerMessage};

/// The devices that a server's jobs may run on.
pub struct Devices {
    /// The devices by preference. The first must be software.
    pub all: Vec<Arc<dyn Device>>,
    /// The number of devices after software that are accelerators or compression services.
    pub accelerators: usize,
}

/// The functions of this system that a server cannot reach without foreign code.
#[derive(Clone, Copy, Debug)]
pub struct Platform {
    /// Serves lanes. Without it there are no lanes.
    pub watch_lane: Option<WatchLane>,
    /// Returns unused memory of the heap to the system, and says whether there was any.
    pub trim_heap: fn() -> bool,
}

impl Default for Platform {
    fn default() -> Self {
        Self { watch_lane: None, trim_heap: || false }
    }
}

/// Starts servers, see [`Server::start`].
pub struct Server;

impl Server {
    /// Listens and serves, without lanes and without returning unused memory of the heap.
    ///
    /// # Errors
    /// Returns a [`StartError`] and leaves nothing behind.
    pub fn start(config: Config, devices: Devices) -> Result<ServerHandle, StartError> {
        Self::start_on(Platform::default(), config, devices)
    }

    /// Listens and serves with everything that the platform offers.
    ///
    /// # Errors
    /// Returns a [`StartError`] and leaves nothing behind.
    pub fn start_on(
        platform: Platform,
        mut config: Config,
        devices: Devices,
    ) -> Result<ServerHandle, StartError> {
        if config.server.lane_listen.is_some() && platform.watch_lane.is_none() {
            return Err(StartError::Config("server.lane_listen: there are no lanes here".into()));
        }
        let memory = MemoryParts::new(&config);
        config.runtime.inflight_bytes_max = memory.values_per_worker(&config);
        let url: StoreUrl = config
            .store
            .url
            .parse()
            .map_err(|error| StartError::Config(format!("store.url: {error}")))?;
        let secrets = traces::secrets(&config.programs)
            .map_err(|problem| StartError::Config(format!("programs.secrets_file: {problem}")))?;
        let listeners = Listeners::bind(&config)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let embedded = (url == StoreUrl::Embedded).then(|| Arc::new(open_store(&config.store)));
        let Devices { all: devices, accelerators } = devices;
        let policy =
            convert::policy(config.runtime.policy, &config.runtime, devices.len(), accelerators);
        let services = Services::from_roles(&config.server.roles);
        let (health, grpc_others) = Health::new(services);
        // Processes report over gRPC, so a scheduler without gRPC has no use.
        let scheduler = (services.scheduler && !config.server.grpc_listen.is_empty())
            .then(|| Arc::new(Scheduler::new(&config.scheduler)));
        let threads = config.server.threads.max(1);
        let connections = Connections::new(config.server.connections_max, &protocols(&config));
        let plan = Arc::new(Plan {
            url,
            platform,
            reputation: runtime::Reputation::new(&devices),
            devices,
            policy,
            accelerators,
            embedded,
            time: CoarseClock::start(Arc::clone(&clock)),
            clock,
            counters: (0..threads).map(|_| Arc::new(Counters::default())).collect(),
            runtimes: Arc::default(),
            secrets: Arc::new(secrets),
            traces: RwLock::default(),
            connections: Arc::new(connections),
            health,
            grpc_others,
            scheduler,
            reporting: Reporting::default(),
            memory,
            long_keys: Arc::default(),
            budgets: RwLock::default(),
            vitals: Arc::new(Vitals::new(threads)),
            control: Arc::default(),
            config: Arc::new(config),
        });
        let start = |index| Worker::start(Arc::clone(&plan), index);
        let started: Result<Vec<Worker>, _> = (0..threads).map(start).collect();
        let running = started.and_then(|workers| {
            ServerHandle::take_over(Arc::clone(&plan), workers.into(), listeners)
        });
        if running.is_err() {
            plan.vitals.begin_end();
        }
        running
    }
}

fn open_store(config: &StoreConfig) -> Embedded {
    Embedded::new(embedded::Options {
        limit: config.memory,
        item_bytes_max: config.item_bytes_max,
        evict: config.evict,
        seed: hash_seed(),
    })
}

/// Returns the protocols for which this process accepts connections.
fn protocols(config: &Config) -> Vec<ListenerProtocol> {
    let server = &config.server;
    let frontend = Services::from_roles(&server.roles).frontend;
    let used = [
        (
            ListenerProtocol::Memcached,
            frontend && (!server.listen.is_empty() || server.unix_socket.is_some()),
        ),
        (ListenerProtocol::Grpc, !server.grpc_listen.is_empty()),
        (ListenerProtocol::Programs, !config.programs.listen.is_empty()),
        (ListenerProtocol::Lane, server.lane_listen.is_some()),
    ];
    used.into_iter().filter(|(_, used)| *used).map(|(protocol, _)| protocol).collect()
}

/// Returns the descriptors that this configuration opens in addition to one for each client: those of event loops, of
/// the connections to stores and services, and the additional ones of lanes.
pub fn descriptors_reserved(config: &Config) -> usize {
    let servers = match config.store.url.parse() {
        Ok(StoreUrl::Memcached(servers)) => servers.len(),
        Ok(StoreUrl::Grpc(services)) => services.len(),
        Ok(StoreUrl::Embedded) | Err(_) => 0,
    };
    let peers = servers + config.runtime.compression.len();
    let lanes = if config.server.lane_listen.is_some() { LANES_EXPECTED } else { 0 };
    let per_worker = LOOP_DESCRIPTORS + PEER_DESCRIPTORS * peers;
    config.server.threads.saturating_mul(per_worker).saturating_add(lanes * LANE_DESCRIPTORS)
}

/// The descriptors of an event loop, and a few for files that are open for a short time.
const LOOP_DESCRIPTORS: usize = 8;
/// The most descriptors for one peer. A server has at most two connections, and a lane to a service has three
/// descriptors.
const PEER_DESCRIPTORS: usize = 3;
/// The number of lanes that a service usually has.
const LANES_EXPECTED: usize = 32;
/// The descriptors of a lane in addition to its connection.
const LANE_DESCRIPTORS: usize = 2;

/// A server that serves until it is drained or dropped.
pub struct ServerHandle {
    plan: Arc<Plan>,
    workers: Arc<[Worker]>,
    admin: Arc<Admin>,
    control: Control,
    addresses: Vec<SocketAddr>,
    grpc_addresses: Vec<SocketAddr>,
    program_addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    unix_sockets: Vec<SocketFile>,
}

impl ServerHandle {
    /// The TCP addresses that clients may connect to, with the ports that were chosen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The TCP addresses for gRPC, with the ports that were chosen.
    pub fn grpc_addresses(&self) -> &[SocketAddr] {
        &self.grpc_addresses
    }

    /// The TCP addresses for callers of programs, with the ports that were chosen.
    pub fn program_addresses(&self) -> &[SocketAddr] {
        &self.program_addresses
    }

    /// The address of the admin pages, with the port that was chosen; none if they are off.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Applies the keys that may change while the server runs. It ignores the rest of `config`.
    pub fn reload(&self, config: Config) {
        self.plan.connections.set_max(config.server.connections_max);
        if let Some(scheduler) = &self.plan.scheduler {
            scheduler.reload(&config.scheduler);
        }
        let config = Arc::new(config);
        for worker in self.workers.iter() {
            worker.tell(WorkerMessage::Reload(Arc::clone(&config)));
        }
        self.admin.reloaded(config);
    }

    /// Has `tell` called when one of this server's threads has ended, so that the server can no longer do its work.
    pub fn on_failure(&self, tell: Box<dyn Fn() + Send>) {
        self.plan.vitals.on_failure(tell);
    }

    /// Returns the reason why this server cannot do its work, if there is one.
    pub fn failure(&self) -> Option<String> {
        self.plan.vitals.failure()
    }

    /// Counts, for the admin pages, a reload whose configuration was refused before `reload` was called.
    pub fn reload_failed(&self) {
        self.admin.reload_failed();
    }

    /// Stops accepting, lets requests in flight finish and ends the server. After `limit` it cuts the connections that
    /// are left; it returns whether none was left. The admin pages stay until the end, and report from the beginning
    /// that the server is not ready.
    pub fn drain(mut self, limit: Duration) -> bool {
        self.stop_accepting();
        self.tell_all(|| WorkerMessage::Drain);
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
        let bound =
            |wanted| bound(listeners.tcp.iter().filter(move |(_, protocol)| *protocol == wanted));
        let addresses = bound(ListenerProtocol::Memcached)?;
        let admin = listeners.admin.first().map(std::net::TcpListener::local_addr).transpose();
        let admin_address = admin.map_err(StartError::Thread)?;
        let grpc_addresses = bound(ListenerProtocol::Grpc)?;
        let program_addresses = bound(ListenerProtocol::Programs)?;
        let lanes = plan.config.server.lane_listen.as_ref();
        let unix_sockets = listeners.unix.iter().map(|listener| &listener.path).chain(lanes);
        let unix_sockets = unix_sockets.map(|path| SocketFile::new(path)).collect();
        let dispatcher = Dispatcher {
            workers: Arc::clone(&workers),
            connections: Arc::clone(&plan.connections),
            counters: Arc::clone(&plan.counters),
            turns: Arc::default(),
            errors: Arc::new(AcceptErrors::new(Arc::clone(&plan.control))),
        };
        let admin = Arc::new(Admin::new(Arc::clone(&plan)));
        let control = Control::start(listeners, dispatcher, Arc::clone(&admin), Arc::clone(&plan))?;
        Ok(Self {
            plan,
            workers,
            admin,
            control,
            addresses,
            grpc_addresses,
            program_addresses,
            admin_address,
            unix_sockets,
        })
    }

    fn tell_all(&self, message: impl Fn() -> WorkerMessage) {
        for worker in self.workers.iter() {
            worker.tell(message());
        }
    }

    fn stop_accepting(&mut self) {
        self.admin.readiness().begin_drain();
        self.plan.vitals.begin_end();
        // This comes first: when a listener is closed, another process may take its path, and the new file may look the
        // same.
        self.unix_sockets.drain(..).for_each(SocketFile::remove);
        self.control.stop_accepting();
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop_accepting();
        self.tell_all(|| WorkerMessage::Cut);
        let deadline = Instant::now() + JOIN_LIMIT;
        for worker in self.workers.iter() {
            worker.join(deadline);
        }
        self.control.end();
    }
}

/// The reason why the server did not start. The operator must act.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
    /// An address could not be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// The offload runtime did not start.
    #[error(transparent)]
    Runtime(#[from] runtime::StartError),
    /// A thread or an event loop could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A worker ended while it started.
    #[error("worker {0} ended while it started")]
    Worker(usize),
}

struct Listeners {
    admin: Vec<std::net::TcpListener>,
    tcp: Vec<(std::net::TcpListener, ListenerProtocol)>,
    unix: Vec<UnixSocketListener>,
    lanes: Option<std::os::unix::net::UnixListener>,
}

struct UnixSocketListener {
    listener: std::os::unix::net::UnixListener,
    path: PathBuf,
    protocol: ListenerProtocol,
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
        if Services::from_roles(&server.roles).frontend {
            for address in &server.listen {
                tcp.extend(
                    listen(address)?
                        .into_iter()
                        .map(|socket| (socket, ListenerProtocol::Memcached)),
                );
            }
            if let Some(path) = &server.unix_socket {
                unix.push(UnixSocketListener::bind(
                    path,
                    server.unix_socket_mode,
                    ListenerProtocol::Memcached,
                )?);
            }
        }
        for address in &server.grpc_listen {
            match address.parse() {
                Ok(api::Address::Unix(path)) => {
                    unix.push(UnixSocketListener::bind(
                        &path,
                        server.unix_socket_mode,
                        ListenerProtocol::Grpc,
                    )?);
                }
                Ok(api::Address::Tcp(address)) => {
                    tcp.extend(
                        listen(&address)?
                            .into_iter()
                            .map(|socket| (socket, ListenerProtocol::Grpc)),
                    );
                }
                Err(error) => {
                    return Err(StartError::Config(format!("server.grpc_listen: {error}")));
                }
            }
        }
        for address in &config.programs.listen {
            tcp.extend(
                listen(address)?.into_iter().map(|socket| (socket, ListenerProtocol::Programs)),
            );
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

impl UnixSocketListener {
    fn bind(path: &Path, mode: u32, protocol: ListenerProtocol) -> Result<Self, StartError> {
        Ok(Self { listener: bind_unix(path, mode)?, path: path.to_owned(), protocol })
    }
}

fn bind_unix(path: &Path, mode: u32) -> Result<std::os::unix::net::UnixListener, StartError> {
    let address = path.display().to_string();
    listen_unix(path, mode).map_err(|error| StartError::Listen { address, error })
}

fn bound<'a>(
    listeners: impl Iterator<Item = &'a (std::net::TcpListener, ListenerProtocol)>,
) -> Result<Vec<SocketAddr>, StartError> {
    let address = |(listener, _): &(std::net::TcpListener, ListenerProtocol)| listener.local_addr();
    listeners.map(address).collect::<Result<_, _>>().map_err(StartError::Thread)
}

/// The thread that accepts clients and shows the admin pages. It stops accepting before it stops showing pages.
struct Control {
    accepting: Option<(oneshot::Sender<()>, mpsc::Receiver<()>)>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Control {
    fn start(
        listeners: Listeners,
        dispatcher: Dispatcher,
        admin: Arc<Admin>,
        plan: Arc<Plan>,
    ) -> Result<Self, StartError> {
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let executor = executor.map_err(StartError::Thread)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (stopping, has_stopped) = mpsc::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let watched = Arc::clone(&plan.vitals);
        let Listeners { admin: pages, tcp, unix, lanes } = listeners;
        let run = async move {
            // A ring counts as reachable once it has answered.
            let has_store = matches!(plan.url, StoreUrl::Embedded);
            plan.health.set(has_store, true).await;
            // These tasks last until the end.
            let mut shown = tokio::task::JoinSet::new();
            let budgets = Arc::clone(&plan);
            shown.spawn(async move {
                let restarts = &budgets.control.restarts_idle_memory;
                keep("idle memory", restarts, || {
                    idle_memory::give_back(&budgets.budgets, budgets.platform.trim_heap)
                })
                .await;
            });
            if plan.devices.len() > 1 {
                let plan = Arc::clone(&plan);
                shown.spawn(async move {
                    let restarts = &plan.control.restarts_device_log;
                    keep("device log", restarts, || device_log::run(&plan.runtimes)).await;
                });
            }
            if let Some(reporter) = report(&plan, &dispatcher.workers) {
                let plan = Arc::clone(&plan);
                shown.spawn(async move {
                    let restarts = &plan.control.restarts_reporter;
                    keep("reporter", restarts, || reporter.run()).await;
                });
            }
            if !pages.is_empty() || !plan.config.server.grpc_listen.is_empty() {
                let (plan, admin) = (Arc::clone(&plan), Arc::clone(&admin));
                let workers = Arc::clone(&dispatcher.workers);
                shown.spawn(async move {
                    let restarts = &plan.control.restarts_readiness;
                    keep("readiness", restarts, || admin.readiness().run(&workers, &plan.health))
                        .await;
                });
            }
            shown.spawn(admin::serve(pages, admin, Arc::clone(&dispatcher.errors)));
            let mut tasks = accept(tcp, unix, lanes, &dispatcher);
            drop(dispatcher);
            let _ = stopped.await;
            tasks.shutdown().await;
            plan.health.set(false, false).await;
            drop(stopping);
            let _ = ended.await;
        };
        let thread = std::thread::Builder::new()
            .name("rebate-control".to_owned())
            .spawn(move || {
                let _watched = watched.watch("the control thread".to_owned());
                executor.block_on(run);
                // Does not wait for a name that is still being resolved.
                executor.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Self { accepting: Some((stop, has_stopped)), thread: Some((end, thread)) })
    }

    /// Closes the clients' listeners. When it returns, no more connections are passed to workers.
    fn stop_accepting(&mut self) {
        if let Some((stop, has_stopped)) = self.accepting.take() {
            let _ = stop.send(());
            // Nothing is ever sent. `recv` returns when the other end is dropped.
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

/// Creates the reporter that tells the scheduler about this process, if a scheduler is configured.
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

/// Starts the tasks that accept clients.
fn accept(
    tcp: Vec<(std::net::TcpListener, ListenerProtocol)>,
    unix: Vec<UnixSocketListener>,
    lanes: Option<std::os::unix::net::UnixListener>,
    dispatcher: &Dispatcher,
) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for (listener, protocol) in tcp {
        let dispatcher = dispatcher.clone();
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => drop(tasks.spawn(async move {
                let restarts = &dispatcher.errors.control.restarts_acceptor;
                keep("acceptor", restarts, || accept_tcp(&listener, protocol, &dispatcher)).await;
            })),
            Err(error) => tracing::error!(%error, "a listener could not be taken over"),
        }
    }
    let unix = unix.into_iter().map(|unix| (unix.listener, unix.protocol));
    for (listener, protocol) in unix.chain(lanes.map(|listener| (listener, ListenerProtocol::Lane)))
    {
        let dispatcher = dispatcher.clone();
        match tokio::net::UnixListener::from_std(listener) {
            Ok(listener) => drop(tasks.spawn(async move {
                let restarts = &dispatcher.errors.control.restarts_acceptor;
                keep("acceptor", restarts, || accept_unix(&listener, protocol, &dispatcher)).await;
            })),
            Err(error) => tracing::error!(%error, "a listener could not be taken over"),
        }
    }
    tasks
}

/// Returns a seed that clients cannot guess, so that no client can choose keys that collide.
fn hash_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// The time that `drop` waits for a worker that was told to cut. A worker that still hangs then is left behind.
const JOIN_LIMIT: Duration = Duration::from_secs(2);

/// The interval at which a drain checks whether the last connection has ended.
const DRAIN_POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use device::Software;
    use policy::{Choice, JobFacts, Policy, Snapshot};

    use super::*;

    /// A policy that panics on its first use.
    struct Defective;

    impl Policy for Defective {
        fn name(&self) -> &'static str {
            "defective"
        }
        fn uses_costs(&self) -> bool {
            panic!("a defect")
        }
        fn place(&self, _: &JobFacts, _: &Snapshot<'_>, _: u64) -> Choice {
            unreachable!("nothing is placed")
        }
    }

    #[test]
    fn the_end_of_a_worker_is_told_and_ends_readiness() {
        let mut config = Config::default();
        config.server.listen = vec!["127.0.0.1:0".to_owned()];
        config.server.admin_listen = "127.0.0.1:0".to_owned();
        config.server.threads = 2;
        let devices = Devices { all: vec![Arc::new(Software::default())], accelerators: 0 };
        let running = Server::start(config, devices).unwrap();
        let (tell, told) = mpsc::channel();
        running.on_failure(Box::new(move || tell.send(()).unwrap_or_default()));
        running.workers[1].tell(WorkerMessage::Policy(Arc::new(Defective)));
        told.recv_timeout(Duration::from_secs(30)).expect("it is told");
        let why = "worker 1 ended after a defect".to_owned();
        assert_eq!(running.failure(), Some(why.clone()));
        assert_eq!(running.plan.vitals.problem(), Some(why.clone()), "as on /healthz");
        assert_eq!(running.admin.readiness().judge(), Err(why));
        assert!(running.drain(Duration::from_secs(30)), "the others drain");
    }
}
