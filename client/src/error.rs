//! What can go wrong.

use std::io;

use protocol::key::BadKey;

/// The reason why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no address.
    #[error("`{address}` is no address: {why}")]
    Address {
        /// The text.
        address: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no address.
    #[error("no address was given; give at least one of near:PATH, unix:PATH and HOST:PORT")]
    NoAddress,
    /// The key is none.
    #[error(transparent)]
    Key(#[from] BadKey),
    /// The value is too long for any cache.
    #[error("a value of {bytes} bytes; values have at most {max}")]
    Value {
        /// The value's length.
        bytes: usize,
        /// The longest value.
        max: usize,
    },
    /// The expiry is too far away.
    #[error("an expiry of {exptime_s} s; the largest is {max}", max = i32::MAX)]
    Expiry {
        /// The expiry.
        exptime_s: u32,
    },
    /// No address answers. The text has the reason for each.
    #[error("no cache answers: {0}")]
    Unreachable(String),
    /// The connection was lost, or the time was over, after a change was sent. It may have been executed.
    #[error("{address} was lost, and whether it executed the request is unknown: {error}")]
    Unknown {
        /// The address.
        address: String,
        /// The error of the connection.
        error: io::Error,
    },
    /// The item is not a number.
    #[error("the value is not a number of at most 64 bits")]
    NotANumber,
    /// The server refused the request.
    #[error("the server refused the request with status {status:#x}: {text}")]
    Refused {
        /// The status of the binary protocol.
        status: u16,
        /// The server's words.
        text: String,
    },
}
