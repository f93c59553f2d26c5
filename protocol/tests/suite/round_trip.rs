//! Tests that each side parses the value that the other side wrote. Also tests that parsing arbitrary bytes,
//! whole lines and their prefixes never panics, never stalls, and never consumes more bytes than there are.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::command::{Arithmetic, Command, Get, MetaArithmetic, MetaSet, Store, StoreVerb};
use protocol::counter::Direction;
use protocol::reply::{self, ItemFacts, MetaOutcome, Reply};
use protocol::response::{self, ErrorKind, Response};
use protocol::{Key, Limits, MetaKey, Parse, parse, refusal, request};
use units::limits::{GET_LINE_BYTES_MAX, LINE_BYTES_MAX};

const VERBS: [StoreVerb; 6] = [
    StoreVerb::Set,
    StoreVerb::Add,
    StoreVerb::Replace,
    StoreVerb::Append,
    StoreVerb::Prepend,
    StoreVerb::Cas,
];

fn key_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("ends a key", |byte| !b" \r\n\0".contains(byte));
    vec(byte, 1..=250)
}

fn command(line: &[u8]) -> Command<'_> {
    match parse(line, &Limits::default()) {
        Parse::Command { command, consumed } if consumed == line.len() => command,
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

fn answer(line: &[u8]) -> Response<'_> {
    match response::parse(line) {
        response::Parse::Complete { response, consumed } if consumed == line.len() => response,
        other => panic!("{}: {other:?}", line.escape_ascii()),
    }
}

/// Asserts that every prefix of a line is incomplete, and that bytes behind the line do not change
/// it.
fn assert_prefixes_are_incomplete(line: &[u8]) {
    for end in 0..line.len() {
        assert_eq!(parse(&line[..end], &Limits::default()), Parse::Incomplete);
        assert_eq!(response::parse(&line[..end]), response::Parse::Incomplete);
    }
    let followed = [line, b"get \r\n\x80"].concat();
    assert_eq!(parse(&followed, &Limits::default()), parse(line, &Limits::default()));
    assert_eq!(response::parse(&followed), response::parse(line));
}

/// Parses one command from arbitrary bytes and returns the number of bytes consumed. It returns
/// none if the parser wants more bytes or the connection ends here.
fn step(input: &[u8], line_bytes_max: usize) -> Option<usize> {
    match parse(input, &Limits::default()) {
        Parse::Incomplete => {
            assert!(input.len() <= line_bytes_max && !input.contains(&b'\n'));
            None
        }
        Parse::Command { command, consumed } => {
            if let Command::Get(get) = &command {
                assert!(get.keys.into_iter().all(|key| (1..=250).contains(&key.len())));
            }
            Some(consumed)
        }
        Parse::Refused { refusal, consumed } => {
            assert!(refusal.reply.ends_with(b"\r\n") || refusal.close);
            assert!(!refusal.close || consumed == input.len());
            Some(consumed)
        }
    }
}

fn assert_survives(mut input: &[u8]) {
    while let Some(consumed) = step(input, GET_LINE_BYTES_MAX) {
        assert!(consumed > 0 && consumed <= input.len());
        input = &input[consumed..];
    }
}

fn assert_client_survives(mut input: &[u8]) {
    while let response::Parse::Complete { response, consumed } = response::parse(input) {
        assert!(consumed > 0 && consumed <= input.len());
        let _ = response.body_bytes();
        input = &input[consumed..];
    }
}

proptest! {
    #[test]
    fn storage_commands_round_trip(
        key in key_bytes(), verb in 0..6usize, client_flags: u32, exptime_s: i32,
        value_bytes in 0..1_000_000usize, cas: u64, noreply: bool,
    ) {
        let verb = VERBS[verb];
        let cas = if verb == StoreVerb::Cas { cas } else { 0 };
        let key = Key::new(&key).expect("a key");
        let store = Store { verb, key, client_flags, exptime_s, value_bytes, cas, noreply };
        let mut line = Vec::new();
        request::store(&mut line, &store);
        prop_assert_eq!(command(&line), Command::Store(store));
        prop_assert_eq!(command(&line).body_bytes(), Some(value_bytes + 2));
        assert_prefixes_are_incomplete(&line);
    }

    #[test]
    fn gets_round_trip(
        keys in vec(key_bytes(), 1..40), with_cas: bool, exptime_s in any::<Option<i32>>(),
    ) {
        let keys: Vec<Key> = keys.iter().map(|key| Key::new(key).expect("a key")).collect();
        let mut line = Vec::new();
        match exptime_s {
            None => request::get(&mut line, keys.iter().copied(), with_cas),
            Some(exptime_s) => {
                request::get_and_touch(&mut line, exptime_s, keys.iter().copied(), with_cas);
            }
        }
        let Command::Get(get) = command(&line) else { panic!("{:?}", command(&line)) };
        prop_assert_eq!(get.keys.collect::<Vec<_>>(), keys);
        prop_assert_eq!((get.with_cas, get.touch_exptime_s), (with_cas, exptime_s));
    }

    #[test]
    fn commands_with_a_key_round_trip(
        key in key_bytes(), delta: u64, exptime_s: i32, noreply: bool,
    ) {
        let key = Key::new(&key).expect("a key");
        for direction in [Direction::Increment, Direction::Decrement] {
            let arithmetic = Arithmetic { direction, key, delta, noreply };
            let mut line = Vec::new();
            request::arithmetic(&mut line, &arithmetic);
            prop_assert_eq!(command(&line), Command::Arithmetic(arithmetic));
        }
        let mut line = Vec::new();
        request::touch(&mut line, key, exptime_s, noreply);
        prop_assert_eq!(command(&line), Command::Touch { key, exptime_s, noreply });
        line.clear();
        request::delete(&mut line, key, noreply);
        prop_assert_eq!(command(&line), Command::Delete { key, noreply });
        line.clear();
        request::flush_all(&mut line, exptime_s, noreply);
        prop_assert_eq!(command(&line), Command::FlushAll { delay_s: exptime_s, noreply });
        line.clear();
        request::verbosity(&mut line, 1, noreply);
        prop_assert_eq!(command(&line), Command::Verbosity { level: 1, noreply });
    }

    #[test]
    fn meta_commands_round_trip(
        key in vec(any::<u8>(), 1..=186), client_flags: u32, exptime_s: i32, cas: u64, opaque: u64,
        value_bytes in 0..1_000_000usize,
    ) {
        let key = MetaKey::new(&key).expect("a key");
        let mut line = Vec::new();
        let set = request::meta_set(&mut line, &key, value_bytes).flag(b'q');
        let set = set.opaque(opaque).flag(b'k');
        set.number(b'F', client_flags.into()).number(b'C', cas).time(b'T', exptime_s)
            .mode(b'A').end();
        let Command::MetaSet(MetaSet { meta, verb, value_bytes: stated }) = command(&line) else {
            panic!("{}", line.escape_ascii());
        };
        prop_assert_eq!((verb, stated), (StoreVerb::Append, value_bytes));
        prop_assert_eq!(&meta.key, &key);
        prop_assert_eq!((meta.flags.client_flags, meta.flags.compare), (client_flags, Some(cas)));
        prop_assert_eq!((meta.flags.exptime_s, meta.flags.mode), (Some(exptime_s), Some(b'A')));
        prop_assert!(meta.flags.is_quiet() && meta.flags.has(b'k') && !meta.flags.has(b'v'));
        prop_assert_eq!(meta.flags.iter().number(b'O'), Some(opaque));
        let letters: Vec<u8> = meta.flags.iter().map(|(letter, _)| letter).collect();
        let expected: &[u8] = if key.is_binary() { b"bqOkFCTM" } else { b"qOkFCTM" };
        prop_assert_eq!(&letters[..], expected);
        assert_prefixes_are_incomplete(&line);

        line.clear();
        let flags = request::meta_arithmetic(&mut line, &key).number(b'D', cas);
        flags.number(b'J', opaque).time(b'N', exptime_s).mode(b'D').flag(b'v').end();
        let Command::MetaArithmetic(MetaArithmetic { meta, direction }) = command(&line) else {
            panic!("{}", line.escape_ascii());
        };
        prop_assert_eq!(direction, Direction::Decrement);
        prop_assert_eq!((meta.flags.delta, meta.flags.initial), (cas, opaque));
        prop_assert_eq!(meta.flags.vivify_exptime_s, Some(exptime_s));
    }

    #[test]
    fn replies_round_trip(
        key in key_bytes(), client_flags: u32, value_bytes in 0..u32::MAX as usize, cas: u64,
        ttl_s in any::<Option<u32>>(), idle_s: u32, fetched: bool, won: bool,
    ) {
        let mut line = Vec::new();
        for cas in [None, Some(cas)] {
            line.clear();
            reply::value_header(&mut line, &key, client_flags, value_bytes, cas);
            let value_bytes = value_bytes as u64;
            let expected = Response::Value { key: &key, client_flags, value_bytes, cas };
            prop_assert_eq!(answer(&line), expected);
            assert_prefixes_are_incomplete(&line);
        }
        line.clear();
        reply::number(&mut line, cas);
        prop_assert_eq!(answer(&line), Response::Number(cas));

        let facts = ItemFacts {
            value_bytes, cas, client_flags, ttl_s, idle_s, fetched, won, ..ItemFacts::default()
        };
        let asked = [b"mg ", &key[..], b" v t c O7 f l h s k\r\n"].concat();
        let Command::MetaGet(meta) = command(&asked) else { panic!() };
        line.clear();
        reply::meta_hit(&mut line, &meta, &facts);
        let Response::MetaValue { value_bytes: stated, flags } = answer(&line) else { panic!() };
        prop_assert_eq!(stated, value_bytes as u64);
        prop_assert_eq!(flags.number(b'c'), Some(cas));
        prop_assert_eq!(flags.number(b'f'), Some(client_flags.into()));
        prop_assert_eq!(flags.number(b't'), ttl_s.map(u64::from));
        prop_assert_eq!(flags.number(b'l'), Some(idle_s.into()));
        prop_assert_eq!(flags.number(b'h'), Some(fetched.into()));
        prop_assert_eq!((flags.argument(b'k'), flags.number(b'O')), (Some(&key[..]), Some(7)));
        prop_assert_eq!(flags.has(b'W'), won);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_never_stall(input in vec(any::<u8>(), 0..6000)) {
        assert_survives(&input);
        assert_client_survives(&input);
    }

    #[test]
    fn arbitrary_lines_of_known_words_never_panic(
        input in "(get|set|mg|ms|ma|cas|VALUE|VA| |-|\0|\r|\n|\r\n|[a-zA-Z]|[0-9]{1,20}){0,60}",
    ) {
        assert_survives(input.as_bytes());
        assert_client_survives(input.as_bytes());
    }
}

#[test]
fn fixed_lines_round_trip() {
    let replies = [
        (Reply::Stored, Response::Stored),
        (Reply::NotStored, Response::NotStored),
        (Reply::Exists, Response::Exists),
        (Reply::NotFound, Response::NotFound),
        (Reply::Deleted, Response::Deleted),
        (Reply::Touched, Response::Touched),
        (Reply::Ok, Response::Ok),
        (Reply::End, Response::End),
        (Reply::Reset, Response::Reset),
        (Reply::MetaNoop, Response::MetaNoop),
    ];
    for (reply, response) in replies {
        assert_eq!(answer(reply.line()), response);
    }
    let errors = [
        (refusal::ERROR, ErrorKind::Unknown, ""),
        (refusal::BAD_DATA_CHUNK, ErrorKind::Client, "bad data chunk"),
        (refusal::OUT_OF_MEMORY, ErrorKind::Server, "out of memory storing object"),
    ];
    for (line, kind, message) in errors {
        assert_eq!(answer(line), Response::Error { kind, message: message.as_bytes() });
    }
    assert!(matches!(
        answer(b"NS c0 O1\r\n"),
        Response::Meta { outcome: MetaOutcome::NotStored, flags } if flags.number(b'O') == Some(1)
    ));
    assert!(matches!(answer(b"EN kfoo\r\n"), Response::MetaMiss { flags } if flags.has(b'k')));
}

#[test]
fn stats_and_version_round_trip() {
    let mut line = Vec::new();
    reply::stat(&mut line, "version", "1.6.18 of Debian");
    let (name, value) = (&b"version"[..], &b"1.6.18 of Debian"[..]);
    assert_eq!(answer(&line), Response::Stat { name, value });
    line.clear();
    reply::stat(&mut line, "empty", "");
    assert_eq!(answer(&line), Response::Stat { name: b"empty", value: b"" });
    line.clear();
    reply::version(&mut line, "1.6.18");
    assert_eq!(answer(&line), Response::Version(b"1.6.18"));
    line.clear();
    request::stats(&mut line, "items\r\nflush_all");
    assert_eq!(line, b"stats itemsflush_all\r\n");
    for (line, expected) in [
        (request::VERSION, Command::Version),
        (request::QUIT, Command::Quit),
        (request::META_NOOP, Command::MetaNoop),
    ] {
        assert_eq!(command(line), expected);
    }
}

#[test]
fn malformed_responses_are_said_to_be_malformed() {
    for line in [
        &b"\r\n"[..],
        b"STORED\n",
        b"stored\r\n",
        b"VALUE\r\n",
        b"VALUE k 1\r\n",
        b"VALUE k 1 x\r\n",
        b"VALUE k 1 -1\r\n",
        b"VALUE k 4294967296 1\r\n",
        b"VALUE k 1 1 1 1\r\n",
        b"VA\r\n",
        b"VA x\r\n",
        b"12x\r\n",
        b"18446744073709551616\r\n",
        b"END END\r\n",
        b"STAT\r\n",
        b"\x81\0\0\n",
    ] {
        assert!(matches!(response::parse(line), response::Parse::Malformed(_)), "{line:?}");
    }
    let endless = [b'x'; response::RESPONSE_LINE_BYTES_MAX];
    assert!(matches!(response::parse(&endless), response::Parse::Malformed(_)));
    assert_eq!(response::parse(&endless[1..]), response::Parse::Incomplete);
}

#[test]
fn zero_length_values_have_a_body_of_two_bytes() {
    assert_eq!(command(b"set k 0 0 0\r\n").body_bytes(), Some(2));
    assert_eq!(command(b"ms k 0\r\n").body_bytes(), Some(2));
    assert_eq!(answer(b"VALUE k 0 0\r\n").body_bytes(), Some(2));
    assert_eq!(answer(b"VA 0\r\n").body_bytes(), Some(2));
    assert_eq!(answer(b"VA 18446744073709551615\r\n").body_bytes(), Some(u64::MAX));
}

#[test]
fn spaces_in_a_large_get_are_neither_keys_nor_overread() {
    let spaces = " ".repeat(300);
    for keys in [1, 22, 23, 24, 1000] {
        let line = format!("get{}{spaces}\r\n", format!("{spaces}k").repeat(keys));
        let Command::Get(Get { keys: parsed, .. }) = command(line.as_bytes()) else { panic!() };
        assert_eq!(parsed.count(), keys);
    }
    assert_eq!(command(b"gat 0   \r\n"), command(b"gat 0\r\n"));
}

#[test]
fn only_a_get_may_go_on_without_a_newline() {
    let endless = |start: &str, len: usize| {
        let mut line = start.as_bytes().to_vec();
        line.resize(len, b'k');
        parse(&line, &Limits::default()) == Parse::Incomplete
    };
    for start in ["set ", "", "gat ", "get", &format!("{:101}get ", "")] {
        assert!(endless(start, LINE_BYTES_MAX), "{start:?}");
        assert!(!endless(start, LINE_BYTES_MAX + 1), "{start:?}");
    }
    for start in ["get ", "gets ", "   get "] {
        assert!(endless(start, GET_LINE_BYTES_MAX), "{start:?}");
        assert!(!endless(start, GET_LINE_BYTES_MAX + 1), "{start:?}");
    }
}
