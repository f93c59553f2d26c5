//! The common parts of the runtime's tests: jobs whose results are known, a runtime on a clock that the test moves, and
//! a device that the test controls.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use device::contract::payload::Payload;
use device::{
    Capabilities, Codec, Completion, Device, DeviceError, Dialect, FaultPlan, Faulty, Input, Job,
    Level, Outcome, Pool, Queue, Refused, RefusedReason, Software, Task, Waiting,
};
use parking_lot::Mutex;
use policy::{AsyncOffload, Placement, Policy, Reason};
use runtime::{Finished, Path, Runtime, RuntimeConfig, Ticket};
use units::{ByteCount, Clock, ManualClock, Nanos};

pub const TIMEOUT: Nanos = Nanos::millis(80);
pub const REPROBE: Nanos = Nanos::millis(500);
pub const HEADER: [u8; 16] = *b"the frame header";

pub const SOFTWARE: usize = 0;
pub const DEVICE: usize = 1;

pub fn config(devices: Vec<Arc<dyn Device>>, clock: Arc<dyn Clock>) -> RuntimeConfig {
    let policy = Arc::new(AsyncOffload { work_bytes_min: 0 });
    RuntimeConfig {
        job_timeout: TIMEOUT,
        reprobe_after: REPROBE,
        seed: 1,
        // Some devices here do not process their jobs. Only tests that expect it enable verification.
        verify_every: None,
        ..RuntimeConfig::new(devices, policy, clock)
    }
}

pub fn software() -> Arc<dyn Device> {
    Arc::new(Software::default())
}

pub fn faulty(plan: FaultPlan) -> Arc<dyn Device> {
    Arc::new(Faulty::new(software(), plan))
}

/// A runtime over software and one more device. Every job is offloaded, and the test moves the clock.
pub struct Rig {
    pub core: Runtime,
    pub clock: ManualClock,
    pub pool: Pool,
}

impl Rig {
    pub fn new(other: Arc<dyn Device>) -> Self {
        Self::with(other, |_| {})
    }

    pub fn with(other: Arc<dyn Device>, change: impl FnOnce(&mut RuntimeConfig)) -> Self {
        let clock = ManualClock::default();
        let mut config = config(vec![software(), other], Arc::new(clock.clone()));
        change(&mut config);
        let core = Runtime::new(config, Waker::noop()).expect("the devices open");
        Self { core, clock, pool: Pool::heap(ByteCount(0)) }
    }

    pub fn submit(&mut self, tag: u64) -> Ticket {
        let job = compress(&self.pool, tag);
        self.core.submit(job)
    }

    pub fn claim(&mut self, ticket: Ticket) -> Option<Finished> {
        claim(&mut self.core, ticket)
    }

    pub fn finished(&mut self, ticket: Ticket) -> Finished {
        self.claim(ticket).expect("the job is finished")
    }

    /// Submits a job, turns until the job is back, checks the result and returns its path.
    pub fn path(&mut self, tag: u64) -> Path {
        let ticket = self.submit(tag);
        for _ in 0..TURNS_MAX {
            if let Some(finished) = self.claim(ticket) {
                check(&finished, tag);
                return finished.path;
            }
            self.core.turn();
        }
        panic!("the job never came back");
    }

    pub fn turn_after(&mut self, by: Nanos) {
        self.clock.advance(by);
        self.core.turn();
    }

    pub fn jobs_counted(&self) -> u64 {
        self.core.metrics().paths().iter().map(|path| path.jobs).sum()
    }
}

pub fn claim(core: &mut Runtime, ticket: Ticket) -> Option<Finished> {
    match core.claim(ticket, &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(finished) => Some(finished),
        Poll::Pending => None,
    }
}

pub fn path(device: usize, placement: Placement, reason: Reason) -> Path {
    Path { device, placement, reason }
}

pub fn in_software(reason: Reason) -> Path {
    path(SOFTWARE, Placement::Software, reason)
}

pub fn on_device() -> Path {
    path(DEVICE, Placement::Async, Reason::Policy)
}

/// Returns the original data of the job with this tag.
pub fn original(tag: u64) -> Vec<u8> {
    Payload::Text.bytes(1_000 + (tag as usize * 37) % 3_000, tag)
}

/// Creates a compression whose payload follows from its tag. Its output already contains a header.
pub fn compress(pool: &Pool, tag: u64) -> Box<Job> {
    let dialect = Dialect::new(Codec::ALL[tag as usize % Codec::ALL.len()]);
    let task = Task::Compress { dialect, level: Level::Fast };
    job(pool, tag, task, original(tag), 6_000)
}

/// Creates a decompression of the data of the job with this tag.
pub fn decompress(pool: &Pool, tag: u64) -> Box<Job> {
    let reference = reference(compress(&Pool::heap(ByteCount(0)), tag));
    let original_bytes = original(tag).len();
    let dialect = reference.task.dialect().expect("a compression has one");
    let task = Task::Decompress { dialect, original_bytes };
    job(pool, tag, task, reference.output[HEADER.len()..].to_vec(), original_bytes)
}

fn job(pool: &Pool, tag: u64, task: Task, input: Vec<u8>, output_bytes: usize) -> Box<Job> {
    let mut buffer = pool.take(input.len());
    buffer.extend(&input);
    let mut output = pool.take(HEADER.len() + output_bytes);
    output.extend(&HEADER);
    let mut job = Job::new(task, Input::pooled(buffer, 0..input.len()), output);
    job.tag = tag;
    job.output_offset = HEADER.len();
    Box::new(job)
}

/// Runs the job in software, without a runtime.
fn reference(job: Box<Job>) -> Box<Job> {
    thread_local! {
        static QUEUE: RefCell<Box<dyn Queue>> =
            RefCell::new(software().open_queue(Waker::noop().clone()).expect("software opens"));
    }
    QUEUE.with_borrow_mut(|queue| {
        let mut done = Vec::new();
        queue.try_submit(job).expect("software takes any job");
        queue.poll(&mut done);
        done.pop().expect("inline").job
    })
}

/// Checks that the job was done, that it is the job with this tag, and that its result equals software's result.
pub fn check(finished: &Finished, tag: u64) {
    let job = &finished.job;
    assert!(matches!(finished.outcome, Outcome::Done { .. }), "{:?}", finished.outcome);
    assert_eq!(job.tag, tag);
    assert_eq!(job.output[..HEADER.len()], HEADER);
    let result = &job.output[HEADER.len()..];
    match job.task {
        Task::Compress { .. } => {
            let pool = Pool::heap(ByteCount(0));
            assert!(result == &reference(compress(&pool, tag)).output[HEADER.len()..]);
        }
        _ => assert!(result == original(tag)),
    }
}

/// A device that keeps every job until the test decides its outcome.
pub struct Script {
    capabilities: Capabilities,
    state: Arc<Mutex<ScriptState>>,
}

#[derive(Default)]
pub struct ScriptState {
    /// Whether the device refuses jobs and new queues as lost.
    pub is_dead: bool,
    /// The error of the next queues that are opened.
    pub open_error: Option<DeviceError>,
    /// Whether the device returns a job when it is cancelled.
    pub cancels: bool,
    /// The number of jobs accepted since the start.
    pub accepted: usize,
    /// The number of queues opened since the start.
    pub opened: usize,
    /// The number of polls since the start.
    pub polls: usize,
    in_flight: Vec<(usize, Box<Job>)>,
    ready: Vec<(usize, Completion)>,
}

impl Script {
    pub fn new(change: impl FnOnce(&mut Capabilities)) -> Arc<Self> {
        let mut capabilities = Software::default().capabilities().clone();
        capabilities.waiting = Waiting::Polled { expected: Nanos::micros(10) };
        change(&mut capabilities);
        Arc::new(Self { capabilities, state: Arc::default() })
    }

    pub fn polled() -> Arc<Self> {
        Self::new(|_| {})
    }

    pub fn state(&self) -> parking_lot::MutexGuard<'_, ScriptState> {
        self.state.lock()
    }

    /// Completes the oldest job inside the device with software's result.
    pub fn do_one(&self) {
        let mut state = self.state.lock();
        let (queue, job) = state.in_flight.remove(0);
        let job = reference(job);
        let outcome = Outcome::Done { output_bytes: job.output.len() - job.output_offset };
        state.ready.push((queue, Completion { job, outcome, service: Nanos(0) }));
    }

    /// Fails the oldest job inside the device.
    pub fn fail_one(&self, error: DeviceError) {
        let mut state = self.state.lock();
        let (queue, job) = state.in_flight.remove(0);
        let outcome = Outcome::Failed(error);
        state.ready.push((queue, Completion { job, outcome, service: Nanos(0) }));
    }
}

impl Device for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let mut state = self.state.lock();
        if state.is_dead {
            return Err(DeviceError::Lost);
        }
        if let Some(error) = &state.open_error {
            return Err(error.clone());
        }
        state.opened += 1;
        Ok(Box::new(ScriptQueue {
            index: state.opened,
            capabilities: self.capabilities.clone(),
            state: Arc::clone(&self.state),
            pending: 0,
        }))
    }
}

struct ScriptQueue {
    index: usize,
    capabilities: Capabilities,
    state: Arc<Mutex<ScriptState>>,
    pending: usize,
}

impl Queue for ScriptQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        let mut state = self.state.lock();
        let reason = if state.is_dead {
            RefusedReason::Lost
        } else if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            RefusedReason::Unsupported
        } else if self.pending >= self.capabilities.queue_depth {
            RefusedReason::Full
        } else {
            self.pending += 1;
            state.accepted += 1;
            state.in_flight.push((self.index, job));
            return Ok(());
        };
        Err(Refused { job, reason })
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let is_here = |(queue, _): &mut (usize, Completion)| *queue == self.index;
        let mut state = self.state.lock();
        state.polls += 1;
        let before = done.len();
        done.extend(state.ready.extract_if(.., is_here).map(|(_, completion)| completion));
        self.pending -= done.len() - before;
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.pending
    }

    fn cancel(&mut self, tag: u64) {
        let mut state = self.state.lock();
        let is_the_job = |(queue, job): &(usize, Box<Job>)| *queue == self.index && job.tag == tag;
        if !state.cancels {
            return;
        }
        let Some(at) = state.in_flight.iter().position(is_the_job) else { return };
        let (queue, job) = state.in_flight.remove(at);
        let outcome = Outcome::Failed(DeviceError::Cancelled);
        state.ready.push((queue, Completion { job, outcome, service: Nanos(0) }));
    }
}

impl Drop for ScriptQueue {
    fn drop(&mut self) {
        self.state.lock().ready.retain(|(queue, _)| *queue != self.index);
    }
}

/// A device that keeps every job on the thread that submitted it, shows it, and never completes it.
pub struct Hung(Capabilities);

impl Hung {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Script::polled().capabilities.clone()))
    }
}

impl Device for Hung {
    fn name(&self) -> &str {
        "hung"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(HungQueue(Vec::new())))
    }
}

struct HungQueue(Vec<Job>);

impl Queue for HungQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.0.push(*job);
        Ok(())
    }

    fn poll(&mut self, _: &mut Vec<Completion>) -> usize {
        0
    }

    fn pending(&self) -> usize {
        self.0.len()
    }

    fn shows_jobs(&self) -> bool {
        true
    }

    fn job_in_flight(&self, tag: u64) -> Option<&Job> {
        self.0.iter().find(|job| job.tag == tag)
    }
}

/// A policy that makes the same choice for every job.
pub struct Always(pub policy::Choice);

impl Policy for Always {
    fn name(&self) -> &'static str {
        "always"
    }

    fn place(&self, _: &policy::JobFacts, _: &policy::Snapshot<'_>, _: u64) -> policy::Choice {
        self.0
    }
}

pub const TURNS_MAX: usize = 10_000;

/// A device that shows its jobs. A poll fails all of them and advances the clock by the job timeout.
pub struct Failing(pub Capabilities, pub ManualClock);

impl Device for Failing {
    fn name(&self) -> &str {
        "failing"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.0
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(FailingQueue(Vec::new(), self.1.clone())))
    }
}

#[expect(clippy::vec_box, reason = "jobs come and go in their boxes")]
struct FailingQueue(Vec<Box<Job>>, ManualClock);

impl Queue for FailingQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.0.push(job);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        done.extend(self.0.drain(..).map(|job| {
            let outcome = Outcome::Failed(DeviceError::Fault("on purpose"));
            Completion { job, outcome, service: Nanos(0) }
        }));
        if done.len() > before {
            self.1.advance(TIMEOUT);
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.0.len()
    }

    fn shows_jobs(&self) -> bool {
        true
    }

    fn job_in_flight(&self, tag: u64) -> Option<&Job> {
        self.0.iter().find(|job| job.tag == tag).map(AsRef::as_ref)
    }
}
