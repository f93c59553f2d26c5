//! Memcached text and meta commands as values, parsed and composed both ways: [`mod@parse`] and
//! [`reply`] for a server, [`request`] and [`response`] for a client, with the answers of memcached
//! 1.6.18, errors included. Arithmetic on stored digits ([`counter`]) is here because its rules are
//! the wire's. No sockets, no clock, no store, no values: the caller owns the buffer, reads bodies
//! where it wants them, and decides what a command means. Binary protocol, UDP and SASL are
//! refused, not spoken.

mod base64;
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
pub use parse::{Limits, Parse, parse, refuse_binary};
pub use refusal::Refusal;
pub use tokens::Tokens;
