//! Sends every job to the arm that uses the least time of the calling core, within a latency limit.

use units::Nanos;

use crate::chain::{ChainChoice, ChainStep};
use crate::least_cost::{self, Arm, CostObjective, Objective};
use crate::placement::{Choice, JobFacts, Policy, Snapshot};

/// Chooses the arm that holds the calling core for the least time, among the arms that are quick enough.
#[derive(Clone, Copy, Debug)]
pub struct LeastHostCycles {
    /// The maximum expected latency, including the queue. A slower arm is chosen only if all arms are slower.
    /// In that case the quickest arm is chosen.
    pub latency_max: Nanos,
    /// The size of the largest job that may hold the calling core if a device is open (bytes).
    pub inline_bytes_max: usize,
}

impl Policy for LeastHostCycles {
    fn name(&self) -> &'static str {
        "least-host-cycles"
    }

    fn uses_costs(&self) -> bool {
        true
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Choice {
        least_cost::choose(self, job, snapshot, draw)
    }

    fn place_chain(
        &self,
        whole: &ChainStep<'_>,
        apart: &[ChainStep<'_>],
        draw: u64,
    ) -> ChainChoice {
        least_cost::place_chain(self, whole, apart, draw)
    }

    fn valid_between(
        &self,
        choice: Choice,
        job: &JobFacts,
        least: &Snapshot<'_>,
        most: &Snapshot<'_>,
    ) -> Option<u32> {
        least_cost::valid_between(self, choice, job, [least, most])
    }
}

impl CostObjective for LeastHostCycles {
    #[inline(always)]
    fn objective(
        &self,
        job: &JobFacts,
        _snapshot: &Snapshot<'_>,
    ) -> Objective<impl Fn(&Arm) -> f64 + Copy> {
        let left_ns = least_cost::time_left_ns(job);
        let cost = move |arm: &Arm| {
            let factor = if arm.latency_ns > left_ns { LATE_FACTOR } else { 1.0 };
            arm.core_ns * factor + arm.latency_ns * OF_EQUALS
        };
        let latency_max = Some(self.latency_max);
        Objective { inline_bytes_max: self.inline_bytes_max, latency_max, cost }
    }
}

/// The weight of the latency in the cost. It only decides between arms with equal core times.
const OF_EQUALS: f64 = 1e-9;

/// The factor on the cost of an arm that misses the deadline. It makes the policy meet a deadline whatever
/// core time that takes. If every arm misses the deadline, the factor has no effect.
const LATE_FACTOR: f64 = 1_048_576.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::least_cost::tests::{NO_PROBE, device, job, software};
    use crate::placement::Placement;

    #[test]
    fn the_core_is_spared_within_bound_and_deadline() {
        let policy = LeastHostCycles { latency_max: Nanos::micros(100), inline_bytes_max: 1_000 };
        let place = |estimated_us: u64, time_left: Option<u64>| {
            let devices = [software(6_000), device(estimated_us * 1_000, 1_000)];
            let job = JobFacts { time_left: time_left.map(Nanos::micros), ..job() };
            let choice = policy.place(&job, &Snapshot::new(&devices), NO_PROBE);
            (choice.device(), choice.placement)
        };
        let (here, there) = ((0, Placement::Software), (1, Placement::Async));
        assert_eq!((place(100, None), place(101, None)), (there, here));
        assert_eq!((place(50, Some(50)), place(50, Some(49))), (there, here));
        assert_eq!(place(50, Some(5)), there, "missed anyhow");
        assert_eq!(place(200, Some(5)), here, "above the bound the quickest");
    }
}
