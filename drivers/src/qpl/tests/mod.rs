//! Tests of the driver over a fake library. Its functions have the types of the real functions. They finish a job
//! after some checks, and refuse, fail or return wrong results as a test says. So the contract suite can check the
//! hardware path on any machine.

mod fake;

use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use device::contract::inflate::inflate;
use device::{
    Completion, Device, DeviceError, Dialect, Input, Job, Level, Outcome, Polynomial, Pool, Queue,
    RefusedReason, Task, device_contract,
};
use units::ByteCount;

use super::{Huffman, NumaNode, Path, Qpl, QplOptions};
use fake::Script;

// These are all checks except the check of damaged streams, because an error of a device proves nothing about a
// stream (see below).
device_contract!(@checks fake_hardware, Arc::new(opened(Path::Hardware)),
    writes_what_every_engine_reads,
    reads_what_every_engine_writes,
    accepts_exactly_what_it_advertises,
    hands_back_the_job_that_a_full_queue_refuses,
    says_that_a_result_does_not_fit,
    survives_a_queue_dropped_with_jobs_in_flight,
    serves_many_threads_at_once,
    gives_the_published_answers,
    runs_every_kernel_at_every_size,
    refuses_tampered_ciphertext,
    says_that_the_output_is_too_small,
);
device_contract!(fake_auto, Arc::new(opened(Path::Auto)));

fn opened(path: Path) -> Qpl {
    let hardware = path != Path::Auto;
    fake::set(Script { hardware, falls_back: !hardware, ..Script::default() });
    Qpl::over(Arc::new(fake::api()), path, &QplOptions::default()).expect("the fake is faultless")
}

fn queue(device: &Qpl) -> Box<dyn Queue> {
    device.open_queue(Waker::noop().clone()).expect("a healthy device")
}

fn job(pool: &Pool, task: Task, input: &[u8]) -> Box<Job> {
    let input = Input::heap(Bytes::copy_from_slice(input));
    let mut job = Job::new(task, input, pool.take(8 << 10));
    job.output_offset = 16;
    Box::new(job)
}

fn compress() -> Task {
    Task::Compress { dialect: Dialect::IAA, level: Level::Default }
}

fn pool() -> Pool {
    Pool::heap(ByteCount(0))
}

/// Polls until the job has completed.
fn wait(queue: &mut dyn Queue) -> Completion {
    let mut done = Vec::new();
    for _ in 0..1_000 {
        queue.poll(&mut done);
        if let Some(completion) = done.pop() {
            return completion;
        }
    }
    panic!("the job never came back");
}

fn counted(device: &Qpl, name: &str) -> u64 {
    let counters = device.counters();
    counters.iter().find(|(counter, _)| *counter == name).expect("a counter").1
}

#[test]
fn a_job_is_in_flight_until_the_device_is_done() {
    let device = opened(Path::Hardware);
    let mut queue = queue(&device);
    let text = b"a rose is a rose".repeat(20);
    assert!(queue.try_submit(job(&pool(), compress(), &text)).is_ok());
    assert_eq!((queue.pending(), queue.poll(&mut Vec::new())), (1, 0));
    let completion = wait(queue.as_mut());
    assert!(matches!(completion.outcome, Outcome::Done { .. }));
    let stream = &completion.job.output[16..];
    assert_eq!(inflate(stream, text.len()).expect("a stream").bytes, text);
    assert_eq!((queue.pending(), counted(&device, "jobs_hardware")), (0, 1));
}

#[test]
fn the_automatic_path_is_refused_beside_a_device() {
    fake::set(Script::default());
    let refused = Qpl::over(Arc::new(fake::api()), Path::Auto, &QplOptions::default());
    let said = refused.err().expect("there is a device").to_string();
    assert!(said.contains("use qpl-hardware"), "{said}");
    assert_eq!(fake::submitted(), (0, 0), "no job ran");
}

#[test]
fn only_the_library_ends_a_job() {
    let device = opened(Path::Auto);
    let mut queue = queue(&device);
    fake::set(Script { looks_like_software: true, ..Script::default() });
    assert!(queue.try_submit(job(&pool(), compress(), b"value")).is_ok());
    for _ in 0..Script::default().checks {
        assert_eq!((queue.poll(&mut Vec::new()), queue.pending()), (0, 1));
    }
    assert!(matches!(wait(queue.as_mut()).outcome, Outcome::Done { .. }));
}

#[test]
fn a_device_cannot_call_a_stream_damaged() {
    let stream = b"\x01\x05\x00\xFA\xFFvalue";
    let damaged = [&b"\x01\x05\x00\xFB\xFFvalue"[..], &stream[..8], b"\xFF\xFF\xFF"];
    for path in [Path::Hardware, Path::Software] {
        let device = opened(path);
        let mut queue = queue(&device);
        let mut read = |stream: &[u8], original_bytes| {
            let task = Task::Decompress { dialect: Dialect::IAA, original_bytes };
            assert!(queue.try_submit(job(&pool(), task, stream)).is_ok());
            wait(queue.as_mut()).outcome
        };
        let right = |outcome: &Outcome| match outcome {
            Outcome::Failed(DeviceError::Fault(_)) => path == Path::Hardware,
            Outcome::Failed(DeviceError::InvalidInput(_)) => path == Path::Software,
            _ => false,
        };
        let outcomes = damaged.iter().map(|stream| read(stream, 5)).collect::<Vec<_>>();
        assert!(outcomes.iter().all(right), "{path:?} {outcomes:?}");
        let sizes = [4, 6].map(|original_bytes| read(stream, original_bytes));
        assert!(sizes.iter().all(right), "{path:?} {sizes:?}");
        assert_eq!(read(stream, 5), Outcome::Done { output_bytes: 5 });
    }
}

#[test]
fn a_job_that_the_device_refused_was_not_the_devices() {
    let device = opened(Path::Hardware);
    let mut queue = queue(&device);
    fake::set(Script { submit_status: 8, ..Script::default() });
    assert!(queue.try_submit(job(&pool(), compress(), b"value")).is_ok());
    let outcome = wait(queue.as_mut()).outcome;
    assert!(matches!(outcome, Outcome::Failed(DeviceError::Misconfigured(_))), "{outcome:?}");
    assert_eq!((counted(&device, "jobs_hardware"), counted(&device, "jobs_software")), (0, 0));
}

#[test]
fn first_jobs_wait_for_queues_that_others_keep_full() {
    fake::set(Script { busy_submissions: 5, ..Script::default() });
    let opened = Qpl::over(Arc::new(fake::api()), Path::Hardware, &QplOptions::default());
    assert!(opened.is_ok());
}

#[test]
fn busy_work_queues_refuse_and_later_take() {
    let device = opened(Path::Hardware);
    let mut queue = queue(&device);
    fake::set(Script { busy_submissions: 2, ..Script::default() });
    for _ in 0..2 {
        let refused = queue.try_submit(job(&pool(), compress(), b"value")).expect_err("is busy");
        assert_eq!((refused.reason, &refused.job.input[..]), (RefusedReason::Full, &b"value"[..]));
    }
    assert!(queue.try_submit(job(&pool(), compress(), b"value")).is_ok());
    assert!(matches!(wait(queue.as_mut()).outcome, Outcome::Done { .. }));
    assert_eq!(counted(&device, "refused_busy"), 2);
}

#[test]
fn a_queue_busy_between_steps_returns_the_job() {
    let device = opened(Path::Hardware);
    let mut queue = queue(&device);
    fake::set(Script { last_status: Some(5), ..Script::default() });
    assert!(queue.try_submit(job(&pool(), compress(), b"value")).is_ok());
    let before = fake::initialised();
    assert_eq!(wait(queue.as_mut()).outcome, Outcome::Failed(DeviceError::Busy));
    assert_eq!((fake::initialised() - before, counted(&device, "busy_midway")), (1, 1));
}

#[test]
fn sizes_beyond_the_room_are_a_fault() {
    let device = opened(Path::Hardware);
    let mut queue = queue(&device);
    for written_bytes in [0, 1 << 20, u32::MAX] {
        fake::set(Script { written_bytes: Some(written_bytes), ..Script::default() });
        assert!(queue.try_submit(job(&pool(), compress(), b"value")).is_ok());
        let completion = wait(queue.as_mut());
        assert!(matches!(completion.outcome, Outcome::Failed(DeviceError::Fault(_))));
        assert!(completion.job.output.is_empty());
    }
}

#[test]
fn a_fallback_of_the_library_is_counted() {
    let device = opened(Path::Auto);
    let mut queue = queue(&device);
    for (falls_back, counter) in [(false, "jobs_hardware"), (true, "jobs_software")] {
        fake::set(Script { falls_back, ..Script::default() });
        let checksum = Task::Checksum { polynomial: Polynomial::Crc64 };
        let decompress = Task::Decompress { dialect: Dialect::IAA, original_bytes: 0 };
        for (task, input) in
            [(compress(), &b"value"[..]), (decompress, &[3, 0]), (checksum, b"value")]
        {
            let before = counted(&device, counter);
            assert!(queue.try_submit(job(&pool(), task.clone(), input)).is_ok());
            let outcome = wait(queue.as_mut()).outcome;
            assert!(matches!(outcome, Outcome::Done { .. }), "{task:?} {outcome:?}");
            assert_eq!(counted(&device, counter) - before, 1, "{task:?} {counter}");
        }
    }
}

#[test]
fn buffers_of_a_hung_device_are_never_freed() {
    let device = opened(Path::Hardware);
    let pool = pool();
    let mut queue = queue(&device);
    fake::set(Script { checks: u32::MAX, ..Script::default() });
    assert!(queue.try_submit(job(&pool, compress(), b"value")).is_ok());
    drop(queue);
    assert_eq!(counted(&device, "leaked"), 1);
    assert_ne!(pool.outstanding(), ByteCount(0), "the output went home under the device's hands");
}

#[test]
fn a_dropped_queue_waits_for_what_is_nearly_done() {
    let device = opened(Path::Hardware);
    let pool = pool();
    let mut queue = queue(&device);
    fake::set(Script { checks: 50, ..Script::default() });
    for _ in 0..4 {
        assert!(queue.try_submit(job(&pool, compress(), b"value")).is_ok());
    }
    drop(queue);
    assert_eq!((counted(&device, "leaked"), pool.outstanding()), (0, ByteCount(0)));
}

#[test]
fn what_the_options_say_reaches_the_library() {
    fake::set(Script::default());
    for (verify, huffman, numa, flags, numa_id) in [
        (true, Huffman::Dynamic, NumaNode::Socket, 0x2003, -1),
        (false, Huffman::Dynamic, NumaNode::Any, 0x6003, -3),
        (true, Huffman::Fixed, NumaNode::Node(3), 0x0003, 3),
        (false, Huffman::Fixed, NumaNode::Current, 0x4003, -2),
    ] {
        let options = QplOptions { verify, huffman, numa, ..QplOptions::default() };
        let device = Qpl::over(Arc::new(fake::api()), Path::Hardware, &options).expect("opens");
        let mut queue = queue(&device);
        assert!(queue.try_submit(job(&pool(), compress(), b"value")).is_ok());
        assert_eq!(fake::submitted(), (flags, numa_id));
        wait(queue.as_mut());
    }
}

#[test]
fn only_what_a_device_made_is_verified() {
    fake::set(Script::default());
    for (path, bytes, omitted) in [
        (Path::Hardware, 1 << 20, false),
        (Path::Auto, 32 << 10, false),
        (Path::Auto, (32 << 10) + 1, true),
        (Path::Software, 100, true),
    ] {
        let device = opened(path);
        let mut queue = queue(&device);
        assert!(queue.try_submit(job(&pool(), compress(), &vec![7; bytes])).is_ok());
        assert_eq!(fake::submitted().0 & 0x4000 != 0, omitted, "{path:?} {bytes}");
        wait(queue.as_mut());
    }
}

#[test]
fn what_the_library_would_refuse_is_answered_without_it() {
    let device = opened(Path::Hardware);
    let mut queue = queue(&device);
    let mut answer = |task: Task, input: &[u8]| {
        assert!(queue.try_submit(job(&pool(), task, input)).is_ok());
        let completion = wait(queue.as_mut());
        (completion.outcome, completion.job.output.get(16..).map(<[u8]>::to_vec))
    };
    let (done, stream) = answer(compress(), b"");
    assert_eq!(done, Outcome::Done { output_bytes: 2 });
    let stream = stream.expect("a stream");
    assert_eq!(inflate(&stream, 0).expect("a deflate stream").bytes, b"");
    let empty = Task::Decompress { dialect: Dialect::IAA, original_bytes: 0 };
    assert_eq!(answer(empty.clone(), &stream).0, Outcome::Done { output_bytes: 0 });
    let invalid = |outcome| matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_)));
    assert!(invalid(answer(empty.clone(), b"").0));
    // The library must run this stored block of one byte.
    let one = answer(empty, &[1, 1, 0, 0xFE, 0xFF, b'x']).0;
    assert!(matches!(one, Outcome::Failed(DeviceError::Fault(_))), "{one:?}");
    let checksum = Task::Checksum { polynomial: Polynomial::Crc32c };
    assert_eq!(answer(checksum, b""), (Outcome::Done { output_bytes: 4 }, Some(vec![0; 4])));
}

#[test]
fn opening_finds_unknown_layouts_and_failing_devices() {
    let open = |script: Script| {
        fake::set(script);
        let opened = Qpl::over(Arc::new(fake::api()), Path::Hardware, &QplOptions::default());
        opened.err().expect("is refused").to_string()
    };
    let honest = Script::default;
    for (script, said) in [
        (Script { job_bytes: 100, ..honest() }, "lays its jobs out otherwise"),
        (Script { job_bytes: u32::MAX, ..honest() }, "lays its jobs out otherwise"),
        (Script { shifted_state: true, ..honest() }, "lays its jobs out otherwise"),
        (Script { init_status: 501, ..honest() }, "libaccel-config.so.1"),
        (Script { init_status: 503, ..honest() }, "mode shared and type user"),
        (Script { last_status: Some(6), ..honest() }, "the first jobs failed"),
        (Script { written_bytes: Some(u32::MAX), ..honest() }, "the first jobs failed"),
        (Script { checks: u32::MAX, ..honest() }, "does not come back"),
        (Script { busy_submissions: u32::MAX, ..honest() }, "its work queues stay full"),
    ] {
        let problem = open(script);
        assert!(problem.contains(said), "{problem}");
    }
}
