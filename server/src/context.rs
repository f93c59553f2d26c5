//! What every session of a worker shares: the store, the values' way, limits, counters, and word of the end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use device::TenantId;
use runtime::TokioRuntime;
use slab::Slab;
use tokio::sync::{Semaphore, SemaphorePermit};
use units::{ByteCount, Clock};

use crate::backend::Backend;
use crate::config::Services;
use crate::counters::Counters;
use crate::scheduler::Scheduler;
use crate::session::Edits;
use crate::stats::StatsPages;
use crate::traces::Traced;
use crate::values::Values;

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
    /// KiB of values that this worker's sessions may still hold while they read them.
    pub(crate) budget: Semaphore,
    pub(crate) budget_kib: u32,
    pub(crate) inflight_bytes_max: ByteCount,
    /// Sessions that wait for a part of the budget.
    pub(crate) budget_waits: Cell<usize>,
    pub(crate) edits: Edits,
    pub(crate) ending: Ending,
    /// Where this process runs traces.
    pub(crate) traced: Option<Rc<Traced>>,
    /// The store service's surroundings, in a process that has it: the same store, its values as they are stored.
    pub(crate) of_store: Option<Rc<WorkerContext>>,
}

impl WorkerContext {
    /// Waits until a value of that size may be held. A value larger than the whole budget waits for all of it.
    pub(crate) async fn admit(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(u32::MAX).min(self.budget_kib);
        if let Ok(permit) = self.budget.try_acquire_many(kib) {
            return Some(permit);
        }
        self.counters.commands.backpressure_waits.up();
        let _waiting = Waiting::begin(&self.budget_waits);
        self.budget.acquire_many(kib).await.ok()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.ending.draining.get()
    }

    /// Whether others wait for memory, or would: the budget is spent, or buffers hold more than it.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        self.budget_waits.get() > 0 || self.values.pool().outstanding() > self.inflight_bytes_max
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

/// Counts a waiting session for as long as it waits.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn begin(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// How a worker's sessions learn that the server ends: those that wait for their clients are woken.
#[derive(Default)]
pub(crate) struct Ending {
    draining: Cell<bool>,
    waiting: RefCell<Slab<Waker>>,
}

impl Ending {
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
        let mut place = Place { ending: self, at: None };
        poll_fn(|task| {
            if self.draining.get() {
                return Poll::Ready(());
            }
            self.watch(&mut place.at, task.waker());
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

/// A place that is given up with whoever has it.
struct Place<'a> {
    ending: &'a Ending,
    at: Option<usize>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.ending.leave(self.at);
    }
}

/// The connections of the whole server, against their limit.
#[derive(Debug)]
pub(crate) struct Connections {
    open: AtomicUsize,
    max: AtomicUsize,
}

impl Connections {
    pub(crate) fn new(max: usize) -> Self {
        Self { open: AtomicUsize::new(0), max: AtomicUsize::new(max) }
    }

    /// Takes a place if there is one.
    pub(crate) fn enter(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let take = |open: usize| (open < max).then_some(open + 1);
        self.open.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_ok()
    }

    pub(crate) fn leave(&self) {
        self.open.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }
}
