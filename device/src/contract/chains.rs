//! The contract of chains: a device that states a succession runs it, or gives the job back on the way. Either way the
//! result is that of the ops one by one. A device that states none returns a job with a chain after its first op.

use std::sync::Arc;

use bytes::Bytes;
use units::{ByteCount, Op};

use super::harness::Harness;
use super::payload::Payload;
use super::{bound, kernels};
use crate::buffer::{Buffer, Pool};
use crate::chain::{Chain, Follow, Next};
use crate::codec::{Codec, Dialect, Level};
use crate::job::{Job, Outcome, Task};
use crate::queue::{Device, Successions};
use crate::software::Software;

/// Runs this task on the result before it.
struct Then {
    task: Task,
    pool: Pool,
}

impl Follow for Then {
    fn op(&self) -> Op {
        self.task.op()
    }

    fn work_bytes(&self) -> usize {
        1_000
    }

    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        let filled = output.len();
        let bytes = self.task.output_bytes(filled - offset)?;
        Some(Next {
            task: self.task.clone(),
            input: (offset..filled).into(),
            output: self.pool.take(bytes),
            output_offset: 0,
            dictionary: None,
        })
    }
}

/// Checks that values which are compressed and encrypted in a chain come back in a chain, whatever the device runs of
/// it.
pub fn runs_chains_like_their_ops(device: &dyn Device) {
    let mut harness = Harness::open(device);
    let dialect = device.capabilities().writes.first().copied();
    let dialect = dialect.unwrap_or(Dialect::new(Codec::Deflate));
    let (encrypt, decrypt) = kernels::ciphers();
    for bytes in [1, 700, 4_096, 40_000] {
        let original = Bytes::from(Payload::Text.bytes(bytes, bytes as u64));
        let compress = Task::Compress { dialect, level: Level::Default };
        let sealed = run(&mut harness, device, [&compress, &encrypt], &original, bound(bytes));
        let decompress = Task::Decompress { dialect, original_bytes: bytes };
        let opened = run(&mut harness, device, [&decrypt, &decompress], &sealed, sealed.len());
        assert!(opened == original, "{bytes} bytes come back otherwise");
    }
}

/// Runs two tasks as a chain on the device, as far as it goes, and the rest in software.
fn run(
    harness: &mut Harness,
    device: &dyn Device,
    [first, second]: [&Task; 2],
    input: &Bytes,
    capacity: usize,
) -> Bytes {
    let pool = Pool::heap(ByteCount(0));
    let job = |harness: &mut Harness| {
        let mut job = harness.job(first, input.clone(), capacity);
        let then = Then { task: second.clone(), pool: pool.clone() };
        job.chain = Some(Chain::new(&job, vec![Arc::new(then)]));
        job
    };
    let mut done = None;
    while done.is_none() && device.capabilities().accepts(first, job(harness).work_bytes()) {
        let job = job(harness);
        if harness.submit(job).is_err() {
            continue;
        }
        let completion = harness.drain().pop().expect("drained until the job came back");
        if matches!(completion.outcome, Outcome::Done { .. }) {
            let is_whole = completion.job.task == *second;
            let none = device.successions() == Successions::None;
            assert!(!(is_whole && none), "a device ran a succession that it does not state");
            done = Some(completion);
        }
    }
    let mut job = match done {
        None => job(harness),
        Some(completion) => {
            let Outcome::Done { output_bytes } = completion.outcome else { unreachable!() };
            let mut job = completion.job;
            if !job.advance(output_bytes, completion.service, |_, _| true) {
                return result(job, output_bytes);
            }
            job
        }
    };
    let mut queue = Software::default().open_queue(std::task::Waker::noop().clone());
    let queue = queue.as_mut().expect("software opens");
    job.tag = 0;
    queue.try_submit(job).expect("software takes it");
    let mut finished = Vec::new();
    queue.poll(&mut finished);
    let completion = finished.pop().expect("software is inline");
    let Outcome::Done { output_bytes } = completion.outcome else {
        panic!("{:?}", completion.outcome)
    };
    result(completion.job, output_bytes)
}

fn result(job: Box<Job>, output_bytes: usize) -> Bytes {
    let start = job.output_offset;
    job.output.freeze(start..start + output_bytes)
}
