//! Sends every job where it adds the least latency: to itself, to the jobs that wait for the calling core, and to those
//! that will come while the core is held.
//!
//! A place adds `latency + core * (turns + waiting + 2 * core / (gap - request))`. The first term is the job's own. A
//! job that waits for the core now waits longer by all the time that it is held, and a job that comes back from a
//! device waits for one more turn of it. While the core is held, `core / gap` new jobs come and, since most come back
//! once, about as many return. Without this term a core whose queue happens to be empty is held for jobs that others
//! soon wait behind: measured in this crate's simulation, the 99th percentile at moderate load was then a third above
//! that of offloading everything.
//!
//! Each of those jobs is counted with all of the hold, although a single one waits for half of it on average. But their
//! work keeps the core busy after it, so that more jobs come and wait, and theirs again: for a core that has work for
//! all but a share `idle` of its time that is `1 / idle` as much. Hence `gap - request`, the time that a request leaves
//! idle. The time that a request takes of the core is not known here beyond what its job takes in the place that takes
//! least. It is taken to be twice that, as if all requests were like this one. So a long job among short ones keeps off
//! the core sooner than it needs to, and a short one among long ones sees a core that is idler than it is. The whole
//! instead of the half buys the tail, which is made of the jobs that came first and waited for all of it. It costs some
//! hundred nanoseconds of mean latency at little load. The effect of all of that on the runtime's own loop in virtual
//! time (`runtime/tests/costs.rs`) is in docs/measurements/offload-runtime.md.
//!
//! A choice stays valid while it is clear (`least_cost::valid_between`). The extra cost of one place over another has
//! three parts: the difference of their latencies, which rises with the one and falls with the other; the difference of
//! their times on the core, times the jobs that wait; and the difference of the squares of these times, times the jobs
//! that come. If the first place holds the core for no less, the extra cost never falls as more jobs wait or come. So
//! if the cheapest place is a device that the core does not wait for, it stays the cheapest in all states in which its
//! queue is no longer, the queues of others are no shorter, no fewer jobs wait, and jobs are no farther apart. The
//! other way round nothing follows: a place that holds the core for longer gains from every job that does not come.
//!
//! The delay that a job adds to those behind it in a device is left out: they choose by that queue themselves.
//!
//! A place that misses the job's deadline counts several times, but not infinitely often, and if every place misses it
//! the deadline has no effect. Jobs that took the quickest place for themselves, whatever that added to the others,
//! made the others miss theirs: in the simulation one in ten, at a load at which otherwise one in 400 does.

use units::Nanos;

use crate::least_cost::{self, Arm, CostObjective, Objective};
use crate::placement::{Choice, JobFacts, Placement, Policy, Snapshot};

/// Chooses the place that adds the least latency, in time for the deadline unless that costs the others too much.
///
/// A batch job never waits on the calling core. It never runs there while others wait for it, if a device is open and
/// the job has no deadline. It leaves half of every device's queue to the others.
#[derive(Clone, Copy, Debug)]
pub struct LeastLatency {
    /// The largest job that may hold the calling core where a device is open.
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

/// Returns the latency that this place adds for all jobs (ns): for the job itself, for those that wait for the core,
/// and for those that come, at a rate per nanosecond.
#[inline(always)]
fn added_ns(arm: &Arm, waiting: f64, come_per_ns: f64) -> f64 {
    let turns = if arm.placement == Placement::Async { 1.0 } else { 0.0 };
    arm.latency_ns + arm.core_ns * (turns + waiting + come_per_ns * arm.core_ns)
}

/// Returns how many jobs come while the core is held for a nanosecond.
#[inline(always)]
fn come_per_ns(gap: Nanos, snapshot: &Snapshot<'_>) -> f64 {
    let gap_ns = least_cost::real(gap.0.max(1));
    let open = snapshot.devices.iter().filter(|state| state.eligible);
    let least_ns =
        open.filter_map(|state| state.host).min().map_or(0.0, |host| least_cost::real(host.0));
    // There is one division for all places: twice a gap, over the share of it that is idle.
    COMES_BACK / (gap_ns - REQUEST * least_ns).max(gap_ns / IDLE_DIVISOR)
}

/// A job that comes while the core is held comes for it twice: first, and when it is back from a device.
const COMES_BACK: f64 = 2.0;

/// The time that a request takes of the core, its task and its answer included, over the time of its job. It was judged
/// by the results for Cache-1 on one device's profile (`runtime/tests/costs.rs`). With 3 little changed.
const REQUEST: f64 = 2.0;

/// A core is taken to be idle for one part in so many at least, because nearer to its limit the rate of arrivals says
/// nothing.
const IDLE_DIVISOR: f64 = 8.0;

/// The factor by which a job may add more to all in order to keep its deadline. In the simulation, where every job has
/// one, up to 4 misses about as few at every load. From 8 on jobs make more of the others miss theirs than they keep.
const LATE_FACTOR: f64 = 4.0;

#[cfg(test)]
mod tests {
    use device::Class;

    use super::*;
    use crate::least_cost::tests::{NO_PROBE, device, job, software};
    use crate::placement::{DeviceState, Reason};

    const POLICY: LeastLatency = LeastLatency { inline_bytes_max: 1_000 };

    /// Chooses a place for a job that takes 6 us in software and 5 us on the device, 1 of them on the core.
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
        // A request takes 2 us. The jobs that come, 2 * 5^2 / (gap - 2) us for the device's 5 and 2 * 1^2 / (gap - 2)
        // for its 1, are 0.96 us apart and less than another turn of 1 us at a gap of 52, and 1.02 apart at 49.
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
        let hurried = JobFacts { time_left: Some(Nanos::micros(9)), ..batch };
        assert_eq!(place(&hurried, 1, 0), here);
    }
}
