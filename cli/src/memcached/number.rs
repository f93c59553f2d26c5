//! Parses numbers as memcached does (C's `atoi` and `strtol`): leading blanks and a sign, then digits.
//! Anything behind the digits is ignored. Numbers out of range saturate; in C their value is undefined.

/// Parses an integer as `atoi` does. Returns zero if there is no number.
pub(super) fn integer(text: &str) -> i32 {
    let wide = prefix(text, 10);
    wide.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

/// Parses an octal number as `strtol` does with base 8, for permission bits.
pub(super) fn octal(text: &str) -> i64 {
    prefix(text, 8)
}

/// Parses a number as `atof` does. Returns zero if there is no number.
pub(super) fn float(text: &str) -> f64 {
    let text = text.trim_start();
    let longest = (1..=text.len()).rev().filter(|&end| text.is_char_boundary(end));
    longest.map(|end| text[..end].parse()).find_map(Result::ok).unwrap_or(0.0)
}

/// Returns whether the text is an unsigned 32-bit number and nothing else (memcached's `safe_strtoul`).
pub(super) fn is_unsigned(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}

fn prefix(text: &str, radix: u32) -> i64 {
    let text = text.trim_start();
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let value =
        digits.chars().map_while(|digit| digit.to_digit(radix)).fold(0i64, |value, digit| {
            value.saturating_mul(i64::from(radix)).saturating_add(i64::from(digit))
        });
    if negative { -value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_in_c() {
        for (text, value) in [
            ("12", 12),
            (" +7x", 7),
            ("-5", -5),
            ("abc", 0),
            ("", 0),
            ("-", 0),
            ("99999999999999999999999", i32::MAX),
        ] {
            assert_eq!(integer(text), value, "{text:?}");
        }
        assert_eq!(octal("755"), 0o755);
        assert_eq!(octal("99"), 0);
        assert_eq!(float("1.25x"), 1.25);
        assert_eq!(float("x"), 0.0);
    }
}
