//! Base64 as memcached's `b` flag defines it. It uses the standard alphabet and writes padding.
//! Decoding skips bytes outside of the alphabet and stops after the first padded quartet.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the length of `len` bytes after encoding (bytes).
pub(crate) const fn encoded_len(len: usize) -> usize {
    len.div_ceil(3) * 4
}

/// Appends `bytes` in base64.
pub(crate) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        let sextet = |shift: u32| ALPHABET[(bits >> shift & 63) as usize];
        let mut quartet = [sextet(18), sextet(12), sextet(6), sextet(0)];
        quartet[group.len() + 1..].fill(b'=');
        out.extend_from_slice(&quartet);
    }
}

/// Decodes `text`. Returns none if memcached would answer `error decoding key`.
pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let count = text.iter().filter(|&&byte| sextet(byte).is_some()).count();
    if count == 0 || count % 4 != 0 {
        return None;
    }
    let mut out = Vec::with_capacity(count / 4 * 3);
    let (mut bits, mut held, mut padding) = (0u32, 0, 0);
    for &byte in text {
        let Some(value) = sextet(byte) else { continue };
        bits = bits << 6 | u32::from(value);
        held += 1;
        padding += usize::from(byte == b'=');
        if held == 4 {
            out.extend_from_slice(&bits.to_be_bytes()[1..]);
            if padding > 0 {
                break;
            }
            (bits, held) = (0, 0);
        }
    }
    out.truncate(out.len() - padding.min(out.len()));
    (padding <= 2).then_some(out)
}

/// Returns the six bits of a character, which are zero for padding. Returns none for a byte that
/// decoding skips.
fn sextet(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        b'=' => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_have_the_stated_length() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..bytes.len() {
            let mut text = Vec::new();
            encode(&bytes[..len], &mut text);
            assert_eq!(text.len(), encoded_len(len));
            assert_eq!(decode(&text).unwrap_or_default(), &bytes[..len]);
        }
    }

    #[test]
    fn foreign_bytes_are_skipped_and_padding_ends_the_text() {
        assert_eq!(decode(b"Zm%9v"), Some(b"foo".to_vec()));
        assert_eq!(decode(b"YQ==Zm9v"), Some(b"a".to_vec()));
        assert_eq!(decode(b"A=AA").map(|bytes| bytes.len()), Some(2));
        for text in [&b""[..], b"!!!", b"abc", b"A===", b"====", b"YQ==Zm9"] {
            assert_eq!(decode(text), None, "{text:?}");
        }
    }
}
