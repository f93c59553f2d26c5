//! The runtime's books on one job: who holds the ticket, where the job is, and what it takes to do
//! it again. No decisions.

use std::task::Waker;

use device::{Class, Input, Job, Outcome, Pool, Task, TenantId};
use policy::{Choice, Placement, Reason};
use units::Nanos;

/// The claim to one submitted job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) key: u32,
    pub(crate) generation: u32,
}

impl Ticket {
    /// The ticket as the tag that the job carries through its device.
    pub(crate) fn mark(self) -> u64 {
        u64::from(self.key) | u64::from(self.generation) << 32
    }

    pub(crate) fn from_mark(mark: u64) -> Self {
        Self { key: mark as u32, generation: (mark >> 32) as u32 }
    }

    pub(crate) fn index(self) -> usize {
        self.key as usize
    }
}

/// A finished job and how it got there.
#[derive(Debug)]
pub struct Finished {
    /// The job, with its buffers.
    pub job: Box<Job>,
    /// What became of it.
    pub outcome: Outcome,
    /// Which path ran.
    pub path: Path,
    /// Time the device worked on it (ns).
    pub service: Nanos,
    /// Time from submission to completion (ns).
    pub total: Nanos,
}

/// Which path a job took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Index of the device.
    pub device: usize,
    /// How it was waited for.
    pub placement: Placement,
    /// Why there.
    pub reason: Reason,
}

impl From<Choice> for Path {
    fn from(choice: Choice) -> Self {
        Self { device: choice.device, placement: choice.placement, reason: choice.reason }
    }
}

/// One job between `submit` and `claim`.
pub(crate) struct Entry {
    pub(crate) generation: u32,
    /// The submitter's own tag.
    pub(crate) tag: u64,
    pub(crate) submitted: Nanos,
    /// Where it is, or was last.
    pub(crate) choice: Choice,
    /// Kept for jobs that leave the core.
    pub(crate) again: Option<Box<Again>>,
    pub(crate) state: State,
}

impl Entry {
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished(_))
    }

    pub(crate) fn is_detached(&self) -> bool {
        matches!(self.state, State::Detached)
    }
}

pub(crate) enum State {
    Waiting(Option<Waker>),
    Finished(Finished),
    Detached,
}

/// What it takes to do a job again while a device still holds the first try.
pub(crate) struct Again {
    task: Task,
    input: Input,
    output_bytes: usize,
    pool: Pool,
    /// What the caller wrote ahead of the result.
    header: Vec<u8>,
    output_offset: usize,
    tenant: TenantId,
    class: Class,
    deadline: Option<Nanos>,
}

impl Again {
    pub(crate) fn of(job: &mut Job) -> Box<Self> {
        let header = job.output.space().get(..job.output_offset).unwrap_or_default().to_vec();
        Box::new(Self {
            task: job.task,
            input: job.input.clone(),
            output_bytes: job.output.capacity(),
            pool: job.output.pool().clone(),
            header,
            output_offset: job.output_offset,
            tenant: job.tenant,
            class: job.class,
            deadline: job.deadline,
        })
    }

    pub(crate) fn into_job(self, tag: u64) -> Box<Job> {
        let mut output = self.pool.take(self.output_bytes);
        output.extend(&self.header);
        Box::new(Job {
            tag,
            task: self.task,
            input: self.input,
            output,
            output_offset: self.output_offset,
            tenant: self.tenant,
            class: self.class,
            deadline: self.deadline,
        })
    }
}
