//! A request as it came, and what its maker knows of it; the service reads the bytes alone.

use bytes::Bytes;

/// A get or a set.
pub struct Request {
    /// As from a socket, a set with its value.
    pub bytes: Bytes,
    /// The key.
    pub key: Bytes,
    /// The key's value.
    pub value: Bytes,
    /// The client's flags: 1 for compressed values, 2 for encrypted ones.
    pub flags: u32,
    /// A get; else a set.
    pub is_get: bool,
    /// Which of the load's requests it is.
    pub index: usize,
}

/// Flag of values that are compressed.
pub(crate) const COMPRESSED: u32 = 1;
/// Flag of values that are encrypted.
pub(crate) const ENCRYPTED: u32 = 2;
