//! Every job where it adds the least latency: to itself, to those who wait for the calling core, and to those who will
//! come while it is held.
//!
//! What a place adds is `latency + core * (turns + waiting + 2 * core / gap)`. The first term is the job's own. Who
//! waits for the core now waits longer by all the time that it is held, and a job that comes back from a device waits
//! for one more turn of it. Of those who come while the core is held there are `core / gap` new ones and, since most
//! come back once, about as many returning. Without them a core whose queue happens to be empty is held for jobs that
//! others soon stand behind: measured in this crate's simulation, the 99th percentile at moderate load was then a third
//! above that of offloading everything.
//!
//! Each of those is counted with all of the hold. A single one waits for half of it on average. But what they bring
//! keeps the core busy after it, so that more come and wait, and theirs again: for a core that has no work for a share
//! `idle` of its time, the half becomes `1 / (2 * idle)`, which is the whole hold where it is half busy. Above that the
//! whole is still too little; below it is too much, by some hundred nanoseconds of mean latency, and what that buys is
//! the tail: a 99th percentile is made of those that came first and waited for all of it. With the half it was up to
//! 1.26 times that of offloading everything, on the runtime's own loop in virtual time (`runtime/tests/costs.rs`), and
//! with the whole up to 1.10; from 200,000 jobs a second on the mean was lower, too.
//!
//! What a job adds to those behind it in a device is left out: they choose by that queue themselves.
//!
//! A place that misses the job's deadline counts several times. Not without end, and where every place misses it the
//! deadline says nothing: jobs that took the quickest place for themselves, whatever that added to the others, made
//! them miss theirs: in the simulation one in ten, at a load at which otherwise one in 400 does.

use crate::arms::{self, Arm, Objective, Weighs};
use crate::placement::{Choice, JobFacts, Placement, Policy, Snapshot};

/// The place that adds the least latency, in time for the deadline unless that costs the others too much.
///
/// A batch job never waits on the calling core; it never runs there while others wait for it, if a device is open and
/// the job has no deadline; and it leaves half of every device's queue to the others.
#[derive(Clone, Copy, Debug)]
pub struct LeastLatency {
    /// The largest job that may hold the calling core where a device is open.
    pub inline_bytes_max: usize,
}

impl Policy for LeastLatency {
    fn name(&self) -> &'static str {
        "least-latency"
    }

    fn weighs_costs(&self) -> bool {
        true
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Choice {
        arms::choose(self, job, snapshot, draw)
    }
}

impl Weighs for LeastLatency {
    #[inline(always)]
    fn objective(
        &self,
        job: &JobFacts,
        snapshot: &Snapshot<'_>,
    ) -> Objective<impl Fn(&Arm) -> f64 + Copy> {
        let waiting = snapshot.waiting as i64 as f64;
        // One division for all places.
        let per_ns = snapshot.gap.map_or(0.0, |gap| 1.0 / arms::real(gap.0.max(1)));
        let left_ns = arms::time_left_ns(job);
        let cost = move |arm: &Arm| {
            let factor = if arm.latency_ns > left_ns { LATE_FACTOR } else { 1.0 };
            added_ns(arm, waiting, per_ns) * factor
        };
        Objective { inline_bytes_max: self.inline_bytes_max, latency_max: None, cost }
    }
}

/// The latency that this place adds, to all (ns): to those who wait for the core and to those who come, so many a
/// nanosecond.
#[inline(always)]
fn added_ns(arm: &Arm, waiting: f64, per_ns: f64) -> f64 {
    let turns = if arm.placement == Placement::Async { 1.0 } else { 0.0 };
    let come = COMES_BACK * arm.core_ns * per_ns;
    arm.latency_ns + arm.core_ns * (turns + waiting + come)
}

/// Who comes while the core is held comes for it twice: with the job, and when that is back from a device.
const COMES_BACK: f64 = 2.0;

/// A job may add so many times as much to all in order to keep its deadline. In the simulation, where every job has
/// one, up to 4 misses about as few at every load; from 8 on jobs make more of the others miss theirs than they keep.
const LATE_FACTOR: f64 = 4.0;

#[cfg(test)]
mod tests {
    use device::Class;
    use units::Nanos;

    use super::*;
    use crate::arms::tests::{NO_PROBE, device, job, software};
    use crate::placement::Reason;

    const POLICY: LeastLatency = LeastLatency { inline_bytes_max: 1_000 };

    /// Software takes 6 us; the device 5, 1 of them on the core.
    fn place(job: &JobFacts, waiting: usize, gap: Option<Nanos>) -> (usize, Placement) {
        let devices = [software(6_000), device(5_000, 1_000)];
        let choice = POLICY.place(job, &Snapshot { devices: &devices, waiting, gap }, NO_PROBE);
        assert_eq!(choice.reason, Reason::Policy);
        (choice.device(), choice.placement)
    }

    #[test]
    fn the_core_is_held_only_for_as_long_as_nobody_minds() {
        assert_eq!(place(&job(), 0, None), (1, Placement::Sync));
        assert_eq!(place(&job(), 1, None), (1, Placement::Async));
        // 2 * 5^2 / 60 us is less than another turn of 1 us, 2 * 5^2 / 40 is more.
        assert_eq!(place(&job(), 0, Some(Nanos::micros(60))), (1, Placement::Sync));
        assert_eq!(place(&job(), 0, Some(Nanos::micros(40))), (1, Placement::Async));
        assert_eq!(place(&job(), 1 << 40, Some(Nanos(0))), (1, Placement::Async));
    }

    #[test]
    fn a_long_queue_sends_jobs_to_software_and_a_deadline_to_what_meets_it() {
        let place = |time_left, estimated_ns| {
            let devices = [software(6_000), device(estimated_ns, 1_000)];
            let snapshot = Snapshot { waiting: 2, ..Snapshot::of(&devices) };
            POLICY.place(&JobFacts { time_left, ..job() }, &snapshot, NO_PROBE).device()
        };
        let left = |us| Some(Nanos::micros(us));
        assert_eq!((place(None, 14_000), place(None, 20_000)), (1, 0));
        assert_eq!((place(left(14), 14_000), place(left(13), 14_000)), (1, 0));
        assert_eq!((place(left(1), 14_000), place(left(1), 20_000)), (1, 0), "missed anyhow");
        assert_eq!((place(left(5), 5_000), place(left(6), 5_000)), (1, 1));
    }

    #[test]
    fn a_batch_job_yields_the_core_to_whoever_waits_for_it() {
        let batch = JobFacts { class: Class::Batch, ..job() };
        let place = |job: &JobFacts, waiting, depth| {
            let slow = device(60_000, 1_000);
            let devices = [software(6_000), crate::DeviceState { depth, ..slow }];
            let choice =
                POLICY.place(job, &Snapshot { waiting, ..Snapshot::of(&devices) }, NO_PROBE);
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
