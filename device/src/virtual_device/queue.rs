//! One thread's queue of a virtual device. All host work happens in `try_submit`, within the time that the device
//! would need anyway. `poll` only compares times. It reads the clock once if no job is due, and not at all if no job
//! is in flight.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::hint;
use std::sync::{Arc, atomic};

use bytes::Bytes;
use units::{Nanos, Prng};
use workload::{DeviceProfile, OpProfile};

use super::Shared;
use super::counters::Delay;
use super::table::{Key, Remembered};
use super::timeline::{Cost, Timeline};
use crate::codec::{EngineError, Level};
use crate::engines::{EngineSet, OUTPUT_TOO_SMALL_ERROR};
use crate::job::{Completion, DeviceError, Job, Outcome, Polynomial, Task};
use crate::queue::{Queue, Refused, RefusedReason};

/// One thread's engines and the jobs that are not yet due. Dropping the queue drops its jobs, but the device stays
/// occupied for as long as these jobs would have occupied it.
pub(super) struct VirtualQueue {
    shared: Arc<Shared>,
    set: EngineSet,
    /// The space where results are made. It is kept so that a later job allocates no memory.
    scratch: Vec<u8>,
    in_flight: BinaryHeap<InFlight>,
    submissions: u64,
    /// The number of submissions since the last poll.
    burst: u64,
    /// The CPU time of the thread at the start of the submission. It is read only if it may be needed,
    /// because the system call may cost as much as a submission.
    work_start: Option<Nanos>,
    /// The generator of page faults, if they were requested.
    faults: Option<Prng>,
}

impl VirtualQueue {
    pub(super) fn new(shared: Arc<Shared>, set: EngineSet) -> Self {
        let queue = shared.queues.fetch_add(1, atomic::Ordering::Relaxed);
        let faults = shared.page_faults.map(|seed| Prng::new(seed.wrapping_add(queue)));
        let (scratch, in_flight) = (Vec::new(), BinaryHeap::new());
        Self { shared, set, scratch, in_flight, submissions: 0, burst: 0, work_start: None, faults }
    }

    /// Computes or looks up the result and writes it to the job's output. Returns the outcome and the size of
    /// the compressed side in percent of the uncompressed side. The device owns the buffer until the job is
    /// due, so no caller can see the result early.
    fn outcome(&mut self, job: &mut Job) -> (Outcome, f64) {
        let offset = job.output_offset;
        let transfer_bytes_max = self.shared.transfer_bytes_max();
        let capacity = job.output.capacity().saturating_sub(offset).min(transfer_bytes_max);
        let key = match job.task {
            Task::Compress { .. } if capacity == 0 => return (Outcome::DoesNotFit, INCOMPRESSIBLE),
            Task::Compress { .. } => Key::compress(&job.input),
            Task::Decompress { original_bytes, .. } if original_bytes > capacity => {
                return (Outcome::Failed(OUTPUT_TOO_SMALL_ERROR), INCOMPRESSIBLE);
            }
            Task::Decompress { original_bytes, .. } => Key::decompress(&job.input, original_bytes),
            Task::Encrypt { .. }
            | Task::Decrypt { .. }
            | Task::Checksum { .. }
            | Task::Copy
            | Task::Function(_) => {
                self.shared.counters.computed();
                self.work_start.get_or_insert_with(|| self.shared.work_clock.now());
                return (self.set.run(job), INCOMPRESSIBLE);
            }
        };
        let remembered = match self.remembered(job, key) {
            Ok(remembered) => remembered,
            Err(EngineError::DoesNotFit) => return (Outcome::DoesNotFit, INCOMPRESSIBLE),
            Err(EngineError::Device(error)) => return (Outcome::Failed(error), INCOMPRESSIBLE),
        };
        let output_percent = output_percent(job, &remembered);
        (deliver(job, remembered, capacity), output_percent)
    }

    /// Returns the remembered result for the job's input, or makes the result now.
    fn remembered(&mut self, job: &Job, key: Key) -> Result<Remembered, EngineError> {
        if let Some(remembered) = self.shared.table.get(&key) {
            self.shared.counters.remembered();
            return Ok(remembered);
        }
        self.shared.counters.computed();
        self.work_start.get_or_insert_with(|| self.shared.work_clock.now());
        self.compute(job, key)
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
            // This is a copy, because a slice of the input would keep its whole pool buffer alive.
            let original = Bytes::copy_from_slice(&job.input);
            let key = Key::decompress(stream, original.len());
            table.remember(key, Remembered::Result(original));
        }
        Ok(remembered)
    }

    /// Returns the time that the profile gives the job, and the time until the device starts another job.
    fn cost(&mut self, job: &Job, output_percent: f64) -> (Nanos, Nanos) {
        let shared = &self.shared;
        let op = op(&shared.profile, &job.task).expect("capabilities refuse what no curve is for");
        let bytes = job.work_bytes() as u64;
        let latency = op.latency_at(bytes, output_percent);
        let tail = self.faults.as_mut().zip(shared.profile.fault_tail.as_ref());
        let waited = tail.map_or(Nanos(0), |(random, tail)| tail.draw(random));
        if waited > Nanos(0) {
            shared.counters.faulted();
        }
        (latency + waited, op.interval_at(bytes, output_percent))
    }

    /// Returns whether the emulation's own work could make this job late even if its result is remembered.
    fn is_tight(&self, job: &Job) -> bool {
        let profile = &self.shared.profile;
        let bytes = job.work_bytes() as u64;
        let latency = op(profile, &job.task).map_or(Nanos(0), |op| op.latency(bytes));
        latency + profile.late_after() < Nanos(EMULATION_NS + bytes / EMULATION_BYTES_PER_NS)
    }

    /// Returns the reason why a job was not ready within `allowed` after its submission.
    fn delay(&self, allowed: Nanos) -> Delay {
        let Some(work_start) = self.work_start else { return Delay::System };
        let work = self.shared.work_clock.now().since(work_start);
        let late = work > allowed + self.shared.profile.late_after();
        if late { Delay::Emulation } else { Delay::System }
    }

    /// Runs the ops that follow the job's first op, as far as the device runs them. Returns the outcome of the last op
    /// that ran, its time, and the time when it is done. `first` has the same of the first op.
    #[cold]
    fn follow(&mut self, job: &mut Job, first: (Outcome, Nanos, Nanos)) -> (Outcome, Nanos, Nanos) {
        let (mut outcome, mut service, mut due) = first;
        let shared = Arc::clone(&self.shared);
        let Some((stations, chains)) = shared.stations.as_ref().zip(shared.profile.chains.as_ref())
        else {
            return (outcome, service, due);
        };
        let trip = Nanos(chains.trip_ns.value);
        while let Outcome::Done { output_bytes } = outcome {
            let next = job.chain.as_ref().and_then(|chain| chain.next_op());
            let Some(next) = next.filter(|next| shared.successions.has(job.task.op(), *next))
            else {
                break;
            };
            let handed_over = chains.hand_over(output_bytes as u64);
            let (station, arrival) = (stations.engines(next), due + handed_over);
            let takes = |task: &Task, work_bytes| {
                let accepts = shared.capabilities.accepts(task, work_bytes);
                let has_room = || station.reserve(arrival);
                accepts && (has_room() || shared.counters.refused_full())
            };
            if !job.advance(output_bytes, service + handed_over, takes) {
                break;
            }
            let (result, output_percent) = self.outcome(job);
            let (latency, interval) = self.cost(job, output_percent);
            service = latency.since(trip);
            due = station.admit(arrival, Cost { engine: service, interval });
            outcome = result;
            shared.counters.handed_over();
        }
        (outcome, service, due)
    }

    /// Returns the engines that run the task, or none on a core.
    fn timeline(&self, task: &Task) -> Option<&Timeline> {
        self.shared.stations.as_ref().map(|stations| stations.engines(task.op()))
    }

    /// Spins on the calling core until `end`.
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
        self.work_start = self.is_tight(&job).then(|| self.shared.work_clock.now());
        let bytes = job.work_bytes() as u64;
        let submit = self.shared.profile.submit_nth(bytes, self.burst + 1);
        let arrival = start + submit;
        let full = self.in_flight.len() >= self.shared.capabilities.queue_depth
            || self.timeline(&job.task).is_some_and(|timeline| !timeline.reserve(arrival));
        if full {
            self.shared.counters.refused_full();
            self.spend_until(arrival);
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let (mut outcome, output_percent) = self.outcome(&mut job);
        let (mut service, interval) = self.cost(&job, output_percent);
        let mut due = match self.timeline(&job.task) {
            None => start + service,
            // Published latencies include the submission of a job that is submitted alone.
            Some(timeline) => {
                let lone = self.shared.profile.submit(bytes);
                timeline.admit(arrival, Cost { engine: service.since(lone), interval })
            }
        };
        if job.chain.is_some() {
            (outcome, service, due) = self.follow(&mut job, (outcome, service, due));
        }
        // On a core, all of the time is the caller's.
        let spent = if self.shared.stations.is_some() { submit } else { service };
        let worked = self.shared.clock.now();
        let delay = match worked > due + self.shared.profile.late_after() {
            false => Delay::None,
            true => self.delay(due.since(start)),
        };
        self.shared.counters.job(worked.since(start), spent, delay);
        self.spend_until(start + spent);
        self.submissions += 1;
        self.burst += 1;
        let completion = Completion { job, outcome, service };
        let ready = due.max(worked);
        self.in_flight.push(InFlight { ready, submission: self.submissions, completion });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.burst = 0;
        if self.in_flight.is_empty() {
            return 0;
        }
        let now = self.shared.clock.now();
        let before = done.len();
        while self.in_flight.peek().is_some_and(|in_flight| in_flight.ready <= now)
            && let Some(in_flight) = self.in_flight.pop()
        {
            done.push(in_flight.completion);
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.in_flight.len()
    }

    fn shows_jobs(&self) -> bool {
        true
    }

    fn job_in_flight(&self, tag: u64) -> Option<&Job> {
        let mut jobs = self.in_flight.iter().map(|in_flight| in_flight.completion.job.as_ref());
        jobs.find(|job| job.tag == tag)
    }
}

/// Returns the curve of the task's op, if the profile has a curve for it.
fn op<'a>(profile: &'a DeviceProfile, task: &Task) -> Option<&'a OpProfile> {
    match task {
        Task::Checksum { polynomial: Polynomial::Crc64 } => profile.crc64.as_ref(),
        task => profile.op(task.op()),
    }
}

/// Writes the remembered result to the job's output, if `capacity` bytes are enough.
fn deliver(job: &mut Job, remembered: Remembered, capacity: usize) -> Outcome {
    let offset = job.output_offset;
    match remembered {
        Remembered::Invalid(what) => Outcome::Failed(DeviceError::InvalidInput(what)),
        Remembered::Result(bytes) if bytes.len() > capacity => Outcome::DoesNotFit,
        // Hardware writes the result without a core's time, but a copy here would take some.
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

/// Returns the size of the compressed side in percent of the uncompressed side.
fn output_percent(job: &Job, remembered: &Remembered) -> f64 {
    let (compressed, original) = match (&job.task, remembered) {
        (Task::Decompress { original_bytes, .. }, _) => (job.input.len(), *original_bytes),
        (_, Remembered::Result(bytes)) => (bytes.len(), job.input.len()),
        (_, Remembered::Invalid(_)) => (1, 1),
    };
    100.0 * compressed as f64 / original.max(1) as f64
}

/// A job and the time when it completes. The order is reversed: the job that completes first is the greatest.
struct InFlight {
    ready: Nanos,
    submission: u64,
    completion: Completion,
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.ready, other.submission).cmp(&(self.ready, self.submission))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for InFlight {}

/// The fixed part of an upper bound on the work of hashing, lookup and copying for a remembered result (ns).
/// `EMULATION_BYTES_PER_NS` has the part that grows with the size. The example `virtual_cost` measured 2 us for 4 KiB
/// and 13 us for 64 KiB, with values that are not in the cache.
const EMULATION_NS: u64 = 2_000;
const EMULATION_BYTES_PER_NS: u64 = 4;

/// The ratio of bytes that do not shrink, in percent.
const INCOMPRESSIBLE: f64 = 100.0;

/// The level of software that stands for the hardware's only level. Both have about the ratio of zlib level 1.
const LEVEL: Level = Level::Default;

/// Returns an upper bound on the stream of any deflate writer for an input of `bytes` (bytes).
const fn stream_bytes_max(bytes: usize) -> usize {
    bytes + bytes / 8 + 1_024
}
