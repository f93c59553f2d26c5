//! Decides when compression is worth its time: which values of a class are tried, after how many tries that saved too
//! little, and whether a store has memory to spare. These are pure functions of what others have counted.

/// Returns how many values of a class there are for each one that is tried, after this many tries in a row that saved
/// too little. It is 1 at first. A single try that saves enough ends the row.
#[inline]
pub const fn values_per_try(failures_in_row: u32) -> u32 {
    let doublings = failures_in_row / FAILURES_PER_DOUBLING;
    1 << if doublings < DOUBLINGS_MAX { doublings } else { DOUBLINGS_MAX }
}

/// How full a store is, from its counters at intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fullness {
    evictions: u64,
    /// The bytes of items with which the store last evicted some, or none if it never did.
    full_bytes: Option<u64>,
    /// The bytes of items at the last call.
    last_bytes: u64,
}

impl Fullness {
    /// Returns whether the store has memory to spare. It holds items of `bytes`, has a limit of `limit_bytes`, and has
    /// evicted this many items since its start.
    pub fn has_spare(&mut self, bytes: u64, limit_bytes: u64, evictions: u64) -> bool {
        if evictions > self.evictions {
            // The store may have been flushed after the evictions. It was about as full at the last call.
            (self.evictions, self.full_bytes) = (evictions, Some(bytes.max(self.last_bytes)));
        }
        self.last_bytes = bytes;
        // A store that replaces many items is full with fewer bytes of items than its limit.
        let full_bytes = self.full_bytes.unwrap_or(limit_bytes);
        bytes < full_bytes / SPARE_BELOW.1 * SPARE_BELOW.0
    }
}

/// The number of failures after which half as many values are tried.
const FAILURES_PER_DOUBLING: u32 = 16;

/// With 6, one value in 64 is tried at least.
const DOUBLINGS_MAX: u32 = 6;

/// The share of a full store's bytes below which there is memory to spare.
const SPARE_BELOW: (u64, u64) = (3, 4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_values_are_tried_with_each_sixteen_failures() {
        let tries = [0, 15, 16, 32, 95, 96, 10_000, u32::MAX].map(values_per_try);
        assert_eq!(tries, [1, 1, 2, 4, 32, 64, 64, 64]);
    }

    #[test]
    fn a_quarter_of_the_limit_is_spare_before_evictions() {
        let mut fullness = Fullness::default();
        assert!(fullness.has_spare(0, 1_000, 0));
        assert!(fullness.has_spare(749, 1_000, 0));
        assert!(!fullness.has_spare(750, 1_000, 0));
    }

    #[test]
    fn evictions_tell_with_how_many_bytes_a_store_is_full() {
        let mut fullness = Fullness::default();
        assert!(!fullness.has_spare(600, 1_000, 7), "it evicts, so it is full");
        assert!(!fullness.has_spare(590, 1_000, 7), "an item less makes no room");
        assert!(fullness.has_spare(440, 1_000, 7));
        assert!(!fullness.has_spare(440, 1_000, 8));
    }

    #[test]
    fn a_flush_of_a_store_that_evicts_makes_room() {
        let mut fullness = Fullness::default();
        assert!(!fullness.has_spare(1_000, 1_000, 7));
        assert!(fullness.has_spare(0, 1_000, 9), "it evicted two items and was flushed");
        assert!(fullness.has_spare(700, 1_000, 9), "it was full with 1,000 bytes");
        assert!(!fullness.has_spare(760, 1_000, 9));
    }
}
