//! Measures how much time the emulation of a virtual device takes on the calling core per job whose result is
//! remembered. The emulation hashes the input, looks it up, and copies the result.

use std::task::Waker;
use std::time::Instant;

use bytes::Bytes;
use device::contract::payload::Payload;
use device::engines::libdeflate;
use device::{
    Codec, Device, DeviceError, Dialect, Engine, EngineError, EngineFactory, Input, Job, Level,
    Outcome, Pool, Queue, Task, Virtual, VirtualOptions,
};
use units::ByteCount;
use workload::DeviceProfile;

fn main() {
    let profile = DeviceProfile::find("iaa").expect("compiled in");
    let factories: [EngineFactory; 1] = [|| Box::new(Unwindowed(libdeflate::engine()))];
    let device = Virtual::new(&profile, &factories, VirtualOptions::default());
    let device = device.expect("a writer and a reader");
    let mut queue = device.open_queue(Waker::noop().clone()).expect("a healthy device");
    for bytes in [4 << 10, 64 << 10] {
        let originals: Vec<Bytes> =
            (0..VALUES).map(|seed| Payload::Text.bytes(bytes, seed).into()).collect();
        let dialect = Dialect::IAA;
        let compress = Task::Compress { dialect, level: Level::Fast };
        let decompress = Task::Decompress { dialect, original_bytes: bytes };
        let mut streams = Vec::new();
        round(&mut *queue, &compress, &originals, Some(&mut streams));
        for (name, task, inputs) in
            [("compress", &compress, &originals), ("decompress", &decompress, &streams)]
        {
            let before = device.counters();
            let start = Instant::now();
            for _ in 0..ROUNDS {
                round(&mut *queue, task, inputs, None);
            }
            let wall_ns = start.elapsed().as_nanos() as u64;
            let spent = device.counters().since(before);
            println!(
                "{name} {bytes} B: host {} ns a job, {} ns beyond the submission; one after \
                 another {} ns a job; late {}, computed {}",
                spent.host_ns / spent.jobs,
                spent.host_excess_ns / spent.jobs,
                wall_ns / spent.jobs,
                spent.late,
                spent.computed,
            );
        }
    }
}

/// Runs the task on the inputs one after another.
fn round(queue: &mut dyn Queue, task: &Task, inputs: &[Bytes], mut out: Option<&mut Vec<Bytes>>) {
    let pool = Pool::heap(ByteCount::mib(8));
    let mut done = Vec::new();
    for input in inputs {
        let capacity = task.output_bytes(input.len()).unwrap_or(input.len() + 1_024);
        let output = pool.take(capacity);
        let job = Job::new(task.clone(), Input::heap(input.clone()), output);
        queue.try_submit(Box::new(job)).expect("room for one");
        while queue.poll(&mut done) == 0 {
            std::hint::spin_loop();
        }
        let completion = done.pop().expect("one was inside");
        let Outcome::Done { output_bytes } = completion.outcome else {
            panic!("{:?}", completion.outcome);
        };
        if let Some(streams) = out.as_deref_mut() {
            streams.push(completion.job.output.freeze(0..output_bytes));
        }
    }
}

/// An engine that writes with a window of 32 KiB whatever window is requested. It measures the cost of a stream whose
/// size is about right.
struct Unwindowed(Box<dyn Engine>);

impl Engine for Unwindowed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn codec(&self) -> Codec {
        self.0.codec()
    }

    fn writes(&self, _: Dialect, _: usize) -> bool {
        true
    }

    fn compress(
        &mut self,
        _: Dialect,
        level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        self.0.compress(Dialect::new(Codec::Deflate), level, input, output)
    }

    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        self.0.decompress(input, output)
    }
}

/// The number of values. At the larger size, they exceed the caches of a core.
const VALUES: u64 = 500;
const ROUNDS: usize = 4;
