//! The highest load that keeps an objective, with an interval: by halving, three times over the same loads. Once by
//! the estimate of every percentile; once only where its whole interval keeps the objective; once where any of it does.
//! What a load gives is the caller's, who remembers it.

use sim::Interval;

use crate::base::Problem;

/// What runs at a load say of an objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The whole interval keeps it.
    pub(super) surely: bool,
    /// The estimate does.
    pub(super) likely: bool,
    /// Some of the interval does.
    pub(super) perhaps: bool,
}

impl Verdict {
    /// Nothing else can be.
    pub(super) const YES: Self = Self { surely: true, likely: true, perhaps: true };
    /// Certainly not.
    pub(super) const NO: Self = Self { surely: false, likely: false, perhaps: false };
    /// No steady state was found, though more does not come than can be done.
    pub(super) const UNKNOWN: Self = Self { surely: false, likely: false, perhaps: true };

    /// Whether this is at most so much.
    pub(super) fn at_most(found: Interval, most: f64) -> Self {
        let [low, high] = found.ci95;
        Self { surely: high <= most, likely: found.value <= most, perhaps: low <= most }
    }

    /// Both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            surely: self.surely && other.surely,
            likely: self.likely && other.likely,
            perhaps: self.perhaps && other.perhaps,
        }
    }
}

/// Which loads, and how close.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// The load that is tried first; if that is too much there is none.
    pub(super) least: f64,
    /// More than anybody carries.
    pub(super) most: f64,
    /// The bracket that is left, as a share of its upper end.
    pub(super) within: f64,
}

/// The highest load by the estimates. Its interval goes from the highest load that is surely kept to the lowest that
/// surely is not, and so holds the bracket as well. Zero if the least load is too much.
pub(super) fn highest(
    range: Range,
    judge: &mut dyn FnMut(f64) -> Result<Verdict, Problem>,
) -> Result<Interval, Problem> {
    let (likely, _) = halve(range, &mut |load| Ok(judge(load)?.likely))?;
    let (surely, _) = halve(range, &mut |load| Ok(judge(load)?.surely))?;
    let (_, perhaps) = halve(range, &mut |load| Ok(judge(load)?.perhaps))?;
    Ok(Interval { value: likely, ci95: [surely, perhaps] })
}

/// A load that holds and one that does not.
fn halve(
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

    /// A percentile that grows with the load, with an interval of a tenth to both sides; the objective is 1.
    fn found(most_per_s: f64) -> (Interval, usize) {
        let mut tried = Vec::new();
        let found = highest(RANGE, &mut |load| {
            tried.push(load);
            let value = load / most_per_s;
            let interval = Interval { value, ci95: [0.9 * value, 1.1 * value] };
            Ok(Verdict::at_most(interval, 1.0))
        });
        tried.sort_by(f64::total_cmp);
        tried.dedup();
        (found.unwrap_or_else(|_| panic!("nothing fails")), tried.len())
    }

    #[test]
    fn the_interval_is_that_of_the_percentile_and_the_bracket() {
        let (found, tried) = found(20_000.0);
        let value = found.value;
        assert!((19_600.0..=20_000.0).contains(&value), "{found:?}");
        let [low, high] = found.ci95;
        assert!((17_700.0..=18_182.0).contains(&low), "{found:?}");
        assert!((22_222.0..=22_700.0).contains(&high), "{found:?}");
        assert!(tried <= 20, "{tried} different loads");
    }

    #[test]
    fn none_is_low_enough_or_all_are() {
        assert_eq!(found(400.0).0, Interval { value: 0.0, ci95: [0.0, 500.0] });
        let all = found(1e9).0;
        assert!(all.value > 98_000.0 && all.ci95[1] == 100_000.0, "{all:?}");
    }

    #[test]
    fn what_is_not_known_is_neither_sure_nor_excluded() {
        let sure = Verdict::at_most(Interval { value: 0.5, ci95: [0.4, 0.6] }, 1.0);
        assert_eq!(sure, Verdict::YES);
        assert_eq!(sure.and(Verdict::UNKNOWN), Verdict::UNKNOWN);
        assert_eq!(Verdict::UNKNOWN.and(Verdict::NO), Verdict::NO);
    }
}
