//! What jobs cost on one device, by op, as those that came back teach: a [`CostFit`] each, and which of a job's times
//! says something. It looks at no clock and decides nothing.

use model::cost::{CostCurve, CostFit, Observation};
use units::{Nanos, Op};

use crate::slot::OPS;

/// One device's costs.
#[derive(Default)]
pub(crate) struct Costs {
    /// Made with an op's first job.
    fits: [Option<Box<CostFit>>; OPS],
    /// When each last learnt something, in jobs that came to the core.
    learnt: [u64; OPS],
}

/// What a job met when it was handed to the device.
#[derive(Clone, Copy)]
pub(crate) struct Met {
    /// When that was.
    pub(crate) at: Nanos,
    /// What it took of the core until it is back.
    pub(crate) host: Nanos,
    /// Jobs that were inside.
    pub(crate) depth_jobs: usize,
    /// Their sizes together.
    pub(crate) backlog_bytes: usize,
}

impl Costs {
    /// Whether what the next job of this op takes is worth a look; asked once a job.
    #[inline]
    pub(crate) fn due(&mut self, op: Op, now: Nanos) -> bool {
        self.fits[op.index() % OPS].as_mut().is_none_or(|fit| fit.due(now))
    }

    /// A job was not yet done at `before`, and was at `by`. Where those are close, it was done in between. Else what
    /// the device is expected to take is wrong only as far as it lies outside of that: a core that polls late must not
    /// blame the device. (Not also where they are close: what is right whenever it may be confirms itself. A device
    /// that was taken to do one job after the other stayed that, at loads at which few jobs met another there.)
    ///
    /// `arrivals` jobs came to the core so far: what was learnt long ago says little, and the probes of a place that is
    /// not chosen are rare.
    pub(crate) fn learn(
        &mut self,
        (op, bytes): (Op, usize),
        met: &Met,
        [before, by]: [Nanos; 2],
        arrivals: u64,
    ) {
        let learnt = std::mem::replace(&mut self.learnt[op.index() % OPS], arrivals);
        let (low, high) = (before.since(met.at), by.since(met.at));
        let fit = self.fits[op.index() % OPS].get_or_insert_with(|| first(bytes, met, high));
        if arrivals.saturating_sub(learnt) > WHILE {
            fit.doubt();
        }
        let expected = fit.curve().estimate(bytes, met.depth_jobs, met.backlog_bytes);
        let is_known = fit.curve().observations >= KNOWN_AFTER;
        let latency = match is_known {
            _ if high.since(low).0 <= high.0 / CLOSE_DIVISOR => Nanos(low.0.midpoint(high.0)),
            true => Nanos(expected as u64).clamp(low, high),
            false => high,
        };
        let Met { host, depth_jobs, backlog_bytes, .. } = *met;
        fit.observe(&Observation { at: by, bytes, latency, depth_jobs, backlog_bytes, host });
    }

    /// A job held the core for all of its time.
    pub(crate) fn learn_held(&mut self, job: (Op, usize), took: Nanos, now: Nanos, arrivals: u64) {
        // From zero on: `took` is from another clock and may be longer than this one's time.
        let at = now.since(took);
        let met = Met { at, host: took, depth_jobs: 0, backlog_bytes: 0 };
        self.learn(job, &met, [at + took; 2], arrivals);
    }

    /// Whether nothing was learnt of the op for so long that no more than nothing is known: a place that once looked
    /// too bad for a probe, or too late for every deadline, is tried again, and the next job that comes back counts.
    #[inline]
    pub(crate) fn is_forgotten(&self, op: Op, arrivals: u64) -> bool {
        arrivals.saturating_sub(self.learnt[op.index() % OPS]) > FORGOTTEN
    }

    /// Expected time from submission to completion, and what of it the core is held, once some jobs have come back.
    #[inline]
    pub(crate) fn of(
        &self,
        op: Op,
        bytes: usize,
        [depth_jobs, backlog_bytes]: [usize; 2],
    ) -> Option<(Nanos, Nanos)> {
        let curve = self.fits[op.index() % OPS].as_ref()?.curve();
        let known = curve.observations >= KNOWN_AFTER;
        let ns = |ns: f64| Nanos(ns as u64);
        known.then(|| {
            (ns(curve.estimate(bytes, depth_jobs, backlog_bytes)), ns(curve.host.at(bytes)))
        })
    }
}

/// A fit of the scale that the first job says, and of a shape that later ones correct.
fn first(bytes: usize, met: &Met, took: Nanos) -> Box<CostFit> {
    let line = |ns: f64| {
        let scale = ns.clamp(1.0, SCALE_NS_MAX) / (SHAPE_BYTES + bytes as f64);
        (scale * SHAPE_BYTES, scale)
    };
    let turns = 1.0 + met.depth_jobs as f64;
    let prior = CostCurve::prior(line(took.0 as f64 / turns), line(met.host.0 as f64), 1.0);
    Box::new(CostFit::new(prior.expect("within the bounds of a curve")))
}

/// A job of so many bytes is taken to need twice what one of none does.
const SHAPE_BYTES: f64 = 1_000.0;

/// A quarter of an hour.
const SCALE_NS_MAX: f64 = 1e12;

/// Two polls are close where this part of a job's time, or less, lies between them: with one in a microsecond, for all
/// that takes two.
const CLOSE_DIVISOR: u64 = 2;

/// One job says too little, and what looks bad after it is rarely tried again.
const KNOWN_AFTER: u64 = 4;

/// After so many jobs anywhere without one that taught something, what was learnt is doubted.
const WHILE: u64 = 1_000;

/// After so many it is forgotten. What is not known gets a quarter of a queue of jobs at most before the first is back:
/// of a queue of 256, one job in a thousand goes to a place that is as bad as it was.
const FORGOTTEN: u64 = 64 * WHILE;

#[cfg(test)]
mod tests {
    use super::*;

    const OP: Op = Op::Compress;
    const JOB: (Op, usize) = (OP, 4_096);

    fn met(depth_jobs: usize) -> Met {
        Met { at: Nanos(0), host: Nanos(300), depth_jobs, backlog_bytes: depth_jobs * 4_096 }
    }

    fn taught(took: u64) -> Costs {
        let mut costs = Costs::default();
        (0..50).for_each(|_| costs.learn(JOB, &met(0), [Nanos(took); 2], 0));
        costs
    }

    fn expected(costs: &Costs) -> u64 {
        costs.of(OP, 4_096, [0, 0]).expect("known").0.0
    }

    #[test]
    fn a_device_is_known_after_some_jobs_of_the_op() {
        let mut costs = Costs::default();
        for _ in 0..KNOWN_AFTER {
            assert_eq!(costs.of(OP, 4_096, [0, 0]), None);
            costs.learn(JOB, &met(0), [Nanos(0), Nanos(6_000)], 0);
        }
        let (latency, host) = costs.of(OP, 4_096, [0, 0]).expect("known");
        assert!(
            latency.0.abs_diff(6_000) < 300 && host.0.abs_diff(300) < 30,
            "{latency:?} {host:?}"
        );
        assert_eq!(costs.of(Op::Decompress, 4_096, [0, 0]), None);
    }

    #[test]
    fn only_what_lies_outside_of_two_polls_is_an_error() {
        let mut costs = taught(6_000);
        let before = expected(&costs);
        for _ in 0..50 {
            costs.learn(JOB, &met(0), [Nanos(1_000), Nanos(90_000)], 0);
        }
        assert!(expected(&costs).abs_diff(before) < 100, "{}", expected(&costs));
        for _ in 0..50 {
            costs.learn(JOB, &met(0), [Nanos(9_000), Nanos(90_000)], 0);
        }
        assert!(expected(&costs).abs_diff(9_000) < 500, "{}", expected(&costs));
    }

    #[test]
    fn a_job_found_between_two_close_polls_is_not_what_was_expected() {
        let mut costs = taught(6_000);
        for _ in 0..100 {
            costs.learn(JOB, &met(0), [Nanos(5_000), Nanos(9_000)], 0);
        }
        assert!(expected(&costs).abs_diff(7_000) < 300, "{}", expected(&costs));
    }

    #[test]
    fn what_holds_the_core_costs_it_all_of_its_time() {
        let mut costs = Costs::default();
        (0..50).for_each(|_| costs.learn_held(JOB, Nanos(7_000), Nanos(9_000), 0));
        let (latency, host) = costs.of(OP, 4_096, [0, 0]).expect("known");
        assert!(latency.0.abs_diff(7_000) < 300 && host.0.abs_diff(7_000) < 300);
    }

    #[test]
    fn what_nothing_was_learnt_of_for_long_is_forgotten_until_the_next_job() {
        let mut costs = taught(60_000);
        assert!(!costs.is_forgotten(OP, FORGOTTEN) && costs.is_forgotten(OP, FORGOTTEN + 1));
        costs.learn(JOB, &met(0), [Nanos(6_000); 2], FORGOTTEN + 1);
        assert!(!costs.is_forgotten(OP, FORGOTTEN + 2));
    }

    #[test]
    fn what_was_learnt_long_ago_gives_way_sooner() {
        let after = |arrivals: u64| {
            let mut costs = taught(60_000);
            for jobs in 1..=12 {
                costs.learn(JOB, &met(0), [Nanos(6_000); 2], jobs * arrivals);
            }
            expected(&costs)
        };
        assert!(after(2 * WHILE) < 12_000, "{}", after(2 * WHILE));
        assert!(after(2 * WHILE) * 2 < after(1), "{} against {}", after(2 * WHILE), after(1));
    }
}
