//! Our own executor, one instance per thread: tasks are futures that stay on it, devices are polled while jobs are
//! inside and not more often than asked, and a loop with nothing to do sleeps until another thread or a device wakes
//! it. It knows nothing of sockets or timers: those loops are tokio's, see [`crate::tokio_adapter`].
//!
//! A pass polls some ready tasks, takes what other threads woke, and turns the runtime when that is due. How many
//! tasks a pass polls follows from how long they take, so that the clock is looked at about once per poll interval.

mod cores;
mod home;
mod join;
#[cfg(all(test, not(miri)))]
mod modelled;
mod sleepers;
mod tasks;
mod wake;

/// The primitives by which threads meet. `home` and `sleepers` name these through here, so that a model can replace
/// them.
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
use crate::run::{Behind, Run};
pub use cores::{Cores, CoresConfig, SpawnError, Spawner};
use home::Home;
pub use join::Join;
use tasks::{Place, Tasks};
use wake::{Ready, Running, Signal};

/// The configuration of a loop.
pub struct CoreConfig {
    /// The runtime under it.
    pub runtime: RuntimeConfig,
    /// A device that must be polled is polled again only after this while tasks are ready; with none ready it is
    /// polled without pause. Too short: time goes into polls that find nothing. Too long: finished jobs wait.
    pub poll_interval: Nanos,
    /// The most completions that one turn takes from each device. With too few, each job costs a poll. With too many,
    /// ready tasks wait for a burst of completions.
    pub dequeue_batch: NonZeroUsize,
}

impl CoreConfig {
    /// Creates a configuration with the interval and the batch that measured well on the devices known so far.
    pub fn new(runtime: RuntimeConfig) -> Self {
        Self { runtime, poll_interval: POLL_INTERVAL, dequeue_batch: DEQUEUE_BATCH }
    }
}

/// A loop of the thread that made it. Dropping it drops its tasks.
pub struct CoreLoop {
    core: Core,
}

impl CoreLoop {
    /// A loop of the calling thread, with one queue into each device.
    ///
    /// # Errors
    /// As [`Runtime::new`].
    pub fn new(config: CoreConfig) -> Result<Self, StartError> {
        let home = Home::here();
        let signal = Waker::from(Arc::new(Signal(Arc::clone(&home))));
        let mut runtime = Runtime::new(config.runtime, &signal)?;
        // The loop looks about once per interval while jobs are inside: that serves all.
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
            looked: Cell::new(Nanos(0)),
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
    /// From within a loop's task.
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
    /// From within a loop's task.
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

/// A loop as its tasks see it.
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

    /// Does the same as [`Core::run`], in software whatever the policy says, for this reason.
    pub fn run_in_software(&self, job: Box<Job>, reason: Reason) -> Run {
        let mut runtime = self.0.runtime.borrow_mut();
        let ticket = runtime.submit_to_software(job, reason);
        Run::new(&self.0.runtime, ticket)
    }

    /// Adds a task to this loop. It runs to its end whether or not anyone waits for it.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Join<T> {
        let (join, work) = Join::new(future);
        let flag = self.0.tasks.borrow_mut().add(Box::pin(work));
        Waker::from(flag).wake();
        join
    }

    /// Follows another policy from the next job on.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.0.runtime.borrow_mut().set_policy(policy);
    }

    pub(crate) fn shared(&self) -> Rc<RefCell<Runtime>> {
        Rc::clone(&self.0.runtime)
    }

    /// The runtime's counters.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.0.runtime.borrow().metrics()
    }
}

/// Lets the other ready tasks go first.
pub fn yield_now() -> Behind {
    Behind(false)
}

struct Inner {
    runtime: Rc<RefCell<Runtime>>,
    tasks: RefCell<Tasks>,
    home: Arc<Home>,
    ready: Ready,
    /// The places of the tasks that have been polled. A poll borrows nothing that its task changes.
    places: Cell<Vec<Rc<Place>>>,
    poll_interval: Nanos,
    next_poll: Cell<Nanos>,
    looked: Cell<Nanos>,
    /// Tasks that a pass polls.
    burst: Cell<u32>,
}

/// The source of a loop's work apart from its own tasks, and of its end.
trait Source {
    /// Returns whether the run is over. The loop asks once in a pass.
    fn is_over(&mut self) -> bool;

    /// Begins work when no task is ready, and now and then while some are. Returns whether it began one.
    fn begin(&mut self) -> bool {
        false
    }

    /// Returns whether there is still nothing to begin. Then the loop sleeps.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// The loop slept, or did not after all.
    fn slept(&mut self) {}
}

/// A source without work of its own.
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
            // This check is after the polls: the task that the loop waits for may have ended in them, and no wake
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
            // The task may spawn or end others: nothing is borrowed while it runs.
            if places[index as usize].poll() {
                self.tasks.borrow_mut().ended(index);
            }
        }
        self.places.set(places);
    }

    /// Makes ready what other threads woke; whether a device signalled.
    fn take_woken(&self) -> bool {
        // No more than there are now: a task may be woken again as soon as it is taken.
        for _ in 0..self.home.woken_count() {
            let Some(index) = self.home.next_woken() else { break };
            self.tasks.borrow().dequeued(index);
        }
        self.home.take_signal()
    }

    /// Turns the runtime, if that is due.
    fn turn(&self, none_ready: bool, signalled: bool) -> Outstanding {
        let mut runtime = self.runtime.borrow_mut();
        let outstanding = runtime.outstanding();
        if outstanding.jobs == 0 {
            // The clock is not looked at until there is a job again.
            runtime.park();
            return outstanding;
        }
        let now = runtime.refresh_clock();
        self.adapt_burst(now);
        // With no task ready, a device that signals is polled anyway: such a pass follows a wake or a sleep that was
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

    /// Polls more tasks in the next pass while the clock is looked at more than once per interval, fewer when less
    /// often.
    fn adapt_burst(&self, now: Nanos) {
        let elapsed = now.since(self.looked.replace(now));
        let burst = self.burst.get();
        let soon = elapsed < self.poll_interval;
        self.burst.set(if soon { (2 * burst).min(BURST_MAX) } else { (burst / 2).max(1) });
    }

    /// Sleeps. Wakes come in order: what wakes the loop is in a queue before the thread is unparked, so either the
    /// queue was seen full or the sleep ends at once.
    fn sleep(&self, outstanding: &Outstanding, source: &mut impl Source) {
        self.runtime.borrow_mut().park();
        if source.may_sleep() {
            if outstanding.jobs > 0 {
                // A signal may be lost with its device: a turn now and then finds what is overdue.
                thread::park_timeout(Duration::from(outstanding.turn_within));
            } else {
                thread::park();
            }
        }
        source.slept();
    }
}

/// A middle way between latency and time spent on polls.
const POLL_INTERVAL: Nanos = Nanos::micros(1);

const DEQUEUE_BATCH: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// Other threads' wakes and the devices are never further away than this many polls of tasks.
const BURST_MAX: u32 = 64;

const BURST_FIRST: u32 = 16;

/// While tasks stay ready, one more begins once in this many passes: they may wait for what it does.
const PASSES_PER_BEGIN: u32 = 8;
