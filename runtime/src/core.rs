//! The executor-agnostic core: submit, turn, claim. One instance per thread; it blocks nowhere.
//!
//! A job's life: `submit` asks the policy and hands the job to a device queue (software runs it at once); `turn` polls
//! the queues, redoes in software what a device failed, lost or kept too long, and wakes whoever waits; `claim` hands
//! the finished job over. A ticket given up with `detach` leaves the job its buffers until the device returns it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use device::{
    Buffer, Class, Completion, Device, DeviceError, Input, Job, Outcome, Queue, Refused,
    RefusedReason, Task, TenantId, Waiting,
};
use policy::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};
use slab::Slab;
use units::{Clock, Nanos, Op, Prng};

use crate::metrics::Metrics;

/// One core's runtime.
pub struct Runtime {
    slots: Vec<Slot>,
    states: Vec<DeviceState>,
    jobs: Slab<Entry>,
    generation: u32,
    waiting_jobs: usize,
    done: Vec<Completion>,
    policy: Arc<dyn Policy>,
    fallback: [Fallback; 2],
    job_timeout: Nanos,
    next_expiry_check: Nanos,
    clock: Arc<dyn Clock>,
    draws: Prng,
    metrics: Arc<Metrics>,
}

impl Runtime {
    /// Opens one queue per device. Device 0 must be software, able to do whatever any other device does.
    ///
    /// # Errors
    /// [`StartError`] says what is missing or which device did not open.
    pub fn new(config: RuntimeConfig, waker: &Waker) -> Result<Self, StartError> {
        let home = config.devices.first().ok_or(StartError::NoSoftware)?;
        if home.capabilities().waiting != Waiting::Inline {
            return Err(StartError::NoSoftware);
        }
        let open = |device: &Arc<dyn Device>| {
            let queue = device.open_queue(waker.clone());
            let queue = queue.map_err(|error| StartError::Open(device.name().to_owned(), error))?;
            Ok(Slot { device: Arc::clone(device), queue, healthy: true })
        };
        let slots = config.devices.iter().map(open).collect::<Result<Vec<_>, StartError>>()?;
        let names = config.devices.iter().map(|device| device.name().to_owned()).collect();
        Ok(Self {
            slots,
            states: Vec::new(),
            jobs: Slab::new(),
            generation: 0,
            waiting_jobs: 0,
            done: Vec::new(),
            policy: config.policy,
            fallback: [config.compress, config.decompress],
            job_timeout: config.job_timeout,
            next_expiry_check: Nanos(0),
            clock: config.clock,
            draws: Prng::new(config.seed),
            metrics: Arc::new(Metrics::new(names)),
        })
    }

    /// The counters of this core, readable from any thread.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Places the job. With a device that completes inline the result is ready for `claim` on return.
    pub fn submit(&mut self, job: Box<Job>) -> Ticket {
        let facts = self.facts(&job);
        let choice = self.choose(&facts);
        self.place(job, facts, choice)
    }

    /// As `submit`, in software for a stated reason instead of the policy's choice.
    pub fn submit_to_software(&mut self, job: Box<Job>, reason: Reason) -> Ticket {
        let facts = self.facts(&job);
        self.place(job, facts, Some(Choice::software(reason)))
    }

    fn place(&mut self, mut job: Box<Job>, facts: JobFacts, choice: Option<Choice>) -> Ticket {
        self.generation = self.generation.wrapping_add(1);
        let submitted = self.clock.now();
        let entry = Entry {
            generation: self.generation,
            tag: job.tag,
            submitted,
            choice,
            facts,
            again: Again::of(&job),
            state: State::Waiting(None),
        };
        let key = self.jobs.insert(entry);
        let ticket = Ticket { key: key as u32, generation: self.generation };
        self.waiting_jobs += 1;
        job.tag = ticket.mark();
        match choice {
            Some(choice) => self.dispatch(job, choice),
            None => {
                let outcome = Outcome::Failed(DeviceError::Fault("no device may run this job"));
                self.finish(Completion { job, outcome, service: Nanos(0) });
            }
        }
        ticket
    }

    /// Hands over the finished job, or remembers whom to wake.
    ///
    /// # Panics
    /// If the ticket was claimed or detached before.
    pub fn claim(&mut self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Finished> {
        let entry = self.jobs.get_mut(ticket.key as usize);
        let entry = entry.filter(|entry| entry.generation == ticket.generation);
        let entry = entry.expect("a ticket is claimed once");
        if let State::Waiting(waker) = &mut entry.state {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let entry = self.jobs.remove(ticket.key as usize);
        match entry.state {
            State::Finished(finished) => Poll::Ready(*finished),
            State::Waiting(_) | State::Detached => unreachable!("a detached ticket has no owner"),
        }
    }

    /// Gives the ticket up: the job keeps its buffers until its device returns it, then all are dropped.
    pub fn detach(&mut self, ticket: Ticket) {
        let key = ticket.key as usize;
        let Some(entry) = self.jobs.get_mut(key) else { return };
        if entry.generation != ticket.generation {
            return;
        }
        match entry.state {
            State::Finished(_) => drop(self.jobs.remove(key)),
            _ => {
                entry.state = State::Detached;
                self.metrics.count_detached();
            }
        }
    }

    /// Polls every queue, redoes what must be redone and wakes the owners. The only place where time passes.
    pub fn turn(&mut self) -> Outstanding {
        for index in 0..self.slots.len() {
            self.poll_slot(index);
        }
        self.expire();
        self.outstanding()
    }

    /// What is inside devices now, and how to learn of it.
    pub fn outstanding(&self) -> Outstanding {
        let mut outstanding = Outstanding { jobs: 0, polled: None, job_timeout: self.job_timeout };
        for slot in &self.slots {
            let pending = slot.queue.pending();
            outstanding.jobs += pending;
            if let (true, Waiting::Polled { expected }) =
                (pending > 0, slot.device.capabilities().waiting)
            {
                let sooner = outstanding.polled.map_or(expected, |other| other.min(expected));
                outstanding.polled = Some(sooner);
            }
        }
        outstanding
    }

    fn facts(&self, job: &Job) -> JobFacts {
        JobFacts {
            op: job.task.op(),
            dialect: job.task.dialect(),
            work_bytes: job.work_bytes(),
            class: job.class,
            tenant: job.tenant,
            time_left: job.deadline.map(|deadline| deadline.since(self.clock.now())),
        }
    }

    /// The policy's choice within what the configuration allows; none when it forbids all that is open.
    fn choose(&mut self, facts: &JobFacts) -> Option<Choice> {
        let task = facts_task(facts);
        self.states.clear();
        self.states.extend(self.slots.iter().map(|slot| slot.state(&task, facts.work_bytes)));
        let snapshot = Snapshot { devices: &self.states };
        let fallback = self.fallback[usize::from(facts.op == Op::Decompress)];
        let home = self.states[0].eligible;
        match fallback {
            Fallback::Forbid => home.then(|| Choice::software(Reason::Configured)),
            Fallback::Require => snapshot.first_open().map(|device| Choice {
                device,
                placement: Placement::Async,
                reason: Reason::Configured,
            }),
            Fallback::Prefer => {
                let draw = if self.slots.len() > 1 { self.draws.bits() } else { 0 };
                let choice = self.policy.place(facts, &snapshot, draw);
                (choice.device != 0 || home).then_some(choice)
            }
        }
    }

    fn dispatch(&mut self, job: Box<Job>, choice: Choice) {
        let mark = job.tag;
        let slot = &mut self.slots[choice.device];
        match slot.queue.try_submit(job) {
            Ok(()) if slot.device.capabilities().waiting == Waiting::Inline => {
                self.poll_slot(choice.device);
            }
            Ok(()) if choice.placement == Placement::Sync => self.wait_here(choice.device, mark),
            Ok(()) => {}
            Err(Refused { job, reason }) => self.refused(job, choice, reason),
        }
    }

    /// Polls one device until the marked job is back or overdue: the calling thread has nothing better to do.
    fn wait_here(&mut self, device: usize, mark: u64) {
        let ticket = Ticket::from_mark(mark);
        loop {
            self.poll_slot(device);
            let entry = self.jobs.get(ticket.key as usize);
            let inside = entry.is_some_and(|entry| {
                entry.generation == ticket.generation && matches!(entry.state, State::Waiting(_))
            });
            if !inside {
                return;
            }
            if self.clock.now().since(self.jobs[ticket.key as usize].submitted) > self.job_timeout {
                return self.expire_one(ticket.key as usize);
            }
            std::hint::spin_loop();
        }
    }

    fn refused(&mut self, job: Box<Job>, choice: Choice, reason: RefusedReason) {
        if reason == RefusedReason::Lost {
            self.retire(choice.device);
        }
        let why = match reason {
            RefusedReason::Full => Reason::QueueFull,
            RefusedReason::Unsupported => Reason::Ineligible,
            RefusedReason::Lost => Reason::DeviceLost,
        };
        if choice.device == 0 || !self.may_fall_back(&job.task) {
            let outcome = Outcome::Failed(DeviceError::Fault("the device refused the job"));
            return self.finish(Completion { job, outcome, service: Nanos(0) });
        }
        self.redo(job, why);
    }

    fn may_fall_back(&self, task: &Task) -> bool {
        self.fallback[usize::from(task.op() == Op::Decompress)] == Fallback::Prefer
    }

    /// Runs a job again, in software, with the reason on record.
    fn redo(&mut self, job: Box<Job>, reason: Reason) {
        let key = Ticket::from_mark(job.tag).key as usize;
        let choice = Choice::software(reason);
        if let Some(entry) = self.jobs.get_mut(key) {
            let from = entry.choice.map_or(0, |choice| choice.device);
            self.metrics.count_fallback(from, reason);
            entry.choice = Some(choice);
        }
        self.dispatch(job, choice);
    }

    fn retire(&mut self, device: usize) {
        if device != 0 && self.slots[device].healthy {
            self.slots[device].healthy = false;
            self.metrics.count_lost(device);
        }
    }

    fn poll_slot(&mut self, index: usize) {
        let mut done = std::mem::take(&mut self.done);
        self.slots[index].queue.poll(&mut done);
        for completion in done.drain(..) {
            self.complete(index, completion);
        }
        // A nested redo may have left a vector of its own; the larger one is worth keeping.
        if done.capacity() >= self.done.capacity() {
            self.done = done;
        }
    }

    fn complete(&mut self, device: usize, completion: Completion) {
        let ticket = Ticket::from_mark(completion.job.tag);
        let entry = self.jobs.get(ticket.key as usize);
        let current = entry.filter(|entry| {
            entry.generation == ticket.generation
                && entry.choice.is_some_and(|choice| choice.device == device)
        });
        let Some(entry) = current else {
            // It timed out here and was redone; the buffers come home now.
            self.metrics.count_late();
            return;
        };
        let owned = !matches!(entry.state, State::Detached);
        let reason = match &completion.outcome {
            Outcome::Failed(DeviceError::Lost) => Some(Reason::DeviceLost),
            Outcome::Failed(DeviceError::Fault(_)) => Some(Reason::DeviceFault),
            Outcome::Failed(DeviceError::Timeout) => Some(Reason::Timeout),
            _ => None,
        };
        if reason == Some(Reason::DeviceLost) {
            self.retire(device);
        }
        match reason {
            Some(reason) if device != 0 && owned && self.may_fall_back(&completion.job.task) => {
                self.redo(completion.job, reason);
            }
            _ => self.finish(completion),
        }
    }

    fn finish(&mut self, completion: Completion) {
        let Completion { mut job, outcome, service } = completion;
        let ticket = Ticket::from_mark(job.tag);
        let key = ticket.key as usize;
        self.waiting_jobs -= 1;
        let entry = &mut self.jobs[key];
        job.tag = entry.tag;
        let choice = entry.choice.unwrap_or(Choice::software(Reason::Configured));
        let total = self.clock.now().since(entry.submitted);
        let path =
            Path { device: choice.device, placement: choice.placement, reason: choice.reason };
        self.metrics.count(&entry.facts, &path, &outcome, &job, service, total.since(service));
        match std::mem::replace(&mut entry.state, State::Detached) {
            State::Detached => drop(self.jobs.remove(key)),
            State::Waiting(waker) => {
                let finished = Finished { job, outcome, path, service, total };
                entry.state = State::Finished(Box::new(finished));
                waker.into_iter().for_each(Waker::wake);
            }
            State::Finished(_) => unreachable!("a job finishes once"),
        }
    }

    /// Redoes in software what a device has kept longer than the timeout; the device keeps the buffers it has.
    fn expire(&mut self) {
        let now = self.clock.now();
        if self.waiting_jobs == 0 || now < self.next_expiry_check {
            return;
        }
        self.next_expiry_check = now + Nanos(self.job_timeout.0 / EXPIRY_CHECKS_PER_TIMEOUT);
        let late = |entry: &Entry| {
            !matches!(entry.state, State::Finished(_))
                && entry.choice.is_some_and(|choice| choice.device != 0)
                && now.since(entry.submitted) > self.job_timeout
        };
        let overdue: Vec<usize> =
            self.jobs.iter().filter(|(_, entry)| late(entry)).map(|(key, _)| key).collect();
        for key in overdue {
            self.expire_one(key);
        }
    }

    fn expire_one(&mut self, key: usize) {
        let entry = &mut self.jobs[key];
        let ticket = Ticket { key: key as u32, generation: entry.generation };
        let device = entry.choice.map_or(0, |choice| choice.device);
        self.metrics.count_timeout(device);
        if matches!(entry.state, State::Detached) {
            self.waiting_jobs -= 1;
            drop(self.jobs.remove(key));
            return;
        }
        let job = entry.again.job(ticket.mark());
        if self.may_fall_back(&job.task) {
            self.redo(job, Reason::Timeout);
        } else {
            let outcome = Outcome::Failed(DeviceError::Timeout);
            self.finish(Completion { job, outcome, service: Nanos(0) });
        }
    }
}

/// What a runtime is made of.
pub struct RuntimeConfig {
    /// Devices by preference; the first is software.
    pub devices: Vec<Arc<dyn Device>>,
    /// Where jobs run.
    pub policy: Arc<dyn Policy>,
    /// What compression may fall back to.
    pub compress: Fallback,
    /// What decompression may fall back to.
    pub decompress: Fallback,
    /// After this a job is redone in software and its device keeps the buffers it has. Too short: work done twice
    /// under load. Too long: a hung device is a hung request.
    pub job_timeout: Nanos,
    /// The runtime's time.
    pub clock: Arc<dyn Clock>,
    /// Seed of the draws that the policy is given.
    pub seed: u64,
}

/// Whether software may stand in for a device, per direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// Devices when the policy says so, software otherwise.
    #[default]
    Prefer,
    /// Devices only: a job that none takes fails.
    Require,
    /// Software only.
    Forbid,
}

/// A runtime that could not start; the operator must act.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The first device of the list is not software.
    #[error("the first device must be software: a job that no device takes needs a home")]
    NoSoftware,
    /// A device did not open.
    #[error("device {0:?} did not open: {1}")]
    Open(String, DeviceError),
}

/// The claim to one submitted job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    key: u32,
    generation: u32,
}

impl Ticket {
    fn mark(self) -> u64 {
        u64::from(self.key) | u64::from(self.generation) << 32
    }

    fn from_mark(mark: u64) -> Self {
        Self { key: mark as u32, generation: (mark >> 32) as u32 }
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
    /// Time the device worked on it [ns].
    pub service: Nanos,
    /// Time from submission to completion [ns].
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

/// What is inside devices.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding {
    /// Jobs not yet returned.
    pub jobs: usize,
    /// Some must be polled for, the soonest after about this long.
    pub polled: Option<Nanos>,
    /// The timeout; with jobs outstanding, a `turn` is due at least this often.
    pub job_timeout: Nanos,
}

struct Slot {
    device: Arc<dyn Device>,
    queue: Box<dyn Queue>,
    healthy: bool,
}

impl Slot {
    fn state(&self, task: &Task, work_bytes: usize) -> DeviceState {
        let capabilities = self.device.capabilities();
        DeviceState {
            eligible: self.healthy && capabilities.accepts(task, work_bytes),
            healthy: self.healthy,
            depth: self.queue.pending(),
            capacity: capabilities.queue_depth,
            estimated: None,
        }
    }
}

struct Entry {
    generation: u32,
    tag: u64,
    submitted: Nanos,
    choice: Option<Choice>,
    facts: JobFacts,
    again: Again,
    state: State,
}

enum State {
    Waiting(Option<Waker>),
    Finished(Box<Finished>),
    Detached,
}

/// What it takes to do a job again while a device still holds the first try.
struct Again {
    task: Task,
    input: Input,
    output_bytes: usize,
    pool: device::Pool,
    output_offset: usize,
    tenant: TenantId,
    class: Class,
    deadline: Option<Nanos>,
}

impl Again {
    fn of(job: &Job) -> Self {
        Self {
            task: job.task,
            input: job.input.clone(),
            output_bytes: job.output.capacity(),
            pool: job.output.pool().clone(),
            output_offset: job.output_offset,
            tenant: job.tenant,
            class: job.class,
            deadline: job.deadline,
        }
    }

    fn job(&self, tag: u64) -> Box<Job> {
        let output: Buffer = self.pool.take(self.output_bytes);
        Box::new(Job {
            tag,
            task: self.task,
            input: self.input.clone(),
            output,
            output_offset: self.output_offset,
            tenant: self.tenant,
            class: self.class,
            deadline: self.deadline,
        })
    }
}

/// The task that a device's capabilities are asked about; the level makes no difference there.
fn facts_task(facts: &JobFacts) -> Task {
    match facts.op {
        Op::Decompress => {
            Task::Decompress { dialect: facts.dialect, original_bytes: facts.work_bytes }
        }
        _ => Task::Compress { dialect: facts.dialect, level: device::Level::Default },
    }
}

/// Jobs are looked through for overdue ones this often per timeout: a job is redone at most a quarter late, and a
/// runtime that polls without pause does not scan its jobs at every turn.
const EXPIRY_CHECKS_PER_TIMEOUT: u64 = 4;
