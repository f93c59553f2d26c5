//! A refused line as a value: what to answer and what to do so that the connection lives on, or
//! not.

use std::borrow::Cow;

/// The refusal of a line that is no command, in the form a session acts on: unlink, answer unless silent, swallow, then
/// go on or close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The whole reply line with CR LF; empty where memcached closes without a word.
    pub reply: &'static [u8],
    /// `noreply` was given and holds for this error: write nothing.
    pub silent: bool,
    /// The bytes after the line, CR LF included, that belong to the refused command.
    pub swallow_bytes: u64,
    /// The connection ends once the reply is written.
    pub close: bool,
    /// The item to drop, as memcached does so that a value too large does not leave the old one
    /// behind.
    pub unlink: Option<Cow<'a, [u8]>>,
}

impl<'a> Refusal<'a> {
    /// An answer and nothing else.
    pub const fn line(reply: &'static [u8]) -> Self {
        Self { reply, silent: false, swallow_bytes: 0, close: false, unlink: None }
    }

    /// An answer, possibly empty, and the end of the connection.
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

/// No such command, or not with that many arguments.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The command's arguments make no sense; also what the session answers to a failed check of its
/// own.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// The answer when the two bytes after a value are not CR LF. `noreply` silences it, `q` does not;
/// exactly the stated length and two bytes are consumed, what follows is the next command.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// Key and value are beyond `-I`.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// There is no memory for the value; memcached answers this even to `noreply`.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// incr, decr or ma on a value that is no number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// No newline within the limit. memcached closes without a word; we say why first.
pub const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
/// The first byte was the binary protocol's.
pub const BINARY: &[u8] = b"CLIENT_ERROR the binary protocol is not supported\r\n";

pub(crate) const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
pub(crate) const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
pub(crate) const BAD_DELETE: &[u8] =
    b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n";
