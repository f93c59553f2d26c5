//! How much of the links to stores one session may use at once, so that it neither fills them for others nor waits for
//! itself where it need not. It counts expected bytes: a session whose answers are long has few requests under way and
//! takes the connection for long exchanges. It knows nothing of keys' order or of sockets.

use std::time::Duration;

use crate::context::WorkerContext;
use crate::long_keys::LONG_BYTES;
use crate::upstream::{INTERACTIVE_BYTES_MAX, Traffic};

/// A session's use of the links.
pub(super) struct Window {
    /// Bytes of an answer, per key, as a moving average.
    answer_bytes: u32,
    /// What is under way takes this connection.
    traffic: Traffic,
    /// Expected bytes of what is under way, requests and answers.
    in_flight_bytes: usize,
    /// Keys whose values are under way: whatever they are expected to be, so many short ones are held uncharged.
    in_flight_keys: usize,
    /// Requests that still take the connection for long exchanges, however short they look.
    bulk_left: u32,
    /// How often a long answer came on the connection for short ones.
    surprises: u32,
}

impl Window {
    /// Of a new session. Where new sessions have surprised others of late, its first requests take the connection for
    /// long exchanges, however short they look.
    pub(super) fn new(context: &WorkerContext) -> Self {
        let is_suspect = context.surprised.get().is_some_and(|last| last.elapsed() < SUSPECT_FOR);
        Self { bulk_left: if is_suspect { SUSPECT_REQUESTS } else { 0 }, ..Self::default() }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self {
            answer_bytes: ANSWER_BYTES_UNKNOWN,
            traffic: Traffic::Interactive,
            in_flight_bytes: 0,
            in_flight_keys: 0,
            bulk_left: 0,
            surprises: 0,
        }
    }
}

impl Window {
    /// How many keys may be asked for at once.
    pub(super) fn keys_max(&self) -> usize {
        (BULK_BYTES_MAX / self.answer_bytes as usize).clamp(1, KEYS_MAX)
    }

    /// The connection for a request of `request_bytes` that asks for the values of `keys`. None: what is under way has
    /// to be answered first, because there is no room beside it or because the request takes the other connection.
    pub(super) fn admit(
        &mut self,
        keys: usize,
        request_bytes: usize,
        nothing_under_way: bool,
    ) -> Option<Traffic> {
        let bytes = request_bytes + keys * self.answer_bytes as usize;
        if nothing_under_way {
            let is_short = bytes <= INTERACTIVE_BYTES_MAX && self.bulk_left == 0;
            self.traffic = if is_short { Traffic::Interactive } else { Traffic::Bulk };
            (self.in_flight_bytes, self.in_flight_keys) = (bytes, keys);
        } else {
            let bytes_max = match self.traffic {
                Traffic::Interactive => INTERACTIVE_BYTES_MAX,
                Traffic::Bulk => BULK_BYTES_MAX,
            };
            let has_room = self.in_flight_bytes + bytes <= bytes_max;
            if !has_room || self.in_flight_keys + keys > KEYS_MAX {
                return None;
            }
            self.in_flight_bytes += bytes;
            self.in_flight_keys += keys;
        }
        self.bulk_left = self.bulk_left.saturating_sub(1);
        Some(self.traffic)
    }

    /// The connection of a request that has nothing beside it.
    pub(super) fn alone(&mut self, keys: usize, request_bytes: usize) -> Traffic {
        self.admit(keys, request_bytes, true).unwrap_or(Traffic::Bulk)
    }

    /// An answer came for `keys`, with values of so many bytes in all; whether others should not have waited behind it.
    pub(super) fn learn(&mut self, keys: usize, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes / keys.max(1)).unwrap_or(u32::MAX);
        let is_surprise = bytes >= SURPRISE_BYTES && self.traffic == Traffic::Interactive;
        if is_surprise {
            self.surprises += 1;
            self.bulk_left = SURPRISE_REQUESTS << self.surprises.min(SURPRISE_DOUBLINGS_MAX);
        }
        let (known, found) = (u64::from(self.answer_bytes), u64::from(bytes));
        let mean = (known * (MEAN_OVER - 1) + found).div_ceil(MEAN_OVER);
        self.answer_bytes = u32::try_from(mean).unwrap_or(u32::MAX).max(ANSWER_BYTES_MIN);
        is_surprise
    }
}

/// Keys that are asked for at once at the most: what they find is held together.
const KEYS_MAX: usize = 64;

/// Expected bytes of one session on the connection for long exchanges, where a session has one request under way if
/// more do not fit.
const BULK_BYTES_MAX: usize = 256 << 10;

/// For so long after a surprise, so many of the first requests of a new session are taken for long ones: clients that
/// connect anew for each long answer hold up others like them, and those that stay connected hardly notice.
const SUSPECT_FOR: Duration = Duration::from_secs(2);
const SUSPECT_REQUESTS: u32 = 8;

/// A session that has had no answer yet may ask for one key beside short exchanges, and for few in all.
const ANSWER_BYTES_UNKNOWN: u32 = 32 << 10;

/// A line and its headers; 64 of them are under way beside short exchanges at the most.
const ANSWER_BYTES_MIN: u32 = 512;

/// The average forgets: after 16 answers a third of it is what was known before.
const MEAN_OVER: u64 = 16;

/// An answer that others should not wait behind.
const SURPRISE_BYTES: u32 = LONG_BYTES as u32;

/// So many requests then take the other connection, twice as many after each surprise: a session that is asked to mix
/// short and long answers stays there, at no cost but that it shares it with others like it.
const SURPRISE_REQUESTS: u32 = 128;
const SURPRISE_DOUBLINGS_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn taught(answers: &[usize]) -> Window {
        let mut window = Window::default();
        for bytes in answers {
            window.alone(1, 0);
            window.learn(1, *bytes);
        }
        window
    }

    #[test]
    fn short_answers_open_the_window() {
        let mut window = taught(&[100; 100]);
        assert_eq!(window.keys_max(), KEYS_MAX);
        assert_eq!(window.alone(1, 0), Traffic::Interactive);
        let more = (1..100).take_while(|_| window.admit(1, 0, false).is_some()).count();
        assert_eq!(more, 63);
    }

    #[test]
    fn long_answers_close_the_window_and_leave_the_short_connection() {
        let mut window = taught(&[1 << 20; 10]);
        assert_eq!(window.keys_max(), 1);
        assert_eq!(window.alone(1, 20), Traffic::Bulk);
        assert_eq!(window.admit(1, 20, false), None);
    }

    #[test]
    fn a_long_request_leaves_the_short_connection() {
        let mut window = taught(&[100; 100]);
        assert_eq!(window.alone(0, 100_000), Traffic::Bulk);
        assert_eq!(window.alone(0, 1_000), Traffic::Interactive);
    }

    #[test]
    fn a_new_session_has_little_under_way() {
        let mut window = Window::default();
        assert_eq!(window.alone(1, 0), Traffic::Interactive);
        assert_eq!(window.admit(1, 0, false), None);
    }

    #[test]
    fn surprises_are_remembered_for_longer_each_time() {
        let mut window = taught(&[100; 100]);
        let mut requests_until_trusted = |bytes| {
            window.alone(1, 20);
            window.learn(1, bytes);
            let mut requests = 0;
            while window.alone(1, 20) == Traffic::Bulk {
                window.learn(1, 100);
                requests += 1;
            }
            requests
        };
        let (first, second) = (requests_until_trusted(1 << 20), requests_until_trusted(1 << 20));
        assert!(first >= 200 && second >= 2 * first - 10, "{first} and {second}");
    }
}
