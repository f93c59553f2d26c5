//! The clock of items' expiry times.

use std::sync::Arc;

use units::{Clock, Nanos, unix_time};

use super::expiry;

/// memcached's coarse clock. It counts whole seconds. Its zero is two seconds before its start.
#[derive(Clone)]
pub struct CoarseClock {
    clock: Arc<dyn Clock>,
    started_unix_s: u64,
    /// The part of a second that the date is after `started_unix_s` (ms).
    started_ms: u64,
    is_simulated: bool,
}

impl CoarseClock {
    /// Starts the clock. The date of its zero is computed from the system's clock.
    pub fn start(clock: Arc<dyn Clock>) -> Self {
        Self { is_simulated: false, ..Self::start_at(clock, unix_time().as_secs()) }
    }

    /// Starts the clock at a date in Unix seconds, for a simulation.
    pub fn start_at(clock: Arc<dyn Clock>, unix_s: u64) -> Self {
        let started_unix_s = unix_s.saturating_sub(OFFSET_S);
        Self { clock, started_unix_s, started_ms: 0, is_simulated: true }
    }

    /// Starts the clock at a date in Unix milliseconds, for a simulation.
    pub fn start_at_ms(clock: Arc<dyn Clock>, unix_ms: u64) -> Self {
        Self { started_ms: unix_ms % 1_000, ..Self::start_at(clock, unix_ms / 1_000) }
    }

    /// Returns the seconds since the clock's zero.
    pub fn now_s(&self) -> u32 {
        let Nanos(ns) = self.clock.now();
        u32::try_from(ns / 1_000_000_000 + OFFSET_S).unwrap_or(u32::MAX)
    }

    /// Returns the current date in Unix seconds, for expiry times that are dates. Later changes of
    /// the system's clock do not affect it.
    pub fn unix_s(&self) -> u64 {
        self.unix_at(self.now_s())
    }

    /// Returns the current date of the system's clock in Unix seconds, for what outlives this process. In a simulation
    /// it is this clock's date.
    pub fn system_unix_s(&self) -> u64 {
        if self.is_simulated { self.unix_s() } else { unix_time().as_secs() }
    }

    /// Returns the current date of the system's clock in Unix milliseconds, see [`CoarseClock::system_unix_s`].
    pub fn system_unix_ms(&self) -> u64 {
        if !self.is_simulated {
            return unix_time().as_millis() as u64;
        }
        let Nanos(ns) = self.clock.now();
        (self.started_unix_s + OFFSET_S) * 1_000 + self.started_ms + ns / 1_000_000
    }

    /// Converts a second of this clock to a date in Unix seconds.
    pub fn unix_at(&self, at_s: u32) -> u64 {
        self.started_unix_s + u64::from(at_s)
    }

    /// Returns the second at which an item with this expiry time expires ([`expiry`]).
    pub fn expiry(&self, exptime_s: i32) -> u32 {
        // Most items never expire, and reading the clock takes a while.
        if exptime_s == 0 {
            return 0;
        }
        expiry(i64::from(exptime_s), self.now_s(), self.started_unix_s)
    }
}

/// The clock's value at its start (seconds). Second 1 means "long ago", so it must be in the past
/// when the first request arrives.
const OFFSET_S: u64 = 2;
