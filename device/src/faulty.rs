//! A device that misbehaves on purpose, by count and seed, so that every fault a runtime must
//! survive can be had on any machine and again. It keeps the contract while it does; only
//! corruption is silent, as it is in life.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use units::{Nanos, Prng};

use crate::job::{Completion, DeviceError, Job, Outcome};
use crate::queue::{Capabilities, Device, Queue, Refused, RefusedReason, Waiting};

/// Which faults, and how often. The default has none.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// Where in its period each fault falls, and which byte is corrupted.
    pub seed: u64,
    /// Every so many results are failed with [`DeviceError::Fault`]; zero is never.
    pub fail_every: u64,
    /// Every so many results have one byte changed, without a word; zero is never.
    pub corrupt_every: u64,
    /// Every so many submissions are refused as full; zero is never.
    pub refuse_every: u64,
    /// How many polls a finished job is held back.
    pub delay_polls: u64,
    /// The device is lost after so many results.
    pub lose_after: Option<u64>,
    /// What then becomes of the jobs inside.
    pub loss: Loss,
}

/// How a device dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Jobs inside fail as lost; new ones are refused.
    #[default]
    Reported,
    /// Jobs are taken and never come back: only a deadline of the caller's helps.
    Hang,
}

/// A device around another that adds the planned faults. Counts are over all of its queues.
pub struct Faulty {
    name: String,
    inner: Arc<dyn Device>,
    capabilities: Capabilities,
    shared: Arc<Shared>,
}

impl Faulty {
    /// `inner` with the faults of `plan`.
    pub fn new(inner: Arc<dyn Device>, plan: FaultPlan) -> Self {
        let mut capabilities = inner.capabilities().clone();
        // Held-back completions come with a later poll, and nobody signals that.
        if plan.delay_polls > 0 || plan.loss == Loss::Hang {
            capabilities.waiting = Waiting::Polled { expected: EXPECTED };
        }
        Self {
            name: format!("faulty-{}", inner.name()),
            inner,
            capabilities,
            shared: Arc::new(Shared::new(plan)),
        }
    }

    /// Whether the device is lost by now.
    pub fn is_lost(&self) -> bool {
        self.shared.is_lost()
    }
}

impl Device for Faulty {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        if self.shared.is_lost() && self.shared.plan.loss == Loss::Reported {
            return Err(DeviceError::Lost);
        }
        Ok(Box::new(FaultyQueue {
            inner: self.inner.open_queue(waker)?,
            capabilities: self.capabilities.clone(),
            shared: Arc::clone(&self.shared),
            polls: 0,
            arrived: Vec::new(),
            held: VecDeque::new(),
            swallowed: Vec::new(),
        }))
    }
}

/// One queue of the inner device, and what is held back from it.
struct FaultyQueue {
    inner: Box<dyn Queue>,
    capabilities: Capabilities,
    shared: Arc<Shared>,
    polls: u64,
    /// Between two calls empty; kept for its capacity.
    arrived: Vec<Completion>,
    /// Finished jobs and the poll that hands them over.
    held: VecDeque<(u64, Completion)>,
    /// Jobs of a hung device.
    swallowed: Vec<Job>,
}

impl FaultyQueue {
    fn is_hung(&self) -> bool {
        self.shared.plan.loss == Loss::Hang && self.shared.is_lost()
    }
}

impl Queue for FaultyQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        let lost = self.shared.is_lost();
        if lost && self.shared.plan.loss == Loss::Reported {
            return Err(Refused { job, reason: RefusedReason::Lost });
        }
        if self.pending() >= self.capabilities.queue_depth || self.shared.refuses() {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        if lost {
            self.swallowed.push(*job);
            return Ok(());
        }
        self.inner.try_submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.polls += 1;
        if self.is_hung() {
            return 0;
        }
        self.inner.poll(&mut self.arrived);
        let due = self.polls + self.shared.plan.delay_polls;
        self.held.extend(self.arrived.drain(..).map(|completion| (due, completion)));
        let before = done.len();
        while let Some((due, _)) = self.held.front()
            && (*due <= self.polls || self.shared.is_lost())
            && !self.is_hung()
            && let Some((_, completion)) = self.held.pop_front()
        {
            done.push(self.shared.treat(completion));
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.inner.pending() + self.held.len() + self.swallowed.len()
    }
}

/// What all queues of the device count together.
struct Shared {
    plan: FaultPlan,
    submissions: AtomicU64,
    results: AtomicU64,
}

impl Shared {
    fn new(plan: FaultPlan) -> Self {
        Self { plan, submissions: AtomicU64::new(0), results: AtomicU64::new(0) }
    }

    fn is_lost(&self) -> bool {
        self.plan.lose_after.is_some_and(|after| self.results.load(Ordering::Acquire) >= after)
    }

    fn refuses(&self) -> bool {
        let count = self.submissions.fetch_add(1, Ordering::Relaxed);
        self.falls_on(count, self.plan.refuse_every, REFUSE_STREAM)
    }

    /// The completion as the device hands it over.
    fn treat(&self, mut completion: Completion) -> Completion {
        let count = self.results.fetch_add(1, Ordering::AcqRel);
        let lost = self.plan.lose_after.is_some_and(|after| count >= after);
        if lost {
            completion.outcome = Outcome::Failed(DeviceError::Lost);
        } else if self.falls_on(count, self.plan.fail_every, FAIL_STREAM) {
            completion.outcome = Outcome::Failed(DeviceError::Fault("injected"));
        } else if self.falls_on(count, self.plan.corrupt_every, CORRUPT_STREAM) {
            self.corrupt(count, &mut completion);
        }
        completion
    }

    /// The seed says where in each period of `every` the fault falls.
    fn falls_on(&self, count: u64, every: u64, stream: u64) -> bool {
        every > 0 && count % every == Prng::new(self.plan.seed ^ stream).below(every)
    }

    fn corrupt(&self, count: u64, completion: &mut Completion) {
        if let Outcome::Done { output_bytes } = completion.outcome
            && output_bytes > 0
        {
            let mut draws = Prng::new(self.plan.seed ^ CORRUPT_STREAM ^ (count << 8));
            let index = draws.below(output_bytes as u64) as usize;
            let bit = draws.below(8);
            let offset = completion.job.output_offset;
            completion.job.output.space()[offset + index] ^= 1 << bit;
        }
    }
}

/// Each kind of fault draws from a stream of its own.
const FAIL_STREAM: u64 = 1;
const CORRUPT_STREAM: u64 = 2;
const REFUSE_STREAM: u64 = 3;

/// A device that only holds jobs back is done with them after the polls planned, however fast those
/// come.
const EXPECTED: Nanos = Nanos::micros(10);

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use units::ByteCount;

    use super::*;
    use crate::Software;
    use crate::buffer::{Input, Pool};
    use crate::codec::{Codec, Dialect, Level};
    use crate::job::Task;

    fn job() -> Box<Job> {
        let task = Task::Compress { dialect: Dialect::of(Codec::Zstd), level: Level::Fast };
        let output = Pool::heap(ByteCount(0)).take(4_000);
        let mut job = Job::new(task, Input::heap(Bytes::from(vec![7; 2_000])), output);
        job.output_offset = 16;
        Box::new(job)
    }

    fn open(plan: FaultPlan) -> (Faulty, Box<dyn Queue>) {
        let device = Faulty::new(Arc::new(Software::default()), plan);
        let queue = device.open_queue(Waker::noop().clone()).expect("alive");
        (device, queue)
    }

    fn outcomes(queue: &mut dyn Queue, jobs: usize) -> Vec<Outcome> {
        let mut done = Vec::new();
        for _ in 0..jobs {
            queue.try_submit(job()).expect("room");
            queue.poll(&mut done);
        }
        done.into_iter().map(|completion| completion.outcome).collect()
    }

    #[test]
    fn every_nth_job_fails_and_the_seed_says_which() {
        let failing = |seed| {
            let (_, mut queue) = open(FaultPlan { seed, fail_every: 5, ..FaultPlan::default() });
            let outcomes = outcomes(&mut *queue, 50);
            let failed = |index: &usize| matches!(outcomes[*index], Outcome::Failed(_));
            (0..50).filter(failed).collect::<Vec<_>>()
        };
        assert_eq!(failing(1).len(), 10);
        assert_eq!(failing(1), failing(1));
        assert!((2..20).any(|seed| failing(seed) != failing(1)));
    }

    #[test]
    fn corruption_changes_one_bit_of_the_result_only() {
        let result = |plan| {
            let (_, mut queue) = open(plan);
            let mut done = Vec::new();
            queue.try_submit(job()).expect("room");
            queue.poll(&mut done);
            let completion = done.pop().expect("inline");
            assert!(matches!(completion.outcome, Outcome::Done { .. }));
            completion.job.output.to_vec()
        };
        let healthy = result(FaultPlan::default());
        let corrupt = result(FaultPlan { corrupt_every: 1, ..FaultPlan::default() });
        let flipped: u32 = healthy.iter().zip(&corrupt).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!((flipped, healthy[..16] == corrupt[..16]), (1, true));
    }

    #[test]
    fn jobs_inside_a_lost_device_fail_and_new_ones_are_refused() {
        let plan = FaultPlan { lose_after: Some(3), ..FaultPlan::default() };
        let (device, mut queue) = open(plan);
        for _ in 0..5 {
            queue.try_submit(job()).expect("room");
        }
        let mut done = Vec::new();
        assert_eq!((queue.poll(&mut done), queue.pending()), (5, 0));
        let lost = Outcome::Failed(DeviceError::Lost);
        let count = done.iter().filter(|completion| completion.outcome == lost).count();
        assert_eq!((count, device.is_lost()), (2, true));
        let refused = queue.try_submit(job()).expect_err("lost");
        assert_eq!(refused.reason, RefusedReason::Lost);
        assert!(matches!(device.open_queue(Waker::noop().clone()), Err(DeviceError::Lost)));
    }

    #[test]
    fn a_hung_device_takes_jobs_up_to_its_depth_and_returns_none() {
        let plan = FaultPlan { lose_after: Some(2), loss: Loss::Hang, ..FaultPlan::default() };
        let (device, mut queue) = open(plan);
        assert_eq!(outcomes(&mut *queue, 2).len(), 2);
        let depth = device.capabilities().queue_depth;
        for _ in 0..depth {
            queue.try_submit(job()).expect("room");
        }
        let refused = queue.try_submit(job()).expect_err("the depth is a bound");
        assert_eq!(refused.reason, RefusedReason::Full);
        assert_eq!((queue.poll(&mut Vec::new()), queue.pending()), (0, depth));
    }

    #[test]
    fn a_finished_job_is_held_back_for_the_planned_polls() {
        let (_, mut queue) = open(FaultPlan { delay_polls: 2, ..FaultPlan::default() });
        queue.try_submit(job()).expect("room");
        let polls = [(); 3].map(|()| (queue.poll(&mut Vec::new()), queue.pending()));
        assert_eq!(polls, [(0, 1), (0, 1), (1, 0)]);
    }
}
