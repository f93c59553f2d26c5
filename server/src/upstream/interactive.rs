//! Limits the number of values in flight on a worker's connections for short requests. The length of a value
//! that was never seen is unknown. The limit therefore bounds the delay if all of them are long. Requests
//! beyond the limit use the connections for long transfers.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// The number of values in flight on one worker's connections for short requests, over all servers.
#[derive(Default)]
pub(crate) struct InteractiveLoad {
    values: Cell<usize>,
    /// The time at which a long value last arrived on one of these connections.
    long_value_at: Cell<Option<Instant>>,
}

impl InteractiveLoad {
    /// Returns whether a session with `short_answers` short answers in a row may request `values` values.
    #[inline]
    pub(crate) fn admits(&self, values: usize, short_answers: u32) -> bool {
        let after = self.values.get() + values;
        after <= VALUES_UNPROVEN_MAX
            || (after <= VALUES_MAX && short_answers >= self.short_answers_min())
    }

    /// Records a long value on a connection for short requests. Sessions then need more short answers.
    #[cold]
    pub(crate) fn record_long_value(&self) {
        self.long_value_at.set(Some(Instant::now()));
    }

    /// Adds values in flight.
    #[inline]
    pub(super) fn add(&self, values: usize) {
        self.values.set(self.values.get() + values);
    }

    /// Removes values in flight, after they arrived or failed.
    #[inline]
    pub(super) fn remove(&self, values: usize) {
        self.values.set(self.values.get() - values);
    }

    /// Creates the load with `values` values in flight.
    #[cfg(test)]
    pub(crate) fn in_use(values: usize) -> Self {
        Self { values: Cell::new(values), long_value_at: Cell::default() }
    }

    fn short_answers_min(&self) -> u32 {
        match self.long_value_at.get() {
            Some(last) if last.elapsed() < SUSPICIOUS_FOR => SHORT_ANSWERS_MIN_SUSPICIOUS,
            _ => SHORT_ANSWERS_MIN,
        }
    }
}

/// The limit on values in flight for sessions without enough short answers. With items of the default limit
/// these are 16 MB, which delayed other sessions by at most 60 to 80 ms in a measurement
/// (docs/measurements/neighbours.md).
const VALUES_UNPROVEN_MAX: usize = 16;

/// The limit on values in flight for sessions with enough short answers. It suffices for 64 client
/// connections with one request in flight each.
const VALUES_MAX: usize = 64;

/// The number of short answers in a row after which a session gets the higher limit. An attacker must send
/// this many requests for each long value that delays others.
const SHORT_ANSWERS_MIN: u32 = 64;
/// The number of short answers in a row for the higher limit, soon after an unexpected long value.
const SHORT_ANSWERS_MIN_SUSPICIOUS: u32 = 512;
/// The time after an unexpected long value for which more short answers are needed.
const SUSPICIOUS_FOR: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_without_a_record_share_few_places() {
        let load = InteractiveLoad::default();
        assert!(load.admits(VALUES_UNPROVEN_MAX, 0));
        assert!(!load.admits(VALUES_UNPROVEN_MAX + 1, 0));
        load.add(VALUES_UNPROVEN_MAX);
        assert!(!load.admits(1, 0));
        assert!(load.admits(1, SHORT_ANSWERS_MIN));
        load.add(VALUES_MAX - VALUES_UNPROVEN_MAX);
        assert!(!load.admits(1, u32::MAX));
        load.remove(VALUES_MAX);
        assert!(load.admits(1, 0));
    }

    #[test]
    fn a_surprise_makes_a_record_harder_to_earn() {
        let load = InteractiveLoad::default();
        load.add(VALUES_UNPROVEN_MAX);
        assert!(load.admits(1, SHORT_ANSWERS_MIN));
        load.record_long_value();
        assert!(!load.admits(1, SHORT_ANSWERS_MIN));
        assert!(load.admits(1, SHORT_ANSWERS_MIN_SUSPICIOUS));
    }
}
