//! One device as one runtime sees it: its queue, how many jobs are waited for there, and whether
//! it is retired.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use device::{Completion, Device, DeviceError, Job, Queue, Refused, Waiting};
use policy::DeviceState;
use units::Nanos;

pub(crate) struct Slot {
    pub(crate) device: Arc<dyn Device>,
    queue: Box<dyn Queue>,
    /// How its completions are learnt.
    pub(crate) learnt: Waiting,
    /// Jobs taken and not yet handed over, those that timed out included.
    pub(crate) inside: usize,
    /// Jobs inside that are not given up and did not time out.
    pub(crate) waiting: usize,
    /// Polled and not yet handed over: a poll may give more than one turn is to take.
    polled: VecDeque<Completion>,
    pub(crate) retired: Option<Retired>,
}

/// When a retired device is tried again.
pub(crate) struct Retired {
    probe_at: Nanos,
    wait: Nanos,
}

impl Slot {
    pub(crate) fn open(device: &Arc<dyn Device>, waker: Waker) -> Result<Self, DeviceError> {
        let queue = device.open_queue(waker)?;
        Ok(Self {
            device: Arc::clone(device),
            queue,
            learnt: device.capabilities().waiting,
            inside: 0,
            waiting: 0,
            polled: VecDeque::new(),
            retired: None,
        })
    }

    pub(crate) fn submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.queue.try_submit(job)?;
        self.inside += 1;
        Ok(())
    }

    /// Polls the device, if all that it gave before is handed over.
    pub(crate) fn poll(&mut self) {
        if self.polled.is_empty() {
            let mut done = Vec::from(std::mem::take(&mut self.polled));
            self.queue.poll(&mut done);
            self.polled = VecDeque::from(done);
        }
    }

    /// Hands over one completion of the last poll.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        let completion = self.polled.pop_front()?;
        self.inside = self.inside.saturating_sub(1);
        Some(completion)
    }

    /// Tells the device that nobody waits for the job of this tag.
    pub(crate) fn cancel(&mut self, tag: u64) {
        self.queue.cancel(tag);
    }

    /// Jobs that the device has.
    pub(crate) fn depth(&self) -> usize {
        self.inside.saturating_sub(self.polled.len())
    }

    pub(crate) fn state(&self, job: &Job) -> DeviceState {
        let capabilities = self.device.capabilities();
        let healthy = self.retired.is_none();
        DeviceState {
            eligible: healthy && capabilities.accepts(&job.task, job.work_bytes()),
            healthy,
            depth: self.depth(),
            capacity: capabilities.queue_depth,
            estimated: None,
            host: None,
        }
    }

    /// Whether it was healthy until now.
    pub(crate) fn retire(&mut self, now: Nanos, reprobe_after: Nanos) -> bool {
        let was_healthy = self.retired.is_none();
        if was_healthy {
            self.retired = Some(Retired::until(now, reprobe_after));
        }
        was_healthy
    }

    /// Whether the job may show that a retired device is back. Never while jobs are waited for
    /// there: a probe takes a queue of its own, and the old one goes with all that is in it.
    pub(crate) fn may_probe(&self, job: &Job, now: Nanos) -> bool {
        let due = self.retired.as_ref().is_some_and(|retired| now >= retired.probe_at);
        let capabilities = self.device.capabilities();
        due && self.waiting == 0 && capabilities.accepts(&job.task, job.work_bytes())
    }

    /// Opens a queue anew and sets when the next probe is due should this one fail.
    pub(crate) fn reopen(
        &mut self,
        now: Nanos,
        reprobe_after: Nanos,
        waker: Waker,
    ) -> Result<(), DeviceError> {
        if let Some(retired) = &mut self.retired {
            let longest = reprobe_after.0.saturating_mul(PROBE_WAITS_MAX);
            let wait = Nanos(retired.wait.0.saturating_mul(2).min(longest));
            *retired = Retired::until(now, wait);
        }
        self.queue = self.device.open_queue(waker)?;
        self.inside = 0;
        self.polled.clear();
        Ok(())
    }
}

impl Retired {
    fn until(now: Nanos, wait: Nanos) -> Self {
        Self { probe_at: Nanos(now.0.saturating_add(wait.0)), wait }
    }
}

/// The longest wait between probes, in multiples of the first: six failures in a row.
const PROBE_WAITS_MAX: u64 = 64;
