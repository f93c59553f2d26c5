//! A worker: a thread with an event loop, a runtime and connections to memcached servers. A connection that
//! is passed to a worker stays there.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use device::{Codec, Device, Dialect, Pool};
use parking_lot::{Mutex, RwLock};
use policy::Policy;
use runtime::trace::TraceMetrics;
use runtime::{RuntimeConfig, StartError, TokioRuntime};
use store::Embedded;
use store::embedded::CoarseClock;
use telemetry::timeline;
use telemetry::{Recorder, Requests};
use tokio::sync::{mpsc, oneshot};
use units::{ByteCount, Clock, Nanos};

use crate::access::{Access, Allowances};
use crate::backend::{Backend, Cluster, LinkParts, Local};
use crate::budget::Budget;
use crate::config::{Config, FallbackName, Services, StoreUrl, convert};
use crate::connection_table::ConnectionTable;
use crate::context::{Connections, Shutdown, WorkerContext};
use crate::counters::{Control, Counters};
use crate::damaged::ExamineLimit;
use crate::dictionaries::{Dictionaries, Exchange, ExchangeRequest, TrainerCounters};
use crate::grpc::{self, Health};
use crate::hot_values::HotValues;
use crate::lane;
use crate::logins::Logins;
use crate::long_keys::LongKeys;
use crate::members::{Members, RingState};
use crate::memory::{MemoryParts, POOL_RETAINED_MAX};
use crate::near;
use crate::otlp::Export;
use crate::platform::Platform;
use crate::probe::{self, Findings};
use crate::programs::{self, ProgramService};
use crate::restart::Restart;
use crate::scheduler::{Reporting, Scheduler};
use crate::sealing::{Sealer, ValueKeys};
use crate::session::{self, Edits};
use crate::simulated;
use crate::slow_log::SlowLog;
use crate::spare_memory::SpareMemory;
use crate::stats::StatsPages;
use crate::stream::Stream;
use crate::supervise::{Liveness, keep};
use crate::tls::{Tls, TlsAccepted};
use crate::turns::Turns;
use crate::upstream::{InteractiveLoad, Limits};
use crate::values::{ReadLimits, Values};
use crate::watchers::Watchers;

/// The shared parts from which all workers are created.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) tls: Arc<Tls>,
    pub(crate) url: StoreUrl,
    pub(crate) platform: Platform,
    pub(crate) devices: Vec<Arc<dyn Device>>,
    pub(crate) policy: Arc<dyn Policy>,
    /// The trust in each device, which the workers share.
    pub(crate) reputation: Arc<runtime::Reputation>,
    /// The number of devices after software that are accelerators or compression services.
    pub(crate) accelerators: usize,
    pub(crate) embedded: Option<Arc<Embedded>>,
    /// Whether the embedded store has memory to spare.
    pub(crate) spare_memory: Arc<SpareMemory>,
    /// The servers of the ring.
    pub(crate) members: Arc<Members>,
    pub(crate) hot_values: Option<Arc<HotValues>>,
    pub(crate) dictionaries: Arc<Dictionaries>,
    /// What the trainer of dictionaries counts.
    pub(crate) training: Arc<TrainerCounters>,
    /// The result of loading the items of the last process, if `store.file` is set.
    pub(crate) restart: Option<Arc<Restart>>,
    pub(crate) time: CoarseClock,
    pub(crate) clock: Arc<dyn Clock>,
    /// The network and the seed of a simulation, if this is one.
    pub(crate) environment: Option<simulated::Environment>,
    pub(crate) counters: Arc<[Arc<Counters>]>,
    pub(crate) runtimes: Arc<RwLock<Vec<Arc<runtime::Metrics>>>>,
    /// The counters of the executors of programs. Empty if there are no executors.
    pub(crate) program_metrics: RwLock<Vec<Arc<TraceMetrics>>>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) connection_table: Arc<ConnectionTable>,
    /// The requests that are kept with their stages.
    pub(crate) requests: Arc<Requests>,
    pub(crate) slow_log: Arc<SlowLog>,
    /// What goes to a collector.
    pub(crate) export: Arc<Export>,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) health: Health,
    /// The routes of gRPC health and reflection.
    pub(crate) grpc_others: tonic::service::Routes,
    /// The scheduler, if this process has one.
    pub(crate) scheduler: Option<Arc<Scheduler>>,
    /// The outcomes of reports to this process's scheduler.
    pub(crate) reporting: Reporting,
    /// The rules about clients.
    pub(crate) access: Arc<Access>,
    /// The logins of this process.
    pub(crate) logins: Logins,
    /// The keys of sealed values, if there are any.
    pub(crate) value_keys: Option<Arc<ValueKeys>>,
    /// Keys whose values are known to be long.
    pub(crate) long_keys: Arc<LongKeys>,
    /// The limits on the memory of each part of the process.
    pub(crate) memory: MemoryParts,
    /// The workers' budgets for values in flight.
    pub(crate) budgets: RwLock<Vec<Budget>>,
    /// The workers' pools, of which the budgets limit the buffers for values.
    pub(crate) pools: RwLock<Vec<Pool>>,
    pub(crate) liveness: Arc<Liveness>,
    /// The counters of failures on the control thread.
    pub(crate) control: Arc<Control>,
}

/// A message to a worker.
pub(crate) enum WorkerMessage {
    Serve(Accepted),
    Reload(Arc<Config>),
    /// Replaces the list of the ring's servers.
    Ring(Arc<RingState>),
    /// Tells that the rules about clients were replaced.
    Rules,
    /// Replaces the placement policy.
    Policy(Arc<dyn Policy>),
    /// Asks which servers of the ring answer.
    Probe(oneshot::Sender<Findings>),
    /// Stores or finds a dictionary for the trainer.
    Dictionary(ExchangeRequest),
    Drain,
    Cut,
}

/// An accepted connection that is sent to a worker. It is not yet registered with an event loop.
pub(crate) enum Accepted {
    /// The address is that of the client.
    Tcp(std::net::TcpStream, SocketAddr, ListenerProtocol),
    Tls(Box<TlsAccepted>, ListenerProtocol),
    Unix(std::os::unix::net::UnixStream, ListenerProtocol),
    Lane(std::os::unix::net::UnixStream),
    Near(std::os::unix::net::UnixStream),
    Simulated(Box<dyn simulated::Connection>, SocketAddr, ListenerProtocol),
}

impl Accepted {
    pub(crate) fn protocol(&self) -> ListenerProtocol {
        match self {
            Accepted::Tcp(_, _, protocol)
            | Accepted::Tls(_, protocol)
            | Accepted::Unix(_, protocol)
            | Accepted::Simulated(_, _, protocol) => *protocol,
            Accepted::Lane(_) => ListenerProtocol::Lane,
            Accepted::Near(_) => ListenerProtocol::Near,
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
    /// Memcached's protocols through shared memory.
    Near,
    /// Memcached's commands as calls of Thrift.
    Thrift,
}

impl ListenerProtocol {
    /// Every protocol, in the order of its index.
    pub(crate) const ALL: [ListenerProtocol; 6] = [
        ListenerProtocol::Memcached,
        ListenerProtocol::Grpc,
        ListenerProtocol::Programs,
        ListenerProtocol::Lane,
        ListenerProtocol::Near,
        ListenerProtocol::Thrift,
    ];

    /// Returns the name that metrics use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            ListenerProtocol::Memcached => "memcached",
            ListenerProtocol::Grpc => "grpc",
            ListenerProtocol::Programs => "programs",
            ListenerProtocol::Lane => "lane",
            ListenerProtocol::Near => "near",
            ListenerProtocol::Thrift => "thrift",
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
                let _watched = plan.liveness.watch(format!("worker {index}"));
                run(&plan, index, inbox, started);
            })
            .map_err(crate::StartError::Thread)?;
        match start.blocking_recv() {
            Ok(Ok(())) => Ok(Self { messages, thread: Mutex::new(Some(thread)) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(crate::StartError::Worker(index)),
        }
    }

    /// Starts the worker as a task of the current `LocalSet`, for a simulation.
    pub(crate) fn start_here(plan: Arc<Plan>, index: usize) -> Result<Self, crate::StartError> {
        let (messages, inbox) = mpsc::unbounded_channel();
        let context = context(&plan, index)?;
        tokio::task::spawn_local(async move {
            let _watched = plan.liveness.watch(format!("worker {index}"));
            work(context, &plan, index, inbox).await;
        });
        Ok(Self { messages, thread: Mutex::new(None) })
    }

    /// Sends the worker a message. Returns false if the worker has ended.
    pub(crate) fn send(&self, message: WorkerMessage) -> bool {
        self.messages.send(message).is_ok()
    }

    /// Returns whether the worker has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.messages.is_closed()
    }

    /// Waits until the thread has ended, at most until `deadline`. It ends after [`WorkerMessage::Cut`], or
    /// after [`WorkerMessage::Drain`] and the end of its sessions. Returns whether it has, without a defect.
    pub(crate) fn join(&self, deadline: Instant) -> bool {
        let Some(thread) = self.thread.lock().take() else { return true };
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(JOIN_POLL);
        }
        thread.is_finished() && thread.join().is_ok()
    }
}

type Started = oneshot::Sender<Result<(), crate::StartError>>;

fn run(plan: &Plan, index: usize, inbox: mpsc::UnboundedReceiver<WorkerMessage>, started: Started) {
    let options = tokio::runtime::LocalOptions::default();
    let mut executor = tokio::runtime::Builder::new_current_thread();
    if plan.config.server.near_listen.is_some() {
        executor.event_interval(TURNS_PER_LOOK_NEAR);
    }
    let executor = match executor.enable_all().build_local(options) {
        Ok(executor) => executor,
        Err(error) => return drop(started.send(Err(crate::StartError::Thread(error)))),
    };
    executor.block_on(async {
        match context(plan, index) {
            Err(error) => drop(started.send(Err(error.into()))),
            Ok(context) => {
                let _ = started.send(Ok(()));
                work(context, plan, index, inbox).await;
            }
        }
    });
}

/// The turns of tasks between two looks for the events of sockets, if there are near clients. A session that polls the
/// memory of a near client takes turn after turn, of up to 0.4 us each, and the sockets of others must not wait long.
const TURNS_PER_LOOK_NEAR: u32 = 16;

/// Does the work of a worker until its end.
async fn work(
    context: Rc<WorkerContext>,
    plan: &Plan,
    index: usize,
    inbox: mpsc::UnboundedReceiver<WorkerMessage>,
) {
    if let (0, Backend::Local(local)) = (index, &context.backend) {
        tokio::task::spawn_local(keep_sweeping(local.clone(), Rc::clone(&context)));
    }
    if index == 0 {
        tokio::task::spawn_local(keep_dictionaries(Rc::clone(&context)));
    }
    attend(context, inbox, || plan.liveness.beat(index)).await;
}

/// Handles messages until [`WorkerMessage::Cut`], or [`WorkerMessage::Drain`] and the end of all sessions.
async fn attend(
    context: Rc<WorkerContext>,
    mut inbox: mpsc::UnboundedReceiver<WorkerMessage>,
    beat: impl Fn(),
) {
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
                // Returning drops the sessions and their connections.
                None | Some(WorkerMessage::Cut) => return,
                Some(WorkerMessage::Drain) => {
                    context.shutdown.begin_drain();
                    if sessions.is_empty() {
                        return;
                    }
                }
                Some(WorkerMessage::Reload(config)) => reload(&context, &config),
                Some(WorkerMessage::Ring(ring)) => {
                    if let Backend::Cluster(cluster) = &context.backend {
                        cluster.set_ring(&ring);
                    }
                }
                // Other connections look at the rules with each command.
                Some(WorkerMessage::Rules) => context.shutdown.wake_all(),
                Some(WorkerMessage::Policy(policy)) => context.runtime.set_policy(policy),
                Some(WorkerMessage::Probe(tell)) => {
                    beat();
                    tokio::task::spawn_local(probe::run(context.backend.clone(), tell));
                }
                Some(WorkerMessage::Dictionary(request)) => {
                    let context = Rc::clone(&context);
                    tokio::task::spawn_local(async move {
                        context.values.dictionaries().serve(request).await;
                    });
                }
                Some(WorkerMessage::Serve(accepted)) => {
                    take_over(accepted, &context, &mut sessions);
                }
            },
        }
    }
}

/// Registers an accepted connection with this event loop and serves it.
fn take_over(
    accepted: Accepted,
    context: &Rc<WorkerContext>,
    sessions: &mut tokio::task::JoinSet<()>,
) {
    let (stream, protocol) = match accepted {
        Accepted::Lane(stream) => {
            sessions.spawn_local(lane::serve(stream, Rc::clone(context)));
            return;
        }
        Accepted::Near(stream) => {
            sessions.spawn_local(timeline::scope(near::serve(stream, Rc::clone(context))));
            return;
        }
        Accepted::Tcp(stream, from, protocol) => {
            let stream = tokio::net::TcpStream::from_std(stream);
            (stream.map(|stream| (Stream::Tcp(stream), Some(from))), protocol)
        }
        Accepted::Tls(accepted, protocol) => {
            let TlsAccepted { socket, from, session } = *accepted;
            let stream = tokio::net::TcpStream::from_std(socket);
            let stream = stream.map(|socket| ::tls::Stream::new(socket, session));
            (stream.map(|stream| (Stream::Tls(Box::new(stream)), Some(from))), protocol)
        }
        Accepted::Unix(stream, protocol) => {
            let stream = tokio::net::UnixStream::from_std(stream);
            (stream.map(|stream| (Stream::Unix(stream), None)), protocol)
        }
        Accepted::Simulated(stream, from, protocol) => {
            (Ok((Stream::Simulated(stream), Some(from))), protocol)
        }
    };
    begin(stream, protocol, context, sessions);
}

/// Starts a task that serves a connection.
fn begin(
    stream: std::io::Result<(Stream, Option<SocketAddr>)>,
    protocol: ListenerProtocol,
    context: &Rc<WorkerContext>,
    sessions: &mut tokio::task::JoinSet<()>,
) {
    match (stream, protocol) {
        (Ok((stream, from)), ListenerProtocol::Memcached | ListenerProtocol::Thrift) => {
            let serving = session::serve(stream, from, Rc::clone(context), protocol);
            sessions.spawn_local(timeline::scope(serving));
        }
        (Ok((stream, from)), ListenerProtocol::Grpc) => {
            sessions.spawn_local(grpc::serve(stream, from, Rc::clone(context)));
        }
        (Ok((stream, from)), ListenerProtocol::Programs) => {
            sessions.spawn_local(programs::serve(stream, from, Rc::clone(context)));
        }
        // These arrive as variants of `Accepted` of their own and not as a stream.
        (Ok(_), ListenerProtocol::Lane | ListenerProtocol::Near) => {
            context.connections.leave(protocol);
        }
        (Err(error), _) => {
            context.connections.leave(protocol);
            tracing::warn!(%error, "a connection could not be taken over");
        }
    }
}

fn reload(context: &WorkerContext, config: &Config) {
    context.recorder.set_rules();
    context.values.set_rules(convert::rules(config));
    if let Backend::Cluster(cluster) = &context.backend {
        cluster.set_timing(convert::timing(&config.store));
    }
}

/// Returns the idle timeout, or `None` if it is 0.
fn idle_timeout(config: &Config) -> Option<Duration> {
    let limit_s = config.server.idle_timeout_s;
    (limit_s > 0).then(|| Duration::from_secs(limit_s))
}

fn context(plan: &Plan, index: usize) -> Result<Rc<WorkerContext>, StartError> {
    let config = &plan.config;
    let counters = Arc::clone(&plan.counters[index]);
    let pool = pool(&plan.devices);
    let runtime = start_runtime(plan, index)?;
    let turns = start_turns(&counters);
    let budget = Budget::new(config.runtime.inflight_bytes_max.0);
    plan.budgets.write().push(budget.clone());
    plan.pools.write().push(pool.clone());
    let interactive_load = Rc::<InteractiveLoad>::default();
    let backend = backend(plan, index, &pool, &budget, &counters, &interactive_load);
    let values = values(plan, &runtime, &pool, &backend, &counters);
    let stats = Rc::new(stats_pages(plan));
    let services = Services::from_roles(&config.server.roles);
    let recorder = Rc::new(recorder(plan, index));
    let programs = program_service(plan, index, &runtime)?;
    let context = |backend, values, item_bytes_max, of_store| {
        Rc::new(WorkerContext {
            backend,
            values,
            runtime: runtime.clone(),
            clock: Arc::clone(&plan.clock),
            services,
            grpc_held_bytes: Cell::new(0),
            lane_held_bytes: Cell::new(0),
            watch_lane: plan.platform.watch_lane,
            watch_near: plan.platform.watch_near,
            jobs: Cell::new(0),
            peers: RefCell::default(),
            devices: plan.devices.clone(),
            grpc_others: plan.grpc_others.clone(),
            scheduler: plan.scheduler.clone(),
            limits: protocol::Limits { item_bytes_max },
            config: Config::clone(config),
            requests_per_turn: config.server.requests_per_turn,
            idle_timeout: idle_timeout(config),
            counters: Arc::clone(&counters),
            connections: Arc::clone(&plan.connections),
            connection_table: Arc::clone(&plan.connection_table),
            watchers: Arc::clone(&plan.watchers),
            stats: Rc::clone(&stats),
            budget: budget.clone(),
            inflight_bytes_max: config.runtime.inflight_bytes_max,
            turns: Rc::clone(&turns),
            edits: Edits::default(),
            interactive_load: Rc::clone(&interactive_load),
            long_keys: Arc::clone(&plan.long_keys),
            is_forwarding: Cell::new(false),
            access: Arc::clone(&plan.access),
            allowances: Allowances::default(),
            examine_limit: ExamineLimit::default(),
            shutdown: Shutdown::default(),
            tls: Arc::clone(&plan.tls),
            recorder: Rc::clone(&recorder),
            programs: programs.clone(),
            of_store,
        })
    };
    let item_bytes_max = config.store.item_bytes_max;
    // Clients of the store service enforce the limit on logical values. Their frames may be slightly longer.
    let framed_bytes_max = ByteCount(item_bytes_max.0 + FRAME_SLACK_BYTES as u64);
    let of_store = services
        .store
        .then(|| context(backend.as_stored(), values.as_stored(), framed_bytes_max, None));
    Ok(context(backend, values, item_bytes_max, of_store))
}

fn recorder(plan: &Plan, index: usize) -> Recorder {
    let devices = plan.devices.iter().map(|device| Arc::from(device.name())).collect();
    let seed = plan.environment.as_ref().map(|around| around.seed ^ index as u64);
    Recorder::new(Arc::clone(&plan.requests), devices, seed)
}

fn stats_pages(plan: &Plan) -> StatsPages {
    StatsPages {
        counters: Arc::clone(&plan.counters),
        dictionaries: Arc::clone(&plan.dictionaries),
        runtimes: Arc::clone(&plan.runtimes),
        connections: Arc::clone(&plan.connections),
        config: Arc::clone(&plan.config),
        clock: Arc::clone(&plan.clock),
        restart: plan.restart.clone(),
        tls: Arc::clone(&plan.tls),
    }
}

fn values(
    plan: &Plan,
    runtime: &TokioRuntime,
    pool: &Pool,
    backend: &Backend,
    counters: &Arc<Counters>,
) -> Values {
    let config = &plan.config;
    let software_reads = config.runtime.fallback_decompress != FallbackName::Require;
    let sealer = Sealer::new(
        (runtime.clone(), pool.clone()),
        plan.value_keys.clone(),
        &config.values.tenant,
        software_reads,
        Arc::clone(counters),
    );
    let (dictionaries, clock) = (Arc::clone(&plan.dictionaries), Arc::clone(&plan.clock));
    let exchange = Exchange::new(backend.clone(), sealer.clone(), dictionaries, clock);
    let limits =
        ReadLimits { original_bytes_max: config.store.item_bytes_max.as_usize(), software_reads };
    let rules = convert::rules(config);
    let (counters, hot) = (Arc::clone(counters), plan.hot_values.clone());
    let with_store = (exchange, sealer);
    Values::new(runtime.clone(), pool.clone(), with_store, rules, limits, counters, hot)
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
        chains: config.chains,
        reputation: Arc::clone(&plan.reputation),
    })?;
    plan.runtimes.write().push(runtime.metrics());
    Ok(runtime)
}

/// Creates the worker's executor of programs, if there is a listener for programs.
fn program_service(
    plan: &Plan,
    index: usize,
    runtime: &TokioRuntime,
) -> Result<Option<Rc<ProgramService>>, StartError> {
    let config = &plan.config.programs;
    if config.listen.is_empty() {
        return Ok(None);
    }
    // A program's peers get what every configured reader can read, like the store does.
    let window_log2 = convert::form(&plan.config.compress).window_log2;
    let dialect = Dialect { window_log2, ..Dialect::new(Codec::Deflate) };
    let clock = Arc::clone(&plan.clock);
    let programs = ProgramService::new(config, dialect, runtime, clock, index)?;
    plan.program_metrics.write().push(programs.metrics());
    Ok(Some(Rc::new(programs)))
}

/// Creates the pool for values that are read. If a device offers memory that it can read in place, the pool
/// uses it, because the device would have to copy inputs from other memory.
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
        // A frame exceeds its value by at most its header.
        value_bytes_max: config.store.item_bytes_max.as_usize() + FRAME_SLACK_BYTES,
        held_bytes_max: config.runtime.inflight_bytes_max,
        login: plan.logins.store.clone(),
        clock: Arc::clone(&plan.clock),
        network: plan.environment.as_ref().map(|around| Arc::clone(&around.network)),
    };
    match (&plan.url, &plan.embedded) {
        (StoreUrl::Embedded, Some(embedded)) => {
            let (embedded, hot) = (Arc::clone(embedded), plan.hot_values.clone());
            let spare_memory = Arc::clone(&plan.spare_memory);
            Backend::Local(Local::new(embedded, plan.time.clone(), hot, spare_memory))
        }
        (StoreUrl::Embedded, None) => unreachable!("the plan makes the embedded store it names"),
        (StoreUrl::Memcached(_) | StoreUrl::Grpc(_), _) => {
            let parts = LinkParts { timing: Cell::new(timing), limits, load: Rc::clone(load) };
            Backend::Cluster(Cluster::new(&plan.members.state(), parts, index as u64))
        }
    }
}

/// Periodically removes some expired items, so that their memory is freed even without requests for them.
async fn keep_sweeping(local: Local, context: Rc<WorkerContext>) {
    keep("sweep", &context.counters.tasks.restarts_sweep, || sweep(&local)).await;
}

async fn sweep(local: &Local) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    loop {
        tick.tick().await;
        local.sweep();
        local.measure();
    }
}

/// Keeps the dictionaries of this process in the store.
async fn keep_dictionaries(context: Rc<WorkerContext>) {
    let restarts = &context.counters.tasks.restarts_dictionaries;
    let dictionaries = context.values.dictionaries();
    keep("dictionaries", restarts, || dictionaries.keep_always()).await;
}

const FRAME_SLACK_BYTES: usize = 64;

/// The wait before a lost device is tried again the first time. Later waits are longer.
const REPROBE_AFTER: Nanos = Nanos::secs(1);

const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// The interval at which `join` checks whether the thread has ended.
const JOIN_POLL: Duration = Duration::from_millis(1);
