//! What came to one core and where it went: how far jobs lie apart, and where the policy sent the last of a kind. It
//! decides nothing.

use policy::Choice;
use units::{Nanos, Op};

use crate::slot::OPS;

/// Of one runtime.
pub(crate) struct History {
    arrived: Nanos,
    /// `GAPS` times the time between two jobs (ns), smoothed: what whole numbers leave out of one is less than that.
    gaps_ns: u64,
    arrivals: u64,
    /// By op and size.
    last: [[Option<Choice>; CLASSES]; OPS],
}

impl Default for History {
    fn default() -> Self {
        let last = [[None; CLASSES]; OPS];
        Self { arrived: Nanos(0), gaps_ns: GAPS * GAP_NS_MAX, arrivals: 0, last }
    }
}

impl History {
    /// The time between a job that the policy weighs and the next, smoothed.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Nanos) -> Nanos {
        let gap_ns = now.since(self.arrived).0.min(GAP_NS_MAX);
        self.arrived = now;
        self.gaps_ns = self.gaps_ns - self.gaps_ns / GAPS + gap_ns;
        Nanos(self.gaps_ns / GAPS)
    }

    /// A job came, whatever places it.
    #[inline]
    pub(crate) fn count(&mut self) {
        self.arrivals += 1;
    }

    /// Jobs that came.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// What the policy chose for the last such job; the next choice goes there.
    #[inline]
    pub(crate) fn last(&mut self, op: Op, bytes: usize) -> &mut Option<Choice> {
        &mut self.last[op.index() % OPS][class(bytes)]
    }
}

/// By powers of two, up to 1 GiB and beyond.
fn class(bytes: usize) -> usize {
    ((bytes | 1).ilog2() as usize).min(CLASSES - 1)
}

const CLASSES: usize = 31;

/// A newer gap weighs one in so many.
const GAPS: u64 = 64;

/// A longer pause says no more than that nobody came for long, and must not outweigh what comes after it.
const GAP_NS_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use policy::{Placement, Reason};

    use super::*;

    #[test]
    fn the_gap_is_smoothed_and_a_pause_is_soon_forgotten() {
        let mut history = History::default();
        let mut now = Nanos(0);
        let mut gap_after = |gap: Nanos, jobs: u32| {
            let mut seen = Nanos(0);
            for _ in 0..jobs {
                now += gap;
                seen = history.arrived(now);
            }
            seen.0
        };
        assert!((20_000..21_000).contains(&gap_after(Nanos::micros(20), 1_000)));
        assert!(gap_after(Nanos::secs(100), 1) < 40_000);
        assert!(gap_after(Nanos::micros(20), 200) < 21_000);
    }

    #[test]
    fn places_are_remembered_by_op_and_size() {
        let mut history = History::default();
        let choice = Choice::to(1, Placement::Sync, Reason::Policy);
        *history.last(Op::Compress, 5_000) = Some(choice);
        assert_eq!(*history.last(Op::Compress, 4_096), Some(choice));
        assert_eq!(*history.last(Op::Compress, 4_095), None);
        assert_eq!(*history.last(Op::Decompress, 5_000), None);
    }
}
