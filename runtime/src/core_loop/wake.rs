//! Who is to be polled next. On a loop's own thread that is a queue in thread-local memory, without locks or atomic
//! read-modify-writes; from any other thread, a queue that is crossbeam's, and an unpark. Nothing here polls.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Wake;
use std::thread::{self, Thread};

use crossbeam_deque::{Injector, Steal};

/// A loop as seen from other threads.
pub(crate) struct Home {
    id: u64,
    thread: Thread,
    woken: Injector<u32>,
}

impl Home {
    /// A home on the calling thread.
    pub(crate) fn here() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { id, thread: thread::current(), woken: Injector::new() })
    }

    /// What other threads woke since the last call, one at a time.
    #[inline]
    pub(crate) fn next_woken(&self) -> Option<u32> {
        if self.woken.is_empty() {
            return None;
        }
        loop {
            match self.woken.steal() {
                Steal::Success(index) => return Some(index),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    /// Whoever sleeps after `next_woken` found nothing is sure to be unparked by what comes after.
    fn wake(&self, index: u32) {
        self.woken.push(index);
        self.thread.unpark();
    }
}

/// Wakes the task of one place. Made once per place: a wake that comes after the task's end may meet the next task
/// there, which is then polled once for nothing.
pub(crate) struct TaskWaker {
    pub(crate) home: Arc<Home>,
    pub(crate) index: u32,
    /// Whether it is in the ready queue; only the home's own thread looks.
    is_ready: AtomicBool,
}

impl TaskWaker {
    pub(crate) fn new(home: &Arc<Home>, index: u32) -> Self {
        Self { home: Arc::clone(home), index, is_ready: AtomicBool::new(false) }
    }

    /// Makes the task ready. On the home's own thread, within its run.
    #[inline]
    pub(crate) fn make_ready(&self) {
        HERE.with(|here| self.make_ready_at(here));
    }

    #[inline]
    fn make_ready_at(&self, here: &Here) {
        if !self.is_ready.load(Ordering::Relaxed) {
            self.is_ready.store(true, Ordering::Relaxed);
            here.ready.borrow_mut().push_back(self.index);
        }
    }

    /// From here on the task may be woken again.
    #[inline]
    pub(crate) fn taken(&self) {
        self.is_ready.store(false, Ordering::Relaxed);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        HERE.with(|here| {
            if here.id.get() == self.home.id {
                self.make_ready_at(here);
            } else {
                self.home.wake(self.index);
            }
        });
    }
}

/// Tells a loop that a device has completions: the index that no task has.
pub(crate) struct Signal(pub(crate) Arc<Home>);

/// See [`Signal`].
pub(crate) const SIGNAL: u32 = u32::MAX;

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.wake(SIGNAL);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake(SIGNAL);
    }
}

/// The loop that runs on this thread, and its tasks that are ready.
struct Here {
    id: Cell<u64>,
    ready: RefCell<VecDeque<u32>>,
}

thread_local! {
    static HERE: Here =
        const { Here { id: Cell::new(NONE), ready: RefCell::new(VecDeque::new()) } };
}

const NONE: u64 = 0;

/// The time that a loop runs on its thread. In between its tasks are woken as from another thread.
pub(crate) struct Running<'a>(&'a Cell<VecDeque<u32>>);

impl<'a> Running<'a> {
    /// Runs the loop of this home; `ready` keeps its ready tasks between two runs.
    ///
    /// # Panics
    /// If a loop runs on this thread already, or the loop belongs to another thread.
    pub(crate) fn start(home: &Home, ready: &'a Cell<VecDeque<u32>>) -> Self {
        assert_eq!(thread::current().id(), home.thread.id(), "a loop runs on its own thread");
        HERE.with(|here| {
            assert_eq!(here.id.replace(home.id), NONE, "a loop runs on this thread already");
            here.ready.replace(ready.take());
        });
        Self(ready)
    }

    /// The next task that is ready.
    #[inline]
    pub(crate) fn next_ready(&self) -> Option<u32> {
        HERE.with(|here| here.ready.borrow_mut().pop_front())
    }

    /// Whether no task is ready.
    #[inline]
    pub(crate) fn none_ready(&self) -> bool {
        HERE.with(|here| here.ready.borrow().is_empty())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        HERE.with(|here| {
            here.id.set(NONE);
            self.0.set(here.ready.take());
        });
    }
}
