//! The state that every experiment shares: the plan, the platforms, the progress bar and the flag that stops the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;

use super::closed::Closed;
use super::plan::Plan;
use super::platform::Platform;
use super::work::Stock;

/// The plan and everything that its experiments run on.
pub(super) struct Lab {
    pub(super) plan: Plan,
    /// The machine of \[OffloadSched\], emulated. Then come our codec with the same device, and a worker thread.
    pub(super) published: Platform,
    pub(super) own_codec: Platform,
    pub(super) worker: Platform,
    /// The one core of the worker thread, if the system keeps it there.
    pub(super) worker_core: Option<usize>,
    pub(super) on_chip: Platform,
    /// Other projects' codecs on the calling core.
    pub(super) libraries: Vec<Platform>,
    /// The data that is compressed.
    pub(super) stock: Stock,
    stop: Arc<AtomicBool>,
    progress: ProgressBar,
}

impl Lab {
    /// Opens every platform.
    ///
    /// # Errors
    /// A platform does not open.
    pub(super) fn new(
        plan: Plan,
        libraries: Vec<Platform>,
        stop: Arc<AtomicBool>,
        progress: ProgressBar,
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
            stop,
            progress,
        })
    }

    /// Returns where threads run.
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

    /// Returns the closed loop of \[OffloadSched\] with so many tasks in flight.
    pub(super) fn closed(&self, in_flight: usize) -> Closed {
        let requests = self.plan.requests;
        Closed { in_flight, requests, poll_interval: None, dequeue_batch: None }
    }

    /// Announces an experiment of so many samples.
    pub(super) fn begin(&self, name: &str, samples: usize) {
        self.progress.set_prefix(name.to_owned());
        self.progress.set_position(0);
        self.progress.set_length(samples as u64);
    }

    /// Takes one sample, unless the run has to stop.
    ///
    /// # Errors
    /// The sample failed, and the text says which; or the run has to stop.
    pub(super) fn take<T>(
        &self,
        what: &str,
        sample: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        self.progress.set_message(what.to_owned());
        if self.is_to_stop() {
            return Err("stopped".to_owned());
        }
        let taken = sample().map_err(|error| format!("{what}: {error}"));
        self.progress.inc(1);
        taken
    }

    /// Returns whether the run was interrupted.
    pub(super) fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Removes the progress bar.
    pub(super) fn end(&self) {
        self.progress.finish_and_clear();
    }
}
