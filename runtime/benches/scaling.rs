//! Compares two cores with one: tasks that offload and compute, created in the process, on a device that is never full.
//! The bar is 1.9 times one core's throughput. This is wall time, so the machine must be otherwise idle. The processor
//! time per job shows whether cores disturb each other, also on a busy machine. `--json` and `--quick` work as in
//! `offload`.
#![allow(missing_docs, unreachable_pub)]

mod common;

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::time::Instant;

use common::*;
use device::Pool;
use runtime::{Core, CoreConfig, Cores, CoresConfig};
use units::ByteCount;

fn main() {
    let options = Options::from_arguments();
    let tasks = if options.quick { 100 } else { 2_000 };
    let mut rows = Rows::default();
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(16);
    let (mut one, mut all) = (Vec::new(), Vec::new());
    // The runs take turns, so that a change of the machine's speed affects both.
    for _ in options.runs() {
        one.push(measure(1, tasks));
        all.push(measure(cores, tasks * cores as u64));
    }
    let ratio = |(all, one): (&Measured, &Measured)| all.jobs_per_second / one.jobs_per_second;
    let ratios = all.iter().zip(&one).map(ratio);
    let bar = match cores {
        2 => Some(Bar::AtLeast(1.9)),
        16 => Some(Bar::AtLeast(14.0)),
        _ => None,
    };
    for (which, measured) in [("1_core".to_owned(), &one), (format!("{cores}_cores"), &all)] {
        let per_second = measured.iter().map(|run| run.jobs_per_second);
        rows.add(&format!("throughput.{which}"), "jobs/s", None, per_second);
        let processor_ns = measured.iter().map(|run| run.processor_ns_per_job);
        rows.add(&format!("processor_time.{which}"), "ns", None, processor_ns);
    }
    rows.add(&format!("ratio.{cores}_cores"), "times", bar, ratios);
    rows.print(&options);
}

struct Measured {
    jobs_per_second: f64,
    processor_ns_per_job: f64,
}

fn measure(cores: usize, tasks: u64) -> Measured {
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
    Measured {
        jobs_per_second: jobs / start.elapsed().as_secs_f64(),
        processor_ns_per_job: (process_time() - processor).as_nanos() as f64 / jobs,
    }
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

/// The steps of the work, which take about a microsecond.
const WORK_STEPS: u64 = 500;
