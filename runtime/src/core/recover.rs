//! Handles jobs that a device refused, failed, lost or kept too long. The job is redone in software if that is allowed,
//! and the device is retired if it is to blame. This module decides nothing about successful jobs.

use device::{Completion, DeviceError, Job, Outcome, RefusedReason};
use policy::{Choice, Reason};
use units::Nanos;

use super::fair::leave;
use super::verify::Verdict;
use super::{HAS_ENTRY, Runtime};
use crate::breaker::Wrong;
use crate::entry::{Entry, Ticket};

impl Runtime {
    /// Handles a job that the device refused.
    pub(super) fn refused(&mut self, job: Box<Job>, device: usize, reason: RefusedReason) {
        let why = match reason {
            RefusedReason::Full => Reason::QueueFull,
            RefusedReason::Unsupported => Reason::Ineligible,
            RefusedReason::Lost => Reason::DeviceLost,
        };
        if reason == RefusedReason::Lost {
            self.retire(device);
        }
        if device != 0 && self.decisions.may_fall_back(&job.task) {
            self.fall_back(job, why);
        } else {
            self.fail(job, DeviceError::Fault("the device refused the job"));
        }
    }

    /// Runs a job again in software, and records the reason.
    pub(super) fn fall_back(&mut self, job: Box<Job>, reason: Reason) {
        let choice = Choice::software(reason);
        let ticket = Ticket::from_mark(job.tag);
        let entry = self.jobs.table.get_mut(ticket).expect(HAS_ENTRY);
        leave(&mut self.jobs.admission, entry);
        entry.sample = None;
        let from = std::mem::replace(&mut entry.choice, choice).device();
        self.devices.slots[from].waiting -= 1;
        self.devices.slots[0].waiting += 1;
        self.metrics.count_fallback(from, reason);
        if self.jobs.fallbacks.is_empty() && self.jobs.fallback_bytes_left > 0 {
            self.fall_back_now(job, choice);
        } else {
            self.jobs.fallbacks.push_back(job);
        }
    }

    fn fall_back_now(&mut self, job: Box<Job>, choice: Choice) {
        self.jobs.fallback_bytes_left =
            self.jobs.fallback_bytes_left.saturating_sub(job.work_bytes().max(1));
        self.submit_admitted(job, choice);
    }

    /// Redoes jobs that earlier turns left, up to the limit of one turn.
    pub(super) fn serve_fallbacks(&mut self) {
        while self.jobs.fallback_bytes_left > 0
            && let Some(job) = self.jobs.fallbacks.pop_front()
        {
            let ticket = Ticket::from_mark(job.tag);
            let entry = self.jobs.table.get(ticket).filter(|entry| !entry.is_finished());
            let Some(entry) = entry else {
                // The device completed the job after all, and it was counted then.
                continue;
            };
            if entry.is_detached() {
                self.devices.slots[0].waiting -= 1;
                self.jobs.table.close(ticket);
            } else {
                let choice = entry.choice;
                self.fall_back_now(job, choice);
            }
        }
    }

    /// Allows more jobs to be redone. This is called when a turn or a submission begins.
    pub(super) fn allow_fallbacks(&mut self) {
        self.jobs.fallback_bytes_left = FALLBACK_BYTES_PER_TURN;
    }

    pub(super) fn retire(&mut self, device: usize) {
        if device != 0
            && self.devices.slots[device].retire(self.clock.time.last(), self.devices.reprobe_after)
        {
            self.devices.retired += 1;
            self.decisions.cache.forget();
            self.metrics.count_lost(device);
        }
    }

    /// Returns the device to service after its probe or another runtime's probe has passed.
    pub(super) fn restore(&mut self, device: usize) {
        let slot = &mut self.devices.slots[device];
        slot.retired = None;
        slot.read_back.restart();
        self.devices.retired -= 1;
        self.decisions.cache.forget();
        self.metrics.count_restored(device);
    }

    /// Ends a job that has no result, a job whose result was read back, or any job while a device is retired.
    #[inline(never)]
    pub(super) fn complete_abnormally(
        &mut self,
        device: usize,
        mut completion: Completion,
        mut verdict: Verdict,
    ) {
        let ticket = Ticket::from_mark(completion.job.tag);
        // A job that timed out and waits to be redone is late too: its device returns the job that it was told to
        // cancel.
        let is_late = |entry: &Entry| entry.is_finished() || entry.choice.device() != device;
        if self.jobs.table.get(ticket).is_none_or(is_late) {
            return self.metrics.count_late();
        }
        let has_passed = match self.devices.slots[device].is_probed() {
            true => self.has_passed(device, &mut completion, &mut verdict),
            false => {
                self.refuse_distrusted(device, &mut completion, verdict);
                false
            }
        };
        let fault = fault(&completion.outcome);
        // A cancelled job says nothing about the device.
        let is_cancelled = matches!(completion.outcome, Outcome::Failed(DeviceError::Cancelled));
        match fault {
            Some(Reason::DeviceLost) => self.retire(device),
            Some(Reason::DeviceFault) if verdict == Verdict::Unread && !is_cancelled => {
                self.found_wrong(device, Wrong::Failed);
            }
            None if has_passed => {
                self.devices.reputation.close(device);
                self.restore(device);
                self.devices.reputation_seen = self.devices.reputation.changes();
            }
            None | Some(_) => {}
        }
        let owned = self.jobs.table.get(ticket).is_some_and(|entry| !entry.is_detached());
        match fault {
            Some(reason)
                if device != 0 && owned && self.decisions.may_fall_back(&completion.job.task) =>
            {
                self.settle_chain(device, &mut completion.job);
                self.fall_back(completion.job, reason);
            }
            _ => self.end(completion),
        }
    }

    /// Prepares a job with a chain that failed on the device. Software continues from what this process's own code has
    /// done. What any other device has done proves nothing, so everything is redone.
    fn settle_chain(&mut self, device: usize, job: &mut Job) {
        if job.chain.is_none() {
            return;
        }
        if !self.devices.slots[device].device.runs_own_code() {
            return job.rewind();
        }
        let entry = self.jobs.table.get(Ticket::from_mark(job.tag)).expect(HAS_ENTRY);
        self.metrics.count_steps(entry.choice, job);
    }

    /// Returns whether a probe shows that the device works again. With read-back, its result must be right.
    fn has_passed(
        &mut self,
        device: usize,
        completion: &mut Completion,
        verdict: &mut Verdict,
    ) -> bool {
        if fault(&completion.outcome).is_some() {
            return false;
        }
        let is_done = matches!(completion.outcome, Outcome::Done { .. });
        let slot = &self.devices.slots[device];
        let needs_proof = slot.is_distrusted() || (slot.read_back.is_on() && is_done);
        if *verdict == Verdict::Unread && needs_proof && is_done {
            *verdict = self.examine(device, completion);
        }
        !needs_proof || *verdict == Verdict::Right
    }

    /// Turns the result of a distrusted device into a failure, unless the result was read back.
    fn refuse_distrusted(&self, device: usize, completion: &mut Completion, verdict: Verdict) {
        let is_result = fault(&completion.outcome).is_none();
        if is_result && self.devices.slots[device].is_distrusted() && verdict == Verdict::Unread {
            completion.outcome = Outcome::Failed(DeviceError::Lost);
        }
    }

    pub(super) fn fail(&mut self, job: Box<Job>, error: DeviceError) {
        self.end(Completion { job, outcome: Outcome::Failed(error), service: Nanos(0) });
    }

    /// Finishes a job and computes its size.
    fn end(&mut self, completion: Completion) {
        let work_bytes = completion.job.work_bytes();
        self.finish(completion, work_bytes);
    }

    /// Redoes in software the jobs that a device has kept longer than the timeout. The device keeps their buffers.
    pub(super) fn expire(&mut self, now: Nanos) {
        if now < self.clock.next_expiry_check {
            return;
        }
        self.clock.next_expiry_check =
            Nanos(now.0.saturating_add(self.clock.expiry_check_every().0));
        let timeout = self.clock.job_timeout;
        let overdue = |entry: &Entry| entry.is_in_device() && now.since(entry.submitted) >= timeout;
        for ticket in self.jobs.table.find(overdue) {
            self.expire_one(ticket);
        }
    }

    pub(super) fn expire_one(&mut self, ticket: Ticket) {
        let device = self.jobs.table.get(ticket).expect(HAS_ENTRY).choice.device();
        if let Some(job) = self.stop_waiting(device, ticket) {
            // The job never entered a device.
            return self.refused(job, device, RefusedReason::Full);
        }
        let entry = self.jobs.table.get_mut(ticket).expect(HAS_ENTRY);
        leave(&mut self.jobs.admission, entry);
        if let Some(job) = self.devices.slots[device].shown(ticket.mark()) {
            entry.again.keep_shown(job);
        }
        let again = entry.again.take(ticket.mark()).filter(|_| !entry.is_detached());
        self.metrics.count_timeout(device);
        self.devices.slots[device].cancel(ticket.mark());
        self.retire(device);
        let Some(job) = again else {
            self.devices.slots[device].waiting -= 1;
            self.jobs.table.close(ticket);
            return;
        };
        if self.decisions.may_fall_back(&job.task) {
            self.fall_back(job, Reason::Timeout);
        } else {
            self.fail(job, DeviceError::Timeout);
        }
    }
}

/// The number of bytes that one turn may redo. A lost device returns all its jobs at once. Jobs above this
/// limit are redone in the next turns, so that the thread's other work waits for some milliseconds at most.
const FALLBACK_BYTES_PER_TURN: usize = 256 << 10;

/// Returns why the job must be redone in software. Returns none if the device is not the cause of the outcome.
#[inline]
pub(super) fn fault(outcome: &Outcome) -> Option<Reason> {
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
