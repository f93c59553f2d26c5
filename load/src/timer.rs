//! A timer file, which becomes readable at the next due time, to the precision of the kernel's
//! high-resolution timers. The module does not wait; a poller or a runtime waits for the file.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::io;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use units::Nanos;

/// A timer file, with the type that its poller or runtime needs. It is edge-triggered: an expiry wakes the waiter once
/// and need not be read. Setting the timer clears an expiry.
pub(crate) struct Timer<F> {
    pub(crate) file: F,
    /// The time to which the timer was last set. The timer is not set to the same time again.
    armed_for: Nanos,
}

/// Creates a timer file. The caller wraps it in the type that its poller or runtime needs.
pub(crate) fn file() -> io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(TimerfdClockId::Monotonic, flags)
}

impl<F: AsFd> Timer<F> {
    pub(crate) fn new(file: F) -> Self {
        Self { file, armed_for: Nanos(0) }
    }

    /// Sets the timer to `until`. Returns false if `until` is too near for a sleep.
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

/// The approximate time for setting the timer, sleeping and waking (ns). The caller polls during a shorter wait.
const SPIN_BELOW_NS: u64 = 5_000;
