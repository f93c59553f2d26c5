//! The history of jobs on one core: their number, the time between them, and their sizes. It decides nothing.

use units::Nanos;

/// The history of one runtime.
pub(crate) struct History {
    arrived: Nanos,
    /// The smoothed time between two jobs, times `GAPS` (ns). The rounding error of one gap is below 1 ns.
    gaps_ns: u64,
    arrivals: u64,
    /// The smoothed size of a job, times `GAPS`.
    sizes_bytes: u64,
}

impl Default for History {
    fn default() -> Self {
        Self { arrived: Nanos(0), gaps_ns: GAPS * GAP_NS_MAX, arrivals: 0, sizes_bytes: 0 }
    }
}

impl History {
    /// Records the arrival of a job and returns the smoothed time between jobs. It is called only if the policy uses
    /// costs.
    #[inline]
    pub(crate) fn arrived(&mut self, bytes: usize, now: Nanos) -> Nanos {
        let bytes = bytes.min(BYTES_MAX) as u64;
        self.sizes_bytes = self.sizes_bytes - self.sizes_bytes / GAPS + bytes;
        let gap_ns = now.since(self.arrived).0.min(GAP_NS_MAX);
        self.arrived = now;
        self.gaps_ns = self.gaps_ns - self.gaps_ns / GAPS + gap_ns;
        Nanos(self.gaps_ns / GAPS)
    }

    /// Counts the arrival of a job.
    #[inline]
    pub(crate) fn count(&mut self) {
        self.arrivals += 1;
    }

    /// Returns the number of jobs that arrived.
    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Returns the smoothed size of a job.
    pub(crate) fn mean_bytes(&self) -> usize {
        (self.sizes_bytes / GAPS) as usize
    }
}

/// The reciprocal of the newest value's weight in a smoothed value.
const GAPS: u64 = 64;

/// The longest gap that counts. A longer pause must not outweigh the gaps after it.
const GAP_NS_MAX: u64 = 1_000_000;

/// The largest size that counts. There is a bound because a job states its size itself.
const BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
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
}
