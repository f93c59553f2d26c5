//! Measures the cost of DPDK. It compares ISA-L called directly with the same library behind DPDK's `compress_isal`,
//! with the job's own memory and with copies. There is one job at a time on one thread. It prints the median and the
//! 5 % to 95 % range of the time from submission to completion.

use std::error::Error;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use device::contract::payload::Payload;
use device::{Codec, Device, Dialect, Input, Job, Level, Outcome, Pool, Queue, Task};
use drivers::dpdk::Eal;
use drivers::{Dpdk, DpdkOptions};
use harness::quantile;
use units::ByteCount;

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let eal = Eal::start(&["compress_isal".to_owned()], &[])?;
    println!("DPDK starts in {:.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let plain = Dpdk::open(eal, "compress_isal", DpdkOptions::default())?;
    let copying = DpdkOptions { registered_only: true, ..DpdkOptions::default() };
    let copying = Dpdk::open(eal, "compress_isal", copying)?;
    let mut queues = [&plain, &copying]
        .map(|device| device.open_queue(Waker::noop().clone()).expect("two queue pairs"));
    println!("bytes    op          direct (ns)           dpdk (ns)             dpdk, copied (ns)");
    for bytes in [64, 4 << 10, 60_000, 64 << 10] {
        let original = Payload::Text.bytes(bytes, 1);
        let mut stream = vec![0; 2 * bytes];
        let written = drivers::isal::engine().compress(DEFLATE, LEVEL, &original, &mut stream);
        stream.truncate(written.map_err(|error| format!("{error:?}"))?);
        let compress = Task::Compress { dialect: DEFLATE, level: LEVEL };
        let decompress = Task::Decompress { dialect: DEFLATE, original_bytes: bytes };
        for (task, input) in [(compress, &original), (decompress, &stream)] {
            let direct = directly(&task, input, bytes);
            let [in_place, copied] =
                queues.each_mut().map(|queue| through(&mut **queue, &task, input, bytes));
            println!("{bytes:<8} {:<11} {direct:<21} {in_place:<21} {copied}", task.op().name());
        }
    }
    Ok(())
}

fn directly(task: &Task, input: &[u8], bytes: usize) -> String {
    let mut engine = drivers::isal::engine();
    let mut reader = device::engines::libdeflate::engine();
    let mut output = vec![0; 2 * bytes];
    measured(|| {
        let start = Instant::now();
        match task {
            Task::Compress { dialect, level } => {
                engine.compress(*dialect, *level, input, &mut output).map(drop).expect("room");
            }
            // This workspace's ISA-L engine does not read, so another engine reads the stream.
            _ => reader.decompress(input, &mut output[..bytes]).expect("a stream"),
        }
        start.elapsed().as_nanos() as u64
    })
}

fn through(queue: &mut dyn Queue, task: &Task, input: &[u8], bytes: usize) -> String {
    let pool = Pool::heap(ByteCount::mib(1));
    let input = Input::heap(Bytes::copy_from_slice(input));
    let mut done = Vec::with_capacity(1);
    let mut job = Some(Box::new(Job::new(task.clone(), input, pool.take(2 * bytes))));
    measured(|| {
        let start = Instant::now();
        queue.try_submit(job.take().expect("back from the last round")).expect("an empty queue");
        while queue.poll(&mut done) == 0 {}
        let took = start.elapsed().as_nanos() as u64;
        let completion = done.pop().expect("one");
        assert!(matches!(completion.outcome, Outcome::Done { .. }), "{:?}", completion.outcome);
        job = Some(completion.job);
        took
    })
}

fn measured(mut once: impl FnMut() -> u64) -> String {
    for _ in 0..ROUNDS / 10 {
        once();
    }
    let mut times: Vec<u64> = (0..ROUNDS).map(|_| once()).collect();
    let [median, low, high] = [0.5, 0.05, 0.95].map(|share| quantile(&mut times, share));
    format!("{median} ({low}-{high})")
}

const ROUNDS: usize = 4_000;
const DEFLATE: Dialect = Dialect::new(Codec::Deflate);
const LEVEL: Level = Level::Default;
