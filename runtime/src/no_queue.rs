//! The queue of a device that takes no jobs.

use device::{Completion, Job, Queue, Refused, RefusedReason};

/// Refuses every job for this reason.
pub(crate) struct NoQueue(pub(crate) RefusedReason);

impl Queue for NoQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        Err(Refused { job, reason: self.0 })
    }

    fn poll(&mut self, _done: &mut Vec<Completion>) -> usize {
        0
    }

    fn pending(&self) -> usize {
        0
    }
}
