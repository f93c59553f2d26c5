//! The runtime in tokio's current-thread executor: `run(job).await` in a task of a `LocalRuntime` or
//! a `LocalSet`. Jobs
//! on signalled devices wake the driver task; jobs on polled devices keep it turning while they
//! last; an idle runtime costs nothing. It needs tokio's timer.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use device::Job;
use policy::{Policy, Reason};
use tokio::sync::Notify;

use crate::config::{RuntimeConfig, StartError};
use crate::core::Runtime;
use crate::entry::{Finished, Ticket};
use crate::metrics::Metrics;

/// A core's runtime, shared by the tasks of its thread.
#[derive(Clone)]
pub struct TokioRuntime {
    core: Rc<RefCell<Runtime>>,
    signal: Arc<Notify>,
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
        let core = Rc::new(RefCell::new(Runtime::new(config, &waker)?));
        tokio::task::spawn_local(drive(Rc::clone(&core), Arc::clone(&signal)));
        Ok(Self { core, signal })
    }

    /// Submits the job now and returns a future of its end. Dropping the future detaches the job.
    pub fn run(&self, job: Box<Job>) -> Run {
        self.start_job(|core| core.submit(job))
    }

    /// As [`TokioRuntime::run`], in software whatever the policy: for a job whose device gave a
    /// wrong result.
    pub fn run_in_software(&self, job: Box<Job>) -> Run {
        self.start_job(|core| core.submit_to_software(job, Reason::DeviceFault))
    }

    fn start_job(&self, submit: impl FnOnce(&mut Runtime) -> Ticket) -> Run {
        let mut core = self.core.borrow_mut();
        let ticket = submit(&mut core);
        if !core.is_finished(ticket) {
            self.signal.notify_one();
        }
        Run { core: Rc::clone(&self.core), ticket: Some(ticket) }
    }

    /// Follows another policy from the next job on.
    pub fn set_policy(&self, policy: Arc<dyn Policy>) {
        self.core.borrow_mut().set_policy(policy);
    }

    /// The core's counters.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.core.borrow().metrics()
    }
}

/// A submitted job.
pub struct Run {
    core: Rc<RefCell<Runtime>>,
    ticket: Option<Ticket>,
}

impl Future for Run {
    type Output = Finished;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Finished> {
        let ticket = self.ticket.expect("a finished job is polled no more");
        let claimed = self.core.borrow_mut().claim(ticket, context);
        if claimed.is_ready() {
            self.ticket = None;
        }
        claimed
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.core.borrow_mut().detach(ticket);
        }
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

/// Turns the core whenever a device signals, and without pause while a device must be polled.
/// Lives as long as the `LocalSet` that it was spawned on.
async fn drive(core: Rc<RefCell<Runtime>>, signal: Arc<Notify>) {
    let mut outstanding = core.borrow().outstanding();
    loop {
        if outstanding.polled.is_some() {
            tokio::task::yield_now().await;
        } else if outstanding.jobs > 0 {
            // A signal may be lost with its device: a turn now and then finds what is overdue.
            let limit = Duration::from(outstanding.turn_within);
            let _ = tokio::time::timeout(limit, signal.notified()).await;
        } else {
            signal.notified().await;
        }
        outstanding = core.borrow_mut().turn();
    }
}
