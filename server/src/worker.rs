//! A worker: one thread, one event loop, its own runtime, its own connections to memcached servers. Connections are
//! handed to it and stay.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use device::{Device, Pool};
use parking_lot::{Mutex, RwLock};
use policy::Policy;
use runtime::{RuntimeConfig, StartError, TokioRuntime};
use store::{Embedded, Ketama, Ring};
use tokio::sync::{Semaphore, mpsc, oneshot};
use units::{ByteCount, Clock, Nanos};

use crate::backend::{Backend, Cluster, Local, Seconds};
use crate::config::{Config, Services};
use crate::config_source::{HostPort, StoreUrl};
use crate::context::{Connections, Ending, WorkerContext};
use crate::counters::Counters;
use crate::grpc::{self, Health};
use crate::rules;
use crate::session::{self, Edits};
use crate::stats::StatsPages;
use crate::stream::Stream;
use crate::upstream::Link;
use crate::values::Values;

/// What all workers are made from.
pub(crate) struct Plan {
    pub(crate) config: Arc<Config>,
    pub(crate) url: StoreUrl,
    pub(crate) devices: Vec<Arc<dyn Device>>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) embedded: Option<Arc<Embedded>>,
    pub(crate) time: Seconds,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<[Arc<Counters>]>,
    pub(crate) runtimes: Arc<RwLock<Vec<Arc<runtime::Metrics>>>>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) health: Health,
    /// gRPC health and reflection.
    pub(crate) grpc_others: tonic::service::Routes,
}

/// A word to a worker.
pub(crate) enum Word {
    Serve(Accepted),
    Reload(Arc<Config>),
    Drain,
    Cut,
}

/// A connection on its way to its worker, not bound to any event loop.
pub(crate) enum Accepted {
    Tcp(std::net::TcpStream, Door),
    Unix(std::os::unix::net::UnixStream, Door),
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    Memcached,
    Grpc,
}

/// A running worker.
pub(crate) struct Worker {
    words: mpsc::UnboundedSender<Word>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    /// Starts the thread and waits until its runtime is open.
    pub(crate) fn start(plan: Arc<Plan>, index: usize) -> Result<Self, crate::StartError> {
        let (words, inbox) = mpsc::unbounded_channel();
        let (started, start) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(format!("rebate-worker-{index}"))
            .spawn(move || run(&plan, index, inbox, started))
            .map_err(crate::StartError::Thread)?;
        match start.blocking_recv() {
            Ok(Ok(())) => Ok(Self { words, thread: Mutex::new(Some(thread)) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(crate::StartError::Worker(index)),
        }
    }

    /// Tells the worker; false if it is gone.
    pub(crate) fn tell(&self, word: Word) -> bool {
        self.words.send(word).is_ok()
    }

    /// Waits for the thread, which ends when it has been told to and its sessions are over.
    pub(crate) fn join(&self) {
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

type Started = oneshot::Sender<Result<(), crate::StartError>>;

fn run(plan: &Plan, index: usize, inbox: mpsc::UnboundedReceiver<Word>, started: Started) {
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
                if index == 0 {
                    tokio::task::spawn_local(sweep(context.backend.clone()));
                }
                attend(context, inbox).await;
            }
        }
    });
}

/// Does as it is told until it is told to end and no session is left, or to cut.
async fn attend(context: Rc<WorkerContext>, mut inbox: mpsc::UnboundedReceiver<Word>) {
    let mut sessions = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            biased;
            Some(_) = sessions.join_next(), if !sessions.is_empty() => {
                if context.is_draining() && sessions.is_empty() {
                    return;
                }
            }
            word = inbox.recv() => match word {
                // Returning drops the sessions, and with them their connections.
                None | Some(Word::Cut) => return,
                Some(Word::Drain) => {
                    context.ending.begin_drain();
                    if sessions.is_empty() {
                        return;
                    }
                }
                Some(Word::Reload(config)) => reload(&context, &config),
                Some(Word::Serve(accepted)) => match adopt(accepted) {
                    Ok((stream, Door::Memcached)) => {
                        sessions.spawn_local(session::serve(stream, Rc::clone(&context)));
                    }
                    Ok((stream, Door::Grpc)) => {
                        sessions.spawn_local(grpc::serve(stream, Rc::clone(&context)));
                    }
                    Err(error) => {
                        context.connections.leave();
                        tracing::warn!(%error, "a connection could not be taken over");
                    }
                },
            },
        }
    }
}

fn adopt(accepted: Accepted) -> std::io::Result<(Stream, Door)> {
    Ok(match accepted {
        Accepted::Tcp(stream, door) => {
            (Stream::Tcp(tokio::net::TcpStream::from_std(stream)?), door)
        }
        Accepted::Unix(stream, door) => {
            (Stream::Unix(tokio::net::UnixStream::from_std(stream)?), door)
        }
    })
}

fn reload(context: &WorkerContext, config: &Config) {
    context.values.set_rules(rules::rules(&config.compress));
    if let Backend::Cluster(cluster) = &context.backend {
        cluster.set_timing(rules::timing(&config.store));
    }
}

fn context(plan: &Plan, index: usize) -> Result<Rc<WorkerContext>, StartError> {
    let config = &plan.config;
    let counters = Arc::clone(&plan.counters[index]);
    let pool = Pool::heap(POOL_RETAINED_MAX);
    let runtime = TokioRuntime::start(RuntimeConfig {
        devices: plan.devices.clone(),
        policy: Arc::clone(&plan.policy),
        compress: rules::fallback(config.runtime.fallback_compress),
        decompress: rules::fallback(config.runtime.fallback_decompress),
        job_timeout: Nanos::millis(config.runtime.job_timeout_ms),
        reprobe_after: REPROBE_AFTER,
        clock: Arc::clone(&plan.clock),
        seed: index as u64,
    })?;
    plan.runtimes.write().push(runtime.metrics());
    let value_bytes_max = config.store.item_bytes_max.as_usize();
    let values = Values::new(
        runtime.clone(),
        pool.clone(),
        rules::rules(&config.compress),
        value_bytes_max,
        Arc::clone(&counters),
    );
    let backend = backend(plan, index, &pool, &counters);
    let stats = StatsPages::new(
        Arc::clone(&plan.counters),
        Arc::clone(&plan.runtimes),
        Arc::clone(&plan.connections),
        Arc::clone(config),
        Arc::clone(&plan.clock),
    );
    let budget_kib = (config.runtime.inflight_bytes_max.0 >> 10).clamp(1, BUDGET_KIB_MAX) as u32;
    Ok(Rc::new(WorkerContext {
        backend,
        values,
        runtime,
        clock: Arc::clone(&plan.clock),
        services: Services::of(&config.server.roles),
        grpc_held_bytes: Cell::new(0),
        grpc_others: plan.grpc_others.clone(),
        limits: protocol::Limits { item_bytes_max: config.store.item_bytes_max },
        requests_per_turn: config.server.requests_per_turn,
        counters,
        connections: Arc::clone(&plan.connections),
        stats: Rc::new(stats),
        budget: Semaphore::new(budget_kib as usize),
        budget_kib,
        inflight_bytes_max: config.runtime.inflight_bytes_max,
        budget_waits: Cell::new(0),
        edits: Edits::default(),
        ending: Ending::default(),
    }))
}

fn backend(plan: &Plan, index: usize, pool: &Pool, counters: &Arc<Counters>) -> Backend {
    match (&plan.url, &plan.embedded) {
        (StoreUrl::Memcached(servers), _) => {
            let timing = rules::timing(&plan.config.store);
            // A frame may be longer than the value in it by its header, never more.
            let value_bytes_max = plan.config.store.item_bytes_max.as_usize() + FRAME_SLACK_BYTES;
            // Sessions keep to the limit; what is beyond it is what they have asked for already.
            let inflight_bytes_max = plan.config.runtime.inflight_bytes_max;
            let held_bytes_max = ByteCount(inflight_bytes_max.0.saturating_mul(2));
            let link = |server: &HostPort| {
                let address = server.to_string();
                let counters = Arc::clone(counters);
                let pool = pool.clone();
                Link::start(address, timing, value_bytes_max, held_bytes_max, pool, counters)
            };
            let weighted = plan.config.store.ketama_weighted;
            let points = if weighted { Ketama::Weighted } else { Ketama::Plain };
            let named: Vec<store::Server> = servers.iter().map(ring_server).collect();
            let ring = Ring::new(&named, points);
            Backend::Cluster(Cluster::new(ring, servers.iter().map(link).collect(), index as u64))
        }
        (StoreUrl::Embedded, Some(embedded)) => {
            Backend::Local(Local::new(Arc::clone(embedded), plan.time.clone()))
        }
        (StoreUrl::Grpc(_), _) => todo!("grpc store"),
        (StoreUrl::Embedded, None) => unreachable!("the plan makes the embedded store it names"),
    }
}

fn ring_server(server: &HostPort) -> store::Server {
    store::Server { host: server.host.clone(), port: server.port, weight: 1 }
}

/// Removes expired items a little at a time, so that memory comes back without anyone asking for them.
async fn sweep(backend: Backend) {
    let Backend::Local(local) = backend else { return };
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    loop {
        tick.tick().await;
        local.sweep();
    }
}

/// What a worker keeps of returned buffers: a few of the largest, many of the common sizes.
const POOL_RETAINED_MAX: ByteCount = ByteCount::mib(8);

/// tokio's semaphore counts to less than `usize::MAX / 8`; a worker's budget is far below.
const BUDGET_KIB_MAX: u64 = 1 << 30;

const FRAME_SLACK_BYTES: usize = 64;

/// A device that was lost is tried again after this, then after ever longer waits: soon enough for a device that was
/// reset, rarely enough that one that is gone costs nothing.
const REPROBE_AFTER: Nanos = Nanos::secs(1);

const SWEEP_EVERY: Duration = Duration::from_secs(1);
