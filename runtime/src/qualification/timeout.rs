//! The timeout of a job in a qualification. Only the time in which this process had a core counts, so a pause
//! of the machine does not make a device late.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use units::{Clock, Nanos};

/// The time that is left for one job.
pub(super) struct Timeout {
    limit: Duration,
    waited: Duration,
    last_read: Instant,
}

impl Timeout {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, waited: Duration::ZERO, last_read: Instant::now() }
    }

    /// Restarts the time, because the device made progress or the next job begins.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Returns whether the job's time is over.
    pub(super) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.waited += (now - self.last_read).min(STEP_MAX);
        self.last_read = now;
        self.waited >= self.limit
    }

    /// Yields the core to other threads, or sleeps if the job already takes long.
    pub(super) fn pause(&self) {
        match self.waited < SPIN {
            true => thread::yield_now(),
            false => thread::sleep(PAUSE),
        }
    }
}

/// A clock that moves by at most a part of `limit` from one reading to the next.
pub(super) struct BoundedStepClock {
    step_max: Duration,
    last_read: Mutex<(Instant, Nanos)>,
}

impl BoundedStepClock {
    pub(super) fn new(limit: Duration) -> Self {
        Self { step_max: limit / STEPS_MIN, last_read: Mutex::new((Instant::now(), Nanos(0))) }
    }
}

impl Clock for BoundedStepClock {
    fn now(&self) -> Nanos {
        let mut last_read = self.last_read.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let step = now.saturating_duration_since(last_read.0).min(self.step_max);
        *last_read = (now, Nanos(last_read.1.0.saturating_add(Nanos::from(step).0)));
        last_read.1
    }
}

/// The most time that counts between two readings of the clock.
const STEP_MAX: Duration = Duration::from_millis(20);

/// The time for which a wait yields without sleeping. The time of a device that takes longer is not measured exactly.
const SPIN: Duration = Duration::from_millis(20);

const PAUSE: Duration = Duration::from_millis(1);

/// The limit divided by this number is the largest step of the clock. A runtime reads its clock at least
/// eight times per timeout.
const STEPS_MIN: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_core_counts_as_one_step() {
        let mut timeout = Timeout::new(Duration::from_secs(1));
        timeout.last_read -= Duration::from_secs(60);
        assert!(!timeout.is_over());
        let clock = BoundedStepClock::new(Duration::from_secs(1));
        clock.last_read.lock().expect("no panic").0 -= Duration::from_secs(60);
        assert!(clock.now() <= Nanos::millis(251));
    }

    #[test]
    fn what_hangs_is_given_up() {
        let mut timeout = Timeout::new(Duration::from_millis(5));
        while !timeout.is_over() {
            timeout.pause();
        }
        timeout.restart();
        assert_eq!(timeout.waited, Duration::ZERO);
    }
}
