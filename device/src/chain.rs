//! Chains: the ops that follow a job's own op. A device that runs a succession of ops hands the result of one op to the
//! next by itself, and the caller waits once. A job carries what is needed for that: a function from each result to the
//! next op. A device that ends a chain early returns the job as it is then, and anyone may continue from there.
//!
//! A job moves along its chain: [`Job::advance`] makes the result of an op the input of the next op. So a job that a
//! device returns, whether it is done or failed, always states the op at which it is. Nothing else marks the progress.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use units::{Nanos, Op};

use crate::buffer::{Buffer, Input, Pool};
use crate::dictionary::Dictionary;
use crate::job::{Job, Task};

/// What follows an op: prepares the next op from the result. In \[AccelFlow\] an output dispatcher does this.
pub trait Follow: Send + Sync {
    /// Returns the op that follows.
    fn op(&self) -> Op;

    /// Returns the expected size of the op's work (bytes), on which the policy decides before the result is known.
    fn work_bytes(&self) -> usize;

    /// Prepares the op from the result before it, which is `output[offset..]`. It may write the bytes in front of the
    /// result. Returns none if the result needs no further op.
    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next>;

    /// Prepares the op when the op in front of it is done again after a fault. Its first run may have been handed over,
    /// with another result. Returns none if the op must not run twice, as a cipher must not use a nonce twice.
    fn prepare_again(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        self.prepare(output, offset)
    }

    /// Returns what follows as an encoded message `rebate.v1.Follow`, for a device in another process. Returns none if
    /// it must be prepared in this process.
    fn message(&self) -> Option<Vec<u8>> {
        None
    }
}

/// An op that was prepared from the result before it.
pub struct Next {
    /// The op and its parameters.
    pub task: Task,
    /// What the op reads.
    pub input: NextInput,
    /// The buffer for the result. It holds what the caller wants in front of the result.
    pub output: Buffer,
    /// The number of bytes at the start of `output` that the device leaves to the caller.
    pub output_offset: usize,
    /// The dictionary, for a task whose codec needs one.
    pub dictionary: Option<Arc<Dictionary>>,
}

/// What an op of a chain reads.
pub enum NextInput {
    /// A part of the output before it.
    Part(Range<usize>),
    /// Bytes that were made from the result before it.
    Made(Bytes),
}

impl From<Range<usize>> for NextInput {
    fn from(part: Range<usize>) -> Self {
        Self::Part(part)
    }
}

impl NextInput {
    fn len(&self) -> usize {
        match self {
            Self::Part(part) => part.len(),
            Self::Made(bytes) => bytes.len(),
        }
    }
}

/// The ops that follow a job's own op, and those that are done.
#[derive(Clone)]
pub struct Chain {
    first: Op,
    work_bytes: usize,
    follows: Arc<[Arc<dyn Follow>]>,
    /// The number of ops that followed so far.
    at: usize,
    done: Vec<StepDone>,
    /// The number of ops that are done and were counted.
    counted: usize,
    /// Whether each buffer is wiped of other tenants' bytes before the next op writes to it.
    isolates: bool,
    has_ended: bool,
    /// Whether ops are done again that may have been handed over before.
    is_redone: bool,
}

/// An op of a chain that is done and handed its result over.
#[derive(Clone)]
pub struct StepDone {
    /// The op and its parameters.
    pub task: Task,
    /// The bytes that the op read.
    pub input: Input,
    /// The result of the op.
    pub result: Bytes,
    /// The size that costs depend on (bytes), as [`Job::work_bytes`].
    pub work_bytes: usize,
    /// The time for which the device worked on the op. A hand-over counts as work on the op before it.
    pub service: Nanos,
    /// The space for the result, and the part of it in front of the result (bytes).
    space: (usize, usize),
    dictionary: Option<Arc<Dictionary>>,
}

impl Chain {
    /// Makes the chain of a job whose own op is not done.
    pub fn new(job: &Job, follows: Vec<Arc<dyn Follow>>) -> Box<Self> {
        Box::new(Self {
            first: job.task.op(),
            work_bytes: job.work_bytes(),
            follows: follows.into(),
            at: 0,
            done: Vec::new(),
            counted: 0,
            isolates: false,
            has_ended: false,
            is_redone: false,
        })
    }

    /// Returns the op that the job had at its submission.
    pub fn first(&self) -> Op {
        self.first
    }

    /// Returns the size of the whole chain for costs (bytes): that of its first op.
    pub fn work_bytes(&self) -> usize {
        self.work_bytes
    }

    /// Returns all ops behind the first one.
    pub fn follows(&self) -> &[Arc<dyn Follow>] {
        &self.follows
    }

    /// Returns the op that follows next, if the chain goes on.
    pub fn next_op(&self) -> Option<Op> {
        self.next_follow().map(|follow| follow.op())
    }

    /// Returns what follows next, if the chain goes on.
    pub fn next_follow(&self) -> Option<&Arc<dyn Follow>> {
        self.follows.get(self.at).filter(|_| !self.has_ended)
    }

    /// Returns the ops that are done, in their order. The job's own op is not among them.
    pub fn done(&self) -> &[StepDone] {
        &self.done
    }

    /// Returns the ops that are done since the last call, for whoever counts them.
    pub fn take_uncounted(&mut self) -> &[StepDone] {
        let from = std::mem::replace(&mut self.counted, self.done.len());
        &self.done[from..]
    }

    /// Declares that all ops that are done were counted.
    pub fn set_counted(&mut self) {
        self.counted = self.done.len();
    }

    /// Declares that the ops from here on may have run before.
    pub fn set_redone(&mut self) {
        self.is_redone = true;
    }

    /// Sets that buffers are wiped of other tenants' bytes before an op writes to them.
    pub fn isolate(&mut self) {
        self.isolates = true;
    }

    /// Returns the pairs of ops in the chain, the first one first.
    pub fn successions(&self) -> impl Iterator<Item = (Op, Op)> {
        let ops = || self.follows.iter().map(|follow| follow.op());
        std::iter::once(self.first).chain(ops()).zip(ops())
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops = self.follows.iter().map(|follow| follow.op());
        write!(f, "Chain({}", self.first)?;
        ops.clone().try_for_each(|op| write!(f, " > {op}"))?;
        write!(f, ", {} done)", self.done.len())
    }
}

impl Job {
    /// Returns the size on which costs of the job depend with its chain (bytes). It stays the same as the job advances.
    #[inline]
    pub fn trip_bytes(&self) -> usize {
        match &self.chain {
            None => self.work_bytes(),
            Some(chain) => chain.work_bytes,
        }
    }

    /// Makes the result of the job's op the input of the next op of its chain. `output_bytes` is the size of the
    /// result, and `service` the time that the op took. `takes` says whether the caller takes the op, given its task
    /// and its size. Returns whether the job is now at the next op. If not, it is unchanged: it has no next op, or the
    /// caller does not take it and somebody else may.
    pub fn advance(
        &mut self,
        output_bytes: usize,
        service: Nanos,
        takes: impl FnOnce(&Task, usize) -> bool,
    ) -> bool {
        let work_bytes = self.work_bytes();
        let Some(chain) = self.chain.as_mut() else { return false };
        let Some(follow) = chain.follows.get(chain.at).filter(|_| !chain.has_ended) else {
            return false;
        };
        let (offset, capacity) = (self.output_offset, self.output.capacity());
        let next = match chain.is_redone {
            false => follow.prepare(&mut self.output, offset),
            true => follow.prepare_again(&mut self.output, offset),
        };
        let Some(mut next) = next else {
            chain.has_ended = true;
            return false;
        };
        let next_bytes = match next.task {
            Task::Decompress { original_bytes, .. } => original_bytes,
            _ => next.input.len(),
        };
        if !takes(&next.task, next_bytes) {
            return false;
        }
        if chain.isolates {
            next.output.assign_to(self.tenant, next.output_offset);
        }
        let output = std::mem::replace(&mut self.output, next.output);
        let memory = output.memory();
        let filled = output.len();
        let whole = output.freeze(0..filled);
        let result = whole.slice(offset..offset + output_bytes);
        let input = match next.input {
            NextInput::Part(part) => Input::in_memory(whole.slice(part), memory),
            NextInput::Made(bytes) => Input::heap(bytes),
        };
        chain.done.push(StepDone {
            task: std::mem::replace(&mut self.task, next.task),
            input: std::mem::replace(&mut self.input, input),
            result,
            work_bytes,
            service,
            space: (capacity, offset),
            dictionary: std::mem::replace(&mut self.dictionary, next.dictionary),
        });
        chain.at += 1;
        self.output_offset = next.output_offset;
        true
    }

    /// Takes the job back to the first op of its chain. What was done counts no more. The bytes in front of the first
    /// result are lost, because only [`Follow::prepare`] writes them.
    pub fn rewind(&mut self) {
        let Some(chain) = self.chain.as_mut() else { return };
        chain.has_ended = false;
        chain.is_redone = true;
        (chain.at, chain.counted) = (0, 0);
        let Some(first) = chain.done.drain(..).next() else { return };
        let (capacity, offset) = first.space;
        (self.task, self.input, self.output_offset) = (first.task, first.input, offset);
        self.dictionary = first.dictionary;
        self.output = Pool::heap(units::ByteCount(0)).take(capacity);
        if chain.isolates {
            self.output.assign_to(self.tenant, offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use units::ByteCount;

    use super::*;
    use crate::job::{Outcome, TenantId};
    use crate::queue::Device;
    use crate::software::Software;

    /// Copies the result so far, in front of which it writes a mark, or ends the chain.
    struct CopyOn {
        ends: bool,
        pool: Pool,
    }

    impl Follow for CopyOn {
        fn op(&self) -> Op {
            Op::Copy
        }

        fn work_bytes(&self) -> usize {
            10
        }

        fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
            output[..offset].fill(b'>');
            let filled = output.len();
            (!self.ends).then(|| Next {
                task: Task::Copy,
                input: (0..filled).into(),
                output: self.pool.take(filled + 1),
                output_offset: 1,
                dictionary: None,
            })
        }
    }

    fn job(ends: [bool; 2], pool: &Pool) -> Box<Job> {
        let input = Input::heap(Bytes::from_static(b"text"));
        let mut job = Job::new(Task::Copy, input, pool.take(6));
        job.output_offset = 2;
        let follow = |ends| Arc::new(CopyOn { ends, pool: pool.clone() }) as Arc<dyn Follow>;
        job.chain = Some(Chain::new(&job, ends.map(follow).into()));
        Box::new(job)
    }

    fn run(job: Box<Job>) -> Box<Job> {
        let device = Software::default();
        let mut queue = device.open_queue(std::task::Waker::noop().clone()).expect("it opens");
        queue.try_submit(job).expect("it has room");
        let mut done = Vec::new();
        queue.poll(&mut done);
        let completion = done.pop().expect("it is inline");
        assert!(matches!(completion.outcome, Outcome::Done { .. }));
        completion.job
    }

    #[test]
    fn a_job_moves_along_its_chain() {
        let job = run(job([false, false], &Pool::heap(ByteCount(0))));
        assert_eq!(job.output[1..], b">>>text"[..]);
        let chain = job.chain.as_ref().expect("it keeps its chain");
        assert_eq!((chain.done().len(), chain.next_op()), (2, None));
        assert_eq!(chain.done()[0].result, b"text"[..]);
        assert_eq!(job.trip_bytes(), 4);
    }

    #[test]
    fn a_chain_ends_where_nothing_follows() {
        let job = run(job([true, false], &Pool::heap(ByteCount(0))));
        assert_eq!(job.output[..], b">>text"[..]);
        let chain = job.chain.as_ref().expect("it keeps its chain");
        assert_eq!((chain.done().len(), chain.next_op()), (0, None));
    }

    #[test]
    fn a_job_that_nobody_takes_stays_where_it_is() {
        let pool = Pool::heap(ByteCount(0));
        let mut job = job([false, false], &pool);
        job.output.extend(b"..text");
        assert!(!job.advance(4, Nanos(1), |task, bytes| {
            assert_eq!((task, bytes), (&Task::Copy, 6));
            false
        }));
        assert_eq!(job.chain.as_ref().and_then(|chain| chain.next_op()), Some(Op::Copy));
        assert!(job.advance(4, Nanos(1), |_, _| true));
        assert_eq!(job.input[..], b">>text"[..]);
    }

    #[test]
    fn a_rewound_job_gives_the_same_again() {
        let mut job = run(job([false, false], &Pool::heap(ByteCount(0))));
        let first = job.output[1..].to_vec();
        job.rewind();
        assert_eq!((job.input[..].to_vec(), job.output_offset), (b"text".to_vec(), 2));
        assert_eq!(run(job).output[1..], first[..]);
    }

    #[test]
    fn no_buffer_of_a_chain_shows_another_tenants_bytes() {
        let pool = Pool::heap(ByteCount::kib(64));
        for _ in 0..4 {
            let mut used = pool.take(64);
            used.space().fill(0xAA);
        }
        let mut job = job([false, false], &pool);
        job.tenant = TenantId(3);
        job.chain.as_mut().expect("it has one").isolate();
        job.output.assign_to(job.tenant, 0);
        let mut job = run(job);
        assert!(!job.output.space().contains(&0xAA));
    }
}
