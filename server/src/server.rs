//! Starts a server and returns a handle to read its addresses, reload it and drain it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::{Device, Dictionary};
use parking_lot::RwLock;
use store::Embedded;
use store::embedded::CoarseClock;
use tokio::sync::oneshot;
use units::{ByteCount, Clock, SystemClock};

use crate::accept::{Dispatcher, SocketFile, accept_tcp, accept_unix};
use crate::access::Access;
use crate::admin::{self, Admin};
use crate::background::{
    PROGRAM_BYTES_MAX, return_memory, watch_certificates, watch_logins, watch_members,
    watch_value_keys,
};
use crate::config::{CompressMode, Config, Services, StoreUrl, convert, split_tls};
use crate::context::Connections;
use crate::counters::Counters;
use crate::device_log;
use crate::dictionaries::{Dictionaries, TrainerThread, start_trainer};
use crate::grpc::Health;
use crate::handshakes::Handshakes;
use crate::hot_values::HotValues;
use crate::inherited::InheritedSockets;
use crate::listeners::{Listeners, TcpSocketListener, UnixSocketListener, bound};
use crate::logins::Logins;
use crate::members::Members;
use crate::memory::MemoryParts;
use crate::otlp::{Export, ExportThread};
use crate::platform::Platform;
use crate::restart::{self, StoreFile};
use crate::scheduler::{Reporter, Reporting, Scheduler};
use crate::sealing::ValueKeys;
use crate::simulated::Environment;
use crate::slow_log::{self, SlowLog};
use crate::supervise::{Liveness, keep};
use crate::tls::Tls;
use crate::watchers::Watchers;
use crate::worker::{ListenerProtocol, Plan, Worker, WorkerMessage};

/// The devices for a server's jobs.
pub struct Devices {
    /// The devices in order of preference. The first must be software.
    pub all: Vec<Arc<dyn Device>>,
    /// The number of devices after software that are accelerators or compression services.
    pub accelerators: usize,
}

/// Starts servers, see [`Server::start`].
pub struct Server;

impl Server {
    /// Starts a server without lanes and near clients that does not return unused heap memory.
    ///
    /// # Errors
    /// Returns a [`StartError`] and leaves nothing behind.
    pub fn start(config: Config, devices: Devices) -> Result<ServerHandle, StartError> {
        Self::start_on(Platform::default(), InheritedSockets::default(), config, devices)
    }

    /// Starts a server with the functions of `platform`. It listens on `sockets` where the configuration names their
    /// addresses, and binds the others.
    ///
    /// # Errors
    /// Returns a [`StartError`] and leaves nothing behind.
    pub fn start_on(
        platform: Platform,
        sockets: InheritedSockets,
        config: Config,
        devices: Devices,
    ) -> Result<ServerHandle, StartError> {
        if config.server.lane_listen.is_some() && platform.watch_lane.is_none() {
            return Err(StartError::Config("server.lane_listen: there are no lanes here".into()));
        }
        if config.server.near_listen.is_some() && platform.watch_near.is_none() {
            let why = "server.near_listen: there are no near clients here";
            return Err(StartError::Config(why.into()));
        }
        let listen = |config: &Config| Listeners::bind(config, &sockets);
        let (plan, file, listeners) = make_plan(platform, config, devices, None, listen)?;
        let threads = plan.counters.len();
        run(&plan, threads, listeners, file)
    }
}

/// Makes the parts that all workers share, and the listeners.
pub(crate) fn make_plan<L>(
    platform: Platform,
    mut config: Config,
    devices: Devices,
    environment: Option<&Environment>,
    listen: impl FnOnce(&Config) -> Result<L, StartError>,
) -> Result<(Arc<Plan>, Option<StoreFile>, L), StartError> {
    let memory = MemoryParts::new(&config);
    config.runtime.inflight_bytes_max = memory.values_per_worker(&config);
    let export = Export::new(&config)?;
    let url = store_url(&config)?;
    let tls = Arc::new(Tls::load(&config).map_err(StartError::Config)?);
    let access = Access::open(&config).map_err(StartError::Config)?;
    let logins = Logins::open(&config).map_err(StartError::Config)?;
    logins.warn_if_plain(&config);
    let value_keys = ValueKeys::open(&config, platform.guard_key).map_err(StartError::Config)?;
    let (clock, time, seed) = match environment {
        None => {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            (Arc::clone(&clock), CoarseClock::start(clock), hash_seed())
        }
        Some(Environment { clock, unix_ms, seed, .. }) => {
            (Arc::clone(clock), CoarseClock::start_at_ms(Arc::clone(clock), *unix_ms), *seed)
        }
    };
    // Nobody can connect while items are loaded, so clients and probes learn that they must wait.
    let disk = environment.map(|environment| Arc::clone(&environment.disk));
    // Loading fills the store, and what only the start needed would add to the peak.
    (platform.release_program_pages)(PROGRAM_BYTES_MAX);
    let opened = restart::open(&config, &url, (seed, disk), &time)?;
    let listeners = listen(&config)?;
    let Devices { all: devices, accelerators } = devices;
    let policy =
        convert::policy(config.runtime.policy, &config.runtime, devices.len(), accelerators);
    let services = Services::from_roles(&config.server.roles);
    let (health, grpc_others) = Health::new(services);
    let scheduler = open_scheduler(&config, services);
    let threads = config.server.threads.max(1);
    let connections = Connections::new(config.server.connections_max, &protocols(&config));
    let config = Arc::new(config);
    let slow_log = Arc::new(SlowLog::new(Arc::clone(&clock)));
    let export = Arc::new(export);
    let plan = Arc::new(Plan {
        tls,
        members: open_members(&config, &url, &logins),
        url,
        platform,
        reputation: runtime::Reputation::new(&devices),
        devices,
        policy,
        accelerators,
        hot_values: open_hot_values(&config, opened.store.as_ref(), &time),
        embedded: opened.store.clone(),
        spare_memory: Arc::default(),
        dictionaries: opened.dictionaries,
        training: Arc::default(),
        restart: opened.restart,
        time,
        clock,
        environment: environment.cloned(),
        counters: (0..threads).map(|_| Arc::new(Counters::default())).collect(),
        runtimes: Arc::default(),
        program_metrics: RwLock::default(),
        connections: Arc::new(connections),
        connection_table: Arc::default(),
        requests: slow_log::open_requests(&config, &slow_log, &export),
        slow_log,
        export,
        watchers: Watchers::open(&config.server, opened.store.as_ref()),
        health,
        grpc_others,
        scheduler,
        reporting: Reporting::default(),
        memory,
        access: Arc::new(access),
        logins,
        value_keys: value_keys.map(Arc::new),
        long_keys: Arc::default(),
        budgets: RwLock::default(),
        pools: RwLock::default(),
        liveness: Arc::new(Liveness::new(threads)),
        control: Arc::default(),
        config,
    });
    Ok((plan, opened.file, listeners))
}

/// Applies the hot keys of `config`, except those of the trainer of dictionaries.
pub(crate) fn apply(config: Config, plan: &Plan, workers: &[Worker], admin: &Admin) {
    plan.connections.set_max(config.server.connections_max);
    if let Some(scheduler) = &plan.scheduler {
        scheduler.reload(&config.scheduler);
    }
    plan.requests.set_rules(convert::requests(&config));
    let config = Arc::new(config);
    for worker in workers {
        worker.send(WorkerMessage::Reload(Arc::clone(&config)));
    }
    plan.members.reload(&config);
    admin.reloaded(config);
}

/// Marks the items in the file of an embedded store as used, because they are about to change.
pub(crate) fn take_over_file(file: Option<&StoreFile>) -> Result<(), StartError> {
    let problem = |error| format!("store.file: cannot mark the items as used: {error}");
    let taken = file.map_or(Ok(()), StoreFile::take_over);
    taken.map_err(|error| StartError::Config(problem(error)))
}

/// Saves the items of an embedded store to their file, after the workers were told to end.
pub(crate) fn save_items(plan: &Plan, admin: &Admin, file: StoreFile, have_ended: bool) {
    let Some(store) = &plan.embedded else { return };
    // A worker that failed may have left an item half changed, and one that hangs may still change some.
    if let Some(what) = plan.liveness.failure() {
        return restart::give_up(&file, &what);
    }
    if !have_ended {
        return restart::give_up(&file, "a worker did not end");
    }
    let config = admin.current_config();
    let limit = Duration::from_millis(config.store.save_timeout_ms);
    let (store, time) = (Arc::clone(store), &plan.time);
    // Dictionaries have parts of values. Where values are sealed, the store has the dictionaries too, and sealed.
    let none = Dictionaries::new(Vec::new(), ByteCount(0));
    let dictionaries = match convert::rules(&config).seals {
        true => &none,
        false => &*plan.dictionaries,
    };
    restart::save(file, store, dictionaries, &config.store, time, limit);
}

/// Starts the workers and the control thread.
fn run(
    plan: &Arc<Plan>,
    threads: usize,
    listeners: Listeners,
    file: Option<StoreFile>,
) -> Result<ServerHandle, StartError> {
    let start = |index| Worker::start(Arc::clone(plan), index);
    let started: Result<Vec<Worker>, _> = (0..threads).map(start).collect();
    let running = started.and_then(|workers| {
        ServerHandle::take_over(Arc::clone(plan), workers.into(), listeners, file)
    });
    if running.is_err() {
        plan.liveness.begin_end();
    }
    running
}

fn store_url(config: &Config) -> Result<StoreUrl, StartError> {
    let problem = |error| StartError::Config(format!("store.url: {error}"));
    config.store.url.parse().map_err(problem)
}

/// Returns the ring, with the servers that are found now.
fn open_members(config: &Arc<Config>, url: &StoreUrl, logins: &Logins) -> Arc<Members> {
    let members = Members::new(config, url, logins.store.clone());
    members.look_up_at_start();
    Arc::new(members)
}

/// Returns the scheduler. Processes report over gRPC, so there is none without gRPC.
fn open_scheduler(config: &Config, services: Services) -> Option<Arc<Scheduler>> {
    let is_used = services.scheduler && !config.server.grpc_listen.is_empty();
    is_used.then(|| Arc::new(Scheduler::new(&config.scheduler)))
}

/// Returns the set of hot values of an embedded store. There is none if the configuration turns it off, or if
/// nothing is compressed.
fn open_hot_values(
    config: &Config,
    embedded: Option<&Arc<Embedded>>,
    time: &CoarseClock,
) -> Option<Arc<HotValues>> {
    let store = Arc::clone(embedded.filter(|_| config.compress.mode == CompressMode::On)?);
    let limit_bytes = (config.store.memory.0 as f64 * config.values.hot_share) as u64;
    HotValues::new(store, time.clone(), limit_bytes).map(Arc::new)
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
        (ListenerProtocol::Near, frontend && server.near_listen.is_some()),
        (ListenerProtocol::Thrift, frontend && !server.thrift_listen.is_empty()),
    ];
    used.into_iter().filter(|(_, used)| *used).map(|(protocol, _)| protocol).collect()
}

/// Returns the number of file descriptors that a server opens in addition to one per client: those of event
/// loops, of connections to stores and services, of TLS handshakes, and the additional ones of lanes.
pub fn descriptors_reserved(config: &Config) -> usize {
    let servers = config.store.url.parse().map_or(0, |url: StoreUrl| url.servers_expected());
    let peers = servers + config.runtime.compression.len();
    let lanes = if config.server.lane_listen.is_some() { LANES_EXPECTED } else { 0 };
    let per_worker = LOOP_DESCRIPTORS + PEER_DESCRIPTORS * peers;
    let handshakes = config.tls_listeners().count().saturating_mul(config.tls.handshakes_max);
    let threads = config.server.threads.saturating_mul(per_worker);
    threads.saturating_add(lanes * LANE_DESCRIPTORS).saturating_add(handshakes)
}

/// The number of file descriptors of an event loop, including a few for temporary files.
const LOOP_DESCRIPTORS: usize = 8;
/// The maximum number of file descriptors per peer: two for a server, or three for a lane.
const PEER_DESCRIPTORS: usize = 3;
/// The expected number of lanes of a service.
const LANES_EXPECTED: usize = 32;
/// The number of file descriptors of a lane in addition to its connection.
const LANE_DESCRIPTORS: usize = 2;

/// A handle to a running server. Dropping it ends the server.
pub struct ServerHandle {
    plan: Arc<Plan>,
    workers: Arc<[Worker]>,
    admin: Arc<Admin>,
    control: Control,
    /// The thread that sends to a collector, if there is one.
    #[expect(dead_code, reason = "it ends with this value")]
    exporter: Option<ExportThread>,
    /// The thread that trains dictionaries, in a process with a frontend.
    trainer: Option<TrainerThread>,
    addresses: Vec<SocketAddr>,
    grpc_addresses: Vec<SocketAddr>,
    program_addresses: Vec<SocketAddr>,
    thrift_addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    admin_address: Option<SocketAddr>,
    unix_sockets: Vec<SocketFile>,
    store_file: Option<StoreFile>,
}

impl ServerHandle {
    /// Returns the TCP addresses for memcached clients, with the actual ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the TCP addresses for gRPC, with the actual ports.
    pub fn grpc_addresses(&self) -> &[SocketAddr] {
        &self.grpc_addresses
    }

    /// Returns the TCP addresses for callers of programs, with the actual ports.
    pub fn program_addresses(&self) -> &[SocketAddr] {
        &self.program_addresses
    }

    /// Returns the TCP addresses for Thrift clients, with the actual ports.
    pub fn thrift_addresses(&self) -> &[SocketAddr] {
        &self.thrift_addresses
    }

    /// Returns whether this server speaks TLS at one of its addresses.
    pub fn is_tls(&self, address: SocketAddr) -> bool {
        let is_admin = self.admin_address == Some(address);
        let is_admin_tls = is_admin && split_tls(&self.plan.config.server.admin_listen).0;
        is_admin_tls || self.tls_addresses.contains(&address)
    }

    /// Loads the certificates again, if there are any. The result is counted and logged.
    pub fn reload_certificates(&self) {
        if self.plan.tls.is_used() {
            let _counted = self.plan.tls.reload();
        }
    }

    /// Returns the address of the admin pages, with the actual port, or `None` if they are off.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Applies the hot keys of `config` and ignores the others.
    pub fn reload(&self, config: Config) {
        if let Some(trainer) = &self.trainer {
            trainer.set_form(convert::value_form(&config));
        }
        apply(config, &self.plan, &self.workers, &self.admin);
    }

    /// Stores new values of the class of `key` with this dictionary, or without any, and trains none any more. It is
    /// for measurements: the dictionary is in this process only. Returns false if there is no memory for it.
    pub fn fix_dictionary(&mut self, key: &[u8], dictionary: Option<&Arc<Dictionary>>) -> bool {
        self.trainer = None;
        self.plan.dictionaries.fix(key, dictionary)
    }

    /// Reads the files with the logins of this process again. The result is counted and logged.
    pub fn reload_logins(&self) {
        self.plan.logins.reload(&self.plan.control);
    }

    /// Reads the file with the keys of sealed values again, if there is one. The result is counted and logged.
    pub fn reload_value_keys(&self) {
        if let Some(keys) = &self.plan.value_keys {
            keys.reload(&self.plan.control);
        }
    }

    /// Reads the file with the rules about clients again. If it is wrong, the old rules stay.
    pub fn reload_access(&self) {
        self.plan.access.reload(&self.plan.control);
        self.send_to_all(|| WorkerMessage::Rules);
    }

    /// Registers `notify` to be called when a thread of this server ends unexpectedly.
    pub fn on_failure(&self, notify: Box<dyn Fn() + Send>) {
        self.plan.liveness.on_failure(notify);
    }

    /// Returns the reason why this server cannot continue, if there is one.
    pub fn failure(&self) -> Option<String> {
        self.plan.liveness.failure()
    }

    /// Returns a function that says what is wrong with this process, as the page `/healthz` does.
    pub fn health(&self) -> impl Fn() -> Option<String> + Send + 'static {
        let liveness = Arc::clone(&self.plan.liveness);
        move || liveness.problem()
    }

    /// Counts a reload whose configuration was refused, so that [`Self::reload`] was not called.
    pub fn reload_failed(&self) {
        self.admin.reload_failed();
    }

    /// Stops accepting, waits until requests in flight have finished, saves the items to `store.file` and ends
    /// the server. After `limit`, closes the remaining connections. Returns whether there were none. The admin
    /// pages stay until the end and report that the server is not ready.
    pub fn drain(mut self, limit: Duration) -> bool {
        self.stop_accepting();
        self.send_to_all(|| WorkerMessage::Drain);
        let deadline = Instant::now() + limit;
        while self.plan.connections.open() > 0 && Instant::now() < deadline {
            std::thread::sleep(DRAIN_POLL);
        }
        let is_drained = self.plan.connections.open() == 0;
        self.save_items();
        is_drained
    }

    /// Ends the workers and saves the items, if there is a file for them.
    fn save_items(&mut self) {
        let have_ended = self.end_workers();
        if let Some(file) = self.store_file.take() {
            save_items(&self.plan, &self.admin, file, have_ended);
        }
    }

    /// Ends the workers. Returns whether all of them have ended as they should.
    fn end_workers(&self) -> bool {
        self.send_to_all(|| WorkerMessage::Cut);
        let deadline = Instant::now() + JOIN_LIMIT;
        let ended: Vec<bool> = self.workers.iter().map(|worker| worker.join(deadline)).collect();
        ended.into_iter().all(|has_ended| has_ended)
    }

    fn take_over(
        plan: Arc<Plan>,
        workers: Arc<[Worker]>,
        listeners: Listeners,
        store_file: Option<StoreFile>,
    ) -> Result<Self, StartError> {
        let bound =
            |wanted| bound(listeners.tcp.iter().filter(move |socket| socket.protocol == wanted));
        let addresses = bound(ListenerProtocol::Memcached)?;
        let admin = listeners.admin.first().map(std::net::TcpListener::local_addr).transpose();
        let admin_address = admin.map_err(StartError::Thread)?;
        let grpc_addresses = bound(ListenerProtocol::Grpc)?;
        let program_addresses = bound(ListenerProtocol::Programs)?;
        let thrift_addresses = bound(ListenerProtocol::Thrift)?;
        let tls_addresses = self::bound(listeners.tcp.iter().filter(|socket| socket.is_tls))?;
        let unix_sockets = listeners.own_paths.iter().map(|path| SocketFile::new(path)).collect();
        let dispatcher = Dispatcher::new(&plan, &workers);
        plan.members.set_workers(&workers);
        listeners.enter(&plan.connection_table);
        let admin = Arc::new(Admin::new(Arc::clone(&plan)));
        take_over_file(store_file.as_ref())?;
        let control = Control::start(listeners, dispatcher, Arc::clone(&admin), Arc::clone(&plan))?;
        let exporter = ExportThread::start(&plan, &admin)?;
        let is_frontend = Services::from_roles(&plan.config.server.roles).frontend;
        let trainer =
            is_frontend.then(|| start_trainer(&plan, Arc::clone(&workers))).transpose()?;
        Ok(Self {
            plan,
            workers,
            admin,
            control,
            exporter,
            trainer,
            addresses,
            grpc_addresses,
            program_addresses,
            thrift_addresses,
            tls_addresses,
            admin_address,
            unix_sockets,
            store_file,
        })
    }

    fn send_to_all(&self, message: impl Fn() -> WorkerMessage) {
        for worker in self.workers.iter() {
            worker.send(message());
        }
    }

    fn stop_accepting(&mut self) {
        self.admin.readiness().begin_drain();
        self.plan.liveness.begin_end();
        // Files are removed while the listeners are open: later, another process may have made a file with
        // the same identity at the path.
        self.unix_sockets.drain(..).for_each(SocketFile::remove);
        self.control.stop_accepting();
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop_accepting();
        self.end_workers();
        self.control.end();
    }
}

/// The reason why the server did not start.
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
        error: io::Error,
    },
    /// The offload runtime did not start.
    #[error(transparent)]
    Runtime(#[from] runtime::StartError),
    /// A thread or an event loop could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A worker ended while it started.
    #[error("worker {0} ended while it started")]
    Worker(usize),
}

/// The thread that accepts clients and serves the admin pages. The pages are served until the end.
struct Control {
    accepting: Option<(oneshot::Sender<()>, mpsc::Receiver<()>)>,
    handshakes: Option<Handshakes>,
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
        let watched = Arc::clone(&plan.liveness);
        let Listeners { admin: pages, tcp, unix, lanes, .. } = listeners;
        let (secured, tcp) = tcp.into_iter().partition(|socket| socket.is_tls);
        let handshakes = Handshakes::start(secured, &dispatcher, &plan)?;
        let run = async move {
            // A ring counts as reachable only after its first answer.
            let has_store = matches!(plan.url, StoreUrl::Embedded);
            plan.health.set(has_store, true).await;
            // These tasks run until the end.
            let mut shown = tokio::task::JoinSet::new();
            return_memory(&mut shown, &plan);
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
            watch_members(&mut shown, &plan);
            let has_health = !pages.is_empty() || !plan.config.server.grpc_listen.is_empty();
            if has_health || plan.members.has_ring() {
                let (plan, admin) = (Arc::clone(&plan), Arc::clone(&admin));
                let workers = Arc::clone(&dispatcher.workers);
                shown.spawn(async move {
                    let restarts = &plan.control.restarts_readiness;
                    keep("readiness", restarts, || admin.readiness().run(&workers, &plan.health))
                        .await;
                });
            }
            shown.spawn(admin::serve(pages, admin, Arc::clone(&dispatcher.errors)));
            watch_certificates(&mut shown, &plan);
            watch_logins(&mut shown, &plan);
            watch_value_keys(&mut shown, &plan);
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
                // Does not wait for pending name resolutions.
                executor.shutdown_background();
            })
            .map_err(StartError::Thread)?;
        Ok(Self { accepting: Some((stop, has_stopped)), handshakes, thread: Some((end, thread)) })
    }

    /// Closes the clients' listeners. When it returns, no more connections are passed to workers.
    fn stop_accepting(&mut self) {
        if let Some((stop, has_stopped)) = self.accepting.take() {
            let _ = stop.send(());
            // Nothing is ever sent. `recv` returns when the other end is dropped.
            let _ = has_stopped.recv();
        }
        if let Some(handshakes) = self.handshakes.take() {
            handshakes.end();
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

/// Creates the reporter to the scheduler, if one is configured.
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
    tcp: Vec<TcpSocketListener>,
    unix: Vec<UnixSocketListener>,
    lanes: Option<std::os::unix::net::UnixListener>,
    dispatcher: &Dispatcher,
) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    for TcpSocketListener { listener, protocol, .. } in tcp {
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

/// Returns a random seed, so that clients cannot choose keys that collide.
fn hash_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// The time for which `drop` waits for workers to end. Workers that still hang are abandoned.
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

    /// Starts a server of two workers and waits until a defect has ended one of them.
    fn with_a_failed_worker(mut config: Config) -> ServerHandle {
        config.server.listen = vec!["127.0.0.1:0".to_owned()];
        config.server.admin_listen = "127.0.0.1:0".to_owned();
        config.server.threads = 2;
        let devices = Devices { all: vec![Arc::new(Software::default())], accelerators: 0 };
        let running = Server::start(config, devices).unwrap();
        let (sender, receiver) = mpsc::channel();
        running.on_failure(Box::new(move || sender.send(()).unwrap_or_default()));
        running.workers[1].send(WorkerMessage::Policy(Arc::new(Defective)));
        receiver.recv_timeout(Duration::from_secs(30)).expect("it is told");
        running
    }

    #[test]
    fn the_end_of_a_worker_is_told_and_ends_readiness() {
        let running = with_a_failed_worker(Config::default());
        let why = "worker 1 ended after a defect".to_owned();
        assert_eq!(running.failure(), Some(why.clone()));
        assert_eq!(running.plan.liveness.problem(), Some(why.clone()), "as on /healthz");
        assert_eq!(running.admin.readiness().judge(), Err(why));
        assert!(running.drain(Duration::from_secs(30)), "the others drain");
    }

    #[test]
    fn a_server_with_a_failed_worker_saves_no_items() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.store.file = Some(folder.path().join("items"));
        assert!(with_a_failed_worker(config).drain(Duration::from_secs(30)));
        let reason = std::fs::read_to_string(folder.path().join("items.lock")).unwrap();
        assert!(reason.contains("worker 1 ended after a defect"), "{reason}");
        assert!(!folder.path().join("items").exists());
    }
}
