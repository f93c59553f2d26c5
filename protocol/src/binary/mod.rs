//! The binary protocol of memcached 1.6.18: packets instead of lines. [`parse()`] reads requests and
//! [`reply`] writes answers. As with text commands, nothing is copied, no state is kept, and a
//! value's length is known before its bytes are read. The checks and the answers are memcached's. A
//! client of the protocol is not here, because this program speaks text to memcached servers.

pub mod command;
pub mod parse;
pub mod reply;

pub use command::{Arithmetic, Command, Head, Packet, Sasl, Store};
pub use parse::{Parse, Refusal, parse};
pub use reply::Status;

/// The first byte of every request. A connection whose first byte this is speaks the binary
/// protocol.
pub const REQUEST_MAGIC: u8 = 0x80;

/// The length of the header in front of every request and every answer (bytes).
pub const HEADER_BYTES: usize = 24;

/// The first byte of every answer.
const RESPONSE_MAGIC: u8 = 0x81;
