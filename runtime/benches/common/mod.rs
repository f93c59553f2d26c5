//! What the runtime's benches share: a device without latency, a job for it, and the median of several runs. It
//! measures nothing itself.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use device::{
    Capabilities, Codec, Completion, Device, DeviceError, Dialect, Input, Job, Level, Outcome,
    Pool, Queue, Refused, RefusedReason, Software, Task, Waiting,
};
use units::Nanos;

/// Accepts every job at once and returns it with the next poll, untouched: all that is left is the host's time.
pub struct ZeroLatency {
    capabilities: Capabilities,
}

impl ZeroLatency {
    pub fn new() -> Arc<Self> {
        let mut capabilities = Software::default().capabilities().clone();
        capabilities.waiting = Waiting::Polled { expected: Nanos(0) };
        capabilities.queue_depth = 128;
        Arc::new(Self { capabilities })
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
        Ok(Box::new(ZeroLatencyQueue { inside: Vec::with_capacity(depth), depth }))
    }
}

struct ZeroLatencyQueue {
    inside: Vec<Box<Job>>,
    depth: usize,
}

impl Queue for ZeroLatencyQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if self.inside.len() >= self.depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        self.inside.push(job);
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let outcome = Outcome::Done { output_bytes: 0 };
        let service = Nanos(0);
        done.extend(self.inside.drain(..).map(|job| Completion {
            job,
            outcome: outcome.clone(),
            service,
        }));
        done.len()
    }

    fn pending(&self) -> usize {
        self.inside.len()
    }
}

/// A compression of 4 KiB as a service has them: input and output from a pool, room for a frame's header.
pub fn job(pool: &Pool) -> Box<Job> {
    let mut input = pool.take(INPUT_BYTES);
    input.extend(&[7; INPUT_BYTES]);
    let mut output = pool.take(HEADER_BYTES + INPUT_BYTES);
    output.extend(&[1; HEADER_BYTES]);
    let task = Task::Compress { dialect: Dialect::of(Codec::Deflate), level: Level::Fast };
    let mut job = Job::new(task, Input::pooled(input, 0..INPUT_BYTES), output);
    job.output_offset = HEADER_BYTES;
    Box::new(job)
}

/// Processor time of the calling thread: what the work costs the host, whoever else runs on it.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The middle of an odd number of runs, the least and the most.
pub fn median(mut runs: Vec<f64>) -> (f64, f64, f64) {
    runs.sort_by(f64::total_cmp);
    (runs[runs.len() / 2], runs[0], runs[runs.len() - 1])
}

const INPUT_BYTES: usize = 4_096;
const HEADER_BYTES: usize = 24;
