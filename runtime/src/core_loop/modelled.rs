//! Tests the communication between threads in every order of their steps. `home.rs` and `sleepers.rs` are
//! compiled against loom's model of threads and memory. A locked list replaces crossbeam's queue.

#[path = "home.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod home;
#[path = "sleepers.rs"]
#[allow(dead_code, clippy::duplicate_mod)]
mod sleepers;

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread::{spawn, yield_now};

use home::{Flag, Home};
use primitives::{Injector, Steal, thread::park};
use sleepers::{ENDING, STOPPED, Sleepers};

/// The model of `super::primitives`.
mod primitives {
    use std::collections::VecDeque;
    use std::sync::Arc;

    pub(super) use crossbeam_deque::Steal;
    use loom::sync::Notify;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize};
    pub(super) use loom::sync::{Mutex, MutexGuard};

    /// A thread's park token, as in the standard library. loom's own `park` is not used, because a thread
    /// that waits for a lock would consume the token.
    #[derive(Clone)]
    pub(super) struct Thread(Arc<Notify>);

    impl Thread {
        pub(super) fn unpark(&self) {
            self.0.notify();
        }
    }

    pub(super) mod thread {
        use super::{Arc, Notify, Thread};

        loom::thread_local! {
            static HERE: Thread = Thread(Arc::new(Notify::new()));
        }

        pub(crate) fn current() -> Thread {
            HERE.with(Thread::clone)
        }

        pub(crate) fn park() {
            current().0.wait();
        }
    }

    pub(super) struct Injector<T>(Mutex<VecDeque<T>>);

    impl<T> Injector<T> {
        pub(super) fn new() -> Self {
            Self(Mutex::new(VecDeque::new()))
        }

        pub(super) fn push(&self, item: T) {
            self.0.lock().expect("no panic").push_back(item);
        }

        pub(super) fn steal(&self) -> Steal<T> {
            self.0.lock().expect("no panic").pop_front().map_or(Steal::Empty, Steal::Success)
        }

        pub(super) fn len(&self) -> usize {
            self.0.lock().expect("no panic").len()
        }

        pub(super) fn is_empty(&self) -> bool {
            self.len() == 0
        }
    }
}

/// Checks all orders with at most `preemptions_max` preemptions. A lost wake is reported as a deadlock.
fn check(preemptions_max: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.max_branches = BRANCHES_MAX;
    builder.check(model);
}

/// The most steps of one execution. Every execution that ends takes fewer.
const BRANCHES_MAX: usize = 20_000;

const TASK: u32 = 7;

/// The values that wakers write before they wake the task.
type Written = Arc<[AtomicUsize; 2]>;

fn sees_all(written: &Written) -> bool {
    // The loads are relaxed, so only the wake makes the writes visible.
    written.iter().all(|mark| mark.load(Ordering::Relaxed) == 1)
}

/// Runs two threads that wake a task which waits for both of them, and a loop like `Inner::run`. For each task that it
/// takes, the loop does the two steps in the given order.
fn a_task_is_woken_by_two(steps: [fn(&Flag, &Written) -> bool; 2]) {
    check(2, move || {
        let (home, queued) = (Home::here(), Arc::new(Flag::lowered()));
        let written: Written = Arc::new([0, 0].map(AtomicUsize::new));
        let wakers = [0, 1].map(|index| {
            let (home, queued) = (Arc::clone(&home), Arc::clone(&queued));
            let written = Arc::clone(&written);
            spawn(move || {
                written[index].store(1, Ordering::Relaxed);
                home.wake(&queued, TASK);
            })
        });
        let mut is_done = false;
        while !is_done {
            let woken = home.woken_count();
            for _ in 0..woken {
                assert_eq!(home.next_woken(), Some(TASK));
                is_done |= steps.iter().any(|step| step(&queued, &written));
            }
            if woken == 0 {
                park();
            }
        }
        wakers.into_iter().for_each(|waker| waker.join().expect("no panic"));
    });
}

fn lower(queued: &Flag, _: &Written) -> bool {
    queued.lower();
    false
}

fn poll(_: &Flag, written: &Written) -> bool {
    sees_all(written)
}

#[test]
fn a_task_that_waits_for_two_threads_sees_both() {
    a_task_is_woken_by_two([lower, poll]);
}

#[test]
#[should_panic = "deadlock"]
fn a_flag_lowered_after_the_poll_would_lose_a_wake() {
    a_task_is_woken_by_two([poll, lower]);
}

#[test]
fn a_sleeping_loop_hears_a_device_s_signal() {
    check(3, || {
        let home = Home::here();
        let written: Written = Arc::new([0, 0].map(AtomicUsize::new));
        let (device, theirs) = (Arc::clone(&home), Arc::clone(&written));
        let device = spawn(move || {
            for mark in theirs.iter() {
                mark.store(1, Ordering::Relaxed);
                device.signal();
            }
        });
        while !(home.take_signal() && sees_all(&written)) {
            park();
        }
        device.join().expect("no panic");
    });
}

/// Cores that share tasks. Each task waits until all tasks have begun.
struct Cores {
    tasks: Injector<()>,
    sleepers: Sleepers,
    tasks_count: usize,
    begun: Mutex<usize>,
    all_begun: Condvar,
}

impl Cores {
    fn new(tasks_count: usize) -> Arc<Self> {
        Arc::new(Self {
            tasks: Injector::new(),
            sleepers: Sleepers::new(),
            tasks_count,
            begun: Mutex::new(0),
            all_begun: Condvar::new(),
        })
    }

    /// Spawns a task like `Spawner::spawn`.
    fn spawn(&self) -> bool {
        if !self.sleepers.one_more_lives() {
            return false;
        }
        assert!(self.sleepers.one_more_waits(self.tasks_count));
        self.tasks.push(());
        self.sleepers.wake_one();
        if self.sleepers.is_stopped() {
            self.drop_waiting();
        }
        true
    }

    fn drop_waiting(&self) {
        while let Steal::Success(()) = self.tasks.steal() {
            self.sleepers.one_ended();
        }
    }

    /// Begins a task like `Share::begin`. The task ends before this returns.
    fn begin(&self) -> bool {
        if !self.sleepers.some_wait() {
            return false;
        }
        let Steal::Success(()) = self.tasks.steal() else { return false };
        self.sleepers.one_begins();
        let mut begun = self.begun.lock().expect("no panic");
        *begun += 1;
        self.all_begun.notify_all();
        while *begun < self.tasks_count {
            begun = self.all_begun.wait(begun).expect("no panic");
        }
        drop(begun);
        self.sleepers.one_ended();
        true
    }

    /// Runs a core like `Inner::run` with a `Share`. With `rechecks` it looks for tasks once more before it sleeps.
    fn serve(&self, index: usize, rechecks: bool) {
        while !self.sleepers.is_over() {
            if self.begin() {
                continue;
            }
            if self.sleepers.enter(index, true) || !rechecks {
                park();
            } else {
                // A task that is already counted may not be in the queue yet.
                yield_now();
            }
            self.sleepers.leave(index);
            self.begin();
        }
    }
}

/// Runs as many tasks as cores. Each task waits for all others to begin, so a task that never begins is a deadlock.
fn every_task_begins(cores: usize, preemptions_max: usize, rechecks: bool) {
    check(preemptions_max, move || {
        let shared = Cores::new(cores);
        let worker = |index| {
            let shared = Arc::clone(&shared);
            move || shared.serve(index, rechecks)
        };
        let threads: Vec<_> = (0..cores).map(|index| spawn(worker(index))).collect();
        (0..cores).for_each(|_| assert!(shared.spawn()));
        shared.sleepers.set(ENDING);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(*shared.begun.lock().expect("no panic"), cores);
    });
}

#[test]
fn no_task_waits_while_a_core_sleeps() {
    every_task_begins(1, 3, true);
    every_task_begins(2, 1, true);
}

#[test]
#[should_panic = "deadlock"]
fn without_a_second_look_a_core_sleeps_for_ever() {
    every_task_begins(1, 3, false);
}

#[test]
fn a_task_spawned_during_the_stop_never_leaks() {
    check(4, || {
        let shared = Cores::new(1);
        let theirs = Arc::clone(&shared);
        let spawner = spawn(move || theirs.spawn());
        shared.sleepers.set(STOPPED);
        shared.drop_waiting();
        let was_taken_in = spawner.join().expect("no panic");
        assert!(shared.tasks.is_empty(), "taken in: {was_taken_in}");
    });
}
