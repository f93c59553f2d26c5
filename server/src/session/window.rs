//! The share of the links to stores that one session may use at once, so that it neither fills them for others nor
//! waits for itself where it need not. The share counts expected bytes: a session whose answers are long has few
//! requests in flight and takes the connection for long exchanges. This file knows nothing about the order of keys or
//! about sockets.

use crate::long_keys::LONG_BYTES;
use crate::upstream::{INTERACTIVE_BYTES_MAX, InteractiveLoad, Traffic};

/// A session's use of the links.
pub(super) struct Window {
    /// The average bytes of an answer per key, as a moving average.
    answer_bytes: u32,
    /// The number of answers since the last long one.
    short_answers: u32,
    /// The connection that the requests in flight take.
    traffic: Traffic,
    /// The expected bytes of the requests in flight and of their answers.
    in_flight_bytes: usize,
    /// The number of keys whose values are in flight. Whatever length is expected, up to this many short values may be
    /// held uncharged.
    in_flight_keys: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            answer_bytes: ANSWER_BYTES_UNKNOWN,
            short_answers: 0,
            traffic: Traffic::Interactive,
            in_flight_bytes: 0,
            in_flight_keys: 0,
        }
    }
}

impl Window {
    /// Returns the number of keys that may be requested at once.
    pub(super) fn keys_max(&self) -> usize {
        (BULK_BYTES_MAX / self.answer_bytes as usize).clamp(1, KEYS_MAX)
    }

    /// Returns the connection for a request that sends `request_bytes` and asks for the values of `keys`. None means
    /// that everything in flight has to be answered first, because there is no room beside it or because the request
    /// takes the other connection.
    pub(super) fn admit(
        &mut self,
        keys: usize,
        request_bytes: usize,
        nothing_under_way: bool,
        load: &InteractiveLoad,
    ) -> Option<Traffic> {
        let bytes = request_bytes + keys * self.answer_bytes as usize;
        if nothing_under_way {
            let is_short =
                bytes <= INTERACTIVE_BYTES_MAX && load.has_room(keys, self.short_answers);
            self.traffic = if is_short { Traffic::Interactive } else { Traffic::Bulk };
            (self.in_flight_bytes, self.in_flight_keys) = (bytes, keys);
            return Some(self.traffic);
        }
        let (bytes_max, has_room) = match self.traffic {
            Traffic::Interactive => {
                (INTERACTIVE_BYTES_MAX, load.has_room(keys, self.short_answers))
            }
            Traffic::Bulk => (BULK_BYTES_MAX, true),
        };
        self.in_flight_bytes += bytes;
        self.in_flight_keys += keys;
        let is_within = self.in_flight_bytes <= bytes_max && self.in_flight_keys <= KEYS_MAX;
        (has_room && is_within).then_some(self.traffic)
    }

    /// Returns the connection of a request while nothing else is in flight.
    pub(super) fn alone(
        &mut self,
        keys: usize,
        request_bytes: usize,
        load: &InteractiveLoad,
    ) -> Traffic {
        self.admit(keys, request_bytes, true, load).unwrap_or(Traffic::Bulk)
    }

    /// Records that an answer came for `keys`, with values of this many bytes in total.
    pub(super) fn learn(&mut self, keys: usize, bytes: usize, load: &InteractiveLoad) {
        self.short_answers = self.short_answers.saturating_add(1);
        if bytes >= LONG_BYTES {
            self.short_answers = 0;
            if self.traffic == Traffic::Interactive {
                load.surprise();
            }
        }
        let found = (bytes / keys.max(1)) as u64;
        let mean = (u64::from(self.answer_bytes) * (MEAN_OVER - 1) + found).div_ceil(MEAN_OVER);
        self.answer_bytes = u32::try_from(mean).unwrap_or(u32::MAX).max(ANSWER_BYTES_MIN);
    }
}

/// The most keys that are requested at once. The values found are held together.
const KEYS_MAX: usize = 64;

/// The most expected bytes of one session on the connection for long exchanges. A session has one request in flight
/// there if more do not fit.
const BULK_BYTES_MAX: usize = 256 << 10;

/// The expected bytes of an answer before the first answer. A session may then request one key beside short exchanges,
/// and few keys in total.
const ANSWER_BYTES_UNKNOWN: u32 = 32 << 10;

/// The least expected bytes of an answer: a line and its headers. At most 64 such answers are in flight beside short
/// exchanges.
const ANSWER_BYTES_MIN: u32 = 512;

/// The weight of the past in the average. After 16 answers a third of the average is what was known before.
const MEAN_OVER: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        window: Window,
        load: InteractiveLoad,
    }

    /// Returns the fixture of a session that has had these answers.
    fn taught(answers: &[usize]) -> Fixture {
        let mut fixture = Fixture { window: Window::default(), load: InteractiveLoad::default() };
        for bytes in answers {
            fixture.alone(1, 0);
            fixture.window.learn(1, *bytes, &fixture.load);
        }
        fixture
    }

    impl Fixture {
        fn alone(&mut self, keys: usize, request_bytes: usize) -> Traffic {
            self.window.alone(keys, request_bytes, &self.load)
        }

        fn admits_beside(&mut self, keys: usize) -> bool {
            self.window.admit(keys, 0, false, &self.load).is_some()
        }
    }

    #[test]
    fn short_answers_open_the_window() {
        let mut session = taught(&[100; 100]);
        assert_eq!(session.window.keys_max(), KEYS_MAX);
        assert_eq!(session.alone(1, 0), Traffic::Interactive);
        let more = (1..100).take_while(|_| session.admits_beside(1)).count();
        assert_eq!(more, 63);
    }

    #[test]
    fn long_answers_close_the_window_and_leave_the_short_connection() {
        let mut session = taught(&[1 << 20; 10]);
        assert_eq!(session.window.keys_max(), 1);
        assert_eq!(session.alone(1, 20), Traffic::Bulk);
        assert!(!session.admits_beside(1));
    }

    #[test]
    fn a_long_request_leaves_the_short_connection() {
        let mut session = taught(&[100; 100]);
        assert_eq!(session.alone(0, 100_000), Traffic::Bulk);
        assert_eq!(session.alone(0, 1_000), Traffic::Interactive);
    }

    #[test]
    fn a_new_session_has_little_under_way() {
        let mut session = taught(&[]);
        assert_eq!(session.alone(1, 0), Traffic::Interactive);
        assert!(!session.admits_beside(1));
    }

    #[test]
    fn a_new_session_leaves_a_busy_short_connection() {
        let in_use = |mut session: Fixture| {
            session.load = InteractiveLoad::in_use(20);
            session.alone(1, 0)
        };
        assert_eq!(in_use(taught(&[100; 10])), Traffic::Bulk);
        assert_eq!(in_use(taught(&[100; 100])), Traffic::Interactive);
        let surprised = [[100; 100], [1 << 20; 100], [100; 100]].concat();
        assert_eq!(in_use(taught(&surprised[..101])), Traffic::Bulk);
        assert_eq!(in_use(taught(&surprised)), Traffic::Interactive);
    }
}
