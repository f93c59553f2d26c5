//! One round trip of every kind of job that a device does. Its results are compared with the input and with software's
//! results. The jobs go directly to the device's queue, so no other path can run them.

use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::cipher::{AssociatedData, KEY_BYTES, Key, NONCE_BYTES, Nonce};
use device::{
    Capabilities, Completion, Device, DeviceError, Dialect, Function, FunctionKind, Input, Job,
    Kernel, Level, Outcome, Polynomial, Pool, Queue, Refused, RefusedReason, Task,
};
use serde::Serialize;
use units::ByteCount;

use super::Problem;
use super::timeout::Timeout;

/// The jobs that a device did, all with correct results.
#[derive(Clone, Debug)]
pub struct Trip {
    /// The size of the input in bytes: the size of the sample, or the device's maximum if that is smaller.
    pub bytes: usize,
    /// The round trips, one for each codec of the device.
    pub codecs: Vec<CodecTrip>,
    /// The names of the kernels.
    pub kernels: Vec<&'static str>,
}

/// A round trip in one codec. A time is none if the device lacks the direction and software ran the job instead.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CodecTrip {
    /// The name of the codec.
    pub codec: &'static str,
    /// The size of the stream in bytes.
    pub compressed_bytes: usize,
    /// The time of the compression from submission to completion (us).
    pub compress_us: Option<u64>,
    /// The time of the decompression from submission to completion (us).
    pub decompress_us: Option<u64>,
}

/// Runs every kind of job that the device claims to do, with as much of the sample as it accepts. `software` reads
/// every result back or computes it again. The test waits for each job at most for `timeout`.
///
/// # Errors
/// The first job that the device does not do correctly.
pub fn round_trip(
    device: &dyn Device,
    software: &dyn Device,
    sample: &Bytes,
    timeout: Duration,
) -> Result<Trip, Problem> {
    let can = device.capabilities();
    let input = fitting(can, sample);
    let mut tested = Line::open(device, timeout)?;
    let mut oracle = Line::open(software, timeout)?;
    let mut codecs: Vec<CodecTrip> = Vec::new();
    for dialect in can.writes.iter().chain(&can.reads) {
        if codecs.iter().all(|trip| trip.codec != dialect.codec.name()) {
            codecs.push(codec_trip(can, &mut tested, &mut oracle, *dialect, &input)?);
        }
    }
    // Nobody else has a key that is made here. The first results in service are read back.
    let is_tested = |kernel: &&Kernel| **kernel != Kernel::AesGcm || !device.needs_named_keys();
    let mut kernels = Vec::new();
    for kernel in can.kernels.iter().filter(is_tested) {
        kernel_trip(&mut tested, &mut oracle, *kernel, &input)?;
        kernels.push(kernel.name());
    }
    Ok(Trip { bytes: input.len(), codecs, kernels })
}

/// Returns as much of the sample as a device accepts.
pub(super) fn fitting(can: &Capabilities, sample: &Bytes) -> Bytes {
    let capacity = can.work_bytes_max.as_usize().saturating_sub(TAG_SPACE_BYTES);
    sample.slice(..capacity.min(sample.len()))
}

fn codec_trip(
    can: &Capabilities,
    tested: &mut Line,
    oracle: &mut Line,
    dialect: Dialect,
    input: &Bytes,
) -> Result<CodecTrip, Problem> {
    let codec = dialect.codec.name();
    let compress = Task::Compress { dialect, level: Level::Default };
    let decompress = Task::Decompress { dialect, original_bytes: input.len() };
    let does = |task| can.accepts(task, input.len());
    let writer = if does(&compress) { &mut *tested } else { &mut *oracle };
    let (stream, compress_us) = writer.run(compress.clone(), input.clone())?;
    // Software makes no errors: if it cannot read a stream that the device wrote, the device is at fault.
    let read = oracle.run(decompress.clone(), stream.clone());
    let read = read.map_err(|error| match does(&compress) {
        true => wrong("compress", codec, error.to_string()),
        false => error,
    });
    right(&read?.0, input, "compress", codec)?;
    let mut decompress_us = None;
    if does(&decompress) {
        let (read, us) =
            tested.run(decompress.clone(), stream.clone()).map_err(|error| match error {
                // Software read the stream, so the device is wrong.
                Problem::Failed { error: DeviceError::InvalidInput(why), .. } => {
                    wrong("decompress", codec, why.to_owned())
                }
                error => error,
            })?;
        right(&read, input, "decompress", codec)?;
        decompress_us = Some(us);
    }
    Ok(CodecTrip {
        codec,
        compressed_bytes: stream.len(),
        compress_us: does(&compress).then_some(compress_us),
        decompress_us,
    })
}

fn kernel_trip(
    tested: &mut Line,
    oracle: &mut Line,
    kernel: Kernel,
    input: &Bytes,
) -> Result<(), Problem> {
    let task = task_of(kernel);
    let (got, _) = tested.run(task.clone(), input.clone())?;
    let (expected, _) = oracle.run(task.clone(), input.clone())?;
    right(&got, &expected, "compute", kernel.name())?;
    if let Task::Encrypt { key, nonce, associated } = task {
        let (plain, _) = tested.run(Task::Decrypt { key, nonce, associated }, got)?;
        right(&plain, input, "undo", kernel.name())?;
    }
    Ok(())
}

/// Returns a task for the kernel.
pub(super) fn task_of(kernel: Kernel) -> Task {
    match kernel {
        Kernel::AesGcm => Task::Encrypt {
            key: Key::new(&[7; KEY_BYTES]),
            nonce: Nonce([7; NONCE_BYTES]),
            associated: AssociatedData::from(&[7; 20][..]),
        },
        Kernel::Crc32c => Task::Checksum { polynomial: Polynomial::Crc32c },
        Kernel::Crc64 => Task::Checksum { polynomial: Polynomial::Crc64 },
        Kernel::Copy => Task::Copy,
        Kernel::Serialize => wrapped(FunctionKind::Serialize),
        Kernel::Deserialize => wrapped(FunctionKind::Deserialize),
        Kernel::Rpc => wrapped(FunctionKind::Rpc),
        Kernel::LoadBalance => wrapped(FunctionKind::LoadBalance),
    }
}

/// Returns a function of this kind, which gives the length and the bytes.
fn wrapped(kind: FunctionKind) -> Task {
    Task::Function(Function::new(kind, |input| {
        let length = (input.len() as u64).to_le_bytes();
        Ok([&length[..], input].concat().into())
    }))
}

fn right(
    got: &[u8],
    expected: &[u8],
    what: &'static str,
    how: &'static str,
) -> Result<(), Problem> {
    match got == expected {
        true => Ok(()),
        false => Err(wrong(what, how, "something else comes out".to_owned())),
    }
}

fn wrong(what: &'static str, how: &'static str, why: String) -> Problem {
    Problem::Wrong { what, how, why }
}

/// A queue of a device, and the pool for its results.
pub(super) struct Line {
    queue: Box<dyn Queue>,
    pool: Pool,
    timeout: Duration,
    left: Timeout,
}

impl Line {
    pub(super) fn open(device: &dyn Device, timeout: Duration) -> Result<Self, Problem> {
        let queue = device.open_queue(Waker::noop().clone()).map_err(Problem::Open)?;
        let left = Timeout::new(timeout);
        Ok(Self { queue, pool: Pool::heap(ByteCount(0)), timeout, left })
    }

    /// Runs one job to its end, and returns its result and its time (us).
    pub(super) fn run(&mut self, task: Task, input: Bytes) -> Result<(Bytes, u64), Problem> {
        let op = task.op().name();
        let mut job = job(&self.pool, task, input);
        self.left.restart();
        loop {
            let start = Instant::now();
            let over = self.left.is_over();
            job = match self.queue.try_submit(job) {
                // Another process may fill a shared queue for a while.
                Err(Refused { job, reason: RefusedReason::Full }) if !over => job,
                Err(Refused { reason, .. }) => return Err(Problem::Refused { op, reason }),
                Ok(()) => {
                    let late = Problem::Late { op, timeout: self.timeout };
                    let completion = self.finished().ok_or(late)?;
                    let us = start.elapsed().as_micros() as u64;
                    match completion.outcome {
                        Outcome::Done { output_bytes } => {
                            return Ok((completion.job.output.freeze(0..output_bytes), us));
                        }
                        Outcome::DoesNotFit => return Err(Problem::DidNotShrink { op }),
                        Outcome::Failed(DeviceError::Busy) if !over => completion.job,
                        Outcome::Failed(error) => return Err(Problem::Failed { op, error }),
                    }
                }
            };
            self.left.pause();
        }
    }

    /// Returns the completion of the job in flight, or none if the job is not done in time.
    fn finished(&mut self) -> Option<Completion> {
        let mut done = Vec::new();
        loop {
            // A completion that arrived while this thread had no core arrived in time.
            let over = self.left.is_over();
            if self.queue.poll(&mut done) > 0 || over {
                return done.pop();
            }
            self.left.pause();
        }
    }
}

/// Creates a job with space for its result.
pub(super) fn job(pool: &Pool, task: Task, input: Bytes) -> Box<Job> {
    let capacity = task.output_bytes(input.len()).unwrap_or(2 * input.len() + TAG_SPACE_BYTES);
    let output = pool.take(capacity);
    Box::new(Job::new(task, Input::heap(input), output))
}

/// The space for an encryption's tag, and for the growth of a short input that does not compress (bytes).
const TAG_SPACE_BYTES: usize = 64;
