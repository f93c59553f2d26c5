//! The parts that all experiments of this folder share: the session, the plan and the platforms.

use super::closed::Closed;
use super::plan::Plan;
use super::platform::Platform;
use super::work::Stock;
use crate::base::Session;

/// The plan, the platforms and the data of the experiments.
pub(super) struct Setup {
    pub(super) plan: Plan,
    /// The machine of \[OffloadSched\], emulated. `own_codec` has our codec with the same device, and `worker` has a
    /// worker thread.
    pub(super) published: Platform,
    pub(super) own_codec: Platform,
    pub(super) worker: Platform,
    /// The worker thread's core, if the thread is pinned to one.
    pub(super) worker_core: Option<usize>,
    pub(super) on_chip: Platform,
    /// Other projects' codecs on the calling core.
    pub(super) libraries: Vec<Platform>,
    /// The data that is compressed.
    pub(super) stock: Stock,
    pub(super) session: Session,
}

impl Setup {
    /// Opens every platform.
    ///
    /// # Errors
    /// A platform does not open.
    pub(super) fn new(
        plan: Plan,
        libraries: Vec<Platform>,
        session: &Session,
    ) -> Result<Self, String> {
        let (worker, worker_core) = Platform::worker()?;
        Ok(Self {
            plan,
            published: Platform::published()?,
            own_codec: Platform::own_codec()?,
            worker,
            worker_core,
            on_chip: Platform::on_chip()?,
            libraries,
            stock: Stock::new()?,
            session: session.clone(),
        })
    }

    /// Returns a text that says on which cores the threads run.
    pub(super) fn conditions(&self) -> String {
        let others = "threads not pinned";
        match self.worker_core {
            Some(core) => format!("in one process, {others} but the worker's, to core {core}"),
            None => format!("in one process, {others}"),
        }
    }

    /// Returns the platforms on which modes are compared.
    pub(super) fn platforms(&self) -> [&Platform; 3] {
        [&self.published, &self.own_codec, &self.worker]
    }

    /// Returns the closed loop of \[OffloadSched\] with `in_flight` tasks in flight.
    pub(super) fn closed(&self, in_flight: usize) -> Closed {
        let requests = self.plan.requests;
        Closed { in_flight, requests, poll_interval: None, dequeue_batch: None }
    }
}
