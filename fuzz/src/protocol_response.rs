//! Reads arbitrary bytes as a client reads a server's stream. Every step must make progress and must not claim bytes
//! beyond the input. A response that `protocol::reply` composes again must be the same response. The target also
//! composes replies to an arbitrary meta command about an arbitrary item: the client must read exactly the requested
//! facts.

use arbitrary::Arbitrary;
use protocol::reply::{self, ItemFacts, MetaOutcome, Reply};
use protocol::response::{self, RESPONSE_LINE_BYTES_MAX, Response};
use protocol::{Command, Flags, Limits, Meta, MetaKey, Parse};

#[derive(Arbitrary, Debug)]
pub(super) enum Input<'a> {
    Stream(&'a [u8]),
    Reply { facts: Facts, outcome: u8, number: u64, created: bool, line: &'a [u8] },
}

#[derive(Arbitrary, Debug)]
pub(super) struct Facts {
    value_bytes: u32,
    cas: u64,
    client_flags: u32,
    ttl_s: Option<u32>,
    idle_s: u32,
    fetched: bool,
    binary_key: bool,
    won: bool,
    stale: bool,
    already_won: bool,
}

pub(super) fn fuzz(input: Input<'_>) {
    match input {
        Input::Stream(stream) => walk(stream),
        Input::Reply { facts, outcome, number, created, line } => {
            let line = [line, b"\r\n"].concat();
            let Parse::Command { command, .. } = protocol::parse(&line, &Limits::default()) else {
                return;
            };
            let outcome = OUTCOMES[usize::from(outcome) % OUTCOMES.len()];
            check_reply(&command, &facts, outcome, number, created);
        }
    }
}

const OUTCOMES: [MetaOutcome; 4] =
    [MetaOutcome::Done, MetaOutcome::NotFound, MetaOutcome::NotStored, MetaOutcome::Exists];

fn walk(mut stream: &[u8]) {
    loop {
        match response::parse(stream) {
            response::Parse::Incomplete => {
                assert!(!stream.contains(&b'\n') && stream.len() < RESPONSE_LINE_BYTES_MAX);
                return;
            }
            response::Parse::Malformed(malformed) => {
                assert!(malformed.0.len() <= stream.len() && malformed.0.len() <= 64);
                return;
            }
            response::Parse::Complete { response, consumed } => {
                assert!((1..=stream.len()).contains(&consumed), "no progress, or beyond the input");
                assert!(consumed <= RESPONSE_LINE_BYTES_MAX);
                assert!(stream[..consumed].ends_with(b"\r\n"));
                check_round_trip(&response);
                let body_bytes = response.body_bytes().unwrap_or(0);
                let rest = &stream[consumed..];
                if body_bytes > rest.len() as u64 {
                    return;
                }
                stream = &rest[body_bytes as usize..];
            }
        }
    }
}

/// Composes the response again, if our server could have written it, and compares the two.
fn check_round_trip(response: &Response<'_>) {
    let mut line = Vec::new();
    match response {
        Response::Value { key, client_flags, value_bytes, cas } => {
            reply::value_header(&mut line, key, *client_flags, *value_bytes as usize, *cas);
        }
        Response::Number(value) => reply::number(&mut line, *value),
        Response::Version(version) => match str::from_utf8(version) {
            Ok(version) => reply::version(&mut line, version),
            Err(_) => return,
        },
        Response::Stat { name, value } => match (str::from_utf8(name), str::from_utf8(value)) {
            (Ok(name), Ok(value)) => reply::stat(&mut line, name, value),
            _ => return,
        },
        fixed => match fixed_reply(fixed) {
            Some(reply) => line.extend_from_slice(reply.line()),
            None => return,
        },
    }
    if line.len() <= RESPONSE_LINE_BYTES_MAX {
        assert_eq!(read(&line), (*response, line.len()), "{}", line.escape_ascii());
    }
}

fn fixed_reply(response: &Response<'_>) -> Option<Reply> {
    Some(match response {
        Response::Stored => Reply::Stored,
        Response::NotStored => Reply::NotStored,
        Response::Exists => Reply::Exists,
        Response::NotFound => Reply::NotFound,
        Response::Deleted => Reply::Deleted,
        Response::Touched => Reply::Touched,
        Response::Ok => Reply::Ok,
        Response::End => Reply::End,
        Response::Reset => Reply::Reset,
        Response::MetaNoop => Reply::MetaNoop,
        _ => return None,
    })
}

fn read(line: &[u8]) -> (Response<'_>, usize) {
    match response::parse(line) {
        response::Parse::Complete { response, consumed } => (response, consumed),
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

fn check_reply(
    command: &Command<'_>,
    facts: &Facts,
    outcome: MetaOutcome,
    number: u64,
    created: bool,
) {
    match command {
        Command::MetaGet(meta) => {
            check_hit(meta, &facts.item(&meta.key));
            check_miss(meta);
        }
        Command::MetaSet(set) => {
            let cas = Some(facts.cas);
            check_outcome(&set.meta, outcome, cas, |out| {
                reply::meta_set(out, &set.meta, outcome, facts.cas, Some(set.value_bytes));
            });
        }
        Command::MetaDelete(meta) => {
            check_outcome(meta, outcome, None, |out| reply::meta_outcome(out, meta, outcome));
        }
        Command::MetaArithmetic(arithmetic) => {
            check_number(&arithmetic.meta, number, created, &facts.item(&arithmetic.meta.key));
        }
        Command::MetaDebug { key } => check_debug(key, &facts.item(key)),
        _ => {}
    }
}

impl Facts {
    /// Returns the facts of an item whose key is `key`. A key that a line cannot hold was sent in base64.
    fn item(&self, key: &MetaKey<'_>) -> ItemFacts {
        let must_be_binary = key.bytes().iter().any(|byte| b" \r\n\0".contains(byte));
        ItemFacts {
            value_bytes: self.value_bytes as usize,
            cas: self.cas,
            client_flags: self.client_flags,
            ttl_s: self.ttl_s,
            idle_s: self.idle_s,
            fetched: self.fetched,
            binary_key: self.binary_key || (must_be_binary && key.is_binary()),
            won: self.won,
            stale: self.stale,
            already_won: self.already_won,
        }
    }
}

fn check_hit(meta: &Meta<'_>, facts: &ItemFacts) {
    let mut line = Vec::new();
    reply::meta_hit(&mut line, meta, facts);
    let (response, consumed) = read(&line);
    assert_eq!(consumed, line.len());
    let flags = item_flags(meta, &response, facts.value_bytes);
    check_echo(meta, flags, facts.binary_key);
    let asked = |letter, fact: u64| {
        let expected = meta.flags.has(letter).then_some(fact);
        assert_eq!(flags.number(letter), expected, "{} in {}", letter, line.escape_ascii());
    };
    asked(b's', facts.value_bytes as u64);
    asked(b'c', facts.cas);
    asked(b'f', facts.client_flags.into());
    asked(b'l', facts.idle_s.into());
    asked(b'h', facts.fetched.into());
    check_ttl(meta, flags, facts);
    for (letter, fact) in [(b'W', facts.won), (b'X', facts.stale), (b'Z', facts.already_won)] {
        assert_eq!(flags.has(letter), fact);
    }
}

fn check_miss(meta: &Meta<'_>) {
    let mut line = Vec::new();
    reply::meta_miss(&mut line, meta);
    if meta.flags.is_quiet() {
        return assert!(line.is_empty());
    }
    let (Response::MetaMiss { flags }, consumed) = read(&line) else { panic!("{line:?}") };
    assert_eq!(consumed, line.len());
    check_echo(meta, flags, meta.key.is_binary());
}

fn check_outcome(
    meta: &Meta<'_>,
    result: MetaOutcome,
    cas: Option<u64>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let mut line = Vec::new();
    write(&mut line);
    if line.is_empty() {
        return assert!(meta.flags.is_quiet() && result == MetaOutcome::Done);
    }
    let (Response::Meta { outcome, flags }, consumed) = read(&line) else { panic!("{line:?}") };
    assert_eq!((outcome, consumed), (result, line.len()));
    assert_eq!(flags.number(b'c'), cas.filter(|_| meta.flags.has(b'c')));
    check_echo(meta, flags, meta.key.is_binary());
}

fn check_number(meta: &Meta<'_>, number: u64, created: bool, facts: &ItemFacts) {
    let mut answer = Vec::new();
    reply::meta_number(&mut answer, meta, number, created, facts);
    if answer.is_empty() {
        return assert!(meta.flags.is_quiet() && !created);
    }
    let digits = number.to_string();
    let (response, consumed) = read(&answer);
    let flags = item_flags(meta, &response, digits.len());
    assert_eq!(flags.number(b'c'), meta.flags.has(b'c').then_some(facts.cas));
    check_ttl(meta, flags, facts);
    check_echo(meta, flags, meta.key.is_binary());
    let body = if meta.flags.wants_value() { digits + "\r\n" } else { String::new() };
    assert_eq!(&answer[consumed..], body.as_bytes());
}

fn check_debug(key: &MetaKey<'_>, facts: &ItemFacts) {
    let mut line = Vec::new();
    reply::meta_debug(&mut line, key, facts, 1, facts.value_bytes);
    let (Response::MetaDebug(rest), consumed) = read(&line) else { panic!("{line:?}") };
    assert_eq!(consumed, line.len());
    assert!(facts.binary_key || rest.starts_with(key.bytes()));
    let cas = format!(" cas={} ", facts.cas);
    assert!(rest.windows(cas.len()).any(|window| window == cas.as_bytes()));
}

/// Returns the flags of an answer about an item. Checks that the answer has a value exactly if the command requested
/// one.
fn item_flags<'a>(meta: &Meta<'_>, response: &Response<'a>, bytes: usize) -> Flags<'a> {
    match response {
        Response::MetaValue { value_bytes, flags } if meta.flags.wants_value() => {
            assert_eq!(*value_bytes, bytes as u64);
            *flags
        }
        Response::Meta { outcome: MetaOutcome::Done, flags } if !meta.flags.wants_value() => *flags,
        other => panic!("{other:?}"),
    }
}

fn check_ttl(meta: &Meta<'_>, flags: Flags<'_>, facts: &ItemFacts) {
    let text = facts.ttl_s.map_or_else(|| "-1".to_owned(), |ttl_s| ttl_s.to_string());
    let expected = meta.flags.has(b't').then_some(text.as_bytes());
    assert_eq!(flags.argument(b't'), expected);
}

/// Checks that the answer repeats the opaque and the key.
fn check_echo(meta: &Meta<'_>, flags: Flags<'_>, binary_key: bool) {
    assert_eq!(flags.argument(b'O'), meta.flags.argument(b'O'));
    let key = flags.argument(b'k');
    assert_eq!(key.is_some(), meta.flags.has(b'k'));
    assert_eq!(flags.has(b'b'), key.is_some() && binary_key);
    if !binary_key {
        assert!(key.is_none_or(|key| key == meta.key.bytes()));
    }
}
