//! A refused line as a value: the answer, and whether and how the connection continues.

use std::borrow::Cow;

/// The refusal of a line that is not a valid command. A session acts on it in this order: it drops
/// the item, answers unless silent, discards bytes, and continues or closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The whole reply line with CR LF. It is empty if memcached closes the connection without an
    /// answer.
    pub reply: &'static [u8],
    /// Whether to write no reply, because `noreply` was given and covers this error.
    pub silent: bool,
    /// The number of bytes to discard after the line, because they belong to the refused command.
    /// The number includes the CR LF.
    pub swallow_bytes: u64,
    /// Whether the connection ends once the reply is written.
    pub close: bool,
    /// The key of an item to drop. memcached drops the old item if its new value is too large, so
    /// that the old value is not read any more.
    pub unlink: Option<Cow<'a, [u8]>>,
}

impl<'a> Refusal<'a> {
    /// Builds a refusal that only answers.
    pub const fn line(reply: &'static [u8]) -> Self {
        Self { reply, silent: false, swallow_bytes: 0, close: false, unlink: None }
    }

    /// Builds a refusal that answers, or writes nothing if `reply` is empty, and ends the
    /// connection.
    pub const fn closing(reply: &'static [u8]) -> Self {
        Self { reply, silent: false, swallow_bytes: 0, close: true, unlink: None }
    }

    pub(crate) fn silent_if(mut self, noreply: bool) -> Self {
        self.silent = noreply;
        self
    }

    pub(crate) fn swallowing(mut self, bytes: u64) -> Self {
        self.swallow_bytes = bytes;
        self
    }

    pub(crate) fn unlinking(mut self, key: Option<Cow<'a, [u8]>>) -> Self {
        self.unlink = key;
        self
    }
}

/// There is no such command, or it does not take this number of arguments.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The command's arguments are not valid. The session also gives this answer if one of its own
/// checks fails.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// The two bytes after a value are not CR LF. `noreply` silences this answer and `q` does not.
/// Exactly the stated length and two bytes are consumed, and the next command follows.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// The key and the value are larger than `-I` allows.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// There is no memory for the value. memcached sends this answer even with `noreply`.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// The value that incr, decr or ma should change is not a number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// The line has no newline within the limit. memcached closes the connection without an answer;
/// Rebate first says why.
pub const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
/// The connection does not begin with a packet of the binary protocol, and text is not served.
pub const BINARY_ONLY: &[u8] = b"CLIENT_ERROR only the binary protocol is served here\r\n";

pub(crate) const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
pub(crate) const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
pub(crate) const BAD_DELETE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
