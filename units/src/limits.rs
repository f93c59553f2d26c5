//! The page of limits: every bound that more than one crate relies on, related to each other at compile time.

use crate::ByteCount;

/// Longest key (memcached's `KEY_MAX_LENGTH`).
pub const KEY_BYTES_MAX: usize = 250;

/// memcached's default `-I`: the largest item, its key and header included.
pub const ITEM_BYTES_MAX_DEFAULT: ByteCount = ByteCount::mib(1);

/// The lower bound of `-I`, as memcached 1.6 checks it.
pub const ITEM_BYTES_MAX_LOWEST: ByteCount = ByteCount::kib(1);
/// The upper bound of `-I`.
pub const ITEM_BYTES_MAX_HIGHEST: ByteCount = ByteCount::mib(1024);

/// The bytes that memcached adds to key and value when it compares an item with `-I`: the 48-byte item header, 8 bytes
/// of CAS, the key's terminator and the value's CR LF. We count the same, so that both refuse the same values.
pub const ITEM_OVERHEAD_BYTES: usize = 48 + 8 + 1 + 2;

/// A command line without its newline after this many bytes is hostile and closes the connection
/// (memcached 1.6 gives up above 2048 bytes unless the line is a multi-get).
pub const LINE_BYTES_MAX: usize = 2_048;

/// A get line may be longer, up to this many bytes: a thousand of the longest keys, ten thousand common ones.
/// memcached has no bound here; without one a client could make us hold any number of bytes.
pub const GET_LINE_BYTES_MAX: usize = 256 << 10;

/// The frame's header without a dictionary id; see docs/format.md.
pub const FRAME_HEADER_BYTES: usize = 16;

/// Values below this are never compressed: with the frame's header a stream rarely is shorter, and counters stay
/// readable by the store's own incr and decr.
pub const COMPRESS_BYTES_MIN: usize = 64;

const _: () = assert!(COMPRESS_BYTES_MIN > FRAME_HEADER_BYTES);
const _: () = assert!(LINE_BYTES_MAX > 2 * KEY_BYTES_MAX);
const _: () = assert!(ITEM_BYTES_MAX_LOWEST.0 as usize > KEY_BYTES_MAX + ITEM_OVERHEAD_BYTES);
