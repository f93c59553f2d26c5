//! What every session of a worker shares: the store, the values' way, limits, counters, and word of the end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use device::TenantId;
use parking_lot::Mutex;
use runtime::TokioRuntime;
use slab::Slab;
use units::{ByteCount, Clock};

use crate::backend::Backend;
use crate::budget::{Budget, Permit};
use crate::config::Services;
use crate::counters::Counters;
use crate::damaged::Looks;
use crate::long_keys::{LONG_BYTES, LongKeys};
use crate::scheduler::Scheduler;
use crate::session::Edits;
use crate::stats::StatsPages;
use crate::traces::Traced;
use crate::turns::Turns;
use crate::upstream::InteractiveLoad;
use crate::values::Values;
use crate::worker::ListenerProtocol;

/// One worker's surroundings.
pub(crate) struct WorkerContext {
    pub(crate) backend: Backend,
    pub(crate) values: Values,
    /// What jobs of other processes run on; `values` uses it for this one's.
    pub(crate) runtime: TokioRuntime,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) services: Services,
    /// Bytes that gRPC calls hold, in and out.
    pub(crate) grpc_held_bytes: Cell<u64>,
    /// Bytes that jobs of lanes hold, in and out.
    pub(crate) lane_held_bytes: Cell<u64>,
    /// Jobs of other processes under way, and how many may be.
    pub(crate) jobs: Cell<usize>,
    pub(crate) jobs_max: usize,
    /// Whose jobs they are.
    pub(crate) peers: RefCell<Slab<()>>,
    /// What the runtime's jobs run on, by their index in a path.
    pub(crate) devices: Vec<Arc<dyn device::Device>>,
    /// gRPC health and reflection.
    pub(crate) grpc_others: tonic::service::Routes,
    /// Where this process is one.
    pub(crate) scheduler: Option<Arc<Scheduler>>,
    pub(crate) limits: protocol::Limits,
    pub(crate) requests_per_turn: usize,
    /// A client that is silent for longer loses its connection; none for never.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) stats: Rc<StatsPages>,
    /// Bytes of values that this worker may hold in flight, for whomever.
    pub(crate) budget: Budget,
    pub(crate) inflight_bytes_max: ByteCount,
    /// Turns to move long values.
    pub(crate) turns: Rc<Turns>,
    pub(crate) edits: Edits,
    /// What is under way on the connections to stores that are for short exchanges.
    pub(crate) interactive_load: Rc<InteractiveLoad>,
    /// Keys whose values are known to be long, to any worker.
    pub(crate) long_keys: Arc<LongKeys>,
    /// Whether a list of the servers' items is on its way to a client.
    pub(crate) passes_on: Cell<bool>,
    /// Whether clients may list the items.
    pub(crate) dump: bool,
    /// Looks at items that kept an `add` from storing.
    pub(crate) looks: Looks,
    pub(crate) shutdown: Shutdown,
    /// Where this process runs traces.
    pub(crate) traced: Option<Rc<Traced>>,
    /// The store service's surroundings, in a process that has it: the same store, its values as they are stored.
    pub(crate) of_store: Option<Rc<WorkerContext>>,
}

impl WorkerContext {
    /// A part of the budget for something new; waits for it for a bounded time. None: there was none in time.
    pub(crate) async fn admit(&self, bytes: usize) -> Option<Permit> {
        let bytes = bytes as u64;
        if let Some(permit) = self.budget.try_begin(bytes) {
            return Some(permit);
        }
        self.counters.commands.backpressure_waits.up();
        tokio::time::timeout(ADMISSION_MAX, self.budget.take(bytes)).await.ok()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.shutdown.draining.get()
    }

    /// What a get adds to what its session is expected to have under way, if the value of one of its keys is long.
    #[inline]
    pub(crate) fn long_bytes<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> usize {
        if self.long_keys.contains_any(keys) { LONG_BYTES } else { 0 }
    }

    /// Whether others wait for memory, or soon would: more than half of the budget is spent.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.budget.is_wanted() || self.budget.held() > self.budget.max() / 2
    }
}

/// Someone whose jobs this process does: the other end of a lane, or of a connection over gRPC. Each is a tenant of the
/// runtime's by itself. What it calls its own tenants decides nothing: it may call them as it likes.
pub(crate) struct Peer {
    context: Rc<WorkerContext>,
    place: usize,
}

impl Peer {
    pub(crate) fn enter(context: &Rc<WorkerContext>) -> Self {
        let place = context.peers.borrow_mut().insert(());
        Self { context: Rc::clone(context), place }
    }

    /// The first is for this process's own jobs; the last for all peers beyond.
    pub(crate) fn tenant(&self) -> TenantId {
        TenantId(u16::try_from(self.place + 1).unwrap_or(u16::MAX))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.context.peers.borrow_mut().remove(self.place);
    }
}

/// How a worker's sessions learn that the server ends: those that wait for their clients are woken.
#[derive(Default)]
pub(crate) struct Shutdown {
    draining: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Shutdown {
    pub(crate) fn begin_drain(&self) {
        self.draining.set(true);
        self.waiting.borrow().iter().for_each(|(_, waker)| waker.wake_by_ref());
    }

    /// Has the waker called when the server begins to drain. `place` is the caller's, from one call to the next.
    pub(crate) fn watch(&self, place: &mut Option<usize>, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        match place {
            None => *place = Some(waiting.insert(waker.clone())),
            Some(place) if !waiting[*place].will_wake(waker) => waiting[*place] = waker.clone(),
            Some(_) => {}
        }
    }

    /// Is over when the server begins to drain.
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

    /// Gives the place up.
    pub(crate) fn leave(&self, place: Option<usize>) {
        if let Some(place) = place {
            self.waiting.borrow_mut().remove(place);
        }
    }
}

/// As long as something new waits for a part of the budget; then its client is told that there is no memory for it.
pub(crate) const ADMISSION_MAX: Duration = Duration::from_secs(5);

/// A place that is given up with whoever has it.
struct ShutdownWatch<'a> {
    shutdown: &'a Shutdown,
    at: Option<usize>,
}

impl Drop for ShutdownWatch<'_> {
    fn drop(&mut self) {
        self.shutdown.leave(self.at);
    }
}

/// The connections of the whole server, against their limit. Each kind of listener in use has a share that the others
/// cannot take.
#[derive(Debug)]
pub(crate) struct Connections(Mutex<Places>);

#[derive(Debug)]
struct Places {
    max: usize,
    in_use: [bool; ListenerProtocol::ALL.len()],
    open: [usize; ListenerProtocol::ALL.len()],
}

impl Connections {
    /// At most `max`, of the kinds `in_use`.
    pub(crate) fn new(max: usize, in_use: &[ListenerProtocol]) -> Self {
        let in_use = ListenerProtocol::ALL.map(|protocol| in_use.contains(&protocol));
        Self(Mutex::new(Places { max, in_use, open: [0; ListenerProtocol::ALL.len()] }))
    }

    /// Takes a place if there is one.
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

    /// The kinds in use: how many connections are open, and how many are kept for it.
    pub(crate) fn by_protocol(&self) -> Vec<(ListenerProtocol, usize, usize)> {
        let places = self.0.lock();
        let used =
            ListenerProtocol::ALL.into_iter().filter(|protocol| places.in_use[*protocol as usize]);
        used.map(|protocol| (protocol, places.open[protocol as usize], places.reserved(protocol)))
            .collect()
    }
}

impl Places {
    /// The places that a new connection of this kind cannot have: those taken, and those kept for others.
    fn taken_for(&self, protocol: ListenerProtocol) -> usize {
        let of = |other: ListenerProtocol| {
            let open = self.open[other as usize];
            if other == protocol { open } else { open.max(self.reserved(other)) }
        };
        ListenerProtocol::ALL.into_iter().map(of).sum()
    }

    /// A sixteenth of all places, and never so much that nothing is left to whoever comes first.
    fn reserved(&self, protocol: ListenerProtocol) -> usize {
        let kinds = self.in_use.iter().filter(|used| **used).count();
        if kinds < 2 || !self.in_use[protocol as usize] {
            return 0;
        }
        self.max.div_ceil(RESERVED_SHARE).min(self.max / kinds)
    }
}

/// One place in so many is kept for each kind of listener.
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
