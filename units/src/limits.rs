//! All limits on which more than one crate relies. Their relations are checked at compile time.

use crate::ByteCount;

/// The longest key (bytes). It is memcached's `KEY_MAX_LENGTH`.
pub const KEY_BYTES_MAX: usize = 250;

/// The largest item by default, with its key and header. It is memcached's default of `-I`.
pub const ITEM_BYTES_MAX_DEFAULT: ByteCount = ByteCount::mib(1);

/// The lowest valid value of `-I`, as in memcached 1.6.
pub const ITEM_BYTES_MAX_LOWEST: ByteCount = ByteCount::kib(1);
/// The highest valid value of `-I`.
pub const ITEM_BYTES_MAX_HIGHEST: ByteCount = ByteCount::mib(1024);

/// The bytes that memcached adds to key and value when it compares an item with `-I`: the 48-byte item header, 8 bytes
/// of CAS, the key's terminator and the value's CR LF. Rebate counts the same bytes, so that both refuse the same
/// values.
pub const ITEM_OVERHEAD_BYTES: usize = 48 + 8 + 1 + 2;

/// The most bytes of a command line. A line that has no newline after this many bytes is hostile, and the connection is
/// closed. memcached 1.6 closes the connection above 2048 bytes unless the line is a multi-get.
pub const LINE_BYTES_MAX: usize = 2_048;

/// The most bytes of a get line, which may be longer than other lines: it fits a thousand keys of the maximum
/// length, or ten thousand common keys. memcached has no limit here. Without a limit a client could make
/// Rebate hold any number of bytes.
pub const GET_LINE_BYTES_MAX: usize = 256 << 10;

/// The bytes of the longest header of a frame (see docs/format.md).
pub const FRAME_HEADER_BYTES_MAX: usize = 16;

/// The smallest value that is compressed (bytes). The compressed form of a smaller value, with the frame's header, is
/// rarely shorter. Small values also stay readable for the store's incr and decr, which need plain counters.
pub const COMPRESS_BYTES_MIN: usize = 64;

/// The largest expiry time that memcached reads as a time from now (s): thirty days. A larger one is a date.
pub const EXPTIME_RELATIVE_MAX_S: u32 = 60 * 60 * 24 * 30;

const _: () = assert!(COMPRESS_BYTES_MIN > FRAME_HEADER_BYTES_MAX);
const _: () = assert!(LINE_BYTES_MAX > 2 * KEY_BYTES_MAX);
const _: () = assert!(ITEM_BYTES_MAX_LOWEST.0 as usize > KEY_BYTES_MAX + ITEM_OVERHEAD_BYTES);
