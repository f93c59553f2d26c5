//! Tests that a job in steady state allocates nothing: on the bare core with a cached decision, on our loop and in
//! tokio. The device and the jobs are those of the benches. `costs.rs` tests the allocations of policies that use
//! costs.

#[path = "../benches/common/mod.rs"]
#[allow(unreachable_pub)]
mod bench;

use std::cell::Cell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use device::{Job, Pool};
use runtime::{CoreConfig, CoreLoop, Runtime, TokioRuntime};
use units::{ByteCount, Nanos};

/// Returns as many jobs as are outstanding in the benches, each in a slot to which it returns.
fn job_slots() -> Rc<Vec<Cell<Option<Box<Job>>>>> {
    let pool = Pool::heap(ByteCount::mib(4));
    Rc::new((0..OUTSTANDING).map(|_| Cell::new(Some(bench::job(&pool)))).collect())
}

/// Returns the number of allocations in a round with 100 jobs per task and in a round with 1,000. A round
/// before them allocates the memory that is reused.
fn count_rounds(mut round: impl FnMut(usize)) -> [u64; 2] {
    round(100);
    [100, 1_000].map(|each| allocation_counter::measure(|| round(each)).count_total)
}

#[test]
fn a_job_whose_answer_is_known_takes_none() {
    let mut core = Runtime::new(bench::config(), Waker::noop()).expect("the devices open");
    let pool = Pool::heap(ByteCount::mib(4));
    let mut tickets: Vec<_> = (0..OUTSTANDING).map(|_| core.submit(bench::job(&pool))).collect();
    let mut context = Context::from_waker(Waker::noop());
    let counted = count_rounds(|each| {
        for _ in 0..each {
            core.turn();
            for ticket in &mut tickets {
                let Poll::Ready(finished) = core.claim(*ticket, &mut context) else {
                    panic!("a device without latency has every job at the next poll");
                };
                *ticket = core.submit(finished.job);
            }
        }
    });
    assert_eq!(counted, [0, 0]);
}

#[test]
fn a_job_of_a_task_on_our_loop_takes_none() {
    let mut config = bench::config();
    // A turn takes some completions and leaves the rest. The timeout is so long that these never become overdue,
    // however long the machine pauses.
    config.job_timeout = Nanos::secs(600);
    let core_loop = CoreLoop::new(CoreConfig::new(config)).expect("the devices open");
    let (core, all) = (core_loop.core().clone(), job_slots());
    let counted = count_rounds(|each| {
        for place in 0..OUTSTANDING {
            let (job_core, all) = (core.clone(), Rc::clone(&all));
            core.spawn(async move {
                let mut job = all[place].take().expect("each job has one task");
                for _ in 0..each {
                    job = job_core.run(job).await.job;
                }
                all[place].set(Some(job));
            });
        }
        core_loop.run();
    });
    assert!(counted[0] > 0, "tasks themselves take some, which shows that they are counted");
    assert!(counted[1] <= counted[0], "more jobs, and no more allocations: {counted:?}");
}

#[test]
fn a_job_of_a_task_in_tokio_takes_none() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let executor = builder.enable_all().build_local(Default::default()).expect("tokio starts");
    let runtime = executor.block_on(async { TokioRuntime::start(bench::config()) });
    let (runtime, all) = (runtime.expect("the devices open"), job_slots());
    let counted = count_rounds(|each| {
        let start = |place: usize| {
            let (runtime, all) = (runtime.clone(), Rc::clone(&all));
            executor.spawn_local(async move {
                let mut job = all[place].take().expect("each job has one task");
                for _ in 0..each {
                    job = runtime.run(job).await.job;
                }
                all[place].set(Some(job));
            })
        };
        let tasks: Vec<_> = (0..OUTSTANDING).map(start).collect();
        executor.block_on(async {
            for task in tasks {
                task.await.expect("no task panics");
            }
        });
    });
    assert!(counted[0] > 0, "tasks themselves take some, which shows that they are counted");
    assert!(counted[1] <= counted[0], "more jobs, and no more allocations: {counted:?}");
}

const OUTSTANDING: usize = 32;
