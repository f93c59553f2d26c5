//! Applies incr and decr to a stored logical value, with memcached's rules for numbers and padding.
//! The caller handles the item, its CAS and its expiry.

use crate::number;

/// The direction in which a counter changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// incr, which wraps at 2^64.
    Increment,
    /// decr, which stops at zero.
    Decrement,
}

/// An error: the stored value is not a number. The answer is [`crate::refusal::NON_NUMERIC`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored value is not a decimal number below 2^64")]
pub struct NonNumeric;

/// Applies `delta` to the number in `stored` and appends the new text to `out`. The text is never
/// shorter than `stored`, because memcached overwrites in place and pads with spaces on the right.
pub fn apply(
    stored: &[u8],
    direction: Direction,
    delta: u64,
    out: &mut Vec<u8>,
) -> Result<u64, NonNumeric> {
    let value = number::unsigned_64(stored).ok_or(NonNumeric)?;
    let value = match direction {
        Direction::Increment => value.wrapping_add(delta),
        Direction::Decrement => value.saturating_sub(delta),
    };
    let start = out.len();
    number::write(out, value);
    if out.len() - start < stored.len() {
        out.resize(start + stored.len(), b' ');
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::Direction::{Decrement, Increment};
    use super::*;

    fn applied(stored: &[u8], direction: Direction, delta: u64) -> Option<(u64, Vec<u8>)> {
        let mut out = Vec::new();
        let value = apply(stored, direction, delta, &mut out).ok()?;
        Some((value, out))
    }

    #[test]
    fn shorter_numbers_are_padded_on_the_right() {
        assert_eq!(applied(b"10", Decrement, 1), Some((9, b"9 ".to_vec())));
        assert_eq!(applied(b"007", Increment, 1), Some((8, b"8  ".to_vec())));
        assert_eq!(applied(b"12 and more", Increment, 1), Some((13, b"13         ".to_vec())));
        assert_eq!(applied(b"99", Increment, 1), Some((100, b"100".to_vec())));
    }

    #[test]
    fn incr_wraps_and_decr_stops_at_zero() {
        let most = b"18446744073709551615";
        let expected = Some((0, [&b"0"[..], &[b' '; 19]].concat()));
        assert_eq!(applied(most, Increment, 1), expected);
        assert_eq!(applied(b"5", Decrement, u64::MAX), Some((0, b"0".to_vec())));
    }

    #[test]
    fn what_is_not_a_number_leaves_the_buffer_alone() {
        let mut out = b"before".to_vec();
        for stored in [&b""[..], b"x", b" ", b"-1", b"1x", b"18446744073709551616"] {
            assert_eq!(apply(stored, Increment, 1, &mut out), Err(NonNumeric), "{stored:?}");
        }
        assert_eq!(out, b"before");
    }
}
