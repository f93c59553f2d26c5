//! Tests our loop: jobs end, tasks continue meanwhile, devices are polled at most as often as configured, and sleep
//! costs nothing. `cores.rs` tests many loops at once.

use std::future::poll_fn;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::common::*;
use device::engines::BUILT_IN;
use device::{Device, FaultPlan, Job, Pool, Worker};
use harness::bench::thread_time;
use policy::{Placement, Reason};
use runtime::core_loop::yield_now;
use runtime::{BlockingRuntime, Core, CoreConfig, CoreLoop, Limits, RuntimeConfig};
use units::{ByteCount, ManualClock, Nanos, SystemClock};

fn core_config(other: Arc<dyn Device>) -> CoreConfig {
    let mut config = config(vec![software(), other], Arc::new(SystemClock::new()));
    config.job_timeout = Nanos::secs(60);
    CoreConfig::new(config)
}

fn core_loop(other: Arc<dyn Device>) -> CoreLoop {
    CoreLoop::new(core_config(other)).expect("the devices open")
}

fn worker() -> Arc<dyn Device> {
    let count = |count| NonZeroUsize::new(count).expect("not zero");
    Arc::new(Worker::start(count(2), count(8), &BUILT_IN).expect("threads start"))
}

async fn jobs(core: Core, pool: Pool, tags: std::ops::Range<u64>) {
    for tag in tags {
        check(&core.run(compress(&pool, tag)).await, tag);
        check(&core.run(decompress(&pool, tag)).await, tag);
    }
}

#[test]
fn jobs_end_on_polled_and_on_signalled_devices() {
    let plan = FaultPlan { delay_polls: 3, fail_every: 7, refuse_every: 5, ..FaultPlan::default() };
    for device in [worker(), faulty(plan)] {
        let core_loop = core_loop(device);
        let pool = Pool::heap(ByteCount(0));
        for task in 0..20 {
            core_loop.core().spawn(jobs(core_loop.core().clone(), pool.clone(), task..task + 5));
        }
        core_loop.run();
        assert_eq!(pool.outstanding().0, 0);
        let paths = core_loop.core().metrics().paths();
        assert_eq!(paths.iter().map(|path| path.jobs).sum::<u64>(), 200);
    }
}

/// Results are read back in every executor, because verification is a setting of the runtime.
#[test]
fn streams_are_read_back_on_loop_and_thread() {
    let config = || {
        let device = faulty(FaultPlan { corrupt_every: 3, ..FaultPlan::default() });
        let mut config = config(vec![software(), device], Arc::new(SystemClock::new()));
        config.verify_every = NonZeroU32::new(2);
        config
    };
    let pool = Pool::heap(ByteCount(0));
    let core_loop = CoreLoop::new(CoreConfig::new(config())).expect("the devices open");
    let (core, own_pool) = (core_loop.core().clone(), pool.clone());
    core_loop.block_on(async move {
        for tag in 0..12 {
            core.run(compress(&own_pool, tag)).await;
        }
    });
    let mut blocking = BlockingRuntime::open(config()).expect("the devices open");
    for tag in 0..12 {
        blocking.run_blocking(compress(&pool, tag));
    }
    for metrics in [core_loop.core().metrics(), blocking.metrics()] {
        assert_eq!(metrics.corrupt()[DEVICE].1, 4);
    }
}

#[test]
fn limits_hold_on_our_loop() {
    let device = Script::new(|capabilities| capabilities.queue_depth = 1);
    let mut config = core_config(Arc::clone(&device) as _);
    let there = policy::Choice::to(DEVICE, Placement::Async, Reason::Policy);
    config.runtime.policy = Arc::new(Always(there));
    config.runtime.limits = Limits { waiting_max: 1, ..Limits::NONE };
    let core_loop = CoreLoop::new(config).expect("the devices open");
    let (core, pool) = (core_loop.core().clone(), Pool::heap(ByteCount(0)));
    let paths = core_loop.block_on(async move {
        let [in_flight, waits, beyond] = [0, 1, 2].map(|tag| core.run(compress(&pool, tag)));
        let beyond = beyond.await.path;
        assert_eq!(device.state().accepted, 1);
        device.do_one();
        let in_flight = in_flight.await.path;
        while device.state().accepted < 2 {
            yield_now().await;
        }
        device.do_one();
        [in_flight, waits.await.path, beyond]
    });
    let there = on(Placement::Async, Reason::Policy);
    assert_eq!(paths, [there, there, in_software(Reason::QueueFull)]);
}

#[test]
fn by_default_a_thousandth_of_the_streams_is_read_back() {
    let policy = Arc::new(policy::AlwaysSoftware);
    let config = RuntimeConfig::new(vec![software()], policy, Arc::new(SystemClock::new()));
    assert_eq!((config.verify_every, config.limits), (NonZeroU32::new(1_000), Limits::NONE));
}

#[test]
fn tasks_go_on_while_jobs_are_in_flight() {
    let device = Script::polled();
    let core_loop = core_loop(Arc::clone(&device) as _);
    let (core, pool) = (core_loop.core().clone(), Pool::heap(ByteCount(0)));
    let path = core_loop.block_on(async move {
        let job = core.run(compress(&pool, 1));
        for _ in 0..1_000 {
            yield_now().await;
        }
        device.do_one();
        job.await.path
    });
    assert_eq!(path, on(Placement::Async, Reason::Policy));
}

fn on(placement: Placement, reason: Reason) -> runtime::Path {
    path(DEVICE, placement, reason)
}

#[test]
fn a_busy_loop_polls_a_device_once_per_interval() {
    let device = Script::polled();
    let clock = ManualClock::default();
    let mut config = core_config(Arc::clone(&device) as _);
    config.runtime.clock = Arc::new(clock.clone());
    config.poll_interval = Nanos(1_000);
    let core_loop = CoreLoop::new(config).expect("the devices open");
    let (core, pool) = (core_loop.core().clone(), Pool::heap(ByteCount(0)));
    core_loop.block_on(async move {
        let job = core.spawn({
            let core = core.clone();
            async move { core.run(compress(&pool, 1)).await }
        });
        for _ in 0..100 {
            yield_now().await;
        }
        let first = device.state().polls;
        for _ in 0..1_000 {
            yield_now().await;
        }
        assert_eq!(device.state().polls, first, "time stands still");
        clock.advance(Nanos(1_000));
        for _ in 0..1_000 {
            yield_now().await;
        }
        assert_eq!(device.state().polls, first + 1);
        device.do_one();
        check(&job.await, 1);
    });
}

#[test]
fn a_turn_takes_no_more_completions_than_the_batch() {
    let device = Script::polled();
    let mut rig = Rig::new(Arc::clone(&device) as _);
    rig.core.set_dequeue_batch(NonZeroUsize::new(2).expect("not zero"));
    let tickets: Vec<_> = (0..5).map(|tag| rig.submit(tag)).collect();
    (0..5).for_each(|_| device.do_one());
    for expected in [2, 4, 5] {
        rig.core.turn();
        let finished = tickets.iter().filter(|ticket| rig.core.is_finished(**ticket)).count();
        assert_eq!(finished, expected);
        assert_eq!(rig.core.outstanding().jobs, 5 - expected);
    }
    for (tag, ticket) in tickets.into_iter().enumerate() {
        check(&rig.finished(ticket), tag as u64);
    }
}

#[test]
fn a_loop_without_work_sleeps_until_another_thread_wakes_it() {
    // The system charges the time for which a core is away to the task that ran on it, so the least of five
    // measurements counts.
    let spent = (0..5).map(|_| spent_in_a_sleep()).min().expect("five sleeps");
    assert!(spent < Duration::from_millis(20), "{spent:?} in a sleep of 100 ms");
}

fn spent_in_a_sleep() -> Duration {
    let core_loop = core_loop(worker());
    let (send, receive) = std::sync::mpsc::channel();
    let waker_thread = thread::spawn(move || {
        let waker: std::task::Waker = receive.recv().expect("the task sends its waker");
        thread::sleep(Duration::from_millis(100));
        waker.wake();
    });
    let mut asked = 0;
    let before = thread_time();
    core_loop.block_on(poll_fn(move |context| {
        asked += 1;
        if asked == 1 {
            send.send(context.waker().clone()).expect("the thread listens");
            return Poll::Pending;
        }
        Poll::Ready(())
    }));
    let spent = thread_time() - before;
    waker_thread.join().expect("it ends");
    spent
}

#[test]
fn dropped_futures_and_a_dropped_loop_leave_nothing_behind() {
    let plan = FaultPlan { delay_polls: 3, ..FaultPlan::default() };
    let pool = Pool::heap(ByteCount(0));
    let outer = core_loop(faulty(plan.clone()));
    let (core, buffers) = (outer.core().clone(), pool.clone());
    outer.block_on(async move { drop(core.run(compress(&buffers, 1))) });
    for tag in 0..4 {
        let (core, buffers) = (outer.core().clone(), pool.clone());
        outer.core().spawn(async move { check(&core.run(compress(&buffers, tag)).await, tag) });
    }
    let core = outer.core().clone();
    outer.block_on(async move {
        yield_now().await;
        drop(core);
    });
    drop(outer);
    assert_eq!(pool.outstanding().0, 0);
}

#[test]
fn wakes_between_runs_are_not_lost() {
    let core_loop = core_loop(worker());
    let core = core_loop.core();
    for _ in 0..3 {
        let ends: Vec<_> = (0..50u64)
            .map(|index| {
                core.spawn(async move {
                    for _ in 0..index {
                        yield_now().await;
                    }
                    index
                })
            })
            .collect();
        core_loop.block_on(yield_now());
        let sum = core_loop.block_on(async move {
            let mut sum = 0;
            for end in ends {
                sum += end.await;
            }
            sum
        });
        assert_eq!(sum, 49 * 50 / 2);
    }
}

#[test]
fn a_job_after_a_pause_is_timed_from_its_submission() {
    let clock = ManualClock::default();
    let mut config = core_config(faulty(FaultPlan { delay_polls: 3, ..FaultPlan::default() }));
    config.runtime.clock = Arc::new(clock.clone());
    let core_loop = CoreLoop::new(config).expect("the devices open");
    let (core, pool) = (core_loop.core().clone(), Pool::heap(ByteCount(0)));
    let total = core_loop.block_on(async move {
        // All jobs run at the same time, because one reading of the clock may serve many jobs.
        jobs(core.clone(), pool.clone(), 0..100).await;
        for tag in 0..100 {
            check(&core.run_in_software(compress(&pool, tag), Reason::Configured).await, tag);
        }
        // This is more than a pass polls, so the loop sees that no job is inside.
        for _ in 0..1_000 {
            yield_now().await;
        }
        clock.advance(Nanos::secs(1));
        core.run(compress(&pool, 1)).await.total
    });
    assert_eq!(total, Nanos(0));
}

#[test]
fn a_plain_thread_waits_for_its_job() {
    let plan = FaultPlan { delay_polls: 3, ..FaultPlan::default() };
    for device in [worker(), faulty(plan)] {
        let config = core_config(device).runtime;
        let mut runtime = BlockingRuntime::open(config).expect("the devices open");
        let pool = Pool::heap(ByteCount(0));
        for tag in 0..20 {
            let both: [Box<Job>; 2] = [compress(&pool, tag), decompress(&pool, tag)];
            for job in both {
                let finished = runtime.run_blocking(job);
                check(&finished, tag);
                assert_eq!(finished.path, on(Placement::Async, Reason::Policy));
            }
        }
        assert_eq!(pool.outstanding().0, 0);
    }
}
