//! Parses numbers as memcached does, with C's `strtol` family in base 10 and a check of the bytes behind the
//! digits. It therefore accepts leading white space, a sign and trailing white space. It silently truncates
//! to 32 bits, and wraps some negative numbers to small unsigned numbers. [`decimal`] accepts none of these.

/// Parses a signed 32-bit argument (exptime, delay, length). The text is a 64-bit number, and its
/// low half is the result.
pub fn signed_32(token: &[u8]) -> Option<i32> {
    let (negative, magnitude, tail) = split(token)?;
    if !ends_cleanly(tail) {
        return None;
    }
    let limit = i64::MAX as u64 + u64::from(negative);
    (magnitude <= limit).then(|| {
        let low = magnitude as u32;
        (if negative { low.wrapping_neg() } else { low }) as i32
    })
}

/// Parses an unsigned 32-bit argument (client flags). The text is a 64-bit number, and its low half
/// is the result.
pub fn unsigned_32(token: &[u8]) -> Option<u32> {
    unsigned_64(token).map(|value| value as u32)
}

/// Parses an unsigned 64-bit argument (delta, CAS) or a stored counter. A minus sign negates modulo
/// 2^64. The result is refused if its top bit is set and the bytes contain a minus sign anywhere.
pub fn unsigned_64(bytes: &[u8]) -> Option<u64> {
    let (negative, magnitude, tail) = split(bytes)?;
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    let minus = || bytes.iter().take_while(|&&byte| byte != 0).any(|&byte| byte == b'-');
    (ends_cleanly(tail) && !((value as i64) < 0 && minus())).then_some(value)
}

/// Parses a number that consists only of decimal digits, as a server writes numbers.
pub fn decimal(bytes: &[u8]) -> Option<u64> {
    let (digits, tail) = digits(bytes)?;
    tail.is_empty().then_some(digits)
}

/// Appends `value` in decimal digits.
pub(crate) fn write(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Returns whether the number is negative, its magnitude, and the bytes behind the digits. Returns
/// none if there is no digit or if the number exceeds 64 bits.
fn split(bytes: &[u8]) -> Option<(bool, u64, &[u8])> {
    let start = bytes.iter().position(|&byte| !is_space(byte))?;
    let (negative, rest) = match bytes[start] {
        b'-' => (true, &bytes[start + 1..]),
        b'+' => (false, &bytes[start + 1..]),
        _ => (false, &bytes[start..]),
    };
    let (magnitude, tail) = digits(rest)?;
    Some((negative, magnitude, tail))
}

fn digits(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, tail) = bytes.split_at(count);
    let append =
        |value: u64, &digit: &u8| value.checked_mul(10)?.checked_add(u64::from(digit - b'0'));
    let value = digits.iter().try_fold(0, append)?;
    (count > 0).then_some((value, tail))
}

fn ends_cleanly(tail: &[u8]) -> bool {
    tail.first().is_none_or(|&byte| byte == 0 || is_space(byte))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_numbers_truncate_to_their_low_half() {
        assert_eq!(signed_32(b"2147483647"), Some(i32::MAX));
        assert_eq!(signed_32(b"-1"), Some(-1));
        assert_eq!(signed_32(b"4294967297"), Some(1));
        assert_eq!(signed_32(b"-9223372036854775808"), Some(0));
        assert_eq!(signed_32(b"9223372036854775808"), None);
        assert_eq!(signed_32(b"-9223372036854775809"), None);
    }

    #[test]
    fn unsigned_numbers_wrap_when_negative_and_small() {
        assert_eq!(unsigned_32(b"4294967297"), Some(1));
        assert_eq!(unsigned_32(b"18446744073709551615"), Some(u32::MAX));
        assert_eq!(unsigned_64(b"-18446744073709551615"), Some(1));
        assert_eq!(unsigned_64(b"-0"), Some(0));
        assert_eq!(unsigned_64(b"-1"), None);
        assert_eq!(unsigned_64(b"18446744073709551615\t-"), None);
        assert_eq!(unsigned_64(b"18446744073709551616"), None);
    }

    #[test]
    fn white_space_and_nul_end_a_number() {
        for text in [&b"\t 12"[..], b"+12", b"12\r", b"12 34", b"12\0x", b"012"] {
            assert_eq!(unsigned_64(text), Some(12), "{text:?}");
        }
        for text in [&b""[..], b" ", b"+", b"-", b"x", b"12x", b"0x12", b"- 12", b"\0"] {
            assert_eq!(unsigned_64(text), None, "{text:?}");
            assert_eq!(signed_32(text), None, "{text:?}");
        }
    }

    #[test]
    fn decimal_accepts_digits_only() {
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for text in [&b""[..], b" 1", b"1 ", b"+1", b"-1", b"18446744073709551616"] {
            assert_eq!(decimal(text), None, "{text:?}");
        }
    }
}
