//! Compares QPL's software path, used directly and as a fallback, with this workspace's ISA-L engine. It
//! prints the median time of one compression and decompression of HTML and the ratio, with a window of 4 KiB.
//! Run it with `REBATE_QPL_LIBRARY=... cargo run --release -p drivers --example qpl_software`.

use std::error::Error;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use device::engines::libdeflate;
use device::{Device, Dialect, Input, Job, Level, Outcome, Pool, Queue, Software, Task};
use drivers::isal;
use drivers::qpl::{Huffman, Path, Qpl, QplOptions};
use harness::{Bench, quantile};
use units::ByteCount;
use workload::{PayloadClass, SizeDist, Sizes, Values, Weighting};

fn main() -> Result<(), Box<dyn Error>> {
    let open = |path, verify, huffman| {
        Qpl::open(path, &QplOptions { verify, huffman, ..QplOptions::default() })
    };
    let devices: [(&str, Box<dyn Device>); 5] = [
        ("isal", Box::new(Software::new(&[isal::engine, libdeflate::engine]))),
        ("qpl-software", Box::new(open(Path::Software, false, Huffman::Dynamic)?)),
        ("qpl-software.fixed-code", Box::new(open(Path::Software, false, Huffman::Fixed)?)),
        ("qpl-auto.unverified", Box::new(open(Path::Auto, false, Huffman::Dynamic)?)),
        ("qpl-auto.verified-to-32KiB", Box::new(open(Path::Auto, true, Huffman::Dynamic)?)),
    ];
    let mut bench = Bench::new("cargo run --release -p drivers --example qpl_software", 1);
    for bytes in [4 << 10, 64 << 10] {
        let sizes = Sizes::new(&SizeDist::Fixed { bytes: bytes as u64 }, Weighting::Calls)?;
        let values = Values::synthetic(PayloadClass::Html, sizes, bytes, 1);
        let block = |id| {
            let mut block = Vec::with_capacity(bytes);
            values.append_to(id, 0, &mut block);
            Bytes::from(block)
        };
        let blocks: Vec<Bytes> = (0..BLOCKS).map(block).collect();
        for (name, device) in &devices {
            measure(&mut bench, name, &**device, &blocks)?;
        }
    }
    bench.finish();
    Ok(())
}

fn measure(
    bench: &mut Bench,
    name: &str,
    device: &dyn Device,
    blocks: &[Bytes],
) -> Result<(), Box<dyn Error>> {
    let mut queue = device.open_queue(Waker::noop().clone())?;
    let pool = Pool::heap(ByteCount::mib(4));
    let (mut write_ns, mut read_ns, mut stream_bytes) = (Vec::new(), Vec::new(), 0);
    for pass in 0..=PASSES {
        if pass == 1 {
            // The previous pass filled caches and made contexts, so its times are dropped.
            (write_ns, read_ns, stream_bytes) = (Vec::new(), Vec::new(), 0);
        }
        for block in blocks {
            let original_bytes = block.len();
            let write = Task::Compress { dialect: Dialect::IAA, level: Level::Default };
            let (ns, stream) = run(&mut *queue, &pool, write, block.clone(), 2 * original_bytes)?;
            write_ns.push(ns);
            stream_bytes += stream.len();
            let read = Task::Decompress { dialect: Dialect::IAA, original_bytes };
            let (ns, back) = run(&mut *queue, &pool, read, stream, original_bytes)?;
            read_ns.push(ns);
            assert!(back == block, "something else came back");
        }
    }
    let all_bytes = PASSES * blocks.iter().map(Bytes::len).sum::<usize>();
    let [write_us, read_us] =
        [&mut write_ns, &mut read_ns].map(|times_ns| quantile(times_ns, 0.5) as f64 / 1e3);
    let rows = [("compress", "us"), ("decompress", "us"), ("ratio", "times")];
    let run = [write_us, read_us, all_bytes as f64 / stream_bytes as f64];
    bench.rows(&format!("{name}.{}", blocks[0].len()), rows, &[run]);
    Ok(())
}

/// Runs one job. Returns the time from its submission to its completion (ns) and its result.
fn run(
    queue: &mut dyn Queue,
    pool: &Pool,
    task: Task,
    input: Bytes,
    capacity: usize,
) -> Result<(u64, Bytes), Box<dyn Error>> {
    let job = Box::new(Job::new(task, Input::heap(input), pool.take(capacity)));
    let mut done = Vec::with_capacity(1);
    let start = Instant::now();
    queue.try_submit(job).map_err(|refused| format!("refused: {:?}", refused.reason))?;
    while queue.poll(&mut done) == 0 {}
    let ns = start.elapsed().as_nanos() as u64;
    let completion = done.pop().ok_or("polled nothing")?;
    match completion.outcome {
        Outcome::Done { output_bytes } => Ok((ns, completion.job.output.freeze(0..output_bytes))),
        other => Err(format!("{other:?}").into()),
    }
}

const BLOCKS: u64 = 64;
const PASSES: usize = 20;
