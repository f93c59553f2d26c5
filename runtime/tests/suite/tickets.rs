//! Tests tickets: they can be detached in every state, wake their owner once, and are never confused with another
//! job's. Also tests configurations with which the runtime refuses to start.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use crate::common::*;
use device::engines::lz4;
use device::{Device, DeviceError, FaultPlan, Software};
use policy::Reason;
use runtime::{Fallback, Runtime, StartError};
use units::ManualClock;

#[derive(Default)]
struct Counting(AtomicUsize);

impl Counting {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_finished_job_is_dropped_when_given_up() {
    let mut rig = Rig::new(faulty(FaultPlan::default()));
    let ticket = rig.submit(1);
    rig.core.detach(ticket);
    assert_eq!((rig.pool.outstanding().0, rig.core.metrics().detached()), (0, 0));
    rig.core.detach(ticket);
}

#[test]
fn a_given_up_job_keeps_its_buffers_until_it_returns() {
    let device = Script::polled();
    let mut rig = Rig::new(Arc::clone(&device) as _);
    let ticket = rig.submit(1);
    rig.core.detach(ticket);
    rig.core.detach(ticket);
    rig.core.turn();
    assert!(rig.pool.outstanding().0 > 0);
    assert!(rig.core.outstanding().polled.is_some(), "its buffers are still waited for");
    device.do_one();
    rig.core.turn();
    assert_eq!((rig.pool.outstanding().0, rig.core.outstanding().jobs), (0, 0));
    assert_eq!((rig.core.metrics().detached(), rig.jobs_counted()), (1, 1));
}

#[test]
fn given_up_and_failed_a_job_is_not_done_again() {
    let device = Script::polled();
    let mut rig = Rig::new(Arc::clone(&device) as _);
    let ticket = rig.submit(1);
    rig.core.detach(ticket);
    device.fail_one(DeviceError::Fault("x"));
    rig.core.turn();
    assert_eq!(rig.pool.outstanding().0, 0);
    assert!(rig.core.metrics().fallbacks().is_empty());
}

#[test]
fn an_overdue_given_up_job_retires_its_device() {
    let device = Script::polled();
    let mut rig = Rig::new(Arc::clone(&device) as _);
    let ticket = rig.submit(1);
    rig.core.detach(ticket);
    rig.turn_after(TIMEOUT);
    assert_eq!(rig.core.outstanding().polled, None);
    assert_eq!(rig.path(2), in_software(Reason::DeviceLost));
    device.do_one();
    rig.core.turn();
    assert_eq!((rig.pool.outstanding().0, rig.core.metrics().late()), (0, 1));
}

#[test]
fn a_redone_job_that_is_given_up_still_returns() {
    let device = Script::polled();
    let mut rig = Rig::new(Arc::clone(&device) as _);
    let ticket = rig.submit(1);
    rig.turn_after(TIMEOUT);
    rig.core.detach(ticket);
    device.do_one();
    rig.core.turn();
    assert_eq!((rig.pool.outstanding().0, rig.core.metrics().late()), (0, 1));
}

#[test]
fn the_last_to_ask_is_woken_once() {
    let device = Script::polled();
    let mut rig = Rig::new(Arc::clone(&device) as _);
    let ticket = rig.submit(1);
    let asked: [Arc<Counting>; 2] = Default::default();
    for counting in &asked {
        let waker = Waker::from(Arc::clone(counting));
        assert!(rig.core.claim(ticket, &mut Context::from_waker(&waker)).is_pending());
    }
    rig.core.turn();
    device.do_one();
    assert_eq!(asked[1].count(), 0);
    rig.core.turn();
    rig.core.turn();
    assert_eq!(asked.map(|counting| counting.count()), [0, 1]);
    check(&rig.finished(ticket), 1);
}

#[test]
fn a_late_completion_is_not_the_next_job_s() {
    let device = Script::polled();
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.policy =
            Arc::new(Always(policy::Choice::to(DEVICE, policy::Placement::Async, Reason::Policy)));
    });
    let first = rig.submit(1);
    rig.turn_after(TIMEOUT);
    check(&rig.finished(first), 1);
    let second = rig.submit(2);
    device.do_one();
    rig.core.turn();
    assert!(!rig.core.is_finished(second));
    assert!(!rig.core.is_finished(first));
    rig.core.detach(first);
    device.do_one();
    rig.core.turn();
    check(&rig.finished(second), 2);
}

#[test]
#[should_panic(expected = "claimed or detached once")]
fn a_ticket_is_not_claimed_twice() {
    let mut rig = Rig::new(faulty(FaultPlan::default()));
    let ticket = rig.submit(1);
    rig.finished(ticket);
    rig.claim(ticket);
}

#[test]
fn a_runtime_dropped_with_jobs_in_flight_leaves_nothing_behind() {
    let plan = FaultPlan { delay_polls: 5, ..FaultPlan::default() };
    let mut rig = Rig::new(faulty(plan));
    for tag in 0..4 {
        rig.submit(tag);
    }
    let pool = rig.pool.clone();
    drop(rig);
    assert_eq!(pool.outstanding().0, 0);
}

fn refused(devices: Vec<Arc<dyn Device>>, compress: Fallback) -> StartError {
    let mut config = config(devices, Arc::new(ManualClock::default()));
    config.compress = compress;
    match Runtime::new(config, Waker::noop()) {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

#[test]
fn a_start_without_software_is_refused() {
    assert!(matches!(refused(vec![], Fallback::Prefer), StartError::NoSoftware));
    let worker: Arc<dyn Device> = Script::polled();
    let devices = vec![worker, software()];
    assert!(matches!(refused(devices, Fallback::Prefer), StartError::NoSoftware));
}

#[test]
fn a_start_without_a_required_device_is_refused() {
    assert!(matches!(refused(vec![software()], Fallback::Require), StartError::NothingToRequire));
}

#[test]
fn a_start_with_streams_that_software_cannot_read_is_refused() {
    let home = Arc::new(Software::new(&[lz4::engine]));
    let error = refused(vec![home, software()], Fallback::Prefer);
    assert!(matches!(error, StartError::Unreadable(_, "deflate")), "{error}");
}

#[test]
fn a_device_that_cannot_be_opened_is_named() {
    let device = Script::polled();
    device.state().open_error = Some(DeviceError::Misconfigured("no queue is left".to_owned()));
    let error = refused(vec![software(), device], Fallback::Prefer);
    assert_eq!(
        error.to_string(),
        "device \"script\" did not open: misconfigured: no queue is left"
    );
}
