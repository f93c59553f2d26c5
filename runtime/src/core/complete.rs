//! The path of a job from a poll of its device to its owner. Jobs without a result go to `recover.rs`.

use std::task::Waker;

use device::{Completion, DeviceError, Outcome};

use super::fair::leave;
use super::verify::Verdict;
use super::{BOOKED, Runtime};
use crate::entry::{State, Ticket};

impl Runtime {
    pub(super) fn poll_slot(&mut self, device: usize, max: usize) {
        match self.devices.slots[device].scrutiny.is_on() {
            true => self.poll_device::<true>(device, max),
            false => self.poll_device::<false>(device, max),
        }
    }

    /// Delivers the completions of one device. If no results of a device are read back, its jobs do not pay for the
    /// check.
    #[inline(never)]
    fn poll_device<const VERIFIED: bool>(&mut self, device: usize, max: usize) {
        let mut polled = self.polled(device);
        let (taken, mut taken_bytes) = (polled.len().min(max), 0);
        for completion in polled.drain(..taken) {
            let work_bytes = completion.job.work_bytes();
            taken_bytes += work_bytes;
            match VERIFIED && self.tick_scrutiny(device, &completion) {
                true => self.complete_drawn(device, completion),
                false => self.complete(device, completion, work_bytes),
            }
        }
        let slot = &mut self.devices.slots[device];
        slot.left(taken, taken_bytes);
        slot.keep(polled);
    }

    #[inline(always)]
    fn polled(&mut self, device: usize) -> Vec<Completion> {
        let slot = &mut self.devices.slots[device];
        // An inline device is empty again before the next job is placed.
        if slot.is_full() && !slot.is_inline() {
            self.decisions.cache.forget();
        }
        match slot.tick_poll(self.decisions.records_costs) {
            true => slot.poll_timed(&self.clock.time),
            false => slot.poll(self.clock.time.last()),
        }
    }

    #[inline(always)]
    fn complete(&mut self, device: usize, completion: Completion, work_bytes: usize) {
        match completion {
            // The completion is assembled again, so that it stays in registers.
            Completion { job, outcome: Outcome::Done { output_bytes }, service }
                if self.devices.retired == 0 =>
            {
                let outcome = Outcome::Done { output_bytes };
                self.finish(Completion { job, outcome, service }, work_bytes);
            }
            odd => self.complete_oddly(device, odd, Verdict::Unread),
        }
    }

    #[inline(always)]
    pub(super) fn finish(&mut self, completion: Completion, work_bytes: usize) {
        let ticket = Ticket::from_mark(completion.job.tag);
        let entry = self.jobs.ledger.get_mut(ticket).filter(|entry| !entry.is_finished());
        let Some(entry) = entry else {
            return self.drop_late(completion);
        };
        // The completion is stored first, so that a panic below has nothing to drop.
        let completion = entry.finished.insert(completion);
        entry.total = self.clock.time.last().since(entry.submitted);
        self.metrics.count(entry.choice, completion, work_bytes, entry.total);
        self.devices.slots[entry.choice.device()].waiting -= 1;
        completion.job.tag = entry.tag;
        entry.again.clear();
        let was = std::mem::replace(&mut entry.state, State::Finished);
        self.jobs.unclaimed += 1;
        if was == State::Awaited {
            entry.waker.iter().for_each(Waker::wake_by_ref);
        }
        let holds_core = || self.devices.slots[entry.choice.device()].is_inline();
        if entry.sample.is_some()
            || completion.job.deadline.is_some()
            || (self.decisions.records_costs && holds_core())
        {
            self.record(ticket);
        }
        if self.jobs.admission.is_some() || matches!(was, State::Hooked | State::Detached) {
            self.let_go(ticket, was);
        }
    }

    /// Drops the completion of a job that timed out earlier and was redone or failed. Its buffers return now.
    #[cold]
    fn drop_late(&mut self, completion: Completion) {
        self.metrics.count_late();
        drop(completion);
    }

    /// Records what a finished job shows: whether it met its deadline, and its cost. Few jobs need this.
    #[inline(never)]
    fn record(&mut self, ticket: Ticket) {
        let entry = self.jobs.ledger.get(ticket).expect(BOOKED);
        let Some(Completion { job, outcome, service }) = &entry.finished else { return };
        let (now, arrivals) = (self.clock.time.last(), self.decisions.history.arrivals());
        let slot = &mut self.devices.slots[entry.choice.device()];
        // A cancelled job says nothing about the device.
        let is_given_up = matches!(outcome, Outcome::Failed(DeviceError::Cancelled));
        if !is_given_up && job.deadline.is_some_and(|deadline| now > deadline) {
            self.metrics.count_missed(entry.choice.device());
        }
        let is_well = matches!(outcome, Outcome::Done { .. } | Outcome::DoesNotFit);
        let records_cost = self.decisions.records_costs && is_well;
        let changes = match &entry.sample {
            Some(sample) => {
                self.metrics.count_host(entry.choice, job, sample.host);
                records_cost && slot.record_cost(job, sample, arrivals)
            }
            None if slot.is_inline() => {
                records_cost && slot.record_held_cost(job, *service, now, arrivals)
            }
            None => false,
        };
        if changes && self.decisions.uses_costs {
            self.decisions.cache.forget();
        }
    }

    /// Does the remaining work for a finished job where there are limits, and for a job that is never claimed.
    #[inline(never)]
    fn let_go(&mut self, ticket: Ticket, was: State) {
        let entry = self.jobs.ledger.get_mut(ticket).expect(BOOKED);
        leave(&mut self.jobs.admission, entry);
        match was {
            State::Hooked => self.finished_hooked(ticket),
            State::Detached => {
                self.jobs.unclaimed -= 1;
                self.jobs.ledger.close(ticket);
            }
            State::Waiting | State::Awaited | State::Finished | State::Free => {}
        }
    }
}
