//! The online fit: observations go in, and a [`CostCurve`] comes out. It has constant memory and makes no allocation.
//! Time comes with the observations.

use units::Nanos;

use super::bank::Bank;
use super::curve::{CostCurve, KNOT_BYTES, KNOTS, SizeCurve, place};

/// The numbers of jobs that a device may serve at once.
const LANES: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0];
/// An observation of this age weighs 1/e of a new one.
const MEMORY_NS: f64 = 300e6;
/// However rare jobs are, an observation weighs at least 7/8 of the next.
const GROWTH_MAX: f64 = 8.0 / 7.0;
/// The number of observations up to which memory is also bounded by their number, so that a wrong start is forgotten.
const COLD: u64 = 1_024;
/// The number of observations up to which lines are brought up to date with every one. After that it happens after so
/// many or so long.
const SOLVE_ALWAYS: u64 = 64;
const SOLVE_EVERY: u32 = 32;
const SOLVE_AFTER: Nanos = Nanos::millis(10);
/// When the mean of about the last eight residuals is as far off as this, the device has changed: from there on every
/// job is observed, memory is as short as it may be, and residuals count up to `CUT_CHANGED`.
const BIAS_CHANGED: f64 = 0.18;
const BIAS_NEW: f64 = 1.0 / 8.0;
/// Below this the device may be on the way to a change.
const BIAS_STEADY: f64 = BIAS_CHANGED / 2.0;
/// No residual counts for more than this in that mean: ten jobs in a row say that the device has changed, some
/// outliers among others do not.
const BIAS_CUT: f64 = 0.25;
const CUT_CHANGED: f64 = 1.0;
/// The number of observations that a doubted fit weighs.
const DOUBTED: f64 = 4.0;
/// A residual counts up to this many mean residuals, and always up to `CUT_MIN` of the prediction.
const CUT_RESIDUALS: f64 = 3.0;
const CUT_MIN: f64 = 0.25;
const CUT_MAX: f64 = 30.0;
/// The number of observations from which size classes are corrected: once the line is known, and not while it moves.
const CORRECT_FROM: u64 = 32;
const CORRECT_SPREAD_MAX: f64 = 0.5;
const CORRECTION_GAIN_MIN: f64 = 1.0 / 32.0;
const CORRECTION_MAX: f64 = 8.0;
/// Once the curve is known, one job in so many is observed, and one after so long without any. The first bounds the
/// cost if jobs are many, the second the delay if they are few.
const SAMPLE_EVERY: u32 = 16;
const SAMPLE_AFTER: Nanos = Nanos::millis(1);

/// One job that a device did, and the state that it met when it was submitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The time when it completed, on any clock that does not go back.
    pub at: Nanos,
    /// Its size (bytes).
    pub bytes: usize,
    /// The time from submission to completion.
    pub latency: Nanos,
    /// The number of jobs inside the device when it was submitted, itself not counted.
    pub depth_jobs: usize,
    /// Their sizes together (bytes).
    pub backlog_bytes: usize,
    /// Host time spent on it; on the calling core, the same as `latency`.
    pub host: Nanos,
}

/// Learns the cost of one op on one device.
#[derive(Clone, Copy, Debug)]
pub struct CostFit {
    latency: Fit<{ LANES.len() }>,
    host: Fit<1>,
    last: Nanos,
    solved: Nanos,
    unsolved: u32,
    until_due: u32,
    /// True if some of the jobs say enough, and if fewer do.
    is_settled: bool,
    is_steady: bool,
    curve: CostCurve,
}

impl CostFit {
    /// Makes a fit that knows nothing but `prior`.
    pub fn new(prior: CostCurve) -> Self {
        let service = (prior.ahead_fixed_ns, prior.ahead_ns_per_byte);
        let class = prior.host.classes()[0];
        Self {
            latency: Fit::new(LANES, prior.lanes, service),
            host: Fit::new([1.0], 1.0, (class.fixed_ns, class.ns_per_byte)),
            last: Nanos(0),
            solved: Nanos(0),
            unsolved: 0,
            until_due: 0,
            is_settled: false,
            is_steady: false,
            curve: CostCurve { observations: 0, spread: 1.0, ..prior },
        }
    }

    /// Returns the present knowledge. It lags by at most 32 observations, or by those of 10 ms.
    pub fn curve(&self) -> &CostCurve {
        &self.curve
    }

    /// Returns whether the job that completes at `now` is worth observing. Every job is while little is known or the
    /// device changes. After that one in 16 is, or the first after a millisecond without one. Call it once per job.
    #[inline]
    pub fn due(&mut self, now: Nanos) -> bool {
        if self.until_due == 0 || !self.is_settled || now.since(self.last) >= SAMPLE_AFTER {
            self.until_due = SAMPLE_EVERY - 1;
            return true;
        }
        self.until_due -= 1;
        false
    }

    /// Returns whether the last job took as long as such jobs do, and those before it took on average what was
    /// expected. Then fewer of them say as much.
    #[inline]
    pub fn is_steady(&self) -> bool {
        self.is_steady
    }

    /// Says that the observations so far may no longer hold: together they weigh little against new ones. This is for a
    /// device that did other jobs than these, or none, for long.
    pub fn doubt(&mut self) {
        self.latency.doubt();
        self.host.doubt();
        self.settle();
    }

    /// Computes whether the fit is settled. Every job asks for it, and it changes only here.
    fn settle(&mut self) {
        self.is_settled = self.curve.observations >= COLD
            && self.latency.spread() < CORRECT_SPREAD_MAX
            && !self.latency.has_changed();
        self.is_steady = self.is_settled && self.latency.is_steady();
    }

    /// Takes one job that came back well, and returns whether the curve is another one now. Failed, cancelled or
    /// timed-out jobs say nothing about cost.
    pub fn observe(&mut self, seen: &Observation) -> bool {
        let elapsed =
            if self.curve.observations == 0 { Nanos(0) } else { seen.at.since(self.last) };
        self.last = Nanos(seen.at.0.max(self.last.0));
        let count = self.curve.observations;
        let growth = growth(elapsed, count);
        let depth = seen.depth_jobs as f64;
        let mean_bytes = if seen.depth_jobs == 0 { 0.0 } else { seen.backlog_bytes as f64 / depth };
        self.latency.observe(seen.latency, seen.bytes, (depth, mean_bytes), (growth, count));
        self.host.observe(seen.host, seen.bytes, (0.0, 0.0), (growth, count));
        self.curve.observations += 1;
        self.unsolved += 1;
        let waited = seen.at.since(self.solved) >= SOLVE_AFTER;
        let changed = self.latency.has_changed();
        self.settle();
        let is_due = count < SOLVE_ALWAYS || self.unsolved >= SOLVE_EVERY || waited || changed;
        if is_due {
            self.unsolved = 0;
            self.solved = seen.at;
            self.publish();
        }
        is_due
    }

    fn publish(&mut self) {
        self.latency.bank.solve();
        self.host.bank.solve();
        let answer = self.latency.bank.answer();
        self.curve = CostCurve {
            service: self.latency.by_size(),
            host: self.host.by_size(),
            lanes: answer.lanes,
            ahead_fixed_ns: answer.fixed_ns,
            ahead_ns_per_byte: answer.ns_per_byte,
            spread: self.latency.spread(),
            observations: self.curve.observations,
        };
    }
}

/// Returns how much more a new observation weighs than the one before.
fn growth(elapsed: Nanos, count: u64) -> f64 {
    let by_time = (1.0 + elapsed.0 as f64 / MEMORY_NS).min(GROWTH_MAX);
    if count >= COLD {
        return by_time;
    }
    let memory = 8.0 + count as f64 / 4.0;
    by_time.max(memory / (memory - 1.0))
}

/// A line under hypotheses, and the deviations of single size classes from it.
#[derive(Clone, Copy, Debug)]
struct Fit<const K: usize> {
    bank: Bank<K>,
    /// The times over the line, at the bounds of size classes.
    correction: [f64; KNOTS],
    /// The observations near each bound.
    seen: [f64; KNOTS],
    /// The mean size of the cut residuals, as sums.
    residuals: f64,
    weight: f64,
    /// The mean of the last cut residuals, and whether the last one needed no cut.
    bias: f64,
    is_usual: bool,
}

impl<const K: usize> Fit<K> {
    fn new(hypotheses: [f64; K], lanes: f64, (fixed_ns, ns_per_byte): (f64, f64)) -> Self {
        Self {
            bank: Bank::new(hypotheses, lanes, fixed_ns, ns_per_byte),
            correction: [1.0; KNOTS],
            seen: [0.0; KNOTS],
            residuals: 4.0,
            weight: 4.0,
            bias: 0.0,
            is_usual: false,
        }
    }

    /// Returns the mean of the cut residuals, as a fraction of the prediction.
    fn spread(&self) -> f64 {
        self.residuals / self.weight
    }

    /// Returns whether recent jobs were all done sooner, or all later, than expected.
    fn has_changed(&self) -> bool {
        self.bias.abs() > BIAS_CHANGED
    }

    fn is_steady(&self) -> bool {
        self.is_usual && self.bias.abs() < BIAS_STEADY
    }

    fn doubt(&mut self) {
        let growth = (self.weight / DOUBTED).max(1.0);
        self.bank.forget(growth);
        self.residuals /= growth;
        self.weight /= growth;
    }

    fn observe(
        &mut self,
        time: Nanos,
        bytes: usize,
        (depth, mean_bytes): (f64, f64),
        (growth, count): (f64, u64),
    ) {
        let y_ns = (time.0 as f64).max(1.0);
        let spread = self.spread();
        let cut = (CUT_RESIDUALS * spread).clamp(CUT_MIN, CUT_MAX);
        let changed = self.has_changed();
        let open = changed || self.weight <= DOUBTED;
        let cut = if open { cut.max(CUT_CHANGED) } else { cut };
        let growth = if changed { growth.max(GROWTH_MAX) } else { growth };
        self.bank.forget(growth);
        // On a line through zero an empty job is expected to take no time, and no residual is relative to that.
        let residual = self.bank.add(y_ns, bytes.max(1) as f64, (depth, mean_bytes), cut);
        self.bias += BIAS_NEW * (residual.clamp(-BIAS_CUT, BIAS_CUT) - self.bias);
        self.is_usual = residual.abs() < cut;
        self.residuals = self.residuals / growth + residual.abs();
        self.weight = self.weight / growth + 1.0;
        if count >= CORRECT_FROM && spread < CORRECT_SPREAD_MAX && !changed {
            self.correct(y_ns, self.bank.answer().wait_ns(depth, mean_bytes), bytes, cut);
        }
    }

    /// Moves the two bounds of the size's class towards the service time seen.
    fn correct(&mut self, y_ns: f64, wait_ns: f64, bytes: usize, cut: f64) {
        let (class, along) = place(bytes);
        let along = along.min(1.0);
        let (low, high) = (self.knot_ns(class), self.knot_ns(class + 1));
        let predicted = low + (high - low) * along;
        // Behind a queue the job's own time is lost in the error of the wait.
        if predicted <= 0.0 || wait_ns > 0.25 * predicted {
            return;
        }
        let residual = ((y_ns - wait_ns) / predicted - 1.0).clamp(-cut, cut);
        for (knot, nearness) in [(class, 1.0 - along), (class + 1, along)] {
            self.seen[knot] += nearness;
            let gain = (1.0 / (1.0 + self.seen[knot])).max(CORRECTION_GAIN_MIN);
            let moved = self.correction[knot] * (1.0 + gain * nearness * residual);
            self.correction[knot] = moved.clamp(1.0 / CORRECTION_MAX, CORRECTION_MAX);
        }
    }

    fn knot_ns(&self, knot: usize) -> f64 {
        self.bank.answer().service_ns(KNOT_BYTES[knot]) * self.correction[knot]
    }

    fn by_size(&self) -> SizeCurve {
        SizeCurve::from_knots(std::array::from_fn(|knot| self.knot_ns(knot)))
    }
}
