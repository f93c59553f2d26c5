//! The meta protocol, which the client speaks on sockets: caches and proxies that do not know the binary protocol know
//! it, and it carries versions and numbers of requests as well.

use std::ops::RangeInclusive;

use protocol::binary::{Request, Status};
use protocol::command::StoreVerb;
use protocol::counter::Direction;
use protocol::meta::Flags;
use protocol::reply::MetaOutcome;
use protocol::request::{self, MetaLine};
use protocol::response::{self, ErrorKind, Response};

use crate::answer::{Answer, Parsed};

/// Appends a request up to its value. The value and CR LF must follow.
pub(crate) fn append(request: &Request<'_>, out: &mut Vec<u8>, opaque: u32) {
    let opaque = u64::from(opaque);
    let fetch = |line: MetaLine<'_>| line.flag(b'v').flag(b'f').flag(b'c').opaque(opaque).end();
    match *request {
        Request::Get { key, quiet: false } => fetch(request::meta_get(out, &key.into())),
        Request::Get { key, quiet: true } => fetch(request::meta_get(out, &key.into()).flag(b'q')),
        Request::GetAndTouch { key, exptime_s } => {
            fetch(request::meta_get(out, &key.into()).time(b'T', time(exptime_s)));
        }
        Request::Touch { key, exptime_s } => {
            let line = request::meta_get(out, &key.into());
            line.time(b'T', time(exptime_s)).opaque(opaque).end();
        }
        Request::Store(store) => {
            let line = request::meta_set(out, &store.key.into(), store.value_bytes as usize);
            let line = match store.verb {
                StoreVerb::Append | StoreVerb::Prepend => line,
                _ => line
                    .number(b'F', u64::from(store.client_flags))
                    .time(b'T', time(store.exptime_s)),
            };
            compare(line.mode(mode(store.verb)), store.cas).flag(b'c').opaque(opaque).end();
        }
        Request::Delete { key, cas } => {
            compare(request::meta_delete(out, &key.into()), cas).opaque(opaque).end();
        }
        Request::Arithmetic { direction, key, delta } => {
            let mode = match direction {
                Direction::Increment => b'I',
                Direction::Decrement => b'D',
            };
            let line = request::meta_arithmetic(out, &key.into()).mode(mode);
            line.number(b'D', delta).flag(b'v').flag(b'c').opaque(opaque).end();
        }
        Request::Stat { page } => request::stats(out, &String::from_utf8_lossy(page)),
        Request::Flush { delay_s } => request::flush_all(out, time(delay_s), false),
        Request::Noop => out.extend_from_slice(request::META_NOOP),
        Request::Version => out.extend_from_slice(request::VERSION),
    }
}

fn compare(line: MetaLine<'_>, cas: u64) -> MetaLine<'_> {
    if cas == 0 { line } else { line.number(b'C', cas) }
}

/// Returns the time of a request, which the caller has checked.
fn time(time_s: u32) -> i32 {
    i32::try_from(time_s).unwrap_or(i32::MAX)
}

const fn mode(verb: StoreVerb) -> u8 {
    match verb {
        StoreVerb::Set | StoreVerb::Cas => b'S',
        StoreVerb::Add => b'E',
        StoreVerb::Replace => b'R',
        StoreVerb::Append => b'A',
        StoreVerb::Prepend => b'P',
    }
}

/// Parses an answer to the requests with the numbers `opaques`. An answer without a number belongs to the first of
/// them, and the answer that ends a batch to the last.
pub(crate) fn parse(
    input: &[u8],
    body_bytes_max: usize,
    opaques: RangeInclusive<u32>,
) -> Parsed<'_> {
    let (response, line_bytes) = match response::parse(input) {
        response::Parse::Incomplete => return Parsed::Incomplete { bytes: input.len() + 1 },
        response::Parse::Malformed(malformed) => return Parsed::Malformed(malformed.to_string()),
        response::Parse::Complete { response, consumed } => (response, consumed),
    };
    let body_bytes = usize::try_from(response.body_bytes().unwrap_or(0)).unwrap_or(usize::MAX);
    if body_bytes > body_bytes_max {
        return Parsed::Malformed("an answer is longer than any value may be".to_owned());
    }
    let consumed = line_bytes + body_bytes;
    let Some(body) = input.get(line_bytes..consumed) else {
        return Parsed::Incomplete { bytes: consumed };
    };
    match answer(&response, body, opaques) {
        Some(answer) => Parsed::Answer { answer, consumed },
        None => Parsed::Malformed("an answer to another kind of request".to_owned()),
    }
}

fn answer<'a>(
    response: &Response<'a>,
    body: &'a [u8],
    opaques: RangeInclusive<u32>,
) -> Option<Answer<'a>> {
    let none = Answer {
        status: 0,
        opaque: *opaques.start(),
        cas: 0,
        client_flags: 0,
        key: b"",
        value: b"",
        is_text: true,
    };
    let with = |status: Status| Some(Answer { status: status.code(), ..none });
    match *response {
        Response::MetaValue { flags, .. } => {
            let number = flags.number(b'f').unwrap_or_default();
            let client_flags = u32::try_from(number).ok()?;
            let value = body.strip_suffix(b"\r\n")?;
            Some(Answer { value, client_flags, ..flagged(none, flags) })
        }
        Response::Meta { outcome, flags } => {
            let status = match outcome {
                MetaOutcome::Done => 0,
                MetaOutcome::NotFound => Status::NotFound.code(),
                MetaOutcome::NotStored => Status::NotStored.code(),
                MetaOutcome::Exists => Status::Exists.code(),
            };
            Some(Answer { status, ..flagged(none, flags) })
        }
        Response::MetaMiss { .. } => with(Status::NotFound),
        Response::MetaNoop => Some(Answer { opaque: *opaques.end(), ..none }),
        Response::Stat { name, value } => Some(Answer { key: name, value, ..none }),
        Response::Version(value) => Some(Answer { value, ..none }),
        Response::End | Response::Ok | Response::Reset => Some(none),
        Response::Error { kind, message } => {
            let status = status(kind, message).code();
            Some(Answer { status, value: message, ..none })
        }
        _ => None,
    }
}

/// Adds what the return flags say. A server that repeats no number answers in order.
fn flagged<'a>(answer: Answer<'a>, flags: Flags<'_>) -> Answer<'a> {
    let opaque = flags.number(b'O').and_then(|number| u32::try_from(number).ok());
    Answer {
        cas: flags.number(b'c').unwrap_or_default(),
        opaque: opaque.unwrap_or(answer.opaque),
        ..answer
    }
}

/// Returns the status that an error has in the binary protocol. The texts are memcached's.
fn status(kind: ErrorKind, message: &[u8]) -> Status {
    match kind {
        ErrorKind::Unknown => Status::UnknownCommand,
        ErrorKind::Client if message.starts_with(b"cannot increment or decrement") => {
            Status::NonNumeric
        }
        ErrorKind::Client => Status::InvalidArguments,
        ErrorKind::Server if message.starts_with(b"object too large") => Status::TooLarge,
        ErrorKind::Server if message.starts_with(b"out of memory") => Status::OutOfMemory,
        ErrorKind::Server => Status::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1_000;

    fn one(input: &[u8]) -> Answer<'_> {
        match parse(input, MAX, 7..=9) {
            Parsed::Answer { answer, consumed } if consumed == input.len() => answer,
            other => panic!("{}: {other:?}", input.escape_ascii()),
        }
    }

    #[test]
    fn answers_have_the_fields_of_their_flags() {
        let answer = one(b"VA 5 f3 c77 O8\r\nvalue\r\n");
        assert_eq!((answer.value, answer.client_flags, answer.cas), (&b"value"[..], 3, 77));
        assert_eq!((answer.opaque, answer.status), (8, 0));
        assert_eq!(one(b"VA 2 O7 c1\r\n10\r\n").number(), Some(10));
        assert_eq!((one(b"HD O8 c5\r\n").opaque, one(b"HD O8 c5\r\n").cas), (8, 5));
    }

    #[test]
    fn answers_without_a_number_belong_to_the_first_request() {
        for (line, status) in [
            (&b"EN\r\n"[..], 1),
            (b"NF\r\n", 1),
            (b"EX\r\n", 2),
            (b"NS\r\n", 5),
            (b"SERVER_ERROR object too large for cache\r\n", 3),
            (b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n", 6),
            (b"CLIENT_ERROR bad command line format\r\n", 4),
            (b"SERVER_ERROR backend\r\n", 0x84),
            (b"ERROR\r\n", 0x81),
        ] {
            assert_eq!(
                (one(line).opaque, one(line).status),
                (7, status),
                "{}",
                line.escape_ascii()
            );
        }
        assert_eq!(one(b"MN\r\n").opaque, 9, "the last of a batch");
    }

    #[test]
    fn incomplete_answers_ask_for_more() {
        let whole = b"VA 5 f0 c1 O7\r\nvalue\r\n";
        for cut in 0..whole.len() {
            let parsed = parse(&whole[..cut], MAX, 7..=7);
            assert!(
                matches!(parsed, Parsed::Incomplete { bytes } if bytes > cut && bytes <= whole.len()),
                "{cut}: {parsed:?}"
            );
        }
    }

    #[test]
    fn other_bytes_are_malformed() {
        for bytes in [&b"VA 5 O7\r\nvalueXX"[..], b"VA 5000 O7\r\n", b"\x81\0\n", b"STORED\r\n"] {
            let parsed = parse(bytes, MAX, 7..=7);
            assert!(matches!(parsed, Parsed::Malformed(_)), "{}: {parsed:?}", bytes.escape_ascii());
        }
    }
}
