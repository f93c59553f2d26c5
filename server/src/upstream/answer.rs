//! The parsed answer of a memcached server, or the fault that occurred instead.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::reply::MetaOutcome;
use smallvec::SmallVec;

use super::reader::Unreadable;
use crate::members::Member;

/// A complete answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The items of VALUE lines before END, in the order of the request's keys.
    Values(SmallVec<[Value; 1]>),
    /// `STORED`
    Stored,
    /// `NOT_STORED`
    NotStored,
    /// `EXISTS`
    Exists,
    /// `NOT_FOUND`
    NotFound,
    /// `DELETED`, `TOUCHED`, `OK`, `RESET` or `MN`
    Done,
    /// The result of incr or decr.
    Number(u64),
    /// `HD`, `NF`, `NS`, `EX` or `VA`, with its return flags.
    Meta { outcome: MetaOutcome, returned: Returned, value: Option<Bytes> },
    /// `EN`
    MetaMiss,
    /// `ME` and the rest of its line.
    MetaDebug(Vec<u8>),
    /// STAT lines and END.
    Stats(Vec<(String, String)>),
    /// The values did not fit into memory. `bytes` is their size. `returned` has the return flags of a meta
    /// command, because a second request may change them.
    OverBudget { bytes: u64, returned: Option<Returned> },
    /// A whole error line.
    Error(ErrorLine),
}

/// An error line, and the server that sent it.
#[derive(Debug)]
pub(crate) struct ErrorLine {
    /// The whole line, without CR LF.
    pub(crate) text: Vec<u8>,
    /// The server of the ring, or `None` if this process wrote the line.
    pub(crate) server: Option<Arc<Member>>,
}

impl From<&[u8]> for ErrorLine {
    fn from(text: &[u8]) -> Self {
        Self { text: text.to_vec(), server: None }
    }
}

/// An item from a VALUE line.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) key: SmallVec<[u8; 32]>,
    pub(crate) client_flags: u32,
    pub(crate) cas: u64,
    pub(crate) value: Bytes,
}

/// The return flags of a meta response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Returned {
    pub(crate) cas: u64,
    pub(crate) client_flags: u32,
    /// The time to live (s); `None` for never.
    pub(crate) ttl_s: Option<u32>,
    pub(crate) idle_s: u32,
    pub(crate) fetched: bool,
    pub(crate) won: bool,
    pub(crate) stale: bool,
    pub(crate) already_won: bool,
    /// True if the server sent the key in base64.
    pub(crate) binary_key: bool,
    /// True if the server sent the length of the value.
    pub(crate) has_size: bool,
}

/// The reason why there is no answer. `Display` writes a text for clients; the log has the details.
#[derive(Clone, Debug)]
pub(crate) struct LinkError {
    pub(crate) fault: LinkFault,
    /// The server of the ring, or `None` if the ring has no server.
    pub(crate) server: Option<Arc<Member>>,
}

/// A fault of the server or of the connection to it.
#[derive(Clone, Debug)]
pub(crate) enum LinkFault {
    /// The server cannot be reached.
    Down(String),
    /// The connection ended with the request in flight.
    Lost(String),
    /// The server did not answer in time.
    TimedOut(Duration),
    /// The server's answer is not memcached's protocol.
    Malformed(String),
    /// The server has reached its connection limit and did not read the request.
    TooManyClients,
    /// A store service refused the call with this message.
    Refused(String),
    /// The server is out of the ring, so nothing was sent.
    Out,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            LinkFault::Down(_) | LinkFault::Out => f.write_str("the store is down"),
            LinkFault::Lost(_) => f.write_str("the store went away"),
            LinkFault::TimedOut(limit) => {
                write!(f, "the store gave no answer within {} ms", limit.as_millis())
            }
            LinkFault::Refused(_) => f.write_str("the store refused the request"),
            LinkFault::TooManyClients => f.write_str("the store has too many clients"),
            LinkFault::Malformed(_) => f.write_str("the store answered nonsense"),
        }
    }
}

impl fmt::Display for LinkFault {
    /// Writes all details, for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkFault::Down(why) => write!(f, "is down: {why}"),
            LinkFault::Out => f.write_str("is out of the ring"),
            LinkFault::Lost(why) => write!(f, "went away: {why}"),
            LinkFault::TimedOut(limit) => {
                write!(f, "gave no answer within {} ms", limit.as_millis())
            }
            LinkFault::Refused(why) => write!(f, "refused: {why}"),
            LinkFault::TooManyClients => f.write_str("has as many clients as it takes"),
            LinkFault::Malformed(what) => write!(f, "answered nonsense: {what}"),
        }
    }
}

impl From<Unreadable> for LinkFault {
    fn from(why: Unreadable) -> Self {
        match why {
            Unreadable::Nonsense(what) => Self::Malformed(what),
            Unreadable::TooManyClients => Self::TooManyClients,
        }
    }
}
