//! The state that all sessions of a worker share: store, conversion of values, limits, counters, shutdown.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use device::TenantId;
use parking_lot::Mutex;
use runtime::TokioRuntime;
use slab::Slab;
use telemetry::Recorder;
use telemetry::timeline::{self, Kind};
use units::{ByteCount, Clock};

use crate::access::{Access, Allowances, Origin, TENANT_MAX};
use crate::backend::Backend;
use crate::budget::{Budget, Permit};
use crate::config::{Config, Services};
use crate::connection_table::ConnectionTable;
use crate::counters::Counters;
use crate::damaged::ExamineLimit;
use crate::long_keys::{LONG_BYTES, LongKeys};
use crate::programs::ProgramService;
use crate::scheduler::Scheduler;
use crate::session::Edits;
use crate::stats::StatsPages;
use crate::tls::Tls;
use crate::turns::Turns;
use crate::upstream::InteractiveLoad;
use crate::values::Values;
use crate::watchers::Watchers;
use crate::worker::ListenerProtocol;
use device::lane::WatchLane;
use device::near::WatchNear;

/// The state of one worker.
pub(crate) struct WorkerContext {
    pub(crate) backend: Backend,
    pub(crate) values: Values,
    /// The runtime for jobs of other processes. `values` uses the same runtime for jobs of this process.
    pub(crate) runtime: TokioRuntime,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) services: Services,
    /// The bytes that gRPC calls hold for inputs and outputs.
    pub(crate) grpc_held_bytes: Cell<u64>,
    /// The bytes that jobs of lanes hold for inputs and outputs.
    pub(crate) lane_held_bytes: Cell<u64>,
    /// The number of jobs of other processes in flight.
    pub(crate) jobs: Cell<usize>,
    /// The peers that send jobs to this process. A peer's index determines its tenant.
    pub(crate) peers: RefCell<Slab<()>>,
    /// The devices of the runtime, by their index in a path.
    pub(crate) devices: Vec<Arc<dyn device::Device>>,
    /// The routes of gRPC health and reflection.
    pub(crate) grpc_others: tonic::service::Routes,
    /// The scheduler, if this process is one.
    pub(crate) scheduler: Option<Arc<Scheduler>>,
    pub(crate) limits: protocol::Limits,
    /// The configuration with which the process started. A reload does not change it, so only keys that need a restart
    /// are read here. It is a copy, so that reading a key takes one access to memory.
    pub(crate) config: Config,
    pub(crate) requests_per_turn: usize,
    /// The time after which a silent client loses its connection; `None` for never.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) connection_table: Arc<ConnectionTable>,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) stats: Rc<StatsPages>,
    /// The bytes of values that this worker may hold in flight.
    pub(crate) budget: Budget,
    pub(crate) inflight_bytes_max: ByteCount,
    pub(crate) watch_lane: Option<WatchLane>,
    pub(crate) watch_near: Option<WatchNear>,
    /// Bounds the bytes of long values that are moved between two polls for events.
    pub(crate) turns: Rc<Turns>,
    pub(crate) edits: Edits,
    /// The load on the connections to stores for short requests.
    pub(crate) interactive_load: Rc<InteractiveLoad>,
    /// The keys whose values some worker found to be long.
    pub(crate) long_keys: Arc<LongKeys>,
    /// True while a list of the servers' items is being sent to a client.
    pub(crate) is_forwarding: Cell<bool>,
    /// The rules about clients.
    pub(crate) access: Arc<Access>,
    pub(crate) allowances: Allowances,
    /// The rate limit for examining the existing item after a failed `add`.
    pub(crate) examine_limit: ExamineLimit,
    pub(crate) shutdown: Shutdown,
    pub(crate) tls: Arc<Tls>,
    /// Records where the time of requests goes.
    pub(crate) recorder: Rc<Recorder>,
    /// The executor of programs, if this process runs programs.
    pub(crate) programs: Option<Rc<ProgramService>>,
    /// The context of the store service, if there is one. It uses the same store without converting values.
    pub(crate) of_store: Option<Rc<WorkerContext>>,
}

impl WorkerContext {
    /// Takes bytes of the budget for a new request and waits at most [`ADMISSION_MAX`] for them. Returns
    /// `None` after that time.
    pub(crate) async fn admit(&self, bytes: usize) -> Option<Permit> {
        let bytes = bytes as u64;
        if let Some(permit) = self.budget.try_begin(bytes) {
            return Some(permit);
        }
        self.counters.commands.backpressure_waits.up();
        let stage = timeline::open(Kind::Memory);
        let taken = tokio::time::timeout(ADMISSION_MAX, self.budget.take(bytes)).await;
        stage.close();
        taken.ok()
    }

    /// Logs that a connection was refused because it sent something else than a client does.
    pub(crate) fn audit_no_client(&self, origin: &Origin, command: &str, why: &dyn Display) {
        let left_out = &self.counters.access.audit_lines_left_out;
        self.access.audit.refused_anonymous(origin, command, why, self.clock.now(), left_out);
    }

    /// Logs an administrative command of a client that no rule limits.
    pub(crate) fn audit_anonymous(&self, origin: &Origin, command: &str) {
        let left_out = &self.counters.access.audit_lines_left_out;
        self.access.audit.allowed_anonymous(origin, command, self.clock.now(), left_out);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shutdown.draining.get()
    }

    /// Returns the bytes that a get is expected to have in flight: [`LONG_BYTES`] if the value of any of
    /// `keys` is known to be long, else 0.
    #[inline]
    pub(crate) fn long_bytes<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> usize {
        if self.long_keys.contains_any(keys) { LONG_BYTES } else { 0 }
    }

    /// Returns whether memory is short: users wait for it, or more than half of the budget is in use.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.budget.is_wanted() || self.budget.held() > self.budget.max() / 2
    }
}

/// A peer whose jobs this process runs: the other end of a lane or of a gRPC connection. Each peer is one
/// tenant of the runtime. Tenant ids in the peer's jobs are ignored, because the peer could choose any.
pub(crate) struct Peer {
    context: Rc<WorkerContext>,
    place: usize,
}

impl Peer {
    pub(crate) fn enter(context: &Rc<WorkerContext>) -> Self {
        let place = context.peers.borrow_mut().insert(());
        Self { context: Rc::clone(context), place }
    }

    /// Returns the peer's tenant. Tenant 0 is this process, and the ids up to [`TENANT_MAX`] are those that roles name.
    /// Peers beyond the last id share that id.
    pub(crate) fn tenant(&self) -> TenantId {
        TenantId(u16::try_from(self.place + 1 + usize::from(TENANT_MAX)).unwrap_or(u16::MAX))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.context.peers.borrow_mut().remove(self.place);
    }
}

/// The shutdown signal of the server. It wakes sessions of the worker that wait for their clients.
#[derive(Default)]
pub(crate) struct Shutdown {
    draining: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Shutdown {
    pub(crate) fn begin_drain(&self) {
        self.draining.set(true);
        self.wake_all();
    }

    /// Wakes everybody who watches, to look at what else has changed.
    pub(crate) fn wake_all(&self) {
        self.waiting.borrow().iter().for_each(|(_, waker)| waker.wake_by_ref());
    }

    /// Registers `waker` to be woken when the server drains. A caller passes the same `place` in every call.
    pub(crate) fn watch(&self, place: &mut Option<usize>, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        match place {
            None => *place = Some(waiting.insert(waker.clone())),
            Some(place) if !waiting[*place].will_wake(waker) => waiting[*place] = waker.clone(),
            Some(_) => {}
        }
    }

    /// Completes when the server begins to drain.
    pub(crate) async fn begun(&self) {
        let mut watch = ShutdownWatch { shutdown: self, at: None };
        poll_fn(|task| {
            if self.draining.get() {
                return Poll::Ready(());
            }
            self.watch(&mut watch.at, task.waker());
            Poll::Pending
        })
        .await;
    }

    /// Removes the registration of a caller of `watch`.
    pub(crate) fn leave(&self, place: Option<usize>) {
        if let Some(place) = place {
            self.waiting.borrow_mut().remove(place);
        }
    }
}

/// The longest time that a new request waits for bytes, before its client gets an out-of-memory error.
pub(crate) const ADMISSION_MAX: Duration = Duration::from_secs(5);

/// A registration that ends when this value is dropped.
struct ShutdownWatch<'a> {
    shutdown: &'a Shutdown,
    at: Option<usize>,
}

impl Drop for ShutdownWatch<'_> {
    fn drop(&mut self) {
        self.shutdown.leave(self.at);
    }
}

/// The open connections of the whole server, and their limit. Each protocol in use has a reserved share.
#[derive(Debug)]
pub(crate) struct Connections(Mutex<Places>);

#[derive(Debug)]
struct Places {
    max: usize,
    in_use: [bool; ListenerProtocol::ALL.len()],
    open: [usize; ListenerProtocol::ALL.len()],
}

impl Connections {
    /// Creates the state for at most `max` connections of the protocols `in_use`.
    pub(crate) fn new(max: usize, in_use: &[ListenerProtocol]) -> Self {
        let in_use = ListenerProtocol::ALL.map(|protocol| in_use.contains(&protocol));
        Self(Mutex::new(Places { max, in_use, open: [0; ListenerProtocol::ALL.len()] }))
    }

    /// Counts a new connection if the limit allows it, and returns whether it does.
    pub(crate) fn enter(&self, protocol: ListenerProtocol) -> bool {
        let mut places = self.0.lock();
        let is_free = places.taken_for(protocol) < places.max;
        if is_free {
            places.open[protocol as usize] += 1;
        }
        is_free
    }

    pub(crate) fn leave(&self, protocol: ListenerProtocol) {
        let open = &mut self.0.lock().open[protocol as usize];
        *open = open.saturating_sub(1);
    }

    pub(crate) fn open(&self) -> usize {
        self.0.lock().open.iter().sum()
    }

    pub(crate) fn max(&self) -> usize {
        self.0.lock().max
    }

    pub(crate) fn set_max(&self, max: usize) {
        self.0.lock().max = max;
    }

    /// Returns, for each protocol in use, the numbers of open and of reserved connections.
    pub(crate) fn by_protocol(&self) -> Vec<(ListenerProtocol, usize, usize)> {
        let places = self.0.lock();
        let used =
            ListenerProtocol::ALL.into_iter().filter(|protocol| places.in_use[*protocol as usize]);
        used.map(|protocol| (protocol, places.open[protocol as usize], places.reserved(protocol)))
            .collect()
    }
}

impl Places {
    /// Returns the number of connections that are not available to this protocol: the open ones and those
    /// reserved for other protocols.
    fn taken_for(&self, protocol: ListenerProtocol) -> usize {
        let of = |other: ListenerProtocol| {
            let open = self.open[other as usize];
            if other == protocol { open } else { open.max(self.reserved(other)) }
        };
        ListenerProtocol::ALL.into_iter().map(of).sum()
    }

    /// Returns the number of connections reserved for a protocol: a sixteenth of all, but at most an equal
    /// share for each protocol.
    fn reserved(&self, protocol: ListenerProtocol) -> usize {
        let kinds = self.in_use.iter().filter(|used| **used).count();
        if kinds < 2 || !self.in_use[protocol as usize] {
            return 0;
        }
        self.max.div_ceil(RESERVED_SHARE).min(self.max / kinds)
    }
}

/// The denominator of the share of connections that is reserved for each protocol: 1 in 16.
const RESERVED_SHARE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(connections: &Connections, protocol: ListenerProtocol) -> usize {
        std::iter::repeat_with(|| connections.enter(protocol))
            .take_while(|entered| *entered)
            .count()
    }

    #[test]
    fn no_kind_of_listener_takes_the_places_of_another() {
        let connections = Connections::new(
            1_024,
            &[ListenerProtocol::Memcached, ListenerProtocol::Grpc, ListenerProtocol::Lane],
        );
        assert_eq!(fill(&connections, ListenerProtocol::Memcached), 1_024 - 2 * 64);
        assert_eq!(fill(&connections, ListenerProtocol::Grpc), 64);
        assert_eq!(fill(&connections, ListenerProtocol::Lane), 64);
        assert_eq!(connections.open(), 1_024);
        connections.leave(ListenerProtocol::Grpc);
        assert!(!connections.enter(ListenerProtocol::Memcached), "the place is gRPC's");
        assert!(connections.enter(ListenerProtocol::Grpc));
        connections.leave(ListenerProtocol::Memcached);
        assert!(
            connections.enter(ListenerProtocol::Lane),
            "any kind may take what is not reserved"
        );
    }

    #[test]
    fn one_kind_of_listener_has_all_places() {
        let connections = Connections::new(3, &[ListenerProtocol::Memcached]);
        assert_eq!(fill(&connections, ListenerProtocol::Memcached), 3);
    }

    #[test]
    fn few_places_are_shared_evenly() {
        for max in 1..4 {
            let connections =
                Connections::new(max, &[ListenerProtocol::Memcached, ListenerProtocol::Grpc]);
            let (first, second) = (
                fill(&connections, ListenerProtocol::Memcached),
                fill(&connections, ListenerProtocol::Grpc),
            );
            assert_eq!(first + second, max);
            assert!(max == 1 || second > 0, "{max}");
        }
    }
}
