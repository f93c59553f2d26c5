//! The runtime in tokio's current-thread executor: `run(job).await` in a task of a `LocalRuntime` or a
//! `LocalSet`. Jobs on devices that signal wake the driver task. Jobs on polled devices keep it turning until
//! they end. An idle runtime takes no processor time. The adapter needs tokio's timer.

use std::cell::{Cell, RefCell};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;

use device::{Job, Outcome};
use futures_util::FutureExt;
use policy::{Policy, Reason};
use tokio::sync::Notify;
use units::Nanos;

use crate::config::{RuntimeConfig, StartError};
use crate::core::Runtime;
use crate::entry::{Finished, Path, Ticket};
use crate::metrics::Metrics;
use crate::reputation::Reputation;
use crate::run::{Run, YieldNow};

/// A core's runtime, which the tasks of its thread share.
#[derive(Clone)]
pub struct TokioRuntime {
    core: Rc<RefCell<Runtime>>,
    reputation: Arc<Reputation>,
    signal: Arc<Notify>,
    /// Whether the driver currently turns without waiting for a signal.
    turning: Rc<Cell<bool>>,
}

impl TokioRuntime {
    /// Starts the runtime and its driver task. It must be called within the `LocalSet` whose tasks use the runtime.
    ///
    /// # Errors
    /// Fails like [`Runtime::new`].
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

    /// Runs a job and its chain to the end: in one trip if the policy wants that, and else one op after the other. What
    /// a device gives back half done continues. Returns the last op that ran, and the path of the first one.
    pub async fn run_chain(&self, mut job: Box<Job>) -> (Finished, Path) {
        let mut first = None;
        loop {
            let placed = match job.chain.as_ref().and_then(|chain| chain.next_op()) {
                Some(_) => self.try_chain(job),
                None => Err(job),
            };
            let mut finished = match placed {
                Ok(run) => run.await,
                Err(mut alone) => {
                    let chain = alone.chain.take();
                    let mut finished = self.run(alone).await;
                    finished.job.chain = chain;
                    finished
                }
            };
            let first = *first.get_or_insert(finished.path);
            let Outcome::Done { output_bytes } = finished.outcome else { return (finished, first) };
            if !finished.job.advance(output_bytes, finished.service, |_, _| true) {
                return (finished, first);
            }
            // The op that hands over now was counted as a job.
            finished.job.chain.iter_mut().for_each(|chain| chain.set_counted());
            job = finished.job;
        }
    }

    fn try_chain(&self, job: Box<Job>) -> Result<Run, Box<Job>> {
        let mut core = self.core.borrow_mut();
        let ticket = core.submit_chain(job)?;
        if !self.turning.get() && !core.is_finished(ticket) {
            self.signal.notify_one();
        }
        Ok(Run::new(&self.core, ticket))
    }

    /// Submits the job to software for this reason, without asking the policy, and returns a future of its end.
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

    /// Sets the policy for the next and later jobs.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.core.borrow_mut().set_policy(policy);
    }

    /// Records which device wrote the stream of the frame with this checksum.
    #[inline]
    pub fn wrote(&self, device: usize, checksum: u32, stream_bytes: usize) {
        self.reputation.wrote(device, checksum, stream_bytes);
    }

    /// Returns whether the device computes its results by other code than this process's, so that they may be wrong.
    pub fn is_foreign(&self, device: usize) -> bool {
        self.reputation.is_foreign(device)
    }

    /// Returns whether there is such a device.
    pub fn has_foreign_devices(&self) -> bool {
        self.reputation.has_foreign()
    }

    /// Reports that the device read a stream wrong, see [`Runtime::report_misread`].
    pub fn report_misread(&self, device: usize) {
        self.core.borrow_mut().report_misread(device);
    }

    /// Reports a stream that cannot be read, see [`Runtime::report_unreadable`].
    pub fn report_unreadable(&self, checksum: u32, stream_bytes: usize) {
        self.core.borrow_mut().report_unreadable(checksum, stream_bytes);
    }

    /// Returns the core, and a function that makes the driver turn it soon.
    pub(crate) fn shared(&self) -> (Rc<RefCell<Runtime>>, impl Fn() + 'static) {
        let (signal, turning) = (Arc::clone(&self.signal), Rc::clone(&self.turning));
        let wake = move || {
            if !turning.get() {
                signal.notify_one();
            }
        };
        (Rc::clone(&self.core), wake)
    }

    /// Returns the core's counters.
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

/// Runs the driver forever, because jobs in flight on devices would never return without it. A panic in a device
/// ends only one turn.
async fn keep_driving(core: Rc<RefCell<Runtime>>, signal: Arc<Notify>, turning: Rc<Cell<bool>>) {
    loop {
        let driven = drive(Rc::clone(&core), Arc::clone(&signal), Rc::clone(&turning));
        // The core is borrowed only for a turn, and a failed turn leaves it in a state from which the next turn can
        // continue.
        let _ = AssertUnwindSafe(driven).catch_unwind().await;
        turning.set(false);
        core.borrow().metrics().count_driver_restart();
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// The pause after a failed turn. It bounds the cost of a driver that fails in every turn.
const RESTART_PAUSE: Duration = Duration::from_millis(10);

/// Turns the core whenever a device signals, and without pause while a device must be polled. It lives as long as the
/// `LocalSet` on which it was spawned.
async fn drive(core: Rc<RefCell<Runtime>>, signal: Arc<Notify>, turning: Rc<Cell<bool>>) {
    let mut outstanding = core.borrow().outstanding();
    // The driver turns for one round longer than the devices need. Tasks whose jobs just returned are likely to submit
    // more. Those jobs then need neither wake the driver nor read the clock.
    let mut extra_turn = false;
    loop {
        let spins = outstanding.polled.is_some() || extra_turn;
        turning.set(spins);
        if spins {
            // `yield_now` would poll the system for events at each turn, which costs more than a turn. tokio polls the
            // system once in some tens of tasks anyway.
            YieldNow(false).await;
        } else if outstanding.jobs > 0 {
            // A signal may be lost with its device. An occasional turn finds overdue jobs.
            let limit = Duration::from(outstanding.turn_within);
            let _ = tokio::time::timeout(limit, signal.notified()).await;
        } else {
            signal.notified().await;
        }
        let mut runtime = core.borrow_mut();
        let was_polled = runtime.outstanding().polled.is_some();
        let arrivals = runtime.arrivals();
        outstanding = runtime.poll_once();
        // After a turn that submitted jobs, the driver turns again: the submissions took a while, and other jobs may be
        // done. Another turn costs less than a sleep that those jobs would end.
        let submitted = runtime.arrivals() - arrivals;
        let has_worked = submitted > 0 && outstanding.jobs as u64 > submitted;
        extra_turn = (was_polled || has_worked) && outstanding.polled.is_none();
        if outstanding.polled.is_none() && !extra_turn {
            runtime.park();
        }
    }
}

/// One reading of the clock serves everything that happens within this time while a device is polled.
const TIME_RESOLUTION: Nanos = Nanos::micros(1);
