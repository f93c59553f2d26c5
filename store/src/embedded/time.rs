//! Reads a client's expiry time as memcached does.

use units::limits::EXPTIME_RELATIVE_MAX_S;

/// Returns the second at which an item with `exptime` expires, on the clock that started at
/// `started_unix_s` and now shows `now_s`. An `exptime` of 0 means never, and a negative value
/// means at once. A value of up to 30 days counts from now. A larger value is Unix time.
///
/// The clock's zero must be at least two seconds before the first request, because second 1 means "long ago".
pub fn expiry(exptime: i64, now_s: u32, started_unix_s: u64) -> u32 {
    match exptime {
        0 => 0,
        ..0 => LONG_AGO_S,
        1..=RELATIVE_MAX_S => now_s.saturating_add(exptime as u32),
        _ => match (exptime as u64).saturating_sub(started_unix_s) {
            0 => LONG_AGO_S,
            since_start_s => u32::try_from(since_start_s).unwrap_or(u32::MAX),
        },
    }
}

const LONG_AGO_S: u32 = 1;
const RELATIVE_MAX_S: i64 = EXPTIME_RELATIVE_MAX_S as i64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_follows_memcached() {
        let started_unix_s = 1_700_000_000;
        let at = |exptime| expiry(exptime, 100, started_unix_s);
        assert_eq!(at(0), 0);
        assert_eq!(at(-1), LONG_AGO_S);
        assert_eq!(at(i64::MIN), LONG_AGO_S);
        assert_eq!(at(1), 101);
        assert_eq!(at(RELATIVE_MAX_S), 100 + RELATIVE_MAX_S as u32);
        assert_eq!(at(RELATIVE_MAX_S + 1), LONG_AGO_S, "Unix time of 1970");
        assert_eq!(at(1_700_000_000), LONG_AGO_S);
        assert_eq!(at(1_700_000_500), 500);
        assert_eq!(at(i64::MAX), u32::MAX);
    }
}
