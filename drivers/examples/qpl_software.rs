//! Compares QPL's software path, both chosen and fallen back to, with this workspace's ISA-L engine. It prints the
//! median time of one compression and decompression of HTML and the ratio, with a window of 4 KiB. Run it with
//! `REBATE_QPL_LIBRARY=... cargo run --release -p drivers --example qpl_software`.

use std::error::Error;
use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use device::engines::libdeflate;
use device::{Device, Dialect, Input, Job, Level, Outcome, Pool, Queue, Software, Task};
use drivers::isal;
use drivers::qpl::{Huffman, Path, Qpl, QplOptions};
use units::ByteCount;
use workload::{PayloadClass, SizeDist, Sizes, Values, Weighting};

fn main() -> Result<(), Box<dyn Error>> {
    let open = |path, verify, huffman| {
        Qpl::open(path, &QplOptions { verify, huffman, ..QplOptions::default() })
    };
    let devices: [(&str, Box<dyn Device>); 5] = [
        ("isal", Box::new(Software::new(&[isal::engine, libdeflate::engine]))),
        ("qpl-software", Box::new(open(Path::Software, false, Huffman::Dynamic)?)),
        ("qpl-software, fixed code", Box::new(open(Path::Software, false, Huffman::Fixed)?)),
        ("qpl-auto, not verified", Box::new(open(Path::Auto, false, Huffman::Dynamic)?)),
        ("qpl-auto, verified up to 32 KiB", Box::new(open(Path::Auto, true, Huffman::Dynamic)?)),
    ];
    println!("| bytes | device | compress us | decompress us | ratio |");
    println!("|---|---|---|---|---|");
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
            measure(name, &**device, &blocks)?;
        }
    }
    Ok(())
}

fn measure(name: &str, device: &dyn Device, blocks: &[Bytes]) -> Result<(), Box<dyn Error>> {
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
    println!(
        "| {} | {name} | {:.1} | {:.1} | {:.2} |",
        blocks[0].len(),
        median_us(&mut write_ns),
        median_us(&mut read_ns),
        all_bytes as f64 / stream_bytes as f64,
    );
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

fn median_us(times_ns: &mut [u64]) -> f64 {
    times_ns.sort_unstable();
    times_ns[times_ns.len() / 2] as f64 / 1e3
}

const BLOCKS: u64 = 64;
const PASSES: usize = 20;
