//! The contract suite: checks of what every [`Device`] must do. A test module of any crate applies the checks
//! to its device with [`crate::device_contract`]. The suite repeats a job after a transient fault that the
//! device reports, so it can check [`crate::Faulty`] too. A device need not detect silent corruption.

mod chains;
mod harness;
pub mod inflate;
mod kernels;
pub mod payload;

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::codec::{Codec, Dialect, Engine, Level};
use crate::engines::BUILT_IN;
use crate::job::{DeviceError, Outcome, Task};
use crate::queue::{Device, RefusedReason};
pub use chains::runs_chains_like_their_ops;
use harness::Harness;
pub use kernels::{
    gives_the_published_answers, keeps_nothing_of_another_tenants_job, refuses_tampered_ciphertext,
    runs_every_kernel_at_every_size, says_that_the_output_is_too_small,
};
use payload::Payload;

/// Expands to a module of tests that check the device against the contract. The expression must return an
/// `Arc<dyn Device>`.
#[macro_export]
macro_rules! device_contract {
    ($name:ident, $make:expr) => {
        $crate::device_contract!(@checks $name, $make,
            writes_what_every_engine_reads,
            reads_what_every_engine_writes,
            accepts_exactly_what_it_advertises,
            hands_back_the_job_that_a_full_queue_refuses,
            says_that_a_result_does_not_fit,
            reports_damaged_streams,
            survives_flipped_bits,
            survives_a_queue_dropped_with_jobs_in_flight,
            serves_many_threads_at_once,
            gives_the_published_answers,
            runs_every_kernel_at_every_size,
            refuses_tampered_ciphertext,
            says_that_the_output_is_too_small,
            keeps_nothing_of_another_tenants_job,
            runs_chains_like_their_ops,
        );
    };
    (@checks $name:ident, $make:expr, $($check:ident,)+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(#[test]
            fn $check() {
                let device: std::sync::Arc<dyn $crate::Device> = $make;
                $crate::contract::$check(device.as_ref());
            })+
        }
    };
}

/// Compresses data of every class, size and level in every advertised dialect. Each stream must keep within
/// its window, and both the device and this crate's engine of the codec must decompress it exactly.
pub fn writes_what_every_engine_reads(device: &dyn Device) {
    let mut harness = Harness::open(device);
    let mut engines = references();
    for dialect in &device.capabilities().writes {
        let engine = engines.get_mut(&dialect.codec).expect("a reference engine per codec");
        for (class, level, bytes) in cases() {
            let original = Bytes::from(class.bytes(bytes, bytes as u64));
            let task = Task::Compress { dialect: *dialect, level };
            let stream = harness.run_ok(&task, &original, bound(bytes));
            let mut read = vec![0; bytes];
            let outcome = engine.decompress(&stream, &mut read);
            assert_eq!(outcome, Ok(()), "{dialect:?} {class:?} {level:?} {bytes}");
            assert!(read == original, "{dialect:?} {class:?} {level:?} {bytes} differs");
            check_window(*dialect, &stream, &original);
            let task = Task::Decompress { dialect: *dialect, original_bytes: bytes };
            if device.capabilities().accepts(&task, bytes) {
                assert!(harness.run_ok(&task, &stream, bytes) == original);
            }
        }
    }
}

/// Checks that the device decompresses the streams of this crate's engines exactly.
pub fn reads_what_every_engine_writes(device: &dyn Device) {
    let mut harness = Harness::open(device);
    let mut engines = references();
    for dialect in &device.capabilities().reads {
        let engine = engines.get_mut(&dialect.codec).expect("a reference engine per codec");
        for (class, level, bytes) in cases() {
            if !engine.writes(*dialect, bytes) {
                continue;
            }
            let original = Bytes::from(class.bytes(bytes, !(bytes as u64)));
            let mut stream = vec![0; bound(bytes)];
            let written = engine.compress(*dialect, level, &original, &mut stream);
            stream.truncate(written.expect("ample room"));
            let task = Task::Decompress { dialect: *dialect, original_bytes: bytes };
            let read = harness.run_ok(&task, &Bytes::from(stream), bytes);
            assert!(read == original, "{dialect:?} {class:?} {level:?} {bytes} differs");
        }
    }
}

/// Checks that the device accepts the jobs within its capabilities and refuses all others as unsupported.
pub fn accepts_exactly_what_it_advertises(device: &dyn Device) {
    let mut harness = Harness::open(device);
    let capabilities = device.capabilities();
    let windows = [None, Some(0), Some(8), Some(9), Some(10), Some(12), Some(15), Some(u8::MAX)];
    let over = capabilities.work_bytes_max.as_usize().saturating_add(1);
    for codec in Codec::ALL {
        for dialect in windows.map(|window_log2| Dialect { codec, window_log2 }) {
            for bytes in [1, 256, 4_096, 4_097, 40_000] {
                let input = Bytes::from(Payload::Text.bytes(bytes, 1));
                let task = Task::Compress { dialect, level: Level::Fast };
                check_accepted(&mut harness, device, &task, input, bytes);
            }
            for original_bytes in [1, 4_097, over] {
                let task = Task::Decompress { dialect, original_bytes };
                let input = Bytes::from_static(b"whatever");
                check_accepted(&mut harness, device, &task, input, original_bytes);
            }
        }
    }
    for task in kernels::every_kernel() {
        for bytes in [0, 1, 40_000, over.min(2 << 20)] {
            check_accepted(&mut harness, device, &task, Bytes::from(vec![0; bytes]), bytes);
        }
    }
}

fn check_accepted(
    harness: &mut Harness,
    device: &dyn Device,
    task: &Task,
    input: Bytes,
    work_bytes: usize,
) {
    let accepted = device.capabilities().accepts(task, work_bytes);
    let capacity = bound(work_bytes).min(1 << 20);
    for _ in 0..16 {
        let job = harness.job(task, input.clone(), capacity);
        let reason = harness.submit(job).err().map(|(_, reason)| reason);
        harness.drain();
        match reason {
            Some(RefusedReason::Full) if accepted => continue,
            None => assert!(accepted, "{task:?} is not advertised and was accepted"),
            Some(reason) => {
                assert_eq!(reason, RefusedReason::Unsupported, "{task:?}");
                assert!(!accepted, "{task:?} is advertised and was refused");
            }
        }
        return;
    }
    panic!("{task:?} found an empty queue full again and again");
}

/// Checks that a queue accepts no more jobs than its depth, returns further jobs at once, and accepts jobs again
/// after a poll.
pub fn hands_back_the_job_that_a_full_queue_refuses(device: &dyn Device) {
    let mut harness = Harness::open(device);
    let task = any_task(device);
    let input = Bytes::from(Payload::Text.bytes(2_000, 2));
    let depth = device.capabilities().queue_depth;
    for _ in 0..3 {
        let (mut taken, mut refused) = (0, 0);
        while refused < 100 {
            let job = harness.job(&task, input.clone(), 4_000);
            match harness.submit(job) {
                Ok(()) => taken += 1,
                Err((_, reason)) => {
                    assert_eq!(reason, RefusedReason::Full);
                    refused += 1;
                }
            }
            assert!(taken <= depth, "{taken} jobs in a queue of {depth}");
        }
        assert!(taken > 0, "a drained queue takes a job");
        assert_eq!(harness.drain().len(), taken);
    }
}

/// Checks that incompressible data in a small output buffer gives [`Outcome::DoesNotFit`] and no error.
pub fn says_that_a_result_does_not_fit(device: &dyn Device) {
    let mut harness = Harness::open(device);
    for dialect in &device.capabilities().writes {
        for level in LEVELS {
            for (bytes, capacity) in [(2_000, 0), (2_000, 500), (4_096, 1_500), (300_000, 150_000)]
            {
                let input = Bytes::from(Payload::Random.bytes(bytes, 3));
                let task = Task::Compress { dialect: *dialect, level };
                let (outcome, _) = harness.run(&task, &input, capacity);
                assert_eq!(outcome, Outcome::DoesNotFit, "{task:?} {bytes} in {capacity}");
            }
            let input = Bytes::from(Payload::Text.bytes(4_096, 3));
            harness.run_ok(&Task::Compress { dialect: *dialect, level }, &input, bound(4_096));
        }
    }
}

/// Checks that truncated streams and wrong sizes give [`DeviceError::InvalidInput`].
pub fn reports_damaged_streams(device: &dyn Device) {
    let mut harness = Harness::open(device);
    for (dialect, original, stream) in streams(device) {
        let read = |original_bytes| Task::Decompress { dialect, original_bytes };
        let bytes = original.len();
        for wrong in [bytes - 1, bytes + 1, bytes / 2, bytes * 2, 0] {
            expect_invalid(harness.run(&read(wrong), &stream, wrong).0, wrong);
        }
        let step = (stream.len() / 97).max(1);
        for kept in (0..stream.len()).step_by(step).chain([stream.len() - 1]) {
            let outcome = harness.run(&read(bytes), &stream.slice(..kept), bytes).0;
            expect_invalid(outcome, kept);
        }
        // A reader that cannot detect bytes after the end of a stream may ignore them. Any other outcome must be an
        // error.
        let longer = Bytes::from([&stream[..], b"trailing"].concat());
        let (outcome, job) = harness.run(&read(bytes), &longer, bytes);
        match outcome {
            Outcome::Done { output_bytes } => {
                assert!(job.output[job.output_offset..] == original && output_bytes == bytes);
            }
            other => expect_invalid(other, bytes),
        }
        assert!(harness.run_ok(&read(bytes), &stream, bytes) == original, "reads on after errors");
    }
}

fn expect_invalid(outcome: Outcome, at: usize) {
    let invalid = matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_)));
    assert!(invalid, "{outcome:?} at {at}");
}

/// Checks that damaged and random streams give a result or [`DeviceError::InvalidInput`]. The device must not
/// panic or write outside of the buffer.
pub fn survives_flipped_bits(device: &dyn Device) {
    let mut harness = Harness::open(device);
    for (dialect, original, stream) in streams(device) {
        let task = Task::Decompress { dialect, original_bytes: original.len() };
        let bits = stream.len() * 8;
        for bit in (0..bits.min(600)).chain((600..bits).step_by((bits / 300).max(1))) {
            let mut flipped = stream.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (outcome, _) = harness.run(&task, &Bytes::from(flipped), original.len());
            if !matches!(outcome, Outcome::Done { .. }) {
                expect_invalid(outcome, bit);
            }
        }
        for seed in 0..200 {
            let garbage = Bytes::from(Payload::Random.bytes(1 + seed as usize * 3, seed));
            let (outcome, _) = harness.run(&task, &garbage, original.len());
            if !matches!(outcome, Outcome::Done { .. }) {
                expect_invalid(outcome, seed as usize);
            }
        }
    }
}

/// Checks that the buffers of a dropped queue's jobs return to the pool once the device releases them, and
/// that the device continues to work.
pub fn survives_a_queue_dropped_with_jobs_in_flight(device: &dyn Device) {
    let task = any_task(device);
    let input = Bytes::from(Payload::Text.bytes(100_000, 4));
    for _ in 0..5 {
        let mut harness = Harness::open(device);
        let pool = harness.pool().clone();
        for _ in 0..device.capabilities().queue_depth.min(8) {
            let job = harness.job(&task, input.clone(), bound(input.len()));
            // A refused job is dropped here, which returns its buffers at once.
            drop(harness.submit(job));
        }
        drop(harness);
        let give_up = Instant::now() + Duration::from_secs(60);
        while pool.outstanding().0 > 0 {
            assert!(Instant::now() < give_up, "{} still out", pool.outstanding());
            thread::sleep(Duration::from_millis(1));
        }
    }
    Harness::open(device).run_ok(&task, &input, bound(input.len()));
}

/// Checks that each thread gets its own jobs back, with the right results.
pub fn serves_many_threads_at_once(device: &dyn Device) {
    thread::scope(|scope| {
        for seed in 0..THREADS {
            scope.spawn(move || {
                let mut harness = Harness::open(device);
                for round in 0..40 {
                    let class = Payload::ALL[round % Payload::ALL.len()];
                    let bytes = 200 + 613 * round;
                    serve_batch(&mut harness, device, class.bytes(bytes, seed).into());
                }
            });
        }
    });
}

/// Runs a batch with all dialects and kernels, so that several jobs are in flight at the same time.
fn serve_batch(harness: &mut Harness, device: &dyn Device, original: Bytes) {
    let mut waiting = kernels::tasks(device, original.len());
    let dialects = device.capabilities().writes.iter();
    waiting
        .extend(dialects.map(|dialect| Task::Compress { dialect: *dialect, level: Level::Fast }));
    let mut in_flight = 0;
    while !waiting.is_empty() || in_flight > 0 {
        while let Some(task) = waiting.pop() {
            let job = harness.job(&task, original.clone(), bound(original.len()));
            if harness.submit(job).is_err() {
                waiting.push(task);
                break;
            }
            in_flight += 1;
        }
        for completion in harness.drain() {
            in_flight -= 1;
            let task = completion.job.task;
            let Outcome::Done { output_bytes } = completion.outcome else {
                let fault = matches!(completion.outcome, Outcome::Failed(DeviceError::Fault(_)));
                assert!(fault, "{:?}", completion.outcome);
                waiting.push(task);
                continue;
            };
            let start = completion.job.output_offset;
            let result = completion.job.output.freeze(start..start + output_bytes);
            match task.dialect() {
                Some(dialect) => check_stream(dialect, &result, &original),
                None => kernels::check(&task, &original, &result),
            }
        }
    }
}

fn check_stream(dialect: Dialect, stream: &[u8], original: &[u8]) {
    let mut engines = references();
    let engine = engines.get_mut(&dialect.codec).expect("a reference engine per codec");
    let mut read = vec![0; original.len()];
    assert_eq!(engine.decompress(stream, &mut read), Ok(()));
    assert!(read == original, "{dialect:?} differs");
}

/// Returns any task that the device accepts.
fn any_task(device: &dyn Device) -> Task {
    let dialect = device.capabilities().writes.first().copied();
    let compress = dialect.map(|dialect| Task::Compress { dialect, level: Level::Fast });
    let task = compress.or_else(|| kernels::tasks(device, 1).pop());
    task.expect("a device compresses or has a kernel")
}

/// Returns streams of this crate's engines for each dialect that the device reads, each with its original.
fn streams(device: &dyn Device) -> Vec<(Dialect, Bytes, Bytes)> {
    let mut engines = references();
    let mut streams = Vec::new();
    for dialect in &device.capabilities().reads {
        let engine = engines.get_mut(&dialect.codec).expect("a reference engine per codec");
        for (class, bytes) in
            [(Payload::Text, 700), (Payload::Text, 20_000), (Payload::Zeros, 9_000)]
        {
            if engine.writes(*dialect, bytes) {
                let original = class.bytes(bytes, 5);
                let mut stream = vec![0; bound(bytes)];
                let written = engine.compress(*dialect, Level::Default, &original, &mut stream);
                stream.truncate(written.expect("ample room"));
                streams.push((*dialect, original.into(), stream.into()));
            }
        }
    }
    streams
}

/// Checks that a deflate stream keeps to the window that its dialect promises.
fn check_window(dialect: Dialect, stream: &[u8], original: &[u8]) {
    if let (Codec::Deflate, Some(window)) = (dialect.codec, dialect.window_log2) {
        let inflated = inflate::inflate(stream, original.len()).expect("a valid deflate stream");
        assert!(inflated.bytes == original, "the strict reader sees something else");
        let reach = inflated.reach_bytes;
        assert!(reach <= 1 << window, "a match reaches {reach} bytes back, window {window}");
    }
}

fn references() -> HashMap<Codec, Box<dyn Engine>> {
    BUILT_IN.iter().map(|make| make()).map(|engine| (engine.codec(), engine)).collect()
}

/// Returns every class and size at the default level. Adds the other levels where the test is quick.
fn cases() -> impl Iterator<Item = (Payload, Level, usize)> {
    Payload::ALL.into_iter().flat_map(|class| {
        SIZES.into_iter().flat_map(move |bytes| {
            let levels = LEVELS.into_iter().filter(move |level| {
                *level == Level::Default || bytes <= 65_536 || class == Payload::Text
            });
            levels.map(move |level| (class, level, bytes))
        })
    })
}

/// Returns an upper bound on the output of any codec for an input of `bytes` (bytes).
fn bound(bytes: usize) -> usize {
    bytes.saturating_add(bytes / 8).saturating_add(1_024)
}

const LEVELS: [Level; 3] = [Level::Fast, Level::Default, Level::High];

/// Sizes on both sides of the limits that codecs have (windows, block and table sizes) and of this crate's limits.
const SIZES: [usize; 16] = [
    1,
    2,
    3,
    7,
    64,
    255,
    1_000,
    4_095,
    4_096,
    4_097,
    16_384,
    32_769,
    65_535,
    65_536,
    300_000,
    1 << 20,
];

/// The number of threads that run at the same time. It exceeds the cores of a small machine.
const THREADS: u64 = 4;

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::Arc;

    use super::*;
    use crate::{FaultPlan, Faulty, Software, Worker};

    fn worker() -> Worker {
        let count = |count| NonZeroUsize::new(count).expect("not zero");
        Worker::start(count(2), count(16), &BUILT_IN).expect("two threads")
    }

    fn plan() -> FaultPlan {
        FaultPlan {
            seed: 9,
            fail_every: 5,
            refuse_every: 7,
            delay_polls: 2,
            ..FaultPlan::default()
        }
    }

    device_contract!(software, Arc::new(Software::default()));
    device_contract!(worker_threads, Arc::new(worker()));
    device_contract!(faulty_software, Arc::new(Faulty::new(Arc::new(Software::default()), plan())));
    device_contract!(faulty_worker, Arc::new(Faulty::new(Arc::new(worker()), plan())));
}
