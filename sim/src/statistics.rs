//! The statistics of a run: warm-up, quantiles, drift, and intervals from independent replications. They are plain
//! functions of numbers; `study` decides which runs are made.

use serde::Serialize;

/// An estimate and the interval that holds the truth in 95 of 100 studies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate: the mean over replications.
    pub value: f64,
    /// The ends of the interval.
    pub ci95: [f64; 2],
}

impl Interval {
    /// Computes the interval from one number of each replication, by Student's t. Replications are independent, so
    /// neither the autocorrelation within a run nor the shape of what was measured has to be known. The result is none
    /// for fewer than five numbers.
    pub fn from_replications(values: &[f64]) -> Option<Self> {
        if values.len() < REPLICATIONS_MIN {
            return None;
        }
        let (value, error) = (mean(values), standard_error(values));
        let reach = student(NORMAL_975, values.len() - 1) * error;
        Some(Self { value, ci95: [value - reach, value + reach] })
    }

    /// Half the interval as a fraction of the estimate; zero where nothing varies.
    pub fn relative_half_width(&self) -> f64 {
        let half = (self.ci95[1] - self.ci95[0]) / 2.0;
        if half == 0.0 { 0.0 } else { half / self.value.abs() }
    }

    /// True if `truth` lies within.
    pub fn holds(&self, truth: f64) -> bool {
        self.ci95[0] <= truth && truth <= self.ci95[1]
    }
}

/// The arithmetic mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard error of the mean of two or more values.
fn standard_error(values: &[f64]) -> f64 {
    let (center, count) = (mean(values), values.len() as f64);
    let squares: f64 = values.iter().map(|value| (value - center) * (value - center)).sum();
    (squares / (count - 1.0) / count).sqrt()
}

/// The quantile of Student's t with `freedom` degrees at the level at which the normal distribution has `normal`. Four
/// terms of the Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5): at four degrees and 97.5 % off by 0.03 %.
pub fn student(normal: f64, freedom: usize) -> f64 {
    let (z, z2, v) = (normal, normal * normal, freedom as f64);
    let first = z * (z2 + 1.0) / 4.0;
    let second = z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let third = z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    let fourth =
        z * ((((79.0 * z2 + 776.0) * z2 + 1_482.0) * z2 - 1_920.0) * z2 - 945.0) / 92_160.0;
    z + (first + (second + (third + fourth / v) / v) / v) / v
}

/// The smallest value that at least `share` of `values` do not exceed. Reorders them.
///
/// # Panics
/// If there are no values.
pub fn quantile(values: &mut [u64], share: f64) -> u64 {
    let rank = (share * values.len() as f64).ceil() as usize;
    *values.select_nth_unstable(rank.clamp(1, values.len()) - 1).1
}

/// How many of a replication's first values belong to the warm-up, by MSER-5 on the mean over replications: means of
/// five values each; the cut, within the first half, that makes the standard error of what follows smallest. The second
/// part is true if the smallest lies at the end of that half: then what follows is steady only if it does not drift.
///
/// One cut for all replications, because a cut chosen for each would follow its noise: it would fall after the bursts
/// and make the intervals miss (78 % of them covered the truth where 95 % should).
pub fn warm_up(replications: &[&[u64]]) -> (usize, bool) {
    let length = replications.iter().map(|values| values.len()).min().unwrap_or(0);
    let mut batches = vec![0.0; length / BATCH];
    for values in replications {
        let means = values.chunks_exact(BATCH).map(mean_of);
        batches.iter_mut().zip(means).for_each(|(batch, mean)| *batch += mean);
    }
    if batches.len() < BATCHES_MIN {
        return (0, false);
    }
    let center = mean(&batches);
    let cut_max = batches.len() / 2;
    let (mut sum, mut squares, mut best, mut cut) = (0.0, 0.0, f64::INFINITY, 0);
    for (index, batch) in batches.iter().enumerate().rev() {
        // About the overall mean, so that a small spread on a large mean does not cancel away.
        let off = batch - center;
        sum += off;
        squares += off * off;
        let count = (batches.len() - index) as f64;
        let spread = (squares - sum * sum / count).max(0.0) / (count * count);
        if index <= cut_max && spread <= best {
            (best, cut) = (spread, index);
        }
    }
    (cut * BATCH, cut >= cut_max - cut_max / 20)
}

/// Returns by how much the last third of `values` exceeds the first, as a fraction of their mean.
pub fn drift(values: &[u64]) -> f64 {
    let third = values.len() / 3;
    if third == 0 {
        return 0.0;
    }
    let (first, last) = (mean_of(&values[..third]), mean_of(&values[values.len() - third..]));
    let overall = mean_of(values);
    if overall > 0.0 { (last - first) / overall } else { 0.0 }
}

/// Returns whether drifts of replications are, at 99 % confidence, no accident, and large enough to matter.
pub(crate) fn drifts(of_replications: &[f64]) -> bool {
    let center = mean(of_replications);
    let reach = student(NORMAL_99, of_replications.len() - 1) * standard_error(of_replications);
    center > DRIFT_MAX && center - reach > 0.0
}

/// The exact mean of whole numbers, rounded once.
pub(crate) fn mean_of(values: &[u64]) -> f64 {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    sum as f64 / values.len() as f64
}

/// Ten values beyond the 99th percentile: with fewer the percentile of a replication is mostly its bias.
pub const KEPT_MIN: usize = 1_000;

/// The expansion behind [`student`] is good from four degrees of freedom on.
pub(crate) const REPLICATIONS_MIN: usize = 5;

/// The growth over a third of a run that is put down to chance. Less is hidden by a run's own noise at any load worth a
/// simulation; more would let a queue grow by a tenth while the run is called steady.
const DRIFT_MAX: f64 = 0.05;
const BATCH: usize = 5;
/// Fewer batches say nothing about where a warm-up ends.
const BATCHES_MIN: usize = 20;
/// The normal distribution's quantiles at 97.5 % and at 99 %.
const NORMAL_975: f64 = 1.959_963_984_540_054;
const NORMAL_99: f64 = 2.326_347_874_040_841;

#[cfg(test)]
mod tests {
    use units::Prng;

    use super::*;

    #[test]
    fn students_quantiles_are_the_tables() {
        for (freedom, table) in [(4, 2.7764), (9, 2.2622), (29, 2.0452), (199, 1.9720)] {
            let found = student(NORMAL_975, freedom);
            assert!((found / table - 1.0).abs() < 5e-4, "{freedom}: {found}");
        }
        assert!((student(NORMAL_99, 9) / 2.8214 - 1.0).abs() < 5e-4);
    }

    #[test]
    fn an_interval_is_the_textbooks() {
        let interval =
            Interval::from_replications(&[8.0, 9.0, 10.0, 11.0, 12.0]).expect("five values");
        // A variance of 2.5, a standard error of the root of a half.
        assert!((interval.ci95[1] - 10.0 - 2.7764 * 0.5f64.sqrt()).abs() < 1e-3, "{interval:?}");
        assert!(interval.holds(10.0) && !interval.holds(12.0));
        assert_eq!(Interval::from_replications(&[1.0; 4]), None);
    }

    #[test]
    fn quantiles_are_order_statistics() {
        let mut values: Vec<u64> = (1..=1_000).rev().collect();
        assert_eq!(quantile(&mut values, 0.99), 990);
        assert_eq!(quantile(&mut values, 1.0), 1_000);
        assert_eq!(quantile(&mut values, 0.0), 1);
        assert_eq!(quantile(&mut [7], 0.5), 7);
    }

    #[test]
    fn the_warm_up_is_cut_where_it_ends() {
        let mut prng = Prng::new(2);
        let steady = |prng: &mut Prng| 9_000 + prng.below(2_000);
        let ramp = (0..1_000).map(|index| 9 * index).collect::<Vec<u64>>();
        let values: Vec<u64> =
            ramp.into_iter().chain((0..9_000).map(|_| steady(&mut prng))).collect();
        let (cut, at_limit) = warm_up(&[&values]);
        assert!((900..1_300).contains(&cut) && !at_limit, "cut {cut}");
        let level: Vec<u64> = (0..10_000).map(|_| steady(&mut prng)).collect();
        assert!(!warm_up(&[&level]).1);
        let growing: Vec<u64> = (0..10_000).collect();
        assert!(warm_up(&[&growing]).1, "what only grows has no steady part");
    }

    #[test]
    fn drift_tells_growth_from_noise() {
        let growing: Vec<u64> = (0..9_000).collect();
        assert!((drift(&growing) - 4.0 / 3.0).abs() < 0.01);
        let mut prng = Prng::new(4);
        let noise: Vec<f64> = (0..20)
            .map(|_| drift(&(0..900).map(|_| prng.below(100)).collect::<Vec<_>>()))
            .collect();
        assert!(!drifts(&noise), "{noise:?}");
        assert!(drifts(&[0.3, 0.4, 0.2, 0.5, 0.3]));
        assert!(!drifts(&[0.01, 0.011, 0.01, 0.012, 0.01]), "too small to matter");
    }
}
