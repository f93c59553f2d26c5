//! The deadline of a packet, in the two bytes of the virtual bucket, which memcached ignores. It is a time of a clock
//! that client and server share, so it has a meaning only between processes of one host.

use std::time::Duration;

/// The time from which on nobody waits for an answer, in ticks of 4 ms. Of the time of the clock it has 16 bits, so it
/// is right within two minutes of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadline(u16);

impl Deadline {
    /// Returns the deadline that is `limit` after `now_ms`, a time of the shared clock (ms), rounded up. It is none if
    /// `limit` is longer than 131 s.
    pub fn after(now_ms: u64, limit: Duration) -> Self {
        if limit > LIMIT_MAX {
            return Self::default();
        }
        let tick = (now_ms + limit.as_millis() as u64).div_ceil(TICK_MS);
        // Zero stands for none.
        Self((tick as u16).max(1))
    }

    /// Returns whether it is over at `now_ms`.
    pub const fn is_over(self, now_ms: u64) -> bool {
        self.0 != 0 && ((now_ms / TICK_MS) as u16).wrapping_sub(self.0) as i16 >= 0
    }

    /// Returns whether there is none.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) const fn from_bytes(bytes: [u8; 2]) -> Self {
        Self(u16::from_be_bytes(bytes))
    }

    pub(super) const fn bytes(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }
}

const TICK_MS: u64 = 4;

/// Half of the ticks that 16 bits can count, less one for the rounding.
const LIMIT_MAX: Duration = Duration::from_millis((i16::MAX as u64 - 1) * TICK_MS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_over_from_its_time_on() {
        // The ticks wrap in the course of these times.
        for now_ms in (0..600_000).step_by(997) {
            for limit_ms in [0, 1, 250, 60_000, 131_000] {
                let deadline = Deadline::after(now_ms, Duration::from_millis(limit_ms));
                assert!(!deadline.is_none());
                let end_ms = now_ms + limit_ms;
                assert!(limit_ms == 0 || !deadline.is_over(end_ms - 1), "{now_ms} {limit_ms}");
                // Zero stands for none, so the deadline of one tick is later by one.
                assert!(deadline.is_over(end_ms + 2 * TICK_MS), "{now_ms} {limit_ms}");
                assert!(deadline.is_over(end_ms + 120_000), "{now_ms} {limit_ms}");
                assert_eq!(Deadline::from_bytes(deadline.bytes()), deadline);
            }
        }
    }

    #[test]
    fn a_limit_that_is_too_long_is_none() {
        let none = Deadline::after(5, LIMIT_MAX + Duration::from_millis(1));
        assert!(none.is_none() && !none.is_over(0) && !none.is_over(u64::MAX));
    }
}
