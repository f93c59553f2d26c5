//! The common parts of the runtime's benches: a device without latency, and a job for it.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use device::{
    Capabilities, Codec, Completion, Device, DeviceError, Dialect, Input, Job, Level, Outcome,
    Pool, Queue, Refused, RefusedReason, Software, Task, Waiting,
};
use harness::bench::is_counted;
use policy::AsyncOffload;
use runtime::{Fallback, Limits, Reputation, RuntimeConfig};
use units::{Clock, Nanos, SystemClock};

/// A device that accepts every job at once and returns it unchanged with the next poll. All measured time is therefore
/// the host's time.
pub struct ZeroLatency {
    capabilities: Capabilities,
    /// Whether the device keeps every job and never returns it.
    keeps: bool,
    /// Whether the device's queues show the jobs in flight.
    shows: bool,
}

/// A device without latency that returns the bytes already in the output as the result, see [`job_with_result`].
pub struct Remembering(Arc<ZeroLatency>);

impl Remembering {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(ZeroLatency::new()))
    }
}

impl Device for Remembering {
    fn name(&self) -> &str {
        "remembering"
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(RememberingQueue(self.0.open_queue(waker)?)))
    }
}

struct RememberingQueue(Box<dyn Queue>);

impl Queue for RememberingQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.0.try_submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        self.0.poll(done);
        for completion in &mut done[before..] {
            let output_bytes = completion.job.output.len() - completion.job.output_offset;
            completion.outcome = Outcome::Done { output_bytes };
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.0.pending()
    }

    fn shows_jobs(&self) -> bool {
        true
    }

    fn job_in_flight(&self, tag: u64) -> Option<&Job> {
        self.0.job_in_flight(tag)
    }
}

/// Creates a job like [`job`], whose output already contains the compressed stream.
pub fn job_with_result(pool: &Pool) -> Box<Job> {
    let mut queue = Software::default().open_queue(Waker::noop().clone()).expect("software opens");
    let mut done = Vec::new();
    queue.try_submit(job(pool)).expect("software takes any job");
    queue.poll(&mut done);
    done.pop().expect("inline").job
}

impl ZeroLatency {
    pub fn new() -> Arc<Self> {
        Self::build(false, true)
    }

    /// Creates a device whose queues do not show their jobs, as if the jobs left the thread.
    pub fn unseen() -> Arc<Self> {
        Self::build(false, false)
    }

    pub fn never() -> Arc<Self> {
        Self::build(true, true)
    }

    fn build(keeps: bool, shows: bool) -> Arc<Self> {
        let mut capabilities = Software::default().capabilities().clone();
        capabilities.waiting = Waiting::Polled { expected: Nanos(0) };
        capabilities.queue_depth = 128;
        Arc::new(Self { capabilities, keeps, shows })
    }
}

impl Device for ZeroLatency {
    fn name(&self) -> &str {
        "zero-latency"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let depth = self.capabilities.queue_depth;
        let in_flight = Vec::with_capacity(depth);
        Ok(Box::new(ZeroLatencyQueue { in_flight, depth, keeps: self.keeps, shows: self.shows }))
    }
}

struct ZeroLatencyQueue {
    #[expect(clippy::vec_box, reason = "jobs come and go in their boxes")]
    in_flight: Vec<Box<Job>>,
    depth: usize,
    keeps: bool,
    shows: bool,
}

impl Queue for ZeroLatencyQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if self.in_flight.len() >= self.depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        self.in_flight.push(job);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        if self.keeps {
            return 0;
        }
        let outcome = || Outcome::Done { output_bytes: 0 };
        let jobs = self.in_flight.drain(..);
        done.extend(jobs.map(|job| Completion { job, outcome: outcome(), service: Nanos(0) }));
        done.len()
    }

    fn pending(&self) -> usize {
        self.in_flight.len()
    }

    fn shows_jobs(&self) -> bool {
        self.shows
    }

    fn job_in_flight(&self, tag: u64) -> Option<&Job> {
        self.in_flight.iter().map(Box::as_ref).find(|job| self.shows && job.tag == tag)
    }
}

/// Creates a compression of 4 KiB with pooled buffers. The output has space for a frame's header.
pub fn job(pool: &Pool) -> Box<Job> {
    let mut input = pool.take(INPUT_BYTES);
    input.extend(&[7; INPUT_BYTES]);
    let mut output = pool.take(HEADER_BYTES + INPUT_BYTES);
    output.extend(&[1; HEADER_BYTES]);
    let task = Task::Compress { dialect: Dialect::new(Codec::Deflate), level: Level::Fast };
    let mut job = Job::new(task, Input::pooled(input, 0..INPUT_BYTES), output);
    job.output_offset = HEADER_BYTES;
    Box::new(job)
}

/// Creates the configuration of a runtime over software and the device without latency. Every job is offloaded.
pub fn config() -> RuntimeConfig {
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(Software::default()), ZeroLatency::new()];
    RuntimeConfig {
        reputation: Reputation::new(&devices),
        devices,
        policy: Arc::new(AsyncOffload { work_bytes_min: 0 }),
        compress: Fallback::Prefer,
        decompress: Fallback::Prefer,
        job_timeout: Nanos::secs(1),
        reprobe_after: Nanos::secs(1),
        clock: clock(),
        seed: 1,
        limits: Limits::NONE,
        // The benches time only the path to the device and back.
        verify_every: None,
        chains: true,
    }
}

fn clock() -> Arc<dyn Clock> {
    match is_counted() {
        true => Arc::new(Steady(AtomicU64::new(0))),
        false => Arc::new(SystemClock::new()),
    }
}

/// A clock that advances at each reading by about as much as in a run without the counting tool, so that
/// time-dependent behaviour stays the same.
struct Steady(AtomicU64);

impl Clock for Steady {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(READ_INTERVAL.0, Ordering::Relaxed))
    }
}

const READ_INTERVAL: Nanos = Nanos(900);

const INPUT_BYTES: usize = 4_096;
const HEADER_BYTES: usize = 24;
