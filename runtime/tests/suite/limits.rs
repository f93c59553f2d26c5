//! Tests limits per tenant, jobs that wait for a full device, and deadlines.

use std::sync::Arc;

use crate::common::*;
use device::{DeviceError, FaultPlan, TenantId};
use policy::{Choice, JobFacts, Placement, Policy, Reason, Snapshot};
use runtime::{Limits, Ticket};
use units::Nanos;

const ASYNC: Choice = Choice::to(DEVICE, Placement::Async, Reason::Policy);

/// Creates a device with space for two jobs, and a rig that sends every job to it.
fn rig(limits: Limits) -> (Arc<Script>, Rig) {
    let device = Script::new(|capabilities| capabilities.queue_depth = 2);
    let rig = Rig::with(Arc::clone(&device) as _, |config| {
        (config.policy, config.limits) = (Arc::new(Always(ASYNC)), limits);
    });
    (device, rig)
}

fn submit(rig: &mut Rig, tag: u64, tenant: u16, deadline: Option<Nanos>) -> Ticket {
    let mut job = compress(&rig.pool, tag);
    (job.tenant, job.deadline) = (TenantId(tenant), deadline);
    rig.core.submit(job)
}

fn wait_for(waiting_max: usize) -> Limits {
    Limits { waiting_max, ..Limits::NONE }
}

/// Lets the device complete all jobs, one at a time, and returns the tags in the order of their ends.
fn ends(device: &Script, rig: &mut Rig, tickets: &[(u64, Ticket)]) -> Vec<u64> {
    let mut ends = Vec::new();
    while ends.len() < tickets.len() {
        device.do_one();
        rig.core.turn();
        for (tag, ticket) in tickets {
            if !ends.contains(tag) && rig.core.is_finished(*ticket) {
                ends.push(*tag);
            }
        }
    }
    for (tag, ticket) in tickets {
        let finished = rig.finished(*ticket);
        check(&finished, *tag);
        assert_eq!(finished.path, on_device());
    }
    ends
}

#[test]
fn jobs_wait_for_a_full_device_up_to_the_bound() {
    let (device, mut rig) = rig(wait_for(3));
    let tickets: Vec<_> = (0..5).map(|tag| (tag, submit(&mut rig, tag, 0, None))).collect();
    assert!(tickets.iter().all(|(_, ticket)| !rig.core.is_finished(*ticket)));
    assert_eq!(rig.path(5), in_software(Reason::QueueFull));
    assert_eq!(ends(&device, &mut rig, &tickets), [0, 1, 2, 3, 4]);
    assert_eq!((rig.core.outstanding().jobs, rig.pool.outstanding().0), (0, 0));
}

#[test]
fn what_waits_is_served_by_deadline() {
    let (device, mut rig) = rig(wait_for(9));
    let deadlines = [None, None, None, Some(60), Some(40), Some(50)];
    let tickets: Vec<_> = deadlines
        .into_iter()
        .enumerate()
        .map(|(tag, secs)| (tag as u64, submit(&mut rig, tag as u64, 0, secs.map(Nanos::secs))))
        .collect();
    assert_eq!(ends(&device, &mut rig, &tickets), [0, 1, 4, 5, 3, 2]);
}

#[test]
fn a_tenant_at_its_limit_does_not_delay_others() {
    let limits = Limits { tenant_jobs_max: 1, waiting_max: 9 };
    let (device, mut rig) = rig(limits);
    let greedy: Vec<_> = (0..4).map(|tag| (tag, submit(&mut rig, tag, 1, None))).collect();
    assert_eq!(device.state().accepted, 1);
    let other = (9, submit(&mut rig, 9, 2, None));
    rig.core.turn();
    assert_eq!(device.state().accepted, 2, "the other tenant's job is in");
    let tickets = [&greedy[..], &[other]].concat();
    assert_eq!(ends(&device, &mut rig, &tickets)[..2], [0, 9]);
}

/// A policy that places the jobs of one tenant sync, and all other jobs async.
struct SyncFor(TenantId);

impl Policy for SyncFor {
    fn name(&self) -> &'static str {
        "sync-for"
    }

    fn place(&self, job: &JobFacts, _: &Snapshot<'_>, _: u64) -> Choice {
        let sync = job.tenant == self.0;
        let placement = if sync { Placement::Sync } else { Placement::Async };
        Choice::to(DEVICE, placement, Reason::Policy)
    }
}

#[test]
fn waiting_jobs_are_served_after_another_tenant_s_sync_job() {
    let device = faulty(FaultPlan { delay_polls: 2, ..FaultPlan::default() });
    let mut rig = Rig::with(device, |config| config.policy = Arc::new(SyncFor(TenantId(2))));
    rig.core.set_limits(Limits { tenant_jobs_max: 1, waiting_max: 9 });
    let in_flight = submit(&mut rig, 1, 1, None);
    let waits = submit(&mut rig, 2, 1, None);
    let sync = submit(&mut rig, 3, 2, None);
    check(&rig.finished(sync), 3);
    check(&rig.finished(in_flight), 1);
    assert_eq!(rig.core.outstanding().jobs, 1, "a driver must not rest");
    for _ in 0..TURNS_MAX {
        rig.core.turn();
    }
    check(&rig.finished(waits), 2);
    assert_eq!(rig.core.outstanding().jobs, 0);
}

#[test]
fn a_tenants_timed_out_jobs_do_not_count_against_it() {
    let limits = Limits { tenant_jobs_max: 1, waiting_max: 0 };
    let (device, mut rig) = rig(limits);
    let hung = submit(&mut rig, 1, 1, None);
    rig.turn_after(TIMEOUT);
    check(&rig.finished(hung), 1);
    rig.clock.advance(REPROBE);
    let probe = submit(&mut rig, 2, 1, None);
    assert_eq!(device.state().accepted, 2);
    device.do_one();
    rig.core.turn();
    device.do_one();
    rig.core.turn();
    check(&rig.finished(probe), 2);
}

#[test]
fn jobs_that_wait_for_a_lost_device_fall_back() {
    let (device, mut rig) = rig(wait_for(9));
    let tickets: Vec<_> = (0..4).map(|tag| submit(&mut rig, tag, 0, None)).collect();
    device.fail_one(DeviceError::Lost);
    rig.core.turn();
    let reasons: Vec<_> = [0, 2, 3].map(|tag| rig.finished(tickets[tag]).path.reason).into();
    assert_eq!(reasons, [Reason::DeviceLost; 3]);
}

#[test]
fn a_job_that_waits_too_long_is_done_in_software() {
    let (device, mut rig) = rig(wait_for(9));
    let _in_flight = [submit(&mut rig, 0, 0, None), submit(&mut rig, 1, 0, None)];
    let given_up = submit(&mut rig, 2, 0, None);
    let before = rig.pool.outstanding();
    rig.core.detach(given_up);
    assert!(rig.pool.outstanding() < before);
    let waits = submit(&mut rig, 3, 0, None);
    rig.turn_after(TIMEOUT);
    let finished = rig.finished(waits);
    check(&finished, 3);
    assert_eq!(finished.path.placement, Placement::Software);
    assert_eq!(device.state().accepted, 2);
}

/// Returns a rig without limits that has learnt the costs: 10 ms on the device, none in software.
fn rig_that_learnt() -> (Arc<Script>, Rig) {
    let (device, mut rig) = rig(Limits::NONE);
    for _ in 0..4 {
        let first = submit(&mut rig, 0, 0, Some(Nanos::secs(9)));
        device.do_one();
        rig.turn_after(Nanos::millis(10));
        assert_eq!(rig.finished(first).path, on_device());
        let job = compress(&rig.pool, 0);
        let ticket = rig.core.submit_to_software(job, Reason::Configured);
        rig.finished(ticket);
    }
    (device, rig)
}

#[test]
fn a_job_that_would_be_late_goes_to_software() {
    let (device, mut rig) = rig_that_learnt();
    let deadline = |left_ms: u64| Some(Nanos::millis(40 + left_ms));
    let tight = submit(&mut rig, 0, 0, deadline(5));
    assert_eq!(rig.finished(tight).path, in_software(Reason::Deadline));
    let ample = submit(&mut rig, 0, 0, deadline(20));
    assert!(!rig.core.is_finished(ample));
    assert_eq!(missed(&rig), 0);
    device.do_one();
    rig.turn_after(Nanos::millis(30));
    assert_eq!(rig.finished(ample).path, on_device());
    assert_eq!(missed(&rig), 1);
}

/// A device that appears too slow for every deadline gets no jobs. Even under a policy without probes, it is
/// tried again once its cost is forgotten.
#[test]
fn a_late_device_is_tried_again_under_any_policy() {
    let (device, mut rig) = rig_that_learnt();
    let mut jobs = 0;
    let tried = loop {
        let ticket = submit(&mut rig, 0, 0, Some(Nanos::millis(45)));
        if !rig.core.is_finished(ticket) {
            break ticket;
        }
        assert_eq!(rig.finished(ticket).path, in_software(Reason::Deadline));
        jobs += 1;
        assert!(jobs < 100_000, "a stale estimate is for ever");
    };
    assert!(jobs > 50_000, "{jobs}");
    device.do_one();
    rig.core.turn();
    assert_eq!(rig.finished(tried).path, on_device());
    // The new time of zero is not believed at once. The device's cost is known again, so deadlines are compared with
    // it.
    let tight = submit(&mut rig, 0, 0, Some(Nanos::millis(41)));
    assert_eq!(rig.finished(tight).path, in_software(Reason::Deadline));
}

fn missed(rig: &Rig) -> u64 {
    rig.core.metrics().missed_deadlines().iter().map(|(_, missed)| missed).sum()
}
