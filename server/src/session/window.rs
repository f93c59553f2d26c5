//! The limit on a session's requests in flight on the links to stores. It counts expected bytes: a session
//! with long answers has few requests in flight and uses the connection for long transfers, so that it does
//! not delay short requests. This file knows nothing about the order of keys or about sockets.

use crate::long_keys::LONG_BYTES;
use crate::upstream::{INTERACTIVE_BYTES_MAX, InteractiveLoad, Traffic};

/// A session's use of the links.
pub(super) struct Window {
    /// The moving average of the size of an answer per key (bytes).
    answer_bytes: u32,
    /// The number of answers since the last long one.
    short_answers: u32,
    /// The connection of the requests in flight.
    traffic: Traffic,
    /// The expected size of the requests in flight and their answers (bytes).
    in_flight_bytes: usize,
    /// The number of keys whose values are in flight, limited because short values are not charged.
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

    /// Returns the connection for a request that sends `request_bytes` and requests the values of `keys`
    /// keys. `None` means that everything in flight must be answered first, because a limit is reached.
    pub(super) fn admit(
        &mut self,
        keys: usize,
        request_bytes: usize,
        is_idle: bool,
        load: &InteractiveLoad,
    ) -> Option<Traffic> {
        let bytes = request_bytes + keys * self.answer_bytes as usize;
        if is_idle {
            let is_short = bytes <= INTERACTIVE_BYTES_MAX && load.admits(keys, self.short_answers);
            self.traffic = if is_short { Traffic::Interactive } else { Traffic::Bulk };
            (self.in_flight_bytes, self.in_flight_keys) = (bytes, keys);
            return Some(self.traffic);
        }
        let (bytes_max, is_admitted) = match self.traffic {
            Traffic::Interactive => (INTERACTIVE_BYTES_MAX, load.admits(keys, self.short_answers)),
            Traffic::Bulk => (BULK_BYTES_MAX, true),
        };
        self.in_flight_bytes += bytes;
        self.in_flight_keys += keys;
        let is_within = self.in_flight_bytes <= bytes_max && self.in_flight_keys <= KEYS_MAX;
        (is_admitted && is_within).then_some(self.traffic)
    }

    /// Returns the connection for a request while nothing else is in flight.
    pub(super) fn alone(
        &mut self,
        keys: usize,
        request_bytes: usize,
        load: &InteractiveLoad,
    ) -> Traffic {
        self.admit(keys, request_bytes, true, load).unwrap_or(Traffic::Bulk)
    }

    /// Records an answer for `keys` keys with values of `bytes` in total.
    pub(super) fn learn(&mut self, keys: usize, bytes: usize, load: &InteractiveLoad) {
        self.short_answers = self.short_answers.saturating_add(1);
        if bytes >= LONG_BYTES {
            self.short_answers = 0;
            if self.traffic == Traffic::Interactive {
                load.record_long_value();
            }
        }
        let found = (bytes / keys.max(1)) as u64;
        let mean = (u64::from(self.answer_bytes) * (MEAN_OVER - 1) + found).div_ceil(MEAN_OVER);
        self.answer_bytes = u32::try_from(mean).unwrap_or(u32::MAX).max(ANSWER_BYTES_MIN);
    }
}

/// The maximum number of keys that are requested at once, because their values are held together.
const KEYS_MAX: usize = 64;

/// The limit of one session's expected bytes on the connection for long transfers. One request may exceed it.
const BULK_BYTES_MAX: usize = 256 << 10;

/// The expected size of an answer before the first answer (bytes). It allows one key at a time on the
/// connection for short requests.
const ANSWER_BYTES_UNKNOWN: u32 = 32 << 10;

/// The smallest expected size of an answer (bytes): a line and its headers. At most 64 such answers are in
/// flight on the connection for short requests.
const ANSWER_BYTES_MIN: u32 = 512;

/// The number of answers over which the moving average is taken.
const MEAN_OVER: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixture {
        window: Window,
        load: InteractiveLoad,
    }

    /// Returns the fixture of a session after these answers.
    fn trained(answers: &[usize]) -> Fixture {
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
        let mut session = trained(&[100; 100]);
        assert_eq!(session.window.keys_max(), KEYS_MAX);
        assert_eq!(session.alone(1, 0), Traffic::Interactive);
        let more = (1..100).take_while(|_| session.admits_beside(1)).count();
        assert_eq!(more, 63);
    }

    #[test]
    fn long_answers_close_the_window_and_leave_the_short_connection() {
        let mut session = trained(&[1 << 20; 10]);
        assert_eq!(session.window.keys_max(), 1);
        assert_eq!(session.alone(1, 20), Traffic::Bulk);
        assert!(!session.admits_beside(1));
    }

    #[test]
    fn a_long_request_leaves_the_short_connection() {
        let mut session = trained(&[100; 100]);
        assert_eq!(session.alone(0, 100_000), Traffic::Bulk);
        assert_eq!(session.alone(0, 1_000), Traffic::Interactive);
    }

    #[test]
    fn a_new_session_has_little_under_way() {
        let mut session = trained(&[]);
        assert_eq!(session.alone(1, 0), Traffic::Interactive);
        assert!(!session.admits_beside(1));
    }

    #[test]
    fn a_new_session_leaves_a_busy_short_connection() {
        let in_use = |mut session: Fixture| {
            session.load = InteractiveLoad::in_use(20);
            session.alone(1, 0)
        };
        assert_eq!(in_use(trained(&[100; 10])), Traffic::Bulk);
        assert_eq!(in_use(trained(&[100; 100])), Traffic::Interactive);
        let mixed = [[100; 100], [1 << 20; 100], [100; 100]].concat();
        assert_eq!(in_use(trained(&mixed[..101])), Traffic::Bulk);
        assert_eq!(in_use(trained(&mixed)), Traffic::Interactive);
    }
}
