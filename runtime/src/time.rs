//! The runtime's time. Reading the clock costs as much as the rest of an offload, so one reading serves
//! everything that happens soon after it.

use std::sync::Arc;

use units::{Clock, Nanos};

/// The clock, which is read as often as its resolution requires. A time is reused only while a driver turns the runtime
/// again and again, and only if readings follow each other within the resolution. A returned time is never older than
/// the last turn.
pub(crate) struct Time {
    clock: Arc<dyn Clock>,
    /// The age up to which a time is reused. With zero, the clock is read every time.
    resolution: Nanos,
    now: Nanos,
    /// The number of uses that one reading may serve. It doubles while readings follow each other within the
    /// resolution, and becomes zero when they do not.
    served_max: u32,
    served_left: u32,
    /// Whether a driver turns the runtime and will turn it again.
    is_turned: bool,
}

impl Time {
    /// Creates a time that reads the clock for every use.
    pub(crate) fn exact(clock: Arc<dyn Clock>) -> Self {
        let now = clock.now();
        let resolution = Nanos(0);
        Self { clock, resolution, now, served_max: 0, served_left: 0, is_turned: false }
    }

    /// Sets the resolution: one reading serves all uses within about this time.
    pub(crate) fn set_resolution(&mut self, resolution: Nanos) {
        self.resolution = resolution;
    }

    /// Reads the clock for a turn.
    #[inline]
    pub(crate) fn refresh(&mut self) -> Nanos {
        self.is_turned = true;
        self.refresh_to_serve()
    }

    fn refresh_to_serve(&mut self) -> Nanos {
        let now = self.clock.now();
        let soon = now.since(self.now) < self.resolution;
        self.served_max = if soon { (2 * self.served_max + 1).min(SERVED_MAX) } else { 0 };
        self.served_left = self.served_max;
        self.now = now;
        now
    }

    /// Reads the clock outside turns. The next use reads the clock again.
    #[inline]
    pub(crate) fn refresh_once(&mut self) -> Nanos {
        self.now = self.clock.now();
        self.served_left = 0;
        self.now
    }

    /// Reads the clock for a measurement. The reading serves no other use.
    pub(crate) fn read(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns the current time. It may be from a recent reading of the clock.
    #[inline]
    pub(crate) fn now(&mut self) -> Nanos {
        if self.served_left == 0 {
            return if self.is_turned { self.refresh_to_serve() } else { self.refresh_once() };
        }
        self.served_left -= 1;
        self.now
    }

    /// Returns the time at which the clock was last read.
    pub(crate) fn last(&self) -> Nanos {
        self.now
    }

    /// Makes the next use read the clock, because no turn reads it regularly from now on.
    pub(crate) fn expire(&mut self) {
        self.served_left = 0;
        self.is_turned = false;
    }
}

/// The most uses of one reading. A higher limit would save less than a nanosecond per job.
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
    fn one_look_serves_more_uses_while_looks_are_close() {
        let clock = ManualClock::default();
        let mut time = Time::exact(Arc::new(clock.clone()));
        time.set_resolution(Nanos(1_000));
        for left in [1, 3, 7, 15, 31, 63, 63] {
            clock.advance(Nanos(100));
            let looked = time.refresh();
            assert_eq!(time.served_left, left);
            clock.advance(Nanos(100));
            assert_eq!(time.now(), looked, "one of the uses that the look serves");
        }
        for _ in 1..63 {
            time.now();
        }
        assert_eq!(time.now(), clock.now(), "one use too many");
        clock.advance(Nanos(2_000));
        time.refresh();
        clock.advance(Nanos(100));
        assert_eq!(time.now(), clock.now(), "looks were not close");
    }

    #[test]
    fn looks_outside_turns_serve_nobody_else() {
        let clock = ManualClock::default();
        let mut time = Time::exact(Arc::new(clock.clone()));
        time.set_resolution(Nanos(1_000));
        for _ in 0..10 {
            time.refresh();
            time.refresh_once();
        }
        clock.advance(Nanos::secs(1));
        assert_eq!(time.now(), clock.now());
    }

    #[test]
    fn many_uses_between_two_turns_share_looks_too() {
        let clock = ManualClock::default();
        let mut time = Time::exact(Arc::new(clock.clone()));
        time.set_resolution(Nanos(1_000));
        time.refresh();
        let mut looks = 0;
        for _ in 0..1_000 {
            clock.advance(Nanos(200));
            looks += u32::from(time.now() == clock.now());
            assert!(clock.now().since(time.last()) <= Nanos(2_000), "too old");
        }
        assert!((200..400).contains(&looks), "{looks}");
    }

    #[test]
    fn an_expired_time_is_looked_up_at_the_next_use() {
        let clock = ManualClock::default();
        let mut time = Time::exact(Arc::new(clock.clone()));
        time.set_resolution(Nanos(1_000));
        time.refresh();
        clock.advance(Nanos::secs(1));
        time.expire();
        assert_eq!(time.now(), Nanos::secs(1));
    }
}
