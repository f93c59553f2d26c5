//! What every experiment shares: the plan, the machines to run on, the progress bar and the wish to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use indicatif::ProgressBar;

use super::closed::Closed;
use super::plan::Plan;
use super::platform::Platform;
use super::work::Stock;

/// Where experiments are made.
pub(super) struct Lab {
    pub(super) plan: Plan,
    /// The seed's machine, then our codec beside the same device, then a worker thread.
    pub(super) published: Platform,
    pub(super) own_codec: Platform,
    pub(super) worker: Platform,
    /// The one core of the worker thread, if the system keeps it there.
    pub(super) worker_core: Option<usize>,
    pub(super) on_chip: Platform,
    /// Others' codecs on the calling core.
    pub(super) libraries: Vec<Platform>,
    /// What is compressed.
    pub(super) stock: Stock,
    stop: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Lab {
    /// With every platform open.
    ///
    /// # Errors
    /// A platform that does not open.
    pub(super) fn new(
        plan: Plan,
        libraries: Vec<Platform>,
        stop: Arc<AtomicBool>,
        bar: ProgressBar,
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
            bar,
        })
    }

    /// Where threads run.
    pub(super) fn conditions(&self) -> String {
        let others = "threads not pinned";
        match self.worker_core {
            Some(core) => format!("in one process, {others} but the worker's, to core {core}"),
            None => format!("in one process, {others}"),
        }
    }

    /// Those that modes are compared on.
    pub(super) fn platforms(&self) -> [&Platform; 3] {
        [&self.published, &self.own_codec, &self.worker]
    }

    /// The seed's closed loop with so many tasks under way.
    pub(super) fn closed(&self, in_flight: usize) -> Closed {
        let requests = self.plan.requests;
        Closed { in_flight, requests, poll_interval: None, dequeue_batch: None }
    }

    /// Announces an experiment of so many samples.
    pub(super) fn begin(&self, name: &str, samples: usize) {
        self.bar.set_prefix(name.to_owned());
        self.bar.set_position(0);
        self.bar.set_length(samples as u64);
    }

    /// One sample, unless the run is to stop.
    ///
    /// # Errors
    /// Those of the sample, with what it was of; that the run is to stop.
    pub(super) fn take<T>(
        &self,
        what: &str,
        sample: impl FnOnce() -> Result<T, String>,
    ) -> Result<T, String> {
        self.bar.set_message(what.to_owned());
        if self.is_to_stop() {
            return Err("stopped".to_owned());
        }
        let taken = sample().map_err(|error| format!("{what}: {error}"));
        self.bar.inc(1);
        taken
    }

    /// Whether the run was interrupted.
    pub(super) fn is_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The bar is not needed any more.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
