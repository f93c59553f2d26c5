//! What can go wrong.

use std::io;
use std::time::Duration;

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
    /// The weight of a server is out of range, or its text states more than one.
    #[error("`{address}` has no single weight of 1 to 65535 behind its port")]
    Weight {
        /// The address.
        address: String,
    },
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
    /// A request that only reads, or that the server has not read, was not answered in time.
    #[error("{address} did not answer within {} ms", timeout.as_millis())]
    TimedOut {
        /// The address.
        address: String,
        /// The time that a call may take.
        timeout: Duration,
    },
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

impl Error {
    /// Returns whether the time of the call was over.
    pub fn is_timeout(&self) -> bool {
        match self {
            Error::TimedOut { .. } => true,
            Error::Unknown { error, .. } => is_late(error),
            _ => false,
        }
    }
}

/// Returns whether an error of a connection says that the time was over.
pub(crate) fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}
