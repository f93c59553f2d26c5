//! The machine: a runtime whose clock moves as jobs, switches and polls take time, and the load that arrives. It does
//! not process the jobs' data, and a run is a function of its arguments.

use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use device::{
    Capabilities, Class, Codec, Completion, Device, DeviceError, Dialect, Input, Job, Level,
    Outcome, Pool, Queue, Refused, RefusedReason, Software, Task, Waiting,
};
use policy::Policy;
use runtime::{Finished, Path, Runtime, Ticket};
use units::{ByteCount, Clock, ManualClock, Nanos, Prng};

/// The host times before a placement, after it, for a task switch, for a poll, and between two polls.
const BEFORE: Nanos = Nanos(150);
const AFTER: Nanos = Nanos(100);
const SWITCH: Nanos = Nanos(40);
const POLL: Nanos = Nanos(30);
const POLL_EVERY: Nanos = Nanos(1_000);

/// The largest difference of a time from its line, in percent and in both directions, which the content causes.
const SPREAD_PERCENT: u64 = 20;

#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) jobs: usize,
    pub(crate) per_second: f64,
    /// The share of the jobs that are batch jobs.
    pub(crate) batch: f64,
    /// The jobs during which the device is slow, and the factor on its time.
    pub(crate) slow: Option<(Range<usize>, f64)>,
}

impl Load {
    pub(crate) fn new(per_second: f64) -> Self {
        Self { jobs: 20_000, per_second, batch: 0.0, slow: None }
    }
}

/// One job and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) index: usize,
    pub(crate) bytes: usize,
    pub(crate) class: Class,
    pub(crate) choice: Path,
    pub(crate) latency_ns: u64,
}

#[derive(Clone, Copy)]
struct Arrival {
    index: usize,
    at: Nanos,
    bytes: usize,
    class: Class,
    content: u8,
}

enum Turn {
    New(Arrival),
    Resume(Arrival, Ticket),
}

pub(crate) struct Machine {
    pub(crate) core: Runtime,
    clock: ManualClock,
    load: Load,
    /// The device's time in percent of its usual time.
    slow: Arc<AtomicU64>,
    values: Vec<Bytes>,
    pool: Pool,
    ready: VecDeque<Turn>,
    inside: Vec<(Arrival, Ticket)>,
    done: Vec<Done>,
}

impl Machine {
    pub(crate) fn new(policy: Arc<dyn Policy>, load: &Load) -> Self {
        let (clock, slow) = (ManualClock::default(), Arc::new(AtomicU64::new(100)));
        let devices: Vec<Arc<dyn Device>> = vec![
            Arc::new(Core { clock: clock.clone(), capabilities: capabilities(Waiting::Inline) }),
            Arc::new(Accelerator {
                clock: clock.clone(),
                slow: Arc::clone(&slow),
                capabilities: capabilities(Waiting::Polled { expected: POLL_EVERY }),
            }),
        ];
        let mut config = crate::common::config(devices, Arc::new(clock.clone()));
        config.policy = policy;
        config.job_timeout = Nanos::secs(100);
        let value = |content: u8| Bytes::from(vec![content; 32_768]);
        Self {
            core: Runtime::new(config, Waker::noop()).expect("the devices open"),
            clock,
            load: load.clone(),
            slow,
            values: (0..=SPREAD_PERCENT as u8 * 2).map(value).collect(),
            pool: Pool::heap(ByteCount::mib(1)),
            ready: VecDeque::new(),
            inside: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Runs every job of the load, and returns them in the order of completion.
    pub(crate) fn run(mut self) -> Vec<Done> {
        let arrivals = arrivals(&self.load);
        let (mut next, mut next_poll) = (0, Nanos(0));
        while self.done.len() < arrivals.len() {
            let now = self.clock.now();
            while next < arrivals.len() && arrivals[next].at <= now {
                self.ready.push_back(Turn::New(arrivals[next]));
                next += 1;
            }
            if !self.inside.is_empty() && now >= next_poll {
                self.poll();
                next_poll = self.clock.now() + POLL_EVERY;
            }
            match self.ready.pop_front() {
                Some(Turn::New(arrival)) => self.start(arrival),
                Some(Turn::Resume(arrival, ticket)) => {
                    self.clock.advance(SWITCH);
                    self.end(arrival, ticket);
                }
                None => {
                    let arrival = arrivals.get(next).map(|arrival| arrival.at);
                    let poll = (!self.inside.is_empty()).then_some(next_poll);
                    let then = arrival.into_iter().chain(poll).min().expect("jobs are left");
                    self.clock.advance(then.since(self.clock.now()));
                }
            }
        }
        self.done
    }

    fn start(&mut self, arrival: Arrival) {
        let slow = self.load.slow.as_ref().filter(|(jobs, _)| jobs.contains(&arrival.index));
        self.slow.store(slow.map_or(100, |(_, by)| (100.0 * by) as u64), Ordering::Relaxed);
        self.clock.advance(BEFORE);
        let input = self.values[usize::from(arrival.content)].slice(..arrival.bytes);
        let mut job = self.job_of(input);
        job.class = arrival.class;
        let ticket = self.core.submit_among(job, self.ready.len());
        if self.core.is_finished(ticket) {
            return self.end(arrival, ticket);
        }
        self.clock.advance(SWITCH);
        self.inside.push((arrival, ticket));
    }

    fn poll(&mut self) {
        self.core.turn();
        let (core, ready) = (&self.core, &mut self.ready);
        self.inside.retain(|(arrival, ticket)| {
            let finished = core.is_finished(*ticket);
            if finished {
                ready.push_back(Turn::Resume(*arrival, *ticket));
            }
            !finished
        });
    }

    fn end(&mut self, arrival: Arrival, ticket: Ticket) {
        self.clock.advance(AFTER);
        let finished = self.claim(ticket);
        let Arrival { index, bytes, class, at, .. } = arrival;
        let latency_ns = self.clock.now().since(at).0;
        self.done.push(Done { index, bytes, class, choice: finished.path, latency_ns });
    }

    fn claim(&mut self, ticket: Ticket) -> Finished {
        match self.core.claim(ticket, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(finished) => finished,
            Poll::Pending => panic!("it was finished"),
        }
    }

    /// Creates a job of this size.
    pub(crate) fn job(&self, bytes: usize) -> Box<Job> {
        self.job_of(self.values[0].slice(..bytes))
    }

    fn job_of(&self, input: Bytes) -> Box<Job> {
        let task = Task::Compress { dialect: Dialect::new(Codec::Deflate), level: Level::Fast };
        Box::new(Job::new(task, Input::heap(input), self.pool.take(0)))
    }

    /// Runs a single job from its submission to its end.
    pub(crate) fn one(&mut self, job: Box<Job>) -> Box<Job> {
        let ticket = self.core.submit_among(job, 0);
        while !self.core.is_finished(ticket) {
            self.clock.advance(POLL_EVERY);
            self.core.turn();
        }
        self.claim(ticket).job
    }
}

fn arrivals(load: &Load) -> Vec<Arrival> {
    let mut draws = Prng::new(11);
    let mut at_ns = 0.0;
    let one = |index| {
        at_ns += -(1.0 - draws.unit()).ln() * 1e9 / load.per_second;
        let bytes = cache_1(draws.unit(), draws.unit());
        let is_batch = draws.unit() < load.batch;
        let class = if is_batch { Class::Batch } else { Class::LatencyCritical };
        let content = draws.below(2 * SPREAD_PERCENT + 1) as u8;
        Arrival { index, at: Nanos(at_ns as u64), bytes, class, content }
    };
    (0..load.jobs).map(one).collect()
}

/// Returns a Cache-1-like size, distributed log-uniformly within steps: few sizes are below 256 B, and the mean is 2.4
/// KB.
fn cache_1(step: f64, within: f64) -> usize {
    const STEPS: [(f64, f64); 9] = [
        (0.00, 64.0),
        (0.05, 256.0),
        (0.20, 512.0),
        (0.45, 1_024.0),
        (0.67, 2_048.0),
        (0.85, 3_700.0),
        (0.95, 8_192.0),
        (0.99, 16_384.0),
        (1.00, 32_768.0),
    ];
    let at = STEPS.iter().rposition(|(share, _)| *share <= step).expect("from zero on");
    let (low, high) = (STEPS[at].1, STEPS[at + 1].1);
    (low * (high / low).powf(within)) as usize
}

fn capabilities(waiting: Waiting) -> Capabilities {
    let mut capabilities = Software::default().capabilities().clone();
    (capabilities.waiting, capabilities.queue_depth) = (waiting, 256);
    capabilities
}

/// Returns the time that a job takes: `fixed + per_byte * bytes`, changed by up to 20 % by its content.
fn line(job: &Job, fixed_ns: f64, per_byte_ns: f64) -> f64 {
    let percent = 100 - SPREAD_PERCENT + u64::from(job.input[0]);
    (fixed_ns + per_byte_ns * job.input.len() as f64) * percent as f64 / 100.0
}

fn completion(job: Box<Job>, service: Nanos) -> Completion {
    Completion { job, outcome: Outcome::Done { output_bytes: 0 }, service }
}

/// Software on the core, which takes 20 us for 8 KiB.
struct Core {
    clock: ManualClock,
    capabilities: Capabilities,
}

impl Device for Core {
    fn name(&self) -> &str {
        "core"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let done = Vec::with_capacity(1);
        Ok(Box::new(CoreQueue { clock: self.clock.clone(), done }))
    }
}

struct CoreQueue {
    clock: ManualClock,
    done: Vec<Completion>,
}

impl Queue for CoreQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        let took = Nanos(line(&job, 1_500.0, 2.25) as u64);
        self.clock.advance(took);
        self.done.push(completion(job, took));
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        done.append(&mut self.done);
        done.len()
    }

    fn pending(&self) -> usize {
        self.done.len()
    }
}

/// A device with one engine at 1.1 GB/s, with a path there and back, and with a submission that takes time of the core.
/// It saturates at 425,000 jobs per second.
struct Accelerator {
    clock: ManualClock,
    slow: Arc<AtomicU64>,
    capabilities: Capabilities,
}

const WAY: Nanos = Nanos(700);

impl Device for Accelerator {
    fn name(&self) -> &str {
        "accelerator"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(AcceleratorQueue {
            clock: self.clock.clone(),
            slow: Arc::clone(&self.slow),
            depth: self.capabilities.queue_depth,
            engine_free: Nanos(0),
            submitted: 0,
            inside: BinaryHeap::with_capacity(self.capabilities.queue_depth),
        }))
    }
}

struct AcceleratorQueue {
    clock: ManualClock,
    slow: Arc<AtomicU64>,
    depth: usize,
    engine_free: Nanos,
    submitted: u64,
    inside: BinaryHeap<Flight>,
}

/// A job in the device. The greatest one is ready first.
struct Flight {
    ready: (Nanos, u64),
    job: Box<Job>,
}

impl Ord for Flight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.ready.cmp(&self.ready)
    }
}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Flight {
    fn eq(&self, other: &Self) -> bool {
        self.ready == other.ready
    }
}

impl Eq for Flight {}

impl Queue for AcceleratorQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if self.inside.len() >= self.depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let setup = 360.0 + 0.03 * job.input.len() as f64;
        self.clock.advance(Nanos(setup as u64));
        let slow = self.slow.load(Ordering::Relaxed) as f64 / 100.0;
        let occupied = Nanos((line(&job, 150.0, 0.9) * slow) as u64);
        self.engine_free = (self.clock.now() + WAY).max(self.engine_free) + occupied;
        self.submitted += 1;
        self.inside.push(Flight { ready: (self.engine_free + WAY, self.submitted), job });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.clock.advance(POLL);
        let (now, before) = (self.clock.now(), done.len());
        while self.inside.peek().is_some_and(|flight| flight.ready.0 <= now)
            && let Some(flight) = self.inside.pop()
        {
            done.push(completion(flight.job, Nanos(0)));
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.inside.len()
    }
}
