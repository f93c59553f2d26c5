//! Measures how long a reader works on stored values, without sockets and queues. `frame_read DIRECTORY` reads each
//! file as one frame of version 1, decompresses it on `Software` with the engines of the binary, and checks it. It
//! prints the times as JSON. `bench/get_64k.py` compares them with the time that a client waits.

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use device::{Device, Dialect, Input, Job, Outcome, Pool, Queue, Software, Task};
use harness::quantile;
use store::frame::{self, Encoding, Header, Inspected};
use units::{ByteCount, limits};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).ok_or("usage: frame_read DIRECTORY")?;
    let frames = frames(Path::new(&directory))?;
    let mut queue = Software::new(drivers::ENGINES).open_queue(std::task::Waker::noop().clone())?;
    let pool = Pool::heap(ByteCount(POOL_BYTES));
    let (mut decompress_ns, mut checksum_ns) = (Vec::new(), Vec::new());
    for pass in 0..=PASSES {
        if pass == 1 {
            // The previous pass made contexts and buffers, so its times are dropped.
            decompress_ns.clear();
            checksum_ns.clear();
        }
        for frame in &frames {
            let (service_ns, check_ns) = frame.read(&mut *queue, &pool)?;
            decompress_ns.push(service_ns);
            checksum_ns.push(check_ns);
        }
    }
    let stored: usize = frames.iter().map(|frame| frame.stored_bytes).sum();
    println!(
        "{{\"frames\": {}, \"codec\": \"{}\", \"stored_bytes_mean\": {}, \
         \"decompress_ns\": {}, \"checksum_ns\": {}}}",
        frames.len(),
        frames[0].header.encoding.name(),
        stored / frames.len(),
        times(&mut decompress_ns),
        times(&mut checksum_ns),
    );
    Ok(())
}

/// A stored value: the header and the payload of its frame.
struct Frame {
    header: Header,
    payload: Vec<u8>,
    stored_bytes: usize,
}

impl Frame {
    /// Decompresses and checks the value once. Returns the time of each step (ns).
    fn read(&self, queue: &mut dyn Queue, pool: &Pool) -> Result<(u64, u64), Box<dyn Error>> {
        let Encoding::Compressed(codec) = self.header.encoding else {
            return Err("a frame without a stream".into());
        };
        let dialect = Dialect::new(codec);
        let original_bytes = self.header.original_bytes as usize;
        let mut input = pool.take(self.payload.len());
        input.extend(&self.payload);
        let input = Input::pooled(input, 0..self.payload.len());
        let task = Task::Decompress { dialect, original_bytes };
        let job = Box::new(Job::new(task, input, pool.take(original_bytes)));
        queue.try_submit(job).map_err(|refused| format!("refused: {:?}", refused.reason))?;
        let mut done = Vec::new();
        queue.poll(&mut done);
        let completion = done.pop().ok_or("the software device completes inline")?;
        if !matches!(completion.outcome, Outcome::Done { .. }) {
            return Err(format!("not decompressed: {:?}", completion.outcome).into());
        }
        let start = Instant::now();
        let intact = self.header.verify(b"", &completion.job.output);
        let check_ns = u64::try_from(start.elapsed().as_nanos())?;
        if !intact {
            return Err("a checksum differs".into());
        }
        Ok((completion.service.0, check_ns))
    }
}

fn frames(directory: &Path) -> Result<Vec<Frame>, Box<dyn Error>> {
    let mut frames = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let stored = std::fs::read(&path)?;
        let found = frame::inspect(&stored, limits::ITEM_BYTES_MAX_HIGHEST.as_usize());
        let Inspected::Frame { header, payload } = found else {
            return Err(format!("{} is no frame: {found:?}", path.display()).into());
        };
        let payload = stored[payload].to_vec();
        frames.push(Frame { header, payload, stored_bytes: stored.len() });
    }
    if frames.is_empty() {
        return Err("no frames".into());
    }
    Ok(frames)
}

/// Returns the median and the mean as JSON.
fn times(times_ns: &mut [u64]) -> String {
    let mean = times_ns.iter().sum::<u64>() / times_ns.len() as u64;
    format!("{{\"p50\": {}, \"mean\": {mean}}}", quantile(times_ns, 0.5))
}

/// The number of measured passes over the frames. An unmeasured pass precedes them.
const PASSES: usize = 10;

/// The size of the pool (bytes). It is large enough that buffers are reused, as in a server.
const POOL_BYTES: u64 = 8 << 20;
