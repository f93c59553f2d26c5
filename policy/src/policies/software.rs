//! `AlwaysSoftware` runs every job on the calling core. It is the baseline of every comparison.

use std::ops::Range;

use crate::placement::{Choice, JobFacts, Policy, Reason, Snapshot};

/// Runs every job on the calling core.
#[derive(Clone, Copy, Debug, Default)]
pub struct AlwaysSoftware;

impl Policy for AlwaysSoftware {
    fn name(&self) -> &'static str {
        "always-software"
    }

    fn valid_sizes(&self, _: usize) -> Option<Range<usize>> {
        Some(0..usize::MAX)
    }

    fn place(&self, _job: &JobFacts, snapshot: &Snapshot<'_>, _draw: u64) -> Choice {
        let only = snapshot.devices.len() == 1;
        Choice::software(if only { Reason::OnlyDevice } else { Reason::Policy })
    }
}
