//! Tests every path that a job can take, and that its completion names exactly the path that it took. Time stands still
//! unless a test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::common::*;
use device::{
    Class, Codec, Device, DeviceError, Dialect, FaultPlan, Job, Level, Loss, Outcome, Task,
};
use policy::SyncOffload;
use policy::{AlwaysSoftware, AsyncOffload, Choice, JobFacts, Placement, Policy, Reason, Snapshot};
use runtime::{Fallback, Runtime};
use units::{Clock, ManualClock, Nanos};

const ON_DEVICE: Choice = Choice::to(DEVICE, Placement::Async, Reason::Policy);

/// A clock on which every reading takes a microsecond, for code that waits by reading the clock.
#[derive(Default)]
struct LookingClock(AtomicU64);

impl Clock for LookingClock {
    fn now(&self) -> Nanos {
        Nanos(self.0.fetch_add(1_000, Ordering::Relaxed))
    }
}

#[test]
fn software_has_the_result_when_submit_returns() {
    let mut config = config(vec![software()], Arc::new(ManualClock::default()));
    config.policy = Arc::new(AlwaysSoftware);
    let mut core = Runtime::new(config, std::task::Waker::noop()).expect("opens");
    let pool = device::Pool::heap(units::ByteCount(0));
    for tag in 0..6 {
        for job in [compress(&pool, tag), decompress(&pool, tag)] {
            let ticket = core.submit(job);
            assert!(core.is_finished(ticket));
            let finished = claim(&mut core, ticket).expect("inline");
            check(&finished, tag);
            assert_eq!(finished.path, in_software(Reason::OnlyDevice));
        }
    }
    assert_eq!((core.outstanding().jobs, pool.outstanding().0), (0, 0));
}

#[test]
fn a_job_on_a_device_is_async_and_by_policy() {
    let mut rig = Rig::new(faulty(FaultPlan { delay_polls: 3, ..FaultPlan::default() }));
    let ticket = rig.submit(1);
    assert!(!rig.core.is_finished(ticket));
    assert_eq!(rig.core.outstanding().jobs, 1);
    assert!(rig.core.outstanding().polled.is_some());
    assert_eq!(rig.path(2), on_device());
    assert_eq!(rig.finished(ticket).path, on_device());
}

#[test]
fn a_device_that_completes_inline_is_done_when_submit_returns() {
    let mut rig = Rig::new(faulty(FaultPlan::default()));
    let ticket = rig.submit(1);
    assert_eq!(rig.finished(ticket).path, on_device());
}

#[test]
fn a_small_job_stays() {
    let mut rig = Rig::with(faulty(FaultPlan::default()), |config| {
        config.policy = Arc::new(AsyncOffload { work_bytes_min: 1_000_000 });
    });
    assert_eq!(rig.path(1), in_software(Reason::Small));
}

#[test]
fn software_for_a_stated_reason_passes_the_policy_by() {
    let mut rig = Rig::new(faulty(FaultPlan::default()));
    let job = decompress(&rig.pool, 1);
    let ticket = rig.core.submit_to_software(job, Reason::DeviceFault);
    assert_eq!(rig.finished(ticket).path, in_software(Reason::DeviceFault));
}

#[test]
fn a_sync_job_is_done_when_submit_returns() {
    let device = faulty(FaultPlan { delay_polls: 3, ..FaultPlan::default() });
    let mut rig = Rig::with(device, |config| {
        config.policy = Arc::new(SyncOffload { work_bytes_min: 0 });
    });
    let ticket = rig.submit(1);
    let finished = rig.finished(ticket);
    check(&finished, 1);
    assert_eq!(finished.path, path(DEVICE, Placement::Sync, Reason::Policy));
}

#[test]
fn idle_time_between_sync_jobs_is_not_the_device_s() {
    let device = faulty(FaultPlan { delay_polls: 3, ..FaultPlan::default() });
    let mut rig = Rig::with(device, |config| {
        config.policy = Arc::new(SyncOffload { work_bytes_min: 0 });
    });
    rig.core.set_time_resolution(Nanos::micros(1));
    for tag in 0..5 {
        let ticket = rig.submit(tag);
        let finished = rig.finished(ticket);
        assert_eq!(finished.path, path(DEVICE, Placement::Sync, Reason::Policy));
        assert_eq!(finished.total, Nanos(0));
        rig.clock.advance(TIMEOUT);
    }
}

#[test]
fn idle_time_after_software_is_not_the_next_device_s() {
    let mut rig = Rig::new(faulty(FaultPlan { delay_polls: 3, ..FaultPlan::default() }));
    rig.core.set_time_resolution(Nanos::micros(1));
    for tag in 0..5 {
        let job = compress(&rig.pool, tag);
        let ticket = rig.core.submit_to_software(job, Reason::DeviceFault);
        rig.finished(ticket);
        rig.clock.advance(TIMEOUT);
        assert_eq!(rig.path(tag), on_device());
        rig.clock.advance(TIMEOUT);
    }
}

#[test]
fn a_sync_job_does_not_wait_longer_than_the_timeout() {
    let clock = Arc::new(LookingClock::default());
    let looks = Arc::clone(&clock);
    let mut rig = Rig::with(Script::polled(), |config| {
        config.policy = Arc::new(SyncOffload { work_bytes_min: 0 });
        config.clock = clock;
    });
    let ticket = rig.submit(1);
    let finished = rig.finished(ticket);
    check(&finished, 1);
    assert_eq!(finished.path, in_software(Reason::Timeout));
    let took = looks.now();
    assert!(took >= TIMEOUT && took < TIMEOUT + Nanos::micros(20), "{took:?}");
}

/// A regression test. A failed sync job that waits to be redone must not expire and be lost.
#[test]
fn a_failed_sync_job_waits_for_software_without_limit() {
    let clock = ManualClock::default();
    let script = Script::new(|capabilities| capabilities.queue_depth = 1_000);
    let capabilities = script.capabilities().clone();
    let mut rig = Rig::with(Arc::new(Failing(capabilities, clock.clone())), |config| {
        config.clock = Arc::new(clock);
    });
    // This is more than two turns may redo.
    let tickets: Vec<_> = (0..350).map(|tag| rig.submit(tag)).collect();
    rig.core.set_policy(Arc::new(SyncOffload { work_bytes_min: 0 }));
    let ticket = rig.submit(350);
    for (tag, ticket) in tickets.into_iter().chain([ticket]).enumerate() {
        let finished = rig.finished(ticket);
        check(&finished, tag as u64);
        assert_eq!(finished.path, in_software(Reason::DeviceFault), "{tag}");
    }
    let overdue = rig.core.metrics().losses().iter().map(|loss| loss.2).sum::<u64>();
    assert_eq!(overdue, 0);
    assert_eq!((rig.jobs_counted(), rig.core.outstanding().jobs), (351, 0));
}

#[test]
fn what_a_device_fails_is_redone_and_counted() {
    let mut rig = Rig::new(faulty(FaultPlan { fail_every: 2, ..FaultPlan::default() }));
    let paths: Vec<_> = (0..10).map(|tag| rig.path(tag)).collect();
    let redone = paths.iter().filter(|path| **path == in_software(Reason::DeviceFault)).count();
    let done = paths.iter().filter(|path| **path == on_device()).count();
    assert_eq!((redone, done), (5, 5));
    let fallbacks = rig.core.metrics().fallbacks();
    assert_eq!(fallbacks, [("faulty-software".to_owned(), Reason::DeviceFault, 5)]);
    assert_eq!(rig.jobs_counted(), 10);
}

#[test]
fn what_a_device_refuses_runs_in_software_as_queue_full() {
    let mut rig = Rig::new(faulty(FaultPlan { refuse_every: 1, ..FaultPlan::default() }));
    assert_eq!(rig.path(1), in_software(Reason::QueueFull));
    let fallbacks = rig.core.metrics().fallbacks();
    assert_eq!(fallbacks, [("faulty-software".to_owned(), Reason::QueueFull, 1)]);
}

#[test]
fn a_full_queue_is_seen_before_it_refuses() {
    let device = Script::new(|capabilities| capabilities.queue_depth = 2);
    let mut rig = Rig::new(device);
    let in_flight = [rig.submit(1), rig.submit(2)];
    assert_eq!(rig.path(3), in_software(Reason::QueueFull));
    assert!(rig.core.metrics().fallbacks().is_empty(), "nothing was redone");
    assert!(!in_flight.into_iter().any(|ticket| rig.core.is_finished(ticket)));
}

#[test]
fn jobs_in_flight_on_a_lost_device_are_redone() {
    let plan = FaultPlan { lose_after: Some(2), delay_polls: 2, ..FaultPlan::default() };
    let mut rig = Rig::new(faulty(plan));
    let tickets: Vec<_> = (0..5).map(|tag| rig.submit(tag)).collect();
    for _ in 0..3 {
        rig.core.turn();
    }
    for (tag, ticket) in tickets.into_iter().enumerate() {
        let finished = rig.finished(ticket);
        check(&finished, tag as u64);
        let lost = in_software(Reason::DeviceLost);
        let expected = if tag < 2 { on_device() } else { lost };
        assert_eq!(finished.path, expected, "{tag}");
    }
    assert_eq!(rig.path(9), in_software(Reason::DeviceLost));
    let metrics = rig.core.metrics();
    assert_eq!(metrics.losses()[DEVICE], ("faulty-software".to_owned(), 1, 0));
    let fallbacks = metrics.fallbacks();
    assert_eq!(fallbacks, [("faulty-software".to_owned(), Reason::DeviceLost, 3)]);
}

#[test]
fn jobs_of_a_hung_device_are_redone_soon() {
    let plan = FaultPlan { lose_after: Some(0), loss: Loss::Hang, ..FaultPlan::default() };
    let mut rig = Rig::new(faulty(plan));
    let step = rig.core.outstanding().turn_within;
    // The time is between two checks.
    rig.turn_after(Nanos(step.0 / 3));
    let submitted = rig.clock.now();
    let ticket = rig.submit(1);
    while !rig.core.is_finished(ticket) {
        rig.turn_after(step);
    }
    let took = rig.clock.now().since(submitted);
    assert!(took >= TIMEOUT && took.0 <= TIMEOUT.0 * 5 / 4, "{took:?}");
    let finished = rig.finished(ticket);
    check(&finished, 1);
    assert_eq!(finished.path, in_software(Reason::Timeout));
    assert_eq!(rig.core.metrics().losses()[DEVICE], ("faulty-software".to_owned(), 1, 1));
    assert_eq!(rig.path(2), in_software(Reason::DeviceLost), "a second job does not hang");
    let outstanding = rig.core.outstanding();
    assert_eq!((outstanding.jobs, outstanding.polled), (1, None), "nobody spins for it");
}

#[test]
fn a_late_completion_is_dropped_and_brings_its_buffers_home() {
    let device = Script::polled();
    let mut rig = Rig::new(Arc::clone(&device) as _);
    let ticket = rig.submit(1);
    rig.turn_after(TIMEOUT);
    let finished = rig.finished(ticket);
    check(&finished, 1);
    drop(finished);
    assert!(rig.pool.outstanding().0 > 0, "the device still has them");
    device.do_one();
    assert!(rig.pool.outstanding().0 > 0, "and nobody polled");
    rig.core.turn();
    assert_eq!((rig.pool.outstanding().0, rig.core.metrics().late()), (0, 1));
    assert_eq!(rig.core.outstanding().jobs, 0);
    assert_eq!(rig.jobs_counted(), 1);
}

/// A regression test. A job had to run on a device, timed out and was not claimed yet. A late completion
/// still matched its ticket, finished the job a second time and caused a panic.
#[test]
fn a_late_completion_of_an_unclaimed_failed_job_changes_nothing() {
    let device = Script::polled();
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.compress = Fallback::Require;
    });
    let ticket = rig.submit(1);
    rig.turn_after(TIMEOUT);
    device.do_one();
    rig.core.turn();
    let finished = rig.finished(ticket);
    assert_eq!(finished.outcome, Outcome::Failed(DeviceError::Timeout));
    assert_eq!(finished.path, path(DEVICE, Placement::Async, Reason::Configured));
    assert_eq!((rig.core.metrics().late(), rig.jobs_counted()), (1, 1));
}

#[test]
fn only_faults_of_the_device_are_redone() {
    let device = Script::polled();
    let outcome = |error: DeviceError| {
        let mut rig = Rig::new(Arc::clone(&device) as _);
        let ticket = rig.submit(1);
        device.fail_one(error);
        rig.core.turn();
        let finished = rig.finished(ticket);
        (finished.path, matches!(finished.outcome, Outcome::Done { .. }))
    };
    let misconfigured = DeviceError::Misconfigured("no rights".to_owned());
    assert_eq!(outcome(misconfigured), (in_software(Reason::DeviceLost), true));
    assert_eq!(outcome(DeviceError::Timeout), (in_software(Reason::Timeout), true));
    assert_eq!(outcome(DeviceError::Fault("x")), (in_software(Reason::DeviceFault), true));
    let invalid = DeviceError::InvalidInput("not deflate");
    assert_eq!(outcome(invalid), (on_device(), false));
}

#[test]
fn required_devices_fail_what_they_do_not_take() {
    let device = Script::new(|capabilities| capabilities.queue_depth = 1);
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.compress = Fallback::Require;
    });
    let in_flight = rig.submit(1);
    let closed = rig.submit(2);
    let finished = rig.finished(closed);
    assert!(matches!(finished.outcome, Outcome::Failed(DeviceError::Fault(_))));
    assert_eq!(finished.path, path(DEVICE, Placement::Async, Reason::QueueFull));
    device.do_one();
    rig.core.turn();
    let finished = rig.finished(in_flight);
    check(&finished, 1);
    assert_eq!(finished.path, path(DEVICE, Placement::Async, Reason::Configured));
    let job = decompress(&rig.pool, 3);
    let ticket = rig.core.submit(job);
    device.fail_one(DeviceError::Fault("x"));
    rig.core.turn();
    assert_eq!(rig.finished(ticket).path, in_software(Reason::DeviceFault), "per direction");
}

#[test]
fn forbidden_devices_are_never_touched() {
    let device = Script::polled();
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.compress = Fallback::Forbid;
    });
    assert_eq!(rig.path(1), in_software(Reason::Configured));
    assert_eq!(device.state().accepted, 0);
    let job = decompress(&rig.pool, 1);
    rig.core.submit(job);
    assert_eq!(device.state().accepted, 1, "the other direction is free");
}

#[test]
fn a_policy_that_errs_costs_no_job() {
    let device = Script::new(|capabilities| capabilities.writes.clear());
    let mut rig = Rig::with(device, |config| config.policy = Arc::new(Always(ON_DEVICE)));
    assert_eq!(rig.path(1), in_software(Reason::Ineligible));
}

#[test]
fn a_job_beyond_software_goes_to_a_device() {
    let narrow = Dialect { codec: Codec::Deflate, window_log2: Some(4) };
    let device = Script::new(|capabilities| capabilities.writes.push(narrow));
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.policy = Arc::new(AlwaysSoftware);
    });
    let mut submit = || {
        let mut job = compress(&rig.pool, 3);
        job.task = Task::Compress { dialect: narrow, level: Level::Fast };
        rig.core.submit(job)
    };
    let (done, failed) = (submit(), submit());
    device.fail_one(DeviceError::InvalidInput("as good as any answer"));
    device.fail_one(DeviceError::Fault("x"));
    rig.core.turn();
    assert_eq!(rig.finished(done).path, path(DEVICE, Placement::Async, Reason::OnlyDevice));
    let finished = rig.finished(failed);
    assert!(matches!(finished.outcome, Outcome::Failed(DeviceError::Fault(_))), "nobody else can");
    assert_eq!(finished.path, in_software(Reason::DeviceFault));
}

#[test]
fn a_job_that_its_queue_shows_is_redone() {
    let mut rig = Rig::new(Hung::new());
    let tickets: Vec<_> = (0..6).map(|tag| rig.submit(tag)).collect();
    let decompressed = {
        let job = decompress(&rig.pool, 7);
        rig.core.submit(job)
    };
    let given_up = rig.submit(8);
    rig.core.detach(given_up);
    rig.turn_after(TIMEOUT);
    for (tag, ticket) in tickets.into_iter().enumerate() {
        let finished = rig.finished(ticket);
        check(&finished, tag as u64);
        assert_eq!(finished.path, in_software(Reason::Timeout));
    }
    check(&rig.finished(decompressed), 7);
    drop(rig.core);
    assert_eq!(rig.pool.outstanding().0, 0);
}

#[test]
fn jobs_of_a_lost_device_are_redone_over_several_turns() {
    let device = Script::new(|capabilities| capabilities.queue_depth = 400);
    let mut rig = Rig::new(Arc::clone(&device) as _);
    let tickets: Vec<_> = (0..300).map(|tag| rig.submit(tag)).collect();
    let given_up = rig.submit(300);
    (0..=300).for_each(|_| device.fail_one(DeviceError::Lost));
    rig.core.turn();
    rig.core.detach(given_up);
    let done = |rig: &Rig| tickets.iter().filter(|ticket| rig.core.is_finished(**ticket)).count();
    // A job has at least 1,000 bytes, and at most 256 KiB are redone in a turn.
    let first = done(&rig);
    assert!((1..=262).contains(&first), "{first}");
    let outstanding = rig.core.outstanding();
    assert_eq!((outstanding.jobs, outstanding.polled), (301 - first, Some(Nanos(0))));
    for _ in 0..10 {
        rig.core.turn();
    }
    for (tag, ticket) in tickets.into_iter().enumerate() {
        let finished = rig.finished(ticket);
        check(&finished, tag as u64);
        assert_eq!(finished.path, in_software(Reason::DeviceLost));
    }
    drop(rig.core);
    assert_eq!(rig.pool.outstanding().0, 0);
}

/// More jobs time out than one turn redoes. A waiting copy is dropped when its original returns.
#[test]
fn what_timed_out_and_is_given_back_is_redone_once() {
    let device = Script::new(|capabilities| capabilities.queue_depth = 400);
    device.state().cancels = true;
    let mut rig = Rig::new(Arc::clone(&device) as _);
    let tickets: Vec<_> = (0..350).map(|tag| rig.submit(tag)).collect();
    rig.turn_after(TIMEOUT + TIMEOUT);
    for _ in 0..10 {
        rig.core.turn();
    }
    for (tag, ticket) in tickets.into_iter().enumerate() {
        let finished = rig.finished(ticket);
        check(&finished, tag as u64);
        assert_eq!(finished.path, in_software(Reason::Timeout));
    }
    assert_eq!(rig.jobs_counted(), 350);
    drop(rig.core);
    assert_eq!(rig.pool.outstanding().0, 0);
}

#[test]
fn an_unreadable_stream_is_made_again_in_software() {
    // All of the first results are read back, however few are read back later.
    for (every, found) in [(1, 4), (2, 4)] {
        let plan = FaultPlan { corrupt_every: 3, ..FaultPlan::default() };
        let mut rig = Rig::with(faulty(plan), |config| {
            config.verify_every = std::num::NonZeroU32::new(every);
        });
        let mut redone = 0;
        for tag in 0..12 {
            let ticket = rig.submit(tag);
            let finished = rig.finished(ticket);
            if finished.path == in_software(Reason::DeviceFault) {
                check(&finished, tag);
                redone += 1;
            }
        }
        assert_eq!((redone, rig.core.metrics().corrupt()[DEVICE].1), (found, found));
    }
}

#[test]
fn a_cached_decision_is_what_the_policy_would_answer() {
    let device = Script::new(|capabilities| capabilities.queue_depth = 2);
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.policy = Arc::new(AsyncOffload { work_bytes_min: 2_000 });
    });
    // Tags 30, 60 and 33 have 2,110, 3,220 and 2,221 bytes. Tags 3 and 6 have 1,111 and 1,222. All have one codec.
    let path = |rig: &mut Rig, tag: u64| {
        let ticket = rig.submit(tag);
        if !rig.core.is_finished(ticket) {
            device.do_one();
            rig.core.turn();
        }
        let finished = rig.finished(ticket);
        check(&finished, tag);
        finished.path
    };
    for _ in 0..3 {
        assert_eq!(path(&mut rig, 30), on_device());
        assert_eq!(path(&mut rig, 3), in_software(Reason::Small));
        assert_eq!(path(&mut rig, 60), on_device());
    }
    // The device is full, and then has space again.
    let in_flight = [30, 60].map(|tag| rig.submit(tag));
    assert_eq!(path(&mut rig, 30), in_software(Reason::QueueFull));
    device.do_one();
    rig.core.turn();
    assert_eq!(rig.finished(in_flight[0]).path, on_device());
    let third = rig.submit(33);
    assert_eq!(path(&mut rig, 30), in_software(Reason::QueueFull));
    device.do_one();
    device.do_one();
    rig.core.turn();
    assert_eq!([in_flight[1], third].map(|ticket| rig.finished(ticket).path), [on_device(); 2]);
    // Now there is another policy, and then a device that is gone.
    rig.core.set_policy(Arc::new(AlwaysSoftware));
    assert_eq!(path(&mut rig, 30), in_software(Reason::Policy));
    rig.core.set_policy(Arc::new(AsyncOffload { work_bytes_min: 0 }));
    assert_eq!(path(&mut rig, 3), on_device());
    device.state().is_dead = true;
    assert_eq!(path(&mut rig, 3), in_software(Reason::DeviceLost));
    assert_eq!(path(&mut rig, 6), in_software(Reason::DeviceLost));
}

/// A policy that always reports its choice of the device as still valid, and counts how often it is called.
#[derive(Default)]
struct AlwaysValid(AtomicUsize);

impl Policy for AlwaysValid {
    fn name(&self) -> &'static str {
        "always-valid"
    }

    fn uses_costs(&self) -> bool {
        true
    }

    fn place(&self, _job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        self.0.fetch_add(1, Ordering::Relaxed);
        let is_open = snapshot.first_open().is_some();
        if is_open { ON_DEVICE } else { Choice::software(snapshot.reason_for_software()) }
    }

    fn valid_between(
        &self,
        choice: Choice,
        _job: &JobFacts,
        _least: &Snapshot<'_>,
        _most: &Snapshot<'_>,
    ) -> Option<u32> {
        (choice == ON_DEVICE).then_some(0)
    }
}

#[test]
fn a_decision_is_valid_only_for_similar_jobs() {
    let (device, policy) = (Script::polled(), Arc::new(AlwaysValid::default()));
    let mut rig =
        Rig::with(Arc::clone(&device) as _, |config| config.policy = Arc::clone(&policy) as _);
    // Returns where the changed job went, and whether the policy was called.
    let went = |rig: &mut Rig, change: fn(&mut Job)| {
        let before = policy.0.load(Ordering::Relaxed);
        let mut job = compress(&rig.pool, 30);
        change(&mut job);
        let ticket = rig.core.submit(job);
        if !rig.core.is_finished(ticket) {
            device.do_one();
            rig.core.turn();
        }
        (rig.finished(ticket).path, policy.0.load(Ordering::Relaxed) > before)
    };
    let await_cached = |rig: &mut Rig| {
        let is_used = (0..500).any(|_| went(rig, |_| {}) == (on_device(), false));
        assert!(is_used, "no decision is used again");
    };
    let others: [fn(&mut Job); 3] = [
        |job| job.class = Class::Batch,
        |job| job.deadline = Some(Nanos::secs(1_000)),
        |job| match &mut job.task {
            Task::Compress { dialect, .. } => dialect.codec = Codec::Zstd,
            task => panic!("{task:?}"),
        },
    ];
    for change in others {
        await_cached(&mut rig);
        assert!(went(&mut rig, change).1, "a decision for other jobs");
    }
    await_cached(&mut rig);
    rig.core.set_policy(Arc::new(AlwaysSoftware));
    assert_eq!(went(&mut rig, |_| {}).0, in_software(Reason::Policy));
    rig.core.set_policy(Arc::clone(&policy) as _);
    await_cached(&mut rig);
    device.state().is_dead = true;
    let lost = [went(&mut rig, |_| {}), went(&mut rig, |_| {})];
    assert_eq!(lost.map(|(path, _)| path), [in_software(Reason::DeviceLost); 2]);
    assert!(lost[1].1, "a decision for a device that is gone");
}
