//! Policies with a fixed size threshold. They offload large jobs or keep them off the calling core.

use std::ops::Range;

use crate::placement::{Choice, JobFacts, Placement, Policy, Reason, Snapshot, part};

/// Offloads every job of at least `work_bytes_min` to the first open device, while the calling thread waits.
#[derive(Clone, Copy, Debug)]
pub struct SyncOffload {
    /// The size of the smallest job that is offloaded (bytes). Below it, a submission costs more than it
    /// saves. The right size depends on the device.
    pub work_bytes_min: usize,
}

impl Policy for SyncOffload {
    fn name(&self) -> &'static str {
        "sync-offload"
    }

    fn valid_sizes(&self, work_bytes: usize) -> Option<Range<usize>> {
        Some(part(&[self.work_bytes_min], work_bytes))
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        offload(job, snapshot, self.work_bytes_min, Placement::Sync)
    }
}

/// Offloads every job of at least `work_bytes_min` to the first open device, while the calling thread does other work.
#[derive(Clone, Copy, Debug)]
pub struct AsyncOffload {
    /// The size of the smallest job that is offloaded (bytes). Below it, a submission costs more than it
    /// saves. The right size depends on the device.
    pub work_bytes_min: usize,
}

impl Policy for AsyncOffload {
    fn name(&self) -> &'static str {
        "async-offload"
    }

    fn valid_sizes(&self, work_bytes: usize) -> Option<Range<usize>> {
        Some(part(&[self.work_bytes_min], work_bytes))
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        offload(job, snapshot, self.work_bytes_min, Placement::Async)
    }
}

/// Runs jobs in software on the calling core, except for jobs so large that the core's other sessions would
/// wait too long. These jobs go to another device, which is a pool of workers in the shipped configuration.
#[derive(Clone, Copy, Debug)]
pub struct BoundedInline {
    /// The size of the largest job that may run on the calling core (bytes).
    pub inline_bytes_max: usize,
}

impl Policy for BoundedInline {
    fn name(&self) -> &'static str {
        "bounded-inline"
    }

    fn valid_sizes(&self, work_bytes: usize) -> Option<Range<usize>> {
        Some(part(&[self.inline_bytes_max.saturating_add(1)], work_bytes))
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        if job.work_bytes <= self.inline_bytes_max {
            return Choice::software(Reason::Policy);
        }
        match snapshot.first_open() {
            Some(device) => Choice::to(device, Placement::Async, Reason::Large),
            None => Choice::software(snapshot.reason_for_software()),
        }
    }
}

fn offload(job: &JobFacts, snapshot: &Snapshot<'_>, min: usize, placement: Placement) -> Choice {
    if job.work_bytes < min {
        return Choice::software(Reason::Small);
    }
    match snapshot.first_open() {
        Some(device) => Choice::to(device, placement, Reason::Policy),
        None => Choice::software(snapshot.reason_for_software()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::DeviceState;
    use device::{Class, Codec, Dialect, TenantId};
    use units::Op;

    fn job(work_bytes: usize) -> JobFacts {
        JobFacts {
            op: Op::Compress,
            dialect: Some(Dialect::new(Codec::Deflate)),
            work_bytes,
            class: Class::LatencyCritical,
            tenant: TenantId(0),
            time_left: None,
            last: None,
        }
    }

    fn state(eligible: bool, depth: usize) -> DeviceState {
        DeviceState { eligible, healthy: true, depth, capacity: 2, estimated: None, host: None }
    }

    #[test]
    fn small_jobs_stay_and_large_ones_go() {
        let devices = [state(true, 0), state(true, 1)];
        let snapshot = Snapshot::new(&devices);
        let policy = AsyncOffload { work_bytes_min: 100 };
        assert_eq!(policy.place(&job(99), &snapshot, 0), Choice::software(Reason::Small));
        let expected = Choice::to(1, Placement::Async, Reason::Policy);
        assert_eq!(policy.place(&job(100), &snapshot, 0), expected);
    }

    #[test]
    fn the_reason_says_why_no_device_took_it() {
        let policy = SyncOffload { work_bytes_min: 0 };
        let reason = |others: &[DeviceState]| {
            let devices = [&[state(true, 0)], others].concat();
            policy.place(&job(1), &Snapshot::new(&devices), 0).reason
        };
        assert_eq!(reason(&[]), Reason::OnlyDevice);
        assert_eq!(reason(&[state(true, 2)]), Reason::QueueFull);
        assert_eq!(reason(&[state(false, 0)]), Reason::Ineligible);
        let lost = DeviceState { healthy: false, eligible: false, ..state(true, 0) };
        assert_eq!(reason(&[lost]), Reason::DeviceLost);
        assert_eq!(reason(&[state(true, 2), state(true, 0)]), Reason::Policy);
    }

    #[test]
    fn long_jobs_leave_the_core_for_open_devices() {
        let policy = BoundedInline { inline_bytes_max: 1_000 };
        let open = [state(true, 0), state(true, 0)];
        assert_eq!(policy.place(&job(1_001), &Snapshot::new(&open), 0).device(), 1);
        let full = [state(true, 0), state(true, 2)];
        assert_eq!(policy.place(&job(1_001), &Snapshot::new(&full), 0).device(), 0);
        assert_eq!(policy.place(&job(1_000), &Snapshot::new(&open), 0).device(), 0);
    }
}
