//! An accelerator in simulated time. It computes in software, takes a while for each job, and does what a device that
//! misbehaves does: it fails jobs, returns wrong results, keeps jobs, is slow or is away, and works again afterwards.

use std::mem;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use device::{
    Capabilities, Completion, Device, DeviceError, Job, Outcome, Queue, Refused, RefusedReason,
    Software, Waiting,
};
use parking_lot::Mutex;
use tokio::time::Instant;
use units::{Nanos, Prng};

/// What is wrong with an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It fails its jobs.
    Fails,
    /// It returns wrong results and says that they are right.
    Lies,
    /// It takes jobs and keeps them until the trouble is over.
    Hangs,
    /// It is away: jobs in flight fail, and it refuses others.
    Away,
    /// It takes seconds for each job.
    Slow,
}

impl Trouble {
    /// Every kind.
    pub const ALL: [Trouble; 5] =
        [Trouble::Fails, Trouble::Lies, Trouble::Hangs, Trouble::Away, Trouble::Slow];
}

/// An accelerator. It outlives the processes that use it.
pub struct Accelerator {
    software: Software,
    capabilities: Capabilities,
    state: Arc<Mutex<State>>,
}

struct State {
    random: Prng,
    trouble: Option<Trouble>,
    /// The queues that have jobs in the accelerator.
    wakers: Vec<Waker>,
}

impl Accelerator {
    /// Makes an accelerator that works.
    pub fn new(seed: u64) -> Self {
        let software = Software::default();
        let capabilities = Capabilities {
            kernels: Vec::new(),
            dictionaries: false,
            queue_depth: QUEUE_DEPTH,
            waiting: Waiting::Signalled,
            ..software.capabilities().clone()
        };
        let state = State { random: Prng::new(seed), trouble: None, wakers: Vec::new() };
        Self { software, capabilities, state: Arc::new(Mutex::new(state)) }
    }

    /// Begins a trouble, or ends it with `None`.
    pub fn set_trouble(&self, trouble: Option<Trouble>) {
        let mut state = self.state.lock();
        state.trouble = trouble;
        let wakers = mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Device for Accelerator {
    fn name(&self) -> &'static str {
        "accelerator"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        if self.state.lock().trouble == Some(Trouble::Away) {
            return Err(DeviceError::Lost);
        }
        Ok(Box::new(AcceleratorQueue {
            software: self.software.open_queue(Waker::noop().clone())?,
            capabilities: self.capabilities.clone(),
            state: Arc::clone(&self.state),
            waker,
            working: Vec::new(),
            kept: Vec::new(),
        }))
    }
}

struct AcceleratorQueue {
    software: Box<dyn Queue>,
    capabilities: Capabilities,
    state: Arc<Mutex<State>>,
    waker: Waker,
    /// The jobs that are worked on, with the times at which they are done.
    working: Vec<(Instant, Completion)>,
    /// The jobs that were taken while the accelerator hung.
    kept: Vec<Job>,
}

impl AcceleratorQueue {
    /// Computes a job, whose result is handed out after `time`.
    fn work(&mut self, job: Box<Job>, time: Duration) -> Result<(), Refused> {
        self.software.try_submit(job)?;
        let mut done = Vec::new();
        self.software.poll(&mut done);
        let due = Instant::now() + time;
        self.working.extend(done.into_iter().map(|completion| (due, completion)));
        let waker = self.waker.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep_until(due).await;
            waker.wake();
        });
        Ok(())
    }
}

impl Queue for AcceleratorQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if self.pending() >= self.capabilities.queue_depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let mut state = self.state.lock();
        let usual = Duration::from_millis(1 + state.random.below(USUAL_MS_MAX));
        let slow = Duration::from_millis(500 + state.random.below(2_500));
        let trouble = state.trouble;
        if trouble.is_some() {
            state.wakers.push(self.waker.clone());
        }
        drop(state);
        match trouble {
            Some(Trouble::Away) => return Err(Refused { job, reason: RefusedReason::Lost }),
            Some(Trouble::Hangs) => self.kept.push(*job),
            Some(Trouble::Slow) => return self.work(job, slow),
            Some(Trouble::Fails | Trouble::Lies) | None => return self.work(job, usual),
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let trouble = self.state.lock().trouble;
        if trouble != Some(Trouble::Hangs) {
            for job in mem::take(&mut self.kept) {
                // Software takes every job that it has accepted before.
                let _ = self.work(Box::new(job), Duration::ZERO);
            }
        }
        let (now, before) = (Instant::now(), done.len());
        let is_away = trouble == Some(Trouble::Away);
        let due = self.working.extract_if(.., |(due, _)| is_away || *due <= now);
        for (_, mut completion) in due {
            match trouble {
                Some(Trouble::Away) => completion.outcome = Outcome::Failed(DeviceError::Lost),
                Some(Trouble::Fails) => {
                    completion.outcome = Outcome::Failed(DeviceError::Fault("simulated"));
                }
                Some(Trouble::Lies) => falsify(&mut completion, &mut self.state.lock().random),
                Some(Trouble::Hangs | Trouble::Slow) | None => {}
            }
            completion.service = Nanos::millis(1);
            done.push(completion);
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.working.len() + self.kept.len()
    }
}

/// Makes a result wrong: a bit is flipped, bytes are missing, or it is said not to fit.
fn falsify(completion: &mut Completion, random: &mut Prng) {
    let Outcome::Done { output_bytes } = &mut completion.outcome else { return };
    let job = &mut completion.job;
    match random.below(8) {
        0 if matches!(job.task, device::Task::Compress { .. }) => {
            completion.outcome = Outcome::DoesNotFit;
        }
        1 | 2 if *output_bytes > 1 => {
            *output_bytes -= 1 + random.below(*output_bytes as u64 - 1) as usize;
            job.output.set_len(job.output_offset + *output_bytes);
        }
        _ if *output_bytes > 0 => {
            let at = job.output_offset + random.below(*output_bytes as u64) as usize;
            job.output.space()[at] ^= 1 << random.below(8);
        }
        _ => {}
    }
}

/// The jobs that one queue takes.
const QUEUE_DEPTH: usize = 8;
/// The longest usual time of a job, and one more (ms).
const USUAL_MS_MAX: u64 = 3;
