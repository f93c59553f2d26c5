//! The runtime's time. A look at the clock costs as much as the rest of an offload, so one look serves all that
//! happens soon after it. Nothing here decides what is late.

use std::sync::Arc;

use units::{Clock, Nanos};

/// The clock, looked at as often as its resolution asks for: the time of a use was right at most about `resolution`
/// before it.
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    /// How old a time may be that is used again; zero looks every time.
    resolution: Nanos,
    now: Nanos,
    /// Uses that one look may serve, as the last looks taught: doubled while they followed each other within the
    /// resolution, quartered when they did not.
    served_max: u32,
    served_left: u32,
}

impl Time {
    /// A time that is looked up for every use.
    pub(crate) fn exact(clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        Self { clock, resolution: Nanos(0), now, served_max: 0, served_left: 0 }
    }

    /// Lets one look serve all uses within about `resolution`.
    pub(crate) fn set_resolution(&mut self, resolution: Nanos) {
        self.resolution = resolution;
    }

    /// Looks at the clock.
    #[inline]
    pub(crate) fn look(&mut self) -> Nanos {
        let now = self.clock.now();
        let soon = now.since(self.now) < self.resolution;
        let served = self.served_max;
        self.served_max = if soon { (2 * served + 1).min(SERVED_MAX) } else { served / 4 };
        self.served_left = self.served_max;
        self.now = now;
        now
    }

    /// The time for one use.
    #[inline]
    pub(crate) fn now(&mut self) -> Nanos {
        if self.served_left == 0 {
            return self.look();
        }
        self.served_left -= 1;
        self.now
    }

    /// The time of the last look.
    pub(crate) fn last(&self) -> Nanos {
        self.now
    }

    /// The next use looks: nobody will look regularly from here on.
    pub(crate) fn expire(&mut self) {
        self.served_left = 0;
    }
}

/// Beyond this a look costs a job less than a nanosecond.
const SERVED_MAX: u32 = 63;

#[cfg(test)]
mod tests {
    use units::ManualClock;

    use super::*;

    #[test]
    fn exact_time_is_looked_up_for_every_use() {
        let clock = ManualClock::default();
        let mut time = Time::exact(Arc::new(clock.clone()));
        for step in 1..5 {
            clock.advance(Nanos(1));
            assert_eq!(time.now(), Nanos(step));
        }
    }

    #[test]
    fn one_look_serves_more_uses_while_looks_are_close_and_fewer_when_not() {
        let clock = ManualClock::default();
        let mut time = Time::exact(Arc::new(clock.clone()));
        time.set_resolution(Nanos(1_000));
        let uses_until_seen = |time: &mut Time| {
            clock.advance(Nanos(100));
            let now = clock.now();
            (0..).find(|_| time.now() == now).expect("the time is seen some day")
        };
        let uses: Vec<i32> = (0..8).map(|_| uses_until_seen(&mut time)).collect();
        assert_eq!(uses, [0, 1, 3, 7, 15, 31, 63, 63]);
        for left in [15, 3, 0, 0] {
            clock.advance(Nanos(2_000));
            time.look();
            assert_eq!(time.served_left, left);
        }
    }

    #[test]
    fn an_expired_time_is_looked_up_at_the_next_use() {
        let clock = ManualClock::default();
        let mut time = Time::exact(Arc::new(clock.clone()));
        time.set_resolution(Nanos(1_000));
        time.look();
        clock.advance(Nanos::secs(1));
        time.expire();
        assert_eq!(time.now(), Nanos::secs(1));
    }
}
