//! The numbers of \[OffloadSched\] next to ours: which end of a range belongs to which workload, how far our numbers
//! deviate, and the known reasons. The module has arithmetic and text. It measures nothing, and it never omits a number
//! because of its deviation.

use super::mode::Mode;
use crate::base::Spread;
use crate::base::rows::{Limit, Row, Rows, Runs};

/// A published throughput relative to software. The paper states two numbers for two workloads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Range {
    /// Each workload has one of the ends, but the paper does not say which.
    OneEach([f64; 2]),
    /// The ratios of both workloads lie somewhere between the ends.
    Between([f64; 2]),
}

impl Range {
    /// Returns the published range of a mode. Software has no range, because it is the denominator.
    pub(super) fn published(mode: Mode) -> Option<Self> {
        match mode {
            Mode::Sync | Mode::LatencyCritical => Some(Self::Between([1.12, 1.6])),
            Mode::Async | Mode::Batch => Some(Self::OneEach([3.4, 3.8])),
            Mode::Software | Mode::LeastLatency | Mode::LeastHostCycles => None,
        }
    }

    /// Returns the published number for each of the two workloads, given the ratios that Rebate obtained (`ours`). If
    /// each workload has one end of the published range, it chooses the assignment that fits better. If both workloads
    /// lie between the ends, each gets the nearer end.
    pub(super) fn beside(self, ours: [f64; 2]) -> [f64; 2] {
        match self {
            Self::OneEach([low, high]) => {
                // A missing ratio fits both ends equally well, so that the other ratio decides.
                let off = |ends: [f64; 2]| apart(ours[0], ends[0]).max(apart(ours[1], ends[1]));
                if off([low, high]) <= off([high, low]) { [low, high] } else { [high, low] }
            }
            Self::Between([low, high]) => {
                ours.map(|ratio| if apart(ratio, low) <= apart(ratio, high) { low } else { high })
            }
        }
    }

    /// Returns the greater of both workloads' deviations, as a share of the published number. It is NaN if either
    /// deviation is NaN.
    pub(super) fn off(self, ours: [f64; 2], beside: [f64; 2]) -> f64 {
        let each = [0, 1].map(|at| match self {
            Self::OneEach(_) => apart(ours[at], beside[at]),
            Self::Between([low, high]) if (low..=high).contains(&ours[at]) => 0.0,
            Self::Between(_) => apart(ours[at], beside[at]),
        });
        // `max` would ignore a NaN.
        if each.iter().any(|off| off.is_nan()) { f64::NAN } else { each[0].max(each[1]) }
    }

    fn words(self) -> String {
        match self {
            Self::OneEach([low, high]) => format!("{low} and {high}, one for each workload"),
            Self::Between([low, high]) => format!("{low} to {high} for both workloads"),
        }
    }

    /// Returns a workload's row with its published number and a remark on the deviation.
    pub(super) fn row(self, row: Row, published: f64) -> Row {
        let words = self.words();
        let said = match (self, row.ours) {
            (_, None) => None,
            (Self::Between([low, high]), Some(ours)) if (low..=high).contains(&ours) => {
                Some(format!("published: {words}; within that"))
            }
            (_, Some(ours)) => {
                let percent = 100.0 * (ours / published - 1.0);
                Some(format!("published: {words}; {percent:+.1} % beside {published}"))
            }
        };
        with(row, said).beside(published)
    }

    /// Adds the criterion that both workloads deviate from the range by at most a tenth. The medians over all runs
    /// decide which end of the range belongs to which workload, and this holds for every run. `row` has the id, and
    /// `ratios` has both ratios of each run.
    pub(super) fn judge(self, rows: &mut Rows, row: Row, names: [&str; 2], ratios: [&[f64]; 2]) {
        let planned = ratios.map(<[f64]>::len).into_iter().max().unwrap_or(0);
        let ours = medians(ratios);
        let beside = self.beside(ours);
        let of_runs = ratios[0].iter().zip(ratios[1]);
        let of_runs = of_runs.map(|(one, other)| self.off([*one, *other], beside));
        let words = self.words();
        let assigned = [0, 1].map(|at| {
            let (name, ours, published) = (names[at], ours[at], beside[at]);
            format!("{name}'s {ours:.2} beside {published}")
        });
        let said = match self {
            Self::OneEach(_) => {
                let assigned = assigned.join(", ");
                format!("published: {words}, not which; the better assignment is {assigned}")
            }
            Self::Between(_) => format!("published: {words}; nearer ends: {}", assigned.join(", ")),
        };
        let said = row.ours.is_some().then_some(said);
        rows.judge(
            with(row, said),
            Some(Runs::new(of_runs, planned)),
            Limit::AtMost(DEVIATION_MAX),
        );
    }
}

/// Returns the medians of both workloads. A median is NaN if no run is valid.
pub(super) fn medians(ratios: [&[f64]; 2]) -> [f64; 2] {
    ratios.map(|runs| {
        Spread::from_values(runs.iter().copied()).map_or(f64::NAN, |spread| spread.median)
    })
}

/// Returns a row with its published number. If they differ by more than a tenth, the row's remark gives the
/// deviation and the known cause.
pub(super) fn beside(row: Row, published: f64, cause: &str) -> Row {
    let off = row.ours.map(|ours| ours / published - 1.0).filter(|off| off.abs() > DEVIATION_MAX);
    let said = off.map(|off| format!("{:+.0} % beside the published number: {cause}", 100.0 * off));
    with(row, said).beside(published)
}

/// Adds a remark to a row, if there is one.
pub(super) fn with(row: Row, said: Option<String>) -> Row {
    let all: Vec<String> = row.reason.clone().into_iter().chain(said).collect();
    Row { reason: (!all.is_empty()).then(|| all.join("; ")), ..row }
}

fn apart(ours: f64, published: f64) -> f64 {
    (ours / published - 1.0).abs()
}

/// The greatest deviation that passes, as a share of the published number.
pub(super) const DEVIATION_MAX: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use harness::Machine;

    const EACH: Range = Range::OneEach([3.4, 3.8]);

    fn row(ours: f64) -> Row {
        let devices = vec!["virtual-bluefield2".to_owned()];
        Row::from_values("a".into(), "b".into(), "ratio", [ours], devices, None)
    }

    #[test]
    fn each_workload_has_the_end_that_fits_better() {
        let off = |ours| (EACH.beside(ours), EACH.off(ours, EACH.beside(ours)) <= DEVIATION_MAX);
        assert_eq!(off([4.10, 3.07]), ([3.8, 3.4], true));
        assert_eq!(off([3.10, 4.15]), ([3.4, 3.8], true));
        // These ratios are within a tenth of one end or the other, but of no assignment.
        for both in [3.07, 3.10, 3.40, 3.75, 4.15] {
            let within = [3.4, 3.8].iter().all(|end| apart(both, *end) <= DEVIATION_MAX);
            assert_eq!(off([both, both]).1, within, "{both} for both");
        }
        assert!(!off([3.07, 3.07]).1 && !off([4.15, 4.15]).1 && off([3.5, 3.5]).1);
        assert_eq!(EACH.beside([f64::NAN, 3.75]), [3.4, 3.8], "the other decides");
        assert!(EACH.off([f64::NAN, 3.75], [3.4, 3.8]).is_nan());
        assert!(EACH.off([3.75, f64::NAN], [3.8, 3.4]).is_nan());
    }

    #[test]
    fn a_number_within_the_range_is_not_off() {
        let range = Range::published(Mode::Sync).expect("published");
        let beside = range.beside([1.35, 1.44]);
        assert_eq!((beside, range.off([1.35, 1.44], beside)), ([1.6, 1.6], 0.0));
        assert!((range.off([1.008, 1.44], [1.12, 1.6]) - 0.1).abs() < 1e-9);
        assert!((range.off([1.35, 1.76], [1.12, 1.6]) - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_pair_is_judged_by_its_medians() {
        let mut rows = Rows::new("runtime", &Machine::here(), "idle");
        let mut judge = |cache: [f64; 3], feed: [f64; 3]| {
            let off = EACH.off(medians([&cache, &feed]), EACH.beside(medians([&cache, &feed])));
            EACH.judge(&mut rows, row(off), ["Cache-1", "Feed-1"], [&cache, &feed]);
        };
        judge([3.7, 4.1, 4.3], [3.1, 3.07, 3.0]);
        judge([3.07; 3], [3.07; 3]);
        judge([f64::NAN; 3], [3.4; 3]);
        assert_eq!(
            rows.criteria.iter().map(|criterion| criterion.passed).collect::<Vec<_>>(),
            [Some(true), Some(false), None]
        );
        let said = rows.rows[0].reason.as_deref().expect("an assignment");
        assert!(said.contains("Cache-1's 4.10 beside 3.8, Feed-1's 3.07 beside 3.4"), "{said}");
        // The runs lie on both sides of the limit, because 4.3 is off by 13 %.
        assert!(
            rows.criteria[0]
                .spread
                .is_some_and(|[low, high]| low < DEVIATION_MAX && high > DEVIATION_MAX)
        );
        assert_eq!(rows.rows[2].reason.as_deref(), Some("no valid run"));
    }

    #[test]
    fn a_number_off_by_more_than_a_tenth_has_a_reason() {
        let near = beside(row(96.0), 100.0, "a cause");
        assert_eq!((near.published, near.reason), (Some(100.0), None));
        let off = beside(row(140.0).because("an input"), 100.0, "a cause");
        let said = off.reason.expect("a reason");
        assert_eq!(said, "an input; +40 % beside the published number: a cause");
        let none = beside(row(f64::NAN), 100.0, "a cause");
        assert_eq!(none.reason.as_deref(), Some("no valid run"));
    }

    #[test]
    fn a_workloads_row_says_how_far_it_is_off_its_end() {
        let said = |range: Range, ours, published| range.row(row(ours), published).reason;
        let off = said(EACH, 3.07, 3.4).expect("a reason");
        assert!(off.starts_with("published: 3.4 and 3.8") && off.contains("-9.7 %"), "{off}");
        let inside = said(Range::Between([1.12, 1.6]), 1.4, 1.6).expect("a reason");
        assert!(inside.ends_with("within that"), "{inside}");
    }
}
