//! Tests of the real library, if `REBATE_QPL_LIBRARY` names it. They run the contract suite and check QPL's own
//! features on its software and automatic paths. Without the library, each test reports on standard error that it was
//! skipped. The golden matrix covers round trips with other engines. The hardware path needs an IAA; the driver's own
//! tests run that path over a fake library.

#[path = "../support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::task::Waker;

use bytes::Bytes;
use device::contract::payload::Payload;
use device::{
    Codec, Completion, Device, DeviceError, Dialect, Engine, Kernel, Level, Outcome, Queue, Task,
    Waiting,
};
use drivers::isal;
use drivers::qpl::{LIBRARY_VARIABLE, Path, Qpl, QplOptions};
use support::{bound, skipped};
use units::Nanos;

/// Returns the library that the environment names. Without a library, reports that the test is skipped and returns
/// none.
fn library(test: &str) -> Option<PathBuf> {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|named| !named.is_empty());
    if named.is_none() {
        skipped(test, &format!("{LIBRARY_VARIABLE} names no libqpl.so"));
    }
    named.map(PathBuf::from)
}

fn open(test: &str, path: Path, options: QplOptions) -> Option<Qpl> {
    let options = QplOptions { library: Some(library(test)?), ..options };
    if path == Path::Auto && has_iaa() {
        // The automatic path is refused beside a device that can be used, so the test is skipped.
        skipped(test, "the automatic path, beside an IAA");
        return None;
    }
    Some(Qpl::open(path, &options).expect("the library that was named works"))
}

macro_rules! contract {
    ($name:ident, $path:expr, $($check:ident,)+) => {
        mod $name {
            use super::*;

            $(#[test]
            fn $check() {
                let test = concat!(stringify!($name), "::", stringify!($check));
                if let Some(device) = open(test, $path, QplOptions::default()) {
                    device::contract::$check(&device);
                }
            })+
        }
    };
}

macro_rules! contracts {
    ($($checks:tt)+) => {
        contract!(software, Path::Software, $($checks)+);
        contract!(auto, Path::Auto, $($checks)+);
    };
}

contracts!(
    writes_what_every_engine_reads,
    reads_what_every_engine_writes,
    accepts_exactly_what_it_advertises,
    hands_back_the_job_that_a_full_queue_refuses,
    says_that_a_result_does_not_fit,
    survives_flipped_bits,
    survives_a_queue_dropped_with_jobs_in_flight,
    serves_many_threads_at_once,
    gives_the_published_answers,
    runs_every_kernel_at_every_size,
    says_that_the_output_is_too_small,
    keeps_nothing_of_another_tenants_job,
);

fn run(queue: &mut dyn Queue, task: Task, input: Bytes, capacity: usize) -> Completion {
    support::run(queue, support::job(task, input, capacity))
}

fn result(completion: Completion) -> Bytes {
    support::result(completion).unwrap_or_else(|outcome| panic!("{outcome:?}"))
}

fn compress(level: Level) -> Task {
    Task::Compress { dialect: Dialect::IAA, level }
}

fn decompress(original_bytes: usize) -> Task {
    Task::Decompress { dialect: Dialect::IAA, original_bytes }
}

fn written(engine: &mut dyn Engine, dialect: Dialect, original: &[u8]) -> Bytes {
    let mut stream = vec![0; bound(original.len())];
    let bytes = engine.compress(dialect, Level::Default, original, &mut stream);
    stream.truncate(bytes.expect("ample room"));
    stream.into()
}

/// Replaces the contract's `reports_damaged_streams`. QPL 1.6.0's software accepts a stream that lost only its end
/// marker, and its report does not distinguish this case. The result is the original nevertheless. Any other damage
/// must be an error.
#[test]
fn damaged_streams_give_the_original_or_an_error() {
    for path in [Path::Software, Path::Auto] {
        let test = "damaged_streams_give_the_original_or_an_error";
        let Some(device) = open(test, path, QplOptions::default()) else { return };
        let mut queue = device.open_queue(Waker::noop().clone()).expect("opens");
        for (class, bytes) in
            [(Payload::Text, 700), (Payload::Text, 20_000), (Payload::Zeros, 9_000)]
        {
            let original = Bytes::from(class.bytes(bytes, 5));
            let stream = written(&mut *isal::engine(), Dialect::IAA, &original);
            for wrong in [0, bytes / 2, bytes - 1, bytes + 1, bytes * 2] {
                let outcome = run(&mut *queue, decompress(wrong), stream.clone(), wrong).outcome;
                assert!(is_invalid(&outcome), "{outcome:?} of {wrong} instead of {bytes}");
            }
            let step = (stream.len() / 97).max(1);
            let short = stream.len().saturating_sub(3)..stream.len();
            for kept in (0..stream.len()).step_by(step).chain(short) {
                let done = run(&mut *queue, decompress(bytes), stream.slice(..kept), bytes);
                let is_original = done.job.output[..] == original;
                match done.outcome {
                    Outcome::Done { .. } => assert!(is_original && kept + 2 >= stream.len()),
                    other => assert!(is_invalid(&other), "{other:?} of {kept} bytes"),
                }
            }
        }
    }
}

fn is_invalid(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_)))
}

/// Checks that the software path refuses a window above 4 KiB, so that it advertises no wider window.
#[test]
fn its_software_too_refuses_a_wider_window() {
    let test = "its_software_too_refuses_a_wider_window";
    let Some(device) = open(test, Path::Software, QplOptions::default()) else { return };
    assert_eq!(device.capabilities().reads, [Dialect::IAA]);
    let mut queue = device.open_queue(Waker::noop().clone()).expect("opens");
    let original = Payload::FarRepeat.bytes(64 << 10, 1);
    let stream = written(&mut *isal::engine(), Dialect::new(Codec::Deflate), &original);
    let refused = run(&mut *queue, decompress(original.len()), stream, original.len());
    let Outcome::Failed(DeviceError::InvalidInput(what)) = refused.outcome else {
        panic!("{:?}", refused.outcome)
    };
    assert!(what.contains("4 KiB"), "{what}");
}

#[test]
fn the_path_that_ran_is_counted() {
    for (path, name) in [(Path::Software, "qpl-software"), (Path::Auto, "qpl-auto")] {
        let Some(device) = open("the_path_that_ran_is_counted", path, QplOptions::default()) else {
            return;
        };
        assert_eq!((device.name(), device.path()), (name, path));
        assert!(device.version().starts_with("1."), "{}", device.version());
        assert_eq!(device.capabilities().kernels, [Kernel::Crc32c, Kernel::Crc64]);
        assert!(device.completes_alone());
        let Waiting::Polled { expected } = device.capabilities().waiting else { panic!("polled") };
        assert_eq!(expected == Nanos(0), path == Path::Software);
        let mut queue = device.open_queue(Waker::noop().clone()).expect("opens");
        let text = Bytes::from(Payload::Text.bytes(10_000, 1));
        let stream = result(run(&mut *queue, compress(Level::Default), text.clone(), 11_000));
        assert!(stream.len() * 3 < text.len(), "{} of 10000 bytes of text", stream.len());
        result(run(&mut *queue, decompress(text.len()), stream, text.len()));
        let ran = |name: &str| {
            device.counters().iter().find(|(counter, _)| *counter == name).expect("a counter").1
        };
        let both = (ran("jobs_software"), ran("jobs_hardware"));
        assert_eq!(both, (2, 0), "a fallback that nobody hears of");
    }
}

#[test]
fn without_a_device_the_hardware_path_says_what_is_missing() {
    let Some(library) = library("without_a_device_the_hardware_path_says_what_is_missing") else {
        return;
    };
    if has_iaa() {
        return;
    }
    let options = QplOptions { library: Some(library), ..QplOptions::default() };
    let problem = Qpl::open(Path::Hardware, &options).err().expect("there is no IAA").to_string();
    assert!(problem.starts_with("misconfigured: qpl-hardware: "), "{problem}");
    assert!(problem.contains("(QPL status 50"), "{problem}");
}

/// Returns whether Linux knows an IAA.
fn has_iaa() -> bool {
    let devices = std::fs::read_dir("/sys/bus/dsa/devices").into_iter().flatten().flatten();
    devices.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with("iax"))
}

#[test]
fn a_library_that_is_not_qpl_is_a_clear_error() {
    for file in ["libc.so.6", "/nowhere/libqpl.so"] {
        let options = QplOptions { library: Some(file.into()), ..QplOptions::default() };
        let problem = Qpl::open(Path::Software, &options).err().expect("no QPL").to_string();
        assert!(problem.starts_with("misconfigured: qpl-software: "), "{problem}");
        assert!(problem.contains(file) && problem.contains("scripts/qpl.sh"), "{problem}");
    }
}
