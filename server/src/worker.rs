//! A worker: one thread with one event loop, its own runtime and its own connections to memcached servers. A connection
//! that is passed to a worker stays with it.

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use api::Address;
use device::{Device, Pool};
use parking_lot::{Mutex, RwLock};
use policy::Policy;
use runtime::trace::TraceMetrics;
use runtime::{RuntimeConfig, StartError, TokioRuntime};
use store::embedded::CoarseClock;
use store::{Embedded, Ketama, Ring};
use tokio::sync::{mpsc, oneshot};
use units::{ByteCount, Clock, Nanos};

use crate::backend::{Backend, Cluster, Local};
use crate::budget::Budget;
use crate::config::{Config, FallbackName, HostPort, Services, StoreUrl, convert};
use crate::context::{Connections, Shutdown, WorkerContext};
use crate::counters::{Control, Counters};
use crate::damaged::Looks;
use crate::grpc::{self, Health};
use crate::lane;
use crate::long_keys::LongKeys;
use crate::memory::{MemoryParts, POOL_RETAINED_MAX};
use crate::probe::{Findings, Prober};
use crate::scheduler::{Reporting, Scheduler};
use crate::server::Platform;
use crate::session::{self, Edits};
use crate::stats::StatsPages;
use crate::stream::Stream;
use crate::supervise::{Vitals, keep};
use crate::traces::{self, Secrets, Traced};
use crate::turns::Turns;
use crate::upstream::{InteractiveLoad, Limits, Link};
use crate::values::{ReadLimits, Values};

/// The parts that all workers are made from.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) url: StoreUrl,
    pub(crate) platform: Platform,
    pub(crate) devices: Vec<Arc<dyn Device>>,
    pub(crate) policy: Arc<dyn Policy>,
    /// The workers' shared knowledge about the devices.
    pub(crate) reputation: Arc<runtime::Reputation>,
    /// The number of devices after software that are accelerators or compression services.
    pub(crate) accelerators: usize,
    pub(crate) embedded: Option<Arc<Embedded>>,
    pub(crate) time: CoarseClock,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<[Arc<Counters>]>,
    pub(crate) runtimes: Arc<RwLock<Vec<Arc<runtime::Metrics>>>>,
    /// The secrets of the tenants whose requests go through traces.
    pub(crate) secrets: Arc<Secrets>,
    /// The counts of the executors of traces; empty if there are no executors.
    pub(crate) traces: RwLock<Vec<Arc<TraceMetrics>>>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) health: Health,
    /// The routes of gRPC health and reflection.
    pub(crate) grpc_others: tonic::service::Routes,
    /// The scheduler, if this process is one.
    pub(crate) scheduler: Option<Arc<Scheduler>>,
    /// The results of reporting to the process's own scheduler.
    pub(crate) reporting: Reporting,
    /// Keys whose values are known to be long.
    pub(crate) long_keys: Arc<LongKeys>,
    /// The limits on the memory of each part of the process.
    pub(crate) memory: MemoryParts,
    /// The workers' budgets for values in flight.
    pub(crate) budgets: RwLock<Vec<Budget>>,
    pub(crate) vitals: Arc<Vitals>,
    /// The failures on the control thread.
    pub(crate) control: Arc<Control>,
}

/// A message to a worker.
pub(crate) enum WorkerMessage {
    Serve(Accepted),
    Reload(Arc<Config>),
    /// The policy that decides from now on where jobs run.
    Policy(Arc<dyn Policy>),
    /// Asks which servers of the ring answer.
    Probe(oneshot::Sender<Findings>),
    Drain,
    Cut,
}

/// An accepted connection on its way to its worker. It is not bound to any event loop.
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream, ListenerProtocol),
    Unix(std::os::unix::net::UnixStream, ListenerProtocol),
    Lane(std::os::unix::net::UnixStream),
}

impl Accepted {
    pub(crate) fn protocol(&self) -> ListenerProtocol {
        match self {
            Accepted::Tcp(_, protocol) | Accepted::Unix(_, protocol) => *protocol,
            Accepted::Lane(_) => ListenerProtocol::Lane,
        }
    }
}

/// The protocol that a listener's connections speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerProtocol {
    Memcached,
    Grpc,
    Programs,
    Lane,
}

impl ListenerProtocol {
    /// Every protocol, in the order of its index.
    pub(crate) const ALL: [ListenerProtocol; 4] = [
        ListenerProtocol::Memcached,
        ListenerProtocol::Grpc,
        ListenerProtocol::Programs,
        ListenerProtocol::Lane,
    ];

    /// Returns the name that metrics use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ListenerProtocol::Memcached => "memcached",
            ListenerProtocol::Grpc => "grpc",
            ListenerProtocol::Programs => "programs",
            ListenerProtocol::Lane => "lane",
        }
    }
}

/// A running worker.
pub(crate) struct Worker {
    messages: mpsc::UnboundedSender<WorkerMessage>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts the thread and waits until its runtime is ready.
    pub(crate) fn start(plan: Arc<Plan>, index: usize) -> Result<Self, crate::StartError> {
        let (messages, inbox) = mpsc::unbounded_channel();
        let (started, start) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(format!("rebate-worker-{index}"))
            .spawn(move || {
                let _watched = plan.vitals.watch(format!("worker {index}"));
                run(&plan, index, inbox, started);
            })
            .map_err(crate::StartError::Thread)?;
        match start.blocking_recv() {
            Ok(Ok(())) => Ok(Self { messages, thread: Mutex::new(Some(thread)) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(crate::StartError::Worker(index)),
        }
    }

    /// Sends the worker a message. Returns false if the worker is gone.
    pub(crate) fn tell(&self, message: WorkerMessage) -> bool {
        self.messages.send(message).is_ok()
    }

    /// Waits for the thread, which ends when it has been told to and its sessions are over. If the thread hangs, the
    /// wait ends at `deadline`.
    pub(crate) fn join(&self, deadline: Instant) {
        let Some(thread) = self.thread.lock().take() else { return };
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(JOIN_POLL);
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

type Started = oneshot::Sender<Result<(), crate::StartError>>;

fn run(plan: &Plan, index: usize, inbox: mpsc::UnboundedReceiver<WorkerMessage>, started: Started) {
    let options = tokio::runtime::LocalOptions::default();
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build_local(options);
    let executor = match executor {
        Ok(executor) => executor,
        Err(error) => return drop(started.send(Err(crate::StartError::Thread(error)))),
    };
    executor.block_on(async {
        match context(plan, index) {
            Err(error) => drop(started.send(Err(error.into()))),
            Ok(context) => {
                let _ = started.send(Ok(()));
                if let (0, Backend::Local(local)) = (index, &context.backend) {
                    tokio::task::spawn_local(keep_sweeping(local.clone(), Rc::clone(&context)));
                }
                attend(context, inbox, || plan.vitals.beat(index)).await;
            }
        }
    });
}

/// Handles messages until the worker is told to drain and no session is left, or is told to cut.
async fn attend(
    context: Rc<WorkerContext>,
    mut inbox: mpsc::UnboundedReceiver<WorkerMessage>,
    beat: impl Fn(),
) {
    let prober = Prober::new(&context.backend);
    let mut sessions = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(ended) = sessions.join_next(), if !sessions.is_empty() => {
                if ended.is_err() {
                    context.counters.tasks.connections_failed.up();
                    tracing::error!("a defect ended a connection");
                }
                if context.is_draining() && sessions.is_empty() {
                    return;
                }
            }
            message = inbox.recv() => match message {
                // Returning drops the sessions, and with them their connections.
                None | Some(WorkerMessage::Cut) => return,
                Some(WorkerMessage::Drain) => {
                    context.shutdown.begin_drain();
                    if sessions.is_empty() {
                        return;
                    }
                }
                Some(WorkerMessage::Reload(config)) => reload(&context, &config),
                Some(WorkerMessage::Policy(policy)) => context.runtime.set_policy(policy),
                Some(WorkerMessage::Probe(tell)) => {
                    beat();
                    tokio::task::spawn_local(Rc::clone(&prober).run(tell));
                }
                Some(WorkerMessage::Serve(Accepted::Lane(stream))) => {
                    sessions.spawn_local(lane::serve(stream, Rc::clone(&context)));
                }
                Some(WorkerMessage::Serve(Accepted::Tcp(stream, protocol))) => {
                    let stream = tokio::net::TcpStream::from_std(stream);
                    begin(stream.map(Stream::Tcp), protocol, &context, &mut sessions);
                }
                Some(WorkerMessage::Serve(Accepted::Unix(stream, protocol))) => {
                    let stream = tokio::net::UnixStream::from_std(stream);
                    begin(stream.map(Stream::Unix), protocol, &context, &mut sessions);
                }
            },
        }
    }
}

/// Serves a connection in a task of its own.
fn begin(
    stream: std::io::Result<Stream>,
    protocol: ListenerProtocol,
    context: &Rc<WorkerContext>,
    sessions: &mut tokio::task::JoinSet<()>,
) {
    match (stream, protocol) {
        (Ok(stream), ListenerProtocol::Memcached) => {
            sessions.spawn_local(session::serve(stream, Rc::clone(context)));
        }
        (Ok(stream), ListenerProtocol::Grpc) => {
            sessions.spawn_local(grpc::serve(stream, Rc::clone(context)));
        }
        (Ok(stream), ListenerProtocol::Programs) => {
            sessions.spawn_local(traces::serve(stream, Rc::clone(context)));
        }
        // A lane arrives as `Accepted::Lane` and not as a stream.
        (Ok(_), ListenerProtocol::Lane) => context.connections.leave(protocol),
        (Err(error), _) => {
            context.connections.leave(protocol);
            tracing::warn!(%error, "a connection could not be taken over");
        }
    }
}

fn reload(context: &WorkerContext, config: &Config) {
    context.values.set_rules(convert::rules(&config.compress));
    if let Backend::Cluster(cluster) = &context.backend {
        cluster.set_timing(convert::timing(&config.store));
    }
}

/// Returns the idle timeout; zero means never.
fn idle_timeout(config: &Config) -> Option<Duration> {
    let limit_s = config.server.idle_timeout_s;
    (limit_s > 0).then(|| Duration::from_secs(limit_s))
}

fn context(plan: &Plan, index: usize) -> Result<Rc<WorkerContext>, StartError> {
    let config = &plan.config;
    let counters = Arc::clone(&plan.counters[index]);
    let pool = pool(&plan.devices);
    let runtime = start_runtime(plan, index)?;
    let values = values(config, &runtime, &pool, &counters);
    let turns = start_turns(&counters);
    let budget = Budget::new(config.runtime.inflight_bytes_max.0);
    plan.budgets.write().push(budget.clone());
    let interactive_load = Rc::<InteractiveLoad>::default();
    let backend = backend(plan, index, &pool, &budget, &counters, &interactive_load);
    let stats = Rc::new(StatsPages::new(
        Arc::clone(&plan.counters),
        Arc::clone(&plan.runtimes),
        Arc::clone(&plan.connections),
        Arc::clone(config),
        Arc::clone(&plan.clock),
    ));
    let services = Services::from_roles(&config.server.roles);
    let traced = traced(plan, index, &runtime);
    let context = |values, item_bytes_max, of_store| {
        Rc::new(WorkerContext {
            backend: backend.clone(),
            values,
            runtime: runtime.clone(),
            clock: Arc::clone(&plan.clock),
            services,
            grpc_held_bytes: Cell::new(0),
            lane_held_bytes: Cell::new(0),
            watch_lane: plan.platform.watch_lane,
            jobs: Cell::new(0),
            jobs_max: config.runtime.jobs_max,
            peers: RefCell::default(),
            devices: plan.devices.clone(),
            grpc_others: plan.grpc_others.clone(),
            scheduler: plan.scheduler.clone(),
            limits: protocol::Limits { item_bytes_max },
            requests_per_turn: config.server.requests_per_turn,
            idle_timeout: idle_timeout(config),
            counters: Arc::clone(&counters),
            connections: Arc::clone(&plan.connections),
            stats: Rc::clone(&stats),
            budget: budget.clone(),
            inflight_bytes_max: config.runtime.inflight_bytes_max,
            turns: Rc::clone(&turns),
            edits: Edits::default(),
            interactive_load: Rc::clone(&interactive_load),
            long_keys: Arc::clone(&plan.long_keys),
            passes_on: Cell::new(false),
            dump: config.server.dump,
            looks: Looks::default(),
            shutdown: Shutdown::default(),
            traced: traced.clone(),
            of_store,
        })
    };
    let item_bytes_max = config.store.item_bytes_max;
    // The clients of the store service keep to the limit. Their frames may be longer than the values in them.
    let framed_bytes_max = ByteCount(item_bytes_max.0 + FRAME_SLACK_BYTES as u64);
    let of_store = services.store.then(|| context(values.as_stored(), framed_bytes_max, None));
    Ok(context(values, item_bytes_max, of_store))
}

fn values(
    config: &Config,
    runtime: &TokioRuntime,
    pool: &Pool,
    counters: &Arc<Counters>,
) -> Values {
    let limits = ReadLimits {
        original_bytes_max: config.store.item_bytes_max.as_usize(),
        software_reads: config.runtime.fallback_decompress != FallbackName::Require,
    };
    let rules = convert::rules(&config.compress);
    Values::new(runtime.clone(), pool.clone(), rules, limits, Arc::clone(counters))
}

fn start_turns(counters: &Arc<Counters>) -> Rc<Turns> {
    let turns = Rc::<Turns>::default();
    let (serving, counters) = (Rc::clone(&turns), Arc::clone(counters));
    tokio::task::spawn_local(async move {
        keep("turns", &counters.tasks.restarts_turns, || serving.serve()).await;
    });
    turns
}

fn start_runtime(plan: &Plan, index: usize) -> Result<TokioRuntime, StartError> {
    let config = &plan.config.runtime;
    let runtime = TokioRuntime::start(RuntimeConfig {
        devices: plan.devices.clone(),
        policy: Arc::clone(&plan.policy),
        compress: convert::fallback(config.fallback_compress),
        decompress: convert::fallback(config.fallback_decompress),
        job_timeout: Nanos::millis(config.job_timeout_ms),
        reprobe_after: REPROBE_AFTER,
        clock: Arc::clone(&plan.clock),
        seed: index as u64,
        limits: convert::limits(config),
        verify_every: NonZeroU32::new(config.verify_every),
        reputation: Arc::clone(&plan.reputation),
    })?;
    plan.runtimes.write().push(runtime.metrics());
    Ok(runtime)
}

/// Returns the worker's executor of traces, if there is a listener for traces.
fn traced(plan: &Plan, index: usize, runtime: &TokioRuntime) -> Option<Rc<Traced>> {
    let config = &plan.config.programs;
    if config.listen.is_empty() {
        return None;
    }
    let secrets = Arc::clone(&plan.secrets);
    let traced = Traced::new(config, secrets, runtime, Arc::clone(&plan.clock), index);
    plan.traces.write().push(traced.metrics());
    Some(Rc::new(traced))
}

/// Returns the pool that values are read into. Its memory can be read in place by a device, if a device offers such
/// memory. That device would have to copy inputs from other memory.
fn pool(devices: &[Arc<dyn Device>]) -> Pool {
    match devices.iter().find_map(|device| device.input_memory()) {
        Some(memory) => Pool::registered(memory, POOL_RETAINED_MAX),
        None => Pool::heap(POOL_RETAINED_MAX),
    }
}

fn backend(
    plan: &Plan,
    index: usize,
    pool: &Pool,
    budget: &Budget,
    counters: &Arc<Counters>,
    load: &Rc<InteractiveLoad>,
) -> Backend {
    let config = &plan.config;
    let timing = convert::timing(&config.store);
    let limits = Limits {
        pool: pool.clone(),
        budget: budget.clone(),
        counters: Arc::clone(counters),
        // A frame may be longer than the value in it by its header, never more.
        value_bytes_max: config.store.item_bytes_max.as_usize() + FRAME_SLACK_BYTES,
        held_bytes_max: config.runtime.inflight_bytes_max,
        clock: Arc::clone(&plan.clock),
    };
    let (servers, links) = match (&plan.url, &plan.embedded) {
        (StoreUrl::Embedded, Some(embedded)) => {
            return Backend::Local(Local::new(Arc::clone(embedded), plan.time.clone()));
        }
        (StoreUrl::Embedded, None) => unreachable!("the plan makes the embedded store it names"),
        (StoreUrl::Memcached(servers), _) => {
            let link = |server: &HostPort| {
                Link::to_server(server.to_string(), timing, limits.clone(), load)
            };
            (servers.iter().map(ring_server).collect(), servers.iter().map(link).collect())
        }
        (StoreUrl::Grpc(services), _) => {
            let link =
                |address: &Address| Link::to_service(address.clone(), timing, limits.clone());
            (services.iter().map(ring_service).collect(), services.iter().map(link).collect())
        }
    };
    let servers: Vec<store::Server> = servers;
    let weighted = config.store.ketama_weighted;
    let points = if weighted { Ketama::Weighted } else { Ketama::Plain };
    Backend::Cluster(Cluster::new(Ring::new(&servers, points), links, index as u64))
}

fn ring_server(server: &HostPort) -> store::Server {
    store::Server { host: server.host.clone(), port: server.port, weight: 1 }
}

/// Returns a service's place on the ring, by its name. A Unix socket has no port.
fn ring_service(address: &Address) -> store::Server {
    let named = |host: &str, port| store::Server { host: host.to_owned(), port, weight: 1 };
    match address {
        Address::Tcp(text) => match text.rsplit_once(':') {
            Some((host, port)) => named(host, port.parse().unwrap_or(0)),
            None => named(text, 0),
        },
        Address::Unix(path) => named(&path.to_string_lossy(), 0),
    }
}

/// Removes expired items a few at a time, so that their memory is freed even if no client requests them.
async fn keep_sweeping(local: Local, context: Rc<WorkerContext>) {
    keep("sweep", &context.counters.tasks.restarts_sweep, || sweep(&local)).await;
}

async fn sweep(local: &Local) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    loop {
        tick.tick().await;
        local.sweep();
    }
}

const FRAME_SLACK_BYTES: usize = 64;

/// A lost device is tried again after this time, and then after ever longer waits. The time is short enough for a
/// device that was reset, and long enough that a device that is gone costs nothing.
const REPROBE_AFTER: Nanos = Nanos::secs(1);

const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The interval at which `join` checks whether the thread has ended.
const JOIN_POLL: Duration = Duration::from_millis(1);
