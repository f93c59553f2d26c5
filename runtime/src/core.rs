//! The executor-agnostic core: submit, turn, claim. There is one instance per thread. It blocks only in a sync
//! placement, and there no longer than the job timeout.
//!
//! A job's life: `submit` asks the policy and hands the job to a device queue (software runs it at once); `turn` polls
//! the queues, redoes in software what a device failed, lost or kept too long, and wakes the owners; `claim` hands the
//! finished job over. A ticket given up with `detach` leaves the job its buffers until the device returns it.
//!
//! A device that is lost, keeps a job too long or is wrong too often is retired: it gets no jobs until one, sent as a
//! probe after a while, comes back and is right.

pub(crate) mod completion_hook;
mod decision_cache;
pub(crate) mod decision_validity;
mod fair;
mod recover;
mod verify;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use device::{Completion, DeviceError, Job, Outcome, Refused, Task, TenantId};
use policy::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};
use units::{Nanos, Op, Prng};

use crate::admission::AdmissionQueue;
use crate::config::{Fallback, RuntimeConfig, StartError};
use crate::entry::{Entry, Finished, State, Ticket};
use crate::history::History;
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::reputation::Reputation;
use crate::slot::{JobShape, OPS, Slot, Submitted};
use crate::time::Time;

use completion_hook::Hooked;
use decision_cache::DecisionCache;
use decision_validity::Drawn;
use fair::leave;

/// One core's runtime.
pub struct Runtime {
    slots: Vec<Slot>,
    /// The number of retired slots.
    retired: usize,
    /// The states that the policy was asked about last.
    states: Vec<DeviceState>,
    /// The least and the greatest states for which the policy was asked last whether its choice is valid.
    ends: [Vec<DeviceState>; 2],
    decision_cache: DecisionCache,
    jobs: Ledger,
    /// The number of finished jobs that were not yet claimed.
    unclaimed: usize,
    policy: Arc<dyn Policy>,
    /// Whether the policy uses costs.
    uses_costs: bool,
    /// Whether costs are recorded: the policy uses them, or a job had a deadline since the start.
    records_costs: bool,
    /// The jobs until the next one that is timed on the core, where no costs are recorded.
    until_sampled: u32,
    history: History,
    /// The fallback of each op.
    fallback: [Fallback; OPS],
    job_timeout: Nanos,
    reprobe_after: Nanos,
    next_expiry_check: Nanos,
    dequeue_batch: usize,
    time: Time,
    draws: Prng,
    waker: Waker,
    metrics: Arc<Metrics>,
    /// The queue of waiting jobs, while there are limits.
    admission: Option<Box<AdmissionQueue>>,
    /// The jobs that are to be redone in software.
    fallbacks: VecDeque<Box<Job>>,
    /// The bytes of them that may be redone before the next turn.
    fallback_bytes_left: usize,
    reputation: Arc<Reputation>,
    /// Its changes that were taken over.
    reputation_seen: u64,
    hooked: Hooked,
    /// Whether there were jobs of any tenant but the default one.
    has_tenants: bool,
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
            let every = config.verify_every.filter(|_| !device.runs_own_code());
            let slot = Slot::open(device, waker.clone(), every);
            slots.push(slot.map_err(|error| StartError::Open(device.name().to_owned(), error))?);
        }
        let states: Vec<_> = slots.iter().map(Slot::state).collect();
        let mut fallback = [Fallback::Prefer; OPS];
        fallback[Op::Compress.index()] = config.compress;
        fallback[Op::Decompress.index()] = config.decompress;
        let names = config.devices.iter().map(|device| device.name().to_owned()).collect();
        let mut runtime = Self {
            slots,
            retired: 0,
            ends: [states.clone(), states.clone()],
            states,
            decision_cache: DecisionCache::default(),
            jobs: Ledger::default(),
            unclaimed: 0,
            uses_costs: config.policy.weighs_costs(),
            records_costs: config.policy.weighs_costs(),
            until_sampled: 1,
            history: History::default(),
            policy: config.policy,
            fallback,
            job_timeout: config.job_timeout,
            reprobe_after: config.reprobe_after,
            next_expiry_check: Nanos(0),
            dequeue_batch: usize::MAX,
            time: Time::exact(config.clock),
            draws: Prng::new(config.seed),
            waker: waker.clone(),
            metrics: Arc::new(Metrics::new(names)),
            admission: None,
            fallbacks: VecDeque::new(),
            fallback_bytes_left: 0,
            reputation_seen: 0,
            reputation: config.reputation,
            hooked: Hooked::default(),
            has_tenants: false,
        };
        runtime.set_limits(config.limits);
        Ok(runtime)
    }

    /// The counters of this core, readable from any thread.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Follows another policy from the next job on.
    pub fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.uses_costs = policy.weighs_costs();
        self.records_costs |= self.uses_costs;
        self.policy = policy;
        self.decision_cache.forget();
    }

    /// Returns whether the policy asks how many others wait for the core, see [`Runtime::submit_among`].
    pub fn uses_costs(&self) -> bool {
        self.uses_costs
    }

    /// Bounds the completions of each device that one turn hands over; unbounded at first. A small bound keeps a burst
    /// of completions from delaying the thread's other work.
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
    /// return. The owners of jobs that are finished and not claimed are taken to wait for the core.
    pub fn submit(&mut self, job: Box<Job>) -> Ticket {
        self.submit_among(job, self.unclaimed)
    }

    /// Does the same as `submit` for an executor that knows how many others wait for the core.
    pub fn submit_among(&mut self, job: Box<Job>, waiting: usize) -> Ticket {
        self.allow_fallbacks();
        let now = self.time.now();
        self.history.count();
        match self.decision_cache.get(&job) {
            Some(choice) => self.place(job, choice, true, now),
            None => self.decide(job, waiting, now),
        }
    }

    /// Does the same as `submit`, in software for a stated reason instead of the policy's choice.
    pub fn submit_to_software(&mut self, job: Box<Job>, reason: Reason) -> Ticket {
        let now = self.time.now();
        self.place_cold(job, Choice::software(reason), true, now)
    }

    /// Returns whether `claim` would hand the job over now.
    pub fn is_finished(&self, ticket: Ticket) -> bool {
        self.jobs.get(ticket).is_some_and(Entry::is_finished)
    }

    /// Hands over the finished job, or remembers whom to wake.
    ///
    /// # Panics
    /// If the ticket was claimed or detached before.
    #[inline]
    pub fn claim(&mut self, ticket: Ticket, context: &mut Context<'_>) -> Poll<Finished> {
        let claimed = self.jobs.claim(ticket, context.waker());
        if claimed.is_ready() {
            self.unclaimed -= 1;
        }
        claimed
    }

    /// Gives the ticket up: the job keeps its buffers until its device returns it, then all are
    /// dropped. A ticket that was claimed or detached before is ignored.
    pub fn detach(&mut self, ticket: Ticket) {
        let Some(entry) = self.jobs.get_mut(ticket) else { return };
        match entry.state {
            State::Finished => {
                self.unclaimed -= 1;
                self.jobs.close(ticket);
            }
            State::Waiting | State::Awaited | State::Hooked => {
                entry.state = State::Detached;
                let device = entry.choice.device();
                self.metrics.count_detached();
                if let Some(job) = self.stop_waiting(device, ticket) {
                    drop(job);
                    self.slots[device].waiting -= 1;
                    return self.jobs.close(ticket);
                }
                self.slots[device].cancel(ticket.mark());
            }
            State::Detached | State::Free => {}
        }
    }

    /// Polls every device that has jobs, redoes what must be redone and wakes the owners. The only place where
    /// time passes.
    pub fn turn(&mut self) -> Outstanding {
        let outstanding = self.poll_once();
        if outstanding.polled.is_none() {
            self.park();
        }
        outstanding
    }

    /// Does the same as `turn`, for a driver that soon turns again whatever is outstanding, or calls
    /// [`park`](Self::park). One look at the clock serves the jobs that come in between.
    pub fn poll_once(&mut self) -> Outstanding {
        if self.is_idle() {
            self.park();
            return self.outstanding();
        }
        let now = self.time.refresh();
        self.turn_at(now)
    }

    /// Returns whether no job is inside a device or waits for one.
    fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| slot.in_flight == 0)
            && self.fallbacks.is_empty()
            && self.admission.as_ref().is_none_or(|admission| admission.waiting() == 0)
            && !self.has_hooked()
    }

    /// Notes that the driver does not turn until more jobs come. The next job looks at the clock.
    pub fn park(&mut self) {
        self.time.expire();
    }

    /// A look at the clock, for who decides by it whether to turn.
    pub(crate) fn refresh_clock(&mut self) -> Nanos {
        self.time.refresh()
    }

    /// Does the same as `poll_once`, just after a look at the clock.
    pub(crate) fn turn_at(&mut self, now: Nanos) -> Outstanding {
        self.allow_fallbacks();
        self.serve_fallbacks();
        if self.reputation.changes() != self.reputation_seen {
            self.follow_reputation();
        }
        for device in 0..self.slots.len() {
            if self.slots[device].in_flight > 0 {
                self.poll_slot(device, self.dequeue_batch);
            }
        }
        self.expire(now);
        if self.admission.as_ref().is_some_and(|admission| admission.waiting() > 0) {
            self.serve_waiting(now);
        }
        self.call_hook();
        self.outstanding()
    }

    /// Returns the number of jobs that came since the start.
    pub(crate) fn arrivals(&self) -> u64 {
        self.history.arrivals()
    }

    /// Returns what is in flight now, and how to learn of its completion.
    pub fn outstanding(&self) -> Outstanding {
        let turn_within = self.expiry_check_every();
        let waiting = self.admission.as_ref().map_or(0, |admission| admission.waiting());
        let jobs = waiting + self.fallbacks.len();
        let polled = (!self.fallbacks.is_empty()).then_some(Nanos(0));
        let mut outstanding = Outstanding { jobs, polled, turn_within };
        for slot in &self.slots {
            outstanding.jobs += slot.in_flight;
            if let Some(expected) = slot.poll_within() {
                let sooner = outstanding.polled.map_or(expected, |other| other.min(expected));
                outstanding.polled = Some(sooner);
            }
        }
        self.with_hooked(outstanding)
    }

    /// Places a job for which no answer is known.
    #[inline(never)]
    fn decide(&mut self, job: Box<Job>, waiting: usize, now: Nanos) -> Ticket {
        let drawn = self.drawn(&job, now);
        match self.validated_choice(&job, drawn) {
            Some(choice) => self.place(job, choice, true, now),
            None => self.decide_anew(job, drawn, waiting, now),
        }
    }

    #[inline(never)]
    fn decide_anew(&mut self, job: Box<Job>, drawn: Drawn, waiting: usize, now: Nanos) -> Ticket {
        let (mut choice, is_open) = self.choose(&job, drawn, waiting, now);
        if choice.placement == Placement::Sync {
            choice = self.as_waited_for(choice);
        }
        if job.deadline.is_some() {
            self.records_costs = true;
            if is_open {
                choice = self.in_time(choice, &job, now);
            }
        } else if !self.uses_costs && self.retired == 0 && self.may_fall_back(&job.task) {
            self.record_decision(&job, choice);
        }
        self.place(job, choice, is_open, now)
    }

    /// Remembers the choice where it is that of other jobs, too.
    fn record_decision(&mut self, job: &Job, choice: Choice) {
        let Some(mut sizes) = self.policy.steady_for(job.work_bytes()) else { return };
        let job_shape = JobShape::new(job);
        for slot in &self.slots {
            let alike = slot.alike(&job_shape);
            sizes = sizes.start.max(alike.start)..sizes.end.min(alike.end);
        }
        self.decision_cache.insert(job, sizes, choice);
    }

    /// The policy's choice within what the configuration allows, and whether it is open: else it is the path that was
    /// required and is not.
    #[inline(always)]
    fn choose(&mut self, job: &Job, drawn: Drawn, waiting: usize, now: Nanos) -> (Choice, bool) {
        let fallback = self.fallback(&job.task);
        if fallback == Fallback::Forbid {
            return (Choice::software(Reason::Configured), true);
        }
        // Where nothing is inside devices, no turn looks.
        if self.retired > 0 && self.reputation.changes() != self.reputation_seen {
            self.follow_reputation();
        }
        let job_shape = JobShape::new(job);
        let (uses_costs, arrivals) = (self.uses_costs, self.history.arrivals());
        for (state, slot) in self.states.iter_mut().zip(&mut self.slots) {
            slot.update(state, &job_shape);
            if uses_costs {
                slot.estimate(state, &job_shape, slot.backlog_bytes(), arrivals);
            }
        }
        if fallback == Fallback::Require {
            return self.choose_required(job, now);
        }
        if self.retired > 0
            && let Some(device) = self.probe(job, now)
        {
            return (on(device, Reason::Probe), true);
        }
        let choice = self.ask_policy(job, &job_shape, drawn, waiting, now);
        if choice.device() != 0 || self.states[0].eligible {
            return (choice, true);
        }
        match Snapshot::of(&self.states).first_open() {
            Some(device) => (on(device, Reason::OnlyDevice), true),
            None => (choice, true),
        }
    }

    #[inline(always)]
    fn ask_policy(
        &mut self,
        job: &Job,
        job_shape: &JobShape<'_>,
        Drawn { draw, gap }: Drawn,
        waiting: usize,
        now: Nanos,
    ) -> Choice {
        let mut facts = facts(job, job_shape.work_bytes, now);
        if !self.uses_costs {
            return self.policy.place(&facts, &Snapshot::of(&self.states), draw);
        }
        let kind = self.history.kind(facts.op, job_shape.work_bytes);
        facts.last = kind.last.map(|choice| (choice.device(), choice.placement));
        let snapshot = Snapshot { devices: &self.states, waiting, gap };
        let choice = self.policy.place(&facts, &snapshot, draw);
        if choice.reason != Reason::Probe {
            kind.last = Some(choice);
            self.revalidate(&facts, job_shape, choice, gap.unwrap_or_default());
        }
        choice
    }

    #[cold]
    fn choose_required(&mut self, job: &Job, now: Nanos) -> (Choice, bool) {
        let snapshot = Snapshot::of(&self.states);
        if let Some(device) = snapshot.first_open() {
            return (on(device, Reason::Configured), true);
        }
        let closed = on(1, snapshot.reason_for_software());
        match self.probe(job, now) {
            Some(device) => (on(device, Reason::Probe), true),
            None => (closed, false),
        }
    }

    /// A device that needs the calling thread cannot be waited for by it: that job is async, and says so.
    fn as_waited_for(&self, mut choice: Choice) -> Choice {
        if !self.slots[choice.device()].device.completes_alone() {
            choice.placement = Placement::Async;
        }
        choice
    }

    /// A retired device that is due for a probe and open again; the job at hand will show whether
    /// it lives.
    #[cold]
    fn probe(&mut self, job: &Job, now: Nanos) -> Option<usize> {
        let device = self.slots.iter().position(|slot| slot.may_probe(job, now))?;
        if self.slots[device].is_distrusted() {
            let (may, probe_at) = self.reputation.try_probe(device, now, self.reprobe_after)?;
            self.slots[device].distrust(probe_at);
            if !may {
                return None;
            }
        }
        self.metrics.count_probe(device);
        let slot = &mut self.slots[device];
        slot.reopen(now, self.reprobe_after, self.waker.clone()).ok()?;
        Some(device)
    }

    /// Does the same as `place`, off the fast path.
    #[inline(never)]
    fn place_cold(&mut self, job: Box<Job>, choice: Choice, is_open: bool, now: Nanos) -> Ticket {
        self.place(job, choice, is_open, now)
    }

    #[inline(always)]
    fn place(&mut self, mut job: Box<Job>, choice: Choice, is_open: bool, now: Nanos) -> Ticket {
        let (ticket, entry) = self.jobs.open();
        entry.tag = job.tag;
        entry.submitted = now;
        entry.choice = choice;
        if self.has_tenants || job.tenant != TenantId::default() {
            self.has_tenants = true;
            keep_apart(&mut job, choice);
        }
        let slot = &mut self.slots[choice.device()];
        slot.waiting += 1;
        match choice.device() {
            0 => {}
            _ if slot.shows_jobs => entry.again.keep_size(&job),
            _ => entry.again.keep(&mut job),
        }
        job.tag = ticket.mark();
        if is_open {
            self.dispatch(job, choice);
        } else {
            self.fail(job, DeviceError::Fault("no device that may run the job is open"));
        }
        ticket
    }

    #[inline(always)]
    fn dispatch(&mut self, job: Box<Job>, choice: Choice) {
        if self.admission.is_some() {
            return self.admit(job, choice);
        }
        self.hand_over(job, choice);
    }

    /// Does the same as `hand_over`, off the fast path.
    #[inline(never)]
    fn hand_over_cold(&mut self, job: Box<Job>, choice: Choice) {
        self.enter(Ticket::from_mark(job.tag));
        self.hand_over(job, choice);
    }

    #[inline(always)]
    fn hand_over(&mut self, job: Box<Job>, choice: Choice) {
        let (ticket, device) = (Ticket::from_mark(job.tag), choice.device());
        let may_be_watched = self.records_costs || (device != 0 && self.is_sampled());
        let slot = &mut self.slots[device];
        let handed = match may_be_watched && slot.is_watched(job.task.op(), self.time.last()) {
            true => self.submit_watched(job, ticket, device),
            false => slot.submit(job),
        };
        match handed {
            Err(Refused { job, reason }) => return self.refused(job, device, reason),
            Ok(Submitted::Done) => {
                self.time.refresh_once();
                return self.poll_slot(device, usize::MAX);
            }
            Ok(Submitted::Last) => self.decision_cache.forget(),
            Ok(Submitted::InFlight) => {}
        }
        if choice.placement == Placement::Sync {
            self.wait_here(device, ticket);
        }
    }

    /// Returns whether the job is one of the few that are timed on the core.
    #[inline]
    fn is_sampled(&mut self) -> bool {
        self.until_sampled -= 1;
        self.until_sampled == 0 && self.sample()
    }

    #[cold]
    fn sample(&mut self) -> bool {
        self.until_sampled = SAMPLED_ONE_IN;
        true
    }

    /// Hands the job to its device and notes what it meets there and what its submission takes.
    #[cold]
    fn submit_watched(
        &mut self,
        job: Box<Job>,
        ticket: Ticket,
        device: usize,
    ) -> Result<Submitted, Refused> {
        let slot = &mut self.slots[device];
        let mut sample = slot.sample(self.time.read());
        let taken = slot.submit(job)?;
        sample.host = self.time.read().since(sample.at) + slot.way_back();
        if let Some(entry) = self.jobs.get_mut(ticket) {
            entry.sample = Some(sample);
        }
        Ok(taken)
    }

    /// Polls one device until the job is back or overdue: the calling thread has nothing better to do. The ticket was
    /// not handed out yet, so the job's entry stays.
    fn wait_here(&mut self, device: usize, ticket: Ticket) {
        loop {
            let now = self.time.refresh_once();
            self.allow_fallbacks();
            self.serve_fallbacks();
            self.poll_slot(device, self.dequeue_batch);
            let Some(entry) = self.jobs.get(ticket).filter(|entry| !entry.is_finished()) else {
                return;
            };
            // One that its device failed is software's, behind others that are: it is on its way, and not overdue.
            let is_inside = entry.choice.device() != 0;
            if is_inside && now.since(entry.submitted) >= self.job_timeout {
                return self.expire_one(ticket);
            }
            std::hint::spin_loop();
        }
    }

    fn fallback(&self, task: &Task) -> Fallback {
        self.fallback[task.op().index() % OPS]
    }

    fn may_fall_back(&self, task: &Task) -> bool {
        self.fallback(task) == Fallback::Prefer
    }

    fn poll_slot(&mut self, device: usize, max: usize) {
        match self.slots[device].scrutiny.is_on() {
            true => self.poll_verified(device, max),
            false => self.poll_trusted(device, max),
        }
    }

    #[inline(never)]
    fn poll_trusted(&mut self, device: usize, max: usize) {
        let mut polled = self.polled(device);
        let (taken, mut taken_bytes) = (polled.len().min(max), 0);
        for completion in polled.drain(..taken) {
            let work_bytes = completion.job.work_bytes();
            taken_bytes += work_bytes;
            self.complete(device, completion, work_bytes);
        }
        let slot = &mut self.slots[device];
        slot.left(taken, taken_bytes);
        slot.keep(polled);
    }

    /// Does the same as `poll_trusted` and checks each result. It is separate so that other devices' jobs do not pay
    /// for it.
    #[inline(never)]
    fn poll_verified(&mut self, device: usize, max: usize) {
        let mut polled = self.polled(device);
        let (taken, mut taken_bytes) = (polled.len().min(max), 0);
        for completion in polled.drain(..taken) {
            let work_bytes = completion.job.work_bytes();
            taken_bytes += work_bytes;
            match self.is_drawn(device, &completion) {
                true => self.complete_drawn(device, completion),
                false => self.complete(device, completion, work_bytes),
            }
        }
        let slot = &mut self.slots[device];
        slot.left(taken, taken_bytes);
        slot.keep(polled);
    }

    #[inline(always)]
    fn polled(&mut self, device: usize) -> Vec<Completion> {
        let slot = &mut self.slots[device];
        // An inline device is empty again before the next job is placed.
        if slot.is_full() && !slot.is_inline() {
            self.decision_cache.forget();
        }
        match slot.is_timed(self.records_costs) {
            true => slot.poll_timed(&self.time),
            false => slot.poll(self.time.last()),
        }
    }

    #[inline(always)]
    fn complete(&mut self, device: usize, completion: Completion, work_bytes: usize) {
        match completion {
            // Put together again, so that it stays in registers.
            Completion { job, outcome: Outcome::Done { output_bytes }, service }
                if self.retired == 0 =>
            {
                let outcome = Outcome::Done { output_bytes };
                self.finish(Completion { job, outcome, service }, work_bytes);
            }
            odd => self.complete_oddly(device, odd),
        }
    }

    /// Does the same as `finish`, off the fast path.
    #[inline(never)]
    fn finish_cold(&mut self, completion: Completion) {
        let work_bytes = completion.job.work_bytes();
        self.finish(completion, work_bytes);
    }

    #[inline(always)]
    fn finish(&mut self, completion: Completion, work_bytes: usize) {
        let ticket = Ticket::from_mark(completion.job.tag);
        let Some(entry) = self.jobs.get_mut(ticket).filter(|entry| !entry.is_finished()) else {
            return self.drop_late(completion);
        };
        // Stored first: what can panic below then has nothing to drop.
        let completion = entry.finished.insert(completion);
        entry.total = self.time.last().since(entry.submitted);
        self.metrics.count(entry.choice, completion, work_bytes, entry.total);
        self.slots[entry.choice.device()].waiting -= 1;
        completion.job.tag = entry.tag;
        entry.again.clear();
        let was = std::mem::replace(&mut entry.state, State::Finished);
        self.unclaimed += 1;
        if was == State::Awaited {
            entry.waker.iter().for_each(Waker::wake_by_ref);
        }
        if entry.sample.is_some()
            || completion.job.deadline.is_some()
            || (self.records_costs && self.slots[entry.choice.device()].is_inline())
        {
            self.look_at(ticket);
        }
        if self.admission.is_some() || matches!(was, State::Hooked | State::Detached) {
            self.let_go(ticket, was);
        }
    }

    /// Drops the completion of a job that timed out here and was redone or failed. Its buffers come home now.
    #[cold]
    fn drop_late(&mut self, completion: Completion) {
        self.metrics.count_late();
        drop(completion);
    }

    /// Checks what few finished jobs need: whether they were in time, and what they cost.
    #[inline(never)]
    fn look_at(&mut self, ticket: Ticket) {
        let entry = self.jobs.get(ticket).expect(BOOKED);
        let Some(Completion { job, outcome, service }) = &entry.finished else { return };
        let (now, arrivals) = (self.time.last(), self.history.arrivals());
        let slot = &mut self.slots[entry.choice.device()];
        // A job that was given up says nothing about the device.
        let is_given_up = matches!(outcome, Outcome::Failed(DeviceError::Cancelled));
        if !is_given_up && job.deadline.is_some_and(|deadline| now > deadline) {
            self.metrics.count_missed(entry.choice.device());
        }
        let is_well = matches!(outcome, Outcome::Done { .. } | Outcome::DoesNotFit);
        if let Some(sample) = &entry.sample {
            self.metrics.count_host(entry.choice, job, sample.host);
            if self.records_costs
                && is_well
                && slot.record_cost(job, sample, arrivals)
                && self.uses_costs
            {
                self.decision_cache.forget();
            }
        } else if self.records_costs
            && is_well
            && slot.is_inline()
            && slot.record_held_cost(job, *service, now, arrivals)
            && self.uses_costs
        {
            self.decision_cache.forget();
        }
    }

    /// Does what is left for a finished job where there are limits, and for one that is never claimed.
    #[inline(never)]
    fn let_go(&mut self, ticket: Ticket, was: State) {
        let entry = self.jobs.get_mut(ticket).expect(BOOKED);
        leave(&mut self.admission, entry);
        match was {
            State::Hooked => self.finished_hooked(ticket),
            State::Detached => {
                self.unclaimed -= 1;
                self.jobs.close(ticket);
            }
            State::Waiting | State::Awaited | State::Finished | State::Free => {}
        }
    }

    fn expiry_check_every(&self) -> Nanos {
        Nanos(self.job_timeout.0 / EXPIRY_CHECKS_PER_TIMEOUT)
    }
}

/// The jobs in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The number of jobs not yet returned.
    pub jobs: usize,
    /// The time after which the first of the jobs that must be polled for is due.
    pub polled: Option<Nanos>,
    /// With jobs outstanding, a `turn` is due at least this often. It finds overdue jobs.
    pub turn_within: Nanos,
}

/// Makes sure that a device that states more than it wrote exposes no other tenant's bytes.
#[inline(never)]
fn keep_apart(job: &mut Job, choice: Choice) {
    match choice.device() {
        0 => job.output.lend_to(job.tenant),
        _ => job.output.hand_to(job.tenant, job.output_offset),
    }
}

fn on(device: usize, reason: Reason) -> Choice {
    Choice::to(device, Placement::Async, reason)
}

#[inline(always)]
fn facts(job: &Job, work_bytes: usize, now: Nanos) -> JobFacts {
    JobFacts {
        op: job.task.op(),
        dialect: job.task.dialect(),
        work_bytes,
        class: job.class,
        tenant: job.tenant,
        time_left: job.deadline.map(|deadline| deadline.since(now)),
        last: None,
    }
}

/// The searches for overdue jobs per timeout. With this many turns a job is redone at most a quarter late, and a
/// runtime that polls without pause does not scan its jobs at every turn.
const EXPIRY_CHECKS_PER_TIMEOUT: u64 = 8;

/// A look at the clock before and after takes some 50 ns: less than two for each job. Odd, so that where two kinds of
/// job take turns both are sampled.
const SAMPLED_ONE_IN: u32 = 31;

/// The reason why a ticket that came back with its job has an entry.
const BOOKED: &str = "a job's books are closed with its end";
