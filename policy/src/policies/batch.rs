//! The published policy for batch applications (\[OffloadSched\]). Every job goes to a device, and the
//! calling thread does other work. This pays because a submission takes less core time than the smallest job.
//! The policy considers neither load nor class.

use std::ops::Range;

use crate::placement::{Choice, JobFacts, Placement, Policy, Reason, Snapshot};

/// Offloads every job to the first open device, while the calling thread does other work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch;

impl Policy for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn valid_sizes(&self, _: usize) -> Option<Range<usize>> {
        Some(0..usize::MAX)
    }

    fn place(&self, _job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        match snapshot.first_open() {
            Some(device) => Choice::to(device, Placement::Async, Reason::Policy),
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
    fn the_smallest_job_goes_to_an_open_device() {
        let place = |depth| {
            let devices = [software(1), DeviceState { depth, ..device(1, 1) }];
            let job = JobFacts { work_bytes: 0, ..job() };
            Batch.place(&job, &Snapshot::new(&devices), 0)
        };
        let there = Choice::to(1, Placement::Async, Reason::Policy);
        assert_eq!(place(7), there);
        assert_eq!(place(8), Choice::software(Reason::QueueFull));
    }
}
