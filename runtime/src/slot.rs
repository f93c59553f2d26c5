//! One device as one runtime sees it: its queue, how many jobs are waited for there, and whether
//! it is retired.

use std::sync::Arc;
use std::task::Waker;

use device::{Capabilities, Completion, Device, DeviceError, Job, Queue, Refused, Task, Waiting};
use policy::DeviceState;
use units::Nanos;

use crate::estimates::{Estimates, OPS};

pub(crate) struct Slot {
    pub(crate) device: Arc<dyn Device>,
    queue: Box<dyn Queue>,
    /// As the device states them: looked at for every job.
    pub(crate) capabilities: Capabilities,
    /// Jobs taken and not yet handed over, those that timed out included.
    pub(crate) inside: usize,
    /// Jobs inside that did not time out, those given up included: the device works on them as on any other.
    pub(crate) waiting: usize,
    /// Polled and not yet handed over, the last first: a poll may give more than one turn is to take.
    polled: Vec<Completion>,
    pub(crate) retired: Option<Retired>,
    pub(crate) estimates: Estimates,
    /// Whether it takes a job, by op: asked for every job, and the answer is in lists.
    eligible: [Eligible; OPS],
}

/// The last answers for one shape of task: accepted up to a size, refused from one on.
#[derive(Clone, Copy)]
struct Eligible {
    shape: Shape,
    accepted_bytes: Option<usize>,
    refused_bytes: Option<usize>,
}

/// What a device's answer depends on apart from the size, in a word that is quickly compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape(u32);

impl Shape {
    /// Of no task.
    const NONE: Shape = Shape(u32::MAX);

    #[inline]
    pub(crate) fn of(task: &Task) -> Self {
        let op = task.op().index() as u32;
        let rest = match task {
            Task::Compress { dialect, .. } | Task::Decompress { dialect, .. } => {
                let window = dialect.window_log2.map_or(0, |log2| 1 + u32::from(log2));
                dialect.codec as u32 | window << 8
            }
            Task::Checksum { polynomial } => *polynomial as u32,
            Task::Encrypt { .. } | Task::Decrypt { .. } | Task::Copy => 0,
        };
        Self(op | rest << 8)
    }
}

/// One job as the slots are asked about it.
pub(crate) struct Asked<'a> {
    pub(crate) task: &'a Task,
    pub(crate) shape: Shape,
    pub(crate) work_bytes: usize,
}

impl<'a> Asked<'a> {
    #[inline]
    pub(crate) fn of(job: &'a Job) -> Self {
        Self { task: &job.task, shape: Shape::of(&job.task), work_bytes: job.work_bytes() }
    }
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
            capabilities: device.capabilities().clone(),
            inside: 0,
            waiting: 0,
            polled: Vec::new(),
            retired: None,
            estimates: Estimates::new(),
            eligible: [Eligible { shape: Shape::NONE, accepted_bytes: None, refused_bytes: None };
                OPS],
        })
    }

    #[inline]
    pub(crate) fn submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.queue.try_submit(job)?;
        self.inside += 1;
        Ok(())
    }

    /// Polls the device, if all that it gave before is handed over.
    #[inline]
    pub(crate) fn poll(&mut self) {
        if self.polled.is_empty() {
            self.queue.poll(&mut self.polled);
            self.polled.reverse();
        }
    }

    /// Hands over one completion of the last poll.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Completion> {
        let completion = self.polled.pop()?;
        self.inside = self.inside.saturating_sub(1);
        Some(completion)
    }

    /// How soon someone must poll, if someone must.
    #[inline]
    pub(crate) fn poll_within(&self) -> Option<Nanos> {
        match self.capabilities.waiting {
            // For what timed out, a look at every expiry check is enough.
            _ if self.waiting == 0 => None,
            // What a signal announced and one turn was too short to hand over is not announced again.
            _ if !self.polled.is_empty() => Some(Nanos(0)),
            Waiting::Polled { expected } => Some(expected),
            Waiting::Inline | Waiting::Signalled => None,
        }
    }

    /// Tells the device that nobody waits for the job of this tag.
    pub(crate) fn cancel(&mut self, tag: u64) {
        self.queue.cancel(tag);
    }

    /// Jobs that the device has.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.inside.saturating_sub(self.polled.len())
    }

    /// What a policy sees of it, apart from what depends on a job.
    pub(crate) fn state(&self) -> DeviceState {
        DeviceState {
            eligible: false,
            healthy: self.retired.is_none(),
            depth: self.depth(),
            capacity: self.capabilities.queue_depth,
            estimated: None,
            host: None,
        }
    }

    /// Brings what a policy sees up to date for the job.
    #[inline]
    pub(crate) fn update(&mut self, state: &mut DeviceState, asked: &Asked<'_>) {
        state.healthy = self.retired.is_none();
        state.eligible = state.healthy && self.accepts(asked);
        state.depth = self.depth();
        state.estimated = self.estimates.of(asked.task.op(), asked.work_bytes);
    }

    /// Whether the device has as many jobs as it holds.
    pub(crate) fn is_full(&self) -> bool {
        self.depth() >= self.capabilities.queue_depth
    }

    /// As [`Capabilities::accepts`]: what is accepted at one size is at every smaller one.
    #[inline]
    fn accepts(&mut self, asked: &Asked<'_>) -> bool {
        let known = &self.eligible[asked.task.op().index() % OPS];
        if known.shape == asked.shape {
            if known.accepted_bytes.is_some_and(|bytes| asked.work_bytes <= bytes) {
                return true;
            }
            if known.refused_bytes.is_some_and(|bytes| asked.work_bytes >= bytes) {
                return false;
            }
        }
        self.ask(asked)
    }

    #[cold]
    fn ask(&mut self, asked: &Asked<'_>) -> bool {
        let known = &mut self.eligible[asked.task.op().index() % OPS];
        if known.shape != asked.shape {
            *known = Eligible { shape: asked.shape, accepted_bytes: None, refused_bytes: None };
        }
        let accepted = self.capabilities.accepts(asked.task, asked.work_bytes);
        let bound = if accepted { &mut known.accepted_bytes } else { &mut known.refused_bytes };
        *bound = Some(asked.work_bytes);
        accepted
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
        let capabilities = &self.capabilities;
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
