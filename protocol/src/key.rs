//! The keys of text commands ([`Key`]) and of meta commands ([`MetaKey`], which may hold any bytes,
//! in base64 on the wire). A key of either type cannot break the line into which it is written.

use std::borrow::Cow;
use std::ops::Deref;

use units::limits::KEY_BYTES_MAX;

use crate::base64;

/// A key of a text command: 1 to 250 bytes without spaces, newlines and NULs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a>(&'a [u8]);

/// A key of a meta command. It is decoded if it arrived in base64.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetaKey<'a> {
    bytes: Cow<'a, [u8]>,
    binary: bool,
}

/// An error: the bytes cannot be a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// The key is too short or too long.
    #[error("a key of {len} bytes; keys have 1 to {max}")]
    Length {
        /// The key's length (bytes).
        len: usize,
        /// The maximum length of this kind of key (bytes).
        max: usize,
    },
    /// The key contains a byte that would end the key or the line.
    #[error("byte {byte:#04x} at {position}; keys of text commands hold no space, CR, LF or NUL")]
    Byte {
        /// The offending byte.
        byte: u8,
        /// The byte's position in the key.
        position: usize,
    },
}

impl<'a> Key<'a> {
    /// Makes a key from `bytes` after checking them.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BadKey> {
        if bytes.is_empty() || bytes.len() > KEY_BYTES_MAX {
            return Err(BadKey::Length { len: bytes.len(), max: KEY_BYTES_MAX });
        }
        match bytes.iter().position(|&byte| ends_key(byte)) {
            None => Ok(Self(bytes)),
            Some(position) => Err(BadKey::Byte { byte: bytes[position], position }),
        }
    }

    /// Makes a key from a token of a parsed line, for which only the length remains to be checked.
    pub(crate) fn from_token(token: &'a [u8]) -> Option<Self> {
        (token.len() <= KEY_BYTES_MAX).then_some(Self(token))
    }

    /// Returns the key's bytes, which live as long as the line.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl Deref for Key<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl<'a> MetaKey<'a> {
    /// Makes a key from `bytes` after checking them. If a line cannot hold the bytes unchanged, the
    /// key is sent in base64.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BadKey> {
        let binary = bytes.iter().any(|&byte| ends_key(byte));
        let max = if binary { BINARY_KEY_BYTES_MAX } else { KEY_BYTES_MAX };
        if bytes.is_empty() || bytes.len() > max {
            return Err(BadKey::Length { len: bytes.len(), max });
        }
        Ok(Self { bytes: Cow::Borrowed(bytes), binary })
    }

    /// Makes a key from the key of a packet of the binary protocol, which may be any 1 to 250 bytes.
    /// A line can hold only those keys for which [`Self::new`] succeeds.
    pub fn from_packet(bytes: &'a [u8]) -> Self {
        let binary = bytes.iter().any(|&byte| ends_key(byte));
        Self { bytes: Cow::Borrowed(bytes), binary }
    }

    pub(crate) fn from_key(key: Key<'a>) -> Self {
        Self { bytes: Cow::Borrowed(key.0), binary: false }
    }

    /// Decodes the key in the base64 `text`. Returns none if memcached cannot decode it.
    pub fn from_base64(text: Key<'_>) -> Option<Self> {
        base64::decode(&text).map(|bytes| Self { bytes: Cow::Owned(bytes), binary: true })
    }

    /// Returns the decoded key, under which the item is stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the key. It is owned if it was decoded.
    pub fn into_bytes(self) -> Cow<'a, [u8]> {
        self.bytes
    }

    /// Returns whether the key is sent in base64.
    pub const fn is_binary(&self) -> bool {
        self.binary
    }

    /// Appends the key as it is sent, in base64 if `as_binary`. Like memcached, it encodes the key again
    /// instead of repeating the client's text, which may be a different encoding of the same key.
    pub(crate) fn write(&self, out: &mut Vec<u8>, as_binary: bool) {
        if as_binary {
            base64::encode(&self.bytes, out);
        } else {
            out.extend_from_slice(&self.bytes);
        }
    }
}

impl<'a> From<Key<'a>> for MetaKey<'a> {
    fn from(key: Key<'a>) -> Self {
        Self::from_key(key)
    }
}

/// The maximum length of a key whose base64 text has at most [`KEY_BYTES_MAX`] bytes.
pub const BINARY_KEY_BYTES_MAX: usize = KEY_BYTES_MAX / 4 * 3;

const _: () = assert!(base64::encoded_len(BINARY_KEY_BYTES_MAX) <= KEY_BYTES_MAX);

fn ends_key(byte: u8) -> bool {
    matches!(byte, b' ' | b'\r' | b'\n' | 0)
}

/// Appends a key in the URI encoding of memcached's lists and logs: letters, digits and `-._~` stay as they are.
pub fn uri_encode(key: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(*byte);
        } else {
            let digit = |value: u8| DIGITS[usize::from(value)];
            out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_would_break_a_line_are_refused() {
        assert_eq!(Key::new(b""), Err(BadKey::Length { len: 0, max: 250 }));
        assert_eq!(Key::new(&[b'k'; 251]), Err(BadKey::Length { len: 251, max: 250 }));
        assert_eq!(Key::new(b"a b"), Err(BadKey::Byte { byte: b' ', position: 1 }));
        assert!(Key::new(b"a\r").is_err() && Key::new(b"\n").is_err() && Key::new(b"\0").is_err());
        assert_eq!(Key::new(&[0xff; 250]).map(|key| key.len()), Ok(250));
    }

    #[test]
    fn meta_keys_turn_to_base64_where_they_must() {
        assert!(!MetaKey::new(b"plain").is_ok_and(|key| key.is_binary()));
        assert!(MetaKey::new(b"two words").is_ok_and(|key| key.is_binary()));
        assert!(MetaKey::new(&[0; 186]).is_ok());
        assert_eq!(MetaKey::new(&[0; 187]), Err(BadKey::Length { len: 187, max: 186 }));
    }

    #[test]
    fn keys_are_encoded_as_memcached_encodes_them() {
        let mut out = Vec::new();
        uri_encode(b"aZ09-._~ %\x80/", &mut out);
        assert_eq!(out, b"aZ09-._~%20%25%80%2F");
    }
}
