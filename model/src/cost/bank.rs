//! Fits a straight line that gives a job's service time for its size, under several hypotheses about the number of
//! lanes, which is the number of jobs that a device serves at once. The time y of a job from submission to completion
//! is `y = fixed * x1 + slope * x2`. Here x1 is 1 plus the number of service times for which the job waits, and x2 is
//! the size of the job plus the sizes for which it waits. The fit is least squares of the relative error. It forgets
//! old observations and cuts off large residuals. The data are arrays over the hypotheses, so that one observation
//! takes a few vector operations per array.

use super::curve::turns;

/// A line's scale is its value at this size (bytes), and its shape is the line divided by its scale.
/// Observations are weighted relative to the shape, so that the weights do not depend on the scale.
const REFERENCE_BYTES: f64 = 4_096.0;
/// Two sizes (bytes) at which a line keeps its shape as long as no observation contradicts it.
const ANCHOR_BYTES: [f64; 2] = [64.0, 65_536.0];
/// The weight of the current shape in a fit. It is this number of observations, plus `ANCHOR_SHARE` of the observations
/// in memory.
const ANCHOR_WEIGHT: f64 = 0.25;
const ANCHOR_SHARE: f64 = 0.002;
/// A hypothesis becomes the best one if its squared error is below this fraction of the current best's.
const TAKE_OVER: f64 = 0.85;
/// The gain is the weight of a new observation. The gain grows with time, because that is cheaper than reducing the
/// weight of all old observations. Above this limit, all sums are divided by the gain, which then becomes 1.
const GAIN_MAX: f64 = 1e60;

/// An estimate of the number of jobs that a device serves at once (`lanes`), and of the service time as a straight line
/// over the size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) lanes: f64,
    pub(super) fixed_ns: f64,
    pub(super) ns_per_byte: f64,
}

impl Answer {
    /// Returns the time (ns) to wait behind `depth` jobs of `mean_bytes` bytes on average.
    pub(super) fn wait_ns(&self, depth: f64, mean_bytes: f64) -> f64 {
        turns(depth, self.lanes) * self.service_ns(mean_bytes)
    }

    /// Returns the service time at `bytes` (ns).
    pub(super) fn service_ns(&self, bytes: f64) -> f64 {
        self.fixed_ns + self.ns_per_byte * bytes
    }
}

/// Returns the larger number. `other` must not be NaN. `f64::max` allows NaN, which takes five instructions.
fn larger(one: f64, other: f64) -> f64 {
    if one > other { one } else { other }
}

/// Returns the smaller number. `other` must not be NaN.
fn smaller(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}

/// The state of `K` hypotheses about the number of jobs that a device serves at once (`lanes`). For each hypothesis, a
/// straight line that gives the service time for a size is fitted to the observed jobs. Each array has one element per
/// hypothesis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bank<const K: usize> {
    lanes: [f64; K],
    /// Under a hypothesis, a job waits for `max(0, depth - offset) * rate` service times.
    offset: [f64; K],
    rate: [f64; K],
    fixed_ns: [f64; K],
    ns_per_byte: [f64; K],
    /// The shape of each line is `shape_fixed + shape_slope * bytes`. It is the line divided by its value at the
    /// reference size.
    shape_fixed: [f64; K],
    shape_slope: [f64; K],
    scale_ns: [f64; K],
    per_scale: [f64; K],
    sum_11: [f64; K],
    sum_12: [f64; K],
    sum_22: [f64; K],
    sum_1y: [f64; K],
    sum_2y: [f64; K],
    loss: [f64; K],
    weight: f64,
    gain: f64,
    best: usize,
    answer: Answer,
}

impl<const K: usize> Bank<K> {
    /// Makes a bank in which every hypothesis starts with the same line. The hypothesis nearest to `lanes` is the best
    /// one at first.
    pub(super) fn new(hypotheses: [f64; K], lanes: f64, fixed_ns: f64, ns_per_byte: f64) -> Self {
        // A line that is zero everywhere has no shape, so it becomes a constant of one nanosecond.
        let fixed_ns = if fixed_ns + ns_per_byte > 0.0 { fixed_ns } else { 1.0 };
        let distance = |index: &usize| (hypotheses[*index] / lanes).ln().abs();
        let nearest =
            (0..K).min_by(|one, other| distance(one).total_cmp(&distance(other))).unwrap_or(0);
        let mut bank = Self {
            lanes: hypotheses,
            offset: hypotheses.map(|lanes| lanes - lanes / (lanes + 1.0)),
            rate: hypotheses.map(|lanes| 1.0 / lanes),
            fixed_ns: [fixed_ns; K],
            ns_per_byte: [ns_per_byte; K],
            shape_fixed: [0.0; K],
            shape_slope: [0.0; K],
            scale_ns: [0.0; K],
            per_scale: [0.0; K],
            sum_11: [0.0; K],
            sum_12: [0.0; K],
            sum_22: [0.0; K],
            sum_1y: [0.0; K],
            sum_2y: [0.0; K],
            loss: [0.0; K],
            weight: 0.0,
            gain: 1.0,
            best: nearest,
            answer: Answer { lanes, fixed_ns, ns_per_byte },
        };
        (0..K).for_each(|index| bank.reshape(index));
        bank
    }

    /// Returns the current estimate: the number of jobs served at once, and the line of the service time (ns, ns per
    /// byte).
    pub(super) fn answer(&self) -> Answer {
        self.answer
    }

    /// Reduces the weight of all earlier observations by the factor `growth`, relative to later ones.
    pub(super) fn forget(&mut self, growth: f64) {
        self.gain *= growth;
        if self.gain > GAIN_MAX {
            let sums = [&mut self.sum_11, &mut self.sum_12, &mut self.sum_22];
            let more = [&mut self.sum_1y, &mut self.sum_2y, &mut self.loss];
            for sum in sums.into_iter().chain(more) {
                sum.iter_mut().for_each(|value| *value /= self.gain);
            }
            self.weight /= self.gain;
            self.gain = 1.0;
        }
    }

    /// Adds one job of `bytes` bytes, which took `y_ns` from submission to completion and found `depth` jobs
    /// of `mean_bytes` bytes on average. A relative residual beyond `cut` counts as `cut`. Returns the
    /// residual of the best hypothesis after this cut.
    pub(super) fn add(
        &mut self,
        y_ns: f64,
        bytes: f64,
        (depth, mean_bytes): (f64, f64),
        cut: f64,
    ) -> f64 {
        let gain = self.gain;
        self.weight += gain;
        let mut residuals = [0.0; K];
        for (index, kept) in residuals.iter_mut().enumerate() {
            let waited = larger(depth - self.offset[index], 0.0) * self.rate[index];
            let x1 = 1.0 + waited;
            let x2 = bytes + waited * mean_bytes;
            let scale_ns = self.scale_ns[index];
            let predicted = self.shape_fixed[index] * x1 + self.shape_slope[index] * x2;
            let inverse = 1.0 / predicted;
            let (a1, a2) = (x1 * inverse, x2 * inverse);
            // `clamp` would compare its bounds again for every element.
            let residual = y_ns * inverse * self.per_scale[index] - 1.0;
            let residual = smaller(larger(residual, -cut), cut);
            let target = scale_ns * (1.0 + residual);
            let (g1, g2) = (gain * a1, gain * a2);
            self.sum_11[index] += g1 * a1;
            self.sum_12[index] += g1 * a2;
            self.sum_22[index] += g2 * a2;
            self.sum_1y[index] += g1 * target;
            self.sum_2y[index] += g2 * target;
            self.loss[index] += gain * residual * residual;
            *kept = residual;
        }
        residuals[self.best]
    }

    /// Fits the line of every hypothesis again, and then selects the best hypothesis.
    pub(super) fn solve(&mut self) {
        if self.weight <= 0.0 {
            return;
        }
        let mut best = 0;
        for index in 0..K {
            self.solve_one(index);
            best = if self.loss[index] < self.loss[best] { index } else { best };
        }
        if self.loss[best] < TAKE_OVER * self.loss[self.best] {
            self.best = best;
        }
        self.answer = self.between();
    }

    /// Interpolates between the best hypothesis and its better neighbour, because the number of lanes may be
    /// between two hypotheses. The result is at the minimum of a parabola through their errors.
    fn between(&self) -> Answer {
        let (best, loss) = (self.best, &self.loss);
        let line =
            |index: usize| (self.lanes[index], self.fixed_ns[index], self.ns_per_byte[index]);
        let (mut lanes, mut fixed_ns, mut ns_per_byte) = line(best);
        if best > 0 && best + 1 < K {
            let (below, here, above) = (loss[best - 1], loss[best], loss[best + 1]);
            let bend = below - 2.0 * here + above;
            let at = if bend > 0.0 { (below - above) / (2.0 * bend) } else { 0.0 };
            let at = at.clamp(-0.5, 0.5);
            let other = line(if at < 0.0 { best - 1 } else { best + 1 });
            let share = at.abs();
            lanes *= (other.0 / lanes).powf(share);
            fixed_ns += (other.1 - fixed_ns) * share;
            ns_per_byte += (other.2 - ns_per_byte) * share;
        }
        Answer { lanes, fixed_ns, ns_per_byte }
    }

    /// Fits the line of the hypothesis at `index`: first its scale and then its shape. The sizes [`ANCHOR_BYTES`] hold
    /// the shape near the current shape. So if a device slows down, the estimate also rises for sizes that were not
    /// observed since. Observations of equal size do not change the shape.
    fn solve_one(&mut self, index: usize) {
        let (fixed_ns, ns_per_byte) = (self.fixed_ns[index], self.ns_per_byte[index]);
        let (mut s11, mut s12, mut s22) =
            (self.sum_11[index], self.sum_12[index], self.sum_22[index]);
        let (mut y1, mut y2) = (self.sum_1y[index], self.sum_2y[index]);
        let explained = fixed_ns * y1 + ns_per_byte * y2;
        let norm = fixed_ns * fixed_ns * s11
            + 2.0 * fixed_ns * ns_per_byte * s12
            + ns_per_byte * ns_per_byte * s22;
        let target = self.scale_ns[index] * explained / norm;
        let weight = ANCHOR_WEIGHT * self.gain + ANCHOR_SHARE * self.weight;
        for bytes in ANCHOR_BYTES {
            let a1 = 1.0 / (self.shape_fixed[index] + self.shape_slope[index] * bytes);
            let a2 = a1 * bytes;
            s11 += weight * a1 * a1;
            s12 += weight * a1 * a2;
            s22 += weight * a2 * a2;
            y1 += weight * a1 * target;
            y2 += weight * a2 * target;
        }
        let determinant = s11 * s22 - s12 * s12;
        let fixed = (y1 * s22 - y2 * s12) / determinant;
        let slope = (y2 * s11 - y1 * s12) / determinant;
        let (fixed, slope) = if fixed < 0.0 {
            (0.0, y2 / s22)
        } else if slope < 0.0 {
            (y1 / s11, 0.0)
        } else {
            (fixed, slope)
        };
        if fixed.is_finite() && slope.is_finite() && fixed + slope > 0.0 {
            (self.fixed_ns[index], self.ns_per_byte[index]) = (fixed, slope);
            self.reshape(index);
        }
    }

    fn reshape(&mut self, index: usize) {
        let scale_ns = self.fixed_ns[index] + self.ns_per_byte[index] * REFERENCE_BYTES;
        self.scale_ns[index] = scale_ns;
        self.per_scale[index] = 1.0 / scale_ns;
        self.shape_fixed[index] = self.fixed_ns[index] / scale_ns;
        self.shape_slope[index] = self.ns_per_byte[index] / scale_ns;
    }
}
