//! An open loop: requests are due at given times. Latency counts from these times, so that it shows when a core falls
//! behind. The source of the requests is a task of the same loop and needs no other core. The module measures one run.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use device::Pool;
use runtime::core_loop::yield_now;
use runtime::{Core, CoreConfig, CoreLoop};
use units::{ByteCount, Nanos, Prng};
use workload::{ArrivalKind, Arrivals};

use super::mode::Mode;
use super::platform::Platform;
use super::sample::Sample;
use super::work::{Work, check};

/// An open loop, optionally with a closed loop of batch requests at the same time.
pub(super) struct Open<'a> {
    pub(super) rate_per_s: f64,
    pub(super) window: Nanos,
    pub(super) batch: Option<&'a Work>,
    pub(super) seed: u64,
}

/// The state that the tasks of a run share.
struct Run {
    core: Core,
    pool: Pool,
    start: Instant,
    window: Nanos,
    log: RefCell<Log>,
}

#[derive(Default)]
struct Log {
    offered: usize,
    /// The latencies of the requests that were due after the warm-up (ns). A latency ends with the answer, or when the
    /// request was dropped because it was too late.
    latency_ns: Vec<u64>,
    in_window: usize,
    batch_jobs: usize,
    problem: Option<String>,
}

impl Log {
    /// Makes a log with space for the expected latencies, up to a bound. It writes to the space in advance,
    /// because a page fault during a run would stall the core for the time of many requests.
    fn with_space_for(rate_per_s: f64, window: Nanos) -> Self {
        let counted_s = window.0 as f64 / 1e9 * (1.0 - 1.0 / WARM_UP as f64);
        let requests = (rate_per_s * counted_s * 1.05) as usize;
        let mut latency_ns = vec![u64::MAX; requests.min(LATENCIES_AHEAD_MAX)];
        latency_ns.clear();
        Self { latency_ns, ..Self::default() }
    }
}

impl Open<'_> {
    /// Makes one run on the calling thread.
    ///
    /// # Errors
    /// A job failed or the loop did not start.
    pub(super) fn run(
        &self,
        platform: &Platform,
        mode: Mode,
        work: &Work,
    ) -> Result<Sample, String> {
        let config = CoreConfig::new(platform.runtime(mode));
        let core_loop = CoreLoop::new(config).map_err(|error| error.to_string())?;
        let before = platform.counters();
        let run = Rc::new(Run {
            core: core_loop.core().clone(),
            pool: Pool::heap(POOL_BYTES),
            window: self.window,
            log: RefCell::new(Log::with_space_for(self.rate_per_s, self.window)),
            start: Instant::now(),
        });
        let arrivals = Arrivals::new(ArrivalKind::Poisson, self.rate_per_s, 0.0);
        core_loop.core().spawn(source(Rc::clone(&run), work.clone(), arrivals, self.seed));
        for task in 0..self.batch.map_or(0, |_| BATCH_TASKS) {
            let batch = self.batch.map(Work::batch).unwrap_or_else(|| work.batch());
            core_loop.core().spawn(batches(Rc::clone(&run), batch, self.seed ^ task));
        }
        core_loop.run();
        let log = run.log.take();
        if let Some(problem) = log.problem {
            return Err(problem);
        }
        let achieved = log.in_window as f64 / log.offered.max(1) as f64;
        let batch_jobs = log.batch_jobs;
        let sample = Sample::new(log.latency_ns, self.window);
        let sample = Sample { achieved, batch_jobs, ..sample };
        Ok(sample.emulated(&before, &platform.counters()))
    }
}

/// Begins every request when it is due, or as soon afterwards as the core allows. This task submits the first of
/// several due requests itself. Otherwise a policy would count this task as a waiting request, because the task is
/// ready while it reads the clock.
async fn source(run: Rc<Run>, work: Work, mut arrivals: Arrivals, seed: u64) {
    let mut random = Prng::new(seed);
    let mut next = arrivals.next_due(&mut random);
    while next < run.window && !run.has_failed() {
        while run.now() < next {
            yield_now().await;
        }
        let (first, now) = (next, run.now());
        loop {
            run.log.borrow_mut().offered += 1;
            next = arrivals.next_due(&mut random);
            if next > now || next >= run.window {
                break;
            }
            // After the end of the window a request is late in any case, so it is counted but not made.
            if run.is_over() {
                run.given_up(next);
            } else {
                let index = random.below(work.count() as u64) as usize;
                run.core.spawn(request(Rc::clone(&run), work.clone(), index, next));
            }
        }
        if run.is_over() {
            run.given_up(first);
        } else {
            let index = random.below(work.count() as u64) as usize;
            let running = run.core.run(work.job(index, &run.pool));
            let run_of_task = Rc::clone(&run);
            run.core.spawn(async move {
                let done = running.await;
                run_of_task.answered(first, check(&done).err());
            });
        }
        // This also yields if the next request is already due, because tasks that have waited go first.
        yield_now().await;
    }
}

async fn request(run: Rc<Run>, work: Work, index: usize, due: Nanos) {
    if run.has_failed() {
        return;
    }
    if run.is_over() {
        return run.given_up(due);
    }
    let done = run.core.run(work.job(index, &run.pool)).await;
    run.answered(due, check(&done).err());
}

/// Makes one batch request after the other, until the window ends.
async fn batches(run: Rc<Run>, work: Work, seed: u64) {
    let mut random = Prng::new(seed);
    while run.now() < run.window && !run.has_failed() {
        let index = random.below(work.count() as u64) as usize;
        let done = work.request(&run.core, index, &run.pool).await;
        run.batch_done(done.err());
        // Without this, a request that completes during its submission would let this task keep the core.
        yield_now().await;
    }
}

impl Run {
    fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }

    fn answered(&self, due: Nanos, problem: Option<String>) {
        let now = self.now();
        let mut log = self.log.borrow_mut();
        log.problem = log.problem.take().or(problem);
        log.in_window += usize::from(now <= self.window + GRACE);
        drop(log);
        self.waited(due, now);
    }

    /// Counts a request that is no longer made, with the time that it has waited. Without these requests the
    /// tail of the latencies would look too short.
    fn given_up(&self, due: Nanos) {
        self.waited(due, self.now());
    }

    /// Records a latency if the request was due after the warm-up. During the warm-up, policies that learn also try
    /// slow devices.
    fn waited(&self, due: Nanos, until: Nanos) {
        if due.0 >= self.window.0 / WARM_UP {
            self.log.borrow_mut().latency_ns.push(until.since(due).0);
        }
    }

    fn batch_done(&self, problem: Option<String>) {
        let mut log = self.log.borrow_mut();
        log.problem = log.problem.take().or(problem);
        log.batch_jobs += 1;
    }

    fn is_over(&self) -> bool {
        self.now() > self.window + GRACE
    }

    fn has_failed(&self) -> bool {
        self.log.borrow().problem.is_some()
    }
}

/// The time after the end of the window in which a request that was due at the very end may be answered.
pub(super) const GRACE: Nanos = Nanos::millis(1);

/// The window divided by this number is the warm-up.
pub(super) const WARM_UP: u64 = 5;

/// The number of batch tasks. It is large enough that one batch request is always in flight.
const BATCH_TASKS: u64 = 4;

/// The greatest number of latencies for which space is made in advance. It takes 32 MiB.
const LATENCIES_AHEAD_MAX: usize = 1 << 22;

const POOL_BYTES: ByteCount = ByteCount::mib(8);
