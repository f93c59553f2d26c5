//! Sends jobs for which offloading pays to accelerators, jobs that are too long for the calling core to worker threads,
//! and all other jobs to that core.

use std::ops::Range;

use crate::placement::{Choice, JobFacts, Placement, Policy, Reason, Snapshot, part};

/// Offloads every job of at least `offload_bytes_min` to the first open accelerator, while the calling thread does
/// other work. If no accelerator is open, jobs above `inline_bytes_max` go to the first open device behind the
/// accelerators (a pool of workers). The other sessions of the core then never wait for longer than a job of
/// `inline_bytes_max` takes.
#[derive(Clone, Copy, Debug)]
pub struct BoundedOffload {
    /// The number of accelerators among the devices after software.
    pub accelerators: usize,
    /// The size of the smallest job that is offloaded (bytes). Below it, a submission costs more than it
    /// saves. The right size depends on the device.
    pub offload_bytes_min: usize,
    /// The size of the largest job that may run on the calling core (bytes).
    pub inline_bytes_max: usize,
}

impl Policy for BoundedOffload {
    fn name(&self) -> &'static str {
        "bounded-offload"
    }

    fn valid_sizes(&self, work_bytes: usize) -> Option<Range<usize>> {
        let mut bounds = [self.offload_bytes_min, self.inline_bytes_max.saturating_add(1)];
        bounds.sort_unstable();
        Some(part(&bounds, work_bytes))
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        if job.work_bytes < self.offload_bytes_min {
            return Choice::software(Reason::Small);
        }
        let placement = Placement::Async;
        let accelerators = 1..=self.accelerators;
        if let Some(device) = snapshot.first_open_of(accelerators.clone()) {
            return Choice::to(device, placement, Reason::Policy);
        }
        let why = snapshot.reason_without(accelerators);
        let behind = self.accelerators + 1..=snapshot.devices.len();
        match snapshot.first_open_of(behind) {
            Some(device) if job.work_bytes > self.inline_bytes_max => {
                Choice::to(device, placement, why)
            }
            _ => Choice::software(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use device::{Class, Codec, Dialect, TenantId};
    use units::Op;

    use super::*;
    use crate::placement::DeviceState;

    fn place(work_bytes: usize, accelerator_open: bool, healthy: bool) -> Choice {
        let open = DeviceState {
            eligible: true,
            healthy: true,
            depth: 0,
            capacity: 4,
            estimated: None,
            host: None,
        };
        let depth = if accelerator_open { 0 } else { 4 };
        let accelerator = DeviceState { depth, eligible: healthy, healthy, ..open };
        let policy =
            BoundedOffload { accelerators: 1, offload_bytes_min: 1_000, inline_bytes_max: 9_000 };
        let job = JobFacts {
            op: Op::Compress,
            dialect: Some(Dialect::new(Codec::Deflate)),
            work_bytes,
            class: Class::Batch,
            tenant: TenantId(0),
            time_left: None,
            last: None,
        };
        policy.place(&job, &Snapshot::new(&[open, accelerator, open]), 0)
    }

    #[test]
    fn each_size_has_its_place() {
        let to = |device, reason| Choice::to(device, Placement::Async, reason);
        assert_eq!(place(999, true, true), Choice::software(Reason::Small));
        assert_eq!(place(1_000, true, true), to(1, Reason::Policy));
        assert_eq!(place(9_000, false, true), Choice::software(Reason::QueueFull));
        assert_eq!(place(9_001, false, true), to(2, Reason::QueueFull));
        assert_eq!(place(9_000, true, false), Choice::software(Reason::DeviceLost));
        assert_eq!(place(9_001, true, false), to(2, Reason::DeviceLost));
    }
}
