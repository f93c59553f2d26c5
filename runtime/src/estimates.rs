//! What a device takes for a job of a size, from submission to completion, as its last jobs took: a moving average per
//! size class. It lags behind the load and knows nothing of content.

use units::{Nanos, Op};

/// One device's times by op and size.
pub(crate) struct Estimates {
    /// Zero where no job of the class was seen.
    total_ns: [[u64; CLASSES]; OPS],
}

impl Estimates {
    pub(crate) fn new() -> Self {
        Self { total_ns: [[0; CLASSES]; OPS] }
    }

    #[inline]
    pub(crate) fn learn(&mut self, op: Op, work_bytes: usize, total: Nanos) {
        let average_ns = &mut self.total_ns[op.index() % OPS][class(work_bytes)];
        let total_ns = total.0.max(1);
        *average_ns = match *average_ns {
            0 => total_ns,
            average_ns => (average_ns - average_ns / WEIGHT + total_ns / WEIGHT).max(1),
        };
    }

    #[inline]
    pub(crate) fn of(&self, op: Op, work_bytes: usize) -> Option<Nanos> {
        Some(Nanos(self.total_ns[op.index() % OPS][class(work_bytes)]))
            .filter(|estimate| estimate.0 > 0)
    }
}

/// By powers of two, up to 1 GiB and beyond.
fn class(work_bytes: usize) -> usize {
    (work_bytes.max(1).ilog2() as usize).min(CLASSES - 1)
}

const CLASSES: usize = 31;

/// The ops that are jobs are the first six by index; two places more make the index a mask.
pub(crate) const OPS: usize = 8;

/// The newest job counts an eighth: a device that became slower is known after about ten jobs.
const WEIGHT: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_follows_what_jobs_of_its_size_take() {
        let mut estimates = Estimates::new();
        let op = Op::Compress;
        assert_eq!(estimates.of(op, 4_096), None);
        estimates.learn(op, 4_096, Nanos(1_000));
        assert_eq!((estimates.of(op, 5_000), estimates.of(op, 2_000)), (Some(Nanos(1_000)), None));
        assert_eq!(estimates.of(Op::Decompress, 4_096), None);
        for _ in 0..30 {
            estimates.learn(op, 4_096, Nanos(9_000));
        }
        let now = estimates.of(op, 4_096).expect("seen");
        assert!((8_500..=9_000).contains(&now.0), "{now:?}");
    }
}
