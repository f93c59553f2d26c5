//! The responses that a client reads, one line at a time. This module reads only the header of a
//! value. The caller can check the length first and then reads the body into a buffer of its
//! choice.

use memchr::memchr;

use crate::meta::Flags;
use crate::number::decimal;
use crate::reply::MetaOutcome;
use crate::tokens::Tokens;

/// The result of parsing the bytes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse<'a> {
    /// The bytes contain no whole line yet. Read more.
    Incomplete,
    /// A response line.
    Complete {
        /// The response. The body of a value starts at `consumed`.
        response: Response<'a>,
        /// The length of the line, including its end.
        consumed: usize,
    },
    /// The bytes are not a memcached response. The connection can no longer be used.
    Malformed(Malformed),
}

/// One response line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response<'a> {
    /// `VALUE`. The value and CR LF follow.
    Value {
        /// The key of the value.
        key: &'a [u8],
        /// The client flags stored with the value.
        client_flags: u32,
        /// The length of the value without its CR LF (bytes).
        value_bytes: u64,
        /// The CAS, in answers to gets and gats.
        cas: Option<u64>,
    },
    /// `VA`. The value and CR LF follow.
    MetaValue {
        /// The length of the value without its CR LF (bytes).
        value_bytes: u64,
        /// The return flags.
        flags: Flags<'a>,
    },
    /// `HD`, `NF`, `NS` or `EX`: the outcome of a meta command.
    Meta {
        /// The outcome.
        outcome: MetaOutcome,
        /// The return flags.
        flags: Flags<'a>,
    },
    /// `EN`: there is no item.
    MetaMiss {
        /// The return flags.
        flags: Flags<'a>,
    },
    /// `MN`: the answer to mn.
    MetaNoop,
    /// `ME`, with the text behind it.
    MetaDebug(&'a [u8]),
    /// `END`, after the values of a get or the lines of stats.
    End,
    /// `STORED`
    Stored,
    /// `NOT_STORED`
    NotStored,
    /// `EXISTS`
    Exists,
    /// `NOT_FOUND`
    NotFound,
    /// `DELETED`
    Deleted,
    /// `TOUCHED`
    Touched,
    /// `OK`
    Ok,
    /// `RESET`
    Reset,
    /// The result of incr or decr.
    Number(u64),
    /// `VERSION`, with the text behind it.
    Version(&'a [u8]),
    /// One line of stats.
    Stat {
        /// The counter's name.
        name: &'a [u8],
        /// The counter's value. It may be empty and may contain spaces.
        value: &'a [u8],
    },
    /// `ERROR`, `CLIENT_ERROR` or `SERVER_ERROR`.
    Error {
        /// The kind of the error.
        kind: ErrorKind,
        /// The message of the server.
        message: &'a [u8],
    },
}

/// The kind of an error that a server reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The command is unknown to the server.
    Unknown,
    /// The client's line is not valid.
    Client,
    /// The server could not run the command.
    Server,
}

/// An error: the bytes are not a memcached response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memcached response of at most {RESPONSE_LINE_BYTES_MAX} bytes: {}", .0.escape_ascii())]
pub struct Malformed(pub Box<[u8]>);

/// The maximum length of a response line (bytes). memcached's longest lines, `STAT` and `ME`, are
/// well below this limit.
pub const RESPONSE_LINE_BYTES_MAX: usize = 4_096;

/// Parses one response line from the front of `input`.
pub fn parse(input: &[u8]) -> Parse<'_> {
    let window = &input[..input.len().min(RESPONSE_LINE_BYTES_MAX)];
    let Some(newline) = memchr(b'\n', window) else {
        let full = window.len() == RESPONSE_LINE_BYTES_MAX;
        return if full { malformed(window) } else { Parse::Incomplete };
    };
    let line = window[..newline].strip_suffix(b"\r");
    match line.and_then(response) {
        Some(response) => Parse::Complete { response, consumed: newline + 1 },
        None => malformed(&window[..newline]),
    }
}

impl Response<'_> {
    /// Returns how many bytes follow the line: the value and its CR LF. Returns none for a response
    /// without a value.
    pub const fn body_bytes(&self) -> Option<u64> {
        match self {
            Response::Value { value_bytes, .. } | Response::MetaValue { value_bytes, .. } => {
                Some(value_bytes.saturating_add(2))
            }
            _ => None,
        }
    }
}

/// The maximum number of bytes of a malformed line that the error contains.
const EXCERPT_BYTES: usize = 64;

fn malformed<'a>(line: &[u8]) -> Parse<'a> {
    Parse::Malformed(Malformed(line[..line.len().min(EXCERPT_BYTES)].into()))
}

fn response(line: &[u8]) -> Option<Response<'_>> {
    let (name, rest) = match memchr(b' ', line) {
        Some(space) => (&line[..space], &line[space + 1..]),
        None => (line, &line[line.len()..]),
    };
    let flags = Flags(Tokens::new(rest));
    let meta = |outcome| Some(Response::Meta { outcome, flags });
    let error = |kind| Some(Response::Error { kind, message: rest });
    match name {
        b"VALUE" => value(rest),
        b"VA" => meta_value(rest),
        b"HD" => meta(MetaOutcome::Done),
        b"NF" => meta(MetaOutcome::NotFound),
        b"NS" => meta(MetaOutcome::NotStored),
        b"EX" => meta(MetaOutcome::Exists),
        b"EN" => Some(Response::MetaMiss { flags }),
        b"ME" => Some(Response::MetaDebug(rest)),
        b"STAT" => stat(rest),
        b"VERSION" => Some(Response::Version(rest)),
        b"ERROR" | b"ERROR:" => error(ErrorKind::Unknown),
        b"CLIENT_ERROR" => error(ErrorKind::Client),
        b"SERVER_ERROR" => error(ErrorKind::Server),
        _ if name.len() == line.len() => word(line),
        _ => None,
    }
}

fn word(line: &[u8]) -> Option<Response<'_>> {
    Some(match line {
        b"END" => Response::End,
        b"STORED" => Response::Stored,
        b"NOT_STORED" => Response::NotStored,
        b"EXISTS" => Response::Exists,
        b"NOT_FOUND" => Response::NotFound,
        b"DELETED" => Response::Deleted,
        b"TOUCHED" => Response::Touched,
        b"OK" => Response::Ok,
        b"MN" => Response::MetaNoop,
        b"RESET" => Response::Reset,
        _ => Response::Number(decimal(line)?),
    })
}

fn value(rest: &[u8]) -> Option<Response<'_>> {
    let mut tokens = Tokens::new(rest);
    let key = tokens.next()?;
    let client_flags = u32::try_from(decimal(tokens.next()?)?).ok()?;
    let value_bytes = decimal(tokens.next()?)?;
    let cas = match tokens.next() {
        Some(cas) => Some(decimal(cas)?),
        None => None,
    };
    tokens.next().is_none().then_some(Response::Value { key, client_flags, value_bytes, cas })
}

fn meta_value(rest: &[u8]) -> Option<Response<'_>> {
    let mut tokens = Tokens::new(rest);
    let value_bytes = decimal(tokens.next()?)?;
    Some(Response::MetaValue { value_bytes, flags: Flags(tokens) })
}

fn stat(rest: &[u8]) -> Option<Response<'_>> {
    let space = memchr(b' ', rest).unwrap_or(rest.len());
    let value = rest.get(space + 1..).unwrap_or_default();
    (space > 0).then_some(Response::Stat { name: &rest[..space], value })
}
