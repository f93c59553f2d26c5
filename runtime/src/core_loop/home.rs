//! The part of a loop that other threads use: the queue of tasks that they woke, the flag that a device
//! signalled, and the loop's thread, which sleeps if there is neither. It contains only the indices of tasks.
//! The file is compiled twice: for use, and for tests that run a few threads' steps in every order
//! (`modelled`).
//!
//! The queue holds a task at most once, however often it is woken: a flag says that the task is in the queue or is
//! about to enter it. No wake is lost. The thread that raises the flag queues the task, then unparks the loop. A thread
//! that finds the flag raised is served by that entry: the loop takes the entry, lowers the flag, and only then polls
//! the task. It lowers the flag with a read-modify-write, which reads the write of the last waker. The poll therefore
//! sees everything that this waker did before. A device's signal is a flag of the same kind without a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::primitives::{AtomicBool, Injector, Steal, Thread, thread};

/// The part of a loop that other threads share.
pub(crate) struct Home {
    pub(super) id: u64,
    pub(super) thread: Thread,
    woken: Injector<u32>,
    signal: Flag,
}

impl Home {
    /// Creates a home for the calling thread.
    pub(crate) fn here() -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (woken, signal) = (Injector::new(), Flag::lowered());
        Arc::new(Self { id, thread: thread::current(), woken, signal })
    }

    /// Returns the number of tasks that other threads woke and that were not taken yet.
    #[inline]
    pub(crate) fn woken_count(&self) -> usize {
        if self.woken.is_empty() { 0 } else { self.woken.len() }
    }

    /// Takes the next task that another thread woke, and returns its index.
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

    /// Tells the loop that a device has completions.
    pub(super) fn signal(&self) {
        if self.signal.raise() {
            self.thread.unpark();
        }
    }

    /// Wakes the task of this flag. A wake after the loop read `woken_count` as zero ends its next sleep.
    pub(super) fn wake(&self, queued: &Flag, index: u32) {
        if queued.raise() {
            self.woken.push(index);
            self.thread.unpark();
        }
    }
}

/// A flag that any thread raises and one thread lowers.
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn lowered() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Raises the flag and returns whether it was lowered before. If it was, the caller must notify the loop.
    fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::Release)
    }

    /// Lowers the flag and returns whether it was raised. Later code sees everything that was done before the
    /// flag was last raised.
    pub(super) fn lower(&self) -> bool {
        self.0.swap(false, Ordering::Acquire)
    }

    /// Lowers the flag and returns whether it was raised, like `lower`. It writes nothing if the flag is not
    /// raised, so that a call in every pass is cheap.
    #[inline]
    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.lower()
    }
}
