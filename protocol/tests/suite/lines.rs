//! Tests which lines are refused, with which answer, and where the next line begins. First comes a
//! table that holds for Rebate and for the real memcached. Then come thousands of lines made of
//! memcached's own vocabulary, on which both must agree.

use crate::memcached::Memcached;
use protocol::command::AdminVerb;
use protocol::{Command, Limits, Parse, Refusal, parse};
use units::Prng;

/// A refused line, its answer, and the number of bytes of its body that are discarded too.
const REFUSED: &[(&str, &str, u64)] = &[
    ("", "ERROR", 0),
    ("\r", "ERROR", 0),
    ("g", "ERROR", 0),
    ("get", "ERROR", 0),
    ("GET a", "ERROR", 0),
    ("bget", "ERROR", 0),
    ("gat", "ERROR", 0),
    ("gat x a", "CLIENT_ERROR invalid exptime argument", 0),
    ("set a 0 0", "ERROR", 0),
    ("set a 0 0 1 noreply extra", "ERROR", 0),
    ("set a x 0 1", "CLIENT_ERROR bad command line format", 0),
    ("set a 0 x 1", "CLIENT_ERROR bad command line format", 0),
    ("set a 0 0 -1", "CLIENT_ERROR bad command line format", 0),
    ("set a 0 0 2147483646", "CLIENT_ERROR bad command line format", 0),
    ("set a 0 0 2000000", "SERVER_ERROR object too large for cache", 2_000_002),
    ("cas a 0 0 1", "ERROR", 0),
    ("cas a 0 0 1 x", "CLIENT_ERROR bad command line format", 0),
    ("incr a", "ERROR", 0),
    ("incr a x", "CLIENT_ERROR invalid numeric delta argument", 0),
    ("decr a -1", "CLIENT_ERROR invalid numeric delta argument", 0),
    ("incr a 18446744073709551616", "CLIENT_ERROR invalid numeric delta argument", 0),
    ("touch a", "ERROR", 0),
    ("touch a x", "CLIENT_ERROR invalid exptime argument", 0),
    ("delete", "ERROR", 0),
    ("delete a b c d", "ERROR", 0),
    ("delete a 5", "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]", 0),
    ("verbosity", "ERROR", 0),
    ("verbosity x", "CLIENT_ERROR bad command line format", 0),
    ("flush_all x", "CLIENT_ERROR invalid exptime argument", 0),
    ("flush_all 1 2 3", "ERROR", 0),
    ("cache_memlimit", "ERROR", 0),
    ("lru", "ERROR", 0),
    ("extstore", "ERROR", 0),
    ("debugtime 1", "ERROR", 0),
    ("connect a HTTP/1.1", "ERROR", 0),
    ("mz", "ERROR", 0),
    ("mg", "ERROR", 0),
    ("mg a v v", "CLIENT_ERROR duplicate flag", 0),
    ("mg a !", "CLIENT_ERROR invalid flag", 0),
    ("mg a \u{7f}", "CLIENT_ERROR duplicate flag", 0),
    ("mg a Tx", "CLIENT_ERROR bad token in command line format", 0),
    ("mg a Fx", "CLIENT_ERROR bad command line format", 0),
    ("mg a b F", "CLIENT_ERROR error decoding key", 0),
    ("mg a b Tx", "CLIENT_ERROR bad token in command line format", 0),
    ("mg a Jx", "CLIENT_ERROR invalid numeric initial value", 0),
    ("mg a Dx", "CLIENT_ERROR invalid numeric delta value", 0),
    ("mg a M", "CLIENT_ERROR incorrect length for M token", 0),
    ("mg a q O0123456789012345678901234567890123", "CLIENT_ERROR opaque token too long", 0),
    ("mg a 1 2 3 4 5 6 7 8 9 a b c d e f g h i", "CLIENT_ERROR options flags are too long", 0),
    ("md a 1 2 3 4 5 6 7 8 9 a b c d e f g h i", "CLIENT_ERROR options flags too long", 0),
    ("ms", "ERROR", 0),
    ("ms a", "CLIENT_ERROR bad command line format", 0),
    ("ms a S1", "CLIENT_ERROR bad command line format", 0),
    ("ms a 1 S1", "CLIENT_ERROR invalid flag", 3),
    ("ms a 1 Me q", "CLIENT_ERROR invalid mode for ms M token", 3),
    (
        "ms a 1 MZ O0123456789012345678901234567890123",
        "CLIENT_ERROR invalid mode for ms M token",
        3,
    ),
    ("ms a 1 b", "CLIENT_ERROR error decoding key", 3),
    ("ms a 2000000 MA q", "SERVER_ERROR object too large for cache", 2_000_002),
    ("md a z", "CLIENT_ERROR invalid or duplicate flag", 0),
    ("ma a b", "CLIENT_ERROR invalid or duplicate flag", 0),
    ("ma a Mi", "CLIENT_ERROR invalid mode for ma M token", 0),
    ("me", "CLIENT_ERROR bad command line format", 0),
    ("me a b", "CLIENT_ERROR bad command line format", 0),
];

/// The lines that are refused without an answer because of `noreply`.
const REFUSED_SILENTLY: &[&str] = &[
    "set a 0 0 noreply",
    "set a x 0 1 noreply",
    "set a 0 0 2000000 noreply",
    "incr a noreply",
    "touch a x noreply",
    "delete a 5 noreply",
    "verbosity noreply",
    "flush_all x noreply",
];

const LONG_KEY: &str = concat!(
    "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
    "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
    "kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
);

/// The commands of the random lines. [`ARGUMENTS`] are valid, invalid or at a limit.
const NAMES: &[&str] = &[
    "get",
    "gets",
    "gat",
    "gats",
    "bget",
    "set",
    "add",
    "replace",
    "append",
    "prepend",
    "cas",
    "incr",
    "decr",
    "delete",
    "touch",
    "flush_all",
    "verbosity",
    "version",
    "mg",
    "mg",
    "ms",
    "ms",
    "md",
    "ma",
    "me",
    "mn",
    "m",
    "mx",
    "foo",
    "sets",
    "HTTP/",
    "\t",
];
const ARGUMENTS: &[&str] = &[
    "a",
    "b",
    "a",
    "foo",
    "Zm9v",
    "YQ==",
    LONG_KEY,
    "0",
    "1",
    "2",
    "-1",
    "+1",
    "-0",
    "\t1",
    "1\t",
    "4294967297",
    "2147483646",
    "9223372036854775808",
    "-18446744073709551615",
    "1x",
    "noreply",
    "HTTP/1",
    "v",
    "k",
    "q",
    "c",
    "t",
    "s",
    "f",
    "h",
    "l",
    "u",
    "I",
    "T30",
    "T-1",
    "Tx",
    "N0",
    "R9",
    "F7",
    "Fx",
    "C0",
    "C1",
    "MS",
    "ME",
    "MA",
    "MP",
    "MR",
    "MI",
    "MD",
    "M+",
    "MM",
    "Me",
    "J5",
    "D2",
    "Dx",
    "O12",
    "Oz",
    "P",
    "L",
    "z",
    "S1",
    "\u{e9}",
    "O2345678901234567890123456789012",
    "O23456789012345678901234567890123",
];

fn refusal_of(line: &str) -> Refusal<'static> {
    let line: &'static [u8] = Box::leak(format!("{line}\r\n").into_bytes().into_boxed_slice());
    match parse(line, &Limits::default()) {
        Parse::Refused { refusal, consumed } => {
            assert_eq!(consumed, line.len());
            refusal
        }
        other => panic!("{:?}: {other:?}", line.escape_ascii().to_string()),
    }
}

#[test]
fn wrong_lines_get_memcacheds_words() {
    for (line, reply, swallow_bytes) in REFUSED {
        let refusal = refusal_of(line);
        assert_eq!(refusal.reply, format!("{reply}\r\n").as_bytes(), "{line:?}");
        assert_eq!(refusal.swallow_bytes, *swallow_bytes, "{line:?}");
        assert!(!refusal.silent && !refusal.close, "{line:?}");
    }
    for line in REFUSED_SILENTLY {
        assert!(refusal_of(line).silent, "{line:?}");
    }
}

#[test]
fn a_too_large_value_drops_the_item_like_memcached() {
    assert_eq!(refusal_of("set a 0 0 2000000").unlink.as_deref(), Some(&b"a"[..]));
    assert_eq!(refusal_of("ms YQ== 2000000 b MA").unlink.as_deref(), Some(&b"a"[..]));
    assert_eq!(refusal_of("add a 0 0 2000000").unlink, None);
}

#[test]
fn operators_commands_are_left_to_the_server() {
    let admin = |line: &'static [u8]| match parse(line, &Limits::default()) {
        Parse::Command { command: Command::Admin(admin), .. } => {
            (admin.verb, admin.arguments.count(), admin.noreply)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(admin(b"cache_memlimit 64 noreply\r\n"), (AdminVerb::CacheMemlimit, 2, true));
    assert_eq!(admin(b"slabs reassign 1 noreply\r\n"), (AdminVerb::Slabs, 3, false));
    assert_eq!(admin(b"slabs automove 1 noreply\r\n"), (AdminVerb::Slabs, 3, true));
    assert_eq!(admin(b"shutdown noreply\r\n"), (AdminVerb::Shutdown, 1, false));
    assert_eq!(admin(b"watch\r\n"), (AdminVerb::Watch, 0, false));
}

#[test]
fn the_table_of_wrong_lines_holds_for_memcached() {
    let Some(mut memcached) = Memcached::start() else { return };
    for line in REFUSED.iter().map(|(line, ..)| line).chain(REFUSED_SILENTLY) {
        assert_agreement(&mut memcached, line);
    }
    let key = format!("get a {LONG_KEY} a");
    for line in ["GET / HTTP/1.1", &key, "get a\0b c", "gat 10", "delete noreply", "quit now"] {
        assert_agreement(&mut memcached, line);
    }
}

#[test]
fn the_largest_value_is_memcacheds_to_the_byte() {
    let Some(mut memcached) = Memcached::start() else { return };
    for (flags, value_bytes) in [(0, 1_048_516), (0, 1_048_517), (1, 1_048_512), (1, 1_048_513)] {
        assert_agreement(&mut memcached, &format!("set a {flags} 0 {value_bytes}"));
        assert_agreement(&mut memcached, &format!("ms a {value_bytes} F{flags}"));
    }
}

#[test]
fn random_lines_are_accepted_and_refused_as_by_memcached() {
    let Some(mut memcached) = Memcached::start() else { return };
    let mut prng = Prng::new(7);
    for _ in 0..20_000 {
        let mut line = NAMES[prng.below(NAMES.len() as u64) as usize].to_owned();
        for _ in 0..prng.below(8) {
            line.push_str(if prng.below(9) == 0 { "  " } else { " " });
            line.push_str(ARGUMENTS[prng.below(ARGUMENTS.len() as u64) as usize]);
        }
        assert_agreement(&mut memcached, &line);
    }
}

/// Asserts that Rebate and memcached either both accept the line, or both refuse it with the same
/// answer and continue at the same byte.
fn assert_agreement(memcached: &mut Memcached, line: &str) {
    let mut bytes = format!("{line}\r\n").into_bytes();
    let line = bytes.clone();
    let parsed = parse(&line, &Limits::default());
    let shown = line.escape_ascii().to_string();
    match parsed {
        // memcached changes the item before it finds that the opaque is too long. Rebate does not.
        Parse::Refused { refusal, .. } if changes_before_refusing(&line, &refusal) => {}
        Parse::Refused { refusal, .. } => {
            append_body(&mut bytes, refusal.swallow_bytes as usize);
            let (answer, closed) = memcached.ask(&bytes);
            let expected = if refusal.silent { b"" } else { refusal.reply };
            assert_eq!(
                answer.escape_ascii().to_string(),
                expected.escape_ascii().to_string(),
                "{shown}"
            );
            assert_eq!(closed, refusal.close, "{shown}");
        }
        Parse::Command { command, .. } => {
            append_body(&mut bytes, command.body_bytes().unwrap_or(0));
            let (answer, closed) = memcached.ask(&bytes);
            assert!(!says_refused(&answer), "{shown}: {}", answer.escape_ascii());
            assert_eq!(closed, command == Command::Quit, "{shown}");
        }
        Parse::Incomplete => panic!("a whole line is incomplete: {shown}"),
    }
}

fn changes_before_refusing(line: &[u8], refusal: &Refusal<'_>) -> bool {
    line.starts_with(b"ma ") && refusal.reply == b"CLIENT_ERROR opaque token too long\r\n"
}

fn append_body(bytes: &mut Vec<u8>, body_bytes: usize) {
    if let Some(value_bytes) = body_bytes.checked_sub(2) {
        bytes.resize(bytes.len() + value_bytes, b'1');
        bytes.extend_from_slice(b"\r\n");
    }
}

/// Returns whether the answer is an error that only the line can have caused. The error for a value
/// that is not a number is caused by the item.
fn says_refused(answer: &[u8]) -> bool {
    let about_the_item = answer == protocol::refusal::NON_NUMERIC;
    [&b"ERROR"[..], b"CLIENT_ERROR", b"SERVER_ERROR"].iter().any(|error| answer.starts_with(error))
        && !about_the_item
}
