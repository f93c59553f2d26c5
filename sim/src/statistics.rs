//! The statistics of a run: warm-up, quantiles, drift, and intervals from independent replications. They are pure
//! functions of numbers. `study` decides which runs are made.

use serde::Serialize;

/// An estimate, and an interval that contains the true value in 95 of 100 studies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate, which is the mean over the replications.
    pub value: f64,
    /// The ends of the interval.
    pub ci95: [f64; 2],
}

impl Interval {
    /// Computes the interval from one number of each replication, with Student's t. Replications are independent, so
    /// the autocorrelation within a run and the distribution of the measured values need not be known. Returns none for
    /// fewer than five numbers.
    pub fn from_replications(values: &[f64]) -> Option<Self> {
        if values.len() < REPLICATIONS_MIN {
            return None;
        }
        let (value, error) = (mean(values), standard_error(values));
        let reach = student(NORMAL_975, values.len() - 1) * error;
        Some(Self { value, ci95: [value - reach, value + reach] })
    }

    /// Returns half the interval as a fraction of the estimate. It is zero if nothing varies.
    pub fn relative_half_width(&self) -> f64 {
        let half = (self.ci95[1] - self.ci95[0]) / 2.0;
        if half == 0.0 { 0.0 } else { half / self.value.abs() }
    }

    /// Returns whether the interval contains `truth`.
    pub fn holds(&self, truth: f64) -> bool {
        self.ci95[0] <= truth && truth <= self.ci95[1]
    }
}

/// Returns the arithmetic mean. It is NaN without values.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the standard error of the mean of two or more values.
fn standard_error(values: &[f64]) -> f64 {
    let (center, count) = (mean(values), values.len() as f64);
    let squares: f64 = values.iter().map(|value| (value - center) * (value - center)).sum();
    (squares / (count - 1.0) / count).sqrt()
}

/// Returns a quantile of Student's t distribution with `freedom` degrees of freedom. `normal` is the quantile
/// of the normal distribution at the same level. The function uses four terms of the Cornish-Fisher expansion
/// (Abramowitz and Stegun 26.7.5). With four degrees of freedom and 97.5 % the error is 0.03 %.
pub fn student(normal: f64, freedom: usize) -> f64 {
    let (z, z2, v) = (normal, normal * normal, freedom as f64);
    let first = z * (z2 + 1.0) / 4.0;
    let second = z * ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let third = z * (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    let fourth =
        z * ((((79.0 * z2 + 776.0) * z2 + 1_482.0) * z2 - 1_920.0) * z2 - 945.0) / 92_160.0;
    z + (first + (second + (third + fourth / v) / v) / v) / v
}

/// Returns the smallest value that at least `share` of `values` do not exceed. Reorders the values.
///
/// # Panics
/// Panics if there are no values.
pub fn quantile(values: &mut [u64], share: f64) -> u64 {
    let rank = (share * values.len() as f64).ceil() as usize;
    *values.select_nth_unstable(rank.clamp(1, values.len()) - 1).1
}

/// Returns the number of values at the start of each replication that belong to the warm-up, by MSER-5 on the
/// mean over the replications. MSER-5 uses means of five values each. It chooses the cut within the first
/// half that makes the standard error of the remaining values smallest. The second result is true if this cut
/// is at the end of the first half. The remaining values are then steady only if they do not drift.
///
/// All replications have the same cut. Separate cuts would follow the noise of each replication. They would tend to
/// fall behind bursts of long times, and too few intervals would contain the true value (78 % instead of 95 %).
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
        // The difference to the overall mean avoids cancellation if a small spread has a large mean.
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

/// Returns the difference between the means of the last and the first third of `values`, as a fraction of the overall
/// mean.
pub fn drift(values: &[u64]) -> f64 {
    let third = values.len() / 3;
    if third == 0 {
        return 0.0;
    }
    let (first, last) = (mean_of(&values[..third]), mean_of(&values[values.len() - third..]));
    let overall = mean_of(values);
    if overall > 0.0 { (last - first) / overall } else { 0.0 }
}

/// Returns whether the drifts of the replications are significant at 99 % confidence and large enough to matter.
pub(crate) fn drifts(of_replications: &[f64]) -> bool {
    let center = mean(of_replications);
    let reach = student(NORMAL_99, of_replications.len() - 1) * standard_error(of_replications);
    center > DRIFT_MAX && center - reach > 0.0
}

/// Returns the exact mean of integers, rounded once.
pub(crate) fn mean_of(values: &[u64]) -> f64 {
    let sum: u128 = values.iter().map(|value| u128::from(*value)).sum();
    sum as f64 / values.len() as f64
}

/// The minimum number of requests of a replication for a 99th percentile. Ten of their values exceed the
/// percentile. With fewer requests, the percentile of a replication is mostly bias.
pub const KEPT_MIN: usize = 1_000;

/// The minimum number of replications for an interval. [`student`] is accurate from four degrees of freedom.
pub(crate) const REPLICATIONS_MIN: usize = 5;

/// The largest growth from the first to the last third of a run that counts as chance, as a fraction of the
/// mean. The noise of a run hides smaller growth at any relevant load. With a larger limit, a queue could
/// grow by a tenth in a run that is called steady.
const DRIFT_MAX: f64 = 0.05;
const BATCH: usize = 5;
/// The minimum number of batches from which the end of a warm-up can be found.
const BATCHES_MIN: usize = 20;
/// The normal distribution's quantile at 97.5 %.
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
        // The variance is 2.5, and the standard error is the root of a half.
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
