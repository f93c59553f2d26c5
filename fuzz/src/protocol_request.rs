//! Walks over arbitrary bytes as a session walks over a client's stream. Every step must make progress, accepted
//! commands must be within the limits, refusals must be answers that a client can read, and a command that
//! `protocol::request` composes again must be the same command.

use crate::{ItemBytesMax, step};
use protocol::command::StoreVerb;
use protocol::response::{self, Response};
use protocol::{Command, Key, Limits, Meta, MetaKey, Parse, Refusal, parse, request};
use units::limits::{GET_LINE_BYTES_MAX, ITEM_OVERHEAD_BYTES, KEY_BYTES_MAX, LINE_BYTES_MAX};

pub(super) fn fuzz(input: (ItemBytesMax, &[u8])) {
    let limits = Limits::from(input.0);
    let mut stream = input.1;
    while let Some(step) = step(stream, &limits) {
        assert!((1..=stream.len()).contains(&step.consumed), "no progress, or beyond the input");
        match &step.parsed {
            Parse::Command { command, .. } => {
                assert!(stream[..step.consumed].ends_with(b"\n"));
                check_limits(command, &limits);
                check_round_trip(command, &limits);
            }
            Parse::Refused { refusal, consumed } => {
                assert!(!refusal.close || *consumed == stream.len());
                check_refusal(refusal);
            }
            Parse::Incomplete => unreachable!("a step is never incomplete"),
        }
        match step.next(stream.len()) {
            Some(next) => stream = &stream[next..],
            None => return,
        }
    }
    check_incomplete(stream);
}

/// Checks that an incomplete line has no line end and is within the bound of its kind.
fn check_incomplete(rest: &[u8]) {
    assert!(!rest.contains(&b'\n'), "a whole line is never incomplete");
    let trimmed = rest.trim_ascii_start();
    let is_get = trimmed.starts_with(b"get ") || trimmed.starts_with(b"gets ");
    let line_bytes_max = if is_get { GET_LINE_BYTES_MAX } else { LINE_BYTES_MAX };
    assert!(rest.len() <= line_bytes_max, "{} bytes are kept without a line", rest.len());
}

fn check_refusal(refusal: &Refusal<'_>) {
    if refusal.reply.is_empty() {
        assert!(refusal.close, "a refusal without words closes");
    } else {
        let answer = response::parse(refusal.reply);
        let response::Parse::Complete { response: Response::Error { .. }, consumed } = answer
        else {
            panic!("a client reads {answer:?}");
        };
        assert_eq!(consumed, refusal.reply.len());
    }
    assert!(refusal.swallow_bytes <= i32::MAX as u64 && !(refusal.close && refusal.silent));
    if let Some(key) = &refusal.unlink {
        assert!((1..=KEY_BYTES_MAX).contains(&key.len()));
    }
}

/// Checks that keys are 1 to 250 bytes that a line can hold, and that a value with its key is within `-I`. Control
/// characters other than NUL and LF are legal in a key, as in memcached.
fn check_limits(command: &Command<'_>, limits: &Limits) {
    let fits = |key: &[u8], client_flags: u32, value_bytes: usize| {
        let flags_bytes = if client_flags == 0 { 0 } else { 4 };
        let item_bytes = ITEM_OVERHEAD_BYTES + key.len() + flags_bytes + value_bytes;
        assert!(item_bytes <= limits.item_bytes_max.as_usize(), "{item_bytes} bytes accepted");
        assert_eq!(command.body_bytes(), Some(value_bytes + 2));
    };
    match command {
        Command::Get(get) => get.keys.for_each(check_key),
        Command::Store(store) => {
            check_key(store.key);
            assert!(store.verb == StoreVerb::Cas || store.cas == 0);
            fits(&store.key, store.client_flags, store.value_bytes);
        }
        Command::Delete { key, .. } | Command::Touch { key, .. } => check_key(*key),
        Command::Arithmetic(arithmetic) => check_key(arithmetic.key),
        Command::MetaGet(meta) | Command::MetaDelete(meta) => check_meta_key(&meta.key),
        Command::MetaArithmetic(arithmetic) => check_meta_key(&arithmetic.meta.key),
        Command::MetaSet(set) => {
            check_meta_key(&set.meta.key);
            fits(set.meta.key.bytes(), set.meta.flags.client_flags, set.value_bytes);
        }
        Command::MetaDebug { key } => check_meta_key(key),
        _ => assert_eq!(command.body_bytes(), None),
    }
}

fn check_key(key: Key<'_>) {
    assert!((1..=KEY_BYTES_MAX).contains(&key.len()), "a key of {} bytes", key.len());
    assert!(!key.iter().any(|byte| b" \n\0".contains(byte)), "{}", key.escape_ascii());
}

fn check_meta_key(key: &MetaKey<'_>) {
    let bytes = key.bytes();
    if key.is_binary() {
        let max = protocol::key::BINARY_KEY_BYTES_MAX;
        assert!((1..=max).contains(&bytes.len()), "a key of {} bytes", bytes.len());
    } else {
        assert!((1..=KEY_BYTES_MAX).contains(&bytes.len()), "a key of {} bytes", bytes.len());
        assert!(!bytes.iter().any(|byte| b" \n\0".contains(byte)), "{}", bytes.escape_ascii());
    }
}

/// Composes the command, parses the result, and compares.
fn check_round_trip(command: &Command<'_>, limits: &Limits) {
    let mut line = Vec::new();
    if !compose(command, &mut line) {
        return;
    }
    let again = match parse(&line, limits) {
        Parse::Command { command, consumed } if consumed == line.len() => command,
        other => panic!("{command:?} became {}: {other:?}", line.escape_ascii()),
    };
    match (command, &again) {
        (Command::MetaGet(meta), Command::MetaGet(other))
        | (Command::MetaDelete(meta), Command::MetaDelete(other)) => check_same_meta(meta, other),
        (Command::MetaSet(set), Command::MetaSet(other)) => {
            check_same_meta(&set.meta, &other.meta);
            assert_eq!((set.verb, set.value_bytes), (other.verb, other.value_bytes));
        }
        (Command::MetaArithmetic(arithmetic), Command::MetaArithmetic(other)) => {
            check_same_meta(&arithmetic.meta, &other.meta);
            assert_eq!(arithmetic.direction, other.direction);
        }
        _ => assert_eq!(command, &again, "{}", line.escape_ascii()),
    }
}

/// Writes the command. Returns false for a command that `protocol::request` cannot write.
fn compose(command: &Command<'_>, out: &mut Vec<u8>) -> bool {
    match command {
        Command::Get(get) => match get.touch_exptime_s {
            None => request::get(out, get.keys, get.with_cas),
            Some(exptime_s) => request::get_and_touch(out, exptime_s, get.keys, get.with_cas),
        },
        Command::Store(store) => request::store(out, store),
        Command::Delete { key, noreply } => request::delete(out, *key, *noreply),
        Command::Arithmetic(arithmetic) => request::arithmetic(out, arithmetic),
        Command::Touch { key, exptime_s, noreply } => {
            request::touch(out, *key, *exptime_s, *noreply);
        }
        Command::FlushAll { delay_s, noreply } => request::flush_all(out, *delay_s, *noreply),
        Command::Verbosity { level, noreply } => request::verbosity(out, *level, *noreply),
        Command::Version => out.extend_from_slice(request::VERSION),
        Command::Quit => out.extend_from_slice(request::QUIT),
        Command::MetaNoop => out.extend_from_slice(request::META_NOOP),
        Command::Stats { arguments } => return compose_stats(*arguments, out),
        Command::Admin(_) => return false,
        Command::MetaGet(meta) => compose_flags(meta, request::meta_get(out, &meta.key)),
        Command::MetaDelete(meta) => compose_flags(meta, request::meta_delete(out, &meta.key)),
        Command::MetaArithmetic(arithmetic) => {
            let meta = &arithmetic.meta;
            compose_flags(meta, request::meta_arithmetic(out, &meta.key));
        }
        Command::MetaSet(set) => {
            let meta = &set.meta;
            compose_flags(meta, request::meta_set(out, &meta.key, set.value_bytes));
        }
        Command::MetaDebug { key } => request::meta_debug(out, key),
    }
    true
}

fn compose_stats(arguments: protocol::Tokens<'_>, out: &mut Vec<u8>) -> bool {
    let words: Vec<&[u8]> = arguments.collect();
    let text = String::from_utf8(words.join(&b' '));
    // The composer leaves out a CR on purpose, so such a line does not round-trip.
    let Some(text) = text.ok().filter(|text| !text.contains('\r')) else { return false };
    request::stats(out, &text);
    true
}

/// Writes all flags in the client's order, with their parsed arguments. An opaque is written only if it is a number.
/// The composer writes `b` itself.
fn compose_flags(meta: &Meta<'_>, mut line: request::MetaLine<'_>) {
    let flags = &meta.flags;
    for (letter, _) in flags.iter() {
        line = match letter {
            b'b' => line,
            b'T' => line.time(letter, flags.exptime_s.expect("read")),
            b'N' => line.time(letter, flags.vivify_exptime_s.expect("read")),
            b'R' => line.time(letter, flags.recache_s.expect("read")),
            b'F' => line.number(letter, flags.client_flags.into()),
            b'C' => line.number(letter, flags.compare.expect("read")),
            b'E' => line.number(letter, flags.given_cas.expect("read")),
            b'D' => line.number(letter, flags.delta),
            b'J' => line.number(letter, flags.initial),
            b'M' => line.mode(flags.mode.expect("read")),
            b'O' => match flags.iter().number(b'O') {
                Some(opaque) => line.opaque(opaque),
                None => line.flag(letter),
            },
            _ => line.flag(letter),
        };
    }
    line.end();
}

fn check_same_meta(meta: &Meta<'_>, other: &Meta<'_>) {
    assert_eq!(meta.key, other.key);
    let (flags, others) = (&meta.flags, &other.flags);
    for letter in 0..=u8::MAX {
        assert_eq!(flags.has(letter), others.has(letter), "flag {letter}");
    }
    let times = |flags: &protocol::MetaFlags<'_>| {
        (flags.exptime_s, flags.vivify_exptime_s, flags.recache_s)
    };
    assert_eq!(times(flags), times(others));
    assert_eq!((flags.client_flags, flags.compare), (others.client_flags, others.compare));
    assert_eq!(flags.given_cas, others.given_cas);
    assert_eq!((flags.delta, flags.initial), (others.delta, others.initial));
    assert_eq!(flags.mode, others.mode);
    assert_eq!(flags.iter().number(b'O'), others.iter().number(b'O'));
}
