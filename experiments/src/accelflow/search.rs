//! Finds the highest load that keeps an objective, with an interval, by three bisections over the same range of loads.
//! The first bisection judges a load by the estimate of every percentile. The second requires that the whole interval
//! of every percentile keeps the objective, and the third that a part of it does. The caller judges the loads and
//! remembers the results.

use sim::Interval;

use crate::base::Problem;

/// A verdict on whether the runs at a load keep an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// True if the whole interval keeps the objective.
    pub(super) surely: bool,
    /// True if the estimate keeps the objective.
    pub(super) likely: bool,
    /// True if a part of the interval keeps the objective.
    pub(super) perhaps: bool,
}

impl Verdict {
    /// The verdict that the objective is certainly kept.
    pub(super) const YES: Self = Self { surely: true, likely: true, perhaps: true };
    /// The verdict that the objective is certainly not kept.
    pub(super) const NO: Self = Self { surely: false, likely: false, perhaps: false };
    /// The verdict if no steady state was found although the load does not exceed the capacity of the system.
    pub(super) const UNKNOWN: Self = Self { surely: false, likely: false, perhaps: true };

    /// Judges whether a number is at most `most`.
    pub(super) fn at_most(number: Interval, most: f64) -> Self {
        let [low, high] = number.ci95;
        Self { surely: high <= most, likely: number.value <= most, perhaps: low <= most }
    }

    /// Returns the verdict on keeping both objectives.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            surely: self.surely && other.surely,
            likely: self.likely && other.likely,
            perhaps: self.perhaps && other.perhaps,
        }
    }
}

/// The loads that are searched, and the precision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// The load that is tried first. If it does not keep the objective, the result is zero.
    pub(super) least: f64,
    /// A load that no system can sustain.
    pub(super) most: f64,
    /// The width of the bracket at which the search ends, as a share of its upper end.
    pub(super) within: f64,
}

/// Returns the highest load at which the estimates keep the objective, or zero if `range.least` is too high.
/// Its interval extends from the highest load that certainly keeps the objective to the lowest load that
/// certainly does not, so it contains the bracket of the bisection.
pub(super) fn highest_load(
    range: Range,
    judge: &mut dyn FnMut(f64) -> Result<Verdict, Problem>,
) -> Result<Interval, Problem> {
    let (likely, _) = bisect(range, &mut |load| Ok(judge(load)?.likely))?;
    let (surely, _) = bisect(range, &mut |load| Ok(judge(load)?.surely))?;
    let (_, perhaps) = bisect(range, &mut |load| Ok(judge(load)?.perhaps))?;
    Ok(Interval { value: likely, ci95: [surely, perhaps] })
}

/// Returns a load that keeps the objective and a higher load that does not.
fn bisect(
    range: Range,
    holds: &mut dyn FnMut(f64) -> Result<bool, Problem>,
) -> Result<(f64, f64), Problem> {
    let (mut low, mut high) = (0.0, range.most);
    let mut middle = range.least;
    while high - low > range.within * high && high > range.least {
        if holds(middle)? {
            low = middle;
        } else {
            high = middle;
        }
        middle = f64::midpoint(low, high);
    }
    Ok((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range { least: 500.0, most: 100_000.0, within: 0.02 };

    /// Searches with a percentile that is proportional to the load and has an interval of 10 % on both sides.
    /// The objective is 1.
    fn search(most_per_s: f64) -> (Interval, usize) {
        let mut tried = Vec::new();
        let load = highest_load(RANGE, &mut |load| {
            tried.push(load);
            let value = load / most_per_s;
            let interval = Interval { value, ci95: [0.9 * value, 1.1 * value] };
            Ok(Verdict::at_most(interval, 1.0))
        });
        tried.sort_by(f64::total_cmp);
        tried.dedup();
        (load.unwrap_or_else(|_| panic!("nothing fails")), tried.len())
    }

    #[test]
    fn the_interval_contains_the_percentiles_and_the_bracket() {
        let (found, tried) = search(20_000.0);
        let value = found.value;
        assert!((19_600.0..=20_000.0).contains(&value), "{found:?}");
        let [low, high] = found.ci95;
        assert!((17_700.0..=18_182.0).contains(&low), "{found:?}");
        assert!((22_222.0..=22_700.0).contains(&high), "{found:?}");
        assert!(tried <= 20, "{tried} different loads");
    }

    #[test]
    fn the_search_ends_if_no_load_or_every_load_holds() {
        assert_eq!(search(400.0).0, Interval { value: 0.0, ci95: [0.0, 500.0] });
        let all = search(1e9).0;
        assert!(all.value > 98_000.0 && all.ci95[1] == 100_000.0, "{all:?}");
    }

    #[test]
    fn an_unknown_verdict_is_neither_sure_nor_excluded() {
        let sure = Verdict::at_most(Interval { value: 0.5, ci95: [0.4, 0.6] }, 1.0);
        assert_eq!(sure, Verdict::YES);
        assert_eq!(sure.and(Verdict::UNKNOWN), Verdict::UNKNOWN);
        assert_eq!(Verdict::UNKNOWN.and(Verdict::NO), Verdict::NO);
    }
}
