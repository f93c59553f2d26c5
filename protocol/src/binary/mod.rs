//! The binary protocol of memcached 1.6.18: packets instead of lines. [`parse()`] reads requests and [`reply`] writes
//! answers. [`request`] and [`response`] do the reverse for clients. As with text commands, nothing is copied, no state
//! is kept, and a value's length is known before its bytes are read. The checks and the answers are memcached's. This
//! program speaks text to memcached servers, so only its client library uses the reverse.

pub mod command;
pub mod deadline;
pub mod parse;
pub mod reply;
pub mod request;
pub mod response;

pub use command::{Arithmetic, Command, Head, Packet, Sasl, Store};
pub use deadline::Deadline;
pub use parse::{Parse, Refusal, parse};
pub use reply::Status;
pub use request::Request;
pub use response::Response;

/// The first byte of every request. A connection whose first byte this is speaks the binary
/// protocol.
pub const REQUEST_MAGIC: u8 = 0x80;

/// The length of the header in front of every request and every answer (bytes).
pub const HEADER_BYTES: usize = 24;

/// The first byte of every answer.
const RESPONSE_MAGIC: u8 = 0x81;
