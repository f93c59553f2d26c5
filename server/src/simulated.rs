//! The seams of a deterministic simulation: a network, a clock and a seed from outside, and a server that runs as
//! tasks of the caller's event loop. The code behind them is that of a real server. Only the start differs: there are
//! no threads, and no admin pages over HTTP, lanes, TLS, gRPC listeners and training of dictionaries.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use device::Dictionary;
use tokio::io::ReadBuf;
use tokio::task::JoinSet;
use tokio::time::Instant;
use units::Clock;

use crate::accept::Dispatcher;
use crate::admin::Admin;
use crate::background::watch_members_here;
use crate::config::{self, Config, Sources, diff_for_reload};
use crate::dictionaries::adopt;
use crate::platform::Platform;
use crate::restart::StoreFile;
use crate::server::{Devices, StartError, apply, make_plan, save_items, take_over_file};
use crate::supervise::keep;
use crate::worker::{Accepted, ListenerProtocol, Plan, Worker, WorkerMessage};

/// A connection of a simulated network. It behaves like a non-blocking TCP socket; dropping it closes it.
pub trait Connection: fmt::Debug + Send {
    /// Returns a number that no other open connection of this host has, in the place of a file descriptor.
    fn descriptor(&self) -> RawFd;

    /// Returns the address of this end.
    fn local_address(&self) -> SocketAddr;

    /// Polls whether the connection may be read. Only one task at a time may wait for that.
    fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Polls whether the connection may be written. Only one task at a time may wait for that.
    fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads available bytes. Returns 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` if there are no bytes, or the reason for the connection's end.
    fn try_read(&self, space: &mut [u8]) -> io::Result<usize>;

    /// Writes the bytes for which there is room, and returns their number.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room, or the reason for the connection's end.
    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends this end's stream. The other end still can send.
    fn shut_down(&self);
}

/// A listener of a simulated network. Dropping it closes it.
pub trait Listener: Send {
    /// Polls for the next client and its address.
    fn poll_accept(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Box<dyn Connection>, SocketAddr)>>;
}

/// A future of a connection.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// The network of one simulated host.
pub trait Network: Send + Sync {
    /// Connects to `HOST:PORT`.
    fn connect(&self, address: &str) -> Connecting;

    /// Listens on `HOST:PORT`.
    ///
    /// # Errors
    /// The address is in use, or not one of this host.
    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>>;
}

/// Something that is done on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskAction {
    /// A file is read.
    Read,
    /// What was written is made to last.
    Sync,
    /// A file is renamed.
    Rename,
    /// A file is removed.
    Remove,
}

/// The disk of one simulated host. Its files are real ones; it decides what fails.
pub trait Disk: Send + Sync {
    /// Returns how many of these bytes there is room for, at least one.
    ///
    /// # Errors
    /// The disk is full, or cannot be written.
    fn room(&self, bytes: usize) -> io::Result<usize>;

    /// Fails if the disk cannot do this now.
    ///
    /// # Errors
    /// The reason.
    fn act(&self, action: DiskAction) -> io::Result<()>;
}

/// Everything that a server takes from the world around it and that a simulation replaces.
#[derive(Clone)]
pub struct Environment {
    /// The network of the server's host.
    pub network: Arc<dyn Network>,
    /// The disk of the server's host.
    pub disk: Arc<dyn Disk>,
    /// The monotonic clock of the host.
    pub clock: Arc<dyn Clock>,
    /// The date at the start, in Unix milliseconds.
    pub unix_ms: u64,
    /// The seed of everything that is random.
    pub seed: u64,
}

/// A server whose workers are tasks of the event loop on which it was started. It ends when the `LocalSet` of these
/// tasks is dropped, which is how a simulation makes it crash.
pub struct SimulatedServer {
    plan: Arc<Plan>,
    workers: Arc<[Worker]>,
    admin: Arc<Admin>,
    /// The acceptors, which a drain ends.
    acceptors: JoinSet<()>,
    /// The other tasks of the control thread.
    _control: JoinSet<()>,
    store_file: Option<StoreFile>,
}

impl SimulatedServer {
    /// Starts a server. It must be called in a task of a `LocalSet` whose runtime is not a `LocalRuntime`.
    ///
    /// # Errors
    /// Returns a [`StartError`], also for a configuration that a simulation does not support.
    pub fn start(
        environment: &Environment,
        config: Config,
        devices: Devices,
    ) -> Result<Self, StartError> {
        let server = &config.server;
        let is_other = server.near_listen.is_some() || !server.grpc_listen.is_empty();
        if is_other || !config.programs.listen.is_empty() {
            let why = "only listeners of memcached and Thrift clients can be simulated";
            return Err(StartError::Config(why.into()));
        }
        let network = &environment.network;
        let listen = |config: &Config| {
            let listen = |(address, protocol): (&String, ListenerProtocol)| {
                let listener = network.listen(address);
                let listener = listener
                    .map_err(|error| StartError::Listen { address: address.clone(), error })?;
                Ok((listener, protocol))
            };
            let memcached = config.server.listen.iter().map(|at| (at, ListenerProtocol::Memcached));
            let thrift =
                config.server.thrift_listen.iter().map(|at| (at, ListenerProtocol::Thrift));
            memcached.chain(thrift).map(listen).collect::<Result<Vec<_>, _>>()
        };
        let platform = Platform::default();
        let (plan, store_file, listeners) =
            make_plan(platform, config, devices, Some(environment), listen)?;
        let start = |index| Worker::start_here(Arc::clone(&plan), index);
        let workers: Vec<Worker> = (0..plan.counters.len()).map(start).collect::<Result<_, _>>()?;
        let workers: Arc<[Worker]> = workers.into();
        plan.members.set_workers(&workers);
        let admin = Arc::new(Admin::new(Arc::clone(&plan)));
        let dispatcher = Dispatcher::new(&plan, &workers);
        let mut acceptors = JoinSet::new();
        for (listener, protocol) in listeners {
            acceptors.spawn_local(accept(listener, protocol, dispatcher.clone()));
        }
        take_over_file(store_file.as_ref())?;
        let control = start_control(&plan, &admin, &workers);
        Ok(Self { plan, workers, admin, acceptors, _control: control, store_file })
    }

    /// Applies the hot keys of `config`, as a reload of a real server does.
    pub fn reload(&self, config: Config) {
        apply(config, &self.plan, &self.workers, &self.admin);
    }

    /// Reads the sources of the configuration again and applies it, as SIGHUP makes a real server do. A mistake, and a
    /// change that needs a restart, change nothing.
    ///
    /// # Errors
    /// What is wrong.
    pub fn reload_from(&self, sources: &Sources) -> Result<(), String> {
        let read = config::load(sources).map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            errors.join("; ")
        });
        let checked = read.and_then(|loaded| {
            let changed = diff_for_reload(&self.admin.current_config(), &loaded.config);
            changed.map_err(|keys| format!("{} need a restart", keys.join(", ")))?;
            Ok(loaded.config)
        });
        match checked {
            Ok(config) => {
                self.reload(config);
                Ok(())
            }
            Err(why) => {
                self.admin.reload_failed();
                Err(why)
            }
        }
    }

    /// Returns the configuration in effect.
    pub fn config(&self) -> Arc<Config> {
        self.admin.current_config()
    }

    /// Makes the class of a key use this dictionary, as the trainer does with one that it has trained. The result tells
    /// whether the class uses it.
    pub fn adopt(
        &self,
        key: &[u8],
        dictionary: &Arc<Dictionary>,
    ) -> impl Future<Output = bool> + use<> {
        let (dictionaries, worker) = (Arc::clone(&self.plan.dictionaries), self.workers.clone());
        adopt(dictionaries, worker, key.to_vec(), Arc::clone(dictionary))
    }

    /// Reads the file with the keys of sealed values again, if there is one. A file with a mistake changes nothing.
    pub fn reload_value_keys(&self) {
        if let Some(keys) = &self.plan.value_keys {
            keys.reload(&self.plan.control);
        }
    }

    /// Reads the file with the rules about clients again, if there is one. A file with a mistake changes nothing.
    pub fn reload_access(&self) {
        self.plan.access.reload(&self.plan.control);
    }

    /// Stops accepting, lets the sessions finish the requests that they have begun, and ends the workers, as the drain
    /// of a real server does. After `limit`, it closes the remaining connections.
    pub async fn drain(&mut self, limit: Duration) {
        self.admin.readiness().begin_drain();
        self.plan.liveness.begin_end();
        self.acceptors.abort_all();
        self.send_to_all(|| WorkerMessage::Drain);
        let deadline = Instant::now() + limit;
        while self.plan.connections.open() > 0 && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_POLL).await;
        }
        self.send_to_all(|| WorkerMessage::Cut);
        let deadline = Instant::now() + JOIN_LIMIT;
        while !self.have_workers_ended() && Instant::now() < deadline {
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }

    /// Saves the items to `store.file`, if there is one, as a real server does after its drain.
    pub fn save_items(mut self) {
        if let Some(file) = self.store_file.take() {
            save_items(&self.plan, &self.admin, file, self.have_workers_ended());
        }
    }

    fn have_workers_ended(&self) -> bool {
        self.workers.iter().all(Worker::has_ended)
    }

    fn send_to_all(&self, message: impl Fn() -> WorkerMessage) {
        for worker in self.workers.iter() {
            worker.send(message());
        }
    }

    /// Returns the page of metrics.
    pub fn metrics(&self) -> String {
        self.admin.metrics()
    }

    /// Returns the text of the readiness page, as an error if the server is not ready.
    ///
    /// # Errors
    /// The reason why clients should not be sent here.
    pub fn readiness(&self) -> Result<String, String> {
        self.admin.readiness().judge()
    }

    /// Returns the problem that the health page shows, if there is one.
    pub fn problem(&self) -> Option<String> {
        self.plan.liveness.problem()
    }

    /// Returns the number of open connections of clients.
    pub fn connections_open(&self) -> usize {
        self.plan.connections.open()
    }

    /// Returns, for each worker, the bytes of values in flight that are charged to its budget, and their limit.
    pub fn budgets(&self) -> Vec<(u64, u64)> {
        self.plan.budgets.read().iter().map(|budget| (budget.held(), budget.max())).collect()
    }

    /// Returns the bytes of all buffers that each worker has taken from its pool.
    pub fn pool_bytes(&self) -> Vec<u64> {
        self.plan.pools.read().iter().map(|pool| pool.outstanding().0).collect()
    }

    /// Returns the memory of the embedded store's items and its limit (bytes), if there is such a store.
    pub fn store_bytes(&self) -> Option<(u64, u64)> {
        let store = self.plan.embedded.as_ref()?;
        let stats = store.stats();
        Some((stats.bytes, stats.limit_maxbytes))
    }
}

fn start_control(plan: &Arc<Plan>, admin: &Arc<Admin>, workers: &Arc<[Worker]>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    watch_members_here(&mut tasks, plan);
    let (plan, admin, workers) = (Arc::clone(plan), Arc::clone(admin), Arc::clone(workers));
    tasks.spawn_local(async move {
        let restarts = &plan.control.restarts_readiness;
        keep("readiness", restarts, || admin.readiness().run(&workers, &plan.health)).await;
    });
    tasks
}

async fn accept(
    mut listener: Box<dyn Listener>,
    protocol: ListenerProtocol,
    dispatcher: Dispatcher,
) {
    loop {
        match poll_fn(|task| listener.poll_accept(task)).await {
            Ok((connection, from)) => {
                dispatcher.dispatch(Accepted::Simulated(connection, from, protocol));
            }
            Err(error) => dispatcher.errors.pause(&error).await,
        }
    }
}

/// Reads from a connection for `AsyncRead`.
pub(crate) fn poll_read(
    connection: &dyn Connection,
    context: &mut Context<'_>,
    space: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        match connection.try_read(space.initialize_unfilled()) {
            Ok(bytes) => {
                space.advance(bytes);
                return Poll::Ready(Ok(()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(connection.poll_readable(context))?;
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}

/// Writes to a connection for `AsyncWrite`.
pub(crate) fn poll_write(
    connection: &dyn Connection,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    loop {
        match connection.try_write(slices) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(connection.poll_writable(context))?;
            }
            result => return Poll::Ready(result),
        }
    }
}

/// The interval at which a drain checks whether the last connection has ended.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// The time that workers have to end after a drain.
const JOIN_LIMIT: Duration = Duration::from_secs(2);
