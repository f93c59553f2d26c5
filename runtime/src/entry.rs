//! The runtime's record of one job: who holds its ticket, where the job is, and what is needed to do it again. It makes
//! no decisions.

use std::task::Waker;

use device::{Chain, Class, Completion, Input, Job, Outcome, Pool, Task, TenantId};
use policy::{Choice, Placement, Reason};
use units::{ByteCount, Nanos};

use crate::costs::SubmitSample;

/// The claim to one submitted job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(
    /// The index and the generation of the entry, in one word, which is faster to read than two.
    u64,
);

impl Ticket {
    /// A ticket that belongs to no job.
    pub(crate) const SPENT: Ticket = Ticket(u64::MAX);

    #[inline]
    pub(crate) fn new(key: u32, generation: u32) -> Self {
        Self(u64::from(key) | u64::from(generation) << 32)
    }

    /// Returns the ticket as the tag that the job carries through its device.
    pub(crate) fn mark(self) -> u64 {
        self.0
    }

    pub(crate) fn from_mark(mark: u64) -> Self {
        Self(mark)
    }

    /// Returns the index of the job's entry.
    pub(crate) fn key(self) -> u32 {
        self.0 as u32
    }

    pub(crate) fn index(self) -> usize {
        self.key() as usize
    }

    /// Returns the generation, which distinguishes the jobs of one entry.
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A finished job and the path on which it ran.
#[derive(Debug)]
pub struct Finished {
    /// The job, with its buffers.
    pub job: Box<Job>,
    /// The outcome of the job.
    pub outcome: Outcome,
    /// The path that ran.
    pub path: Path,
    /// The time that the device worked on the job.
    pub service: Nanos,
    /// The time from submission to completion.
    pub total: Nanos,
}

/// The path that a job took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The index of the device.
    pub device: usize,
    /// The placement, which says how the job was waited for.
    pub placement: Placement,
    /// The reason for the path.
    pub reason: Reason,
}

impl From<Choice> for Path {
    #[inline]
    fn from(choice: Choice) -> Self {
        Self { device: choice.device(), placement: choice.placement, reason: choice.reason }
    }
}

/// One job between `submit` and `claim`.
pub(crate) struct Entry {
    pub(crate) generation: u32,
    /// The next free entry after this one, while this entry is free.
    pub(crate) next_free: u32,
    pub(crate) state: State,
    /// Whether the job counts among its tenant's jobs in flight on devices.
    pub(crate) is_counted: bool,
    /// The conditions at the job's submission, if its cost is recorded.
    pub(crate) sample: Option<SubmitSample>,
    /// The tag that the submitter chose.
    pub(crate) tag: u64,
    pub(crate) submitted: Nanos,
    /// The job's current path, or its last one.
    pub(crate) choice: Choice,
    /// The completion of the job, from its end until it is claimed.
    pub(crate) finished: Option<Completion>,
    /// The time from the job's submission to its end.
    pub(crate) total: Nanos,
    pub(crate) waker: Option<Waker>,
    /// The parts for a second attempt. They are stored for jobs that leave the core.
    pub(crate) again: Again,
}

impl Default for Entry {
    fn default() -> Self {
        Self {
            generation: 0,
            next_free: 0,
            state: State::Free,
            is_counted: false,
            sample: None,
            tag: 0,
            submitted: Nanos(0),
            choice: Choice::software(Reason::Policy),
            finished: None,
            total: Nanos(0),
            waker: None,
            again: Again::default(),
        }
    }
}

impl Entry {
    pub(crate) fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.state == State::Detached
    }

    /// Takes the finished job out of the entry.
    #[inline]
    pub(crate) fn take_finished(&mut self) -> Option<Finished> {
        let Completion { job, outcome, service } = self.finished.take()?;
        let (path, total) = (Path::from(self.choice), self.total);
        Some(Finished { job, outcome, path, service, total })
    }

    /// Returns whether the job was placed on a device other than software and is not finished.
    pub(crate) fn is_in_device(&self) -> bool {
        self.choice.device() != 0 && !matches!(self.state, State::Free | State::Finished)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// The job is in flight, and its owner does not wait to be woken yet.
    Waiting,
    /// The job is in flight, and `waker` wakes its owner.
    Awaited,
    /// The job is in flight, and the completion hook continues it, see `core/completion_hook.rs`.
    Hooked,
    /// The job is in flight without an owner.
    Detached,
    Finished,
}

/// The parts needed to do a job again while a device still holds the first attempt. They are written in
/// place, because a job on the fast path pays for each byte that is moved. If a queue shows its jobs, only a
/// size is written. The second attempt's output is from the heap, whatever pool the first output is from.
/// Keeping a handle to the pool would cost every job more than it saves in the rare second attempts.
pub(crate) struct Again {
    /// The input. It is none if nothing needs to be done again, or if the queue shows its jobs.
    input: Option<Input>,
    task: Task,
    /// The size of the output. It is always stored, because a device may replace the buffer with its result.
    output_bytes: usize,
    output_offset: usize,
    /// The bytes that the caller wrote in front of the result: the first bytes of the output.
    header: [u8; HEADER_BYTES_SHORT],
    /// The bytes in front of the result, if they are too many for `header`. Otherwise this is empty.
    header_long: Box<[u8]>,
    deadline: Option<Nanos>,
    tenant: TenantId,
    class: Class,
    chain: Option<Box<Chain>>,
}

impl Default for Again {
    fn default() -> Self {
        Self {
            input: None,
            task: Task::Copy,
            output_bytes: 0,
            output_offset: 0,
            header: [0; HEADER_BYTES_SHORT],
            header_long: Box::default(),
            deadline: None,
            tenant: TenantId::default(),
            class: Class::default(),
            chain: None,
        }
    }
}

impl Again {
    /// Stores the parts that the queue does not show.
    #[inline]
    pub(crate) fn keep_size(&mut self, job: &Job) {
        self.output_bytes = job.output.capacity();
        self.tenant = job.tenant;
    }

    /// Stores all parts, before the job enters a queue that does not show it.
    #[inline]
    pub(crate) fn keep(&mut self, job: &mut Job) {
        self.keep_size(job);
        self.keep_parameters(job);
        match job.output.space().first_chunk() {
            _ if job.output_offset == 0 => {}
            Some(bytes) if job.output_offset <= HEADER_BYTES_SHORT => self.header = *bytes,
            _ => {
                // Without space for its header the job fails anyway. It must not show another job's header.
                self.header = [0; HEADER_BYTES_SHORT];
                let header = job.output.space().get(..job.output_offset);
                self.header_long = header.unwrap_or_default().into();
            }
        }
    }

    /// Stores the remaining parts from a job that its queue shows.
    #[cold]
    pub(crate) fn keep_shown(&mut self, job: &Job) {
        self.keep_parameters(job);
        if job.chain.is_some() {
            // The output may be that of a later op.
            self.output_bytes = self.output_bytes.max(job.output.capacity());
        }
        self.header = [0; HEADER_BYTES_SHORT];
        let filled_bytes = job.output_offset.min(job.output.len());
        let mut header = vec![0; job.output_offset.min(self.output_bytes)];
        header[..filled_bytes].copy_from_slice(&job.output[..filled_bytes]);
        self.header_long = header.into();
    }

    #[inline]
    fn keep_parameters(&mut self, job: &Job) {
        self.input = Some(job.input.clone());
        self.task = job.task.clone();
        self.output_offset = job.output_offset;
        self.deadline = job.deadline;
        self.class = job.class;
        if job.chain.is_some() {
            self.chain.clone_from(&job.chain);
        }
    }

    /// Drops the parts that belong to the job's owner.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.input.is_some() {
            self.input = None;
            self.forget();
        }
    }

    /// Drops the task, which may hold a key, and the header, which belonged to the owner.
    #[inline]
    fn forget(&mut self) {
        self.task = Task::Copy;
        self.chain = None;
        if !self.header_long.is_empty() {
            self.header_long = Box::default();
        }
    }

    pub(crate) fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Returns the size of the job's output buffer at its submission.
    pub(crate) fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Builds the job again from the stored parts.
    pub(crate) fn take(&mut self, tag: u64) -> Option<Box<Job>> {
        let input = self.input.take()?;
        let mut output = Pool::heap(ByteCount(0)).take(self.output_bytes);
        let short = self.header.get(..self.output_offset).unwrap_or_default();
        output.extend(if self.header_long.is_empty() { short } else { &self.header_long });
        let mut job = Job::new(self.task.clone(), input, output);
        job.tag = tag;
        job.output_offset = self.output_offset;
        job.tenant = self.tenant;
        job.class = self.class;
        job.deadline = self.deadline;
        job.chain = self.chain.take();
        job.chain.iter_mut().for_each(|chain| chain.set_redone());
        self.forget();
        Some(Box::new(job))
    }
}

/// The largest header that is stored in place, in bytes. The header of a frame is shorter. The size is fixed,
/// so that the copy needs no function call.
const HEADER_BYTES_SHORT: usize = 32;
