//! Time as an argument. Code that needs the current time gets a clock, so that tests and the simulator control time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use crate::Nanos;

/// A monotonic clock. Its zero is the start of its owner.
pub trait Clock: Send + Sync {
    /// Returns the time since the clock's zero (ns).
    fn now(&self) -> Nanos;
}

/// The machine's monotonic clock. All clocks of a process have the same zero, which is the time when the first one was
/// made. So one owner can pass times to another.
#[derive(Clone, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Makes a clock that agrees with every other clock of this process.
    pub fn new() -> Self {
        static START: OnceLock<Instant> = OnceLock::new();
        Self { start: *START.get_or_init(Instant::now) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }
}

/// Returns the time since the Unix epoch by the machine's clock, or zero if that clock is before the epoch.
pub fn unix_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// A clock that stands still until it is moved. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    now_ns: Arc<AtomicU64>,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Nanos) {
        self.now_ns.fetch_add(by.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        Nanos(self.now_ns.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_share_the_time() {
        let clock = ManualClock::default();
        let other = clock.clone();
        clock.advance(Nanos::micros(3));
        assert_eq!(other.now(), Nanos(3_000));
    }
}
