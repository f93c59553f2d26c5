//! Checks DPDK's software compression drivers against the device contract. Also checks this driver's features: mbuf
//! chains, copies, queue pairs and detaching, and that starting DPDK leaves the process unchanged. The tests need no
//! hardware. If DPDK does not start, they report it on standard error and check nothing.

// These are the pure parts of the driver with their own tests. They are included here so that one test target has all
// tests and CI builds no second target.
#[allow(dead_code)]
#[path = "../src/dpdk/arguments.rs"]
mod arguments;
#[allow(dead_code)]
#[path = "../src/dpdk/names.rs"]
mod names;
#[allow(dead_code)]
#[path = "../src/dpdk/outcome.rs"]
mod outcome;
#[allow(dead_code)]
#[path = "../src/dpdk/windows.rs"]
mod windows;

mod support;

use std::ffi::{CStr, c_char, c_int};
use std::fs;
use std::io::Write;
use std::num::NonZeroU16;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use bytes::Bytes;
use device::contract::inflate::inflate;
use device::contract::payload::Payload;
use device::{
    Codec, Device, DeviceError, Dialect, Input, Job, Level, Outcome, Pool, Queue, Task,
    device_contract, engines,
};
use drivers::dpdk::Eal;
use drivers::{Dpdk, DpdkOptions};
use proptest::prelude::*;
use support::bound;
use units::ByteCount;

/// Opens a device, or ends the test that uses the macro if DPDK does not start.
macro_rules! opened {
    ($name:expr, $options:expr) => {
        match eal() {
            Some(eal) => Dpdk::open(eal, $name, $options).expect("the device opens"),
            None => return,
        }
    };
}

/// Opens a device like `opened`, with enough queues for all tests.
macro_rules! shared {
    ($name:expr, $registered_only:expr) => {
        opened!($name, DpdkOptions { registered_only: $registered_only, ..MANY })
    };
}

device_contract!(isal, Arc::new(shared!("compress_isal", false)));
device_contract!(zlib, Arc::new(shared!("compress_zlib", false)));
device_contract!(isal_with_copies, Arc::new(shared!("compress_isal", true)));

/// The options of a device with queues for as many threads as all tests may have at once.
const MANY: DpdkOptions = DpdkOptions { queue_pairs: NonZeroU16::new(96), registered_only: false };

const DEVICES: [&str; 3] = ["compress_isal", "compress_zlib", "compress_isal_few"];

/// Starts DPDK. If it does not start, reports that and returns none.
fn eal() -> Option<Eal> {
    static EAL: OnceLock<Option<Eal>> = OnceLock::new();
    *EAL.get_or_init(|| {
        let before = process();
        let started = Eal::start(&DEVICES.map(str::to_owned), &[]);
        match started {
            Ok(eal) => {
                assert_eq!(before, process(), "starting DPDK changed the process");
                Some(eal)
            }
            Err(error) => {
                // The message does not use a macro, because the test harness would capture it.
                let said = format!("\n==== SKIPPED: the DPDK tests check nothing here: {error}\n");
                std::io::stderr().write_all(said.as_bytes()).expect("standard error is open");
                assert!(std::env::var_os("REBATE_DPDK_REQUIRED").is_none(), "{error}");
                None
            }
        }
    })
}

/// Returns the state that starting DPDK must not change: signals, this thread's processors, and the locale.
fn process() -> (Vec<String>, String) {
    unsafe extern "C" {
        fn setlocale(category: c_int, locale: *const c_char) -> *const c_char;
    }
    const LC_ALL: c_int = 6;
    let status = fs::read_to_string("/proc/thread-self/status").expect("Linux");
    let kept = ["SigBlk:", "SigIgn:", "SigCgt:", "Cpus_allowed:"];
    let lines = status.lines().filter(|line| kept.iter().any(|name| line.starts_with(name)));
    // SAFETY: with null the call only reads. It returns a terminated text that lives until the next call. The tests
    // that run at the same time set no locale.
    let locale = unsafe { CStr::from_ptr(setlocale(LC_ALL, ptr::null())) };
    (lines.map(str::to_owned).collect(), locale.to_string_lossy().into_owned())
}

fn open(device: &Dpdk) -> Box<dyn Queue> {
    device.open_queue(Waker::noop().clone()).expect("a queue pair is left")
}

fn heap() -> Pool {
    Pool::heap(ByteCount::mib(1))
}

/// Runs one job to its end. Returns its outcome and its result.
fn run(queue: &mut dyn Queue, task: Task, input: &[u8], capacity: usize) -> (Outcome, Vec<u8>) {
    let mut output = heap().take(capacity);
    // A buffer of a pool has the size of its class, so the offset makes the output space exact.
    let output_offset = output.capacity() - capacity;
    output.space().fill(0x5A);
    let mut job = Job::new(task, Input::heap(Bytes::copy_from_slice(input)), output);
    job.output_offset = output_offset;
    let completion = support::run(queue, Box::new(job));
    let output = &completion.job.output;
    let result = match completion.outcome {
        Outcome::Done { output_bytes } => output[output_offset..][..output_bytes].to_vec(),
        _ => Vec::new(),
    };
    (completion.outcome, result)
}

fn compress(window_log2: Option<u8>, level: Level) -> Task {
    Task::Compress { dialect: Dialect { codec: Codec::Deflate, window_log2 }, level }
}

fn decompress(original_bytes: usize) -> Task {
    Task::Decompress { dialect: Dialect::new(Codec::Deflate), original_bytes }
}

/// Compresses `original` with the driver. Reads the stream with the driver and with two other readers.
fn round_trip(queue: &mut dyn Queue, original: &[u8], level: Level) {
    let bytes = original.len();
    let (outcome, stream) = run(queue, compress(None, level), original, bound(bytes));
    assert_eq!(outcome, Outcome::Done { output_bytes: stream.len() }, "{bytes} bytes");
    let mut read = vec![0; bytes];
    assert_eq!(engines::libdeflate::engine().decompress(&stream, &mut read), Ok(()), "{bytes}");
    assert!(read == original, "libdeflate reads something else");
    let inflated = inflate(&stream, bytes).expect("a valid stream");
    assert!(inflated.bytes == original, "the reference reads something else");
    let (outcome, read) = run(queue, decompress(bytes), &stream, bytes);
    assert_eq!(outcome, Outcome::Done { output_bytes: bytes });
    assert!(read == original, "{bytes} bytes differ");
}

#[test]
fn streams_cross_every_border_of_segments() {
    for name in ["compress_isal", "compress_zlib"] {
        let mut queue = open(&shared!(name, false));
        let borders = [59_999, 60_001, 65_534, 65_535, 65_536, 65_537, 119_999, 120_000, 120_001];
        for bytes in borders.into_iter().chain([180_000, 1_000_000, 4_200_000]) {
            for class in [Payload::Text, Payload::Random, Payload::FarRepeat] {
                round_trip(&mut *queue, &class.bytes(bytes, 1), Level::Default);
            }
        }
    }
}

#[test]
fn the_largest_job_fits_an_empty_queue() {
    let device = shared!("compress_isal", false);
    let mut queue = open(&device);
    let bytes = device.capabilities().work_bytes_max.as_usize();
    for class in [Payload::Numbers, Payload::Random] {
        round_trip(&mut *queue, &class.bytes(bytes, 1), Level::Fast);
    }
}

/// Checks truncated streams over several segments, where DPDK's readers most easily miss the end.
#[test]
fn a_long_stream_cut_anywhere_is_invalid_and_hangs_nothing() {
    for name in ["compress_isal", "compress_zlib"] {
        let mut queue = open(&shared!(name, false));
        for class in Payload::ALL {
            let original = class.bytes(200_000, 3);
            let mut stream = vec![0; bound(original.len())];
            let deflate = Dialect::new(Codec::Deflate);
            let mut engine = drivers::isal::engine();
            let written = engine.compress(deflate, Level::Default, &original, &mut stream);
            stream.truncate(written.expect("ample room"));
            let step = (stream.len() / 61).max(1);
            let tail = stream.len().saturating_sub(12)..stream.len();
            for kept in (0..stream.len()).step_by(step).chain(tail) {
                let task = decompress(original.len());
                let (outcome, _) = run(&mut *queue, task, &stream[..kept], original.len());
                let invalid = matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_)));
                assert!(invalid, "{name} {class:?} {kept} of {}: {outcome:?}", stream.len());
            }
            let longer = [&stream[..], b"and more"].concat();
            let (outcome, _) = run(&mut *queue, decompress(200_000), &longer, 200_000);
            assert!(matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_))));
        }
    }
}

#[test]
fn every_window_that_is_advertised_is_kept() {
    let device = shared!("compress_zlib", false);
    let mut queue = open(&device);
    assert!(device.capabilities().writes.contains(&Dialect::IAA));
    for window in 9..=15 {
        for class in [Payload::Text, Payload::FarRepeat] {
            let original = class.bytes(100_000, 1);
            let task = compress(Some(window), Level::Default);
            let (_, stream) = run(&mut *queue, task, &original, bound(original.len()));
            let inflated = inflate(&stream, original.len()).expect("a valid stream");
            assert!(inflated.bytes == original);
            assert!(inflated.reach_bytes <= 1 << window, "{class:?} {window}");
        }
    }
    let isal = shared!("compress_isal", false);
    assert_eq!(isal.capabilities().writes, [Dialect::new(Codec::Deflate)], "one window, 32 KiB");
}

#[test]
fn nothing_is_a_value_too() {
    for name in ["compress_isal", "compress_zlib"] {
        let mut queue = open(&shared!(name, false));
        let queue = &mut *queue;
        let (outcome, stream) = run(queue, compress(None, Level::Default), b"", 100);
        assert_eq!(outcome, Outcome::Done { output_bytes: stream.len() });
        assert_eq!(engines::libdeflate::engine().decompress(&stream, &mut []), Ok(()));
        assert_eq!(run(queue, decompress(0), &stream, 0).0, Outcome::Done { output_bytes: 0 });
        assert_eq!(run(queue, compress(None, Level::Default), b"", 1).0, Outcome::DoesNotFit);
        for (input, original_bytes, capacity) in [(&b""[..], 5, 5), (b"", 0, 0), (&stream, 5, 4)] {
            let (outcome, _) = run(queue, decompress(original_bytes), input, capacity);
            assert!(matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_))));
        }
    }
}

#[test]
fn only_foreign_memory_is_copied() {
    let device = opened!(
        "compress_isal_few",
        DpdkOptions { queue_pairs: NonZeroU16::new(3), registered_only: true }
    );
    let mut queue = open(&device);
    let original = Payload::Text.bytes(5_000, 1);
    let counted = |name| {
        let counters = device.counters();
        counters.iter().find(|(counter, _)| *counter == name).expect("a counter").1
    };
    let mut input = device.pool().take(5_000);
    input.extend(&original);
    let input = Input::pooled(input, 0..5_000);
    let before = counted("copies");
    let output = device.pool().take(6_000);
    let job = Job::new(compress(None, Level::Fast), input.clone(), output);
    let done = support::run(&mut *queue, Box::new(job));
    assert!(matches!(done.outcome, Outcome::Done { .. }));
    assert_eq!(counted("copies"), before);
    let job = Job::new(compress(None, Level::Fast), input, heap().take(6_000));
    let done = support::run(&mut *queue, Box::new(job));
    let Outcome::Done { output_bytes } = done.outcome else { panic!("{:?}", done.outcome) };
    assert_eq!(counted("copies"), before + 1);
    let copied = counted("copied_bytes");
    let (outcome, read) = run(&mut *queue, decompress(5_000), &done.job.output, 5_000);
    assert_eq!(outcome, Outcome::Done { output_bytes: 5_000 });
    assert!(read == original);
    assert_eq!(counted("copied_bytes"), copied + output_bytes as u64 + 5_000);

    // All pairs are now in use. A queue that is dropped returns its pair, with or without jobs in flight.
    let others = [open(&device), open(&device)];
    let refused = device.open_queue(Waker::noop().clone()).err().expect("three pairs");
    assert!(refused.to_string().contains("all of its 3 queue pairs are open"), "{refused}");
    drop(others);
    let mut last = open(&device);
    for _ in 0..5 {
        let input = Input::heap(Bytes::from(original.clone()));
        let job = Job::new(compress(None, Level::Fast), input, heap().take(6_000));
        last.try_submit(Box::new(job)).expect("room");
    }
    drop(last);
    let both = [open(&device), open(&device)];
    assert_eq!((both.len(), counted("abandoned_jobs")), (2, 0));
}

#[test]
fn what_cannot_be_says_what_could() {
    let Some(eal) = eal() else { return };
    assert_eq!(eal.devices(), DEVICES);
    let absent = Dpdk::open(eal, "0000:03:00.0", DpdkOptions::default()).expect_err("no such");
    let said = absent.to_string();
    assert!(said.contains("\"0000:03:00.0\"; it found: compress_isal, "), "{said}");
    let other = Eal::start(&[], &["--no-huge".to_owned()]).expect_err("other arguments");
    assert!(other.to_string().contains("runs already with the arguments \"\""), "{other}");
    assert!(Eal::start(&DEVICES.map(str::to_owned), &[]).is_ok(), "the same again");
    let refused = Eal::start(&["0000:03:00.0".to_owned()], &[]).expect_err("no such");
    assert!(refused.to_string().contains("cannot add it"), "{refused}");
    Eal::start(&["compress_zlib_late".to_owned()], &[]).expect("devices may come later");
    assert_eq!(eal.devices().last().map(String::as_str), Some("compress_zlib_late"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn damaged_streams_of_several_segments_end(
        seed in any::<u64>(),
        bytes in 1usize..300_000,
        class in 0..Payload::ALL.len(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..4),
        short_by in 0usize..3_000,
    ) {
        for name in ["compress_isal", "compress_zlib"] {
            let device = match eal() {
                Some(eal) => Dpdk::open(eal, name, MANY).expect("it is open"),
                None => return Ok(()),
            };
            let mut queue = open(&device);
            let original = Payload::ALL[class].bytes(bytes, seed);
            let task = compress(None, Level::Fast);
            let (_, mut stream) = run(&mut *queue, task, &original, bound(bytes));
            for (index, bit) in &flips {
                let index = index.index(stream.len());
                stream[index] ^= 1 << bit;
            }
            stream.truncate(stream.len().saturating_sub(short_by));
            let (outcome, _) = run(&mut *queue, decompress(bytes), &stream, bytes);
            let allowed = matches!(
                outcome,
                Outcome::Done { .. } | Outcome::Failed(DeviceError::InvalidInput(_))
            );
            prop_assert!(allowed, "{:?}", outcome);
        }
    }
}
