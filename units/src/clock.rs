//! Time as an argument. Code that needs the current time gets a clock, so that tests and the simulator control time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::Nanos;

/// A monotonic clock. Its zero is the start of its owner.
pub trait Clock: Send + Sync {
    /// Returns the time since the clock's zero (ns).
    fn now(&self) -> Nanos;
}

/// The machine's monotonic clock. All clocks of a process have the same zero, which is the time when the first one was
/// made. So one owner can pass times to another. It is the clock of `std::time::Instant`, in fewer instructions.
#[derive(Clone, Debug)]
pub struct SystemClock {
    start: Nanos,
}

impl SystemClock {
    /// Makes a clock that agrees with every other clock of this process.
    pub fn new() -> Self {
        static START: OnceLock<Nanos> = OnceLock::new();
        Self { start: *START.get_or_init(since_boot) }
    }
}

/// Returns the time by the system's monotonic clock.
fn since_boot() -> Nanos {
    let time = clock_gettime(ClockId::Monotonic);
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        Nanos(since_boot().0.saturating_sub(self.start.0))
    }
}

/// Returns the time of the monotonic clock that the processes of a host share, unless they are in namespaces of time
/// (ms). It is up to 10 ms late, and cheap.
pub fn host_ms() -> u64 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    time.tv_sec as u64 * 1_000 + time.tv_nsec as u64 / 1_000_000
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
    fn the_clocks_of_a_process_agree_and_never_go_back() {
        let (one, other) = (SystemClock::new(), SystemClock::new());
        let begun = std::time::Instant::now();
        let first = one.now();
        std::thread::sleep(Duration::from_millis(2));
        let second = other.now();
        let elapsed = Nanos::from(begun.elapsed());
        let passed = second.since(first);
        assert!(passed >= Nanos::millis(2) && passed <= elapsed, "{passed:?} of {elapsed:?}");
    }

    #[test]
    fn clones_of_a_manual_clock_share_the_time() {
        let clock = ManualClock::default();
        let other = clock.clone();
        clock.advance(Nanos::micros(3));
        assert_eq!(other.now(), Nanos(3_000));
    }
}
