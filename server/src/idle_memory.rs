//! Returns memory to the system after a burst of requests, and tells when a store has become full. The C library keeps
//! freed memory for later requests, which is useful under load but would keep the memory of a burst allocated for
//! hours.

use std::time::Duration;

use parking_lot::RwLock;
use store::embedded;

use crate::budget::Budget;

/// Checks periodically whether a burst is over, and then calls `trim_heap`. It runs in a separate task.
pub(crate) async fn trim(budgets: &RwLock<Vec<Budget>>, trim_heap: fn() -> bool) {
    let mut tick = tokio::time::interval(SAMPLE_EVERY);
    let mut watch = Watch::default();
    loop {
        tick.tick().await;
        let held = budgets
            .read()
            .iter()
            .map(Budget::take_peak)
            .fold((0, 0), |sum, (held, peak)| (sum.0 + held, sum.1 + peak));
        if watch.is_idle(held.0, held.1) {
            // `trim_heap` blocks threads that allocate, so it runs rarely and on another thread.
            let trimmed = tokio::task::spawn_blocking(trim_heap).await;
            tracing::debug!(trimmed = trimmed.unwrap_or(false), "memory was given back");
        }
    }
}

/// Detects the end of a burst.
#[derive(Default)]
struct Watch {
    peak: u64,
    idle_samples: u32,
}

impl Watch {
    /// Returns whether a burst is over, from the bytes held now and the peak since the last check.
    fn is_idle(&mut self, held: u64, peak: u64) -> bool {
        self.peak = self.peak.max(peak);
        let is_little = held <= self.peak / IDLE_SHARE && peak <= self.peak / 2;
        self.idle_samples = if is_little { self.idle_samples + 1 } else { 0 };
        if self.peak < BURST_BYTES_MIN || self.idle_samples < IDLE_SAMPLES {
            return false;
        }
        *self = Self { peak: held, idle_samples: 0 };
        true
    }
}

/// Detects that a store has become full. Its indexes have grown until then, and left smaller ones between the items.
#[derive(Default)]
pub(crate) struct Growth {
    /// The items at the last time.
    items: u64,
}

impl Growth {
    /// Returns whether the store is full and has many more items than the last time.
    pub(crate) fn has_ended(&mut self, stats: &embedded::Stats) -> bool {
        let is_full = stats.evictions > 0;
        let has_grown = stats.curr_items > self.items + self.items / GROWTH_SHARE;
        if is_full && has_grown {
            self.items = stats.curr_items;
        }
        is_full && has_grown
    }
}

const SAMPLE_EVERY: Duration = Duration::from_secs(1);

/// The smallest burst (bytes) after which memory is returned. Smaller ones do not justify walking the heap.
const BURST_BYTES_MIN: u64 = 8 << 20;

/// The divisor of a burst's peak. The burst is over once at most 1/8 was held for `IDLE_SAMPLES` checks.
const IDLE_SHARE: u64 = 8;
const IDLE_SAMPLES: u32 = 2;

/// A full store has grown much if it has this part more items: dictionaries made room for them.
const GROWTH_SHARE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_given_back_once_after_a_burst() {
        let mut watch = Watch::default();
        let samples = [(60, 64), (40, 64), (1, 50), (1, 2), (0, 1), (0, 0), (0, 0), (0, 0)];
        let idle = samples.map(|(held, peak)| watch.is_idle(held * MIB, peak * MIB));
        assert_eq!(idle, [false, false, false, false, true, false, false, false]);
    }

    #[test]
    fn a_steady_load_keeps_its_memory() {
        let mut watch = Watch::default();
        assert!((0..100).all(|sample| !watch.is_idle((sample % 5) * 8 * MIB, 40 * MIB)));
    }

    #[test]
    fn a_store_has_grown_when_it_is_full_and_again_with_many_more_items() {
        let mut growth = Growth::default();
        let mut has_ended = |curr_items, evictions| {
            growth.has_ended(&embedded::Stats { curr_items, evictions, ..Default::default() })
        };
        assert!(!has_ended(100, 0));
        assert!(has_ended(200, 1));
        assert!(!has_ended(240, 100));
        assert!(has_ended(251, 200));
        assert!(!has_ended(0, 300) && !has_ended(300, 300));
    }
}
