//! A request as a socket delivers it, with what the load knows about it. The service reads only the bytes.

use bytes::Bytes;

/// A get or a set.
pub(crate) struct Request {
    /// The bytes that a socket would deliver. The bytes of a set include its value.
    pub(crate) bytes: Bytes,
    /// The key.
    pub(crate) key: Bytes,
    /// The key's value.
    pub(crate) value: Bytes,
    /// The client's flags: 1 for compressed values, 2 for encrypted ones.
    pub(crate) flags: u32,
    /// True for a get and false for a set.
    pub(crate) is_get: bool,
    /// The index among the load's requests.
    pub(crate) index: usize,
}

/// The flag of values that are compressed.
pub(crate) const COMPRESSED: u32 = 1;
/// The flag of values that are encrypted.
pub(crate) const ENCRYPTED: u32 = 2;
