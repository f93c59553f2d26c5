//! Tests the tokio adapter. Jobs end without a spinning thread on devices that signal or hang, dropped futures leave
//! nothing behind, and the executor's other tasks continue.

use std::future::Future;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::common::*;
use device::engines::BUILT_IN;
use device::{
    Capabilities, Codec, Completion, Device, DeviceError, Dialect, FaultPlan, Input, Job, Level,
    Loss, Pool, Queue, Refused, Task, Worker,
};
use policy::{BoundedInline, Choice, Placement, Reason};
use runtime::{Limits, RuntimeConfig, TokioRuntime};
use tokio::task::LocalSet;
use units::{ByteCount, Nanos, SystemClock};

/// A device that counts how often it is polled.
struct Counted {
    inner: Arc<dyn Device>,
    polls: Arc<AtomicUsize>,
}

struct CountedQueue {
    inner: Box<dyn Queue>,
    polls: Arc<AtomicUsize>,
}

/// A device whose third poll panics.
struct Defective(Arc<dyn Device>);

struct DefectiveQueue {
    inner: Box<dyn Queue>,
    polls: usize,
}

impl Device for Defective {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(DefectiveQueue { inner: self.0.open_queue(waker)?, polls: 0 }))
    }
}

impl Queue for DefectiveQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.inner.try_submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.polls += 1;
        assert!(self.polls != 3, "a defect of a device");
        self.inner.poll(done)
    }

    fn pending(&self) -> usize {
        self.inner.pending()
    }
}

/// Returns the device with a counter of its polls.
fn counted(inner: Arc<dyn Device>) -> (Arc<dyn Device>, Arc<AtomicUsize>) {
    let polls = Arc::new(AtomicUsize::new(0));
    (Arc::new(Counted { inner, polls: Arc::clone(&polls) }), polls)
}

impl Device for Counted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let inner = self.inner.open_queue(waker)?;
        Ok(Box::new(CountedQueue { inner, polls: Arc::clone(&self.polls) }))
    }
}

impl Queue for CountedQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.inner.try_submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.inner.poll(done)
    }

    fn pending(&self) -> usize {
        self.inner.pending()
    }
}

fn worker(threads: usize, depth: usize) -> Arc<dyn Device> {
    let count = |count| NonZeroUsize::new(count).expect("not zero");
    Arc::new(Worker::start(count(threads), count(depth), &BUILT_IN).expect("threads start"))
}

fn in_tokio<T, F: Future<Output = T>>(
    other: Arc<dyn Device>,
    change: impl FnOnce(&mut RuntimeConfig),
    body: impl FnOnce(TokioRuntime) -> F,
) -> T {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let mut config = config(vec![software(), other], Arc::new(SystemClock::new()));
    config.job_timeout = Nanos::secs(60);
    change(&mut config);
    LocalSet::new().block_on(&executor.expect("tokio starts"), async {
        body(TokioRuntime::start(config).expect("the devices open")).await
    })
}

/// Creates a job that takes some tens of milliseconds.
fn long(pool: &Pool) -> Box<Job> {
    let task = Task::Compress { dialect: Dialect::new(Codec::Zstd), level: Level::High };
    let input = Input::heap(original(1).repeat(500).into());
    Box::new(Job::new(task, input, pool.take(4 << 20)))
}

#[test]
fn jobs_come_back_after_a_panic_of_a_device() {
    let device = faulty(FaultPlan { delay_polls: 20, ..FaultPlan::default() });
    let pool = Pool::heap(ByteCount(0));
    in_tokio(
        Arc::new(Defective(device)),
        |_| {},
        |runtime| async move {
            for tag in 0..4 {
                check(&runtime.run(compress(&pool, tag)).await, tag);
            }
            assert_eq!(runtime.metrics().driver_restarts(), 1);
        },
    );
}

#[test]
fn a_signalled_device_is_polled_when_it_signals() {
    let (device, polls) = counted(worker(1, 8));
    let pool = Pool::heap(ByteCount(0));
    in_tokio(
        device,
        |_| {},
        |runtime| async move {
            for _ in 0..5 {
                let finished = runtime.run(long(&pool)).await;
                assert_eq!(finished.path, path(DEVICE, Placement::Async, Reason::Policy));
            }
            let after_jobs = polls.load(Ordering::Relaxed);
            assert!(after_jobs <= 3 * 5, "{after_jobs} polls for five jobs");
            tokio::time::sleep(Duration::from_millis(50)).await;
            let idle = polls.load(Ordering::Relaxed) - after_jobs;
            assert!(idle <= 1, "{idle} polls while idle");
        },
    );
}

#[test]
fn inline_jobs_do_not_turn_the_core() {
    let (device, polls) = counted(Script::new(|capabilities| {
        capabilities.waiting = device::Waiting::Signalled;
    }));
    let policy = Arc::new(BoundedInline { inline_bytes_max: 1 << 16 });
    let pool = Pool::heap(ByteCount(0));
    in_tokio(
        device,
        |config| config.policy = policy,
        |runtime| async move {
            let _in_flight = runtime.run(long(&pool));
            for tag in 0..100 {
                check(&runtime.run(compress(&pool, tag)).await, tag);
                tokio::task::yield_now().await;
            }
            let polls = polls.load(Ordering::Relaxed);
            assert!(polls <= 2, "{polls} polls");
        },
    );
}

#[test]
fn a_polled_device_is_polled_while_other_tasks_go_on() {
    let device = faulty(FaultPlan { delay_polls: 20, ..FaultPlan::default() });
    let pool = Pool::heap(ByteCount(0));
    in_tokio(
        device,
        |_| {},
        |runtime| async move {
            let others = tokio::task::spawn_local(async {
                for turns in 0u64.. {
                    tokio::task::yield_now().await;
                    if turns == u64::MAX {
                        return;
                    }
                }
            });
            for tag in 0..20 {
                let finished = runtime.run(compress(&pool, tag)).await;
                check(&finished, tag);
                assert_eq!(finished.path, path(DEVICE, Placement::Async, Reason::Policy));
            }
            assert!(!others.is_finished());
            others.abort();
        },
    );
}

#[test]
fn a_hung_device_costs_its_timeout_once() {
    let plan = FaultPlan { lose_after: Some(0), loss: Loss::Hang, ..FaultPlan::default() };
    let (device, polls) = counted(faulty(plan));
    let pool = Pool::heap(ByteCount(0));
    in_tokio(
        device,
        // The device is not tried again during the test, however busy the machine is.
        |config| (config.job_timeout, config.reprobe_after) = (TIMEOUT, Nanos::secs(600)),
        |runtime| async move {
            let start = Instant::now();
            let finished = runtime.run(compress(&pool, 1)).await;
            assert!(start.elapsed() >= Duration::from(TIMEOUT));
            check(&finished, 1);
            assert_eq!(finished.path, in_software(Reason::Timeout));
            let before = polls.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from(TIMEOUT)).await;
            let polls = polls.load(Ordering::Relaxed) - before;
            assert!(polls <= 10, "{polls} polls of a hung device");
            assert_eq!(runtime.run(compress(&pool, 2)).await.path, in_software(Reason::DeviceLost));
        },
    );
}

#[test]
fn a_signalled_device_that_never_signals_is_found_out() {
    let device = Script::new(|capabilities| {
        capabilities.waiting = device::Waiting::Signalled;
    });
    let pool = Pool::heap(ByteCount(0));
    in_tokio(
        device,
        |config| config.job_timeout = TIMEOUT,
        |runtime| async move {
            let jobs = [1, 2].map(|tag| runtime.run(compress(&pool, tag)));
            for job in jobs {
                assert_eq!(job.await.path, in_software(Reason::Timeout));
            }
        },
    );
}

#[test]
fn dropped_futures_leave_nothing_behind() {
    let pool = Pool::heap(ByteCount(0));
    let plan = FaultPlan { delay_polls: 3, ..FaultPlan::default() };
    for device in [worker(2, 64), faulty(plan)] {
        let pool = pool.clone();
        in_tokio(
            device,
            |_| {},
            |runtime| async move {
                let tasks: Vec<_> = (0..200)
                    .map(|tag| {
                        let (runtime, pool) = (runtime.clone(), pool.clone());
                        tokio::task::spawn_local(async move {
                            check(&runtime.run(compress(&pool, tag)).await, tag);
                        })
                    })
                    .collect();
                drop(runtime.run(compress(&pool, 1)));
                tokio::task::yield_now().await;
                tasks.iter().step_by(2).for_each(|task| task.abort());
                for (index, task) in tasks.into_iter().enumerate() {
                    assert!(task.await.is_ok() || index % 2 == 0, "{index}");
                }
                let deadline = Instant::now() + Duration::from_secs(60);
                while pool.outstanding().0 > 0 && Instant::now() < deadline {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert_eq!(pool.outstanding().0, 0);
                let jobs: u64 = runtime.metrics().paths().iter().map(|path| path.jobs).sum();
                assert!((100..=201).contains(&jobs), "{jobs}");
            },
        );
    }
}

#[test]
fn an_executor_that_ends_with_jobs_in_flight_leaves_nothing_behind() {
    let pool = Pool::heap(ByteCount(0));
    let device = worker(1, 64);
    in_tokio(
        Arc::clone(&device),
        |_| {},
        |runtime| {
            for tag in 0..32 {
                let job = runtime.run(compress(&pool, tag));
                tokio::task::spawn_local(async move { drop(job.await) });
            }
            std::future::ready(())
        },
    );
    drop(device);
    assert_eq!(pool.outstanding().0, 0);
}

#[test]
fn more_jobs_than_a_device_holds_all_end() {
    let pool = Pool::heap(ByteCount(0));
    in_tokio(
        worker(1, 4),
        |_| {},
        |runtime| async move {
            let jobs: Vec<_> = (0..300).map(|tag| runtime.run(decompress(&pool, tag))).collect();
            let mut by_reason = [0; Reason::ALL.len()];
            for (tag, job) in jobs.into_iter().enumerate() {
                let finished = job.await;
                check(&finished, tag as u64);
                by_reason[finished.path.reason as usize] += 1;
            }
            let paths = runtime.metrics().paths();
            assert_eq!(paths.iter().map(|path| path.jobs).sum::<u64>(), 300);
            for path in paths {
                assert_eq!(path.jobs, by_reason[path.reason as usize], "{path:?}");
            }
            assert!(by_reason[Reason::QueueFull as usize] > 0);
        },
    );
}

/// Runs `body` with a device of this queue depth. The policy chooses it for every job, even if it is full.
fn with_limits<F: Future<Output = ()>>(
    limits: Limits,
    depth: usize,
    body: impl FnOnce(TokioRuntime, Arc<Script>) -> F,
) {
    let device = Script::new(|capabilities| capabilities.queue_depth = depth);
    let there = Choice::to(DEVICE, Placement::Async, Reason::Policy);
    let script = Arc::clone(&device);
    in_tokio(
        device,
        |config| (config.policy, config.limits) = (Arc::new(Always(there)), limits),
        |runtime| body(runtime, script),
    );
}

#[test]
fn a_tenant_has_no_more_jobs_in_flight_than_allowed() {
    for (tenant_jobs_max, accepted) in [(1, 2), (2, 3), (usize::MAX, 4)] {
        let limits = Limits { tenant_jobs_max, waiting_max: 9 };
        with_limits(limits, 9, |runtime, device| async move {
            let pool = Pool::heap(ByteCount(0));
            let jobs = [(0, 0), (1, 0), (2, 0), (3, 1)].map(|(tag, tenant)| {
                let mut job = compress(&pool, tag);
                job.tenant = device::TenantId(tenant);
                (tag, runtime.run(job))
            });
            // A turn serves a job that arrives while others wait.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            assert_eq!(device.state().accepted, accepted, "{tenant_jobs_max}");
            for done in 1..=4 {
                device.do_one();
                let ended = || runtime.metrics().paths().iter().map(|path| path.jobs).sum::<u64>();
                while ended() < done {
                    tokio::task::yield_now().await;
                }
            }
            for (tag, job) in jobs {
                let finished = job.await;
                check(&finished, tag);
                assert_eq!(finished.path, on_device());
            }
        });
    }
}

#[test]
fn only_the_allowed_jobs_wait_for_a_full_device() {
    for waiting_max in [0, 1, 2] {
        let limits = Limits { waiting_max, ..Limits::NONE };
        with_limits(limits, 1, |runtime, device| async move {
            let pool = Pool::heap(ByteCount(0));
            let jobs: Vec<_> = (0..4).map(|tag| runtime.run(compress(&pool, tag))).collect();
            for (tag, job) in jobs.into_iter().enumerate() {
                if tag <= waiting_max {
                    device.do_one();
                }
                let finished = job.await;
                check(&finished, tag as u64);
                let path =
                    if tag <= waiting_max { on_device() } else { in_software(Reason::QueueFull) };
                assert_eq!(finished.path, path, "{tag} of {waiting_max}");
            }
        });
    }
}

#[test]
fn the_first_streams_are_read_back_unless_none_is() {
    for (every, found) in [(None, 0), (Some(1), 4), (Some(2), 4)] {
        let plan = FaultPlan { corrupt_every: 3, ..FaultPlan::default() };
        let corrupt = in_tokio(
            faulty(plan),
            |config| config.verify_every = every.and_then(NonZeroU32::new),
            |runtime| async move {
                let pool = Pool::heap(ByteCount(0));
                for tag in 0..12 {
                    runtime.run(compress(&pool, tag)).await;
                }
                runtime.metrics().corrupt()[DEVICE].1
            },
        );
        assert_eq!(corrupt, found, "{every:?}");
    }
}
