//! Tests of the lane device against services in this process. The services are honest, silent, gone or hostile.

mod hostile;
mod rules;
mod service;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use device::{
    Codec, Device, DeviceError, Dialect, Input, Job, Level, MemoryId, Outcome, Pool, RefusedReason,
    Task, Waiting,
};
use drivers::{Lane, LaneOptions};
use service::{Manner, Service};
use support::{Signal, TEXT, TIMEOUT, compress, decompress, open, outcomes, pool, wait};
use units::{ByteCount, Nanos, Prng};

fn lane(path: &Path) -> Lane {
    let options = LaneOptions { work_bytes_max: ByteCount::mib(16), ..LaneOptions::default() };
    Lane::new(path, &options)
}

/// A service in a temporary folder, which is removed when this value is dropped.
struct Placed {
    service: Option<Service>,
    folder: tempfile::TempDir,
}

impl Placed {
    fn start(manner: Manner) -> Self {
        let mut placed = Self { service: None, folder: tempfile::tempdir().expect("a folder") };
        placed.restart(manner);
        placed
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("lane")
    }

    fn restart(&mut self, manner: Manner) {
        self.service = None;
        self.service = Some(Service::start_at(&self.path(), manner));
    }
}

/// Returns a device whose service outlives its test, because other tests of the suite may still use it.
fn served(waiting: Waiting) -> Arc<dyn Device> {
    static SERVICE: std::sync::OnceLock<Placed> = std::sync::OnceLock::new();
    let path = SERVICE.get_or_init(|| Placed::start(Manner::Honest)).path();
    let work_bytes_max = ByteCount::mib(16);
    Arc::new(Lane::new(&path, &LaneOptions { work_bytes_max, waiting, ..LaneOptions::default() }))
}

device::device_contract!(contract_signalled, served(Waiting::Signalled));
device::device_contract!(contract_polled, served(Waiting::Polled { expected: Nanos::micros(5) }));

fn counter(lane: &Lane, name: &str) -> u64 {
    let counters = lane.counters();
    counters.iter().find(|(counter, _)| *counter == name).map(|(_, count)| *count).expect(name)
}

#[test]
fn a_job_keeps_its_header_space() {
    let placed = Placed::start(Manner::Honest);
    let lane = lane(&placed.path());
    assert_eq!(lane.name(), format!("lane-{}", placed.path().display()));
    let mut queue = open(&lane);
    let mut job = compress(&pool());
    job.output.extend(b"header");
    job.output_offset = 6;
    queue.try_submit(job).expect("room");
    let completion = wait(queue.as_mut(), 1).remove(0);
    let Outcome::Done { output_bytes } = completion.outcome else { panic!("{completion:?}") };
    assert_eq!(completion.service, Nanos(7));
    assert_eq!(&completion.job.output[..6], b"header");
    let stream = completion.job.output.freeze(6..6 + output_bytes);
    queue.try_submit(decompress(&pool(), stream, TEXT.len())).expect("room");
    assert_eq!(&wait(queue.as_mut(), 1).remove(0).job.output[..], TEXT);
    let copies = [counter(&lane, "inputs_copied"), counter(&lane, "results_copied")];
    assert_eq!((counter(&lane, "lanes_opened"), copies), (1, [2, 2]));
}

#[test]
fn on_a_current_thread_executor_jobs_wake_their_task() {
    let placed = Placed::start(Manner::Honest);
    let lane = lane(&placed.path());
    let options = tokio::runtime::LocalOptions::default();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let executor = builder.enable_all().build_local(options).expect("an executor");
    executor.block_on(async {
        let signal = Arc::new(Signal::default());
        let mut queue = lane.open_queue(Waker::from(Arc::clone(&signal))).expect("opens");
        for round in 0..600_usize {
            let jobs = 1 + round % 7;
            for _ in 0..jobs {
                queue.try_submit(compress(&pool())).expect("room");
            }
            let mut done = Vec::new();
            while done.len() < jobs {
                if queue.poll(&mut done) == 0 {
                    let woken = tokio::time::timeout(TIMEOUT, signal.0.notified());
                    woken.await.expect("is woken");
                }
            }
            assert!(
                done.iter().all(|completion| matches!(completion.outcome, Outcome::Done { .. })),
                "{done:?}"
            );
            if round.is_multiple_of(20) {
                // This is long enough for both sides to fall asleep.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
}

#[test]
fn a_new_queue_finds_a_returned_service() {
    let mut placed = Placed::start(Manner::Hang);
    let (lane, pool) = (lane(&placed.path()), pool());
    let mut queue = open(&lane);
    for _ in 0..5 {
        queue.try_submit(compress(&pool)).expect("room");
    }
    placed.service = None;
    let lost = Outcome::Failed(DeviceError::Lost);
    assert_eq!(outcomes(queue.as_mut(), 5), vec![lost; 5]);
    assert_eq!(pool.outstanding(), ByteCount(0));
    for mut queue in [queue, open(&lane)] {
        let refused = queue.try_submit(compress(&pool)).expect_err("the service is gone");
        assert_eq!(refused.reason, RefusedReason::Lost);
    }
    assert_eq!(counter(&lane, "lanes_lost"), 1);
    placed.restart(Manner::Honest);
    let mut queue = open(&lane);
    queue.try_submit(compress(&pool)).expect("room");
    assert!(matches!(outcomes(queue.as_mut(), 1)[0], Outcome::Done { .. }));
}

#[test]
fn a_cancelled_job_comes_back_at_once() {
    let placed = Placed::start(Manner::Hang);
    let lane = lane(&placed.path());
    let mut queue = open(&lane);
    for tag in 1..=3 {
        let mut job = compress(&pool());
        job.tag = tag;
        queue.try_submit(job).expect("room");
    }
    queue.cancel(2);
    queue.cancel(9);
    assert_eq!(queue.pending(), 3);
    let done = wait(queue.as_mut(), 1);
    assert_eq!((done[0].job.tag, queue.pending()), (2, 2));
    assert_eq!(done[0].outcome, Outcome::Failed(DeviceError::Cancelled));

    let honest = Placed::start(Manner::Honest);
    let mut queue = open(&self::lane(&honest.path()));
    for tag in 1..=200 {
        let mut job = compress(&pool());
        job.tag = tag;
        queue.try_submit(job).expect("room: what was given up is answered and gone");
        queue.cancel(tag);
        let outcome = outcomes(queue.as_mut(), 1).remove(0);
        assert_eq!(outcome, Outcome::Failed(DeviceError::Cancelled));
    }
}

#[test]
fn a_dropped_queue_gives_its_buffers_back() {
    let placed = Placed::start(Manner::Hang);
    let pool = pool();
    let mut queue = open(&lane(&placed.path()));
    queue.try_submit(compress(&pool)).expect("room");
    drop(queue);
    assert_eq!(pool.outstanding(), ByteCount(0));
}

#[test]
fn a_full_queue_refuses() {
    let placed = Placed::start(Manner::Busy);
    let mut queue = open(&lane(&placed.path()));
    queue.try_submit(compress(&pool())).expect("room");
    assert_eq!(outcomes(queue.as_mut(), 1), [Outcome::Failed(DeviceError::Busy)]);

    let silent = Placed::start(Manner::Hang);
    let options = LaneOptions { queue_depth: 3, ..LaneOptions::default() };
    let lane = Lane::new(&silent.path(), &options);
    let mut queue = open(&lane);
    for _ in 0..3 {
        queue.try_submit(compress(&pool())).expect("room");
    }
    let refused = queue.try_submit(compress(&pool())).expect_err("three are inside");
    assert_eq!(refused.reason, RefusedReason::Full);
}

#[test]
fn an_input_that_finds_no_block_is_refused_as_full() {
    let placed = Placed::start(Manner::Hang);
    let mut queue = open(&Lane::new(&placed.path(), &LaneOptions::default()));
    let input = Bytes::from(vec![7; 1 << 20]);
    let task = Task::Compress { dialect: Dialect::new(Codec::Lz4), level: Level::Fast };
    let mut taken = 0;
    let reason = loop {
        let job = Job::new(task.clone(), Input::heap(input.clone()), pool().take(400));
        match queue.try_submit(Box::new(job)) {
            Ok(()) => taken += 1,
            Err(refused) => break refused.reason,
        }
    };
    assert_eq!((taken, reason), (64, RefusedReason::Full));
}

/// Makes a job whose input is in a buffer of that pool.
fn placed_job(inputs: &Pool, input: &[u8], task: Task) -> Box<Job> {
    let mut buffer = inputs.take(input.len() + 3);
    buffer.extend(b"key");
    buffer.extend(input);
    let input = Input::pooled(buffer, 3..3 + input.len());
    Box::new(Job::new(task, input, pool().take(400)))
}

#[test]
fn an_input_in_lane_memory_is_not_copied() {
    let placed = Placed::start(Manner::Honest);
    let lane = lane(&placed.path());
    let inputs = Pool::registered(lane.input_memory().expect("a lane has some"), ByteCount(0));
    let mut queue = open(&lane);
    let dialect = Dialect::new(Codec::Lz4);
    let task = Task::Compress { dialect, level: Level::Fast };
    queue.try_submit(placed_job(&inputs, TEXT, task)).expect("room");
    let stream = wait(queue.as_mut(), 1).remove(0).job.output;
    let task = Task::Decompress { dialect, original_bytes: TEXT.len() };
    queue.try_submit(placed_job(&inputs, &stream, task)).expect("room");
    assert_eq!(&wait(queue.as_mut(), 1).remove(0).job.output[..], TEXT);
    let copied = [counter(&lane, "inputs_copied"), counter(&lane, "inputs_copied_bytes")];
    assert_eq!((counter(&lane, "inputs_in_place"), copied), (2, [0, 0]));
    assert_eq!(inputs.outstanding(), ByteCount(0));
}

#[test]
fn an_input_in_place_is_held_until_answered() {
    let placed = Placed::start(Manner::Hang);
    let lane = lane(&placed.path());
    let inputs = Pool::registered(lane.input_memory().expect("a lane has some"), ByteCount(0));
    let mut queue = open(&lane);
    let task = Task::Compress { dialect: Dialect::new(Codec::Lz4), level: Level::Fast };
    queue.try_submit(placed_job(&inputs, TEXT, task)).expect("room");
    queue.cancel(0);
    assert_eq!(outcomes(queue.as_mut(), 1), [Outcome::Failed(DeviceError::Cancelled)]);
    assert_ne!(inputs.outstanding(), ByteCount(0));
    drop(queue);
    assert_eq!(inputs.outstanding(), ByteCount(0));
}

#[test]
fn copied_inputs_find_room_beside_stalled_clients() {
    let placed = Placed::start(Manner::Honest);
    let lane = Lane::new(&placed.path(), &LaneOptions::default());
    let inputs = Pool::registered(lane.input_memory().expect("a lane has some"), ByteCount(0));
    let mut queue = open(&lane);
    // The inputs are like those of clients that stall within a value each. They fill the pool until no input of any
    // size fits.
    let mut stalled = Vec::new();
    for bytes in [1_000_000, 70_000, 1] {
        let in_lane =
            || Some(inputs.take(bytes)).filter(|buffer| buffer.memory() != MemoryId::HEAP);
        stalled.extend(std::iter::from_fn(in_lane));
    }
    let held = stalled.iter().map(device::Buffer::capacity).sum::<usize>();
    assert_eq!(held, 48 << 20, "a quarter of 64 MiB is left to copies");
    let task = Task::Compress { dialect: Dialect::new(Codec::Lz4), level: Level::Fast };
    let input = Bytes::from(vec![7; 1 << 20]);
    for _ in 0..16 {
        let job = Job::new(task.clone(), Input::heap(input.clone()), pool().take(8_000));
        queue.try_submit(Box::new(job)).expect("room for a copy");
    }
    let done = outcomes(queue.as_mut(), 16);
    assert!(done.iter().all(|outcome| matches!(outcome, Outcome::Done { .. })), "{done:?}");
    assert_eq!((counter(&lane, "inputs_in_place"), counter(&lane, "inputs_copied")), (0, 16));

    drop(stalled);
    queue.try_submit(placed_job(&inputs, TEXT, task)).expect("room");
    assert!(matches!(outcomes(queue.as_mut(), 1)[0], Outcome::Done { .. }));
    assert_eq!((counter(&lane, "inputs_in_place"), counter(&lane, "inputs_copied")), (1, 16));
}

#[test]
fn no_wake_is_missed() {
    let placed = Placed::start(Manner::Honest);
    let mut draws = Prng::new(11);
    let mut queue = open(&lane(&placed.path()));
    for _ in 0..3_000 {
        let jobs = 1 + draws.below(4) as usize;
        for _ in 0..jobs {
            queue.try_submit(compress(&pool())).expect("room");
        }
        wait(queue.as_mut(), jobs);
        for _ in 0..draws.below(2_000) {
            std::hint::spin_loop();
        }
    }
}

#[test]
fn a_hostile_client_wastes_only_its_own_lane() {
    for seed in 0..200 {
        let mut draws = Prng::new(seed);
        hostile::attack_service(&mut || draws.bits(), 300);
    }
}

#[test]
fn a_hostile_service_wastes_only_its_jobs() {
    let folder = tempfile::tempdir().expect("a folder");
    for seed in 0..200 {
        let mut draws = Prng::new(seed);
        hostile::attack_client(&folder.path().join("lane"), &mut || draws.bits(), 300);
    }
}
