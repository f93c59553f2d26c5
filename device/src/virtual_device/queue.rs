//! One thread's way into a virtual device. All host work happens in `try_submit`, within the time
//! that the device would need anyway; `poll` only compares times.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::hint;
use std::sync::Arc;

use bytes::Bytes;
use units::Nanos;

use super::Shared;
use super::counters::Delay;
use super::table::{Key, Remembered};
use super::timeline::Cost;
use crate::codec::{EngineError, Level};
use crate::engines::{EngineSet, NO_ROOM_ERROR};
use crate::job::{Completion, DeviceError, Job, Outcome, Task};
use crate::queue::{Queue, Refused, RefusedReason};

/// One thread's engines and the jobs that are not yet due. Dropping it lets go of them; the device
/// stays occupied as long as they would have occupied it.
pub(super) struct VirtualQueue {
    shared: Arc<Shared>,
    set: EngineSet,
    /// Where results are made; kept for its capacity.
    scratch: Vec<u8>,
    inside: BinaryHeap<Inside>,
    submissions: u64,
}

impl VirtualQueue {
    pub(super) fn new(shared: Arc<Shared>, set: EngineSet) -> Self {
        Self { shared, set, scratch: Vec::new(), inside: BinaryHeap::new(), submissions: 0 }
    }

    /// The outcome, with the result in the job's output. The device owns the buffer until the job
    /// is due, so nobody sees that it is there early.
    fn outcome(&mut self, job: &mut Job) -> Outcome {
        let offset = job.output_offset;
        let transfer_bytes_max = self.shared.transfer_bytes_max();
        let room = job.output.capacity().saturating_sub(offset).min(transfer_bytes_max);
        let key = match job.task {
            Task::Compress { .. } if room == 0 => return Outcome::DoesNotFit,
            Task::Compress { .. } => Key::compress(&job.input),
            Task::Decompress { original_bytes, .. } if original_bytes > room => {
                return Outcome::Failed(NO_ROOM_ERROR);
            }
            Task::Decompress { original_bytes, .. } => Key::decompress(&job.input, original_bytes),
            // Nothing remembered: these are made where they are asked for.
            Task::Encrypt { .. } | Task::Decrypt { .. } | Task::Checksum { .. } | Task::Copy => {
                self.shared.counters.computed();
                return self.set.run(job);
            }
        };
        let remembered = match self.shared.table.get(&key) {
            Some(remembered) => {
                self.shared.counters.remembered();
                remembered
            }
            None => {
                self.shared.counters.computed();
                match self.compute(job, key) {
                    Ok(remembered) => remembered,
                    Err(EngineError::DoesNotFit) => return Outcome::DoesNotFit,
                    Err(EngineError::Device(error)) => return Outcome::Failed(error),
                }
            }
        };
        match remembered {
            Remembered::Invalid(what) => Outcome::Failed(DeviceError::InvalidInput(what)),
            Remembered::Result(bytes) if bytes.len() > room => Outcome::DoesNotFit,
            // What hardware writes costs no core anything: a copy here would.
            Remembered::Result(bytes) if offset == 0 => {
                let output_bytes = bytes.len();
                job.output.adopt(bytes);
                Outcome::Done { output_bytes }
            }
            Remembered::Result(bytes) => {
                job.output.space()[offset..offset + bytes.len()].copy_from_slice(&bytes);
                job.output.set_len(offset + bytes.len());
                Outcome::Done { output_bytes: bytes.len() }
            }
        }
    }

    /// Makes the result and remembers it.
    fn compute(&mut self, job: &Job, key: Key) -> Result<Remembered, EngineError> {
        let (task, space_bytes) = match &job.task {
            Task::Compress { .. } => {
                let task = Task::Compress { dialect: self.shared.dialect(), level: LEVEL };
                (task, stream_bytes_max(job.input.len()))
            }
            task => (task.clone(), task.output_bytes(job.input.len()).unwrap_or(0)),
        };
        if self.scratch.len() < space_bytes {
            self.scratch.resize(space_bytes, 0);
        }
        let space = &mut self.scratch[..space_bytes];
        let remembered = match self.set.apply(&task, &job.input, space) {
            Ok(bytes) => Remembered::Result(Bytes::copy_from_slice(&space[..bytes])),
            Err(EngineError::Device(DeviceError::InvalidInput(what))) => Remembered::Invalid(what),
            Err(error) => return Err(error),
        };
        let table = &self.shared.table;
        table.remember(key, remembered.clone());
        if let (Task::Compress { .. }, Remembered::Result(stream)) = (task, &remembered) {
            // A copy: a slice of the input would keep its whole pool buffer alive.
            let original = Bytes::copy_from_slice(&job.input);
            let key = Key::decompress(stream, original.len());
            table.remember(key, Remembered::Result(original));
        }
        Ok(remembered)
    }

    /// When a job that is submitted at `start` is due and what the profile says it takes, or none
    /// if the device is full.
    fn admit(&self, job: &Job, start: Nanos) -> Option<(Nanos, Nanos)> {
        if self.inside.len() >= self.shared.capabilities.queue_depth {
            return None;
        }
        let profile = &self.shared.profile;
        let op = match job.task {
            Task::Compress { .. } => profile.compress(),
            Task::Decompress { .. } => &profile.decompress,
            // No profile has these: its capabilities refuse them first.
            Task::Encrypt { .. } | Task::Decrypt { .. } | Task::Checksum { .. } | Task::Copy => {
                return None;
            }
        };
        let bytes = job.work_bytes() as u64;
        let (latency, submit) = (op.latency(bytes), profile.submit());
        // Published latencies begin with the submission.
        let cost = Cost { engine: latency.since(submit), interval: op.interval(bytes) };
        let due = self.shared.timeline.admit(start + submit, cost)?;
        Some((due, latency))
    }

    /// Whose doing it is that a job was not ready in time, `allowed` after it was submitted.
    fn delay(&self, work_start: Nanos, allowed: Nanos) -> Delay {
        let work = self.shared.work_clock.now().since(work_start);
        let late = work > allowed + self.shared.profile.late_after();
        if late { Delay::Emulation } else { Delay::System }
    }

    /// The submission is not over before `end` on the calling core.
    fn spend_until(&self, end: Nanos) {
        while self.shared.clock.now() < end {
            hint::spin_loop();
        }
    }
}

impl Queue for VirtualQueue {
    fn try_submit(&mut self, mut job: Box<Job>) -> Result<(), Refused> {
        let accepted = self.shared.capabilities.accepts(&job.task, job.work_bytes())
            && job.input.len() <= self.shared.transfer_bytes_max();
        if !accepted {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        let start = self.shared.clock.now();
        let work_start = self.shared.work_clock.now();
        let submit = self.shared.profile.submit();
        let Some((due, service)) = self.admit(&job, start) else {
            self.shared.counters.refused_full();
            self.spend_until(start + submit);
            return Err(Refused { job, reason: RefusedReason::Full });
        };
        let outcome = self.outcome(&mut job);
        let worked = self.shared.clock.now();
        let delay = match worked > due + self.shared.profile.late_after() {
            false => Delay::None,
            true => self.delay(work_start, due.since(start)),
        };
        self.shared.counters.job(worked.since(start), submit, delay);
        self.spend_until(start + submit);
        self.submissions += 1;
        let completion = Completion { job, outcome, service };
        let ready = due.max(worked);
        self.inside.push(Inside { ready, submission: self.submissions, completion });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        if self.inside.is_empty() {
            return 0;
        }
        let now = self.shared.clock.now();
        let before = done.len();
        while self.inside.peek().is_some_and(|inside| inside.ready <= now)
            && let Some(inside) = self.inside.pop()
        {
            done.push(inside.completion);
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.inside.len()
    }
}

/// A job and when it comes back; the greatest is the earliest.
struct Inside {
    ready: Nanos,
    submission: u64,
    completion: Completion,
}

impl Ord for Inside {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.ready, other.submission).cmp(&(self.ready, self.submission))
    }
}

impl PartialOrd for Inside {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Inside {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Inside {}

/// What the hardware's one level comes nearest to: zlib level 1's ratio.
const LEVEL: Level = Level::Default;

/// Room for the worst case of any deflate writer: stored blocks and an end.
const fn stream_bytes_max(bytes: usize) -> usize {
    bytes + bytes / 8 + 1_024
}
