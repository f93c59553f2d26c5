//! Tests of the timing, limits, memory and counters of the virtual device. The tests control its clocks.

mod profiles;
mod stored;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use units::{ManualClock, Nanos};
use workload::{OpProfile, Variant};

use super::*;
use crate::buffer::{Input, Pool};
use crate::codec::{Engine, EngineError};
use crate::contract::payload::Payload;
use crate::engines::{BUILT_IN, libdeflate};
use crate::job::{Completion, Job, Outcome};
use crate::queue::{Queue, RefusedReason};

crate::device_contract!(virtual_iaa, {
    let options = VirtualOptions::default();
    Arc::new(Virtual::new(&iaa(), &ENGINES, options).expect("a writer and a reader"))
});

/// The engines. The first compresses inputs that fit the window as a whole. The second stores other inputs.
const ENGINES: [EngineFactory; 2] = [libdeflate::engine, stored::engine];

fn iaa() -> DeviceProfile {
    DeviceProfile::find("iaa").expect("compiled in")
}

/// Returns a profile whose submissions take no time and whose jobs are limited only by the number of engines,
/// so that tests can stop the clock.
fn unpaced() -> DeviceProfile {
    let mut profile = free_to_submit(iaa());
    let compress = profile.compress.as_mut().and_then(|compress| compress.dynamic.as_mut());
    for op in compress.into_iter().chain(&mut profile.decompress) {
        op.batch.iter_mut().for_each(|point| point.ns_per_page.value = 0);
    }
    profile
}

fn free_to_submit(mut profile: DeviceProfile) -> DeviceProfile {
    let accelerator = profile.accelerator.as_mut().expect("not a core");
    accelerator.submit.iter_mut().for_each(|point| point.ns.value = 0);
    profile
}

fn compression(profile: &DeviceProfile) -> &OpProfile {
    profile.compress().expect("it compresses")
}

fn decompression(profile: &DeviceProfile) -> &OpProfile {
    profile.decompress.as_ref().expect("it decompresses")
}

fn make(profile: &DeviceProfile, clock: impl Clock + 'static) -> Virtual {
    let clock: Arc<dyn Clock> = Arc::new(clock);
    let work_clock = Arc::clone(&clock);
    let options = VirtualOptions { clock, work_clock, ..VirtualOptions::default() };
    Virtual::new(profile, &ENGINES, options).expect("a writer and a reader")
}

fn open(device: &Virtual) -> Box<dyn Queue> {
    device.open_queue(Waker::noop().clone()).expect("a healthy device")
}

fn job(task: Task, input: Bytes, capacity: usize) -> Box<Job> {
    Box::new(Job::new(task, Input::heap(input), Pool::heap(ByteCount(0)).take(capacity)))
}

const COMPRESS: Task = Task::Compress { dialect: Dialect::IAA, level: Level::Fast };

fn compress(bytes: usize, seed: u64) -> Box<Job> {
    job(COMPRESS, Payload::Text.bytes(bytes, seed).into(), bytes + 1_024)
}

fn decompress(stream: Bytes, original_bytes: usize) -> Box<Job> {
    job(Task::Decompress { dialect: Dialect::IAA, original_bytes }, stream, original_bytes)
}

fn drain(queue: &mut dyn Queue) -> Vec<Completion> {
    let mut done = Vec::new();
    queue.poll(&mut done);
    done
}

fn result(completion: Completion) -> Bytes {
    let Outcome::Done { output_bytes } = completion.outcome else {
        panic!("{:?}", completion.outcome);
    };
    completion.job.output.freeze(0..output_bytes)
}

#[test]
fn a_lone_job_comes_back_when_the_profile_says() {
    for variant in [Variant::Low, Variant::Stated, Variant::High] {
        let profile = free_to_submit(unpaced().variant(variant));
        let clock = ManualClock::default();
        let mut queue = open(&make(&profile, clock.clone()));
        for bytes in [64, 1_000, 4_096, 65_536] {
            let latency = compression(&profile).latency(bytes as u64);
            queue.try_submit(compress(bytes, 1)).expect("room");
            clock.advance(latency - Nanos(1));
            assert_eq!((drain(&mut *queue).len(), queue.pending()), (0, 1), "{bytes} early");
            clock.advance(Nanos(1));
            let completion = drain(&mut *queue).pop().expect("due");
            assert_eq!((completion.service, queue.pending()), (latency, 0));
            let stream = result(completion);

            let latency = decompression(&profile).latency(bytes as u64);
            queue.try_submit(decompress(stream, bytes)).expect("room");
            clock.advance(latency - Nanos(1));
            assert_eq!(drain(&mut *queue).len(), 0, "{bytes} early");
            clock.advance(Nanos(1));
            assert_eq!(result(drain(&mut *queue).remove(0)), Payload::Text.bytes(bytes, 1));
        }
    }
}

#[test]
fn a_ninth_job_waits_for_one_of_eight_engines() {
    let clock = ManualClock::default();
    let profile = unpaced();
    let mut queue = open(&make(&profile, clock.clone()));
    for seed in 0..9 {
        queue.try_submit(compress(4_096, seed)).expect("room");
    }
    let latency = compression(&profile).latency(4_096);
    clock.advance(latency);
    let done = drain(&mut *queue);
    assert_eq!((done.len(), queue.pending()), (8, 1));
    clock.advance(latency - Nanos(1));
    assert!(drain(&mut *queue).is_empty());
    clock.advance(Nanos(1));
    let ninth = drain(&mut *queue).pop().expect("due");
    assert_eq!(ninth.service, latency, "service is without queueing");
}

#[test]
fn jobs_keep_the_pace_of_the_published_batches() {
    let profile = free_to_submit(iaa());
    let clock = ManualClock::default();
    let mut queue = open(&make(&profile, clock.clone()));
    for seed in 0..4 {
        queue.try_submit(compress(4_096, seed)).expect("room");
    }
    let latency = compression(&profile).latency(4_096);
    let interval = compression(&profile).interval(4_096);
    assert_eq!(interval, Nanos(1_753));
    clock.advance(latency);
    assert_eq!(drain(&mut *queue).len(), 1);
    for _ in 1..4 {
        clock.advance(interval - Nanos(1));
        assert!(drain(&mut *queue).is_empty());
        clock.advance(Nanos(1));
        assert_eq!(drain(&mut *queue).len(), 1);
    }
}

#[test]
fn all_queues_share_the_entries() {
    let clock = ManualClock::default();
    let profile = unpaced();
    let device = make(&profile, clock.clone());
    let (mut first, mut second) = (open(&device), open(&device));
    for _ in 0..64 {
        first.try_submit(compress(1_000, 1)).expect("room");
        second.try_submit(compress(1_000, 1)).expect("room");
    }
    for queue in [&mut first, &mut second] {
        let refused = queue.try_submit(compress(1_000, 1)).expect_err("128 entries");
        assert_eq!((refused.reason, queue.pending()), (RefusedReason::Full, 64));
    }
    let counters = device.counters();
    assert_eq!((counters.jobs, counters.refused_full), (128, 2));
    clock.advance(compression(&profile).latency(1_000));
    second.try_submit(compress(1_000, 1)).expect("eight are done and hold no entry");
    drop(first);
    clock.advance(Nanos::secs(1));
    assert_eq!(drain(&mut *second).len(), 65);
}

/// A clock that advances by one nanosecond per read.
#[derive(Clone, Default)]
struct Ticking(Arc<AtomicU64>);

impl Clock for Ticking {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

#[test]
fn a_submission_takes_its_time_on_the_calling_core() {
    let clock = Ticking::default();
    let profile = iaa();
    let device = make(&profile, clock.clone());
    let mut queue = open(&device);
    for seed in 0..10 {
        let before = clock.now();
        queue.try_submit(compress(4_096, seed)).expect("room");
        let spent = clock.now() - before;
        let submit = profile.submit(4_096);
        assert!((submit..submit + Nanos(5)).contains(&spent), "{spent:?}");
    }
    let counters = device.counters();
    assert!(counters.host_ns > 0 && counters.host_excess_ns == 0, "{counters:?}");
}

thread_local! {
    /// The clock that the slow engine advances.
    static TIME: ManualClock = ManualClock::default();
}

const SLOW: Nanos = Nanos::micros(100);

/// An engine whose compression takes [`SLOW`] longer than that of the wrapped engine.
struct Slow(Box<dyn Engine>);

impl Engine for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn codec(&self) -> Codec {
        Codec::Deflate
    }
    fn writes(&self, dialect: Dialect, bytes: usize) -> bool {
        self.0.writes(dialect, bytes)
    }
    fn compress(
        &mut self,
        dialect: Dialect,
        level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        TIME.with(|clock| clock.advance(SLOW));
        self.0.compress(dialect, level, input, output)
    }
    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        self.0.decompress(input, output)
    }
}

#[test]
fn only_a_result_made_too_slowly_is_late() {
    let factories: [EngineFactory; 2] = [|| Box::new(Slow(stored::engine())), libdeflate::engine];
    let clock = TIME.with(ManualClock::clone);
    let device_clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let work_clock = Arc::clone(&device_clock);
    let options = VirtualOptions { clock: device_clock, work_clock, ..VirtualOptions::default() };
    let device = Virtual::new(&unpaced(), &factories, options).expect("a writer and a reader");
    let mut queue = open(&device);
    queue.try_submit(compress(4_096, 1)).expect("room");
    let stream = result(drain(&mut *queue).pop().expect("ready when it was made"));
    let first = device.counters();
    assert_eq!((first.jobs, first.computed, first.remembered, first.late), (1, 1, 0, 1));
    assert_eq!((first.host_ns, first.host_excess_ns), (SLOW.0, SLOW.0));
    assert!(!first.is_valid());

    queue.try_submit(compress(4_096, 1)).expect("room");
    queue.try_submit(decompress(stream.clone(), 4_096)).expect("room");
    assert!(drain(&mut *queue).is_empty(), "both take their time");
    clock.advance(SLOW);
    let second = device.counters().since(first);
    assert_eq!((second.jobs, second.computed, second.remembered, second.late), (2, 0, 2, 0));
    assert!(second.is_valid() && second.host_ns == 0);
    let results: Vec<_> = drain(&mut *queue).into_iter().map(result).collect();
    let original = Bytes::from(Payload::Text.bytes(4_096, 1));
    assert!(results.contains(&stream) && results.contains(&original));
}

#[test]
fn a_preempted_thread_is_not_a_slow_emulation() {
    let factories: [EngineFactory; 2] = [|| Box::new(Slow(stored::engine())), libdeflate::engine];
    let device_clock: Arc<dyn Clock> = Arc::new(TIME.with(ManualClock::clone));
    // The time passes, but the thread does no work in it.
    let work_clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = VirtualOptions { clock: device_clock, work_clock, ..VirtualOptions::default() };
    let device = Virtual::new(&unpaced(), &factories, options).expect("a writer and a reader");
    let mut queue = open(&device);
    queue.try_submit(compress(4_096, 1)).expect("room");
    let counters = device.counters();
    assert_eq!((counters.late, counters.preempted), (0, 1));
}

#[test]
fn a_remembered_result_needs_its_room() {
    let clock = ManualClock::default();
    let device = make(&unpaced(), clock.clone());
    let mut queue = open(&device);
    let input = Bytes::from(Payload::Random.bytes(4_000, 1));
    let mut outcome_in = |capacity: usize, output_offset: usize| {
        let mut job = job(COMPRESS, input.clone(), capacity);
        job.output_offset = job.output.capacity() - capacity + output_offset;
        queue.try_submit(job).expect("room");
        clock.advance(Nanos::secs(1));
        drain(&mut *queue).pop().expect("due").outcome
    };
    let done = Outcome::Done { output_bytes: 4_005 };
    assert_eq!(outcome_in(4_005, 0), done);
    assert_eq!(outcome_in(4_004, 0), Outcome::DoesNotFit);
    assert_eq!(outcome_in(4_021, 16), done);
    assert_eq!(outcome_in(4_021, 17), Outcome::DoesNotFit);
    assert_eq!(outcome_in(100, 100), Outcome::DoesNotFit);
    let counters = device.counters();
    assert_eq!((counters.computed, counters.remembered), (1, 3));
}

#[test]
fn errors_are_remembered_too_and_by_the_stated_size() {
    let clock = ManualClock::default();
    let device = make(&unpaced(), clock.clone());
    let mut queue = open(&device);
    for _ in 0..2 {
        for original_bytes in [100, 200] {
            queue.try_submit(decompress("not deflate".into(), original_bytes)).expect("room");
        }
    }
    clock.advance(Nanos::secs(1));
    for completion in drain(&mut *queue) {
        let invalid = Outcome::Failed(DeviceError::InvalidInput("not a deflate stream"));
        assert_eq!(completion.outcome, invalid);
    }
    assert_eq!((device.counters().computed, device.counters().remembered), (2, 2));
}

#[test]
fn the_table_keeps_within_its_bytes() {
    let clock = ManualClock::default();
    let table_bytes_max = ByteCount::mib(1);
    let device_clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let work_clock = Arc::clone(&device_clock);
    let options = VirtualOptions {
        table_bytes_max,
        work_clock,
        clock: device_clock,
        ..VirtualOptions::default()
    };
    let device = Virtual::new(&unpaced(), &ENGINES, options).expect("a writer and a reader");
    let mut queue = open(&device);
    for seed in 0..200 {
        queue.try_submit(compress(20_000, seed)).expect("room");
        clock.advance(Nanos::millis(1));
        assert_eq!(drain(&mut *queue).len(), 1);
        assert!(device.shared.table.bytes() <= table_bytes_max.0);
    }
    assert!(device.shared.table.bytes() > table_bytes_max.0 / 2);
    // The input is larger than the table, so the result is made each time, and is still right.
    for _ in 0..2 {
        queue.try_submit(compress(2 << 20, 1)).expect("room");
        clock.advance(Nanos::secs(1));
        assert_eq!(drain(&mut *queue).len(), 1);
    }
    assert_eq!(device.counters().computed, 202);
}

#[test]
fn it_refuses_what_the_hardware_would_refuse() {
    let device = make(&unpaced(), ManualClock::default());
    let mut queue = open(&device);
    let mut refused = |job: Box<Job>| queue.try_submit(job).err().map(|refused| refused.reason);
    let deflate = |window_log2| Dialect { codec: Codec::Deflate, window_log2 };
    let read = |dialect, original_bytes| {
        job(Task::Decompress { dialect, original_bytes }, "x".into(), original_bytes)
    };
    let unsupported = Some(RefusedReason::Unsupported);
    assert_eq!(refused(read(deflate(None), 4_097)), unsupported, "a window of 32 KiB");
    assert_eq!(refused(read(deflate(Some(13)), 4_097)), unsupported);
    assert_eq!(refused(read(deflate(None), 4_096)), None, "no stream of it reaches further");
    assert_eq!(refused(read(deflate(Some(12)), 4_097)), None);
    assert_eq!(refused(read(Dialect::new(Codec::Zstd), 10)), unsupported);
    assert_eq!(refused(read(Dialect::IAA, (2 << 20) + 1)), unsupported);
    assert_eq!(refused(compress((2 << 20) + 1, 1)), unsupported);
    assert_eq!(refused(compress(2 << 20, 1)), None);
    let stream = Bytes::from(vec![0; (2 << 20) + 1]);
    assert_eq!(refused(decompress(stream, 4_096)), unsupported, "the input is above it");
}

#[test]
fn a_device_without_its_engines_is_not_built() {
    let problem = |profile: &DeviceProfile, factories: &[EngineFactory]| match Virtual::new(
        profile,
        factories,
        VirtualOptions::default(),
    )
    .err()
    {
        Some(DeviceError::Misconfigured(problem)) => problem,
        other => panic!("{other:?}"),
    };
    assert!(problem(&iaa(), &BUILT_IN).contains("virtual-iaa: no engine of this build writes"));
    let mut faultless = iaa();
    faultless.fault_tail = None;
    let options = VirtualOptions { page_faults: Some(1), ..VirtualOptions::default() };
    match Virtual::new(&faultless, &ENGINES, options).err() {
        Some(DeviceError::Misconfigured(problem)) => assert!(problem.contains("no fault_tail")),
        other => panic!("{other:?}"),
    }
}
