//! The limit on the values that may be in flight on a worker's connections for short exchanges. The length of a value
//! that was never seen is unknown, so a limit on the number of values bounds how long others wait if all of them turn
//! out to be long. Requests beyond the limit take the connections for long exchanges. This module does not know which
//! session sends a request.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The values in flight on one worker's connections for short exchanges, to all servers.
#[derive(Default)]
pub(crate) struct InteractiveLoad {
    values: Cell<usize>,
    /// The time at which a long value last came on one of these connections.
    surprised: Cell<Option<Instant>>,
}

impl InteractiveLoad {
    /// Returns whether a session that has had `short_answers` in a row may request this many values.
    #[inline]
    pub(crate) fn has_room(&self, values: usize, short_answers: u32) -> bool {
        let after = self.values.get() + values;
        after <= VALUES_UNPROVEN_MAX
            || (after <= VALUES_MAX && short_answers >= self.answers_to_prove())
    }

    /// Records that a long value came where others wait behind it. Sessions have to prove more for a while.
    #[cold]
    pub(crate) fn surprise(&self) {
        self.surprised.set(Some(Instant::now()));
    }

    /// Records that this many more values are in flight.
    #[inline]
    pub(super) fn add(&self, values: usize) {
        self.values.set(self.values.get() + values);
    }

    /// Records that this many values have come or will not come.
    #[inline]
    pub(super) fn remove(&self, values: usize) {
        self.values.set(self.values.get() - values);
    }

    /// Creates the load with this many values in flight.
    #[cfg(test)]
    pub(crate) fn in_use(values: usize) -> Self {
        Self { values: Cell::new(values), surprised: Cell::default() }
    }

    fn answers_to_prove(&self) -> u32 {
        match self.surprised.get() {
            Some(last) if last.elapsed() < SUSPICIOUS_FOR => ANSWERS_TO_PROVE_SUSPICIOUS,
            _ => ANSWERS_TO_PROVE,
        }
    }
}

/// The most values in flight for sessions without a record. With items of the default limit these are 16 MB, which
/// delayed other sessions by at most 60 to 80 ms in a measurement (docs/measurements/neighbours.md).
const VALUES_UNPROVEN_MAX: usize = 16;

/// The most values in flight for sessions that have had short answers. With this limit, a load of one request on each
/// of 64 connections never leaves the connections for short exchanges.
const VALUES_MAX: usize = 64;

/// The number of short answers in a row that make a record. An attacker pays with this many requests for each long
/// value that others wait behind.
const ANSWERS_TO_PROVE: u32 = 64;
/// The number of short answers in a row that make a record soon after a surprise.
const ANSWERS_TO_PROVE_SUSPICIOUS: u32 = 512;
/// The time after a surprise in which a record takes more answers.
const SUSPICIOUS_FOR: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_without_a_record_share_few_places() {
        let load = InteractiveLoad::default();
        assert!(load.has_room(VALUES_UNPROVEN_MAX, 0));
        assert!(!load.has_room(VALUES_UNPROVEN_MAX + 1, 0));
        load.add(VALUES_UNPROVEN_MAX);
        assert!(!load.has_room(1, 0));
        assert!(load.has_room(1, ANSWERS_TO_PROVE));
        load.add(VALUES_MAX - VALUES_UNPROVEN_MAX);
        assert!(!load.has_room(1, u32::MAX));
        load.remove(VALUES_MAX);
        assert!(load.has_room(1, 0));
    }

    #[test]
    fn a_surprise_makes_a_record_harder_to_earn() {
        let load = InteractiveLoad::default();
        load.add(VALUES_UNPROVEN_MAX);
        assert!(load.has_room(1, ANSWERS_TO_PROVE));
        load.surprise();
        assert!(!load.has_room(1, ANSWERS_TO_PROVE));
        assert!(load.has_room(1, ANSWERS_TO_PROVE_SUSPICIOUS));
    }
}
