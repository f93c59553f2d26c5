//! The part that the tests of several drivers share: queues that wake the test's thread, jobs for them, waiting for
//! completions, and the software behind a service. It checks no driver.
#![allow(dead_code, reason = "each test target uses its part")]

use std::io::Write;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::{Codec, Completion, Device, Dialect, Input, Job, Level, Outcome, Pool, Queue, Task};
use units::ByteCount;

/// The longest wait in a test. It is long enough even on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A value that shrinks.
pub(crate) const TEXT: &[u8] =
    b"a rose is a rose is a rose is a rose is a rose is a rose is a rose";

/// Wakes the waiting thread.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Wakes the waiting task.
#[derive(Default)]
pub(crate) struct Signal(pub(crate) tokio::sync::Notify);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// Opens a queue that wakes this thread.
pub(crate) fn open(device: &dyn Device) -> Box<dyn Queue> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    device.open_queue(waker).expect("a queue opens, whether or not a service is there")
}

/// Returns a pool of the process's heap that retains nothing.
pub(crate) fn pool() -> Pool {
    Pool::heap(ByteCount(0))
}

/// Makes a job with `capacity` bytes of output space.
pub(crate) fn job(task: Task, input: Bytes, capacity: usize) -> Box<Job> {
    Box::new(Job::new(task, Input::heap(input), pool().take(capacity)))
}

/// Returns a job that compresses [`TEXT`] into memory of that pool.
pub(crate) fn compress(pool: &Pool) -> Box<Job> {
    let task = Task::Compress { dialect: Dialect::new(Codec::Lz4), level: Level::Fast };
    Box::new(Job::new(task, Input::heap(Bytes::from_static(TEXT)), pool.take(400)))
}

/// Returns a job that decompresses a stream into memory of that pool.
pub(crate) fn decompress(pool: &Pool, stream: Bytes, original_bytes: usize) -> Box<Job> {
    let task = Task::Decompress { dialect: Dialect::new(Codec::Lz4), original_bytes };
    Box::new(Job::new(task, Input::heap(stream), pool.take(original_bytes)))
}

/// Returns an upper bound on the output of any codec for an input of `bytes` (bytes).
pub(crate) fn bound(bytes: usize) -> usize {
    bytes + bytes / 8 + 1_024
}

/// Waits for wakes until `count` jobs have completed. If a wake is missed, the wait fails after [`TIMEOUT`].
pub(crate) fn wait(queue: &mut dyn Queue, count: usize) -> Vec<Completion> {
    let (mut done, start) = (Vec::new(), Instant::now());
    while done.len() < count {
        queue.poll(&mut done);
        assert!(start.elapsed() < TIMEOUT, "{} of {count} jobs came back", done.len());
        if done.len() < count {
            thread::park_timeout(TIMEOUT);
        }
    }
    done
}

/// Waits for `count` jobs and returns their outcomes.
pub(crate) fn outcomes(queue: &mut dyn Queue, count: usize) -> Vec<Outcome> {
    wait(queue, count).into_iter().map(|completion| completion.outcome).collect()
}

/// Runs one job to its end on an idle queue by polling.
pub(crate) fn run(queue: &mut dyn Queue, job: Box<Job>) -> Completion {
    queue.try_submit(job).expect("an idle queue takes a job that it advertises");
    let (mut done, start) = (Vec::new(), Instant::now());
    while queue.poll(&mut done) == 0 {
        assert!(start.elapsed() < TIMEOUT, "the job never came back");
        thread::yield_now();
    }
    done.pop().expect("polled")
}

/// Returns a job's result, or its outcome if it has no result.
pub(crate) fn result(completion: Completion) -> Result<Bytes, Outcome> {
    let start = completion.job.output_offset;
    match completion.outcome {
        Outcome::Done { output_bytes } => {
            Ok(completion.job.output.freeze(start..start + output_bytes))
        }
        other => Err(other),
    }
}

/// Reports on standard error which check is skipped and why. The test harness shows it there.
pub(crate) fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("standard error is open");
}
