//! Whether the embedded store has memory to spare. One worker measures it once a second, and all workers ask.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use policy::payoff::Fullness;
use store::Embedded;

/// The result of the last measurement. A store that was not measured yet has memory to spare.
#[derive(Debug)]
pub(crate) struct SpareMemory {
    is_there: AtomicBool,
    fullness: Mutex<Fullness>,
}

impl Default for SpareMemory {
    fn default() -> Self {
        Self { is_there: AtomicBool::new(true), fullness: Mutex::default() }
    }
}

impl SpareMemory {
    /// Measures the store. This takes each of its locks for a moment.
    pub(crate) fn measure(&self, store: &Embedded) {
        let stats = store.stats();
        let mut fullness = self.fullness.lock();
        let is_there = fullness.has_spare(stats.bytes, stats.limit_maxbytes, stats.evictions);
        self.is_there.store(is_there, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }
}
