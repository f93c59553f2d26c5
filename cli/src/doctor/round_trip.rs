//! One round trip of every kind of job that a device does, its results compared with what went in and with what
//! software makes of them. Jobs go to the device's own queue, so that the path that ran is the device's or none.

use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::cipher::{KEY_BYTES, Key, NONCE_BYTES, Nonce};
use device::{
    Completion, Device, DeviceError, Dialect, Input, Job, Kernel, Level, Outcome, Polynomial, Pool,
    Queue, Refused, RefusedReason, Software, Task,
};
use serde::Serialize;
use units::ByteCount;

use super::finding::{Finding, Severity};
use crate::devices::{ENGINES, sample};

/// What a device did.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RoundTrip {
    pub(super) device: String,
    /// Size of the input (bytes).
    pub(super) bytes: usize,
    pub(super) codecs: Vec<CodecTrip>,
    /// Kernels whose results were right.
    pub(super) kernels: Vec<&'static str>,
    /// What the device counted meanwhile, zeroes left out: which path ran inside of it.
    pub(super) counted: Vec<(&'static str, u64)>,
}

/// There and back in one codec; a time is none where the device has no such direction and software stood in.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CodecTrip {
    pub(super) codec: &'static str,
    pub(super) compressed_bytes: usize,
    pub(super) compress_us: Option<u64>,
    pub(super) decompress_us: Option<u64>,
}

/// What the round trip came to, and the trip itself if it was made; `severity` is how bad a failure is.
pub(super) fn finding(device: &dyn Device, severity: Severity) -> (Finding, Option<RoundTrip>) {
    let name = device.name();
    match round_trip(device) {
        Ok(trip) => (Finding::new(Severity::Ok, name, trip.told()), Some(trip)),
        Err(problem) => (Finding::new(severity, name, problem), None),
    }
}

impl RoundTrip {
    fn told(&self) -> String {
        let us = |time: Option<u64>| time.map_or("software".to_owned(), |us| format!("{us} us"));
        let codec = |own: &CodecTrip| {
            let (there, back) = (us(own.compress_us), us(own.decompress_us));
            format!("{} to {} B ({there}, back {back})", own.codec, own.compressed_bytes)
        };
        let mut parts: Vec<String> = self.codecs.iter().map(codec).collect();
        parts.extend((!self.kernels.is_empty()).then(|| self.kernels.join(", ")));
        let counted = self.counted.iter().map(|(name, count)| format!("{name} {count}"));
        parts.extend(counted);
        format!("{} of HTML: {}", ByteCount(self.bytes as u64), parts.join("; "))
    }
}

fn round_trip(device: &dyn Device) -> Result<RoundTrip, String> {
    let can = device.capabilities();
    let before = device.counters();
    let bytes = can.work_bytes_max.as_usize().saturating_sub(ROOM_FOR_TAG).min(SAMPLE_BYTES);
    let input = Bytes::from(sample(bytes)?);
    let mut own = Line::open(device)?;
    let software = Software::new(ENGINES);
    let mut oracle = Line::open(&software)?;
    let mut codecs: Vec<CodecTrip> = Vec::new();
    for dialect in can.writes.iter().chain(&can.reads) {
        if codecs.iter().all(|trip| trip.codec != dialect.codec.name()) {
            codecs.push(codec_trip(device, &mut own, &mut oracle, *dialect, &input)?);
        }
    }
    for kernel in &can.kernels {
        kernel_trip(&mut own, &mut oracle, *kernel, &input)?;
    }
    let after = device.counters().into_iter().map(|(name, count)| {
        let earlier = before.iter().find(|own| own.0 == name).map_or(0, |own| own.1);
        (name, count.saturating_sub(earlier))
    });
    Ok(RoundTrip {
        device: device.name().to_owned(),
        bytes,
        codecs,
        kernels: can.kernels.iter().map(|kernel| kernel.name()).collect(),
        counted: after.filter(|own| own.1 > 0).collect(),
    })
}

fn codec_trip(
    device: &dyn Device,
    own: &mut Line,
    oracle: &mut Line,
    dialect: Dialect,
    input: &Bytes,
) -> Result<CodecTrip, String> {
    let can = device.capabilities();
    let compress = Task::Compress { dialect, level: Level::Default };
    let decompress = Task::Decompress { dialect, original_bytes: input.len() };
    let does = |task| can.accepts(task, input.len());
    let writer = if does(&compress) { &mut *own } else { &mut *oracle };
    let (stream, compress_us) = writer.run(compress.clone(), input.clone())?;
    // Software has no faults of its own: what it cannot read is the device's doing, if the device wrote it.
    let read = oracle.run(decompress.clone(), stream.clone());
    let read = read.map_err(|error| match does(&compress) {
        true => wrong("compress", dialect.codec.name(), &error),
        false => error,
    });
    right(&read?.0, input, "compress", dialect.codec.name())?;
    let mut decompress_us = None;
    if does(&decompress) {
        let (read, us) = own.run(decompress.clone(), stream.clone())?;
        right(&read, input, "decompress", dialect.codec.name())?;
        decompress_us = Some(us);
    }
    Ok(CodecTrip {
        codec: dialect.codec.name(),
        compressed_bytes: stream.len(),
        compress_us: does(&compress).then_some(compress_us),
        decompress_us,
    })
}

fn kernel_trip(
    own: &mut Line,
    oracle: &mut Line,
    kernel: Kernel,
    input: &Bytes,
) -> Result<(), String> {
    let (key, nonce) = (Key::new(&[7; KEY_BYTES]), Nonce([7; NONCE_BYTES]));
    let task = match kernel {
        Kernel::AesGcm => Task::Encrypt { key: key.clone(), nonce },
        Kernel::Crc32c => Task::Checksum { polynomial: Polynomial::Crc32c },
        Kernel::Crc64 => Task::Checksum { polynomial: Polynomial::Crc64 },
        Kernel::Copy => Task::Copy,
    };
    let (got, _) = own.run(task.clone(), input.clone())?;
    let (expected, _) = oracle.run(task, input.clone())?;
    right(&got, &expected, "compute", kernel.name())?;
    if kernel == Kernel::AesGcm {
        let (plain, _) = own.run(Task::Decrypt { key, nonce }, got)?;
        right(&plain, input, "undo", kernel.name())?;
    }
    Ok(())
}

fn right(got: &[u8], expected: &[u8], what: &str, how: &str) -> Result<(), String> {
    if got == expected {
        return Ok(());
    }
    Err(wrong(what, how, "something else comes out"))
}

fn wrong(what: &str, how: &str, why: &str) -> String {
    format!(
        "WRONG RESULT: it does not {what} {how} as software does ({why}). Take it out of use and \
         replace it; stored values are safe, since every one carries a checksum"
    )
}

/// A queue of a device and the pool for what comes out of it.
struct Line {
    queue: Box<dyn Queue>,
    pool: Pool,
}

impl Line {
    fn open(device: &dyn Device) -> Result<Self, String> {
        let queue = device.open_queue(Waker::noop().clone()).map_err(|error| error.to_string())?;
        Ok(Self { queue, pool: Pool::heap(ByteCount(0)) })
    }

    /// Runs one job to its end: its result and how long it took (us).
    fn run(&mut self, task: Task, input: Bytes) -> Result<(Bytes, u64), String> {
        let op = task.op().name();
        let room = task.output_bytes(input.len()).unwrap_or(2 * input.len() + ROOM_FOR_TAG);
        let output = self.pool.take(room);
        let mut job = Box::new(Job::new(task, Input::heap(input), output));
        let give_up = Instant::now() + PATIENCE;
        loop {
            let start = Instant::now();
            let over = start > give_up;
            job = match self.queue.try_submit(job) {
                // Another process may keep a shared queue full for a while.
                Err(Refused { job, reason: RefusedReason::Full }) if !over => job,
                Err(refused) => return Err(format!("{op}: refused ({:?})", refused.reason)),
                Ok(()) => {
                    let completion =
                        self.finished(give_up).map_err(|why| format!("{op}: {why}"))?;
                    let us = start.elapsed().as_micros() as u64;
                    match completion.outcome {
                        Outcome::Done { output_bytes } => {
                            return Ok((completion.job.output.freeze(0..output_bytes), us));
                        }
                        Outcome::DoesNotFit => return Err(format!("{op}: HTML did not shrink")),
                        Outcome::Failed(DeviceError::Busy) if !over => completion.job,
                        Outcome::Failed(error) => return Err(format!("{op}: {error}")),
                    }
                }
            };
            std::thread::yield_now();
        }
    }

    /// The one job that is inside.
    fn finished(&mut self, give_up: Instant) -> Result<Completion, String> {
        let mut done = Vec::new();
        while self.queue.poll(&mut done) == 0 {
            if Instant::now() > give_up {
                return Err(format!("no completion within {} s", PATIENCE.as_secs()));
            }
            std::thread::yield_now();
        }
        done.pop().ok_or_else(|| "no completion".to_owned())
    }
}

const SAMPLE_BYTES: usize = 64 << 10;

/// An encryption's tag, and what a compressed stream of little may be longer than it.
const ROOM_FOR_TAG: usize = 64;

const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use device::{FaultPlan, Faulty};

    use super::*;

    fn problem(plan: FaultPlan) -> Option<String> {
        round_trip(&Faulty::new(Arc::new(Software::new(ENGINES)), plan)).err()
    }

    #[test]
    fn a_damaged_stream_is_a_wrong_result_of_the_device_whether_it_can_be_read_or_not() {
        let of = |seed| problem(FaultPlan { seed, corrupt_every: 1, ..FaultPlan::default() });
        let problems: Vec<_> = (0..20).map(|seed| of(seed).expect("all is corrupt")).collect();
        let wrong = |problem: &String| problem.contains("WRONG RESULT");
        assert!(problems.iter().all(wrong), "{problems:#?}");
        let read = problems.iter().filter(|problem| problem.contains("something else comes out"));
        assert!(read.count() < problems.len(), "some are no streams at all");
    }

    #[test]
    fn a_queue_that_is_full_for_a_while_is_waited_for() {
        assert_eq!(problem(FaultPlan { refuse_every: 2, ..FaultPlan::default() }), None);
    }
}
