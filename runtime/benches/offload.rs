//! baseline
#![allow(missing_docs, unreachable_pub)]
mod common;
use common::*;
use device::{Pool, Software};
use policy::AsyncOffload;
use runtime::{Fallback, Runtime, RuntimeConfig, TokioRuntime};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use units::{ByteCount, Nanos, SystemClock};

fn config() -> RuntimeConfig {
    RuntimeConfig {
        devices: vec![Arc::new(Software::default()), ZeroLatency::new()],
        policy: Arc::new(AsyncOffload { work_bytes_min: 0 }),
        compress: Fallback::Prefer,
        decompress: Fallback::Prefer,
        job_timeout: Nanos::secs(1),
        reprobe_after: Nanos::secs(1),
        clock: Arc::new(SystemClock::new()),
        seed: 1,
    }
}

fn core(outstanding: usize, jobs: usize) -> f64 {
    let mut core = Runtime::new(config(), Waker::noop()).unwrap();
    let pool = Pool::heap(ByteCount::mib(4));
    let mut tickets: Vec<_> = (0..outstanding).map(|_| core.submit(job(&pool))).collect();
    let mut context = Context::from_waker(Waker::noop());
    let start = thread_time();
    let mut done = 0;
    while done < jobs {
        core.turn();
        for ticket in &mut tickets {
            let Poll::Ready(finished) = core.claim(*ticket, &mut context) else { panic!() };
            *ticket = core.submit(finished.job);
            done += 1;
        }
    }
    (thread_time() - start).as_nanos() as f64 / done as f64
}

fn tokio_run(outstanding: usize, jobs: usize) -> f64 {
    let executor = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .unwrap();
    executor.block_on(async {
        let runtime = TokioRuntime::start(config()).unwrap();
        let pool = Pool::heap(ByteCount::mib(4));
        let start = thread_time();
        let tasks: Vec<_> = (0..outstanding)
            .map(|_| {
                let runtime = runtime.clone();
                let mut job = job(&pool);
                tokio::task::spawn_local(async move {
                    for _ in 0..jobs / outstanding {
                        job = runtime.run(job).await.job;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        (thread_time() - start).as_nanos() as f64 / jobs as f64
    })
}

fn main() {
    for n in [1, 32] {
        println!("core {n}: {:?}", median((0..7).map(|_| core(n, 1 << 20)).collect()));
        println!("tokio {n}: {:?}", median((0..7).map(|_| tokio_run(n, 1 << 18)).collect()));
    }
}
