//! Fits a [`CostCurve`] to observations while jobs run. It needs constant memory and does not allocate. The
//! observations carry the time.

use units::Nanos;

use super::bank::Bank;
use super::curve::{CostCurve, KNOT_BYTES, KNOTS, SizeCurve, place};

/// The hypotheses about the number of jobs that a device serves at once.
const LANES: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0];
/// The age at which an observation weighs 1/e of a new one (ns).
const MEMORY_NS: f64 = 300e6;
/// The largest ratio of the weights of two successive observations. So an observation weighs at least 7/8 of the next
/// one, however rare jobs are.
const GROWTH_MAX: f64 = 8.0 / 7.0;
/// With fewer observations than this, the memory is also limited in proportion to their number.
const COLD: u64 = 1_024;
/// Up to this number of observations, the fitted lines of the time over the size are updated after each observation.
/// Later they are updated after `SOLVE_EVERY` observations or after `SOLVE_AFTER`.
const SOLVE_ALWAYS: u64 = 64;
const SOLVE_EVERY: u32 = 32;
const SOLVE_AFTER: Nanos = Nanos::millis(10);
/// If the mean of about the last eight relative residuals exceeds this, the device counts as changed. Then
/// every job is observed, the memory is as short as possible, and residuals count up to `CUT_CHANGED`.
const BIAS_CHANGED: f64 = 0.18;
const BIAS_NEW: f64 = 1.0 / 8.0;
/// The mean residual up to which the device is steady. Above it the device may be about to change.
const BIAS_STEADY: f64 = BIAS_CHANGED / 2.0;
/// The limit of a single residual in the mean that is compared with `BIAS_CHANGED`. Ten unusual jobs in a row
/// then show that the device has changed, but a few outliers among other jobs do not.
const BIAS_CUT: f64 = 0.25;
const CUT_CHANGED: f64 = 1.0;
/// The weight of all earlier observations together after a call of `discount`, as a number of observations.
const WEIGHT_DISCOUNTED: f64 = 4.0;
/// A residual counts up to this many mean residuals. The limit is at least `CUT_MIN` of the prediction and at most
/// `CUT_MAX`.
const CUT_RESIDUALS: f64 = 3.0;
const CUT_MIN: f64 = 0.25;
const CUT_MAX: f64 = 30.0;
/// Size classes are corrected from this number of observations on, if the spread is below `CORRECT_SPREAD_MAX` and the
/// device is not changing. The line through all sizes, from which a correction deviates, must be known first.
const CORRECT_FROM: u64 = 32;
const CORRECT_SPREAD_MAX: f64 = 0.5;
const CORRECTION_GAIN_MIN: f64 = 1.0 / 32.0;
const CORRECTION_MAX: f64 = 8.0;
/// Once the curve is known, one job in `SAMPLE_EVERY` is observed, and also the first job after `SAMPLE_AFTER` without
/// an observation. The first rule bounds the cost if jobs are frequent, the second bounds the delay if they are rare.
const SAMPLE_EVERY: u32 = 16;
const SAMPLE_AFTER: Nanos = Nanos::millis(1);

/// One job that a device completed, and the state of the device when the job was submitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The time at which the job completed, on any monotonic clock.
    pub at: Nanos,
    /// The size of the job (bytes).
    pub bytes: usize,
    /// The time from submission to completion.
    pub latency: Nanos,
    /// The number of other jobs in the device when the job was submitted.
    pub depth_jobs: usize,
    /// The total size of the other jobs in the device when the job was submitted (bytes).
    pub backlog_bytes: usize,
    /// The host time that was spent on the job. On the calling core it equals `latency`.
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
    /// `is_settled` is true if a sample of the jobs is enough. `is_steady` is true if a smaller sample is enough.
    is_settled: bool,
    is_steady: bool,
    curve: CostCurve,
}

impl CostFit {
    /// Makes a fit that starts with `prior`.
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

    /// Returns the curve as of its last update, at most 32 observations or 10 ms behind the newest job.
    pub fn curve(&self) -> &CostCurve {
        &self.curve
    }

    /// Returns whether the job that completes at `now` should be observed. Every job should be observed while
    /// little is known or the device changes. Later, one job in 16 should be, and the first job
    /// after a millisecond without an observation. Call this function once per job.
    #[inline]
    pub fn due(&mut self, now: Nanos) -> bool {
        if self.until_due == 0 || !self.is_settled || now.since(self.last) >= SAMPLE_AFTER {
            self.until_due = SAMPLE_EVERY - 1;
            return true;
        }
        self.until_due -= 1;
        false
    }

    /// Returns whether the cost is steady, so that a smaller sample of jobs is enough. The cost is steady if
    /// the last job took the usual time and the mean of the recent jobs is as expected.
    #[inline]
    pub fn is_steady(&self) -> bool {
        self.is_steady
    }

    /// Reduces the weight of all observations so far, because they may no longer hold. Call it for a device that has
    /// done other jobs, or none, for a long time.
    pub fn discount(&mut self) {
        self.latency.discount();
        self.host.discount();
        self.settle();
    }

    /// Computes whether the fit is settled. The result is stored because it is read for every job and changes only
    /// here.
    fn settle(&mut self) {
        self.is_settled = self.curve.observations >= COLD
            && self.latency.spread() < CORRECT_SPREAD_MAX
            && !self.latency.has_changed();
        self.is_steady = self.is_settled && self.latency.is_steady();
    }

    /// Adds one job that succeeded. Returns whether the curve was updated. Do not add failed, cancelled or
    /// timed-out jobs, because their times say nothing about the cost.
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

/// Returns the weight of a new observation relative to the previous observation.
fn growth(elapsed: Nanos, count: u64) -> f64 {
    let by_time = (1.0 + elapsed.0 as f64 / MEMORY_NS).min(GROWTH_MAX);
    if count >= COLD {
        return by_time;
    }
    let memory = 8.0 + count as f64 / 4.0;
    by_time.max(memory / (memory - 1.0))
}

/// A straight line that gives the time for a size, fitted under several hypotheses about the number of jobs served at
/// once, and the deviation of each size class from this line.
#[derive(Clone, Copy, Debug)]
struct Fit<const K: usize> {
    bank: Bank<K>,
    /// The correction factor at each bound of the size classes: the time divided by the line's time.
    correction: [f64; KNOTS],
    /// The number of observations near each bound, weighted by nearness.
    seen: [f64; KNOTS],
    /// The mean absolute residual after the cut is `residuals / weight`.
    residuals: f64,
    weight: f64,
    /// `bias` is the mean of the recent residuals after the cut. `is_usual` is true if the last residual needed no cut.
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

    /// Returns the mean absolute residual after the cut, as a fraction of the prediction.
    fn spread(&self) -> f64 {
        self.residuals / self.weight
    }

    /// Returns whether the recent jobs as a group took less time, or more time, than expected.
    fn has_changed(&self) -> bool {
        self.bias.abs() > BIAS_CHANGED
    }

    fn is_steady(&self) -> bool {
        self.is_usual && self.bias.abs() < BIAS_STEADY
    }

    fn discount(&mut self) {
        let growth = (self.weight / WEIGHT_DISCOUNTED).max(1.0);
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
        let open = changed || self.weight <= WEIGHT_DISCOUNTED;
        let cut = if open { cut.max(CUT_CHANGED) } else { cut };
        let growth = if changed { growth.max(GROWTH_MAX) } else { growth };
        self.bank.forget(growth);
        // On a line through zero an empty job has a predicted time of zero, to which no residual can be relative. So it
        // counts as one byte.
        let residual = self.bank.add(y_ns, bytes.max(1) as f64, (depth, mean_bytes), cut);
        self.bias += BIAS_NEW * (residual.clamp(-BIAS_CUT, BIAS_CUT) - self.bias);
        self.is_usual = residual.abs() < cut;
        self.residuals = self.residuals / growth + residual.abs();
        self.weight = self.weight / growth + 1.0;
        if count >= CORRECT_FROM && spread < CORRECT_SPREAD_MAX && !changed {
            self.correct(y_ns, self.bank.answer().wait_ns(depth, mean_bytes), bytes, cut);
        }
    }

    /// Moves the correction at the two bounds of the size's class towards the observed service time.
    fn correct(&mut self, y_ns: f64, wait_ns: f64, bytes: usize, cut: f64) {
        let (class, along) = place(bytes);
        let along = along.min(1.0);
        let (low, high) = (self.knot_ns(class), self.knot_ns(class + 1));
        let predicted = low + (high - low) * along;
        // After a long wait the error of the wait is larger than the deviation of the service time.
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
