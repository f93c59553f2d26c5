//! Tracks which cores sleep, how many tasks wait to begin, and when the cores end. It contains no tasks. The
//! file is compiled twice: for use, and for tests that run a few threads' steps in every order (`modelled`).
//!
//! No task waits while a core that could begin it sleeps. A thread makes a task visible if it spawns the task, or if it
//! takes other tasks and leaves some. It then wakes one sleeper, under the lock of their list. A sleeper that is woken
//! first looks for a task, and wakes the next sleeper if it leaves any task. A core that enters the list looks for
//! tasks again afterwards. A core with as many tasks as it may have is not woken for more. It looks for tasks when one
//! of its tasks has ended.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::primitives::{AtomicUsize, Mutex, MutexGuard, Thread, thread};

/// The common state of cores that share tasks.
pub(super) struct Sleepers {
    asleep: Mutex<Vec<Sleeper>>,
    /// The number of tasks that have not begun.
    waiting: AtomicUsize,
    /// The number of tasks that have not ended, combined with the flags [`ENDING`] and [`STOPPED`]. It is one
    /// word, so that a task is either accepted before the cores end or not at all.
    life: AtomicUsize,
}

/// The flag that ends the cores as soon as their last task has ended.
pub(super) const ENDING: usize = 1 << (usize::BITS - 1);

/// The flag that ends the cores at once.
pub(super) const STOPPED: usize = 1 << (usize::BITS - 2);

fn is_over(life: usize) -> bool {
    life == ENDING || life & STOPPED != 0
}

struct Sleeper {
    index: usize,
    thread: Thread,
    /// Whether the sleeping core may begin another task.
    may_begin: bool,
}

impl Sleepers {
    pub(super) fn new() -> Self {
        let [waiting, life] = [0, 0].map(AtomicUsize::new);
        Self { asleep: Mutex::new(Vec::new()), waiting, life }
    }

    fn asleep(&self) -> MutexGuard<'_, Vec<Sleeper>> {
        // No code panics while it holds the lock.
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a task that is about to become visible. Returns false if `waiting_max` tasks already wait.
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

    /// Stops counting a task as waiting, because it begins. Wakes another core if tasks are left.
    pub(super) fn one_begins(&self) {
        if self.waiting.fetch_sub(1, Ordering::Relaxed) > 1 {
            self.wake_one();
        }
    }

    /// Wakes one sleeper after a task became visible. A core that locks the list later finds the task, and a core that
    /// locked it earlier is in the list.
    pub(super) fn wake_one(&self) {
        let mut asleep = self.asleep();
        if let Some(last) = asleep.iter().rposition(|sleeper| sleeper.may_begin) {
            asleep.remove(last).thread.unpark();
        }
    }

    fn wake_all(&self) {
        self.asleep().drain(..).for_each(|sleeper| sleeper.thread.unpark());
    }

    /// Adds the calling core, which has nothing to do, to the sleepers. Returns whether it may sleep.
    pub(super) fn enter(&self, index: usize, may_begin: bool) -> bool {
        self.asleep().push(Sleeper { index, thread: thread::current(), may_begin });
        // This check comes after the lock, see `wake_one` and `wake_all`.
        !(self.is_over() || may_begin && self.some_wait())
    }

    /// Removes the core from the list, whether or not it slept.
    pub(super) fn leave(&self, index: usize) {
        self.asleep().retain(|sleeper| sleeper.index != index);
    }

    /// Sets a flag that ends the threads of the cores: [`ENDING`] when their last task has ended, [`STOPPED`] at once.
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

    /// Counts a new task, unless the cores have ended.
    pub(super) fn one_more_lives(&self) -> bool {
        let one_more = |life| (!is_over(life)).then_some(life + 1);
        self.life.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_ok()
    }

    /// Removes a task from the number of live tasks, because it has ended or will never begin.
    pub(super) fn one_ended(&self) {
        if self.life.fetch_sub(1, Ordering::SeqCst) == ENDING + 1 {
            self.wake_all();
        }
    }
}
