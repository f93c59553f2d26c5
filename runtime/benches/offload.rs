//! Measures the host time of one async offload on a device without latency: submit, poll, wake, switch. Runs
//! on our core loop, in tokio and on the bare core, with 1 and with 32 jobs outstanding. Also measures a turn
//! that finds nothing, and the allocations per job after a warm-up. The time is the thread's processor time
//! without the device's work, as the median of the runs. The flags are those of `harness::Bench`. `--count=N`
//! sets the number of jobs.
#![allow(missing_docs, unreachable_pub)]

mod common;

use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use common::*;
use device::{Device, Job, Pool};
use harness::bench::thread_time;
use harness::{Bench, Limit, quantile};
use runtime::core_loop::yield_now;
use runtime::{CoreConfig, CoreLoop, Runtime, RuntimeConfig, TokioRuntime};
use units::{ByteCount, Clock, SystemClock};

fn main() {
    let mut bench = Bench::new("cargo bench -p runtime --bench offload", 7);
    let jobs = bench.count.unwrap_or(if bench.quick { 1 << 15 } else { 1 << 20 }) as usize;
    for outstanding in [1, 32] {
        let limit = |ns: f64| (outstanding == 32).then_some(Limit::AtMost(ns));
        for (what, run, limit_ns) in [
            ("core_loop", on_core_loop as fn(usize, usize) -> Measured, limit(40.0)),
            ("tokio", in_tokio, limit(100.0)),
            ("bare_core", on_bare_core, None),
            ("core_loop_weighing_costs", using_costs, None),
            ("core_loop_jobs_not_shown", with_jobs_not_shown, None),
            ("core_loop_verified", verified, None),
        ] {
            let id = |part: &str| format!("{part}.{what}.{outstanding}_outstanding");
            if !bench.wants(&id("offload")) {
                continue;
            }
            let measured: Vec<_> = bench.runs().map(|_| run(outstanding, jobs)).collect();
            bench.row(&id("offload"), "ns", limit_ns, measured.iter().map(|run| run.ns_per_job));
            let allocations = measured.iter().map(|run| run.allocations as f64);
            bench.row(&id("allocations"), "in all jobs", Some(Limit::AtMost(0.0)), allocations);
        }
    }
    for (id, stage) in STAGES {
        bench.measure(id, "ns", None, || stage(jobs));
    }
    if bench.wants("stage.job") {
        let runs: Vec<_> = bench.runs().map(|_| phases(jobs)).collect();
        for (at, phase) in PHASES.into_iter().enumerate() {
            let id = format!("stage.job.{phase}");
            bench.row(&id, "ns", None, runs.iter().map(|phases| phases[at]));
        }
    }
    bench.measure("empty_turn", "ns", None, || empty_turn(jobs));
    bench.finish();
}

struct Measured {
    ns_per_job: f64,
    allocations: u64,
}

/// Runs the loop's tasks. Each task submits its job again as soon as it is back.
fn on_core_loop(outstanding: usize, jobs: usize) -> Measured {
    on_loop_of(config(), outstanding, jobs)
}

/// Runs the loop's tasks with a policy that uses the learnt costs. The policy always chooses the device.
fn using_costs(outstanding: usize, jobs: usize) -> Measured {
    let policy = Arc::new(policy::LeastLatency { inline_bytes_max: 0 });
    on_loop_of(RuntimeConfig { policy, ..config() }, outstanding, jobs)
}

/// Runs the loop's tasks with a device that does not show its jobs. The runtime must store their data.
fn with_jobs_not_shown(outstanding: usize, jobs: usize) -> Measured {
    let mut config = config();
    config.devices[1] = ZeroLatency::unseen();
    on_loop_of(config, outstanding, jobs)
}

/// Runs the loop's tasks with a device whose results are checked and sometimes read back, like in a server.
fn verified(outstanding: usize, jobs: usize) -> Measured {
    let mut config = config();
    config.devices[1] = Remembering::new();
    config.verify_every = std::num::NonZeroU32::new(1_000);
    let pool = Pool::heap(ByteCount::mib(4));
    let job = |_| Rc::new(std::cell::Cell::new(Some(job_with_result(&pool))));
    on_loop_with(config, (0..outstanding).map(job).collect(), jobs)
}

fn on_loop_of(config: RuntimeConfig, outstanding: usize, jobs: usize) -> Measured {
    on_loop_with(config, job_slots(outstanding), jobs)
}

fn on_loop_with(config: RuntimeConfig, all: Vec<JobSlot>, jobs: usize) -> Measured {
    let (outstanding, all) = (all.len(), Rc::new(all));
    let core_loop = CoreLoop::new(CoreConfig::new(config)).expect("the devices open");
    let core = core_loop.core().clone();
    let round = |each: usize| {
        for slot in all.iter() {
            let (core, slot) = (core.clone(), Rc::clone(slot));
            core_loop.core().spawn(async move {
                let mut job = slot.take().expect("each job has one task");
                for _ in 0..each {
                    job = core.run(job).await.job;
                }
                slot.set(Some(job));
            });
        }
        Measured::over(each * outstanding, || core_loop.run())
    };
    round(1_000);
    round(jobs / outstanding)
}

fn in_tokio(outstanding: usize, jobs: usize) -> Measured {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let executor = builder.enable_all().build_local(Default::default()).expect("tokio starts");
    let all: Rc<Vec<_>> = Rc::new(job_slots(outstanding));
    let runtime = executor.block_on(async { TokioRuntime::start(config()) });
    let runtime = runtime.expect("the devices open");
    let round = |each: usize| {
        let tasks: Vec<_> = all
            .iter()
            .map(|slot| {
                let (runtime, slot) = (runtime.clone(), Rc::clone(slot));
                executor.spawn_local(async move {
                    let mut job = slot.take().expect("each job has one task");
                    for _ in 0..each {
                        job = runtime.run(job).await.job;
                    }
                    slot.set(Some(job));
                })
            })
            .collect();
        let all_end = async {
            for task in tasks {
                task.await.expect("no task panics");
            }
        };
        Measured::over(each * outstanding, || executor.block_on(all_end))
    };
    round(1_000);
    round(jobs / outstanding)
}

/// Measures the core itself, without any executor.
fn on_bare_core(outstanding: usize, jobs: usize) -> Measured {
    let mut core = Runtime::new(config(), Waker::noop()).expect("the devices open");
    core.set_time_resolution(units::Nanos::micros(1));
    let pool = Pool::heap(ByteCount::mib(4));
    let mut tickets: Vec<_> = (0..outstanding).map(|_| core.submit(job(&pool))).collect();
    let mut round = |jobs: usize| {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..jobs / outstanding {
            core.poll_once();
            for ticket in &mut tickets {
                let Poll::Ready(finished) = core.claim(*ticket, &mut context) else {
                    panic!("a device without latency has every job at the next poll");
                };
                *ticket = core.submit(finished.job);
            }
        }
    };
    round(32_000);
    Measured::over(jobs, || round(jobs))
}

/// Measures a turn while a device has a job that it never returns.
fn empty_turn(turns: usize) -> f64 {
    let mut config = config();
    config.devices[1] = ZeroLatency::never();
    let mut core = Runtime::new(config, Waker::noop()).expect("the devices open");
    core.submit(job(&Pool::heap(ByteCount(0))));
    Measured::over(turns, || {
        (0..turns).for_each(|_| {
            core.turn();
        })
    })
    .ns_per_job
}

impl Measured {
    fn over(jobs: usize, run: impl FnOnce()) -> Self {
        let mut ns_per_job = 0.0;
        let allocations = allocation_counter::measure(|| {
            let start = thread_time();
            run();
            ns_per_job = (thread_time() - start).as_nanos() as f64 / jobs as f64;
        });
        Self { ns_per_job, allocations: allocations.count_total }
    }
}

type JobSlot = Rc<std::cell::Cell<Option<Box<Job>>>>;

fn job_slots(count: usize) -> Vec<JobSlot> {
    let pool = Pool::heap(ByteCount::mib(4));
    (0..count).map(|_| Rc::new(std::cell::Cell::new(Some(job(&pool))))).collect()
}

/// Returns the nanoseconds of one job, measured over the given number of jobs.
type Stage = fn(usize) -> f64;

/// The stages of an offload. Each is measured alone, with 32 repetitions in a row.
const STAGES: [(&str, Stage); 7] = [
    ("stage.device", device_alone),
    ("stage.input_kept", input_kept),
    ("stage.policy", policy_alone),
    ("stage.eligible", eligible_alone),
    ("stage.clock", |count| {
        let clock = SystemClock::new();
        Measured::over(count, || {
            (0..count).for_each(|_| {
                black_box(clock.now());
            })
        })
        .ns_per_job
    }),
    ("stage.switch", switch_alone),
    ("stage.switch_tokio", switch_in_tokio),
];

/// Measures submissions to the device's queue and its polls, without a runtime.
fn device_alone(count: usize) -> f64 {
    let mut queue = ZeroLatency::new().open_queue(Waker::noop().clone()).expect("it opens");
    let pool = Pool::heap(ByteCount::mib(4));
    let mut jobs: Vec<_> = (0..32).map(|_| job(&pool)).collect();
    let mut done = Vec::with_capacity(32);
    Measured::over(count, || {
        for _ in 0..count / 32 {
            jobs.drain(..).for_each(|job| queue.try_submit(job).expect("there is room"));
            queue.poll(&mut done);
            jobs.extend(done.drain(..).map(|completion| completion.job));
        }
    })
    .ns_per_job
}

/// Measures one clone and one drop of an input, which is the cost of keeping it for a second attempt.
fn input_kept(count: usize) -> f64 {
    let pool = Pool::heap(ByteCount::mib(4));
    let jobs: Vec<_> = (0..32).map(|_| job(&pool)).collect();
    let mut kept = Vec::with_capacity(32);
    Measured::over(count, || {
        for _ in 0..count / 32 {
            kept.extend(jobs.iter().map(|job| job.input.clone()));
            black_box(&mut kept).clear();
        }
    })
    .ns_per_job
}

fn policy_alone(count: usize) -> f64 {
    let policy = black_box(config().policy);
    let job = job(&Pool::heap(ByteCount(0)));
    let open = policy::DeviceState {
        eligible: true,
        healthy: true,
        depth: 0,
        capacity: 64,
        estimated: None,
        host: None,
    };
    let states = [open, open];
    let facts = policy::JobFacts {
        op: job.task.op(),
        dialect: job.task.dialect(),
        work_bytes: job.work_bytes(),
        class: job.class,
        tenant: job.tenant,
        time_left: None,
        last: None,
    };
    let place = || policy.place(black_box(&facts), &policy::Snapshot::new(&states), 1);
    Measured::over(count, || {
        (0..count).for_each(|_| {
            black_box(place());
        })
    })
    .ns_per_job
}

/// Measures the check whether two devices accept a job.
fn eligible_alone(count: usize) -> f64 {
    let devices = config().devices;
    let job = job(&Pool::heap(ByteCount(0)));
    let accepts = || {
        let accept = |device: &Arc<dyn Device>| {
            device.capabilities().accepts(&black_box(&job).task, job.work_bytes())
        };
        black_box(devices.iter().all(accept));
    };
    Measured::over(count, || (0..count).for_each(|_| accepts())).ns_per_job
}

/// Measures the switch from task to task and back, through the ready queue, without a job.
fn switch_alone(count: usize) -> f64 {
    let core_loop = CoreLoop::new(CoreConfig::new(config())).expect("the devices open");
    for _ in 0..32 {
        core_loop.core().spawn(async move {
            for _ in 0..count / 32 {
                yield_now().await;
            }
        });
    }
    Measured::over(count, || core_loop.run()).ns_per_job
}

/// Measures the switch from task to task and back in tokio.
fn switch_in_tokio(count: usize) -> f64 {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let executor = builder.enable_all().build_local(Default::default()).expect("tokio starts");
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            executor.spawn_local(async move {
                for _ in 0..count / 32 {
                    yield_now().await;
                }
            })
        })
        .collect();
    let all_end = async {
        for task in tasks {
            task.await.expect("no task panics");
        }
    };
    Measured::over(count, || executor.block_on(all_end)).ns_per_job
}

/// The phases of a job: its submission, the storing of its waker, the turn that completes it, and its claim.
const PHASES: [&str; 4] = ["submit", "await", "turn", "claim"];

/// Measures each phase on the bare core with 32 jobs at a time. Returns the medians of the wall time, without
/// the time to read the clock.
fn phases(jobs: usize) -> [f64; 4] {
    const JOBS: usize = 32;
    struct Noted(AtomicUsize);
    impl Wake for Noted {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
    let mut core = Runtime::new(config(), Waker::noop()).expect("the devices open");
    core.set_time_resolution(units::Nanos::micros(1));
    let pool = Pool::heap(ByteCount::mib(4));
    let mut wakers: Vec<_> =
        (0..JOBS).map(|_| Waker::from(Arc::new(Noted(AtomicUsize::new(0))))).collect();
    let mut jobs_back: Vec<_> = (0..JOBS).map(|_| job(&pool)).collect();
    let mut tickets = Vec::with_capacity(JOBS);
    let mut took_ns: [Vec<u64>; 5] = std::array::from_fn(|_| Vec::with_capacity(jobs / JOBS));
    for _ in 0..jobs / JOBS {
        let mut looks = [Instant::now(); 7];
        tickets.extend(jobs_back.drain(..).map(|job| core.submit(job)));
        looks[1] = Instant::now();
        for (ticket, waker) in tickets.iter().zip(&wakers) {
            assert!(core.claim(*ticket, &mut Context::from_waker(waker)).is_pending());
        }
        looks[2] = Instant::now();
        core.poll_once();
        looks[3] = Instant::now();
        for (ticket, waker) in tickets.drain(..).zip(&wakers) {
            match core.claim(ticket, &mut Context::from_waker(waker)) {
                Poll::Ready(finished) => jobs_back.push(finished.job),
                Poll::Pending => panic!("a device without latency has every job at the next poll"),
            }
        }
        looks[4] = Instant::now();
        // The entry that was freed last is used first. In a loop the same task had it before, so the wakers are
        // reversed.
        wakers.reverse();
        looks[5] = Instant::now();
        looks[6] = Instant::now();
        let pairs = [[0, 1], [1, 2], [2, 3], [3, 4], [5, 6]].map(|pair| pair.map(|at| looks[at]));
        for (took_ns, pair) in took_ns.iter_mut().zip(pairs) {
            took_ns.push((pair[1] - pair[0]).as_nanos() as u64);
        }
    }
    let median_ns = took_ns.map(|mut took_ns| quantile(&mut took_ns, 0.5) as f64);
    std::array::from_fn(|at| (median_ns[at] - median_ns[4]) / JOBS as f64)
}
