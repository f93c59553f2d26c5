//! Tenants and deadlines in the core: which jobs are held back, which wait for a full device, and which run in software
//! because a device would miss their deadline. Without limits and deadlines no job passes through this module.

use device::{DeviceError, Job, RefusedReason};
use policy::{Choice, Placement, Reason};
use units::Nanos;

use super::{HAS_ENTRY, Runtime};
use crate::admission::{AdmissionQueue, Limits};
use crate::entry::{Entry, Ticket};
use crate::slot::JobShape;

impl Runtime {
    /// Sets the limits for the next and later jobs.
    pub fn set_limits(&mut self, limits: Limits) {
        // If no job were allowed in, the waiting jobs would wait forever.
        let limits = Limits { tenant_jobs_max: limits.tenant_jobs_max.max(1), ..limits };
        match &mut self.jobs.admission {
            Some(admission) => admission.set_limits(limits),
            None if limits == Limits::NONE => {}
            None => {
                self.jobs.admission =
                    Some(Box::new(AdmissionQueue::new(limits, self.devices.slots.len())))
            }
        }
    }

    /// Submits the job or lets it wait for space in the device, for its tenant's other jobs, or for its turn.
    #[inline(never)]
    pub(super) fn admit(&mut self, job: Box<Job>, choice: Choice) {
        if !self.is_limited(choice) {
            return self.submit_admitted(job, choice);
        }
        // If no job is in flight, no turn would serve the waiting jobs.
        let turns = self.devices.slots.iter().any(|slot| slot.in_flight > 0);
        let device = choice.device();
        let is_full = self.devices.slots[device].is_full();
        let Some(admission) = self.jobs.admission.as_mut().filter(|_| turns) else {
            return self.submit_admitted(job, choice);
        };
        if !is_full && !admission.is_at_cap(job.tenant) && !admission.has_waiting(device) {
            return self.submit_admitted(job, choice);
        }
        if let Err(job) = admission.push(device, job) {
            self.refused(job, device, RefusedReason::Full);
        }
    }

    /// Submits the waiting jobs for which there is space now.
    pub(super) fn serve_waiting(&mut self, now: Nanos) {
        for device in 1..self.devices.slots.len() {
            loop {
                let is_lost = self.devices.slots[device].retired.is_some();
                if !is_lost && self.devices.slots[device].is_full() {
                    break;
                }
                let next = self.jobs.admission.as_mut().and_then(|admission| admission.pop(device));
                let Some(job) = next else { break };
                self.serve(job, is_lost, now);
            }
        }
    }

    fn serve(&mut self, job: Box<Job>, is_lost: bool, now: Nanos) {
        let entry = self.jobs.table.get(Ticket::from_mark(job.tag)).expect(HAS_ENTRY);
        let choice = entry.choice;
        let falls_back = self.decisions.may_fall_back(&job.task);
        if is_lost && falls_back {
            self.fall_back(job, Reason::DeviceLost);
        } else if is_lost {
            self.fail(job, DeviceError::Lost);
        } else if falls_back && self.is_too_late_there(&job, choice.device(), now) {
            self.fall_back(job, Reason::Deadline);
        } else {
            self.submit_admitted(job, choice);
        }
    }

    /// Returns the choice. Returns software instead if it meets a deadline that the chosen device would miss.
    #[cold]
    pub(super) fn in_time(&mut self, choice: Choice, job: &Job, now: Nanos) -> Choice {
        let device = choice.device();
        let free = device != 0 && choice.reason != Reason::Probe;
        if free
            && self.decisions.may_fall_back(&job.task)
            && self.is_too_late_there(job, device, now)
        {
            return Choice::software(Reason::Deadline);
        }
        choice
    }

    /// Returns whether the device is expected to miss the job's deadline and software to meet it.
    fn is_too_late_there(&mut self, job: &Job, device: usize, now: Nanos) -> bool {
        let Some(deadline) = job.deadline else { return false };
        let left = deadline.since(now);
        let job_shape = JobShape::new(job);
        let arrivals = self.decisions.history.arrivals();
        let mut meets = |device: usize| {
            // This uses a copy of the states that the policy sees, because the job may differ from the one that is
            // being placed.
            let mut state = self.decisions.states[device];
            self.devices.slots[device].update(&mut state, &job_shape);
            let slot = &self.devices.slots[device];
            slot.estimate(&mut state, &job_shape, slot.backlog_bytes(), arrivals);
            (state.eligible, state.estimated.map(|estimated| estimated <= left))
        };
        meets(device).1 == Some(false) && meets(0) == (true, Some(true))
    }

    /// Removes the job from the admission queue, if it waits there.
    pub(super) fn stop_waiting(&mut self, device: usize, ticket: Ticket) -> Option<Box<Job>> {
        let admission = self.jobs.admission.as_mut().filter(|admission| admission.waiting() > 0)?;
        admission.remove(device, ticket)
    }

    /// Counts a job that enters the device. The device may still refuse it, and the job then leaves.
    #[inline]
    pub(super) fn enter(&mut self, ticket: Ticket) {
        let Some(admission) = &mut self.jobs.admission else { return };
        if let Some(entry) =
            self.jobs.table.get_mut(ticket).filter(|entry| entry.choice.device() != 0)
        {
            entry.is_counted = true;
            admission.enter(entry.again.tenant());
        }
    }

    /// Returns whether a job with this choice may have to wait. A sync job never waits, because its thread does nothing
    /// else and no turn would serve the job. While a sync job runs, it counts as a job inside the device. A probe of a
    /// retired device never waits, because the queue was opened for it.
    fn is_limited(&self, choice: Choice) -> bool {
        choice.placement == Placement::Async
            && choice.device() != 0
            && self.devices.slots[choice.device()].retired.is_none()
    }
}

/// Removes a job from its tenant's count, because it left its device or timed out.
#[inline]
pub(super) fn leave(admission: &mut Option<Box<AdmissionQueue>>, entry: &mut Entry) {
    if let Some(admission) = admission
        && std::mem::take(&mut entry.is_counted)
    {
        admission.leave(entry.again.tenant());
    }
}
