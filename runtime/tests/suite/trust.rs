//! Tests that a device is trusted as long as it is right, how much it costs to find out that it is wrong, and how it
//! returns to service.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::common::*;
use device::{Capabilities, Completion, DeviceError, Dialect, Queue, Refused};
use device::{Device, FaultPlan, Input, Job, Level, Outcome, Pool, Task, Waiting};
use parking_lot::Mutex;
use policy::{Placement, Reason};
use runtime::{Reputation, Runtime, RuntimeConfig};
use units::{ByteCount, ManualClock, Nanos, Prng};

/// Changes a job's completion. The first argument is the job's number.
type Tamper = dyn FnMut(u64, &mut Completion) + Send;

/// Software that changes its results as the test says.
struct TamperingDevice {
    capabilities: Capabilities,
    tamper: Arc<Mutex<(u64, Box<Tamper>)>>,
}

impl TamperingDevice {
    fn new(tamper: impl FnMut(u64, &mut Completion) + Send + 'static) -> Arc<Self> {
        let mut capabilities = software().capabilities().clone();
        capabilities.waiting = Waiting::Polled { expected: Nanos::micros(10) };
        Arc::new(Self { capabilities, tamper: Arc::new(Mutex::new((0, Box::new(tamper)))) })
    }

    fn tell(&self, tamper: impl FnMut(u64, &mut Completion) + Send + 'static) {
        self.tamper.lock().1 = Box::new(tamper);
    }
}

impl Device for TamperingDevice {
    fn name(&self) -> &str {
        "liar"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, waker: std::task::Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(TamperingQueue(software().open_queue(waker)?, Arc::clone(&self.tamper))))
    }
}

struct TamperingQueue(Box<dyn Queue>, Arc<Mutex<(u64, Box<Tamper>)>>);

impl Queue for TamperingQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        self.0.try_submit(job)
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let before = done.len();
        self.0.poll(done);
        let (jobs, tamper) = &mut *self.1.lock();
        for completion in &mut done[before..] {
            tamper(*jobs, completion);
            *jobs += 1;
        }
        done.len() - before
    }

    fn pending(&self) -> usize {
        self.0.pending()
    }
}

/// Changes the last byte, so that the beginning of the stream stays valid.
fn spoil(completion: &mut Completion) {
    if let Outcome::Done { output_bytes } = completion.outcome {
        let end = completion.job.output_offset + output_bytes;
        completion.job.output.space()[end - 1] ^= 0x55;
    }
}

fn rig(device: &Arc<TamperingDevice>, every: u32) -> Rig {
    Rig::with(Arc::clone(device) as _, |config| config.verify_every = NonZeroU32::new(every))
}

/// Runs the job and returns whether its result is right.
fn is_sound(rig: &mut Rig, tag: u64) -> bool {
    let ticket = rig.submit(tag);
    for _ in 0..TURNS_MAX {
        if let Some(finished) = rig.claim(ticket) {
            return reads_back(&finished.job, &finished.outcome, tag);
        }
        rig.core.turn();
    }
    panic!("the job never came back");
}

fn reads_back(job: &Job, outcome: &Outcome, tag: u64) -> bool {
    let Outcome::Done { output_bytes } = *outcome else { panic!("{outcome:?}") };
    let stream = job.output[job.output_offset..][..output_bytes].to_vec();
    let original = original(tag);
    let dialect = job.task.dialect().expect("a compression has one");
    let task = Task::Decompress { dialect, original_bytes: original.len() };
    let output = Pool::heap(ByteCount(0)).take(original.len());
    let mut queue = software().open_queue(std::task::Waker::noop().clone()).expect("opens");
    let read = Job::new(task, Input::heap(stream.into()), output);
    queue.try_submit(Box::new(read)).expect("software takes any job");
    let mut done = Vec::new();
    queue.poll(&mut done);
    matches!(done[0].outcome, Outcome::Done { .. }) && done[0].job.output[..] == original[..]
}

fn wrong(rig: &Rig) -> u64 {
    rig.core.metrics().corrupt()[DEVICE].1
}

fn distrusted(rig: &Rig) -> u64 {
    rig.core.metrics().verified()[DEVICE].2
}

#[test]
fn a_device_that_is_always_wrong_loses_nothing() {
    let device = TamperingDevice::new(|_, completion| spoil(completion));
    let mut rig = rig(&device, 1_000);
    for tag in 0..200 {
        assert!(is_sound(&mut rig, tag), "job {tag} was acknowledged");
    }
    assert_eq!((wrong(&rig), distrusted(&rig)), (5, 1));
}

#[test]
fn one_wrong_result_in_a_thousand_is_borne() {
    let device = TamperingDevice::new(|job, completion| {
        if job % 1_000 == 500 {
            spoil(completion);
        }
    });
    let mut rig = rig(&device, 1_000);
    for tag in 0..10_000 {
        is_sound(&mut rig, tag);
    }
    assert_eq!(distrusted(&rig), 0);
    assert!(wrong(&rig) > 0, "nothing was found");
}

#[test]
fn one_wrong_result_in_a_hundred_is_not_borne() {
    let mut draws = Prng::new(9);
    let device = TamperingDevice::new(move |_, completion| {
        if draws.below(100) == 0 {
            spoil(completion);
        }
    });
    let mut rig = rig(&device, 1_000);
    let mut lost = 0;
    for tag in 0..20_000 {
        lost += u64::from(!is_sound(&mut rig, tag));
    }
    assert_eq!(distrusted(&rig), 1);
    assert!(lost + wrong(&rig) <= 20, "{lost} lost and {} found", wrong(&rig));
}

#[test]
fn garbage_is_found_however_long_a_device_was_right() {
    let mut draws = Prng::new(3);
    let device = TamperingDevice::new(move |job, completion| {
        if let Outcome::Done { output_bytes } = completion.outcome
            && job >= 20_000
        {
            let start = completion.job.output_offset;
            draws.fill(&mut completion.job.output.space()[start..start + output_bytes]);
        }
    });
    let mut rig = rig(&device, 1_000);
    let lost = (0..20_200).filter(|tag| !is_sound(&mut rig, *tag)).count();
    assert_eq!(distrusted(&rig), 1);
    assert!(lost <= 1, "{lost} values were lost");
}

#[test]
fn a_probe_whose_result_is_wrong_does_not_pass() {
    let device = TamperingDevice::new(|_, completion| spoil(completion));
    let mut rig = rig(&device, 1_000);
    while distrusted(&rig) == 0 {
        is_sound(&mut rig, 1);
    }
    let mut waits = Vec::new();
    for _ in 0..5 {
        let before = wrong(&rig);
        let mut wait = 0;
        while wrong(&rig) == before {
            assert!(wait < 100, "no probe is sent");
            rig.clock.advance(REPROBE);
            wait += 1;
            assert!(is_sound(&mut rig, 2));
        }
        waits.push(wait);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16]);
    device.tell(|_, _| {});
    for _ in 0..32 {
        rig.clock.advance(REPROBE);
        is_sound(&mut rig, 3);
    }
    assert_eq!(rig.path(4), on_device(), "a right result brings it back");
}

#[test]
fn one_right_probe_does_not_make_the_next_wait_short() {
    let device = TamperingDevice::new(|_, completion| spoil(completion));
    let mut rig = rig(&device, 1_000);
    while distrusted(&rig) == 0 {
        is_sound(&mut rig, 1);
    }
    device.tell(|_, _| {});
    rig.clock.advance(REPROBE);
    is_sound(&mut rig, 2);
    assert_eq!(rig.path(3), on_device());
    device.tell(|_, completion| spoil(completion));
    assert!(is_sound(&mut rig, 4));
    assert_eq!(distrusted(&rig), 2, "one wrong result is enough now");
    rig.clock.advance(Nanos(2 * REPROBE.0));
    device.tell(|_, _| {});
    assert_eq!(rig.path(5), in_software(Reason::DeviceLost));
    rig.clock.advance(Nanos(2 * REPROBE.0));
    assert_eq!(rig.path(6).reason, Reason::Probe);
}

/// Creates two runtimes over the same devices, like the workers of a process.
fn two(device: &Arc<TamperingDevice>, clock: &ManualClock) -> [Runtime; 2] {
    let devices: Vec<Arc<dyn Device>> = vec![software(), Arc::clone(device) as _];
    let reputation = Reputation::new(&devices);
    [1, 2].map(|seed| {
        let config = RuntimeConfig {
            verify_every: NonZeroU32::new(1_000),
            reputation: Arc::clone(&reputation),
            seed,
            ..config(devices.clone(), Arc::new(clock.clone()))
        };
        Runtime::new(config, std::task::Waker::noop()).expect("the devices open")
    })
}

fn path_in(core: &mut Runtime, tag: u64) -> runtime::Path {
    let job = compress(&Pool::heap(ByteCount(0)), tag);
    let ticket = core.submit(job);
    for _ in 0..TURNS_MAX {
        if let Some(finished) = claim(core, ticket) {
            assert!(reads_back(&finished.job, &finished.outcome, tag));
            return finished.path;
        }
        core.turn();
    }
    panic!("the job never came back");
}

#[test]
fn all_runtimes_of_a_process_stop_and_go_on_together() {
    let (device, clock) =
        (TamperingDevice::new(|_, completion| spoil(completion)), ManualClock::default());
    let [mut first, mut second] = two(&device, &clock);
    for tag in 0..100 {
        path_in(&mut first, tag);
        path_in(&mut second, tag);
    }
    let wrong = |core: &Runtime| core.metrics().corrupt()[DEVICE].1;
    assert_eq!(wrong(&first) + wrong(&second), 5);
    device.tell(|_, _| {});
    clock.advance(REPROBE);
    assert_eq!(path_in(&mut second, 1).reason, Reason::Probe);
    assert_eq!(path_in(&mut first, 1), path(DEVICE, Placement::Async, Reason::Policy));
}

#[test]
fn results_that_callers_refute_count_against_the_device() {
    let device = TamperingDevice::new(|_, _| {});
    let mut rig = rig(&device, 1_000);
    for _ in 0..4 {
        rig.core.report_misread(DEVICE);
    }
    assert_eq!((rig.path(1), distrusted(&rig)), (on_device(), 0));
    rig.core.report_misread(DEVICE);
    assert_eq!((rig.path(2), distrusted(&rig)), (in_software(Reason::DeviceLost), 1));
    assert_eq!(rig.core.metrics().corrupt()[DEVICE].2, 5);
}

#[test]
fn streams_that_nobody_reads_count_against_their_writer() {
    let devices: Vec<Arc<dyn Device>> = vec![software(), TamperingDevice::new(|_, _| {})];
    let reputation = Reputation::new(&devices);
    let mut rig = Rig::with(Arc::clone(&devices[DEVICE]), |config| {
        config.reputation = Arc::clone(&reputation);
    });
    for checksum in 0..5 {
        reputation.wrote(DEVICE, checksum, 700);
        rig.core.report_unreadable(checksum, 700);
        rig.core.report_unreadable(checksum, 700);
        rig.core.report_unreadable(checksum + 9, 700);
    }
    assert_eq!((wrong(&rig), distrusted(&rig)), (5, 1), "each counts once");
}

#[test]
fn a_device_that_fails_most_jobs_is_retired() {
    let mut rig = Rig::new(faulty(FaultPlan { fail_every: 2, ..FaultPlan::default() }));
    for tag in 0..1_000 {
        rig.path(tag);
    }
    assert_eq!(distrusted(&rig), 1);
    let failed = rig.core.metrics().fallbacks();
    let failed: u64 =
        failed.iter().filter(|row| row.1 == Reason::DeviceFault).map(|row| row.2).sum();
    assert!(failed < 64, "{failed} jobs were failed");
}

#[test]
fn this_process_s_own_code_is_not_read_back() {
    let count = |count| std::num::NonZeroUsize::new(count).expect("not zero");
    let worker = device::Worker::start(count(1), count(4), &device::engines::BUILT_IN);
    let worker: Arc<dyn Device> = Arc::new(worker.expect("a thread starts"));
    let mut rig = Rig::with(worker, |config| config.verify_every = NonZeroU32::new(1));
    let ticket = rig.submit(1);
    let finished = std::iter::repeat_with(|| {
        rig.core.turn();
        std::thread::yield_now();
        claim(&mut rig.core, ticket)
    });
    let finished = finished.flatten().next().expect("it comes back");
    assert_eq!(finished.path, on_device());
    assert_eq!(rig.core.metrics().verified()[DEVICE].1, 0);
}

#[test]
fn long_streams_are_read_back_too() {
    let device = TamperingDevice::new(|_, completion| spoil(completion));
    let mut rig = rig(&device, 1_000);
    let input = device::contract::payload::Payload::Text.bytes(600_000, 1);
    let dialect = Dialect::new(device::Codec::Deflate);
    let task = Task::Compress { dialect, level: Level::Fast };
    let output = rig.pool.take(input.len());
    let ticket = rig.core.submit(Box::new(Job::new(task, Input::heap(input.into()), output)));
    rig.core.turn();
    assert_eq!(rig.finished(ticket).path, in_software(Reason::DeviceFault));
}

/// Prints how many acknowledged values are lost to a device that turns wrong after this many good results.
#[test]
#[ignore = "prints the table of docs/operating/failures.md, asserts nothing, minutes: cargo test --release -p runtime \
            --test suite trust:: -- --ignored --nocapture"]
fn what_a_device_costs_that_turns_wrong() {
    println!("| good results | lost: mean | median | 90 % | 99 % |");
    for good in [0, 1_000, 5_000, 20_000, 100_000, 1_000_000] {
        let runs = if good > 100_000 { 20 } else { 200 };
        let mut losses: Vec<usize> = (0..runs).map(|seed| lost_after(good, seed)).collect();
        losses.sort_unstable();
        let mean = losses.iter().sum::<usize>() as f64 / losses.len() as f64;
        let [half, most, all] = [50, 90, 99].map(|percent| losses[losses.len() * percent / 100]);
        println!("| {good} | {mean:.1} | {half} | {most} | {all} |");
    }
}

/// Returns the number of values that are lost to a device that gives `good` good results and then spoils every result.
fn lost_after(good: u64, seed: u64) -> usize {
    let device = TamperingDevice::new(move |job, completion| {
        if job >= good {
            spoil(completion);
        }
    });
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.verify_every = NonZeroU32::new(1_000);
        config.seed = seed;
    });
    let pool = Pool::heap(ByteCount(0));
    let original: Vec<u8> = original(2)[..200].to_vec();
    let mut lost = 0;
    for job in 0.. {
        let dialect = Dialect::new(device::Codec::Lz4);
        let task = Task::Compress { dialect, level: Level::Fast };
        let output = pool.take(400);
        let job_done = Job::new(task, Input::heap(original.clone().into()), output);
        let ticket = rig.core.submit(Box::new(job_done));
        rig.core.turn();
        let finished = rig.finished(ticket);
        lost += usize::from(job >= good && finished.path.device == DEVICE);
        if distrusted(&rig) > 0 {
            break;
        }
    }
    lost
}
