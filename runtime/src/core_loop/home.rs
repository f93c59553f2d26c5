//! A loop as seen from other threads: the tasks that they woke, whether a device signalled, and the thread that sleeps
//! if there is neither. It knows nothing of tasks but their index. The file is compiled twice: for use, and for every
//! order of a few threads' steps (`modelled`).
//!
//! The queue holds a task once at most, however often it is woken: a flag says that it is in there or about to be.
//! No wake is lost. Who raises the flag queues the task, then unparks. Who finds it raised is served by that entry: the
//! loop takes the entry, lowers the flag, and polls the task only then. As it lowers with a read-modify-write, it
//! reads what the last waker wrote, and the poll sees all that this waker did before. A device's signal is such a flag
//! without a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::primitives::{AtomicBool, Injector, Steal, Thread, thread};

/// A loop's own.
pub(crate) struct Home {
    pub(super) id: u64,
    pub(super) thread: Thread,
    woken: Injector<u32>,
    signal: Flag,
}

impl Home {
    /// A home on the calling thread.
    pub(crate) fn here() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (woken, signal) = (Injector::new(), Flag::lowered());
        Arc::new(Self { id, thread: thread::current(), woken, signal })
    }

    /// Returns how many tasks that other threads woke were not taken yet.
    #[inline]
    pub(crate) fn woken_count(&self) -> usize {
        if self.woken.is_empty() { 0 } else { self.woken.len() }
    }

    /// Returns the tasks that other threads woke, one at a time.
    pub(crate) fn next_woken(&self) -> Option<u32> {
        loop {
            match self.woken.steal() {
                Steal::Success(index) => return Some(index),
                Steal::Empty => return None,
                Steal::Retry => {}
            }
        }
    }

    /// Returns whether a device signalled since the last call.
    #[inline]
    pub(crate) fn take_signal(&self) -> bool {
        self.signal.take()
    }

    /// A device has completions.
    pub(super) fn signal(&self) {
        if self.signal.raise() {
            self.thread.unpark();
        }
    }

    /// Wakes the task that owns this flag. A thread that sleeps after `woken_count` was zero is unparked by any later
    /// wake.
    pub(super) fn wake(&self, queued: &Flag, index: u32) {
        if queued.raise() {
            self.woken.push(index);
            self.thread.unpark();
        }
    }
}

/// A flag that any thread raises and one lowers.
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn lowered() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Raises the flag and returns whether it was down. Then the caller must announce it.
    fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::Release)
    }

    /// Lowers the flag and returns whether it was up. Later code sees all that was done before the flag was last
    /// raised.
    pub(super) fn lower(&self) -> bool {
        self.0.swap(false, Ordering::Acquire)
    }

    /// Does the same as `lower`, but only loads while the flag is down, for callers that ask in every pass.
    #[inline]
    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.lower()
    }
}
