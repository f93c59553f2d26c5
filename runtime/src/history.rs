//! The history of jobs on one core: the time between jobs, their sizes, and the policy's last choice for each kind of
//! job. It decides nothing.

use policy::Choice;
use units::{Nanos, Op};

use crate::core::decision_validity::ValidatedDecision;
use crate::slot::OPS;

/// The history of one runtime.
pub(crate) struct History {
    arrived: Nanos,
    /// `GAPS` times the time between two jobs (ns), smoothed: what whole numbers leave out of one is less than that.
    gaps_ns: u64,
    arrivals: u64,
    /// `GAPS` times their size, in the same way.
    sizes_bytes: u64,
    /// The kinds by op and size.
    kinds: [[Kind; CLASSES]; OPS],
}

/// The jobs of one op and about one size.
#[derive(Clone, Copy, Default)]
pub(crate) struct Kind {
    /// The policy's choice for the last such job.
    pub(crate) last: Option<Choice>,
    /// The validated decision, while the policy need not be asked again.
    pub(crate) validated: Option<ValidatedDecision>,
}

impl Default for History {
    fn default() -> Self {
        let (gaps_ns, kinds) = (GAPS * GAP_NS_MAX, [[Kind::default(); CLASSES]; OPS]);
        Self { arrived: Nanos(0), gaps_ns, arrivals: 0, sizes_bytes: 0, kinds }
    }
}

impl History {
    /// The time between one job and the next, where the policy weighs costs, smoothed.
    #[inline]
    pub(crate) fn arrived(&mut self, bytes: usize, now: Nanos) -> Nanos {
        let bytes = bytes.min(BYTES_MAX) as u64;
        self.sizes_bytes = self.sizes_bytes - self.sizes_bytes / GAPS + bytes;
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

    /// Returns the number of jobs that came.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Their sizes, smoothed.
    pub(crate) fn mean_bytes(&self) -> usize {
        (self.sizes_bytes / GAPS) as usize
    }

    /// Returns the kind of such jobs.
    #[inline]
    pub(crate) fn kind(&mut self, op: Op, bytes: usize) -> &mut Kind {
        &mut self.kinds[op.index() % OPS][class(bytes)]
    }
}

/// The least and the greatest size that is of one kind with this one; none of those without end.
pub(crate) fn alike(bytes: usize) -> Option<[usize; 2]> {
    let least = 1 << class(bytes);
    (class(bytes) < CLASSES - 1).then_some([least & !1, 2 * least - 1])
}

/// Returns the class of a size, by powers of two up to 1 GiB and beyond.
fn class(bytes: usize) -> usize {
    ((bytes | 1).ilog2() as usize).min(CLASSES - 1)
}

const CLASSES: usize = 31;

/// The inverse of a newer gap's weight.
const GAPS: u64 = 64;

/// A longer pause says only that no job came for long, and must not outweigh what comes after it.
const GAP_NS_MAX: u64 = 1_000_000;

/// The bound on a size that counts, because a job states its size itself.
const BYTES_MAX: usize = 1 << 30;

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
                seen = history.arrived(1, now);
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
        history.kind(Op::Compress, 5_000).last = Some(choice);
        assert_eq!(history.kind(Op::Compress, 4_096).last, Some(choice));
        assert_eq!(history.kind(Op::Compress, 4_095).last, None);
        assert_eq!(history.kind(Op::Decompress, 5_000).last, None);
        assert_eq!(alike(5_000), Some([4_096, 8_191]));
        assert_eq!((alike(0), alike(1), alike(2)), (Some([0, 1]), Some([0, 1]), Some([2, 3])));
        assert_eq!((alike(usize::MAX), alike(1 << 30)), (None, None));
    }
}
