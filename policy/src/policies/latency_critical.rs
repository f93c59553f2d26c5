//! The published policy for latency-critical applications (\[OffloadSched\]). Small jobs run in software. Large jobs
//! run on a device while the calling thread waits. The policy considers neither load nor class.

use std::ops::Range;

use crate::placement::{Choice, JobFacts, Placement, Policy, Reason, Snapshot, part};

/// Uses software up to a size. Above that size it uses the first open device, while the calling thread waits.
#[derive(Clone, Copy, Debug)]
pub struct LatencyCritical {
    /// The largest job for software (bytes): the size at which the device is as quick as software.
    pub software_bytes_max: usize,
}

impl Default for LatencyCritical {
    /// Returns the published value, for BlueField-2 compared with ISA-L.
    fn default() -> Self {
        Self { software_bytes_max: 256 }
    }
}

impl Policy for LatencyCritical {
    fn name(&self) -> &'static str {
        "latency-critical"
    }

    fn valid_sizes(&self, work_bytes: usize) -> Option<Range<usize>> {
        Some(part(&[self.software_bytes_max.saturating_add(1)], work_bytes))
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        if job.work_bytes <= self.software_bytes_max {
            return Choice::software(Reason::Small);
        }
        match snapshot.first_open() {
            Some(device) => Choice::to(device, Placement::Sync, Reason::Policy),
            None => Choice::software(snapshot.reason_for_software()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::least_cost::tests::{device, job, software};
    use crate::placement::DeviceState;

    #[test]
    fn large_jobs_are_waited_for() {
        let place = |work_bytes, depth| {
            let devices = [software(1), DeviceState { depth, ..device(1, 1) }];
            let job = JobFacts { work_bytes, ..job() };
            LatencyCritical::default().place(&job, &Snapshot::new(&devices), 0)
        };
        let there = Choice::to(1, Placement::Sync, Reason::Policy);
        assert_eq!(place(256, 0), Choice::software(Reason::Small));
        assert_eq!(place(257, 0), there);
        assert_eq!(place(257, 8), Choice::software(Reason::QueueFull));
    }
}
