//! Memcached's text and meta commands as values, parsed and written in both directions.
//! [`mod@parse`] and [`reply`] are for a server, [`request`] and [`response`] for a client. The
//! answers, including errors, are those of memcached 1.6.18. Arithmetic on stored digits
//! ([`counter`]) is here because the protocol defines its rules. This crate has no sockets, no
//! clock, no store and no values. The caller owns the buffer, reads bodies into any buffer, and
//! decides what a command means. The packets of the binary protocol are in [`binary`]. UDP is
//! refused.

mod base64;
pub mod binary;
mod classic;
pub mod command;
pub mod counter;
pub mod key;
pub mod meta;
mod meta_parse;
pub mod number;
pub mod parse;
pub mod refusal;
pub mod reply;
pub mod request;
pub mod response;
pub mod tokens;

pub use command::Command;
pub use key::{BadKey, Key, MetaKey};
pub use meta::{Flags, Meta, MetaFlags};
pub use parse::{Limits, Parse, command_word, parse};
pub use refusal::Refusal;
pub use tokens::Tokens;
