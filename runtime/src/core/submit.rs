//! The path of a job from its submission into a device: a decision, an entry, the submission to the queue. Most jobs
//! find their decision in the cache.

use device::{DeviceError, Job, Refused, TenantId};
use policy::{Choice, JobFacts, Placement, Reason, Snapshot};
use units::Nanos;

use super::Runtime;
use super::decision_cache::{Drawn, Fresh};
use crate::config::Fallback;
use crate::entry::Ticket;
use crate::slot::{JobShape, Submitted, kind_of};

impl Runtime {
    /// Places the job. On a device that completes inline the result is ready for `claim` on return. The
    /// number of tasks that wait for the core is assumed to be the number of finished, unclaimed jobs.
    pub fn submit(&mut self, job: Box<Job>) -> Ticket {
        self.submit_among(job, self.jobs.unclaimed)
    }

    /// Submits like `submit`, for an executor that knows how many tasks wait for the core.
    pub fn submit_among(&mut self, job: Box<Job>, waiting: usize) -> Ticket {
        self.allow_fallbacks();
        let now = self.clock.time.now();
        self.decisions.history.count();
        match self.decisions.cache.get(&job) {
            Some(choice) => self.place(job, choice, now),
            None => self.place_unsized(job, waiting, now),
        }
    }

    /// Submits a job to software for a stated reason, without asking the policy.
    #[inline(never)]
    pub fn submit_to_software(&mut self, job: Box<Job>, reason: Reason) -> Ticket {
        let now = self.clock.time.now();
        self.place(job, Choice::software(reason), now)
    }

    /// Places a job without a sized decision in the cache.
    #[inline(never)]
    fn place_unsized(&mut self, job: Box<Job>, waiting: usize, now: Nanos) -> Ticket {
        let drawn = self.draw(&job, now);
        let (slots, arrivals) = (&self.devices.slots, self.decisions.history.arrivals());
        match self.decisions.cache.get_validated(&job, drawn, slots, arrivals) {
            Some(choice) => self.place(job, choice, now),
            None => self.place_undecided(job, drawn, waiting, now),
        }
    }

    /// Places a job without any decision in the cache.
    #[inline(never)]
    fn place_undecided(
        &mut self,
        job: Box<Job>,
        drawn: Drawn,
        waiting: usize,
        now: Nanos,
    ) -> Ticket {
        match self.decide(&job, drawn, waiting, now) {
            Some(choice) => self.place(job, choice, now),
            None => self.reject(job, now),
        }
    }

    /// Draws random bits and records the arrival of a job. This happens for each job without a sized decision in the
    /// cache, even if a probe or the configuration decides its placement.
    #[inline(always)]
    pub(super) fn draw(&mut self, job: &Job, now: Nanos) -> Drawn {
        let decisions = &mut self.decisions;
        let draw = if self.devices.slots.len() > 1 { decisions.draws.bits() } else { 0 };
        let uses_costs = decisions.uses_costs;
        let gap = uses_costs.then(|| decisions.history.arrived(job.work_bytes(), now));
        Drawn { draw, gap }
    }

    /// Decides where the job runs. Returns none if software is forbidden and no device is open.
    #[inline(always)]
    fn decide(&mut self, job: &Job, drawn: Drawn, waiting: usize, now: Nanos) -> Option<Choice> {
        let choice = self.choose(job, drawn, waiting, now);
        if job.deadline.is_some() {
            self.decisions.records_costs = true;
        }
        let mut choice = choice?;
        // The calling thread cannot wait for a device that needs it. The job becomes async, and its choice says so.
        if choice.placement == Placement::Sync
            && !self.devices.slots[choice.device()].device.completes_alone()
        {
            choice.placement = Placement::Async;
        }
        if job.deadline.is_some() {
            choice = self.in_time(choice, job, now);
        } else if !self.decisions.uses_costs
            && self.devices.retired == 0
            && self.decisions.may_fall_back(&job.task)
        {
            self.cache_decision(job, choice);
        }
        Some(choice)
    }

    /// Caches the choice for the range of sizes for which it holds.
    fn cache_decision(&mut self, job: &Job, choice: Choice) {
        let sizes = self.decisions.policy.valid_sizes(job.work_bytes());
        let Some(mut sizes) = sizes else { return };
        let job_shape = JobShape::new(job);
        for slot in &self.devices.slots {
            let alike = slot.alike(&job_shape);
            sizes = sizes.start.max(alike.start)..sizes.end.min(alike.end);
        }
        self.decisions.cache.insert(job, sizes, choice);
    }

    /// Returns the policy's choice within the limits of the configuration, or a probe.
    #[inline(always)]
    fn choose(&mut self, job: &Job, drawn: Drawn, waiting: usize, now: Nanos) -> Option<Choice> {
        let fallback = self.decisions.fallback(&job.task);
        if fallback == Fallback::Forbid {
            return Some(Choice::software(Reason::Configured));
        }
        // No turn checks the reputation while no job is inside a device, so this does.
        let devices = &self.devices;
        if devices.retired > 0 && devices.reputation.changes() != devices.reputation_seen {
            self.follow_reputation();
        }
        let job_shape = JobShape::new(job);
        let arrivals = self.decisions.history.arrivals();
        for (state, slot) in self.decisions.states.iter_mut().zip(&mut self.devices.slots) {
            slot.update(state, &job_shape);
            if self.decisions.uses_costs {
                slot.estimate(state, &job_shape, slot.backlog_bytes(), arrivals);
            }
        }
        if fallback == Fallback::Require {
            return self.choose_required(job, now);
        }
        if self.devices.retired > 0
            && let Some(device) = self.probe(job, now)
        {
            return Some(on(device, Reason::Probe));
        }
        let choice = self.ask_policy(job, &job_shape, drawn, waiting, now);
        if choice.device() != 0 || self.decisions.states[0].eligible {
            return Some(choice);
        }
        let first_open = Snapshot::new(&self.decisions.states).first_open();
        Some(first_open.map_or(choice, |device| on(device, Reason::OnlyDevice)))
    }

    #[inline(always)]
    fn ask_policy(
        &mut self,
        job: &Job,
        shape: &JobShape<'_>,
        Drawn { draw, gap }: Drawn,
        waiting: usize,
        now: Nanos,
    ) -> Choice {
        let decisions = &mut self.decisions;
        let mut facts = facts(job, shape.work_bytes, now);
        if !decisions.uses_costs {
            return decisions.policy.place(&facts, &Snapshot::new(&decisions.states), draw);
        }
        let last = decisions.cache.last(facts.op, shape.work_bytes);
        facts.last = last.map(|choice| (choice.device(), choice.placement));
        let snapshot = Snapshot { devices: &decisions.states, waiting, gap };
        let choice = decisions.policy.place(&facts, &snapshot, draw);
        if choice.reason != Reason::Probe {
            decisions.cache.set_last(facts.op, shape.work_bytes, choice);
            let gap = gap.unwrap_or_default();
            let fresh = Fresh { facts: &facts, shape, choice, gap };
            let arrivals = decisions.history.arrivals();
            if self.devices.retired == 0 && decisions.cache.needs_validation(&fresh, arrivals) {
                let (policy, slots) = (&*decisions.policy, &mut self.devices.slots);
                decisions.cache.validate(fresh, policy, slots, &decisions.history);
            }
        }
        choice
    }

    #[cold]
    fn choose_required(&mut self, job: &Job, now: Nanos) -> Option<Choice> {
        match Snapshot::new(&self.decisions.states).first_open() {
            Some(device) => Some(on(device, Reason::Configured)),
            None => self.probe(job, now).map(|device| on(device, Reason::Probe)),
        }
    }

    /// Opens a new queue of a retired device whose probe is due, and returns the device's index. The job then
    /// shows whether the device works again.
    #[cold]
    fn probe(&mut self, job: &Job, now: Nanos) -> Option<usize> {
        let devices = &mut self.devices;
        let device = devices.slots.iter().position(|slot| slot.may_probe(job, now))?;
        if devices.slots[device].is_distrusted() {
            let reprobe_after = devices.reprobe_after;
            let (may, probe_at) = devices.reputation.try_probe(device, now, reprobe_after)?;
            devices.slots[device].distrust(probe_at);
            if !may {
                return None;
            }
        }
        self.metrics.count_probe(device);
        let slot = &mut devices.slots[device];
        slot.reopen(now, devices.reprobe_after, devices.waker.clone()).ok()?;
        Some(device)
    }

    #[inline(always)]
    pub(super) fn place(&mut self, mut job: Box<Job>, choice: Choice, now: Nanos) -> Ticket {
        let ticket = self.open_entry(&mut job, choice, now);
        match self.jobs.admission {
            Some(_) => self.admit(job, choice),
            None => self.submit_to_device(job, choice),
        }
        ticket
    }

    /// Fails a job for which software is forbidden and no device is open.
    #[cold]
    fn reject(&mut self, mut job: Box<Job>, now: Nanos) -> Ticket {
        let closed = on(1, Snapshot::new(&self.decisions.states).reason_for_software());
        let ticket = self.open_entry(&mut job, closed, now);
        self.fail(job, DeviceError::Fault("no device that may run the job is open"));
        ticket
    }

    #[inline(always)]
    fn open_entry(&mut self, job: &mut Job, choice: Choice, now: Nanos) -> Ticket {
        let (ticket, entry) = self.jobs.table.open();
        entry.tag = job.tag;
        entry.submitted = now;
        entry.choice = choice;
        if self.jobs.has_tenants || job.tenant != TenantId::default() {
            self.jobs.has_tenants = true;
            isolate_tenant(job, choice);
        }
        let slot = &mut self.devices.slots[choice.device()];
        slot.waiting += 1;
        match choice.device() {
            0 => {}
            _ if slot.shows_jobs => entry.again.keep_size(job),
            _ => entry.again.keep(job),
        }
        job.tag = ticket.mark();
        ticket
    }

    /// Submits a job that waited or must be redone, and counts it among its tenant's jobs in flight on devices.
    #[inline(never)]
    pub(super) fn submit_admitted(&mut self, job: Box<Job>, choice: Choice) {
        self.enter(Ticket::from_mark(job.tag));
        self.submit_to_device(job, choice);
    }

    #[inline(always)]
    fn submit_to_device(&mut self, job: Box<Job>, choice: Choice) {
        let (ticket, device) = (Ticket::from_mark(job.tag), choice.device());
        let may_sample = self.decisions.records_costs || (device != 0 && self.clock.tick_sample());
        let slot = &mut self.devices.slots[device];
        let submitted = match may_sample && slot.tick_sample(kind_of(&job), self.clock.time.last())
        {
            true => self.submit_sampled(job, ticket, device),
            false => slot.submit(job),
        };
        match submitted {
            Err(Refused { job, reason }) => return self.refused(job, device, reason),
            Ok(Submitted::Done) => {
                self.clock.time.refresh_once();
                return self.poll_slot(device, usize::MAX);
            }
            Ok(Submitted::Last) => self.decisions.cache.forget(),
            Ok(Submitted::InFlight) => {}
        }
        if choice.placement == Placement::Sync {
            self.wait_sync(device, ticket);
        }
    }

    /// Submits the job to its device and records the conditions that it meets there and the time of the submission.
    #[cold]
    fn submit_sampled(
        &mut self,
        job: Box<Job>,
        ticket: Ticket,
        device: usize,
    ) -> Result<Submitted, Refused> {
        let (slot, time) = (&mut self.devices.slots[device], &self.clock.time);
        let mut sample = slot.sample(time.read());
        let submitted = slot.submit(job)?;
        sample.host = time.read().since(sample.at) + slot.completion_cost();
        if let Some(entry) = self.jobs.table.get_mut(ticket) {
            entry.sample = Some(sample);
        }
        Ok(submitted)
    }

    /// Polls the device of a sync job until the job is complete or overdue. The caller does not have the
    /// ticket yet, so it cannot remove the job's entry.
    fn wait_sync(&mut self, device: usize, ticket: Ticket) {
        loop {
            let now = self.clock.time.refresh_once();
            self.allow_fallbacks();
            self.serve_fallbacks();
            self.poll_slot(device, self.devices.dequeue_batch);
            let entry = self.jobs.table.get(ticket).filter(|entry| !entry.is_finished());
            let Some(entry) = entry else { return };
            // A job that its device failed belongs to software. It may wait behind others there, but it is not overdue.
            let is_on_device = entry.choice.device() != 0;
            if is_on_device && now.since(entry.submitted) >= self.clock.job_timeout {
                return self.expire_one(ticket);
            }
            std::hint::spin_loop();
        }
    }
}

impl super::Clock {
    /// Counts a job, and returns whether it is one of the few whose time on the core is measured.
    #[inline]
    fn tick_sample(&mut self) -> bool {
        self.until_sampled -= 1;
        self.until_sampled == 0 && self.restart_sample()
    }

    #[cold]
    fn restart_sample(&mut self) -> bool {
        self.until_sampled = SAMPLED_ONE_IN;
        true
    }
}

/// Ensures that a device that reports more bytes than it wrote exposes no other tenant's bytes.
#[inline(never)]
fn isolate_tenant(job: &mut Job, choice: Choice) {
    match choice.device() {
        0 => job.output.lend_to(job.tenant),
        _ => job.output.assign_to(job.tenant, job.output_offset),
    }
    if let Some(chain) = job.chain.as_mut().filter(|_| choice.device() != 0) {
        chain.isolate();
    }
}

fn on(device: usize, reason: Reason) -> Choice {
    Choice::to(device, Placement::Async, reason)
}

#[inline(always)]
pub(super) fn facts(job: &Job, work_bytes: usize, now: Nanos) -> JobFacts {
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

/// One job in this many is sampled. The two clock readings of a sample take some 50 ns, which is less than 2 ns per
/// job. The number is odd, so that two kinds of job that alternate are both sampled.
const SAMPLED_ONE_IN: u32 = 31;
