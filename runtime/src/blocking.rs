//! The runtime for a plain thread: a call returns when its job is done. The thread spins while it must poll a
//! device, and sleeps while it waits for a signal. The runtime needs no executor and no other thread.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use device::Job;
use policy::Policy;

use crate::config::{RuntimeConfig, StartError};
use crate::core::Runtime;
use crate::entry::Finished;
use crate::metrics::Metrics;

/// A runtime for the thread that opened it.
pub struct BlockingRuntime {
    core: Runtime,
}

impl BlockingRuntime {
    /// Opens one queue per device for the calling thread.
    ///
    /// # Errors
    /// Fails like [`Runtime::new`].
    pub fn open(config: RuntimeConfig) -> Result<Self, StartError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        Ok(Self { core: Runtime::new(config, &waker)? })
    }

    /// Runs the job on the device that the policy chooses, and returns when it is done.
    pub fn run_blocking(&mut self, job: Box<Job>) -> Finished {
        let ticket = self.core.submit(job);
        loop {
            // A waker is not necessary, because no other task uses the thread and this loop claims the job itself.
            let claimed = self.core.claim(ticket, &mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(finished) = claimed {
                return finished;
            }
            let outstanding = self.core.outstanding();
            if outstanding.polled.is_some() {
                std::hint::spin_loop();
            } else {
                // A signal may be lost with its device. An occasional turn finds overdue jobs.
                thread::park_timeout(Duration::from(outstanding.turn_within));
            }
            self.core.turn();
        }
    }

    /// Sets the policy for the next and later jobs.
    pub fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.core.set_policy(policy);
    }

    /// Returns the runtime's counters.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.core.metrics()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
