//! The list of tasks to poll next. The loop's thread uses thread-local memory for it, without locks or atomic
//! read-modify-writes. Any other thread needs a queue and an unpark (`home`). Nothing here polls.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;
use std::thread;

use super::home::{Flag, Home};

/// Wakes the task of one place. It is created once per place. A wake after the task's end may reach the next task of
/// the place, which is then polled once without need.
pub(crate) struct TaskWaker {
    home: Arc<Home>,
    home_id: u64,
    index: u32,
    /// Whether the task is among the ready tasks. Only the home's thread reads this.
    is_ready: AtomicBool,
    /// Whether the task is in the home's queue of tasks that other threads woke, or is about to enter it.
    queued: Flag,
}

impl TaskWaker {
    pub(crate) fn new(home: &Arc<Home>, index: u32) -> Self {
        let (is_ready, queued) = (AtomicBool::new(false), Flag::lowered());
        Self { home: Arc::clone(home), home_id: home.id, index, is_ready, queued }
    }

    /// Makes a task from the queue ready. Must be called on the home's thread while the loop runs.
    pub(crate) fn dequeued(&self) {
        self.queued.lower();
        self.make_ready();
    }

    /// Makes the task ready. It must be called on the home's thread while the loop runs.
    #[inline]
    fn make_ready(&self) {
        if !self.is_ready.load(Ordering::Relaxed) {
            self.is_ready.store(true, Ordering::Relaxed);
            HERE.with(|here| here.ready.borrow_mut().push(self.index));
        }
    }

    #[cold]
    fn wake_remote(&self) {
        self.home.wake(&self.queued, self.index);
    }

    /// Allows the task to be woken again.
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
        if HERE.with(|here| here.id.get()) == self.home_id {
            self.make_ready();
        } else {
            self.wake_remote();
        }
    }
}

/// Tells a loop that a device has completions.
pub(crate) struct Signal(pub(crate) Arc<Home>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.signal();
    }
}

/// The loop that runs on this thread, and the list of its tasks that were woken since it last took the list.
/// While no loop runs, the list owns no memory. It is never dropped, so an access needs no check.
struct Here {
    id: Cell<u64>,
    ready: RefCell<ManuallyDrop<Vec<u32>>>,
}

thread_local! {
    static HERE: Here = const {
        let ready = RefCell::new(ManuallyDrop::new(Vec::new()));
        Here { id: Cell::new(NONE), ready }
    };
}

const NONE: u64 = 0;

/// The tasks that a loop polls next, in the order in which they were woken. Tasks that are woken meanwhile go
/// to a second list, which later replaces this list. Swapping two lists costs less than a queue.
#[derive(Default)]
pub(crate) struct Ready {
    tasks: RefCell<Vec<u32>>,
    /// The number of entries of `tasks` that were already taken.
    taken: Cell<usize>,
    /// The second list without entries, kept between two runs for its memory.
    spare: Cell<Vec<u32>>,
}

impl Ready {
    fn left(&self) -> usize {
        self.tasks.borrow().len() - self.taken.get()
    }

    /// Replaces a list whose tasks were all taken with the list of the tasks that were woken since.
    #[inline]
    fn refill(&self, tasks: &mut Vec<u32>) {
        tasks.clear();
        self.taken.set(0);
        HERE.with(|here| std::mem::swap(tasks, &mut here.ready.borrow_mut()));
    }
}

/// A guard that marks a loop as running. Without it, the loop's tasks are woken as from another thread.
pub(crate) struct Running<'a>(&'a Ready);

impl<'a> Running<'a> {
    /// Marks the loop of this home as running. `ready` stores the loop's ready tasks between two runs.
    ///
    /// # Panics
    /// Panics if a loop runs on this thread already, or if the loop belongs to another thread.
    pub(crate) fn start(home: &Home, ready: &'a Ready) -> Self {
        assert_eq!(thread::current().id(), home.thread.id(), "a loop runs on its own thread");
        HERE.with(|here| {
            assert_eq!(here.id.replace(home.id), NONE, "a loop runs on this thread already");
            **here.ready.borrow_mut() = ready.spare.take();
        });
        Self(ready)
    }

    /// Takes the next task that is ready.
    #[inline]
    pub(crate) fn next_ready(&self) -> Option<u32> {
        let mut tasks = self.0.tasks.borrow_mut();
        if self.0.taken.get() == tasks.len() {
            self.0.refill(&mut tasks);
        }
        let next = tasks.get(self.0.taken.get()).copied()?;
        self.0.taken.set(self.0.taken.get() + 1);
        Some(next)
    }

    /// Returns whether no task is ready.
    #[inline]
    pub(crate) fn none_ready(&self) -> bool {
        self.0.left() == 0 && HERE.with(|here| here.ready.borrow().is_empty())
    }
}

/// Returns the number of ready tasks of this home. It is zero while the home's loop does not run.
#[inline]
pub(crate) fn ready_count(home: &Home, ready: &Ready) -> usize {
    let woken = |here: &Here| (here.id.get() == home.id).then(|| here.ready.borrow().len());
    HERE.with(woken).map_or(0, |woken| woken + ready.left())
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        HERE.with(|here| {
            here.id.set(NONE);
            let mut woken = std::mem::take(&mut **here.ready.borrow_mut());
            self.0.tasks.borrow_mut().append(&mut woken);
            self.0.spare.set(woken);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_task_woken_repeatedly_is_queued_once() {
        let home = Home::here();
        let task = Arc::new(TaskWaker::new(&home, 7));
        let waker = Waker::from(Arc::clone(&task));
        let wake_often = || {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..1_000).for_each(|_| waker.wake_by_ref()));
                }
            });
        };
        let kept = Ready::default();
        let running = Running::start(&home, &kept);
        for _ in 0..3 {
            wake_often();
            assert_eq!(home.woken_count(), 1);
            assert_eq!(home.next_woken(), Some(7));
            task.dequeued();
            assert_eq!(running.next_ready(), Some(7));
            assert!(running.none_ready());
            task.taken();
        }
    }

    #[test]
    fn signals_are_one_until_they_are_taken() {
        let home = Home::here();
        let signal = Waker::from(Arc::new(Signal(Arc::clone(&home))));
        for _ in 0..3 {
            assert!(!home.take_signal());
            (0..1_000).for_each(|_| signal.wake_by_ref());
            assert!(home.take_signal());
        }
        assert_eq!(home.woken_count(), 0);
    }
}
