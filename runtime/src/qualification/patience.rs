//! The time that a qualification waits for a job. Only the time in which this process had a core counts, so a machine
//! that stands still for a while does not make a device late. This module knows no jobs.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use units::{Clock, Nanos};

/// The time that is left for one job.
pub(super) struct Patience {
    limit: Duration,
    waited: Duration,
    looked: Instant,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, waited: Duration::ZERO, looked: Instant::now() }
    }

    /// Restarts the time, because the device made progress or the next job begins.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.limit);
    }

    /// Returns whether the job's time is over.
    pub(super) fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.waited += (now - self.looked).min(LOOK_MAX);
        self.looked = now;
        self.waited >= self.limit
    }

    /// Gives the core to other threads. The pause is longer for a job that takes long.
    pub(super) fn pause(&self) {
        match self.waited < SPIN {
            true => thread::yield_now(),
            false => thread::sleep(PAUSE),
        }
    }
}

/// A clock that moves by at most a part of `limit` from one reading to the next.
pub(super) struct PatientClock {
    step_max: Duration,
    looked: Mutex<(Instant, Nanos)>,
}

impl PatientClock {
    pub(super) fn new(limit: Duration) -> Self {
        Self { step_max: limit / STEPS_MIN, looked: Mutex::new((Instant::now(), Nanos(0))) }
    }
}

impl Clock for PatientClock {
    fn now(&self) -> Nanos {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let step = now.saturating_duration_since(looked.0).min(self.step_max);
        *looked = (now, Nanos(looked.1.0.saturating_add(Nanos::from(step).0)));
        looked.1
    }
}

/// The most time that counts between two readings of the clock.
const LOOK_MAX: Duration = Duration::from_millis(20);

/// The time for which a wait yields without sleeping. The time of a device that takes longer is not measured exactly.
const SPIN: Duration = Duration::from_millis(20);

const PAUSE: Duration = Duration::from_millis(1);

/// The divisor of the limit for one step of the clock. A runtime reads its clock at least eight times per timeout.
const STEPS_MIN: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_core_counts_as_one_look() {
        let mut patience = Patience::new(Duration::from_secs(1));
        patience.looked -= Duration::from_secs(60);
        assert!(!patience.is_over());
        let clock = PatientClock::new(Duration::from_secs(1));
        clock.looked.lock().expect("no panic").0 -= Duration::from_secs(60);
        assert!(clock.now() <= Nanos::millis(251));
    }

    #[test]
    fn what_hangs_is_given_up() {
        let mut patience = Patience::new(Duration::from_millis(5));
        while !patience.is_over() {
            patience.pause();
        }
        patience.restart();
        assert_eq!(patience.waited, Duration::ZERO);
    }
}
