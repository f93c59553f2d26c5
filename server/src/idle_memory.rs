//! Returns memory to the system once values in flight no longer need it. The C library keeps freed memory for the next
//! request. That is right while there are requests, and wrong for hours after a burst.

use std::time::Duration;

use parking_lot::RwLock;

use crate::budget::Budget;

/// Checks at intervals whether `trim_heap` has something to return to the system. It runs in a task of its own.
pub(crate) async fn give_back(budgets: &RwLock<Vec<Budget>>, trim_heap: fn() -> bool) {
    let mut tick = tokio::time::interval(LOOK_EVERY);
    let mut watch = Watch::default();
    loop {
        tick.tick().await;
        let held = budgets
            .read()
            .iter()
            .map(Budget::take_peak)
            .fold((0, 0), |sum, (held, peak)| (sum.0 + held, sum.1 + peak));
        if watch.is_idle(held.0, held.1) {
            // `trim_heap` walks the heap and stops threads that allocate. It therefore runs on another thread, and not
            // often.
            let trimmed = tokio::task::spawn_blocking(trim_heap).await;
            tracing::debug!(trimmed = trimmed.unwrap_or(false), "memory was given back");
        }
    }
}

/// Detects the end of a burst.
#[derive(Default)]
struct Watch {
    peak: u64,
    idle_looks: u32,
}

impl Watch {
    /// Returns whether a burst is over. `held` are the bytes held now, and `peak` are the most since the last check.
    fn is_idle(&mut self, held: u64, peak: u64) -> bool {
        self.peak = self.peak.max(peak);
        let is_little = held <= self.peak / IDLE_SHARE && peak <= self.peak / 2;
        self.idle_looks = if is_little { self.idle_looks + 1 } else { 0 };
        if self.peak < BURST_BYTES_MIN || self.idle_looks < IDLE_LOOKS {
            return false;
        }
        *self = Self { peak: held, idle_looks: 0 };
        true
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The smallest burst after which memory is returned. The walk through the heap costs more than a smaller burst
/// returns.
const BURST_BYTES_MIN: u64 = 8 << 20;

/// A burst is over when one part in this many, or less, is held for `IDLE_LOOKS` checks.
const IDLE_SHARE: u64 = 8;
const IDLE_LOOKS: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_is_given_back_once_after_a_burst() {
        let mut watch = Watch::default();
        let looks = [(60, 64), (40, 64), (1, 50), (1, 2), (0, 1), (0, 0), (0, 0), (0, 0)];
        let idle = looks.map(|(held, peak)| watch.is_idle(held * MIB, peak * MIB));
        assert_eq!(idle, [false, false, false, false, true, false, false, false]);
    }

    #[test]
    fn a_steady_load_keeps_its_memory() {
        let mut watch = Watch::default();
        assert!((0..100).all(|look| !watch.is_idle((look % 5) * 8 * MIB, 40 * MIB)));
    }
}
