//! Tests that a retired device is tried again with one job at a time and with growing waits, and that the first success
//! restores it.

use std::sync::Arc;

use crate::common::*;
use device::DeviceError;
use policy::{Placement, Reason};
use runtime::{Fallback, Path};
use units::Nanos;

const PROBE: Path = Path { device: DEVICE, placement: Placement::Async, reason: Reason::Probe };

fn retired() -> (Arc<Script>, Rig) {
    let device = Script::polled();
    let mut rig = Rig::new(Arc::clone(&device) as _);
    device.state().is_dead = true;
    assert_eq!(rig.path(0), in_software(Reason::DeviceLost));
    (device, rig)
}

fn probes(rig: &Rig) -> (u64, u64) {
    let (_, probes, restored) = rig.core.metrics().probes()[DEVICE].clone();
    (probes, restored)
}

#[test]
fn a_device_that_came_back_is_found_by_one_probe() {
    let (device, mut rig) = retired();
    device.state().is_dead = false;
    rig.clock.advance(Nanos(REPROBE.0 - 1));
    assert_eq!((rig.path(1), probes(&rig)), (in_software(Reason::DeviceLost), (0, 0)));
    rig.clock.advance(Nanos(1));
    let probe = rig.submit(2);
    assert_eq!(rig.path(3), in_software(Reason::DeviceLost), "one probe at a time");
    assert!(rig.core.outstanding().polled.is_some(), "the probe is waited for");
    device.do_one();
    rig.core.turn();
    let finished = rig.finished(probe);
    check(&finished, 2);
    assert_eq!((finished.path, probes(&rig)), (PROBE, (1, 1)));
    let ticket = rig.submit(4);
    device.do_one();
    rig.core.turn();
    assert_eq!(rig.finished(ticket).path, path(DEVICE, Placement::Async, Reason::Policy));
}

#[test]
fn a_device_that_is_lost_at_the_start_is_used_once_it_is_back() {
    let device = Script::polled();
    device.state().is_dead = true;
    let mut rig = Rig::new(Arc::clone(&device) as _);
    assert_eq!(rig.core.metrics().losses()[DEVICE].1, 1);
    assert_eq!(rig.path(0), in_software(Reason::DeviceLost));
    rig.clock.advance(REPROBE);
    assert_eq!((rig.path(1), probes(&rig)), (in_software(Reason::DeviceLost), (1, 0)));
    device.state().is_dead = false;
    rig.clock.advance(Nanos(2 * REPROBE.0));
    let probe = rig.submit(2);
    device.do_one();
    rig.core.turn();
    assert_eq!((rig.finished(probe).path, probes(&rig)), (PROBE, (2, 1)));
}

#[test]
fn each_failure_doubles_the_wait_up_to_a_bound() {
    let (_device, mut rig) = retired();
    let mut waits = Vec::new();
    for tag in 0..9 {
        let before = probes(&rig).0;
        let mut wait = 0;
        while probes(&rig).0 == before {
            rig.clock.advance(REPROBE);
            wait += 1;
            assert_eq!(rig.path(tag), in_software(Reason::DeviceLost));
        }
        waits.push(wait);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
    assert_eq!(rig.core.metrics().losses()[DEVICE].1, 1, "it was lost once");
}

#[test]
fn a_hanging_probe_costs_only_its_own_job() {
    let (device, mut rig) = retired();
    device.state().is_dead = false;
    rig.clock.advance(REPROBE);
    let probe = rig.submit(1);
    rig.turn_after(TIMEOUT);
    let finished = rig.finished(probe);
    check(&finished, 1);
    assert_eq!(finished.path, in_software(Reason::Timeout));
    rig.clock.advance(REPROBE);
    assert_eq!((rig.path(2), probes(&rig)), (in_software(Reason::DeviceLost), (1, 0)));
    rig.clock.advance(REPROBE);
    rig.submit(3);
    assert_eq!(probes(&rig), (2, 0));
}

#[test]
fn a_failed_probe_leaves_the_device_retired() {
    let (device, mut rig) = retired();
    device.state().is_dead = false;
    rig.clock.advance(REPROBE);
    let probe = rig.submit(1);
    device.fail_one(DeviceError::Fault("still sick"));
    rig.core.turn();
    assert_eq!(rig.finished(probe).path, in_software(Reason::DeviceFault));
    assert_eq!((rig.path(2), probes(&rig)), (in_software(Reason::DeviceLost), (1, 0)));
}

#[test]
fn a_probe_that_nobody_waits_for_counts_too() {
    let (device, mut rig) = retired();
    device.state().is_dead = false;
    rig.clock.advance(REPROBE);
    let probe = rig.submit(1);
    rig.core.detach(probe);
    device.do_one();
    rig.core.turn();
    assert_eq!(probes(&rig), (1, 1));
}

#[test]
fn a_job_that_the_device_refuses_is_no_probe() {
    let device = Script::new(|capabilities| capabilities.writes.clear());
    let mut rig = Rig::new(Arc::clone(&device) as _);
    device.state().is_dead = true;
    let job = decompress(&rig.pool, 1);
    rig.core.submit(job);
    rig.clock.advance(REPROBE);
    assert_eq!((rig.path(2), probes(&rig)), (in_software(Reason::DeviceLost), (0, 0)));
    let job = decompress(&rig.pool, 1);
    rig.core.submit(job);
    assert_eq!(probes(&rig), (1, 0));
}

#[test]
fn a_probe_waits_until_the_old_queue_is_empty() {
    let device = Script::polled();
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.reprobe_after = Nanos(TIMEOUT.0 / 2);
    });
    let first = rig.submit(1);
    rig.clock.advance(Nanos(TIMEOUT.0 * 3 / 4));
    let second = rig.submit(2);
    rig.turn_after(Nanos(TIMEOUT.0 / 4));
    assert_eq!(rig.finished(first).path, in_software(Reason::Timeout));
    rig.clock.advance(Nanos(TIMEOUT.0 / 2));
    assert_eq!((rig.path(3), probes(&rig).0), (in_software(Reason::DeviceLost), 0));
    device.do_one();
    device.do_one();
    rig.core.turn();
    assert_eq!(rig.finished(second).path.device, DEVICE);
    rig.submit(4);
    assert_eq!((probes(&rig).0, device.state().opened), (1, 2));
}

#[test]
fn with_a_required_device_only_failing_jobs_probe() {
    let device = Script::polled();
    let mut rig = Rig::with(Arc::clone(&device) as _, |config| {
        config.compress = Fallback::Require;
    });
    device.state().is_dead = true;
    let failed = rig.submit(1);
    let finished = rig.finished(failed);
    assert_eq!(finished.path, path(DEVICE, Placement::Async, Reason::Configured));
    let closed = rig.submit(2);
    assert_eq!(rig.finished(closed).path.reason, Reason::DeviceLost);
    device.state().is_dead = false;
    rig.clock.advance(REPROBE);
    let probe = rig.submit(3);
    device.do_one();
    rig.core.turn();
    let finished = rig.finished(probe);
    check(&finished, 3);
    assert_eq!(finished.path, PROBE);
}
