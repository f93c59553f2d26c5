//! Waits for sockets and for the next due time, whichever comes first, to the precision of the kernel's high-resolution
//! timers. The timer is a file in the same epoll set. Unlike `epoll_pwait2`, a timer file works on every kernel and is
//! not subject to timer slack.

use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::{self, Errno};
use units::Nanos;

use crate::timer::{self, Timer, timespec};

/// An epoll set with a timer in it.
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: Timer<OwnedFd>,
    events: Vec<epoll::Event>,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = Timer::new(timer::file()?);
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll, &timer.file, epoll::EventData::new_u64(TIMER), edge)?;
        Ok(Self { epoll, timer, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Adds a socket under `index`, edge-triggered in both directions. Closing the socket removes it.
    pub(crate) fn add(&self, socket: impl AsFd, index: usize) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(index as u64), flags)
    }

    /// Waits until a socket is ready or the time `until` has come. A coarse timeout 1 ms later bounds the wait.
    pub(crate) fn wait(&mut self, now: Nanos, until: Nanos) -> io::Result<()> {
        let blocking = self.timer.arm(now, until)?;
        // The coarse timeout covers the case in which the timer's edge was consumed early.
        let timeout =
            timespec(if blocking { until.since(now) + Nanos::millis(1) } else { Nanos(0) });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Forgets the events of the last wait.
    pub(crate) fn forget_events(&mut self) {
        self.events.clear();
    }

    /// Returns the number of events from the last wait.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns one event of the last wait, or `None` if it is the timer's event.
    pub(crate) fn event(&self, position: usize) -> Option<Readiness> {
        let event = self.events[position];
        let (data, flags) = (event.data.u64(), event.flags);
        let closing = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        (data != TIMER).then_some(Readiness {
            index: data as usize,
            writable: flags.contains(epoll::EventFlags::OUT),
            closing: flags.intersects(closing),
        })
    }
}

/// The readiness of a socket. There is no flag for reading, because the caller always tries to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) index: usize,
    pub(crate) writable: bool,
    /// True if the peer has ended the connection. There will be no later event.
    pub(crate) closing: bool,
}

const TIMER: u64 = u64::MAX;
const EVENTS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use units::{Clock, SystemClock};

    use super::*;

    #[test]
    fn waits_end_on_time_and_not_before() {
        let (mut poller, clock) = (Poller::new().expect("a poller"), SystemClock::new());
        for gap_ns in [20_000, 300_000, 1_500_000] {
            let late = (0..20).map(|_| {
                let until = clock.now() + Nanos(gap_ns);
                while clock.now() < until {
                    poller.wait(clock.now(), until).expect("a wait");
                }
                clock.now().since(until).0
            });
            // A busy machine may end most waits late, so the test looks at the shortest delay.
            let least = late.min().expect("twenty waits");
            assert!(least < 1_000_000, "{gap_ns} ns end {least} ns late at least");
        }
    }
}
