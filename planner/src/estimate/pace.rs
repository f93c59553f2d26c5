//! Spaces out requests or bytes so that a rate is never exceeded for long. Time is an argument.

use std::time::{Duration, Instant};

/// A rate and the moment from which the next units may be taken.
#[derive(Debug)]
pub(super) struct Pace {
    per_s: f64,
    free_at: Instant,
}

impl Pace {
    /// Makes a pace of `per_s` units per second.
    pub(super) fn new(per_s: f64, now: Instant) -> Self {
        Self { per_s, free_at: now }
    }

    /// Takes `units`, and returns how long the caller has to wait before it uses them. Time that passes unused is lost,
    /// so no burst follows a pause.
    pub(super) fn take(&mut self, units: f64, now: Instant) -> Duration {
        let start = self.free_at.max(now);
        self.free_at = start + Duration::from_secs_f64(units / self.per_s);
        start.duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_spread_at_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(100.0, start);
        assert_eq!(pace.take(10.0, start), Duration::ZERO);
        assert_eq!(pace.take(10.0, start), Duration::from_millis(100));
        assert_eq!(pace.take(1.0, start), Duration::from_millis(200));
    }

    #[test]
    fn a_pause_allows_no_burst() {
        let start = Instant::now();
        let mut pace = Pace::new(100.0, start);
        let later = start + Duration::from_secs(5);
        assert_eq!(pace.take(10.0, later), Duration::ZERO);
        assert_eq!(pace.take(10.0, later), Duration::from_millis(100));
    }
}
