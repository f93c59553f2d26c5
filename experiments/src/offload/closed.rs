//! The load of \[OffloadSched\]: a number of tasks on one or more cores. Each task makes its requests one
//! after the other. The module measures one run and does not interpret it.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Instant;

use device::Pool;
use runtime::{Core, CoreConfig, CoreLoop, Cores, CoresConfig};
use units::{ByteCount, Nanos, Prng};

use super::mode::Mode;
use super::plan::TASKS;
use super::platform::Platform;
use super::sample::Sample;
use super::work::Work;

/// A closed loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Closed {
    /// The greatest number of tasks that are running at the same time.
    pub(super) in_flight: usize,
    /// The number of requests of each task.
    pub(super) requests: usize,
    /// The polling interval, or None for the loop's default. `dequeue_batch` follows the same rule.
    pub(super) poll_interval: Option<Nanos>,
    pub(super) dequeue_batch: Option<usize>,
}

impl Closed {
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
        let config = self.configure(CoreConfig::new(platform.runtime(mode)));
        let core_loop = CoreLoop::new(config).map_err(|error| error.to_string())?;
        let log = Rc::new(RefCell::new(Log::with_capacity(TASKS * self.requests)));
        let next = Rc::new(Cell::new(0));
        for _ in 0..self.in_flight.min(TASKS) {
            let (core, work) = (core_loop.core().clone(), work.clone());
            let (log, next, count) = (Rc::clone(&log), Rc::clone(&next), self.requests);
            core_loop.core().spawn(async move {
                let pool = Pool::heap(POOL_BYTES);
                while next.get() < TASKS {
                    let task = next.replace(next.get() + 1);
                    if let Err(problem) = requests(&core, &work, (task, count), &pool, &log).await {
                        log.borrow_mut().problem = Some(problem);
                        return;
                    }
                }
            });
        }
        let before = platform.counters();
        let start = Instant::now();
        core_loop.run();
        let elapsed = Nanos::from(start.elapsed());
        let log = log.take();
        log.sample(elapsed).map(|sample| sample.emulated(&before, &platform.counters()))
    }

    /// Makes one run on `cores` threads, each with its own queues and with `TASKS` tasks.
    ///
    /// # Errors
    /// The errors of [`Closed::run`].
    pub(super) fn run_on(
        &self,
        cores: NonZeroUsize,
        platform: &Platform,
        mode: Mode,
        work: &Work,
    ) -> Result<Sample, String> {
        let mut config = CoresConfig::new(cores);
        config.tasks_per_core_max = NonZeroUsize::new(self.in_flight).unwrap_or(NonZeroUsize::MIN);
        let (settings, platform_of_cores) = (*self, platform.clone());
        let started = Cores::start(config, move |_| {
            settings.configure(CoreConfig::new(platform_of_cores.runtime(mode)))
        });
        let started = started.map_err(|error| error.to_string())?;
        let (spawner, (sender, logs)) = (started.spawner(), mpsc::channel());
        let before = platform.counters();
        let start = Instant::now();
        for task in 0..TASKS * cores.get() {
            let (work, sender, count) = (work.clone(), sender.clone(), self.requests);
            let spawned = spawner.spawn(move |core: Core| async move {
                let log = RefCell::new(Log::with_capacity(count));
                let pool = Pool::heap(POOL_BYTES);
                let done = requests(&core, &work, (task, count), &pool, &log).await;
                let mut log = log.take();
                log.problem = done.err();
                // After a failure the receiver is gone, so a failed send does not matter.
                let _ = sender.send(log);
            });
            spawned.map_err(|error| error.to_string())?;
        }
        drop((spawner, sender));
        started.finish();
        let elapsed = Nanos::from(start.elapsed());
        let log = logs.iter().fold(Log::default(), Log::and);
        log.sample(elapsed).map(|sample| sample.emulated(&before, &platform.counters()))
    }

    fn configure(&self, mut config: CoreConfig) -> CoreConfig {
        config.poll_interval = self.poll_interval.unwrap_or(config.poll_interval);
        let batch = self.dequeue_batch.and_then(NonZeroUsize::new);
        config.dequeue_batch = batch.unwrap_or(config.dequeue_batch);
        config
    }
}

/// Runs every job once, so that the emulations have computed all results and the engines are warm.
///
/// # Errors
/// The errors of [`Closed::run`].
pub(super) fn warm(platform: &Platform, work: &Work) -> Result<(), String> {
    for mode in [Mode::Software, Mode::Async] {
        let config = CoreConfig::new(platform.runtime(mode));
        let core_loop = CoreLoop::new(config).map_err(|error| error.to_string())?;
        let (core, work) = (core_loop.core().clone(), work.clone());
        core_loop.block_on(async move {
            let pool = Pool::heap(POOL_BYTES);
            for index in 0..work.count() {
                work.request(&core, index, &pool).await?;
            }
            Ok::<(), String>(())
        })?;
    }
    Ok(())
}

/// Makes the requests of one task. Each request begins when the previous one ends, so that the clock is read once for
/// both.
async fn requests(
    core: &Core,
    work: &Work,
    (task, count): (usize, usize),
    pool: &Pool,
    log: &RefCell<Log>,
) -> Result<(), String> {
    let mut random = Prng::new(task as u64);
    let mut before = Instant::now();
    for _ in 0..count {
        let index = random.below(work.count() as u64) as usize;
        let done = work.request(core, index, pool).await?;
        let now = Instant::now();
        let mut log = log.borrow_mut();
        log.latency_ns.push(now.duration_since(before).as_nanos() as u64);
        log.software += done.software;
        before = now;
    }
    Ok(())
}

/// The latencies of the requests of one core, and the error of its tasks, if there is one.
#[derive(Default)]
struct Log {
    latency_ns: Vec<u64>,
    software: Nanos,
    problem: Option<String>,
}

impl Log {
    fn with_capacity(requests: usize) -> Self {
        Self { latency_ns: Vec::with_capacity(requests), ..Self::default() }
    }

    fn and(mut self, other: Self) -> Self {
        self.latency_ns.extend(other.latency_ns);
        self.software += other.software;
        self.problem = self.problem.or(other.problem);
        self
    }

    fn sample(self, elapsed: Nanos) -> Result<Sample, String> {
        let Self { latency_ns, software, problem } = self;
        let sample = Sample { software, ..Sample::new(latency_ns, elapsed) };
        problem.map_or(Ok(sample), Err)
    }
}

/// The total size of the free buffers that a task's pool keeps.
const POOL_BYTES: ByteCount = ByteCount::mib(1);
