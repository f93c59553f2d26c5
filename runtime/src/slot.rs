//! One device as one runtime sees it: its queue, the number of jobs that wait there, and whether it is retired.

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use device::{
    Capabilities, Completion, Device, DeviceError, Job, Queue, Refused, RefusedReason, Successions,
    Task, Waiting,
};
use policy::DeviceState;
use units::{Nanos, Op};

use crate::breaker::WAITS_MAX;
use crate::chains::ChainKind;
use crate::costs::{Costs, SubmitSample};
use crate::no_queue::NoQueue;
use crate::read_back::ReadBackSampling;
use crate::time::Time;

pub(crate) struct Slot {
    pub(crate) device: Arc<dyn Device>,
    queue: Box<dyn Queue>,
    /// The capabilities as the device states them. They are read for every job.
    pub(crate) capabilities: Capabilities,
    /// The successions of ops that the device runs in one trip.
    pub(crate) successions: Successions,
    /// Whether the queue shows its jobs. If it does, the runtime stores nothing of a job for a second attempt.
    pub(crate) shows_jobs: bool,
    /// The number of submitted jobs that were not yet delivered, including those that timed out.
    pub(crate) in_flight: usize,
    /// The number of unfinished jobs on this device that have not timed out. It includes detached jobs,
    /// because the device still works on them.
    pub(crate) waiting: usize,
    /// The sum of the sizes of the jobs in flight, in bytes.
    in_flight_bytes: usize,
    /// The completions that were polled and not yet delivered. A poll may return more than one turn may deliver.
    polled: Vec<Completion>,
    /// The times of the last two polls, the earlier poll first.
    polled_at: [Nanos; 2],
    pub(crate) retired: Option<Retired>,
    /// Decides which results of the device are read back.
    pub(crate) read_back: ReadBackSampling,
    /// The number of delivered jobs.
    done: u64,
    /// The number of delivered jobs that the process's reputation of the device has counted.
    done_reported: u64,
    costs: Costs,
    /// The core time that polls take per completion, if it is measured.
    completion_cost: CompletionCost,
    polls: u32,
    /// The cached sizes that the device accepts, per op, because a search in its capabilities is slow.
    eligible: [Eligible; OPS],
}

/// The state of a job that a device accepted.
pub(crate) enum Submitted {
    /// The job is already done.
    Done,
    /// The job is in flight, and the queue has space for more jobs.
    InFlight,
    /// The job is in flight, and the queue is full.
    Last,
}

/// The sizes that the device is known to accept and to refuse, for one shape of task.
#[derive(Clone, Copy)]
struct Eligible {
    shape: TaskShape,
    /// Jobs below this size are accepted.
    accepted_below: usize,
    /// Jobs of this size and larger are refused.
    refused_from: usize,
}

impl Eligible {
    fn unknown(shape: TaskShape) -> Self {
        Self { shape, accepted_below: 0, refused_from: usize::MAX }
    }
}

/// The properties of a task, apart from its size, that decide whether a device accepts it. They are packed into one
/// word that is quick to compare.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskShape(u32);

impl TaskShape {
    /// A shape that no task has.
    pub(crate) const NONE: TaskShape = TaskShape(u32::MAX);

    #[inline]
    pub(crate) fn from_task(task: &Task) -> Self {
        let rest = match task {
            Task::Compress { dialect, .. } | Task::Decompress { dialect, .. } => {
                let window = dialect.window_log2.map_or(0, |log2| 1 + u32::from(log2));
                dialect.codec as u32 | window << 8
            }
            _ => Self::rest_of_kernel(task),
        };
        Self(task.op().index() as u32 | rest << 8)
    }

    /// Returns the properties of a kernel. This is a separate function, so that the codecs' tasks do not pass through
    /// the kernels' branches.
    #[inline(never)]
    fn rest_of_kernel(task: &Task) -> u32 {
        match task {
            Task::Checksum { polynomial } => *polynomial as u32,
            _ => 0,
        }
    }
}

/// The properties of one job that the slots need to decide whether they accept it.
pub(crate) struct JobShape<'a> {
    pub(crate) task: &'a Task,
    /// The kind of job, by which costs are learnt.
    pub(crate) kind: usize,
    pub(crate) shape: TaskShape,
    pub(crate) work_bytes: usize,
}

impl<'a> JobShape<'a> {
    #[inline]
    pub(crate) fn new(job: &'a Job) -> Self {
        Self {
            task: &job.task,
            kind: kind_of(job),
            shape: TaskShape::from_task(&job.task),
            work_bytes: job.trip_bytes(),
        }
    }
}

/// The state of a retired device, with the time of its next attempt.
pub(crate) struct Retired {
    probe_at: Nanos,
    wait: Nanos,
    /// Whether the queue is new and its only job is a probe.
    is_probed: bool,
    /// Whether the device was wrong too often. Its results are refused until a probe of this process is right.
    is_distrusted: bool,
}

impl Slot {
    /// Opens a queue. One result in `verify_every` is read back, in the long run. With none, no result is read back.
    pub(crate) fn open(
        device: &Arc<dyn Device>,
        waker: Waker,
        verify_every: Option<NonZeroU32>,
    ) -> Result<Self, DeviceError> {
        Ok(Self::new(device, device.open_queue(waker)?, verify_every))
    }

    /// Returns the slot of a device that is lost when it is first opened. It is retired, and the first probe opens it.
    pub(crate) fn lost(
        device: &Arc<dyn Device>,
        verify_every: Option<NonZeroU32>,
        now: Nanos,
        reprobe_after: Nanos,
    ) -> Self {
        let queue = Box::new(NoQueue(RefusedReason::Lost));
        let mut slot = Self::new(device, queue, verify_every);
        slot.retire(now, reprobe_after);
        slot
    }

    fn new(
        device: &Arc<dyn Device>,
        queue: Box<dyn Queue>,
        verify_every: Option<NonZeroU32>,
    ) -> Self {
        let capabilities = device.capabilities().clone();
        let polled = Vec::with_capacity(capabilities.queue_depth.min(POLLED_MAX));
        Self {
            device: Arc::clone(device),
            successions: device.successions(),
            shows_jobs: queue.shows_jobs(),
            queue,
            capabilities,
            in_flight: 0,
            waiting: 0,
            in_flight_bytes: 0,
            polled,
            polled_at: [Nanos(0); 2],
            retired: None,
            read_back: ReadBackSampling::new(verify_every),
            done: 0,
            done_reported: 0,
            costs: Costs::default(),
            completion_cost: CompletionCost::default(),
            polls: 0,
            eligible: [Eligible::unknown(TaskShape::NONE); OPS],
        }
    }

    #[inline(always)]
    pub(crate) fn submit(&mut self, job: Box<Job>) -> Result<Submitted, Refused> {
        let work_bytes = job.trip_bytes();
        self.queue.try_submit(job)?;
        self.in_flight += 1;
        self.in_flight_bytes += work_bytes;
        Ok(match self.is_inline() {
            true => Submitted::Done,
            false if self.is_full() => Submitted::Last,
            false => Submitted::InFlight,
        })
    }

    /// Runs a job that has no entry, on an inline device.
    pub(crate) fn run_untracked(&mut self, job: Box<Job>) -> Option<Completion> {
        self.queue.try_submit(job).ok()?;
        let mut done = Vec::new();
        self.queue.poll(&mut done);
        done.pop()
    }

    /// Returns the completions of the device. Polls the device only if all earlier completions were delivered. The turn
    /// stores the completions that it does not deliver with [`Slot::keep`].
    #[inline]
    pub(crate) fn poll(&mut self, now: Nanos) -> Vec<Completion> {
        let mut polled = std::mem::take(&mut self.polled);
        if polled.is_empty() {
            self.polled_at = [self.polled_at[1], now];
            self.queue.poll(&mut polled);
        }
        polled
    }

    /// Counts a poll and returns whether it must be timed. Only polls of devices that signal are timed. Other polls are
    /// cheap, and happen while the core is idle.
    #[inline]
    pub(crate) fn tick_poll(&mut self, records_costs: bool) -> bool {
        if self.capabilities.waiting != Waiting::Signalled {
            return false;
        }
        self.polls = self.polls.wrapping_add(1);
        records_costs || self.polls.is_multiple_of(TIMED_ONE_IN)
    }

    /// Polls like `poll` and records how long the poll takes.
    #[cold]
    pub(crate) fn poll_timed(&mut self, time: &Time) -> Vec<Completion> {
        let start = time.read();
        let polled = self.poll(time.last());
        self.completion_cost.record(time.read().since(start), polled.len());
        polled
    }

    /// Returns the core time that a job takes after its submission.
    pub(crate) fn completion_cost(&self) -> Nanos {
        Nanos(self.completion_cost.per_job_ns) + SWITCH_TIME
    }

    /// Stores completions for the next turn and reuses their memory.
    #[inline]
    pub(crate) fn keep(&mut self, polled: Vec<Completion>) {
        self.polled = polled;
    }

    /// Records that this many jobs with this many bytes were delivered.
    #[inline]
    pub(crate) fn record_delivered(&mut self, jobs: usize, bytes: usize) {
        self.done += jobs as u64;
        self.in_flight = self.in_flight.saturating_sub(jobs);
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(bytes);
    }

    /// Returns the time until the next poll, if the device must be polled.
    #[inline]
    pub(crate) fn poll_within(&self) -> Option<Nanos> {
        match self.capabilities.waiting {
            // For jobs that timed out, a poll at every expiry check is enough.
            _ if self.waiting == 0 => None,
            // A signal announces completions once, even if one turn is too short to deliver them all.
            _ if !self.polled.is_empty() => Some(Nanos(0)),
            Waiting::Polled { expected } => Some(expected),
            Waiting::Inline | Waiting::Signalled => None,
        }
    }

    /// Tells the device that the job with this tag is cancelled.
    pub(crate) fn cancel(&mut self, tag: u64) {
        self.queue.cancel(tag);
    }

    /// Returns the job with this tag, if the queue shows it.
    pub(crate) fn shown(&self, tag: u64) -> Option<&Job> {
        let polled = self.polled.iter().map(|completion| completion.job.as_ref());
        let mut polled = polled.filter(|job| job.tag == tag);
        polled.next().or_else(|| self.queue.job_in_flight(tag))
    }

    /// Returns the number of jobs that are in flight on the device.
    #[inline]
    pub(crate) fn depth(&self) -> usize {
        self.in_flight.saturating_sub(self.polled.len())
    }

    /// Returns the state that a policy sees, without the parts that depend on a job.
    pub(crate) fn state(&self) -> DeviceState {
        DeviceState {
            eligible: false,
            healthy: self.retired.is_none(),
            depth: self.depth(),
            capacity: self.capabilities.queue_depth,
            estimated: None,
            host: None,
        }
    }

    /// Updates the state that a policy sees for the job.
    #[inline(always)]
    pub(crate) fn update(&mut self, state: &mut DeviceState, job_shape: &JobShape<'_>) {
        state.healthy = self.retired.is_none();
        state.eligible = state.healthy && self.accepts(job_shape);
        state.depth = self.depth();
    }

    /// Estimates the job's times on the device behind `state.depth` jobs with `backlog_bytes` bytes. It uses
    /// the costs that are not forgotten after `arrivals` jobs came to the core. The costs of software on the
    /// calling core are never forgotten: this core cannot stall unnoticed, and a deadline can be compared
    /// with software's time even if all jobs go to a device.
    #[inline(always)]
    pub(crate) fn estimate(
        &self,
        state: &mut DeviceState,
        job_shape: &JobShape<'_>,
        backlog_bytes: usize,
        arrivals: u64,
    ) {
        self.estimate_kind(state, (job_shape.kind, job_shape.work_bytes), backlog_bytes, arrivals);
    }

    /// Estimates the times of a job of this kind and size, like [`Slot::estimate`].
    #[inline(always)]
    pub(crate) fn estimate_kind(
        &self,
        state: &mut DeviceState,
        (kind, work_bytes): (usize, usize),
        backlog_bytes: usize,
        arrivals: u64,
    ) {
        let is_inline = self.is_inline();
        let known = self.costs.known(kind);
        let known = known.filter(|known| is_inline || !known.is_forgotten(arrivals));
        let known =
            known.map(|known| known.expected_times(work_bytes, [state.depth, backlog_bytes]));
        state.estimated = known.map(|(latency, _)| latency);
        state.host = known.map(|(latency, host)| if is_inline { latency } else { host });
    }

    /// Counts a job and returns whether its conditions and its cost should be recorded.
    #[inline]
    pub(crate) fn tick_sample(&mut self, kind: usize, now: Nanos) -> bool {
        !self.is_inline() && self.costs.tick(kind, now)
    }

    /// Returns the conditions that a job meets when it is submitted at `at`.
    pub(crate) fn sample(&self, at: Nanos) -> SubmitSample {
        let (depth_jobs, backlog_bytes) = (self.depth(), self.backlog_bytes());
        SubmitSample { at, host: Nanos(0), depth_jobs, backlog_bytes }
    }

    /// Records the cost of a successful job on the calling core, which it occupied for its service time. Returns
    /// whether the costs of similar jobs changed.
    #[inline(never)]
    pub(crate) fn record_held_cost(
        &mut self,
        job: &Job,
        service: Nanos,
        now: Nanos,
        arrivals: u64,
    ) -> bool {
        let work = (kind_of(job), job.trip_bytes());
        let service = service + chain_service(job);
        self.costs.tick(work.0, now) && self.costs.record_held(work, service, now, arrivals)
    }

    /// Records the cost of a successful sampled job of the last poll. Returns whether the estimates changed.
    #[cold]
    pub(crate) fn record_cost(&mut self, job: &Job, sample: &SubmitSample, arrivals: u64) -> bool {
        let [before, found] = self.polled_at;
        // A device that signals was done when it signalled, so the time of the earlier poll does not matter.
        let is_polled = matches!(self.capabilities.waiting, Waiting::Polled { .. });
        let before = if is_polled { before } else { found };
        let work = (kind_of(job), job.trip_bytes());
        self.costs.record(work, sample, [before, found], arrivals)
    }

    /// Returns whether jobs are done when their submission returns.
    #[inline]
    pub(crate) fn is_inline(&self) -> bool {
        self.capabilities.waiting == Waiting::Inline
    }

    /// Returns the total size of the jobs in the device. Completed jobs are assumed to have average size.
    #[inline]
    pub(crate) fn backlog_bytes(&self) -> usize {
        match self.polled.len() {
            0 => self.in_flight_bytes,
            _ => self.in_flight_bytes / self.in_flight.max(1) * self.depth(),
        }
    }

    /// Returns whether the device is full.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.depth() >= self.capabilities.queue_depth
    }

    /// Returns the result of [`Capabilities::accepts`], mostly without calling it. A task that is accepted at one size
    /// is accepted at every smaller size.
    #[inline(always)]
    fn accepts(&mut self, job_shape: &JobShape<'_>) -> bool {
        let known = &self.eligible[job_shape.task.op().index() % OPS];
        if known.shape == job_shape.shape {
            if job_shape.work_bytes < known.accepted_below {
                return true;
            }
            if job_shape.work_bytes >= known.refused_from {
                return false;
            }
        }
        self.ask(job_shape.task, job_shape.shape, job_shape.work_bytes)
    }

    /// Returns the sizes for which [`Slot::update`] gives the same result as it gave for this job.
    pub(crate) fn alike(&self, job_shape: &JobShape<'_>) -> Range<usize> {
        let known = &self.eligible[job_shape.task.op().index() % OPS];
        match job_shape.work_bytes < known.accepted_below {
            _ if self.retired.is_some() => 0..usize::MAX,
            true => 0..known.accepted_below,
            false => known.refused_from..usize::MAX,
        }
    }

    #[cold]
    fn ask(&mut self, task: &Task, shape: TaskShape, work_bytes: usize) -> bool {
        let known = &mut self.eligible[task.op().index() % OPS];
        if known.shape != shape {
            *known = Eligible::unknown(shape);
        }
        let accepted = self.capabilities.accepts(task, work_bytes);
        match accepted {
            true => known.accepted_below = work_bytes.saturating_add(1),
            false => known.refused_from = work_bytes,
        }
        accepted
    }

    /// Retires the device and returns whether it was healthy until now.
    pub(crate) fn retire(&mut self, now: Nanos, reprobe_after: Nanos) -> bool {
        let was_healthy = self.retired.is_none();
        if was_healthy {
            self.retired = Some(Retired::until(now, reprobe_after));
        }
        was_healthy
    }

    /// Retires a device that was wrong, until a probe at `probe_at`. Returns whether it was healthy before.
    pub(crate) fn distrust(&mut self, probe_at: Nanos) -> bool {
        let was_healthy = self.retired.is_none();
        let retired = self.retired.get_or_insert(Retired::until(probe_at, Nanos(0)));
        (retired.probe_at, retired.is_distrusted) = (probe_at, true);
        was_healthy
    }

    /// Returns whether the device was wrong too often.
    pub(crate) fn is_distrusted(&self) -> bool {
        self.retired.as_ref().is_some_and(|retired| retired.is_distrusted)
    }

    /// Returns whether the only job in the queue is a probe.
    pub(crate) fn is_probed(&self) -> bool {
        self.retired.as_ref().is_some_and(|retired| retired.is_probed)
    }

    /// Returns the number of jobs delivered since the last call.
    pub(crate) fn take_unreported(&mut self) -> u64 {
        let done_reported = std::mem::replace(&mut self.done_reported, self.done);
        self.done - done_reported
    }

    /// Returns whether the job may probe this retired device. It may not while the device has other jobs, because a
    /// probe opens a new queue and drops the old queue with its jobs. A cipher is no probe of a service, which may lack
    /// the key and be well.
    pub(crate) fn may_probe(&self, job: &Job, now: Nanos) -> bool {
        let due = self.retired.as_ref().is_some_and(|retired| now >= retired.probe_at);
        let capabilities = &self.capabilities;
        let may_lack_key = job.task.is_cipher() && self.device.needs_named_keys();
        let accepts = !may_lack_key && capabilities.accepts(&job.task, job.work_bytes());
        due && self.waiting == 0 && accepts
    }

    /// Opens a new queue for a probe, and sets the time of the next probe in case this probe fails.
    pub(crate) fn reopen(
        &mut self,
        now: Nanos,
        reprobe_after: Nanos,
        waker: Waker,
    ) -> Result<(), DeviceError> {
        if let Some(retired) = &mut self.retired {
            let longest = reprobe_after.0.saturating_mul(PROBE_WAITS_MAX);
            let wait = Nanos(retired.wait.0.saturating_mul(2).min(longest));
            // The process's runtimes share the time of the next probe of a distrusted device.
            let next = match retired.is_distrusted {
                true => {
                    Retired { is_distrusted: true, ..Retired::until(retired.probe_at, Nanos(0)) }
                }
                false => Retired::until(now, wait),
            };
            *retired = Retired { is_probed: true, ..next };
        }
        self.read_back.restart();
        self.queue = self.device.open_queue(waker)?;
        self.shows_jobs = self.queue.shows_jobs();
        self.in_flight = 0;
        self.in_flight_bytes = 0;
        self.polled.clear();
        Ok(())
    }
}

impl Retired {
    fn until(now: Nanos, wait: Nanos) -> Self {
        let probe_at = Nanos(now.0.saturating_add(wait.0));
        Self { probe_at, wait, is_probed: false, is_distrusted: false }
    }
}

/// The time that polls take, divided among the completions that they find.
#[derive(Default)]
struct CompletionCost {
    per_job_ns: u64,
    /// The time of the polls without completions since the last poll with completions.
    spent_ns: u64,
}

impl CompletionCost {
    fn record(&mut self, took: Nanos, completions: usize) {
        self.spent_ns += took.0;
        if completions > 0 {
            let share_ns = std::mem::take(&mut self.spent_ns) / completions as u64;
            self.per_job_ns = match self.per_job_ns {
                0 => share_ns,
                known_ns => known_ns - known_ns / 8 + share_ns / 8,
            };
        }
    }
}

/// One poll in this many is timed if no costs are recorded.
const TIMED_ONE_IN: u32 = 16;

/// The measured time to wake a task and to switch to it.
const SWITCH_TIME: Nanos = Nanos(100);

/// The most completions of a poll for which memory is reserved in advance.
const POLLED_MAX: usize = 256;

/// Returns the kind of a job, by which its costs are learnt: the index of its op, or that of its chain.
#[inline]
pub(crate) fn kind_of(job: &Job) -> usize {
    match &job.chain {
        None => job.task.op().index(),
        Some(chain) => Op::ALL.len() + ChainKind::from_chain(chain) as usize,
    }
}

/// Returns the time of the ops of the job's chain in front of its current op.
pub(crate) fn chain_service(job: &Job) -> Nanos {
    let done = job.chain.as_ref().map_or(&[][..], |chain| chain.done());
    done.iter().fold(Nanos(0), |sum, step| sum + step.service)
}

/// The number of slots for ops and chains. The number is a power of two, so that `index % OPS` is a bit mask.
pub(crate) const OPS: usize = (Op::ALL.len() + ChainKind::ALL.len()).next_power_of_two();

/// The longest wait between probes, in multiples of the first wait. It is reached after six failures in a row.
const PROBE_WAITS_MAX: u64 = WAITS_MAX;
