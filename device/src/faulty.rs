//! A device that misbehaves on purpose. A count and a seed decide each fault, so every fault that a runtime must
//! survive can be caused and repeated on any machine. The device keeps the contract while it misbehaves. It reports
//! every fault except corruption, which real devices do not report either.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use units::{Nanos, Prng};

use crate::buffer::Memory;
use crate::chain::Chain;
use crate::job::{Completion, DeviceError, Job, Outcome};
use crate::queue::{Capabilities, Device, Queue, Refused, RefusedReason, Successions, Waiting};

/// The faults and how often they occur. The default has none.
#[derive(Clone, Debug)]
pub struct FaultPlan {
    /// The seed of the random streams. They decide the position of each fault in its period, and which byte is
    /// corrupted.
    pub seed: u64,
    /// The device fails one in this many results with [`DeviceError::Fault`]. Zero means never.
    pub fail_every: u64,
    /// The device fails one in this many results with [`DeviceError::Busy`]. Zero means never.
    pub busy_every: u64,
    /// One in this many results has one wrong bit, which the device does not report. Zero means never.
    pub corrupt_every: u64,
    /// One in this many chains fails with [`DeviceError::Fault`] between its first op and the next one. Zero means
    /// never.
    pub break_every: u64,
    /// The device reports one in this many results as one byte shorter than it is. Zero means never.
    pub shorten_every: u64,
    /// The device refuses one in this many submissions as full. Zero means never.
    pub refuse_every: u64,
    /// The number of polls for which a finished job is held back.
    pub delay_polls: u64,
    /// The device holds one in this many finished jobs back for `late_by`. Zero means never.
    pub late_every: u64,
    /// The time for which late jobs are held back.
    pub late_by: Duration,
    /// The device accepts one in this many jobs and never completes it. Zero means never.
    pub hang_every: u64,
    /// One queue is lost per this many results of the device. The jobs of that queue fail, and the queue refuses new
    /// jobs. A queue that is opened later works. Zero means never.
    pub lose_every: u64,
    /// The number of results after which the device is lost. None means never.
    pub lose_after: Option<u64>,
    /// The fate of the jobs in flight when the device is lost.
    pub loss: Loss,
}

impl FaultPlan {
    /// A plan without faults.
    pub const SOUND: FaultPlan = FaultPlan {
        seed: 0,
        fail_every: 0,
        busy_every: 0,
        corrupt_every: 0,
        break_every: 0,
        shorten_every: 0,
        refuse_every: 0,
        delay_polls: 0,
        late_every: 0,
        late_by: Duration::ZERO,
        hang_every: 0,
        lose_every: 0,
        lose_after: None,
        loss: Loss::Reported,
    };
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::SOUND
    }
}

/// The behaviour of a lost device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The jobs in flight fail as lost, and the device refuses new jobs.
    Reported,
    /// The device accepts jobs and never completes them. The caller needs a timeout.
    Hang,
}

/// Wraps another device and adds the planned faults. All queues of the device share the counts.
pub struct Faulty {
    name: String,
    inner: Arc<dyn Device>,
    capabilities: Capabilities,
    shared: Arc<Shared>,
}

impl Faulty {
    /// Wraps `inner` in a device with the faults of `plan`.
    pub fn new(inner: Arc<dyn Device>, plan: FaultPlan) -> Self {
        let mut capabilities = inner.capabilities().clone();
        // A later poll returns the completions that are held back, and no signal announces them.
        let holds = plan.delay_polls > 0 || plan.late_every > 0 || plan.hang_every > 0;
        if holds || plan.loss == Loss::Hang {
            capabilities.waiting = Waiting::Polled { expected: EXPECTED };
        }
        Self {
            name: format!("faulty-{}", inner.name()),
            inner,
            capabilities,
            shared: Arc::new(Shared::new(plan)),
        }
    }

    /// Returns whether the device is lost.
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

    fn input_memory(&self) -> Option<Arc<dyn Memory>> {
        self.inner.input_memory()
    }

    fn needs_named_keys(&self) -> bool {
        self.inner.needs_named_keys()
    }

    fn successions(&self) -> Successions {
        self.inner.successions()
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
            late: Vec::new(),
            hung: Vec::new(),
            broken: HashMap::new(),
            is_lost: false,
        }))
    }

    fn completes_alone(&self) -> bool {
        self.inner.completes_alone()
    }

    /// Returns the number of faults of each kind.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        let count = |kind: Kind| self.shared.injected[kind as usize].load(Ordering::Relaxed);
        Kind::ALL.map(|kind| (kind.name(), count(kind))).into()
    }
}

/// One queue of the inner device, with the completions that are held back.
struct FaultyQueue {
    inner: Box<dyn Queue>,
    capabilities: Capabilities,
    shared: Arc<Shared>,
    polls: u64,
    /// The completions that the inner queue just returned. The list is empty between two calls and is reused for its
    /// capacity.
    arrived: Vec<Completion>,
    /// The finished jobs that are held back, each with the number of the poll that returns it.
    held: VecDeque<(u64, Completion)>,
    /// The finished jobs that are late, each with the time when it is returned.
    late: Vec<(Instant, Completion)>,
    /// The jobs that never complete.
    hung: Vec<Job>,
    /// The chains of the jobs that fail behind their first op, by the tags of the jobs.
    broken: HashMap<u64, Box<Chain>>,
    /// True if this queue is lost while the device is not.
    is_lost: bool,
}

impl FaultyQueue {
    fn is_hung(&self) -> bool {
        self.shared.plan.loss == Loss::Hang && self.shared.is_lost()
    }

    /// Submits the job without its chain.
    fn submit_broken(&mut self, mut job: Box<Job>) -> Result<(), Refused> {
        let (tag, chain) = (job.tag, job.chain.take());
        self.inner.try_submit(job).map_err(|mut refused| {
            refused.job.chain = chain.clone();
            refused
        })?;
        self.broken.extend(chain.map(|chain| (tag, chain)));
        Ok(())
    }

    /// Gives a job that was submitted without its chain the chain back, and fails it if another op would follow.
    fn break_chain(&mut self, mut completion: Completion) -> Completion {
        if self.broken.is_empty() {
            return completion;
        }
        if let Some(chain) = self.broken.remove(&completion.job.tag) {
            completion.job.chain = Some(chain);
            if let Outcome::Done { output_bytes } = completion.outcome
                && completion.job.advance(output_bytes, completion.service, |_, _| true)
            {
                completion.outcome = Outcome::Failed(DeviceError::Fault("injected in a chain"));
            }
        }
        completion
    }

    /// Moves the late jobs that are due to `done`.
    fn take_late(&mut self, done: &mut Vec<Completion>) {
        // A queue of another thread may have hung the device in the meantime.
        if self.late.is_empty() || self.is_hung() {
            return;
        }
        let (now, everything) = (Instant::now(), self.is_lost || self.shared.is_lost());
        let due = self.late.extract_if(.., |(due, _)| everything || *due <= now);
        for (_, mut completion) in due {
            if everything {
                completion.outcome = Outcome::Failed(DeviceError::Lost);
            }
            done.push(completion);
        }
    }
}

impl Queue for FaultyQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        let lost = self.shared.is_lost();
        if self.is_lost || lost && self.shared.plan.loss == Loss::Reported {
            return Err(Refused { job, reason: RefusedReason::Lost });
        }
        if self.pending() >= self.capabilities.queue_depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let count = self.shared.submissions.fetch_add(1, Ordering::Relaxed);
        if self.shared.injects(count, Kind::Refused) {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        if lost || self.shared.injects(count, Kind::Hung) {
            self.hung.push(*job);
            return Ok(());
        }
        if job.chain.is_some() && self.shared.injects(count, Kind::Broken) {
            return self.submit_broken(job);
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
        self.take_late(done);
        while let Some((due, _)) = self.held.front()
            && (*due <= self.polls || self.is_lost || self.shared.is_lost())
            && !self.is_hung()
            && let Some((_, completion)) = self.held.pop_front()
        {
            let completion = self.break_chain(completion);
            match self.shared.treat(completion, &mut self.is_lost) {
                (completion, None) => done.push(completion),
                (completion, Some(late_by)) => {
                    self.late.push((Instant::now() + late_by, completion))
                }
            }
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.inner.pending() + self.held.len() + self.late.len() + self.hung.len()
    }

    fn cancel(&mut self, tag: u64) {
        self.inner.cancel(tag);
    }
}

/// The counts that all queues of the device share.
struct Shared {
    plan: FaultPlan,
    submissions: AtomicU64,
    results: AtomicU64,
    /// The number of injected faults of each kind.
    injected: [AtomicU64; Kind::ALL.len()],
}

impl Shared {
    fn new(plan: FaultPlan) -> Self {
        let (submissions, results) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { plan, submissions, results, injected: Default::default() }
    }

    fn is_lost(&self) -> bool {
        self.plan.lose_after.is_some_and(|after| self.results.load(Ordering::Acquire) >= after)
    }

    /// Applies the faults that fall on this completion. Returns the completion, and its delay if it is late.
    /// Sets `is_lost` if the queue is lost with this completion.
    fn treat(
        &self,
        mut completion: Completion,
        is_lost: &mut bool,
    ) -> (Completion, Option<Duration>) {
        let count = self.results.fetch_add(1, Ordering::AcqRel);
        let is_gone = self.plan.lose_after.is_some_and(|after| count >= after);
        *is_lost |= !is_gone && self.injects(count, Kind::Lost);
        if is_gone || *is_lost {
            completion.outcome = Outcome::Failed(DeviceError::Lost);
        } else if self.injects(count, Kind::Failed) {
            completion.outcome = Outcome::Failed(DeviceError::Fault("injected"));
        } else if self.injects(count, Kind::Busy) {
            completion.outcome = Outcome::Failed(DeviceError::Busy);
        } else if self.falls_on(count, Kind::Corrupted) {
            self.corrupt(count, &mut completion);
        } else if self.falls_on(count, Kind::Shortened) {
            self.shorten(&mut completion);
        }
        let is_late = self.injects(count, Kind::Late);
        (completion, is_late.then_some(self.plan.late_by))
    }

    /// Returns whether a fault of this kind falls on this count. One count in each period of the kind has the fault,
    /// and the seed chooses which.
    fn falls_on(&self, count: u64, kind: Kind) -> bool {
        let every = kind.every(&self.plan);
        let stream = kind as u64 + 1;
        every > 0 && count % every == Prng::new(self.plan.seed ^ stream).below(every)
    }

    /// Returns the result of `falls_on` and counts the fault. It is for kinds of faults that apply to every job.
    fn injects(&self, count: u64, kind: Kind) -> bool {
        let falls = self.falls_on(count, kind);
        if falls {
            self.count(kind);
        }
        falls
    }

    fn count(&self, kind: Kind) {
        self.injected[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn corrupt(&self, count: u64, completion: &mut Completion) {
        if let Outcome::Done { output_bytes } = completion.outcome
            && output_bytes > 0
        {
            let stream = Kind::Corrupted as u64 + 1;
            let mut draws = Prng::new(self.plan.seed ^ stream ^ (count << 8));
            let index = draws.below(output_bytes as u64) as usize;
            let bit = draws.below(8);
            let offset = completion.job.output_offset;
            completion.job.output.space()[offset + index] ^= 1 << bit;
            self.count(Kind::Corrupted);
        }
    }

    fn shorten(&self, completion: &mut Completion) {
        if let Outcome::Done { output_bytes } = &mut completion.outcome
            && *output_bytes > 0
        {
            *output_bytes -= 1;
            completion.job.output.set_len(completion.job.output_offset + *output_bytes);
            self.count(Kind::Shortened);
        }
    }
}

/// The kinds of faults. Each kind has its own random stream.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Failed,
    Corrupted,
    Refused,
    Busy,
    Shortened,
    Late,
    Hung,
    Lost,
    Broken,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Failed,
        Kind::Corrupted,
        Kind::Refused,
        Kind::Busy,
        Kind::Shortened,
        Kind::Late,
        Kind::Hung,
        Kind::Lost,
        Kind::Broken,
    ];

    const fn name(self) -> &'static str {
        match self {
            Kind::Failed => "failed",
            Kind::Corrupted => "corrupted",
            Kind::Refused => "refused",
            Kind::Busy => "busy",
            Kind::Shortened => "shortened",
            Kind::Late => "late",
            Kind::Hung => "hung",
            Kind::Lost => "lost",
            Kind::Broken => "broken",
        }
    }

    const fn every(self, plan: &FaultPlan) -> u64 {
        match self {
            Kind::Failed => plan.fail_every,
            Kind::Corrupted => plan.corrupt_every,
            Kind::Refused => plan.refuse_every,
            Kind::Busy => plan.busy_every,
            Kind::Shortened => plan.shorten_every,
            Kind::Late => plan.late_every,
            Kind::Hung => plan.hang_every,
            Kind::Lost => plan.lose_every,
            Kind::Broken => plan.break_every,
        }
    }
}

/// The expected time to completion that a device with held-back completions advertises. Most of its delays
/// are a number of polls and not a time, so the value is arbitrary.
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
        let task = Task::Compress { dialect: Dialect::new(Codec::Zstd), level: Level::Fast };
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
    fn a_lost_device_fails_its_jobs() {
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
    fn a_hung_device_returns_no_job() {
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

    #[test]
    fn planned_short_results_and_busy_devices_are_reported() {
        let plan = FaultPlan { shorten_every: 1, ..FaultPlan::default() };
        let (device, mut queue) = open(plan);
        let mut healthy = open(FaultPlan::default()).1;
        let [short, whole] =
            [&mut queue, &mut healthy].map(|queue| match outcomes(queue.as_mut(), 1)[0] {
                Outcome::Done { output_bytes } => output_bytes,
                ref other => panic!("{other:?}"),
            });
        assert_eq!(short + 1, whole);
        assert!(device.counters().contains(&("shortened", 1)), "{:?}", device.counters());
        let (_, mut queue) = open(FaultPlan { busy_every: 1, ..FaultPlan::default() });
        assert_eq!(outcomes(&mut *queue, 1), [Outcome::Failed(DeviceError::Busy)]);
    }

    #[test]
    fn a_fault_without_a_result_is_not_counted() {
        let plan = FaultPlan { corrupt_every: 2, shorten_every: 2, ..FaultPlan::default() };
        let (device, mut queue) = open(plan);
        let mut done = Vec::new();
        for _ in 0..8 {
            let mut job = job();
            job.output_offset = job.output.capacity() - 1;
            queue.try_submit(job).expect("room");
            queue.poll(&mut done);
        }
        assert!(
            done.iter().all(|completion| completion.outcome == Outcome::DoesNotFit),
            "{done:?}"
        );
        assert!(device.counters().iter().all(|(_, count)| *count == 0), "{:?}", device.counters());
    }

    #[test]
    fn planned_jobs_hang_or_come_late() {
        let (_, mut queue) = open(FaultPlan { hang_every: 4, ..FaultPlan::default() });
        assert_eq!((outcomes(&mut *queue, 12).len(), queue.pending()), (9, 3));
        let late = |late_by| FaultPlan { late_every: 4, late_by, ..FaultPlan::default() };
        let (_, mut queue) = open(late(Duration::from_secs(600)));
        assert_eq!((outcomes(&mut *queue, 12).len(), queue.pending()), (9, 3));
        // On a busy machine some of the late jobs may already complete within these polls.
        let late_by = Duration::from_millis(20);
        let (_, mut queue) = open(late(late_by));
        let start = Instant::now();
        let mut done = outcomes(&mut *queue, 12);
        let mut rest = Vec::new();
        while queue.pending() > 0 {
            queue.poll(&mut rest);
        }
        assert!(start.elapsed() >= late_by);
        done.extend(rest.into_iter().map(|completion| completion.outcome));
        assert!(done.len() == 12, "{done:?}");
        assert!(done.iter().all(|outcome| matches!(outcome, Outcome::Done { .. })), "{done:?}");
    }

    #[test]
    fn the_queue_after_a_lost_one_works() {
        let (device, mut queue) = open(FaultPlan { lose_every: 50, ..FaultPlan::default() });
        let mut done = Vec::new();
        for opened in 1..4 {
            let refused = loop {
                match queue.try_submit(job()) {
                    Ok(()) => queue.poll(&mut done),
                    Err(refused) => break refused.reason,
                };
            };
            assert_eq!((refused, queue.pending()), (RefusedReason::Lost, 0));
            let lost = done
                .iter()
                .filter(|completion| completion.outcome == Outcome::Failed(DeviceError::Lost));
            assert_eq!(lost.count(), opened);
            queue = device.open_queue(Waker::noop().clone()).expect("opens anew");
        }
        assert!(device.counters().contains(&("lost", 3)), "{:?}", device.counters());
    }
}
