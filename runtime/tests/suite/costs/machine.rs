//! A runtime that places the jobs of the machine in virtual time (`device::machine`). Its devices advance the clock by
//! the times of jobs and polls, and process no data.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use device::machine::{
    self, Accelerator, Arrival, BLUEFIELD, Engines, Host, Load, POLL, POLL_EVERY, SOFTWARE,
};
use device::{
    Capabilities, Codec, Completion, Device, DeviceError, Dialect, Input, Job, Level, Outcome,
    Pool, Queue, Refused, RefusedReason, Software, Task, Waiting,
};
use parking_lot::Mutex;
use policy::Policy;
use runtime::{Path, Runtime, Ticket};
use units::{ByteCount, Clock, ManualClock, Nanos};

pub(crate) type Done = machine::Done<Path>;

pub(crate) struct Machine {
    pub(crate) core: Runtime,
    clock: ManualClock,
    factors: Arc<Mutex<Factors>>,
    value: Bytes,
    pool: Pool,
    in_flight: Vec<(Arrival, Ticket)>,
}

/// The factors on the times of the job that is being submitted.
#[derive(Clone, Copy)]
struct Factors {
    content: f64,
    slowed_by: f64,
}

impl Machine {
    pub(crate) fn new(policy: Arc<dyn Policy>) -> Self {
        let clock = ManualClock::default();
        let factors = Arc::new(Mutex::new(Factors { content: 1.0, slowed_by: 1.0 }));
        let device = |is: Option<Accelerator>, waiting| -> Arc<dyn Device> {
            let mut capabilities = Software::default().capabilities().clone();
            (capabilities.waiting, capabilities.queue_depth) = (waiting, BLUEFIELD.queue_depth);
            Arc::new(Modelled {
                is,
                clock: clock.clone(),
                factors: Arc::clone(&factors),
                capabilities,
            })
        };
        let devices = vec![
            device(None, Waiting::Inline),
            device(Some(BLUEFIELD), Waiting::Polled { expected: POLL_EVERY }),
        ];
        let mut config = crate::common::config(devices, Arc::new(clock.clone()));
        config.policy = policy;
        config.job_timeout = Nanos::secs(100);
        Self {
            core: Runtime::new(config, Waker::noop()).expect("the devices open"),
            clock,
            factors,
            value: Bytes::from(vec![0; 32_768]),
            pool: Pool::heap(ByteCount::mib(1)),
            in_flight: Vec::new(),
        }
    }

    /// Runs every job of the load, and returns them in the order of completion.
    pub(crate) fn run(mut self, load: &Load) -> Vec<Done> {
        let clock = self.clock.clone();
        machine::run(&mut self, &clock, load)
    }

    /// Creates a job of this size.
    pub(crate) fn job(&self, bytes: usize) -> Box<Job> {
        let task = Task::Compress { dialect: Dialect::new(Codec::Deflate), level: Level::Fast };
        Box::new(Job::new(task, Input::heap(self.value.slice(..bytes)), self.pool.take(0)))
    }

    /// Runs a single job from its submission to its end.
    pub(crate) fn one(&mut self, job: Box<Job>) -> Box<Job> {
        let ticket = self.core.submit_among(job, 0);
        while !self.core.is_finished(ticket) {
            self.clock.advance(POLL_EVERY);
            self.core.turn();
        }
        crate::common::claim(&mut self.core, ticket).expect("it is finished").job
    }
}

impl Host for Machine {
    type Job = Ticket;
    type Result = Path;

    fn start(&mut self, arrival: &Arrival, waiting: usize) -> Option<Ticket> {
        // In whole percents. The bounds in `costs.rs` were set with these times, and how many jobs return to a device
        // depends on them.
        let content = f64::from(80 + (arrival.content * 41.0) as u32) / 100.0;
        *self.factors.lock() = Factors { content, slowed_by: arrival.slowed_by };
        let mut job = self.job(arrival.bytes);
        (job.class, job.deadline) = (arrival.class, arrival.deadline);
        let ticket = self.core.submit_among(job, waiting);
        if self.core.is_finished(ticket) {
            return Some(ticket);
        }
        self.in_flight.push((*arrival, ticket));
        None
    }

    fn poll(&mut self, finished: &mut Vec<(Arrival, Ticket)>) {
        self.core.turn();
        let core = &self.core;
        finished.extend(self.in_flight.extract_if(.., |(_, ticket)| core.is_finished(*ticket)));
    }

    fn end(&mut self, ticket: Ticket) -> Path {
        crate::common::claim(&mut self.core, ticket).expect("it is finished").path
    }
}

/// An accelerator, or software on the core.
struct Modelled {
    is: Option<Accelerator>,
    clock: ManualClock,
    factors: Arc<Mutex<Factors>>,
    capabilities: Capabilities,
}

impl Device for Modelled {
    fn name(&self) -> &str {
        "modelled"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, _: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(ModelledQueue {
            is: self.is.map(|is| (is, Engines::new(&is))),
            clock: self.clock.clone(),
            factors: Arc::clone(&self.factors),
            depth: self.capabilities.queue_depth,
            in_flight: VecDeque::with_capacity(self.capabilities.queue_depth),
        }))
    }
}

struct ModelledQueue {
    is: Option<(Accelerator, Engines)>,
    clock: ManualClock,
    factors: Arc<Mutex<Factors>>,
    depth: usize,
    /// The jobs with the times when they are back. A single engine finishes jobs in their order.
    in_flight: VecDeque<(Nanos, Completion)>,
}

impl Queue for ModelledQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if self.in_flight.len() >= self.depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let (bytes, Factors { content, slowed_by }) = (job.input.len(), *self.factors.lock());
        let (ready, service) = if let Some((is, engines)) = &self.is {
            self.clock.advance(Nanos(is.setup.at(bytes) as u64));
            let occupied_ns = is.occupied.at(bytes) * content * slowed_by;
            (engines.submit(self.clock.now(), occupied_ns), Nanos(0))
        } else {
            let took = Nanos((SOFTWARE.at(bytes) * content) as u64);
            self.clock.advance(took);
            (self.clock.now(), took)
        };
        let outcome = Outcome::Done { output_bytes: 0 };
        self.in_flight.push_back((ready, Completion { job, outcome, service }));
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        if self.is.is_some() {
            self.clock.advance(POLL);
        }
        let (now, before) = (self.clock.now(), done.len());
        while let Some((_, completion)) = self.in_flight.pop_front_if(|(ready, _)| *ready <= now) {
            done.push(completion);
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.in_flight.len()
    }
}
