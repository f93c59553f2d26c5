//! A median and its confidence interval. The interval does not depend on the distribution: its ends are two
//! of the n sorted values, chosen by their ranks as in a sign test.

/// A median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) median: f64,
    /// The interval, or None if there are fewer than six values.
    pub(super) ci95: Option<[f64; 2]>,
}

impl Interval {
    /// Returns the interval of the finite values, or None if there is no finite value.
    pub(super) fn from_values(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (low, high) = (*values.get(count.checked_sub(1)? / 2)?, *values.get(count / 2)?);
        let rank = rank(count);
        let ci95 = rank.map(|rank| [values[rank], values[count - 1 - rank]]);
        Some(Self { median: f64::midpoint(low, high), ci95 })
    }

    /// Converts an interval of a ratio into the interval of the ratio's absolute distance from 1 (percent).
    pub(super) fn error_percent(self) -> Self {
        let off = |ratio: f64| 100.0 * (ratio - 1.0);
        let ci95 = self.ci95.map(|[low, high]| [off(low), off(high)]);
        Self { median: off(self.median), ci95 }.absolute()
    }

    /// Converts an interval of a value into the interval of its distance from zero.
    pub(super) fn absolute(self) -> Self {
        let ci95 = self.ci95.map(|[low, high]| {
            let holds_zero = low <= 0.0 && high >= 0.0;
            let least = if holds_zero { 0.0 } else { low.abs().min(high.abs()) };
            [least, low.abs().max(high.abs())]
        });
        Self { median: self.median.abs(), ci95 }
    }
}

/// Returns the number of sorted values that are outside the 95 % interval at each end, or None if there are
/// too few values. The probability that the true median is outside is at most 2.5 % per side.
fn rank(count: usize) -> Option<usize> {
    let (mut term, mut below) = (0.5f64.powi(count as i32), 0.0);
    for rank in 0..count / 2 {
        below += term;
        if below > 0.025 {
            return rank.checked_sub(1);
        }
        term *= (count - rank) as f64 / (rank + 1) as f64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_sign_test_tables() {
        let found = [5, 6, 8, 9, 11, 15, 21, 31].map(rank);
        let known = [None, Some(0), Some(0), Some(1), Some(1), Some(3), Some(5), Some(9)];
        assert_eq!(found, known);
        assert_eq!(rank(0), None);
    }

    #[test]
    fn an_error_has_no_sign() {
        let interval = Interval::from_values((1..=9).rev().map(f64::from)).expect("nine values");
        assert_eq!(interval, Interval { median: 5.0, ci95: Some([2.0, 8.0]) });
        assert_eq!(Interval::from_values([f64::NAN]), None);
        let error = |low, median, high| {
            let error = Interval { median, ci95: Some([low, high]) }.error_percent();
            error.ci95.map(|ends| [error.median, ends[0], ends[1]].map(|value| value.round()))
        };
        assert_eq!(error(0.96, 0.98, 0.99), Some([2.0, 1.0, 4.0]));
        assert_eq!(error(0.98, 1.01, 1.05), Some([1.0, 0.0, 5.0]));
    }
}
