//! The next due time as a file that becomes readable at that time, to the precision of the kernel's high-resolution
//! timers. It waits for nothing itself; a poller or a runtime waits.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use units::Nanos;

/// A timer file in the form in which it is watched. It is edge-triggered: an expiry wakes once and need not be read.
/// Setting the timer clears it.
pub(crate) struct Timer<F> {
    pub(crate) file: F,
    /// The time to which it was last set, so that it is not set again.
    armed_for: Nanos,
}

/// Creates a timer file, to be wrapped into the form in which it is watched.
pub(crate) fn file() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(TimerfdClockId::Monotonic, flags)
}

impl<F: AsFd> Timer<F> {
    pub(crate) fn new(file: F) -> Self {
        Self { file, armed_for: Nanos(0) }
    }

    /// Sets the timer to `until`. Returns false if that is too near to be worth a sleep.
    pub(crate) fn arm(&mut self, now: Nanos, until: Nanos) -> io::Result<bool> {
        let wait = until.since(now);
        if wait.0 < SPIN_BELOW_NS {
            return Ok(false);
        }
        if self.armed_for != until {
            let none = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Itimerspec { it_interval: none, it_value: timespec(wait) };
            timerfd_settime(&self.file, TimerfdTimerFlags::empty(), &value)?;
            self.armed_for = until;
        }
        Ok(true)
    }
}

pub(crate) fn timespec(time: Nanos) -> Timespec {
    Timespec { tv_sec: (time.0 / 1_000_000_000) as i64, tv_nsec: (time.0 % 1_000_000_000) as i64 }
}

/// Setting the timer, sleeping and waking together cost about this much. A shorter wait is spent polling.
const SPIN_BELOW_NS: u64 = 5_000;
