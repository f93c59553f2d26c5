//! Tests many loops at once. They share the tasks that have not begun. No task waits while a core that could begin it
//! sleeps. The loops leave nothing behind when they end.

use std::future::{pending, poll_fn};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Barrier};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::common::*;
use device::engines::BUILT_IN;
use device::{Pool, Worker};
use runtime::core_loop::{SpawnError, Spawner, yield_now};
use runtime::{Core, CoreConfig, Cores, CoresConfig};
use units::{ByteCount, Nanos, SystemClock};

fn cores(count: usize, tasks_per_core_max: usize, waiting_max: usize) -> Cores {
    let number = |number| NonZeroUsize::new(number).expect("not zero");
    let device = Worker::start(number(2), number(8), &BUILT_IN).expect("threads start");
    let device = Arc::new(device);
    let mut cores = CoresConfig::new(number(count));
    cores.tasks_per_core_max = number(tasks_per_core_max);
    cores.waiting_max = waiting_max;
    let core = move |_| {
        let devices = vec![software(), Arc::clone(&device) as _];
        let mut config = config(devices, Arc::new(SystemClock::new()));
        config.job_timeout = Nanos::secs(60);
        CoreConfig::new(config)
    };
    Cores::start(cores, core).expect("the devices open")
}

async fn jobs(core: Core, pool: Pool, tags: std::ops::Range<u64>) {
    for tag in tags {
        check(&core.run(compress(&pool, tag)).await, tag);
        check(&core.run(decompress(&pool, tag)).await, tag);
    }
}

/// Runs the test, and fails if it exceeds a generous time limit. A lost wake would make it wait forever.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (held, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _held = held;
        test();
    });
    match ended.recv_timeout(LIMIT) {
        Err(RecvTimeoutError::Disconnected) => {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        _ => panic!("not over in {LIMIT:?}"),
    }
}

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn every_task_spawned_to_many_cores_ends_once() {
    let cores = cores(2, 4, 1_000);
    let pool = Pool::heap(ByteCount(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let spawner = cores.spawner();
    for tag in 0..200 {
        let (pool, ended, again) = (pool.clone(), Arc::clone(&ended), spawner.clone());
        let spawned = spawner.spawn(move |core| async move {
            jobs(core, pool, tag..tag + 2).await;
            let inner = Arc::clone(&ended);
            again
                .spawn(move |_| async move {
                    inner.fetch_add(1, Ordering::Relaxed);
                })
                .expect("there is room");
            ended.fetch_add(1, Ordering::Relaxed);
        });
        spawned.expect("there is room");
    }
    drop(spawner);
    cores.finish();
    assert_eq!((ended.load(Ordering::Relaxed), pool.outstanding().0), (400, 0));
}

#[test]
fn a_busy_core_leaves_its_share_to_others() {
    in_time(|| {
        let cores = cores(2, 4, 1_000);
        let spawner = cores.spawner();
        // The gate holds both cores until all tasks are spawned. The core that takes `busy` then also takes a share of
        // the other tasks.
        let gate = Arc::new(Barrier::new(3));
        for _ in 0..2 {
            let gate = Arc::clone(&gate);
            let wait = move |_: Core| async move {
                gate.wait();
                gate.wait();
            };
            spawner.spawn(wait).expect("there is room");
        }
        gate.wait();
        let ended = Arc::new(AtomicUsize::new(0));
        let others = Arc::clone(&ended);
        let busy = move |_: Core| async move {
            // The task holds its core until the other core has done all other tasks.
            while others.load(Ordering::Relaxed) < 100 {
                thread::yield_now();
            }
        };
        spawner.spawn(busy).expect("there is room");
        for _ in 0..100 {
            let ended = Arc::clone(&ended);
            let count = move |_: Core| async move {
                ended.fetch_add(1, Ordering::Relaxed);
            };
            spawner.spawn(count).expect("there is room");
        }
        gate.wait();
        cores.finish();
    });
}

#[test]
fn a_full_core_leaves_new_tasks_to_one_that_sleeps() {
    in_time(|| {
        let cores = cores(2, 1, 10);
        let spawner = cores.spawner();
        for _ in 0..2 {
            let (begun, begins) = mpsc::channel();
            let forever = move |_: Core| async move {
                begun.send(()).expect("the test listens");
                pending::<()>().await;
            };
            spawner.spawn(forever).expect("there is room");
            begins.recv().expect("it begins");
            // The full core falls asleep last. If that takes longer, the test only becomes easier to pass.
            thread::sleep(Duration::from_millis(50));
        }
        drop(cores);
    });
}

#[test]
fn two_tasks_that_need_two_cores_at_once_get_them() {
    in_time(|| {
        let cores = cores(2, 2, 10);
        let spawner = cores.spawner();
        for _ in 0..5_000 {
            let both = Arc::new(Barrier::new(3));
            for _ in 0..2 {
                let both = Arc::clone(&both);
                let meet = move |_: Core| async move {
                    both.wait();
                };
                spawner.spawn(meet).expect("there is room");
            }
            both.wait();
        }
        cores.finish();
    });
}

#[test]
fn tasks_begin_while_others_stay_ready() {
    in_time(|| {
        let cores = cores(1, 4, 10);
        let spawner = cores.spawner();
        let set = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&set);
        let wait = move |_: Core| async move {
            while seen.load(Ordering::Relaxed) == 0 {
                yield_now().await;
            }
        };
        spawner.spawn(wait).expect("there is room");
        let tell = move |_: Core| async move { set.store(1, Ordering::Relaxed) };
        spawner.spawn(tell).expect("there is room");
        cores.finish();
    });
}

#[test]
fn wakes_and_spawns_from_many_threads_are_not_lost() {
    in_time(|| {
        let cores = cores(4, 3, 1_000);
        let ended = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (spawner, ended) = (cores.spawner(), Arc::clone(&ended));
                thread::spawn(move || (0..25_000).for_each(|_| spawn_one(&spawner, &ended)))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        // `finish` would wake all cores, so this waits without it.
        while ended.load(Ordering::Relaxed) < 100_000 {
            thread::sleep(Duration::from_millis(1));
        }
        cores.finish();
        assert_eq!(ended.load(Ordering::Relaxed), 100_000);
    });
}

fn spawn_one(spawner: &Spawner, ended: &Arc<AtomicUsize>) {
    loop {
        let ended = Arc::clone(ended);
        let spawned = spawner.spawn(move |_| async move {
            yield_now().await;
            ended.fetch_add(1, Ordering::Relaxed);
        });
        match spawned {
            Ok(()) => return,
            Err(error) => assert_eq!(error, SpawnError::CoresFull { waiting_max: 1_000 }),
        }
        thread::yield_now();
    }
}

#[test]
fn the_last_wake_from_many_threads_is_not_lost() {
    in_time(|| {
        let cores = cores(1, 4, 10);
        for _ in 0..20 {
            let (ended, ends) = mpsc::channel();
            let count = Arc::new(AtomicUsize::new(0));
            let mut started = false;
            let task = move |_: Core| async move {
                poll_fn(move |context| {
                    if !std::mem::replace(&mut started, true) {
                        for _ in 0..4 {
                            let (waker, count) = (context.waker().clone(), Arc::clone(&count));
                            thread::spawn(move || {
                                for _ in 0..1_000 {
                                    // The increment is relaxed: the wake must ensure that the poll sees it.
                                    count.fetch_add(1, Ordering::Relaxed);
                                    waker.wake_by_ref();
                                }
                            });
                        }
                    }
                    let all = count.load(Ordering::Relaxed) == 4_000;
                    if all { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                ended.send(()).expect("the test listens");
            };
            cores.spawner().spawn(task).expect("there is room");
            ends.recv().expect("it ends");
        }
        cores.finish();
    });
}

#[test]
fn no_more_tasks_wait_than_may() {
    let cores = cores(2, 4, 0);
    let refused = cores.spawner().spawn(|_| async {});
    assert_eq!(refused, Err(SpawnError::CoresFull { waiting_max: 0 }));
    cores.finish();
}

#[test]
fn dropped_cores_drop_their_tasks_begun_or_not() {
    let pool = Pool::heap(ByteCount(0));
    let cores = cores(2, 4, 1_000);
    for tag in 0..50 {
        let (pool, spawner, buffer) = (pool.clone(), cores.spawner(), pool.take(100));
        let forever = move |core: Core| async move {
            let _held = (spawner, buffer);
            jobs(core, pool.clone(), tag..tag + 2).await;
            pending::<()>().await;
        };
        cores.spawner().spawn(forever).expect("there is room");
    }
    drop(cores);
    assert_eq!(pool.outstanding().0, 0);
}

#[test]
fn a_task_spawned_during_the_drop_never_leaks() {
    in_time(|| {
        for _ in 0..200 {
            let cores = cores(2, 4, 100);
            let (spawner, held) = (cores.spawner(), Arc::new(()));
            let token = Arc::clone(&held);
            let (spawned, one_is) = mpsc::channel();
            let thread = thread::spawn(move || {
                loop {
                    let in_flight = (spawner.clone(), Arc::clone(&token));
                    let task = move |_: Core| async move { drop(in_flight) };
                    if spawner.spawn(task) == Err(SpawnError::CoresEnded) {
                        return;
                    }
                    let _ = spawned.send(());
                }
            });
            one_is.recv().expect("one is spawned");
            drop(cores);
            thread.join().expect("it is refused");
            assert_eq!(Arc::strong_count(&held), 1);
        }
    });
}

#[test]
fn ended_cores_refuse_tasks() {
    let (finished, dropped) = (cores(2, 4, 10), cores(2, 4, 10));
    let spawners = [finished.spawner(), dropped.spawner()];
    finished.finish();
    drop(dropped);
    for spawner in spawners {
        assert_eq!(spawner.spawn(|_| async {}), Err(SpawnError::CoresEnded));
    }
}

#[test]
fn cores_that_a_panic_ended_refuse_tasks() {
    in_time(|| {
        let cores = cores(2, 4, 10);
        let spawner = cores.spawner();
        spawner.spawn(|_| async { panic!("a task's own") }).expect("there is room");
        while spawner.spawn(|_| async {}) != Err(SpawnError::CoresEnded) {
            thread::yield_now();
        }
        drop(cores);
    });
}

#[test]
#[should_panic(expected = "a task's own")]
fn a_task_s_panic_reaches_the_wait_for_the_cores() {
    let cores = cores(2, 4, 10);
    cores.spawner().spawn(|_| async { panic!("a task's own") }).expect("there is room");
    cores.finish();
}
