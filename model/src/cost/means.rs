//! Makes a cost curve from the mean times of size classes. The means come from reports of other processes, and some may
//! be far from the true times. A line is fitted by least squares of the relative error, in which a class with an
//! unusually large residual counts less. Then the deviation of each class from the line is added, as far as there is
//! evidence. The module is pure: the same means give the same curve.

use super::curve::{CostCurve, KNOT_BYTES, KNOTS, SizeCurve, place};

/// The mean size and the mean time of jobs that have about the same size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean size of the jobs (bytes), which is above 0.
    pub bytes: f64,
    /// The mean time of a job (ns), which is above 0.
    pub ns: f64,
    /// The number of jobs, or the weight of this mean relative to others.
    pub jobs: f64,
}

impl CostCurve {
    /// Makes a curve through these means. `ahead` is the line expected before these measurements (ns, ns per byte). It
    /// is scaled to the means and gives the curve at sizes without means, so a device that slowed down is slower at
    /// those sizes too. Returns none if there are no means, or if some are not numbers.
    pub fn through_means(means: &[Mean], ahead: (f64, f64)) -> Option<Self> {
        let usable = |mean: &&Mean| {
            [mean.bytes, mean.ns, mean.jobs].iter().all(|v| v.is_finite() && *v > 0.0)
        };
        let means: Vec<Mean> = means.iter().filter(usable).copied().collect();
        let line =
            Line::through(&means, Line { fixed: ahead.0.max(0.0), slope: ahead.1.max(0.0) })?;
        let service = SizeCurve::through(line.with_classes(&means)).ok()?;
        let none = SizeCurve::line(0.0, 0.0).ok()?;
        let jobs: f64 = means.iter().map(|mean| mean.jobs).sum();
        let off = |mean: &Mean| mean.jobs * (mean.ns / line.at(mean.bytes) - 1.0).abs().min(1.0);
        let spread = means.iter().map(off).sum::<f64>() / jobs;
        let curve = Self::new((service, none), 1.0, (line.fixed, line.slope)).ok()?;
        Some(Self { spread, observations: jobs as u64, ..curve })
    }
}

/// The straight line of the time over the size of a job: `fixed + slope * bytes` (ns).
#[derive(Clone, Copy, Debug)]
struct Line {
    fixed: f64,
    slope: f64,
}

impl Line {
    fn at(self, bytes: f64) -> f64 {
        (self.fixed + self.slope * bytes).max(f64::MIN_POSITIVE)
    }

    /// Fits a line to the means. Two further points keep the line near the line `ahead`, scaled to the means.
    fn through(means: &[Mean], ahead: Self) -> Option<Self> {
        let ahead =
            if ahead.fixed + ahead.slope > 0.0 { ahead } else { Self { fixed: 1.0, ..ahead } };
        let times = means.iter().map(|mean| (mean.ns / ahead.at(mean.bytes), mean.jobs)).collect();
        let times = median(times)?;
        let ahead = Self { fixed: ahead.fixed * times, slope: ahead.slope * times };
        let mut line = ahead;
        for _ in 0..ROUNDS {
            let mut sums = Sums::default();
            for mean in means {
                let expected = line.at(mean.bytes);
                let off = (mean.ns / expected - 1.0).abs();
                let weight = mean.jobs.min(JOBS_MAX) * (USUAL / off.max(USUAL));
                sums.add(mean.bytes, mean.ns, weight / (expected * expected));
            }
            for bytes in ANCHOR_BYTES {
                let held = ahead.at(bytes);
                sums.add(bytes, held, ANCHOR_JOBS / (held * held));
            }
            line = sums.solve(line);
        }
        Some(line)
    }

    /// Returns the times at the bounds of the size classes (ns): the times of the line, corrected by the deviations of
    /// the means.
    fn with_classes(self, means: &[Mean]) -> [f64; KNOTS] {
        let (mut beside, mut seen) = ([0.0; KNOTS], [0.0; KNOTS]);
        for mean in means {
            let (class, along) = place(mean.bytes as usize);
            let along = along.min(1.0);
            let off = (mean.ns / self.at(mean.bytes)).ln().clamp(-BESIDE_LN_MAX, BESIDE_LN_MAX);
            let jobs = mean.jobs.min(JOBS_MAX);
            for (knot, near) in [(class, 1.0 - along), (class + 1, along)] {
                beside[knot] += jobs * near * off;
                seen[knot] += jobs * near;
            }
        }
        std::array::from_fn(|knot| {
            self.at(KNOT_BYTES[knot]) * (beside[knot] / (seen[knot] + BESIDE_JOBS)).exp()
        })
    }
}

/// The sums of a least-squares fit with two unknowns.
#[derive(Default)]
struct Sums {
    s11: f64,
    s12: f64,
    s22: f64,
    y1: f64,
    y2: f64,
}

impl Sums {
    fn add(&mut self, bytes: f64, ns: f64, weight: f64) {
        self.s11 += weight;
        self.s12 += weight * bytes;
        self.s22 += weight * bytes * bytes;
        self.y1 += weight * ns;
        self.y2 += weight * bytes * ns;
    }

    /// Solves for the line. The line is never below zero and never falls. Returns `otherwise` if there is no solution.
    fn solve(&self, otherwise: Line) -> Line {
        let determinant = self.s11 * self.s22 - self.s12 * self.s12;
        let fixed = (self.y1 * self.s22 - self.y2 * self.s12) / determinant;
        let slope = (self.y2 * self.s11 - self.y1 * self.s12) / determinant;
        let line = match () {
            () if fixed < 0.0 => Line { fixed: 0.0, slope: self.y2 / self.s22 },
            () if slope < 0.0 => Line { fixed: self.y1 / self.s11, slope: 0.0 },
            () => Line { fixed, slope },
        };
        let is_one = line.fixed.is_finite() && line.slope.is_finite();
        if is_one && line.fixed + line.slope > 0.0 { line } else { otherwise }
    }
}

/// Returns the weighted median of (value, weight), or none if there are no values.
fn median(mut values: Vec<(f64, f64)>) -> Option<f64> {
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut reached = 0.0;
    let is_middle = |(_, weight): &&(f64, f64)| {
        reached += weight;
        2.0 * reached >= total
    };
    values.iter().find(is_middle).map(|(value, _)| *value)
}

/// Two sizes (bytes) at which a line keeps its shape as long as no mean contradicts it. `ANCHOR_JOBS` is the weight of
/// each, in jobs.
const ANCHOR_BYTES: [f64; 2] = [64.0, 65_536.0];
const ANCHOR_JOBS: f64 = 0.5;

/// The largest weight of a class (jobs). If a class has more jobs, its deviation from the line is not due to
/// chance.
const JOBS_MAX: f64 = 64.0;

/// The relative residual up to which a mean has full weight. Above it the weight falls in inverse proportion.
const USUAL: f64 = 0.1;

const ROUNDS: usize = 8;

/// The number of jobs at which half of a class's deviation (in the logarithm) is applied. The deviation is at most a
/// factor of two.
const BESIDE_JOBS: f64 = 24.0;
const BESIDE_LN_MAX: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    fn means(of: impl Fn(f64) -> f64) -> Vec<Mean> {
        let mean = |log2: i32| {
            let bytes = 1.5 * 2_f64.powi(log2);
            Mean { bytes, ns: of(bytes), jobs: 40.0 }
        };
        (7..17).map(mean).collect()
    }

    fn off(curve: &CostCurve, bytes: f64, ns: f64) -> f64 {
        (curve.service.at(bytes as usize) / ns - 1.0).abs()
    }

    const AHEAD: (f64, f64) = (500.0, 0.5);

    #[test]
    fn a_line_is_found_whatever_a_few_classes_say() {
        let line = |bytes: f64| 9_000.0 + 0.5 * bytes;
        for odd in 0..10 {
            let mut means = means(line);
            means[odd].ns *= 5.0;
            means[(odd + 4) % 10].ns *= 3.0;
            let curve = CostCurve::through_means(&means, AHEAD).expect("means");
            let (fixed_ns, ns_per_byte) = curve.ahead();
            assert!((fixed_ns / 9_000.0 - 1.0).abs() < 0.12, "{odd}: {fixed_ns}");
            assert!((ns_per_byte / 0.5 - 1.0).abs() < 0.25, "{odd}: {ns_per_byte}");
        }
    }

    #[test]
    fn one_size_alone_keeps_the_shape_that_was() {
        let one = Mean { bytes: 4_096.0, ns: 60_000.0, jobs: 100.0 };
        let curve = CostCurve::through_means(&[one], (1_000.0, 1.0)).expect("a mean");
        let times = 60_000.0 / 5_096.0;
        assert!(off(&curve, 4_096.0, 60_000.0) < 0.02, "{curve:?}");
        for bytes in [64.0, 1_000.0, 60_000.0] {
            assert!(off(&curve, bytes, times * (1_000.0 + bytes)) < 0.05, "{bytes}: {curve:?}");
        }
    }

    #[test]
    fn bends_are_followed_where_there_are_jobs() {
        let bent = |bytes: f64| 5_000.0 + 0.5 * bytes + 0.5 * (bytes - 4_096.0).max(0.0);
        let mut all = means(bent);
        all.iter_mut().for_each(|mean| mean.jobs = 1_000.0);
        let curve = CostCurve::through_means(&all, AHEAD).expect("means");
        for mean in &all {
            assert!(off(&curve, mean.bytes, mean.ns) < 0.25, "{}: {curve:?}", mean.bytes);
        }
    }

    #[test]
    fn invalid_means_are_ignored() {
        let odd = [f64::NAN, f64::INFINITY, 0.0, -1.0];
        let all = odd.map(|ns| Mean { bytes: 100.0, ns, jobs: 1.0 });
        assert!(CostCurve::through_means(&all, AHEAD).is_none());
        let good = Mean { bytes: 100.0, ns: 500.0, jobs: 1.0 };
        let curve = CostCurve::through_means(&[all[0], good], (0.0, f64::NAN));
        assert!(curve.is_some_and(|curve| off(&curve, 100.0, 500.0) < 0.05));
    }
}
