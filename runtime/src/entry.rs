//! The runtime's books on one job: who holds the ticket, where the job is, and what it takes to do
//! it again. No decisions.

use std::task::Waker;

use device::{Class, Input, Job, Outcome, Pool, Task, TenantId};
use policy::{Choice, Placement, Reason};
use units::{ByteCount, Nanos};

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
    /// Whether `waker` is this job's.
    pub(crate) is_awaited: bool,
    /// The submitter's own tag.
    pub(crate) tag: u64,
    pub(crate) submitted: Nanos,
    /// Where it is, or was last.
    pub(crate) choice: Choice,
    pub(crate) state: State,
    pub(crate) waker: Option<Waker>,
    /// Kept for jobs that leave the core.
    pub(crate) again: Option<Again>,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            generation: 0,
            is_awaited: false,
            tag: 0,
            submitted: Nanos(0),
            choice: Choice::software(Reason::Policy),
            state: State::Free,
            waker: None,
            again: None,
        }
    }
}

impl Entry {
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.state, State::Finished(_))
    }

    pub(crate) fn is_detached(&self) -> bool {
        matches!(self.state, State::Detached)
    }

    /// Whether a device has it.
    pub(crate) fn is_inside(&self) -> bool {
        self.choice.device != 0 && matches!(self.state, State::Waiting | State::Detached)
    }
}

pub(crate) enum State {
    Free,
    Waiting,
    Finished(Finished),
    Detached,
}

/// What it takes to do a job again while a device still holds the first try. The second try's output is from the
/// heap, whatever pool the first one's is from: holding on to the pool would cost every job more than the rare
/// second try is worth.
pub(crate) struct Again {
    task: Task,
    input: Input,
    output_bytes: usize,
    header: Header,
    output_offset: usize,
    tenant: TenantId,
    class: Class,
    deadline: Option<Nanos>,
}

/// What the caller wrote ahead of the result.
enum Header {
    /// The output's first bytes, at least as many as the header has.
    Short([u8; HEADER_BYTES_SHORT]),
    Long(Box<[u8]>),
}

impl Again {
    pub(crate) fn of(job: &mut Job) -> Self {
        let offset = job.output_offset;
        let output_bytes = job.output.capacity();
        let header = match job.output.space().first_chunk() {
            Some(bytes) if offset <= HEADER_BYTES_SHORT => Header::Short(*bytes),
            _ => Header::Long(job.output.space().get(..offset).unwrap_or_default().into()),
        };
        Self {
            task: job.task.clone(),
            input: job.input.clone(),
            output_bytes,
            header,
            output_offset: offset,
            tenant: job.tenant,
            class: job.class,
            deadline: job.deadline,
        }
    }

    pub(crate) fn into_job(self, tag: u64) -> Box<Job> {
        let mut output = Pool::heap(ByteCount(0)).take(self.output_bytes);
        match &self.header {
            Header::Short(bytes) => output.extend(&bytes[..self.output_offset]),
            Header::Long(bytes) => output.extend(bytes),
        }
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

/// Frames' headers are shorter; a fixed size is copied without a call.
const HEADER_BYTES_SHORT: usize = 32;
