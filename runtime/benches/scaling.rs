//! Compares the throughput of two cores with that of one. Tasks created in the process compute and offload to
//! a device that is never full. The target is 1.9 times one core's throughput. This is wall time, so the
//! machine must be otherwise idle. The processor time per job shows whether cores disturb each other, also on
//! a busy machine. The flags are those of `harness::Bench`.
#![allow(missing_docs, unreachable_pub)]

mod common;

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use common::*;
use device::Pool;
use harness::bench::process_time;
use harness::{Bench, Limit};
use runtime::{Core, CoreConfig, Cores, CoresConfig};
use units::ByteCount;

fn main() {
    let mut bench = Bench::new("cargo bench -p runtime --bench scaling", 7);
    let tasks = if bench.quick { 100 } else { 2_000 };
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(16);
    let (mut one, mut all) = (Vec::new(), Vec::new());
    // The runs take turns, so that a change of the machine's speed affects both.
    for _ in bench.runs() {
        one.push(measure(1, tasks));
        all.push(measure(cores, tasks * cores as u64));
    }
    let ratios = all.iter().zip(&one).map(|(all, one)| all[0] / one[0]);
    let limit = match cores {
        2 => Some(Limit::AtLeast(1.9)),
        16 => Some(Limit::AtLeast(14.0)),
        _ => None,
    };
    bench.rows("1_core", ROWS, &one);
    bench.rows(&format!("{cores}_cores"), ROWS, &all);
    bench.row(&format!("ratio.{cores}_cores"), "times", limit, ratios);
    bench.finish();
}

/// The results of a run, each with its unit.
const ROWS: [(&str, &str); 2] = [("throughput", "jobs/s"), ("processor_time", "ns")];

fn measure(cores: usize, tasks: u64) -> [f64; 2] {
    let count = NonZeroUsize::new(cores).expect("at least one");
    let mut config_of_cores = CoresConfig::new(count);
    config_of_cores.tasks_per_core_max = NonZeroUsize::new(32).expect("not zero");
    let cores = Cores::start(config_of_cores, |_| CoreConfig::new(config()));
    let cores = cores.expect("the devices open");
    let spawner = cores.spawner();
    let (start, processor) = (Instant::now(), process_time());
    for _ in 0..tasks {
        spawner.spawn(task).expect("there is room");
    }
    drop(spawner);
    cores.finish();
    let jobs = (tasks * JOBS_PER_TASK) as f64;
    let wall_s = start.elapsed().as_secs_f64();
    [jobs / wall_s, (process_time() - processor).as_nanos() as f64 / jobs]
}

/// A request handler that does some work before each offload.
async fn task(core: Core) {
    let pool = Pool::heap(ByteCount::mib(1));
    let mut job = job(&pool);
    for round in 0..JOBS_PER_TASK {
        let sum = (0..WORK_STEPS).fold(round, |sum, step| black_box(sum.wrapping_mul(31) ^ step));
        black_box(sum);
        job = core.run(job).await.job;
    }
}

const JOBS_PER_TASK: u64 = 100;

/// The number of steps of the work before each offload. Together they take about a microsecond.
const WORK_STEPS: u64 = 500;
