//! Verifies results of devices in software: the first results of each queue and a random share of the others. A wrong
//! result counts against its device, and its job is redone. Decompressed values are not read back, because their
//! callers verify checksums. The callers report wrong values here.

use device::{Completion, DeviceError, Dialect, Input, Job, Outcome, Pool, Task, plausible};
use units::ByteCount;

use super::Runtime;
use crate::breaker::Wrong;
use crate::entry::Ticket;

/// The outcome of reading a result back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The result was not read back, or cannot be read back.
    Unread,
    Right,
    Wrong,
}

impl Runtime {
    /// Counts a result of a device whose results are verified. Returns whether this result should be read back.
    #[inline(never)]
    pub(super) fn tick_read_back(&mut self, device: usize, completion: &Completion) -> bool {
        let read_back = &mut self.devices.slots[device].read_back;
        !matches!(completion.job.task, Task::Decompress { .. })
            && matches!(completion.outcome, Outcome::Done { .. })
            && (read_back.tick() || is_garbage(completion))
    }

    /// Completes a job whose result is due for read-back. The read-back may be skipped for a large result.
    #[cold]
    pub(super) fn complete_drawn(&mut self, device: usize, mut completion: Completion) {
        let slot = &mut self.devices.slots[device];
        let verdict =
            match slot.read_back.skips(completion.job.work_bytes(), &mut self.decisions.draws) {
                true if !is_garbage(&completion) => {
                    slot.read_back.record_good(&mut self.decisions.draws);
                    Verdict::Unread
                }
                // A result of a device that is out of service is redone in any case.
                _ if slot.is_distrusted() && !slot.is_probed() => Verdict::Unread,
                _ => self.examine(device, &mut completion),
            };
        self.complete_abnormally(device, completion, verdict);
    }

    /// Compares a device's result with software's result. If they differ, the completion becomes a failure.
    pub(super) fn examine(&mut self, device: usize, completion: &mut Completion) -> Verdict {
        let ticket = Ticket::from_mark(completion.job.tag);
        let Some(entry) = self.jobs.table.get(ticket).filter(|entry| !entry.is_finished()) else {
            return Verdict::Unread;
        };
        let output_bytes = entry.again.output_bytes();
        match self.is_right(completion) {
            None => Verdict::Unread,
            Some(true) => {
                self.metrics.count_verified(device);
                let slot = &mut self.devices.slots[device];
                slot.read_back.record_good(&mut self.decisions.draws);
                self.devices.reputation.right(device, slot.take_unreported());
                Verdict::Right
            }
            Some(false) => {
                self.metrics.count_verified(device);
                self.metrics.count_corrupt(device);
                self.found_wrong(device, Wrong::ReadBack);
                completion.outcome = Outcome::Failed(DeviceError::Fault(WRONG_RESULT));
                // A device may have replaced the output buffer with its result. The second attempt needs the full size.
                let job = &mut completion.job;
                if job.output.capacity() < output_bytes && job.output_offset == 0 {
                    job.output = Pool::heap(ByteCount(0)).take(output_bytes);
                }
                Verdict::Wrong
            }
        }
    }

    /// Reports that the device decompressed a stream incorrectly, although software can read the stream. A
    /// caller detected this by a checksum.
    pub fn report_misread(&mut self, device: usize) {
        if device != 0 && device < self.devices.slots.len() {
            self.metrics.count_misread(device);
            self.found_wrong(device, Wrong::Reported);
        }
    }

    /// Reports that the stream of the frame with this checksum cannot be read. This counts against the device that
    /// wrote the stream, if a device of this process did.
    pub fn report_unreadable(&mut self, checksum: u32, stream_bytes: usize) {
        if let Some(device) = self.devices.reputation.writer(checksum, stream_bytes)
            && device < self.devices.slots.len()
        {
            self.metrics.count_corrupt(device);
            self.found_wrong(device, Wrong::Reported);
        }
    }

    /// Records that the device was wrong, verifies it more often, and retires it after too many faults.
    pub(super) fn found_wrong(&mut self, device: usize, how: Wrong) {
        if !self.devices.reputation.is_foreign(device) {
            return;
        }
        let slot = &mut self.devices.slots[device];
        let (jobs, now) = (slot.take_unreported(), self.clock.time.last());
        if how != Wrong::Failed {
            slot.read_back.restart();
        }
        if self.devices.reputation.wrong(device, how, jobs, now, self.devices.reprobe_after) {
            self.metrics.count_distrusted(device);
        }
        self.follow_reputation();
    }

    /// Applies the process's reputation of the devices: retires distrusted devices and restores others.
    #[cold]
    pub(super) fn follow_reputation(&mut self) {
        self.devices.reputation_seen = self.devices.reputation.changes();
        for device in 1..self.devices.slots.len() {
            let slot = &mut self.devices.slots[device];
            match self.devices.reputation.probe_at(device) {
                Some(probe_at) if !slot.is_distrusted() => {
                    self.devices.retired += usize::from(slot.distrust(probe_at));
                    self.decisions.cache.forget();
                }
                None if slot.is_distrusted() => self.restore(device),
                Some(_) | None => {}
            }
        }
    }

    /// Returns whether the result matches software's result. Returns none if that cannot be known.
    fn is_right(&mut self, completion: &Completion) -> Option<bool> {
        let job = &completion.job;
        // A wrong op makes the whole chain wrong.
        for step in job.chain.iter().flat_map(|chain| chain.done()) {
            if self.is_right_result(&step.task, &step.input, Some(&step.result)) == Some(false) {
                return Some(false);
            }
        }
        self.is_right_result(&job.task, &job.input, result(completion))
    }

    fn is_right_result(
        &mut self,
        task: &Task,
        input: &Input,
        result: Option<&[u8]>,
    ) -> Option<bool> {
        match task {
            Task::Compress { dialect, .. } => {
                Some(self.reads_back(*dialect, input, result).unwrap_or(false))
            }
            // Callers verify what is decompressed. It is read back only as the end of a chain.
            _ => self.makes_the_same(task, input, result),
        }
    }

    /// Returns whether software decompresses the stream to the job's input, or none if that is unknown.
    fn reads_back(
        &mut self,
        dialect: Dialect,
        original: &Input,
        stream: Option<&[u8]>,
    ) -> Option<bool> {
        let stream = stream?;
        let original_bytes = original.len();
        let pool = Pool::heap(ByteCount(0));
        let mut input = pool.take(stream.len());
        input.extend(stream);
        let input = Input::pooled(input, 0..stream.len());
        let task = Task::Decompress { dialect, original_bytes };
        let check = Job::new(task, input, pool.take(original_bytes));
        let Completion { job: read, outcome, .. } =
            self.devices.slots[0].run_untracked(Box::new(check))?;
        let is_done =
            matches!(outcome, Outcome::Done { output_bytes } if output_bytes == original_bytes);
        Some(is_done && read.output.get(..original_bytes)? == &original[..])
    }

    /// Returns whether software computes the same result. Returns none if software computes no result.
    fn makes_the_same(&mut self, task: &Task, input: &Input, made: Option<&[u8]>) -> Option<bool> {
        // A function's result brings its own memory.
        let output_bytes = task.output_bytes(input.len()).unwrap_or(0);
        let output = Pool::heap(ByteCount(0)).take(output_bytes);
        let check = Job::new(task.clone(), input.clone(), output);
        let again = self.devices.slots[0].run_untracked(Box::new(check))?;
        Some(made == Some(result(&again)?))
    }
}

/// Returns the result of a successful job. Returns none if its range is not within the output.
fn result(completion: &Completion) -> Option<&[u8]> {
    let Outcome::Done { output_bytes } = completion.outcome else { return None };
    let job = &completion.job;
    job.output.get(job.output_offset..job.output_offset.checked_add(output_bytes)?)
}

/// Returns whether a stream obviously cannot come from its input.
fn is_garbage(completion: &Completion) -> bool {
    let Task::Compress { dialect, .. } = completion.job.task else { return false };
    let input = &completion.job.input[..];
    result(completion).is_none_or(|stream| plausible::contradicts(dialect.codec, input, stream))
}

const WRONG_RESULT: &str = "a result that software refutes";
