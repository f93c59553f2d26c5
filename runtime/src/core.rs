//! The executor-agnostic core: submit, turn, claim. One instance per thread; it blocks nowhere
//! but in a sync placement, and there no longer than the job timeout.
//!
//! A job's life: `submit` asks the policy and hands the job to a device queue (software runs it at
//! once); `turn` polls the queues, redoes in software what a device failed, lost or kept too long,
//! and wakes whoever waits; `claim` hands the finished job over. A ticket given up with `detach`
//! leaves the job its buffers until the device returns it.
//!
//! A device that is lost or keeps a job too long is retired: it gets no jobs until one, sent as a
//! probe after a while, comes back.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use device::{Completion, DeviceError, Job, Outcome, Refused, RefusedReason, Task, Waiting};
use policy::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};
use units::{Nanos, Op, Prng};

use crate::config::{Fallback, RuntimeConfig, StartError};
use crate::entry::{Again, Entry, Finished, Path, State, Ticket};
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::slot::Slot;
use crate::time::Time;

/// One core's runtime.
pub struct Runtime {
    slots: Vec<Slot>,
    /// Between two calls stale; kept for its capacity.
    states: Vec<DeviceState>,
    jobs: Ledger,
    policy: Arc<dyn Policy>,
    fallback: [Fallback; 2],
    job_timeout: Nanos,
    reprobe_after: Nanos,
    next_expiry_check: Nanos,
    dequeue_batch: usize,
    time: Time,
    draws: Prng,
    waker: Waker,
    metrics: Arc<Metrics>,
}

impl Runtime {
    /// Opens one queue per device. Device 0 must be software, able to read what any other device
    /// writes.
    ///
    /// # Errors
    /// [`StartError`] says what is missing or which device did not open.
    pub fn new(config: RuntimeConfig, waker: &Waker) -> Result<Self, StartError> {
        config.check()?;
        let mut slots = Vec::with_capacity(config.devices.len());
        for device in &config.devices {
            let slot = Slot::open(device, waker.clone());
            slots.push(slot.map_err(|error| StartError::Open(device.name().to_owned(), error))?);
        }
        let names = config.devices.iter().map(|device| device.name().to_owned()).collect();
        Ok(Self {
            slots,
            states: Vec::new(),
            jobs: Ledger::default(),
            policy: config.policy,
            fallback: [config.compress, config.decompress],
            job_timeout: config.job_timeout,
            reprobe_after: config.reprobe_after,
            next_expiry_check: Nanos(0),
            dequeue_batch: usize::MAX,
            time: Time::exact(config.clock),
            draws: Prng::new(config.seed),
            waker: waker.clone(),
            metrics: Arc::new(Metrics::new(names)),
        })
    }

    /// The counters of this core, readable from any thread.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Follows another policy from the next job on.
    pub fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.policy = policy;
    }

    /// At most so many completions of each device are handed over in one turn; unbounded at first. A small bound keeps
    /// a burst of completions from holding up whatever else the thread does.
    pub fn set_dequeue_batch(&mut self, max: NonZeroUsize) {
        self.dequeue_batch = max.get();
    }

    /// Lets one look at the clock serve all that happens within about `resolution`, for drivers that turn without
    /// pause while a device must be polled; zero, as at first, looks for every job. Times that completions and metrics
    /// state are then longer than the truth by up to about that.
    pub fn set_time_resolution(&mut self, resolution: Nanos) {
        self.time.set_resolution(resolution);
    }

    /// Places the job. With a device that completes inline the result is ready for `claim` on
    /// return.
    pub fn submit(&mut self, job: Box<Job>) -> Ticket {
        let now = self.time.now();
        let choice = self.choose(&job, now).map(|choice| self.as_waited_for(choice));
        self.place(job, choice, now)
    }

    /// As `submit`, in software for a stated reason instead of the policy's choice.
    pub fn submit_to_software(&mut self, job: Box<Job>, reason: Reason) -> Ticket {
        let now = self.time.now();
        self.place(job, Ok(Choice::software(reason)), now)
    }

    /// Whether `claim` would hand the job over now.
    pub fn is_finished(&self, ticket: Ticket) -> bool {
        self.jobs.get(ticket).is_some_and(Entry::is_finished)
    }

    /// Hands over the finished job, or remembers whom to wake.
    ///
    /// # Panics
    /// If the ticket was claimed or detached before.
    pub fn claim(&mut self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Finished> {
        let entry = self.jobs.get_mut(ticket).filter(|entry| !entry.is_detached());
        let entry = entry.expect("a ticket is claimed or detached once");
        if !entry.is_finished() {
            entry.await_with(context.waker());
            return Poll::Pending;
        }
        match self.jobs.close(ticket) {
            State::Finished(finished) => Poll::Ready(finished),
            State::Free | State::Waiting | State::Detached => unreachable!("seen above"),
        }
    }

    /// Gives the ticket up: the job keeps its buffers until its device returns it, then all are
    /// dropped. A ticket that was claimed or detached before is ignored.
    pub fn detach(&mut self, ticket: Ticket) {
        let Some(entry) = self.jobs.get_mut(ticket) else { return };
        match entry.state {
            State::Finished(_) => drop(self.jobs.close(ticket)),
            State::Waiting => {
                entry.state = State::Detached;
                let device = entry.choice.device;
                self.metrics.count_detached();
                self.slots[device].cancel(ticket.mark());
            }
            State::Detached | State::Free => {}
        }
    }

    /// Polls every device that has jobs, redoes what must be redone and wakes the owners. The only place where
    /// time passes.
    pub fn turn(&mut self) -> Outstanding {
        if self.slots.iter().all(|slot| slot.inside == 0) {
            self.time.expire();
            return self.outstanding();
        }
        let now = self.time.look();
        self.turn_at(now)
    }

    /// A look at the clock, for who decides by it whether to turn.
    pub(crate) fn look(&mut self) -> Nanos {
        self.time.look()
    }

    /// As `turn`, just after a look.
    pub(crate) fn turn_at(&mut self, now: Nanos) -> Outstanding {
        for device in 0..self.slots.len() {
            if self.slots[device].inside > 0 {
                self.poll_slot(device, self.dequeue_batch);
            }
        }
        self.expire(now);
        let outstanding = self.outstanding();
        if outstanding.polled.is_none() {
            self.time.expire();
        }
        outstanding
    }

    /// What is inside devices now, and how to learn of it.
    pub fn outstanding(&self) -> Outstanding {
        let turn_within = self.expiry_check_every();
        let mut outstanding = Outstanding { jobs: 0, polled: None, turn_within };
        for slot in &self.slots {
            outstanding.jobs += slot.inside;
            // For what was given up, a look at every expiry check is enough.
            if slot.waiting > 0
                && let Waiting::Polled { expected } = slot.learnt
            {
                let sooner = outstanding.polled.map_or(expected, |other| other.min(expected));
                outstanding.polled = Some(sooner);
            }
        }
        outstanding
    }

    /// The policy's choice within what the configuration allows, or, as an error, the path that
    /// was required and is not open.
    fn choose(&mut self, job: &Job, now: Nanos) -> Result<Choice, Choice> {
        let fallback = self.fallback(&job.task);
        if fallback == Fallback::Forbid {
            return Ok(Choice::software(Reason::Configured));
        }
        self.states.clear();
        self.states.extend(self.slots.iter().map(|slot| slot.state(job)));
        let snapshot = Snapshot::of(&self.states);
        let on = |device, reason| Choice { device, placement: Placement::Async, reason };
        if fallback == Fallback::Require {
            if let Some(device) = snapshot.first_open() {
                return Ok(on(device, Reason::Configured));
            }
            let closed = on(1, snapshot.reason_for_software());
            return self.probe(job, now).map(|device| on(device, Reason::Probe)).ok_or(closed);
        }
        if let Some(device) = self.probe(job, now) {
            return Ok(on(device, Reason::Probe));
        }
        let snapshot = Snapshot::of(&self.states);
        let draw = if self.slots.len() > 1 { self.draws.bits() } else { 0 };
        let choice = self.policy.place(&facts(job, now), &snapshot, draw);
        match snapshot.first_open() {
            Some(device) if choice.device == 0 && !self.states[0].eligible => {
                Ok(on(device, Reason::OnlyDevice))
            }
            _ => Ok(choice),
        }
    }

    /// A device that needs the calling thread cannot be waited for by it: that job is async, and says so.
    fn as_waited_for(&self, choice: Choice) -> Choice {
        let alone = self.slots[choice.device].device.completes_alone();
        let sync = choice.placement == Placement::Sync;
        if sync && !alone { Choice { placement: Placement::Async, ..choice } } else { choice }
    }

    /// A retired device that is due for a probe and open again; the job at hand will show whether
    /// it lives.
    fn probe(&mut self, job: &Job, now: Nanos) -> Option<usize> {
        let device = self.slots.iter().position(|slot| slot.may_probe(job, now))?;
        self.metrics.count_probe(device);
        let slot = &mut self.slots[device];
        slot.reopen(now, self.reprobe_after, self.waker.clone()).ok()?;
        Some(device)
    }

    fn place(&mut self, mut job: Box<Job>, to: Result<Choice, Choice>, now: Nanos) -> Ticket {
        let (Ok(choice) | Err(choice)) = to;
        let (ticket, entry) = self.jobs.open();
        entry.tag = job.tag;
        entry.submitted = now;
        entry.choice = choice;
        if choice.device != 0 {
            entry.again = Some(Again::of(&mut job));
        }
        self.slots[choice.device].waiting += 1;
        job.tag = ticket.mark();
        match to {
            Ok(choice) => self.dispatch(job, choice),
            Err(_) => self.fail(job, DeviceError::Fault("no device that may run the job is open")),
        }
        ticket
    }

    fn dispatch(&mut self, job: Box<Job>, choice: Choice) {
        let ticket = Ticket::from_mark(job.tag);
        let slot = &mut self.slots[choice.device];
        match slot.submit(job) {
            Ok(()) if slot.learnt == Waiting::Inline => {
                self.time.look();
                self.poll_slot(choice.device, usize::MAX);
            }
            Ok(()) if choice.placement == Placement::Sync => self.wait_here(choice.device, ticket),
            Ok(()) => {}
            Err(Refused { job, reason }) => self.refused(job, choice.device, reason),
        }
    }

    /// Polls one device until the job is back or overdue: the calling thread has nothing better to
    /// do. Nobody has the ticket yet, so the job's entry stays.
    fn wait_here(&mut self, device: usize, ticket: Ticket) {
        loop {
            let now = self.time.look();
            self.poll_slot(device, self.dequeue_batch);
            let Some(entry) = self.jobs.get(ticket).filter(|entry| !entry.is_finished()) else {
                return;
            };
            if now.since(entry.submitted) >= self.job_timeout {
                return self.expire_one(ticket);
            }
            std::hint::spin_loop();
        }
    }

    fn refused(&mut self, job: Box<Job>, device: usize, reason: RefusedReason) {
        let why = match reason {
            RefusedReason::Full => Reason::QueueFull,
            RefusedReason::Unsupported => Reason::Ineligible,
            RefusedReason::Lost => Reason::DeviceLost,
        };
        if reason == RefusedReason::Lost {
            self.retire(device);
        }
        if device != 0 && self.may_fall_back(&job.task) {
            self.redo(job, why);
        } else {
            self.fail(job, DeviceError::Fault("the device refused the job"));
        }
    }

    fn fallback(&self, task: &Task) -> Fallback {
        match task.op() {
            Op::Compress => self.fallback[0],
            Op::Decompress => self.fallback[1],
            _ => Fallback::Prefer,
        }
    }

    fn may_fall_back(&self, task: &Task) -> bool {
        self.fallback(task) == Fallback::Prefer
    }

    /// Runs a job again, in software, with the reason on record.
    fn redo(&mut self, job: Box<Job>, reason: Reason) {
        let choice = Choice::software(reason);
        let entry = self.jobs.get_mut(Ticket::from_mark(job.tag)).expect(BOOKED);
        let from = std::mem::replace(&mut entry.choice, choice).device;
        self.slots[from].waiting -= 1;
        self.slots[0].waiting += 1;
        self.metrics.count_fallback(from, reason);
        self.dispatch(job, choice);
    }

    fn retire(&mut self, device: usize) {
        if device != 0 && self.slots[device].retire(self.time.last(), self.reprobe_after) {
            self.metrics.count_lost(device);
        }
    }

    fn restore(&mut self, device: usize) {
        if self.slots[device].retired.take().is_some() {
            self.metrics.count_restored(device);
        }
    }

    fn poll_slot(&mut self, device: usize, max: usize) {
        self.slots[device].poll();
        for _ in 0..max {
            let Some(completion) = self.slots[device].next() else { return };
            self.complete(device, completion);
        }
    }

    fn complete(&mut self, device: usize, completion: Completion) {
        let ticket = Ticket::from_mark(completion.job.tag);
        let Some(entry) = self.jobs.get(ticket).filter(|entry| !entry.is_finished()) else {
            // It timed out here and was redone or failed; the buffers come home now.
            return self.metrics.count_late();
        };
        let (owned, probe) = (!entry.is_detached(), entry.choice.reason == Reason::Probe);
        let fault = fault(&completion.outcome);
        match fault {
            Some(Reason::DeviceLost) => self.retire(device),
            None if probe => self.restore(device),
            _ => {}
        }
        match fault {
            Some(reason) if device != 0 && owned && self.may_fall_back(&completion.job.task) => {
                self.redo(completion.job, reason);
            }
            _ => self.finish(completion),
        }
    }

    fn fail(&mut self, job: Box<Job>, error: DeviceError) {
        self.finish(Completion { job, outcome: Outcome::Failed(error), service: Nanos(0) });
    }

    fn finish(&mut self, completion: Completion) {
        let Completion { mut job, outcome, service } = completion;
        let ticket = Ticket::from_mark(job.tag);
        let entry = self.jobs.get_mut(ticket).expect(BOOKED);
        job.tag = entry.tag;
        let path = Path::from(entry.choice);
        let total = self.time.last().since(entry.submitted);
        self.slots[path.device].waiting -= 1;
        // What was given up is counted as that, and says nothing of the device.
        if outcome != Outcome::Failed(DeviceError::Cancelled) {
            self.metrics.count(&path, &outcome, &job, service, total.since(service));
        }
        if entry.is_detached() {
            drop(self.jobs.close(ticket));
            return;
        }
        entry.state = State::Finished(Finished { job, outcome, path, service, total });
        entry.wake();
    }

    /// Redoes in software what a device has kept longer than the timeout; the device keeps the
    /// buffers it has.
    fn expire(&mut self, now: Nanos) {
        if now < self.next_expiry_check {
            return;
        }
        self.next_expiry_check = Nanos(now.0.saturating_add(self.expiry_check_every().0));
        let timeout = self.job_timeout;
        let overdue =
            |entry: &Entry| entry.is_inside() && now.since(entry.submitted) >= timeout;
        for ticket in self.jobs.find(overdue) {
            self.expire_one(ticket);
        }
    }

    fn expire_one(&mut self, ticket: Ticket) {
        let entry = self.jobs.get_mut(ticket).expect(BOOKED);
        let device = entry.choice.device;
        let again = entry.again.take().filter(|_| !entry.is_detached());
        self.metrics.count_timeout(device);
        self.slots[device].cancel(ticket.mark());
        self.retire(device);
        let Some(again) = again else {
            self.slots[device].waiting -= 1;
            drop(self.jobs.close(ticket));
            return;
        };
        let job = again.into_job(ticket.mark());
        if self.may_fall_back(&job.task) {
            self.redo(job, Reason::Timeout);
        } else {
            self.fail(job, DeviceError::Timeout);
        }
    }

    fn expiry_check_every(&self) -> Nanos {
        Nanos(self.job_timeout.0 / EXPIRY_CHECKS_PER_TIMEOUT)
    }
}

/// What is inside devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// Jobs not yet returned.
    pub jobs: usize,
    /// Some must be polled for, the soonest after about this long.
    pub polled: Option<Nanos>,
    /// With jobs outstanding, a `turn` is due at least this often: overdue jobs are found there.
    pub turn_within: Nanos,
}

fn facts(job: &Job, now: Nanos) -> JobFacts {
    JobFacts {
        op: job.task.op(),
        dialect: job.task.dialect(),
        work_bytes: job.work_bytes(),
        class: job.class,
        tenant: job.tenant,
        time_left: job.deadline.map(|deadline| deadline.since(now)),
        last: None,
    }
}

/// Why the job must be done elsewhere; none when this outcome is the job's own.
fn fault(outcome: &Outcome) -> Option<Reason> {
    match outcome {
        Outcome::Done { .. } | Outcome::DoesNotFit => None,
        Outcome::Failed(DeviceError::InvalidInput(_)) => None,
        Outcome::Failed(DeviceError::Lost | DeviceError::Misconfigured(_)) => {
            Some(Reason::DeviceLost)
        }
        Outcome::Failed(DeviceError::Timeout) => Some(Reason::Timeout),
        Outcome::Failed(DeviceError::Busy) => Some(Reason::QueueFull),
        Outcome::Failed(_) => Some(Reason::DeviceFault),
    }
}

/// Jobs are looked through for overdue ones this often per timeout: with turns as often as that, a
/// job is redone at most a quarter late, and a runtime that polls without pause does not scan its
/// jobs at every turn.
const EXPIRY_CHECKS_PER_TIMEOUT: u64 = 8;

/// Why a ticket that came back with its job has an entry.
const BOOKED: &str = "a job's books are closed with its end";
