//! The runtime in tokio's current-thread executor: `run(job).await` in a task of a `LocalRuntime` or
//! a `LocalSet`. Jobs
//! on signalled devices wake the driver task; jobs on polled devices keep it turning while they
//! last; an idle runtime costs nothing. It needs tokio's timer.

use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use device::Job;
use futures_util::FutureExt;
use policy::{Policy, Reason};
use tokio::sync::Notify;
use units::Nanos;

use crate::config::{RuntimeConfig, StartError};
use crate::core::Runtime;
use crate::entry::Ticket;
use crate::metrics::Metrics;
use crate::reputation::Reputation;
use crate::run::{Behind, Run};

/// A core's runtime, shared by the tasks of its thread.
#[derive(Clone)]
pub struct TokioRuntime {
    core: Rc<RefCell<Runtime>>,
    reputation: Arc<Reputation>,
    signal: Arc<Notify>,
    /// Whether the driver turns without being told.
    turning: Rc<Cell<bool>>,
}

impl TokioRuntime {
    /// Starts the runtime and its driver task; call it within the `LocalSet` whose tasks will use
    /// it.
    ///
    /// # Errors
    /// As [`Runtime::new`].
    pub fn start(config: RuntimeConfig) -> Result<Self, StartError> {
        let signal = Arc::new(Notify::new());
        let waker = Waker::from(Arc::new(Signal(Arc::clone(&signal))));
        let reputation = Arc::clone(&config.reputation);
        let mut core = Runtime::new(config, &waker)?;
        core.set_time_resolution(TIME_RESOLUTION);
        let core = Rc::new(RefCell::new(core));
        let turning = Rc::new(Cell::new(false));
        let driver = keep_driving(Rc::clone(&core), Arc::clone(&signal), Rc::clone(&turning));
        tokio::task::spawn_local(driver);
        Ok(Self { core, reputation, signal, turning })
    }

    /// Submits the job now and returns a future of its end. Dropping the future detaches the job.
    #[inline]
    pub fn run(&self, job: Box<Job>) -> Run {
        self.start_job(|core| core.submit(job))
    }

    /// Does the same as [`TokioRuntime::run`], in software whatever the policy says, for this reason.
    pub fn run_in_software(&self, job: Box<Job>, reason: Reason) -> Run {
        self.start_job(|core| core.submit_to_software(job, reason))
    }

    #[inline]
    fn start_job(&self, submit: impl FnOnce(&mut Runtime) -> Ticket) -> Run {
        let mut core = self.core.borrow_mut();
        let ticket = submit(&mut core);
        if !self.turning.get() && !core.is_finished(ticket) {
            self.signal.notify_one();
        }
        Run::new(&self.core, ticket)
    }

    /// Follows another policy from the next job on.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.core.borrow_mut().set_policy(policy);
    }

    /// Notes which device wrote the stream of the frame with this checksum.
    #[inline]
    pub fn wrote(&self, device: usize, checksum: u32, stream_bytes: usize) {
        self.reputation.wrote(device, checksum, stream_bytes);
    }

    /// Does the same as [`Runtime::report_misread`].
    pub fn report_misread(&self, device: usize) {
        self.core.borrow_mut().report_misread(device);
    }

    /// Does the same as [`Runtime::report_unreadable`].
    pub fn report_unreadable(&self, checksum: u32, stream_bytes: usize) {
        self.core.borrow_mut().report_unreadable(checksum, stream_bytes);
    }

    /// The core, and what sees to it that it is turned soon.
    pub(crate) fn shared(&self) -> (Rc<RefCell<Runtime>>, impl Fn() + 'static) {
        let (signal, turning) = (Arc::clone(&self.signal), Rc::clone(&self.turning));
        let kick = move || {
            if !turning.get() {
                signal.notify_one();
            }
        };
        (Rc::clone(&self.core), kick)
    }

    /// The core's counters.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.core.borrow().metrics()
    }
}

struct Signal(Arc<Notify>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// Drives for ever: without the driver, jobs inside devices would never come back. A defect of a device ends one turn.
async fn keep_driving(core: Rc<RefCell<Runtime>>, signal: Arc<Notify>, turning: Rc<Cell<bool>>) {
    loop {
        let driven = drive(Rc::clone(&core), Arc::clone(&signal), Rc::clone(&turning));
        // The core is borrowed for a turn only, and a turn leaves it such that the next can go on.
        let _ = AssertUnwindSafe(driven).catch_unwind().await;
        turning.set(false);
        core.borrow().metrics().count_driver_restart();
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// A driver that fails in every turn costs no more than this often a turn.
const RESTART_PAUSE: Duration = Duration::from_millis(10);

/// Turns the core whenever a device signals, and without pause while a device must be polled.
/// Lives as long as the `LocalSet` that it was spawned on.
async fn drive(core: Rc<RefCell<Runtime>>, signal: Arc<Notify>, turning: Rc<Cell<bool>>) {
    let mut outstanding = core.borrow().outstanding();
    // A round longer than devices ask for: the tasks that have just got their jobs back are likely to have more, which
    // then need neither wake the driver nor look at the clock.
    let mut lingers = false;
    loop {
        let spins = outstanding.polled.is_some() || lingers;
        turning.set(spins);
        if spins {
            // `yield_now` would ask the system for events at each turn, which costs more than a turn; tokio asks every
            // some tens of tasks anyway.
            Behind(false).await;
        } else if outstanding.jobs > 0 {
            // A signal may be lost with its device: a turn now and then finds what is overdue.
            let limit = Duration::from(outstanding.turn_within);
            let _ = tokio::time::timeout(limit, signal.notified()).await;
        } else {
            signal.notified().await;
        }
        let mut runtime = core.borrow_mut();
        let was_polled = runtime.outstanding().polled.is_some();
        let arrivals = runtime.arrivals();
        outstanding = runtime.poll_once();
        // A turn that submitted is followed by another, as a task that submits is: that took a while, and other jobs
        // may be done. To look costs less than a sleep that they end.
        let submitted = runtime.arrivals() - arrivals;
        let has_worked = submitted > 0 && outstanding.jobs as u64 > submitted;
        lingers = (was_polled || has_worked) && outstanding.polled.is_none();
        if outstanding.polled.is_none() && !lingers {
            runtime.park();
        }
    }
}

/// A look at the clock serves what happens within this while a device is polled.
const TIME_RESOLUTION: Nanos = Nanos::micros(1);
