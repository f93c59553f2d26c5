//! One thread's queue of the library: job structures and the jobs in them. On the software path a job is over
//! when the submission returns, and the next poll returns it. On the other paths each poll asks the library
//! for the status. A job with several steps (statistics, body, verification) advances by one step per poll.

use std::hint;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Completion, DeviceError, Job, Outcome, Queue, Refused, RefusedReason};
use units::Nanos;

use super::abi::status;
use super::counters::Count;
use super::outcome::{self, Asked};
use super::plan::{Plan, plan};
use super::slot::Slot;
use super::{Path, Shared};

/// One thread's job structures.
pub(super) struct QplQueue {
    shared: Arc<Shared>,
    idle: Vec<Slot>,
    in_flight: Vec<InFlight>,
    finished: Vec<Completion>,
}

/// A job that the device may be working on. Its slot and buffers must not be freed before the job is over.
struct InFlight {
    slot: Slot,
    job: Box<Job>,
    asked: Asked,
    start: Instant,
}

impl QplQueue {
    /// # Errors
    /// The path cannot be used, or cannot be used any more.
    pub(super) fn open(shared: Arc<Shared>) -> Result<Self, DeviceError> {
        let first = shared.slot()?;
        Ok(Self { shared, idle: vec![first], in_flight: Vec::new(), finished: Vec::new() })
    }

    /// Returns a free job structure, or makes a new one.
    fn take_slot(&mut self) -> Option<Slot> {
        self.idle.pop().or_else(|| match self.shared.slot() {
            Ok(slot) => Some(slot),
            Err(error) => {
                self.shared.warn_once(NO_STRUCTURE, &error.to_string());
                None
            }
        })
    }

    /// Completes a job that is over. `status` is the library's last status of the job. `taken` says whether a
    /// submission of the job was accepted before.
    fn finish(&mut self, in_flight: InFlight, status: u32, taken: bool) {
        let InFlight { mut slot, mut job, asked, start } = in_flight;
        let outcome = outcome::outcome(asked, slot.report(status));
        let in_software = slot.ran_in_software();
        if let Outcome::Failed(error) = &outcome
            && !matches!(error, DeviceError::InvalidInput(_))
        {
            self.shared.warn_once(status, &format!("{error} (QPL status {status})"));
        }
        if let Outcome::Done { output_bytes } = outcome {
            let offset = job.output_offset;
            if matches!(asked, Asked::Checksum { .. }) {
                let checksum = slot.crc64().to_le_bytes();
                job.output.space()[offset..offset + output_bytes]
                    .copy_from_slice(&checksum[..output_bytes]);
            }
            job.output.set_len(offset + output_bytes);
        }
        self.count(status, in_software, taken);
        let service = Nanos::from(start.elapsed());
        self.finished.push(Completion { job, outcome, service });
        let reusable = status == status::OK || self.shared.path == Path::Software || slot.renew();
        if reusable {
            self.idle.push(slot);
        }
    }

    fn count(&self, status: u32, in_software: bool, taken: bool) {
        let counters = &self.shared.counters;
        match in_software {
            true => counters.add(Count::Software),
            false if taken => counters.add(Count::Hardware),
            false => {}
        }
        match status {
            status::QUEUES_BUSY => counters.add(Count::BusyMidway),
            status::VERIFY_FAILED => counters.add(Count::VerifyFailed),
            code if outcome::is_page_fault(code) => counters.add(Count::PageFault),
            _ => {}
        }
    }

    fn run(&mut self, mut job: Box<Job>, mut slot: Slot, asked: Asked) -> Result<(), Refused> {
        let request = self.shared.request(&mut job, &mut slot, asked);
        let start = Instant::now();
        // SAFETY: the request's pointers are to the job's buffers, and `Shared::request` limits the sizes to what
        // these buffers hold. The job owns the buffers, and nothing touches them while the job is `InFlight`.
        // `InFlight` is dropped only after the library said that the job is over; `Drop` leaks the other jobs. The slot
        // was idle.
        let status = unsafe { slot.submit(&request) };
        match status {
            status::QUEUES_BUSY => {
                self.idle.push(slot);
                self.shared.counters.add(Count::RefusedBusy);
                return Err(Refused { job, reason: RefusedReason::Full });
            }
            // If a device may have the job, only the library can say when the device releases it.
            status::OK if self.shared.path != Path::Software => {
                self.in_flight.push(InFlight { slot, job, asked, start });
            }
            status => self.finish(InFlight { slot, job, asked, start }, status, false),
        }
        Ok(())
    }
}

impl Queue for QplQueue {
    fn try_submit(&mut self, mut job: Box<Job>) -> Result<(), Refused> {
        if !self.shared.accepts(&job) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if self.pending() >= self.shared.capabilities.queue_depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let blames_the_stream = self.shared.path != Path::Hardware;
        match plan(&mut job, self.shared.transfer_bytes_max, blames_the_stream) {
            Plan::Over(outcome) => {
                self.finished.push(Completion { job, outcome, service: Nanos(0) });
                Ok(())
            }
            Plan::Run(asked) => match self.take_slot() {
                Some(slot) => self.run(job, slot, asked),
                None => Err(Refused { job, reason: RefusedReason::Lost }),
            },
        }
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let mut index = 0;
        while index < self.in_flight.len() {
            match self.in_flight[index].slot.check() {
                status::BEING_PROCESSED => index += 1,
                status => {
                    let in_flight = self.in_flight.swap_remove(index);
                    self.finish(in_flight, status, true);
                }
            }
        }
        let count = self.finished.len();
        done.append(&mut self.finished);
        count
    }

    fn pending(&self) -> usize {
        self.in_flight.len() + self.finished.len()
    }
}

impl Drop for QplQueue {
    /// Waits for the jobs in flight, because the device may write to their buffers until the library reports
    /// them as over. After [`DETACH_WAIT`] the device counts as hung, and its jobs keep their memory for the
    /// rest of the process's life. This costs at most one queue of jobs, and the device can never write to
    /// memory of another owner.
    fn drop(&mut self) {
        let give_up = Instant::now() + DETACH_WAIT;
        loop {
            // Jobs that completed while this thread had no core were in time.
            let over = Instant::now() >= give_up;
            self.in_flight
                .retain_mut(|in_flight| in_flight.slot.check() == status::BEING_PROCESSED);
            if over || self.in_flight.is_empty() {
                break;
            }
            hint::spin_loop();
        }
        for in_flight in self.in_flight.drain(..) {
            self.shared.counters.add(Count::Leaked);
            mem::forget(in_flight);
        }
    }
}

/// The pseudo status for a job that gets no job structure.
const NO_STRUCTURE: u32 = u32::MAX;

/// The longest wait of a drop. It is ten times the time of 2 MiB with a page fault on every page (9 µs each; QEMU's
/// measurement).
const DETACH_WAIT: Duration = Duration::from_millis(50);
