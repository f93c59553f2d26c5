//! A test harness for one queue. It makes tagged jobs with buffers between canaries, waits as the device
//! requires, and tracks every job in flight.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use units::ByteCount;

use crate::buffer::{Input, Memory, MemoryBlock, MemoryId, Pool};
use crate::job::{Completion, DeviceError, Job, Outcome, Task, TenantId};
use crate::queue::{Device, Queue, RefusedReason, Waiting};

/// One thread's queue under test. Every call checks `pending`, and dropping the harness checks that the canaries are
/// intact.
pub(super) struct Harness {
    queue: Box<dyn Queue>,
    waiting: Waiting,
    wakes: Arc<Wakes>,
    pool: Pool,
    intact: Arc<AtomicBool>,
    tag: u64,
    /// The byte that fills a job's buffer at first, as if an earlier job had left it there.
    pub(super) fill: u8,
    /// The tenant of the jobs.
    pub(super) tenant: TenantId,
    in_flight: HashMap<u64, Mark>,
}

/// The addresses of a job and its input, and the output offset. The job must return with the same values.
struct Mark {
    job: *const Job,
    input: *const u8,
    output_offset: usize,
}

impl Harness {
    pub(super) fn open(device: &dyn Device) -> Self {
        let intact = Arc::new(AtomicBool::new(true));
        let memory = Guarded { id: MemoryId::unique(), intact: Arc::clone(&intact) };
        let wakes = Arc::new(Wakes { thread: thread::current(), count: AtomicU64::new(0) });
        let queue = device.open_queue(Waker::from(Arc::clone(&wakes)));
        Self {
            queue: queue.expect("a healthy device opens a queue"),
            waiting: device.capabilities().waiting,
            wakes,
            pool: Pool::registered(Arc::new(memory), ByteCount(0)),
            intact,
            tag: 0,
            fill: FILL,
            tenant: TenantId::default(),
            in_flight: HashMap::new(),
        }
    }

    /// Makes a job whose output has exactly this capacity. Its header space and output hold the fill byte.
    pub(super) fn job(&mut self, task: &Task, input: Bytes, output_capacity: usize) -> Box<Job> {
        let mut output = self.pool.take(HEADER_BYTES + output_capacity);
        output.space().fill(self.fill);
        let output_offset = output.capacity() - output_capacity;
        let mut job = Job::new(task.clone(), Input::heap(input), output);
        job.output_offset = output_offset;
        job.tenant = self.tenant;
        self.tag += 1;
        job.tag = self.tag;
        Box::new(job)
    }

    /// Submits a job. A refusal must return this very job and leave nothing in flight.
    pub(super) fn submit(&mut self, job: Box<Job>) -> Result<(), (Box<Job>, RefusedReason)> {
        let (tag, task, address) = (job.tag, job.task.clone(), &raw const *job);
        let mark =
            Mark { job: address, input: job.input.as_ptr(), output_offset: job.output_offset };
        let refused = match self.queue.try_submit(job) {
            Ok(()) => {
                self.in_flight.insert(tag, mark);
                let shown = self.queue.job_in_flight(tag).map(|job| &raw const *job);
                let shows_it = shown.is_some_and(|shown| std::ptr::eq(shown, address));
                assert!(shows_it || !self.queue.shows_jobs(), "a job inside is not shown");
                None
            }
            Err(refused) => {
                assert!(std::ptr::eq(address, &raw const *refused.job), "another job came back");
                assert_eq!((refused.job.tag, &refused.job.task), (tag, &task), "a changed job");
                Some((refused.job, refused.reason))
            }
        };
        assert_eq!(self.queue.pending(), self.in_flight.len(), "pending after a submission");
        refused.map_or(Ok(()), Err)
    }

    /// Polls once and returns all completions.
    pub(super) fn poll(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        let count = self.queue.poll(&mut done);
        assert_eq!(count, done.len(), "poll miscounts");
        for completion in &mut done {
            self.check_returned(completion);
        }
        assert_eq!(self.queue.pending(), self.in_flight.len(), "pending after a poll");
        done
    }

    /// Waits as the device requires until no job is in flight. Returns all completions.
    pub(super) fn drain(&mut self) -> Vec<Completion> {
        let mut done = Vec::new();
        let give_up = Instant::now() + TIMEOUT;
        while !self.in_flight.is_empty() {
            let wakes = self.wakes.count.load(Ordering::Acquire);
            let arrived = self.poll();
            let waited = arrived.is_empty();
            done.extend(arrived);
            assert!(Instant::now() < give_up, "{} jobs never came back", self.in_flight.len());
            match self.waiting {
                Waiting::Inline => assert!(!waited, "an inline device has nothing to wait for"),
                Waiting::Polled { .. } => thread::yield_now(),
                Waiting::Signalled if waited => self.wakes.wait_after(wakes),
                Waiting::Signalled => {}
            }
        }
        done
    }

    /// Runs one job until it completes. Repeats it after a transient fault or if the queue was full.
    pub(super) fn run(
        &mut self,
        task: &Task,
        input: &Bytes,
        capacity: usize,
    ) -> (Outcome, Box<Job>) {
        for _ in 0..ATTEMPTS {
            let job = self.job(task, input.clone(), capacity);
            match self.submit(job) {
                Err((_, RefusedReason::Full)) => continue,
                Err((_, reason)) => panic!("{task:?} is advertised and was refused: {reason:?}"),
                Ok(()) => {}
            }
            let completion = self.drain().pop().expect("drained until the job came back");
            if !matches!(completion.outcome, Outcome::Failed(DeviceError::Fault(_))) {
                return (completion.outcome, completion.job);
            }
        }
        panic!("{task:?} failed {ATTEMPTS} times in a row");
    }

    /// Runs a job that must succeed and returns its result.
    pub(super) fn run_ok(&mut self, task: &Task, input: &Bytes, capacity: usize) -> Bytes {
        let (outcome, job) = self.run(task, input, capacity);
        let Outcome::Done { output_bytes } = outcome else {
            panic!("{task:?} of {} bytes: {outcome:?}", input.len());
        };
        let start = job.output_offset;
        job.output.freeze(start..start + output_bytes)
    }

    /// Returns the pool that jobs' outputs come from.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    fn check_returned(&mut self, completion: &mut Completion) {
        let job = &mut completion.job;
        let mark = self.in_flight.remove(&job.tag).expect("a job comes back once, with its tag");
        assert!(std::ptr::eq(mark.job, &raw const **job), "the box is the submitter's own");
        if job.chain.as_ref().is_some_and(|chain| !chain.done().is_empty()) {
            // The job has moved on to another input and output.
            return;
        }
        assert_eq!(mark.input, job.input.as_ptr(), "the input is untouched");
        assert_eq!(mark.output_offset, job.output_offset, "the offset is the caller's");
        if let Outcome::Done { output_bytes } = completion.outcome {
            let (start, end) = (job.output_offset, job.output_offset + output_bytes);
            let untouched = |part: &[u8]| part.iter().all(|byte| *byte == self.fill);
            assert_eq!(job.output.len(), end, "the length covers the result");
            assert!(untouched(&job.output[..start]), "header space written");
            // A codec may use all of the output's space while it works, but a kernel may not. A function's result has
            // its own memory.
            if job.task.dialect().is_none() && !matches!(job.task, Task::Function(_)) {
                assert!(untouched(&job.output.space()[end..]), "written behind the result");
            }
        }
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert!(self.intact.load(Ordering::Acquire), "written outside of an output buffer");
        }
    }
}

/// Counts wakes and unparks the thread that owns the queue.
struct Wakes {
    thread: thread::Thread,
    count: AtomicU64,
}

impl Wakes {
    fn wait_after(&self, seen: u64) {
        let give_up = Instant::now() + TIMEOUT;
        while self.count.load(Ordering::Acquire) == seen {
            let left = give_up.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no wake for a job inside");
            thread::park_timeout(left);
        }
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.count.fetch_add(1, Ordering::Release);
        self.thread.unpark();
    }
}

/// Memory that places each block between two canaries.
struct Guarded {
    id: MemoryId,
    intact: Arc<AtomicBool>,
}

impl Memory for Guarded {
    fn id(&self) -> MemoryId {
        self.id
    }

    fn allocate(&self, bytes: usize) -> Option<Box<dyn MemoryBlock>> {
        let all = vec![CANARY; bytes + 2 * CANARY_BYTES];
        Some(Box::new(GuardedBlock { all, intact: Arc::clone(&self.intact) }))
    }
}

struct GuardedBlock {
    all: Vec<u8>,
    intact: Arc<AtomicBool>,
}

impl MemoryBlock for GuardedBlock {}

impl AsRef<[u8]> for GuardedBlock {
    fn as_ref(&self) -> &[u8] {
        &self.all[CANARY_BYTES..self.all.len() - CANARY_BYTES]
    }
}

impl AsMut<[u8]> for GuardedBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        let end = self.all.len() - CANARY_BYTES;
        &mut self.all[CANARY_BYTES..end]
    }
}

impl Drop for GuardedBlock {
    fn drop(&mut self) {
        let (before, rest) = self.all.split_at(CANARY_BYTES);
        let after = &rest[rest.len() - CANARY_BYTES..];
        if before.iter().chain(after).any(|byte| *byte != CANARY) {
            self.intact.store(false, Ordering::Release);
        }
    }
}

/// The smallest header space of every job (bytes).
const HEADER_BYTES: usize = 16;

/// The byte that fills a buffer at first, including the header space.
const FILL: u8 = 0xA5;

/// The size of a canary (bytes). It exceeds the widest vector store.
const CANARY_BYTES: usize = 128;
const CANARY: u8 = 0x5A;

/// The longest wait for a completion. It is long enough for any job even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The largest number of attempts at a job. A fault plan for the suite causes at most two faults in a row.
const ATTEMPTS: usize = 16;
