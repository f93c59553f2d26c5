//! The costs of jobs on one device, by op or chain, learnt from completed jobs. Each of these kinds has a [`CostFit`].
//! This module also chooses which of a job's times is informative. It reads no clock and decides nothing.

use model::cost::{CostCurve, CostFit, Estimates, Observation};
use units::Nanos;

use crate::slot::OPS;

/// One device's costs.
#[derive(Default)]
pub(crate) struct Costs {
    /// The costs by kind of job ([`crate::slot::kind_of`]). Each is created with the first job of its kind.
    known: [Option<Box<Known>>; OPS],
}

/// The knowledge from jobs of one op.
pub(crate) struct Known {
    /// The estimates of the fit, which are used wherever costs are needed.
    estimates: Estimates,
    /// Whether the fit has seen enough jobs.
    is_enough: bool,
    /// The number of jobs that had come to the core at the last observation.
    learnt: u64,
    /// The time at which the fit was last called to decide whether to observe a job.
    asked: Nanos,
    /// The number of following jobs for which the fit need not be called.
    passes: u32,
    fit: CostFit,
}

impl Known {
    /// Returns whether the last observation of the op is so old that the cost counts as unknown. An arm that
    /// once looked too expensive for a probe, or too late for every deadline, is then tried again, and its
    /// next completion is observed.
    #[inline]
    pub(crate) fn is_forgotten(&self, arrivals: u64) -> bool {
        arrivals > self.learnt + FORGOTTEN
    }

    /// Returns the expected time from submission to completion, and the part of it for which the job holds the core.
    #[inline]
    pub(crate) fn expected_times(
        &self,
        bytes: usize,
        [depth_jobs, backlog_bytes]: [usize; 2],
    ) -> (Nanos, Nanos) {
        let (latency_ns, host_ns) = self.estimates.at(bytes, depth_jobs, backlog_bytes);
        (whole(latency_ns), whole(host_ns))
    }

    /// Returns the result of [`CostFit::due`]. For a steady device, every other call returns false at once.
    #[inline]
    fn tick(&mut self, now: Nanos) -> bool {
        if self.passes > 0 && now.since(self.asked) < ASK_AFTER {
            self.passes -= 1;
            return false;
        }
        self.passes = if self.fit.is_steady() { PASSES } else { 0 };
        self.asked = now;
        self.fit.due(now)
    }
}

/// The conditions that a job met at its submission to the device.
#[derive(Clone, Copy)]
pub(crate) struct SubmitSample {
    /// The time of the submission.
    pub(crate) at: Nanos,
    /// The time on the calling core until the call that submits the job returns.
    pub(crate) host: Nanos,
    /// The number of jobs that were in flight on the device.
    pub(crate) depth_jobs: usize,
    /// The sum of the sizes of the jobs that were in flight on the device, in bytes.
    pub(crate) backlog_bytes: usize,
}

impl Costs {
    /// Counts a job of this kind, and returns whether its cost should be recorded.
    #[inline]
    pub(crate) fn tick(&mut self, kind: usize, now: Nanos) -> bool {
        self.known[kind % OPS].as_mut().is_none_or(|known| known.tick(now))
    }

    /// Records the cost of a job that was not yet done at `before` and was done at `by`, and returns whether the
    /// estimates changed.
    ///
    /// If the two times are close, their middle counts as the end of the job. Otherwise the end is the
    /// expected time, limited to the range between the two times, because a core that polls late must not
    /// blame the device. Close times do not use this rule, because an expectation within the range would
    /// confirm itself. For example, the wrong assumption that a device serves jobs one by one was never
    /// corrected at loads at which jobs rarely overlap.
    ///
    /// `arrivals` is the number of jobs that came to the core so far. Old observations lose weight, because
    /// an arm that is not chosen is rarely probed.
    pub(crate) fn record(
        &mut self,
        (kind, bytes): (usize, usize),
        sample: &SubmitSample,
        [before, by]: [Nanos; 2],
        arrivals: u64,
    ) -> bool {
        let (low, high) = (before.since(sample.at), by.since(sample.at));
        let known = self.known[kind % OPS].get_or_insert_with(|| first(bytes, sample, high));
        let learnt = std::mem::replace(&mut known.learnt, arrivals);
        if arrivals.saturating_sub(learnt) > WHILE {
            known.fit.discount();
        }
        let (expected, _) = known.estimates.at(bytes, sample.depth_jobs, sample.backlog_bytes);
        let latency = match known.is_enough {
            _ if high.since(low).0 <= high.0 / CLOSE_DIVISOR => Nanos(low.0.midpoint(high.0)),
            true => whole(expected).clamp(low, high),
            false => high,
        };
        let SubmitSample { host, depth_jobs, backlog_bytes, .. } = *sample;
        let seen = Observation { at: by, bytes, latency, depth_jobs, backlog_bytes, host };
        let changes = known.fit.observe(&seen);
        if changes {
            known.estimates = Estimates::new(known.fit.curve());
        }
        known.is_enough = known.fit.curve().observations >= KNOWN_AFTER;
        changes
    }

    /// Records the cost of a job that held the core for all of its time.
    pub(crate) fn record_held(
        &mut self,
        job: (usize, usize),
        took: Nanos,
        now: Nanos,
        arrivals: u64,
    ) -> bool {
        // The difference stops at zero: `took` is from another clock and may be longer than this clock's time.
        let at = now.since(took);
        let sample = SubmitSample { at, host: took, depth_jobs: 0, backlog_bytes: 0 };
        self.record(job, &sample, [at + took; 2], arrivals)
    }

    /// Returns the knowledge about the kind of job, once some jobs have returned.
    #[inline]
    pub(crate) fn known(&self, kind: usize) -> Option<&Known> {
        self.known[kind % OPS].as_deref().filter(|known| known.is_enough)
    }
}

/// Converts to whole nanoseconds. Almost all times fit in 32 bits, and the conversion to 64 bits takes twice as long.
#[inline]
fn whole(ns: f64) -> Nanos {
    if ns < f64::from(u32::MAX) { Nanos(u64::from(ns as u32)) } else { seconds(ns) }
}

#[cold]
#[inline(never)]
fn seconds(ns: f64) -> Nanos {
    Nanos(ns as u64)
}

/// Creates a fit with the scale of the first job and a shape that later jobs correct.
fn first(bytes: usize, sample: &SubmitSample, took: Nanos) -> Box<Known> {
    let line = |ns: f64| {
        let scale = ns.clamp(1.0, SCALE_NS_MAX) / (SHAPE_BYTES + bytes as f64);
        (scale * SHAPE_BYTES, scale)
    };
    let turns = 1.0 + sample.depth_jobs as f64;
    let prior = CostCurve::prior(line(took.0 as f64 / turns), line(sample.host.0 as f64), 1.0);
    let fit = CostFit::new(prior.expect("within the bounds of a curve"));
    let estimates = Estimates::new(fit.curve());
    let (asked, passes) = (Nanos(0), 0);
    Box::new(Known { estimates, is_enough: false, learnt: 0, asked, passes, fit })
}

/// The size in bytes of a job that is assumed to need twice the time of an empty job.
const SHAPE_BYTES: f64 = 1_000.0;

/// The longest time of a job with which a curve fit may begin (ns): about a quarter of an hour.
const SCALE_NS_MAX: f64 = 1e12;

/// Two polls are close if the time between them is at most half of the job's time (`time / CLOSE_DIVISOR`).
/// With one poll per microsecond this holds for all jobs that take at least two microseconds.
const CLOSE_DIVISOR: u64 = 2;

/// The number of jobs for which the fit is skipped after each call, while a device is steady. With 1 it is
/// called for every other job, and in any case after [`ASK_AFTER`]. Of the jobs for which it is called, the
/// fit observes one in 16, and also the first job after a millisecond without an observation. Once an
/// observation shows that the device has changed, no job is skipped. So a change is found at most 16 jobs
/// later than without skipping. At 400,000 jobs per second in virtual time, the 99th percentile of
/// `LeastLatency` was 1.05 times that of offloading everything with a value of 3, and 1.03 times with 1.
const PASSES: u32 = 1;
const ASK_AFTER: Nanos = Nanos::micros(500);

/// The number of observations after which a cost is known. One job says too little, and an arm that looks bad
/// after it is rarely tried again.
const KNOWN_AFTER: u64 = 4;

/// The known cost of an op on a device is doubted after this many jobs on the core without an observation of the op
/// there.
const WHILE: u64 = 1_000;

/// The number of jobs without an observation after which a cost is forgotten. An arm with unknown costs gets
/// jobs for at most a quarter of its queue before the first job returns. With a queue of 256 jobs, one job in
/// a thousand thus goes to an arm that is still slow.
const FORGOTTEN: u64 = 64 * WHILE;

#[cfg(test)]
mod tests {
    use units::Op;

    use super::*;

    const OP: usize = Op::Compress.index();
    const JOB: (usize, usize) = (OP, 4_096);

    fn sample(depth_jobs: usize) -> SubmitSample {
        SubmitSample {
            at: Nanos(0),
            host: Nanos(300),
            depth_jobs,
            backlog_bytes: depth_jobs * 4_096,
        }
    }

    fn trained(took: u64) -> Costs {
        let mut costs = Costs::default();
        for _ in 0..50 {
            costs.record(JOB, &sample(0), [Nanos(took); 2], 0);
        }
        costs
    }

    fn expected_times(costs: &Costs, op: usize) -> Option<(Nanos, Nanos)> {
        costs.known(op).map(|known| known.expected_times(4_096, [0, 0]))
    }

    fn expected(costs: &Costs) -> u64 {
        expected_times(costs, OP).expect("known").0.0
    }

    #[test]
    fn a_device_is_known_after_some_jobs_of_the_op() {
        let mut costs = Costs::default();
        for _ in 0..KNOWN_AFTER {
            assert_eq!(expected_times(&costs, OP), None);
            costs.record(JOB, &sample(0), [Nanos(0), Nanos(6_000)], 0);
        }
        let (latency, host) = expected_times(&costs, OP).expect("known");
        assert!(
            latency.0.abs_diff(6_000) < 300 && host.0.abs_diff(300) < 30,
            "{latency:?} {host:?}"
        );
        assert_eq!(expected_times(&costs, Op::Decompress.index()), None);
    }

    #[test]
    fn only_what_lies_outside_of_two_polls_is_an_error() {
        let mut costs = trained(6_000);
        let before = expected(&costs);
        for _ in 0..50 {
            costs.record(JOB, &sample(0), [Nanos(1_000), Nanos(90_000)], 0);
        }
        assert!(expected(&costs).abs_diff(before) < 100, "{}", expected(&costs));
        for _ in 0..50 {
            costs.record(JOB, &sample(0), [Nanos(9_000), Nanos(90_000)], 0);
        }
        assert!(expected(&costs).abs_diff(9_000) < 500, "{}", expected(&costs));
    }

    #[test]
    fn a_job_between_two_close_polls_is_measured() {
        let mut costs = trained(6_000);
        for _ in 0..100 {
            costs.record(JOB, &sample(0), [Nanos(5_000), Nanos(9_000)], 0);
        }
        assert!(expected(&costs).abs_diff(7_000) < 300, "{}", expected(&costs));
    }

    #[test]
    fn a_steady_device_is_looked_at_half_as_often() {
        let mut costs = Costs::default();
        for _ in 0..1_100 {
            costs.record(JOB, &sample(0), [Nanos(6_000); 2], 0);
        }
        let looks = |costs: &mut Costs| (0..320).filter(|_| costs.tick(OP, Nanos(9_000))).count();
        assert_eq!(looks(&mut costs), 10);
        costs.record(JOB, &sample(0), [Nanos(60_000); 2], 0);
        assert!((19..=20).contains(&looks(&mut costs)));
    }

    #[test]
    fn what_holds_the_core_costs_it_all_of_its_time() {
        let mut costs = Costs::default();
        for _ in 0..50 {
            costs.record_held(JOB, Nanos(7_000), Nanos(9_000), 0);
        }
        let (latency, host) = expected_times(&costs, OP).expect("known");
        assert!(latency.0.abs_diff(7_000) < 300 && host.0.abs_diff(7_000) < 300);
    }

    #[test]
    fn costs_without_new_jobs_are_forgotten() {
        let mut costs = trained(60_000);
        let is_forgotten = |costs: &Costs, at| costs.known(OP).expect("known").is_forgotten(at);
        assert!(!is_forgotten(&costs, FORGOTTEN) && is_forgotten(&costs, FORGOTTEN + 1));
        costs.record(JOB, &sample(0), [Nanos(6_000); 2], FORGOTTEN + 1);
        assert!(!is_forgotten(&costs, FORGOTTEN + 2));
    }

    #[test]
    fn what_was_learnt_long_ago_gives_way_sooner() {
        let after = |arrivals: u64| {
            let mut costs = trained(60_000);
            for jobs in 1..=12 {
                costs.record(JOB, &sample(0), [Nanos(6_000); 2], jobs * arrivals);
            }
            expected(&costs)
        };
        assert!(after(2 * WHILE) < 12_000, "{}", after(2 * WHILE));
        assert!(after(2 * WHILE) * 2 < after(1), "{} against {}", after(2 * WHILE), after(1));
    }
}
