//! The path of a job from a poll of its device to its owner. Jobs without a result go to `recover.rs`.

use std::task::Waker;

use device::{Completion, DeviceError, Outcome};

use super::fair::leave;
use super::verify::Verdict;
use super::{HAS_ENTRY, Runtime};
use crate::entry::{State, Ticket};

impl Runtime {
    pub(super) fn poll_slot(&mut self, device: usize, max: usize) {
        match self.devices.slots[device].read_back.is_on() {
            true => self.poll_device::<true>(device, max),
            false => self.poll_device::<false>(device, max),
        }
    }

    /// Delivers the completions of one device. With `VERIFIED` false, for a device whose results are never
    /// read back, it skips the check for read-back.
    #[inline(never)]
    fn poll_device<const VERIFIED: bool>(&mut self, device: usize, max: usize) {
        let mut polled = self.polled(device);
        let (taken, mut taken_bytes) = (polled.len().min(max), 0);
        for completion in polled.drain(..taken) {
            let work_bytes = completion.job.trip_bytes();
            taken_bytes += work_bytes;
            match VERIFIED && self.tick_read_back(device, &completion) {
                true => self.complete_drawn(device, completion),
                false => self.complete(device, completion, work_bytes),
            }
        }
        let slot = &mut self.devices.slots[device];
        slot.record_delivered(taken, taken_bytes);
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
            other => self.complete_abnormally(device, other, Verdict::Unread),
        }
    }

    #[inline(always)]
    pub(super) fn finish(&mut self, completion: Completion, work_bytes: usize) {
        let ticket = Ticket::from_mark(completion.job.tag);
        let entry = self.jobs.table.get_mut(ticket).filter(|entry| !entry.is_finished());
        let Some(entry) = entry else {
            return self.drop_late(completion);
        };
        // The completion is stored first, so that a panic below has nothing to drop.
        let completion = entry.finished.insert(completion);
        entry.total = self.clock.time.last().since(entry.submitted);
        match completion.job.chain {
            None => self.metrics.count(entry.choice, completion, work_bytes, entry.total),
            Some(_) => self.metrics.count_chain(entry.choice, completion, entry.total),
        }
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
            self.release_entry(ticket, was);
        }
    }

    /// Drops the completion of a job that timed out earlier and was redone or failed. Its buffers return now.
    #[cold]
    fn drop_late(&mut self, completion: Completion) {
        self.metrics.count_late();
        drop(completion);
    }

    /// Records the cost of a finished job, and whether it missed its deadline. Few jobs need this.
    #[inline(never)]
    fn record(&mut self, ticket: Ticket) {
        let entry = self.jobs.table.get(ticket).expect(HAS_ENTRY);
        let Some(Completion { job, outcome, service }) = &entry.finished else { return };
        let (now, arrivals) = (self.clock.time.last(), self.decisions.history.arrivals());
        let slot = &mut self.devices.slots[entry.choice.device()];
        // A cancelled job says nothing about the device.
        let is_cancelled = matches!(outcome, Outcome::Failed(DeviceError::Cancelled));
        if !is_cancelled && job.deadline.is_some_and(|deadline| now > deadline) {
            self.metrics.count_missed(entry.choice.device());
        }
        let has_valid_outcome = matches!(outcome, Outcome::Done { .. } | Outcome::DoesNotFit);
        let records_cost = self.decisions.records_costs && has_valid_outcome;
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

    /// Does the remaining work for a finished job that counts against limits or that no task claims.
    #[inline(never)]
    fn release_entry(&mut self, ticket: Ticket, was: State) {
        let entry = self.jobs.table.get_mut(ticket).expect(HAS_ENTRY);
        leave(&mut self.jobs.admission, entry);
        match was {
            State::Hooked => self.finished_hooked(ticket),
            State::Detached => {
                self.jobs.unclaimed -= 1;
                self.jobs.table.close(ticket);
            }
            State::Waiting | State::Awaited | State::Finished | State::Free => {}
        }
    }
}
