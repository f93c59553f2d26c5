//! Knows which of several cores sleep, how many tasks wait to begin, and when all is over. It holds no tasks. The file
//! is compiled twice: for use, and for every order of a few threads' steps (`modelled`).
//!
//! No task waits while a core that could begin it sleeps. A thread that makes a task visible (by its spawn, or by
//! taking others and leaving some) then wakes one sleeper, under the lock of their list. A sleeper that is woken looks
//! for a task before all else, and wakes the next one if it leaves any. A core that enters the list looks again after
//! that. A core with as many tasks as it may have is not woken for more: it looks when one of its own has ended.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::primitives::{AtomicUsize, Mutex, MutexGuard, Thread, thread};

/// The state that cores which share tasks know about each other.
pub(super) struct Sleepers {
    asleep: Mutex<Vec<Sleeper>>,
    /// Tasks that have not begun.
    waiting: AtomicUsize,
    /// Tasks that have not ended, plus [`ENDING`] and [`STOPPED`]. One number, so that a task is taken in before the
    /// cores are over or not at all.
    life: AtomicUsize,
}

/// The cores end with the last task.
pub(super) const ENDING: usize = 1 << (usize::BITS - 1);

/// The cores end now.
pub(super) const STOPPED: usize = 1 << (usize::BITS - 2);

fn is_over(life: usize) -> bool {
    life == ENDING || life & STOPPED != 0
}

struct Sleeper {
    index: usize,
    thread: Thread,
    /// Whether it sleeps with fewer tasks than it may have.
    may_begin: bool,
}

impl Sleepers {
    pub(super) fn new() -> Self {
        let [waiting, life] = [0, 0].map(AtomicUsize::new);
        Self { asleep: Mutex::new(Vec::new()), waiting, life }
    }

    fn asleep(&self) -> MutexGuard<'_, Vec<Sleeper>> {
        // Nothing panics while it is locked.
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a task that is about to be made visible, unless as many wait as may.
    pub(super) fn one_more_waits(&self, waiting_max: usize) -> bool {
        let is_one_too_many = self.waiting.fetch_add(1, Ordering::Relaxed) >= waiting_max;
        if is_one_too_many {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        !is_one_too_many
    }

    pub(super) fn some_wait(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// A task was taken, to begin; the next core sees to those that are left.
    pub(super) fn one_begins(&self) {
        if self.waiting.fetch_sub(1, Ordering::Relaxed) > 1 {
            self.wake_one();
        }
    }

    /// Wakes one sleeper after a task became visible: a core that locks the list later finds the task, one that locked
    /// it earlier is in the list.
    pub(super) fn wake_one(&self) {
        let mut asleep = self.asleep();
        if let Some(last) = asleep.iter().rposition(|sleeper| sleeper.may_begin) {
            asleep.remove(last).thread.unpark();
        }
    }

    fn wake_all(&self) {
        self.asleep().drain(..).for_each(|sleeper| sleeper.thread.unpark());
    }

    /// The calling core has nothing to do; whether it may sleep.
    pub(super) fn enter(&self, index: usize, may_begin: bool) -> bool {
        self.asleep().push(Sleeper { index, thread: thread::current(), may_begin });
        // Looked at after the lock: see `wake_one` and `wake_all`.
        !(self.is_over() || may_begin && self.some_wait())
    }

    /// Leaves the list after a sleep, or without one.
    pub(super) fn leave(&self, index: usize) {
        self.asleep().retain(|sleeper| sleeper.index != index);
    }

    /// Ends the cores with their last task ([`ENDING`]), or now ([`STOPPED`]).
    pub(super) fn set(&self, flag: usize) {
        self.life.fetch_or(flag, Ordering::SeqCst);
        self.wake_all();
    }

    pub(super) fn is_over(&self) -> bool {
        is_over(self.life.load(Ordering::SeqCst))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.life.load(Ordering::SeqCst) & STOPPED != 0
    }

    /// Takes a task in, unless the cores are over.
    pub(super) fn one_more_lives(&self) -> bool {
        let one_more = |life| (!is_over(life)).then_some(life + 1);
        self.life.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// A task that was taken in has ended, or will never begin.
    pub(super) fn one_ended(&self) {
        if self.life.fetch_sub(1, Ordering::SeqCst) == ENDING + 1 {
            self.wake_all();
        }
    }
}
