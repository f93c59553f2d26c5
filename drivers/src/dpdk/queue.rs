//! One thread's queue of a compressdev: a queue pair, a fixed number of operations, and the jobs of these operations.
//! The bytes of a job stay in place until its operation has completed. Only a drop waits, for a few milliseconds.

use std::hash::{DefaultHasher, Hasher};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use device::{
    Buffer, Capabilities, Completion, DeviceError, Job, Level, Outcome, Queue, Refused,
    RefusedReason, Task,
};
use units::Nanos;

use super::outcome::{self, Asked, Direction, Follow, ends_early, outcome};
use super::port::{Kind, Port, QUEUE_DEPTH, Transform};
use super::sys::{self, RawQueue, Report, Request};
use super::transforms::Transforms;
use super::{Limits, stream_bytes_max};

/// A queue pair and the jobs in flight.
pub(super) struct DpdkQueue {
    port: Arc<Port>,
    capabilities: Capabilities,
    limits: Limits,
    pair: u16,
    raw: Raw,
    transforms: Transforms,
    /// The job of each slot's operation.
    slots: Vec<Option<InFlight>>,
    free_slots: Vec<u32>,
    /// Jobs that were completed without the device.
    answered: Vec<Completion>,
}

/// A job in flight and the resources of its operation.
struct InFlight {
    job: Box<Job>,
    asked: Asked,
    kind: Kind,
    capacity_bytes: usize,
    transform: Transform,
    /// Copies of the input and the output, if the device cannot access the job's own bytes.
    input: Option<Buffer>,
    output: Option<Buffer>,
    submitted: Instant,
    /// The service time, if the device works inside the submission.
    service: Option<Nanos>,
    /// The hash of the result with zeros behind the stream, if the job runs a second time with ones.
    first_result: Option<u64>,
}

impl InFlight {
    /// Returns all bytes to which the device may have written.
    fn written(&mut self) -> &mut [u8] {
        let start = self.job.output_offset;
        match self.output.as_mut() {
            Some(copy) => &mut copy.space()[..self.capacity_bytes.max(1)],
            None => &mut self.job.output.space()[start..start + self.capacity_bytes],
        }
    }

    fn fingerprint(&mut self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(self.written());
        hasher.finish()
    }
}

/// The next step of a job.
enum Plan {
    /// The outcome is known without the device.
    Answer(Outcome),
    Run(Steps),
}

struct Steps {
    asked: Asked,
    kind: Kind,
    capacity_bytes: usize,
}

impl DpdkQueue {
    /// # Errors
    /// [`DeviceError::Misconfigured`]: no queue pair or no memory is left.
    pub(super) fn open(
        port: Arc<Port>,
        capabilities: Capabilities,
        limits: Limits,
    ) -> Result<Self, DeviceError> {
        let pair = port.take_pair()?;
        let (depth, segments) = (QUEUE_DEPTH as u32, limits.segments);
        // SAFETY: the device runs, and this queue owns the pair until it returns it.
        let raw = unsafe { sys::rebate_dpdk_queue_new(port.id, pair, depth, segments) };
        let Some(raw) = NonNull::new(raw) else {
            port.return_pair(pair);
            return Err(DeviceError::Misconfigured(format!(
                "dpdk-{}: no memory for a queue; without huge pages it is what -m says",
                port.name
            )));
        };
        Ok(Self {
            transforms: Transforms::new(Arc::clone(&port), QUEUE_DEPTH),
            port,
            capabilities,
            limits,
            pair,
            raw: Raw(raw),
            slots: (0..depth).map(|_| None).collect(),
            free_slots: (0..depth).rev().collect(),
            answered: Vec::new(),
        })
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    fn plan(&self, job: &Job) -> Plan {
        let invalid = |what| Plan::Answer(Outcome::Failed(DeviceError::InvalidInput(what)));
        let capacity_bytes = job.output.capacity().saturating_sub(job.output_offset);
        let stream_max = stream_bytes_max(self.capabilities.work_bytes_max.as_usize(), self.limits);
        let windows = self.port.windows;
        let (kind, direction, capacity_bytes) = match job.task {
            Task::Compress { .. } if capacity_bytes == 0 => {
                return Plan::Answer(Outcome::DoesNotFit);
            }
            Task::Compress { dialect, level } => {
                let window_log2 = windows.within(dialect.window_log2.unwrap_or(windows.max));
                let kind = Kind { level: level_of(level), window_log2 };
                let capacity_bytes = capacity_bytes.min(stream_max);
                (kind, Direction::Compress { capacity_bytes }, capacity_bytes)
            }
            Task::Decompress { original_bytes, .. } => {
                if original_bytes > capacity_bytes {
                    return invalid("the output has no room for the original");
                }
                let kind = Kind { level: 0, window_log2: windows.max };
                (kind, Direction::Decompress { original_bytes }, original_bytes)
            }
            Task::Encrypt { .. }
            | Task::Decrypt { .. }
            | Task::Checksum { .. }
            | Task::Copy
            | Task::Function(_) => {
                return Plan::Answer(Outcome::Failed(DeviceError::Fault("not this device's")));
            }
        };
        if matches!(direction, Direction::Decompress { .. }) {
            match job.input.len() {
                0 => return invalid("an empty input is no deflate stream"),
                bytes if bytes > stream_max => {
                    let what = "the stream is longer than the device takes";
                    return Plan::Answer(Outcome::Failed(DeviceError::Fault(what)));
                }
                _ => {}
            }
        }
        let blames_the_stream = !self.port.hardware;
        let followed_by = match direction {
            Direction::Decompress { .. } if blames_the_stream => Follow::Zeros,
            Direction::Decompress { .. } | Direction::Compress { .. } => Follow::Nothing,
        };
        let input_bytes = job.input.len();
        let asked = Asked { direction, input_bytes, blames_the_stream, followed_by };
        Plan::Run(Steps { asked, kind, capacity_bytes })
    }

    /// Submits the job's operation, or returns the job with the obstacle.
    fn run(&mut self, job: Box<Job>, steps: Steps) -> Result<(), (Box<Job>, EnqueueError)> {
        let Some(slot) = self.free_slots.last().copied() else {
            return Err((job, EnqueueError::Full));
        };
        let Ok((input, output)) = self.copies(&job, steps.capacity_bytes) else {
            return Err((job, EnqueueError::NoMemory));
        };
        let Some(transform) = self.transforms.take(steps.kind) else {
            return Err((job, EnqueueError::NoMemory));
        };
        let Steps { asked, kind, capacity_bytes } = steps;
        let in_flight = InFlight {
            job,
            asked,
            kind,
            capacity_bytes,
            transform,
            input,
            output,
            submitted: Instant::now(),
            service: None,
            first_result: None,
        };
        self.slots[slot as usize] = Some(in_flight);
        let Err(error) = self.enqueue(slot) else {
            self.free_slots.pop();
            return Ok(());
        };
        self.transforms.release(kind, transform);
        let back = self.slots[slot as usize].take().expect("it was put there");
        Err((back.job, error))
    }

    /// Submits the operation of a slot to the device. The error tells whether the device is full or refuses
    /// this operation.
    fn enqueue(&mut self, slot: u32) -> Result<(), EnqueueError> {
        let Some(in_flight) = self.slots[slot as usize].as_mut() else {
            return Err(EnqueueError::Full);
        };
        let from = in_flight.input.as_deref().unwrap_or(&in_flight.job.input[..]).as_ptr();
        let into = in_flight.written().as_mut_ptr();
        let request = Request {
            transform: in_flight.transform.0.as_ptr(),
            input: from.cast(),
            output: into.cast(),
            input_bytes: in_flight.asked.input_bytes as u32,
            output_bytes: in_flight.capacity_bytes.max(1) as u32,
            slot,
            spill_bytes: spill_bytes(in_flight),
            spill_ones: (in_flight.asked.followed_by == Follow::Ones).into(),
        };
        let start = Instant::now();
        // SAFETY: only this thread uses the queue, and the device does not have the slot's operation. The transform
        // belongs to the device, and no other operation uses it unless it may be shared. `input` has `input_bytes`
        // readable bytes and `output` has `output_bytes` writable bytes (a copy of an empty input has one byte). The
        // device reaches both. `slots` keeps both unchanged until the operation has completed, or forever.
        let taken = unsafe { sys::rebate_dpdk_enqueue(self.raw.0.as_ptr(), &raw const request) };
        match taken {
            0 => return Err(EnqueueError::Full),
            ..0 => {
                let status = taken.unsigned_abs() - 1;
                let error = outcome::error(status);
                self.port.warn_once(status, &error);
                return Err(EnqueueError::Refused(error));
            }
            1.. => {}
        }
        if !self.port.hardware {
            let before = in_flight.service.map_or(0, |service| service.0);
            in_flight.service = Some(Nanos(before + Nanos::from(start.elapsed()).0));
        }
        Ok(())
    }

    /// Copies data that the device cannot access. Also makes an output for an empty result, because the
    /// device needs an address for it.
    fn copies(
        &self,
        job: &Job,
        capacity_bytes: usize,
    ) -> Result<(Option<Buffer>, Option<Buffer>), ()> {
        let registered = self.port.pool.memory();
        let take = |bytes: usize| {
            let buffer = self.port.pool.take(bytes);
            if buffer.memory() == registered { Ok(buffer) } else { Err(()) }
        };
        let reaches = |memory| !self.limits.registered_only || memory == registered;
        let input = match reaches(job.input.memory()) {
            true => None,
            false => {
                let mut copy = take(job.input.len())?;
                copy.extend(&job.input);
                self.port.count_copy(job.input.len());
                Some(copy)
            }
        };
        let output = match reaches(job.output.memory()) && capacity_bytes > 0 {
            true => None,
            false => Some(take(capacity_bytes.max(1))?),
        };
        Ok((input, output))
    }

    fn finish(&mut self, report: Report) -> Option<Completion> {
        let in_flight = self.slots.get_mut(report.slot as usize)?.as_mut()?;
        let judged = match outcome(in_flight.asked, report.status, report.consumed, report.produced)
        {
            Some(Outcome::Done { .. })
                if in_flight.first_result.is_some_and(|first| first != in_flight.fingerprint()) =>
            {
                ends_early()
            }
            Some(judged) => judged,
            None => {
                in_flight.first_result = Some(in_flight.fingerprint());
                in_flight.asked.followed_by = Follow::Ones;
                if self.enqueue(report.slot).is_ok() {
                    return None;
                }
                Outcome::Failed(DeviceError::Fault("the device took an operation only once"))
            }
        };
        if let Outcome::Failed(error) = &judged
            && !matches!(error, DeviceError::InvalidInput(_))
        {
            self.port.warn_once(report.status, error);
        }
        let mut in_flight = self.slots[report.slot as usize].take()?;
        self.free_slots.push(report.slot);
        self.transforms.release(in_flight.kind, in_flight.transform);
        if let Outcome::Done { output_bytes } = judged {
            let (start, end) =
                (in_flight.job.output_offset, in_flight.job.output_offset + output_bytes);
            if let Some(copy) = in_flight.output.as_mut().filter(|_| output_bytes > 0) {
                let into = &mut in_flight.job.output.space()[start..end];
                into.copy_from_slice(&copy.space()[..output_bytes]);
                self.port.count_copy(output_bytes);
            }
            in_flight.job.output.set_len(end);
        }
        let service =
            in_flight.service.unwrap_or_else(|| Nanos::from(in_flight.submitted.elapsed()));
        Some(Completion { job: in_flight.job, outcome: judged, service })
    }

    /// Moves the jobs of finished operations to `done`, at most one burst.
    fn dequeue(&mut self, done: &mut Vec<Completion>) {
        let mut reports = [Report::default(); BURST];
        for report in self.raw.dequeue(&mut reports) {
            done.extend(self.finish(*report));
        }
    }
}

impl Queue for DpdkQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if self.pending() >= self.capabilities.queue_depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let (job, outcome) = match self.plan(&job) {
            Plan::Answer(outcome) => (job, outcome),
            Plan::Run(_) if job.input.is_empty() => nothing(job),
            Plan::Run(steps) => match self.run(job, steps) {
                Ok(()) => return Ok(()),
                Err((job, EnqueueError::Full)) => {
                    return Err(Refused { job, reason: RefusedReason::Full });
                }
                Err((job, EnqueueError::NoMemory)) => (job, Outcome::Failed(DeviceError::Busy)),
                Err((job, EnqueueError::Refused(error))) => (job, Outcome::Failed(error)),
            },
        };
        self.answered.push(Completion { job, outcome, service: Nanos(0) });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        done.append(&mut self.answered);
        if self.in_flight() > 0 {
            self.dequeue(done);
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.in_flight() + self.answered.len()
    }
}

impl Drop for DpdkQueue {
    /// Waits up to [`DRAIN`] for the operations in flight. If some do not complete in time, the port keeps
    /// the queue pair, the operations and their buffers until they complete.
    fn drop(&mut self) {
        let give_up = Instant::now() + DRAIN;
        let slots = std::mem::take(&mut self.slots);
        let mut leftover = Leftover { pair: self.pair, raw: Raw(self.raw.0), slots };
        loop {
            // Operations that the device released while this thread had no core were in time.
            let over = Instant::now() > give_up;
            if leftover.is_over(&self.port) {
                return;
            }
            if over {
                let left = leftover.slots.iter().flatten().count();
                self.port.counters.abandoned_jobs.fetch_add(left as u64, Ordering::Relaxed);
                tracing::error!(
                    device = self.port.name,
                    jobs = left,
                    "queue pair {} did not let go of its jobs within {DRAIN:?}: their memory and \
                     the pair are its until it does",
                    self.pair
                );
                self.port.keep(leftover);
                return;
            }
            thread::yield_now();
        }
    }
}

/// The shim's state for a queue pair.
#[derive(Debug)]
struct Raw(NonNull<RawQueue>);

// SAFETY: neither the state nor DPDK's queue pair is bound to a thread. Any thread may use both, one thread at a
// time. `&mut self` and the port's lock ensure that.
unsafe impl Send for Raw {}

impl Raw {
    /// Returns the reports of the operations that the device has finished.
    fn dequeue<'r>(&mut self, reports: &'r mut [Report; BURST]) -> &'r [Report] {
        // SAFETY: only the caller uses the queue, and there is space for `BURST` reports.
        let count = unsafe {
            sys::rebate_dpdk_dequeue(self.0.as_ptr(), reports.as_mut_ptr(), BURST as u32)
        };
        &reports[..(count as usize).min(BURST)]
    }
}

/// The unfinished operations of a closed queue, with the buffers of their jobs.
pub(super) struct Leftover {
    pair: u16,
    raw: Raw,
    slots: Vec<Option<InFlight>>,
}

impl Leftover {
    /// Collects the operations that the device has finished. Returns true once, after the last operation.
    /// Then the pair is free again, and this value must not be used any more.
    pub(super) fn is_over(&mut self, port: &Port) -> bool {
        let mut reports = [Report::default(); BURST];
        while let finished @ [_, ..] = self.raw.dequeue(&mut reports) {
            for report in finished {
                let in_flight = self.slots.get_mut(report.slot as usize).and_then(Option::take);
                if let Some(in_flight) = in_flight.filter(|_| !port.shareable) {
                    port.free(in_flight.transform);
                }
            }
        }
        let over = self.slots.iter().all(Option::is_none);
        if over {
            // SAFETY: no operation is in flight, and the queue is not used after this.
            unsafe { sys::rebate_dpdk_queue_free(self.raw.0.as_ptr()) };
            port.return_pair(self.pair);
        }
        over
    }
}

impl std::fmt::Debug for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leftover").field("pair", &self.pair).finish_non_exhaustive()
    }
}

/// Returns the number of bytes to append behind the stream. DPDK's software drivers accept a stream whose end is
/// missing. If such a stream has several segments, compress_isal waits for more input forever. The appended bytes are
/// enough to fill any output: a symbol of at most 48 bits gives three bytes, and a symbol of 15 bits gives one.
fn spill_bytes(in_flight: &InFlight) -> u32 {
    match in_flight.asked.followed_by {
        Follow::Nothing => 0,
        Follow::Zeros | Follow::Ones => 2 * in_flight.capacity_bytes as u32 + SPILL_BYTES,
    }
}

/// The reason why an operation was not submitted.
enum EnqueueError {
    Full,
    /// The driver refused the operation because of its content.
    Refused(DeviceError),
    /// No memory is left that devices can access, or no memory for a transform.
    NoMemory,
}

/// Completes the compression of an empty input without the device, which refuses empty inputs. The result is
/// a last block of the fixed code that contains only its end.
fn nothing(mut job: Box<Job>) -> (Box<Job>, Outcome) {
    const EMPTY: [u8; 2] = [0x03, 0x00];
    let (start, end) = (job.output_offset, job.output_offset + EMPTY.len());
    if end > job.output.capacity() {
        return (job, Outcome::DoesNotFit);
    }
    job.output.space()[start..end].copy_from_slice(&EMPTY);
    job.output.set_len(end);
    (job, Outcome::Done { output_bytes: EMPTY.len() })
}

/// Returns the level on DPDK's scale of 1 to 9. Drivers map it to the levels that they have.
const fn level_of(level: Level) -> i32 {
    match level {
        Level::Fast | Level::Default => 1,
        Level::High => 6,
    }
}

/// The largest number of completions that one poll takes from the device.
const BURST: usize = 32;

/// The spill bytes beyond those that fill the output. They exceed the header of any dynamic block (bytes).
const SPILL_BYTES: u32 = 4_096;

/// The longest time that a drop waits for operations. It is short, because the thread has other work. A
/// healthy device completes a full queue of small operations in less time.
const DRAIN: Duration = Duration::from_millis(5);
