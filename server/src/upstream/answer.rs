//! The owned answer of a memcached server, or the fault that occurred instead.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use protocol::reply::MetaOutcome;
use smallvec::SmallVec;

use super::reader::Unreadable;

/// A whole answer.
#[derive(Debug)]
pub(crate) enum Answer {
    /// VALUE lines and END, in the order of the request's keys.
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
    /// The bytes of the values for which there was no memory. A meta command also has its return flags here, because a
    /// second request may change them.
    NoRoom { bytes: u64, returned: Option<Returned> },
    /// A whole error line, without CR LF.
    Error(Vec<u8>),
}

/// One VALUE.
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
    /// The seconds that are left; none for never.
    pub(crate) ttl_s: Option<u32>,
    pub(crate) idle_s: u32,
    pub(crate) fetched: bool,
    pub(crate) won: bool,
    pub(crate) stale: bool,
    pub(crate) already_won: bool,
    /// Whether the server sent the key in base64.
    pub(crate) binary_key: bool,
}

/// The reason why there is no answer. Its text is for the client. The log has the server and its words.
#[derive(Clone, Debug)]
pub(crate) struct LinkError {
    pub(crate) fault: LinkFault,
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
    /// The server has as many clients as it accepts, and did not read the request.
    TooManyClients,
    /// A store service refused the call, with these words.
    Refused(String),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            LinkFault::Down(_) => f.write_str("the store is down"),
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
    /// Writes everything that is known, for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkFault::Down(why) => write!(f, "is down: {why}"),
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
