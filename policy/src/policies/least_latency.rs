//! Sends every job to the arm that adds the least latency: to the job itself, to the jobs that wait for the
//! calling core, and to the jobs that will arrive while the core is held.
//!
//! An arm adds `latency + core * (turns + waiting + 2 * core / (gap - request))`:
//! - `latency` is the latency of the job itself, and `core` the time for which the arm holds the core.
//! - `turns` is 1 if the job returns from a device and needs another turn of the core, otherwise 0.
//! - `waiting` is the number of jobs that wait for the core. Each waits longer by `core`.
//! - `gap` is the time between two jobs, so `core / gap` jobs arrive while the core is held. The factor 2
//!   counts each of them twice, because most jobs return once. `request` is the core time of a request.
//!
//! Without the last term, a core whose queue happens to be empty would be held although other jobs soon wait
//! for it. The 99th percentile at moderate load in this crate's simulation was then a third above that of
//! offloading everything. The arriving jobs also keep the core busy after the hold, so that more jobs arrive
//! and wait. For a core that is idle for a share `idle` of its time, this makes the term `1 / idle` times as
//! large. The term therefore contains `gap - request`, the time that a request leaves idle. The policy
//! assumes that every request uses twice the core time of this job in the arm that uses least. A long job
//! among short jobs therefore avoids the core sooner than necessary. A short job among long jobs sees a core
//! that seems more idle than it is.
//!
//! The term counts each arriving job with the whole hold, although a job waits for half of it on average.
//! This is for the sake of the tail, which consists of the jobs that arrived first and waited for all of it.
//! It costs some hundred nanoseconds of mean latency at low load. docs/measurements/offload-runtime.md shows
//! the effect on the runtime's loop in virtual time (`runtime/tests/suite/costs.rs`).
//!
//! For `least_cost::valid_between`, consider the extra cost of an arm A over an arm B. It has three parts:
//! the difference of their latencies, the difference of their core times multiplied by the waiting jobs, and
//! the difference of the squares of their core times multiplied by the rate of arriving jobs. If A holds the
//! core for no less time than B, its extra cost never falls as more jobs wait or arrive. Let the cheapest arm
//! be a device for which the core does not wait. It then stays the cheapest in all states in which its queue
//! is no longer, the queues of other devices are no shorter, no fewer jobs wait, and the gap is no longer.
//! The converse does not hold: an arm that holds the core for longer becomes cheaper when fewer jobs arrive.
//!
//! The policy ignores the delay that a job causes for jobs behind it in a device's queue, because these jobs
//! consider that queue in their choice.
//!
//! The cost of an arm that misses the job's deadline is multiplied by a finite factor, which has no effect if
//! every arm misses the deadline. With an infinite factor, jobs would take the quickest arm whatever latency
//! it adds to other jobs, and these would miss their deadlines. In the simulation one job in ten then missed
//! its deadline, at a load at which otherwise one job in 400 does.

use units::Nanos;

use crate::chain::{ChainChoice, ChainStep};
use crate::least_cost::{self, Arm, CostObjective, Objective};
use crate::placement::{Choice, JobFacts, Placement, Policy, Snapshot};

/// Chooses the arm that adds the least latency. It meets the job's deadline unless that costs the other jobs too much.
///
/// A batch job never waits on the calling core for a device. It never runs there while other jobs wait for the core, if
/// a device is open and the job has no deadline. It leaves half of every device's queue to other jobs.
#[derive(Clone, Copy, Debug)]
pub struct LeastLatency {
    /// The size of the largest job that may hold the calling core if a device is open (bytes).
    pub inline_bytes_max: usize,
}

impl Policy for LeastLatency {
    fn name(&self) -> &'static str {
        "least-latency"
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

impl CostObjective for LeastLatency {
    #[inline(always)]
    fn objective(
        &self,
        job: &JobFacts,
        snapshot: &Snapshot<'_>,
    ) -> Objective<impl Fn(&Arm) -> f64 + Copy> {
        let waiting = snapshot.waiting as i64 as f64;
        let come_per_ns = snapshot.gap.map_or(0.0, |gap| come_per_ns(gap, snapshot));
        let left_ns = least_cost::time_left_ns(job);
        let cost = move |arm: &Arm| {
            let factor = if arm.latency_ns > left_ns { LATE_FACTOR } else { 1.0 };
            added_ns(arm, waiting, come_per_ns) * factor
        };
        Objective { inline_bytes_max: self.inline_bytes_max, latency_max: None, cost }
    }
}

/// Returns the latency that this arm adds to all jobs (ns): to the job itself, to the jobs that wait for the
/// core, and to the jobs that arrive at the rate `come_per_ns` while the core is held.
#[inline(always)]
fn added_ns(arm: &Arm, waiting: f64, come_per_ns: f64) -> f64 {
    let turns = if arm.placement == Placement::Async { 1.0 } else { 0.0 };
    arm.latency_ns + arm.core_ns * (turns + waiting + come_per_ns * arm.core_ns)
}

/// Returns the rate at which jobs arrive or return while the core is held (jobs per nanosecond).
#[inline(always)]
fn come_per_ns(gap: Nanos, snapshot: &Snapshot<'_>) -> f64 {
    let gap_ns = least_cost::real(gap.0.max(1));
    let open = snapshot.devices.iter().filter(|state| state.eligible);
    let least_ns =
        open.filter_map(|state| state.host).min().map_or(0.0, |host| least_cost::real(host.0));
    // There is one division for all arms: twice a gap, divided by the idle share of the gap.
    COMES_BACK / (gap_ns - REQUEST * least_ns).max(gap_ns / IDLE_DIVISOR)
}

/// The number of times that an arriving job needs the core: on arrival and on return from a device.
const COMES_BACK: f64 = 2.0;

/// The core time of a whole request, including its task and its answer, relative to the core time of its job.
/// The value was chosen by the results for Cache-1 on one device's profile (`runtime/tests/suite/costs.rs`). With
/// 3, little changed.
const REQUEST: f64 = 2.0;

/// The maximum of the factor `1 / idle`. A core counts as idle for at least an eighth of its time, because
/// near the core's limit the rate of arrivals says little.
const IDLE_DIVISOR: f64 = 8.0;

/// The factor by which a job may add more latency to all jobs in order to meet its deadline. In the
/// simulation, where every job has a deadline, all factors up to 4 cause about equally few misses at every
/// load. From 8 on, jobs cause more missed deadlines of other jobs than they avoid.
const LATE_FACTOR: f64 = 4.0;

#[cfg(test)]
mod tests {
    use device::Class;

    use super::*;
    use crate::least_cost::tests::{NO_PROBE, device, job, software};
    use crate::placement::{DeviceState, Reason};

    const POLICY: LeastLatency = LeastLatency { inline_bytes_max: 1_000 };

    /// Chooses an arm for a job that takes 6 us in software and 5 us on the device, of which 1 us is on the core.
    fn place(job: &JobFacts, waiting: usize, gap: Option<Nanos>) -> (usize, Placement) {
        let devices = [software(6_000), device(5_000, 1_000)];
        let choice = POLICY.place(job, &Snapshot { devices: &devices, waiting, gap }, NO_PROBE);
        assert_eq!(choice.reason, Reason::Policy);
        (choice.device(), choice.placement)
    }

    #[test]
    fn the_core_is_held_only_without_waiters() {
        assert_eq!(place(&job(), 0, None), (1, Placement::Sync));
        assert_eq!(place(&job(), 1, None), (1, Placement::Async));
        // A request takes 2 us. Jobs that arrive add 2 * 5^2 / (gap - 2) us if the core is held for the device's 5 us,
        // and 2 * 1^2 / (gap - 2) us if it is held for 1 us. At a gap of 52 us the two differ by 0.96 us, which is less
        // than another turn of 1 us. At 49 us they differ by 1.02 us.
        assert_eq!(place(&job(), 0, Some(Nanos::micros(52))), (1, Placement::Sync));
        assert_eq!(place(&job(), 0, Some(Nanos::micros(49))), (1, Placement::Async));
        assert_eq!(place(&job(), 1 << 40, Some(Nanos(0))), (1, Placement::Async));
    }

    #[test]
    fn only_what_is_open_says_what_a_request_takes() {
        let at_49_us = |other: DeviceState| {
            let devices = [software(6_000), device(5_000, 1_000), other];
            let gap = Some(Nanos::micros(49));
            POLICY.place(&job(), &Snapshot { devices: &devices, waiting: 0, gap }, NO_PROBE)
        };
        let little = DeviceState { eligible: false, ..device(90_000, 1) };
        assert_eq!(at_49_us(little).placement, Placement::Async);
        assert_eq!(at_49_us(DeviceState { eligible: true, ..little }).placement, Placement::Sync);
        let none = DeviceState { eligible: true, estimated: None, host: None, ..little };
        assert_eq!(at_49_us(none).placement, Placement::Async);
    }

    #[test]
    fn a_long_queue_sends_jobs_to_software() {
        let place = |time_left, estimated_ns| {
            let devices = [software(6_000), device(estimated_ns, 1_000)];
            let snapshot = Snapshot { waiting: 2, ..Snapshot::new(&devices) };
            POLICY.place(&JobFacts { time_left, ..job() }, &snapshot, NO_PROBE).device()
        };
        let left = |us| Some(Nanos::micros(us));
        assert_eq!((place(None, 14_000), place(None, 20_000)), (1, 0));
        assert_eq!((place(left(14), 14_000), place(left(13), 14_000)), (1, 0));
        assert_eq!((place(left(1), 14_000), place(left(1), 20_000)), (1, 0), "missed anyhow");
        assert_eq!((place(left(5), 5_000), place(left(6), 5_000)), (1, 1));
    }

    #[test]
    fn a_batch_job_yields_the_core() {
        let batch = JobFacts { class: Class::Batch, ..job() };
        let place = |job: &JobFacts, waiting, depth| {
            let slow = device(60_000, 1_000);
            let devices = [software(6_000), DeviceState { depth, ..slow }];
            let choice =
                POLICY.place(job, &Snapshot { waiting, ..Snapshot::new(&devices) }, NO_PROBE);
            (choice.device(), choice.placement)
        };
        let here = (0, Placement::Software);
        assert_eq!(place(&batch, 0, 0), here);
        assert_eq!(place(&job(), 1, 0), here);
        assert_eq!(place(&batch, 1, 3), (1, Placement::Async));
        assert_eq!(place(&batch, 1, 4), here, "half of the queue is for the others");
        let urgent = JobFacts { time_left: Some(Nanos::micros(9)), ..batch };
        assert_eq!(place(&urgent, 1, 0), here);
    }
}
