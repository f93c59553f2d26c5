//! Reads back a sample of the streams that devices write, in software: a wrong one is a fault of its device, and the
//! job is redone. Decompressed values need none of that: their checksums are looked at.

use std::num::NonZeroU32;

use device::{Completion, DeviceError, Input, Job, Outcome, Pool, Task};
use units::ByteCount;

use super::{BOOKED, Runtime};
use crate::entry::{Entry, Ticket};

/// Which streams are read back.
pub(super) struct Sample {
    every: Option<NonZeroU32>,
    seen: u32,
}

impl Sample {
    /// One in so many, or none.
    pub(super) fn of(every: Option<NonZeroU32>) -> Self {
        Self { every, seen: 0 }
    }
}

impl Runtime {
    /// Whether the job's stream is one of those that are read back.
    #[inline]
    pub(super) fn is_drawn(&mut self, device: usize, completion: &Completion) -> bool {
        let Some(every) = self.sample.every else { return false };
        let may_be = device != 0
            && matches!(completion.job.task, Task::Compress { .. })
            && matches!(completion.outcome, Outcome::Done { .. })
            && completion.job.input.len() <= VERIFIED_BYTES_MAX;
        self.sample.seen += u32::from(may_be);
        let is_drawn = self.sample.seen >= every.get();
        if is_drawn {
            self.sample.seen = 0;
        }
        is_drawn
    }

    /// The end of a job whose stream is read back first.
    #[cold]
    pub(super) fn complete_drawn(&mut self, device: usize, completion: Completion) {
        let completion = self.verified(device, completion);
        self.complete_oddly(device, completion);
    }

    /// Makes a failure of the job if its stream is not what it should be.
    fn verified(&mut self, device: usize, mut completion: Completion) -> Completion {
        let ticket = Ticket::from_mark(completion.job.tag);
        let is_late = self.jobs.get(ticket).is_none_or(Entry::is_finished);
        if is_late || self.reads_back(&completion).unwrap_or(false) {
            return completion;
        }
        self.metrics.count_corrupt(device);
        completion.outcome = Outcome::Failed(DeviceError::Fault("wrote what cannot be read back"));
        // A device may have put its result in place of the buffer; the second try needs all of the room.
        let job = &mut completion.job;
        let entry = self.jobs.get(ticket).expect(BOOKED);
        if job.output.capacity() < entry.again.output_bytes() && job.output_offset == 0 {
            job.output = Pool::heap(ByteCount(0)).take(entry.again.output_bytes());
        }
        completion
    }

    /// Whether software makes the input of the stream; none when there is no stream or no room.
    fn reads_back(&mut self, completion: &Completion) -> Option<bool> {
        let Completion { job, outcome, .. } = completion;
        let Outcome::Done { output_bytes } = *outcome else { return None };
        let end = job.output_offset.checked_add(output_bytes)?;
        let stream = job.output.get(job.output_offset..end)?;
        let (dialect, original_bytes) = (job.task.dialect()?, job.input.len());
        let pool = Pool::heap(ByteCount(0));
        let mut input = pool.take(stream.len());
        input.extend(stream);
        let input = Input::pooled(input, 0..stream.len());
        let task = Task::Decompress { dialect, original_bytes };
        let aside = Job::new(task, input, pool.take(original_bytes));
        let Completion { job: read, outcome, .. } = self.slots[0].aside(Box::new(aside))?;
        let is_done =
            matches!(outcome, Outcome::Done { output_bytes } if output_bytes == original_bytes);
        Some(is_done && read.output.get(..original_bytes)? == &job.input[..])
    }
}

/// To read back a larger stream would keep the thread from its other work for too long.
const VERIFIED_BYTES_MAX: usize = 256 << 10;
