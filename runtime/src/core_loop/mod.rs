//! Our own executor, with one instance per thread. Its tasks are futures that stay on their thread. It polls devices
//! while jobs are inside them, at most as often as configured. A loop without work sleeps until another thread or a
//! device wakes it. It knows nothing of sockets or timers: loops that need them use tokio, see
//! [`crate::tokio_adapter`].
//!
//! In one pass the loop polls some ready tasks, takes the tasks that other threads woke, and turns the runtime if it is
//! time. The number of tasks per pass depends on how long they take, so that the loop reads the clock about once per
//! poll interval.

mod cores;
mod home;
mod join;
#[cfg(all(test, not(miri)))]
mod modelled;
mod sleepers;
mod tasks;
mod wake;

/// The primitives for communication between threads. Tests replace this module with a model.
mod primitives {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize};
    pub(super) use std::sync::{Mutex, MutexGuard};
    pub(super) use std::thread::{self, Thread};

    pub(super) use crossbeam_deque::{Injector, Steal};
}

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use device::Job;
use policy::{Policy, Reason};
use units::Nanos;

use crate::config::{RuntimeConfig, StartError};
use crate::core::{Outstanding, Runtime};
use crate::metrics::Metrics;
use crate::run::{Run, YieldNow};
pub use cores::{Cores, CoresConfig, SpawnError, Spawner};
use home::Home;
pub use join::Join;
use tasks::{Place, Tasks};
use wake::{Ready, Running, Signal};

/// The configuration of a loop.
pub struct CoreConfig {
    /// The configuration of the loop's runtime.
    pub runtime: RuntimeConfig,
    /// The time after which a device that must be polled is polled again while tasks are ready. With no task ready, it
    /// is polled without pause. With a short interval, polls that find nothing take time. With a long one, finished
    /// jobs wait.
    pub poll_interval: Nanos,
    /// The most completions that one turn takes from each device. With too few, each job costs a poll. With too many,
    /// ready tasks wait for a burst of completions.
    pub dequeue_batch: NonZeroUsize,
}

impl CoreConfig {
    /// Creates a configuration with the interval and the batch that performed well on the devices measured so far.
    pub fn new(runtime: RuntimeConfig) -> Self {
        Self { runtime, poll_interval: POLL_INTERVAL, dequeue_batch: DEQUEUE_BATCH }
    }
}

/// A loop of the thread that created it. Dropping it drops its tasks.
pub struct CoreLoop {
    core: Core,
}

impl CoreLoop {
    /// Creates a loop for the calling thread, with one queue into each device.
    ///
    /// # Errors
    /// Fails like [`Runtime::new`].
    pub fn new(config: CoreConfig) -> Result<Self, StartError> {
        let home = Home::here();
        let signal = Waker::from(Arc::new(Signal(Arc::clone(&home))));
        let mut runtime = Runtime::new(config.runtime, &signal)?;
        // The loop reads the clock about once per interval while jobs are inside, and this reading serves all uses.
        let resolution = 2 * config.poll_interval.0.max(POLL_INTERVAL.0);
        runtime.set_time_resolution(Nanos(resolution));
        runtime.set_dequeue_batch(config.dequeue_batch);
        let inner = Inner {
            runtime: Rc::new(RefCell::new(runtime)),
            tasks: RefCell::new(Tasks::new(&home)),
            home,
            ready: Ready::default(),
            places: Cell::default(),
            poll_interval: config.poll_interval,
            next_poll: Cell::new(Nanos(0)),
            last_turn: Cell::new(Nanos(0)),
            burst: Cell::new(BURST_FIRST),
        };
        Ok(Self { core: Core(Rc::new(inner)) })
    }

    /// Returns the handle that the loop's tasks use.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Runs until the future ends.
    ///
    /// # Panics
    /// Panics if it is called within a loop's task.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let mut main = self.core.spawn(future);
        let mut result = None;
        self.core.0.run(&mut Until(|| {
            result = main.take();
            result.is_some()
        }));
        result.expect("it ran until there was one")
    }

    /// Runs until every task has ended.
    ///
    /// # Panics
    /// Panics if it is called within a loop's task.
    pub fn run(&self) {
        let inner = &self.core.0;
        inner.run(&mut Until(|| inner.tasks.borrow().count() == 0));
    }
}

impl Drop for CoreLoop {
    fn drop(&mut self) {
        let given_up = self.core.0.tasks.borrow().give_up();
        drop(given_up);
    }
}

/// The handle through which a loop's tasks use it.
#[derive(Clone)]
pub struct Core(Rc<Inner>);

impl Core {
    /// Submits the job now and returns a future of its end. Dropping the future detaches the job.
    #[inline]
    pub fn run(&self, job: Box<Job>) -> Run {
        let mut runtime = self.0.runtime.borrow_mut();
        let waiting = match runtime.uses_costs() {
            true => wake::ready_count(&self.0.home, &self.0.ready),
            false => 0,
        };
        let ticket = runtime.submit_among(job, waiting);
        Run::new(&self.0.runtime, ticket)
    }

    /// Submits the job to software for this reason, without asking the policy, and returns a future of its end.
    pub fn run_in_software(&self, job: Box<Job>, reason: Reason) -> Run {
        let mut runtime = self.0.runtime.borrow_mut();
        let ticket = runtime.submit_to_software(job, reason);
        Run::new(&self.0.runtime, ticket)
    }

    /// Adds a task to this loop. The task runs to its end whether or not anyone waits for it.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Join<T> {
        let (join, work) = Join::new(future);
        let flag = self.0.tasks.borrow_mut().add(Box::pin(work));
        Waker::from(flag).wake();
        join
    }

    /// Sets the policy for the next and later jobs.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.0.runtime.borrow_mut().set_policy(policy);
    }

    pub(crate) fn shared(&self) -> Rc<RefCell<Runtime>> {
        Rc::clone(&self.0.runtime)
    }

    /// Returns the runtime's counters.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.0.runtime.borrow().metrics()
    }
}

/// Lets the other ready tasks run first.
pub fn yield_now() -> YieldNow {
    YieldNow(false)
}

struct Inner {
    runtime: Rc<RefCell<Runtime>>,
    tasks: RefCell<Tasks>,
    home: Arc<Home>,
    ready: Ready,
    /// A copy of the list of task places, from which tasks are polled without a borrow of `tasks`.
    places: Cell<Vec<Rc<Place>>>,
    poll_interval: Nanos,
    next_poll: Cell<Nanos>,
    last_turn: Cell<Nanos>,
    /// The number of tasks that a pass polls.
    burst: Cell<u32>,
}

/// The source of a loop's work, in addition to the loop's tasks. It also decides when the loop ends.
trait Source {
    /// Returns whether the run is over. The loop calls this once in a pass.
    fn is_over(&mut self) -> bool;

    /// Begins work if there is any and returns whether it did. The loop calls this if no task is ready, and
    /// occasionally while tasks are ready.
    fn begin(&mut self) -> bool {
        false
    }

    /// Returns whether there is still nothing to begin. If so, the loop sleeps.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Tells the source that the loop no longer sleeps. It is called after each `may_sleep`, even if that returned
    /// false.
    fn slept(&mut self) {}
}

/// A source without any work, which ends the loop when the function returns true.
struct Until<F>(F);

impl<F: FnMut() -> bool> Source for Until<F> {
    fn is_over(&mut self) -> bool {
        (self.0)()
    }
}

impl Inner {
    fn run(&self, source: &mut impl Source) {
        let running = Running::start(&self.home, &self.ready);
        let mut passes = 0_u32;
        loop {
            self.poll_tasks(&running);
            let signalled = self.take_woken();
            let outstanding = self.turn(running.none_ready(), signalled);
            // This check comes after the polls. The task for which the loop waits may have ended in them, and no wake
            // follows from that.
            if source.is_over() {
                return;
            }
            passes = passes.wrapping_add(1);
            if running.none_ready() {
                if !source.begin() && outstanding.polled.is_none() {
                    self.sleep(&outstanding, source);
                }
            } else if passes.is_multiple_of(PASSES_PER_BEGIN) {
                source.begin();
            }
        }
    }

    fn poll_tasks(&self, running: &Running<'_>) {
        let mut places = self.places.take();
        for _ in 0..self.burst.get() {
            let Some(index) = running.next_ready() else { break };
            if index as usize >= places.len() {
                self.tasks.borrow().add_places(&mut places);
            }
            // The task may spawn or end other tasks, so nothing is borrowed while it runs.
            if places[index as usize].poll() {
                self.tasks.borrow_mut().ended(index);
            }
        }
        self.places.set(places);
    }

    /// Makes ready the tasks that other threads woke, and returns whether a device signalled.
    fn take_woken(&self) -> bool {
        // The loop takes no more tasks than there are now, because a task may be woken again as soon as it is taken.
        for _ in 0..self.home.woken_count() {
            let Some(index) = self.home.next_woken() else { break };
            self.tasks.borrow().dequeued(index);
        }
        self.home.take_signal()
    }

    /// Turns the runtime, if it is time.
    fn turn(&self, none_ready: bool, signalled: bool) -> Outstanding {
        let mut runtime = self.runtime.borrow_mut();
        let outstanding = runtime.outstanding();
        if outstanding.jobs == 0 {
            // The clock is not read until there is a job again.
            runtime.park();
            return outstanding;
        }
        let now = runtime.refresh_clock();
        self.adapt_burst(now);
        // With no task ready, a device that signals is polled anyway: this pass follows a wake, or a sleep that was
        // long enough.
        if !none_ready && !signalled && now < self.next_poll.get() {
            return outstanding;
        }
        let interval = match outstanding.polled {
            Some(_) => self.poll_interval,
            None => outstanding.turn_within,
        };
        self.next_poll.set(Nanos(now.0.saturating_add(interval.0)));
        runtime.turn_at(now)
    }

    /// Doubles the number of tasks per pass if less than a poll interval elapsed, and otherwise halves it.
    fn adapt_burst(&self, now: Nanos) {
        let elapsed = now.since(self.last_turn.replace(now));
        let burst = self.burst.get();
        let soon = elapsed < self.poll_interval;
        self.burst.set(if soon { (2 * burst).min(BURST_MAX) } else { (burst / 2).max(1) });
    }

    /// Sleeps. A wake-up is never lost: the waker puts its task into a queue before it unparks the thread. Either the
    /// loop has seen the task in the queue, or the sleep ends at once.
    fn sleep(&self, outstanding: &Outstanding, source: &mut impl Source) {
        self.runtime.borrow_mut().park();
        if source.may_sleep() {
            if outstanding.jobs > 0 {
                // A signal may be lost with its device. An occasional turn finds overdue jobs.
                thread::park_timeout(Duration::from(outstanding.turn_within));
            } else {
                thread::park();
            }
        }
        source.slept();
    }
}

/// The default poll interval, a compromise between latency and the time spent on polls.
const POLL_INTERVAL: Nanos = Nanos::micros(1);

const DEQUEUE_BATCH: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// The most tasks that a pass polls. After so many the loop serves other threads' wakes and the devices again.
const BURST_MAX: u32 = 64;

const BURST_FIRST: u32 = 16;

/// The number of passes after which the loop begins more work while tasks stay ready. The ready tasks may wait for that
/// work.
const PASSES_PER_BEGIN: u32 = 8;
