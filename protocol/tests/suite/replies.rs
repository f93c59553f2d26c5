//! Tests that Rebate's replies are those of memcached. The same commands go to the real memcached,
//! and the facts about items are read back from it. Counters are tested too.

use crate::memcached::Memcached;
use protocol::command::Command;
use protocol::counter::{self, Direction};
use protocol::reply::{self, ItemFacts, MetaOutcome, Reply};
use protocol::response::{self, Response};
use protocol::{Limits, Meta, Parse, parse};

fn meta_of(line: &[u8]) -> Meta<'_> {
    match parse(line, &Limits::default()) {
        Parse::Command { command, .. } => match command {
            Command::MetaGet(meta) | Command::MetaDelete(meta) => meta,
            Command::MetaSet(set) => set.meta,
            Command::MetaArithmetic(arithmetic) => arithmetic.meta,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Asserts that `write` produces the answer that memcached gives to `line`.
fn assert_same(memcached: &mut Memcached, line: &[u8], write: impl Fn(&mut Vec<u8>, &Meta<'_>)) {
    let (answer, _) = memcached.ask(line);
    let mut ours = Vec::new();
    write(&mut ours, &meta_of(line));
    let shown = line.escape_ascii().to_string();
    assert_eq!(ours.escape_ascii().to_string(), answer.escape_ascii().to_string(), "{shown}");
}

fn cas_of(memcached: &mut Memcached, key: &str) -> u64 {
    let (answer, _) = memcached.ask(format!("gets {key}\r\n").as_bytes());
    match response::parse(&answer) {
        response::Parse::Complete { response: Response::Value { cas: Some(cas), .. }, .. } => cas,
        other => panic!("{other:?}"),
    }
}

#[test]
fn values_and_their_headers_are_memcacheds() {
    let Some(mut memcached) = Memcached::start() else { return };
    let stored = memcached.ask(b"set a 5 0 3\r\nabc\r\nset empty 0 0 0\r\n\r\n").0;
    assert_eq!(stored, [Reply::Stored.line(), Reply::Stored.line()].concat());
    let cas = cas_of(&mut memcached, "a");
    let mut ours = Vec::new();
    reply::value_header(&mut ours, b"a", 5, 3, Some(cas));
    ours.extend_from_slice(b"abc\r\n");
    ours.extend_from_slice(Reply::End.line());
    assert_eq!(memcached.ask(b"gets  a \r\n").0, ours);

    ours.clear();
    reply::value_header(&mut ours, b"empty", 0, 0, None);
    ours.extend_from_slice(b"\r\n");
    ours.extend_from_slice(Reply::End.line());
    assert_eq!(memcached.ask(b"get nothing empty\r\n").0, ours);
}

#[test]
fn meta_gets_answer_flags_in_the_clients_order() {
    let Some(mut memcached) = Memcached::start() else { return };
    memcached.wait_for_tick();
    memcached.ask(b"ms a 3 F7 T0\r\nabc\r\nms YiBj 1 b T0\r\n1\r\n");
    let cas = cas_of(&mut memcached, "a");
    let facts =
        ItemFacts { value_bytes: 3, cas, client_flags: 7, fetched: true, ..ItemFacts::default() };
    assert_same(&mut memcached, b"mg a s c f t l h k O12 q u\r\n", |out, meta| {
        reply::meta_hit(out, meta, &facts);
    });
    assert_same(&mut memcached, b"mg a Oz k h v t\r\n", |out, meta| {
        reply::meta_hit(out, meta, &facts);
        out.extend_from_slice(b"abc\r\n");
    });
    let facts = ItemFacts { binary_key: true, ..facts };
    assert_same(&mut memcached, b"mg Y%iBj k b O1\r\n", |out, meta| {
        assert_eq!(meta.key.bytes(), b"b c");
        reply::meta_hit(out, meta, &facts);
    });
    for miss in [&b"mg no\r\n"[..], b"mg no s k c Ox v\r\n", b"mg no q k\r\n", b"mg bm8= k b\r\n"] {
        assert_same(&mut memcached, miss, reply::meta_miss);
    }
}

#[test]
fn one_client_wins_a_stale_item() {
    let Some(mut memcached) = Memcached::start() else { return };
    memcached.wait_for_tick();
    memcached.ask(b"ms a 1 T0\r\n1\r\nmd a I\r\n");
    let won = ItemFacts { value_bytes: 1, won: true, stale: true, ..ItemFacts::default() };
    let lost = ItemFacts { won: false, already_won: true, ..won };
    assert_same(&mut memcached, b"mg a s\r\n", |out, meta| reply::meta_hit(out, meta, &won));
    assert_same(&mut memcached, b"mg a s\r\n", |out, meta| reply::meta_hit(out, meta, &lost));
    let created = ItemFacts { won: true, ttl_s: Some(30), ..ItemFacts::default() };
    assert_same(&mut memcached, b"mg n N30 t\r\n", |out, meta| {
        reply::meta_hit(out, meta, &created)
    });
}

#[test]
fn meta_changes_answer_and_keep_quiet_as_memcached() {
    let Some(mut memcached) = Memcached::start() else { return };
    memcached.wait_for_tick();
    let outcome = |result| {
        move |out: &mut Vec<u8>, meta: &Meta<'_>| {
            reply::meta_outcome(out, meta, result);
        }
    };
    let set = |result| {
        move |out: &mut Vec<u8>, meta: &Meta<'_>| {
            reply::meta_set(out, meta, result, 0, Some(3));
        }
    };
    let m = &mut memcached;
    assert_same(m, b"ms a 1 q c\r\n1\r\n", set(MetaOutcome::Done));
    assert_same(m, b"ms a 1 k O3\r\n1\r\n", set(MetaOutcome::Done));
    assert_same(m, b"ms a 1 ME q c k\r\n1\r\n", set(MetaOutcome::NotStored));
    assert_same(m, b"ms a 1 C9999 c\r\n1\r\n", set(MetaOutcome::Exists));
    assert_same(m, b"ms no 1 C9999 k c\r\n1\r\n", set(MetaOutcome::NotFound));
    assert_same(m, b"ma no q k O1 c\r\n", outcome(MetaOutcome::NotFound));
    assert_same(m, b"ma a C9999 k O1\r\n", outcome(MetaOutcome::Exists));
    assert_same(m, b"md a C9999 q k\r\n", outcome(MetaOutcome::Exists));
    assert_same(m, b"md a q k\r\n", outcome(MetaOutcome::Done));
    assert_same(m, b"md a q k O1\r\n", outcome(MetaOutcome::NotFound));
    let facts = ItemFacts { ttl_s: Some(60), ..ItemFacts::default() };
    let number = |value, created| {
        move |out: &mut Vec<u8>, meta: &Meta<'_>| {
            reply::meta_number(out, meta, value, created, &facts);
        }
    };
    assert_same(m, b"ma n N60 J5 q v t\r\n", number(5, true));
    assert_same(m, b"ma n q v\r\n", number(6, false));
    assert_same(m, b"ma n k t O1 D10 s\r\n", number(16, false));
    assert_same(m, b"ma n v t MD\r\n", number(15, false));
}

#[test]
fn meta_debug_is_memcacheds_line() {
    let Some(mut memcached) = Memcached::start() else { return };
    memcached.wait_for_tick();
    memcached.ask(b"set a 0 100 2\r\n12\r\nset b 0 0 2\r\n12\r\n");
    for (key, ttl_s) in [("a", Some(100)), ("b", None)] {
        let facts = ItemFacts { ttl_s, cas: cas_of(&mut memcached, key), ..ItemFacts::default() };
        let (answer, _) = memcached.ask(format!("me {key}\r\n").as_bytes());
        let facts = ItemFacts { fetched: true, ..facts };
        let mut ours = Vec::new();
        let meta_key = protocol::MetaKey::new(key.as_bytes()).expect("a key");
        reply::meta_debug(&mut ours, &meta_key, &facts, 1, 48 + 8 + 2 + 2 + 2);
        assert_eq!(ours.escape_ascii().to_string(), answer.escape_ascii().to_string());
    }
}

#[test]
fn counters_step_as_in_memcached() {
    let Some(mut memcached) = Memcached::start() else { return };
    let stored: &[&[u8]] = &[
        b"0",
        b"9",
        b"10",
        b"99",
        b"100",
        b"007",
        b" 5",
        b"+5",
        b"-0",
        b"-5",
        b"5 6",
        b"5\t",
        b"5x",
        b"x",
        b"",
        b"5\0z",
        b"5-",
        b"5 -",
        b"18446744073709551615",
        b"18446744073709551615 -",
        b"18446744073709551616",
        b"-18446744073709551615",
        b"1000000000000000000000000000000",
        b"12 and more words",
    ];
    let deltas = [0, 1, 7, 95, 1 << 40, u64::MAX];
    for &stored in stored {
        for (direction, name) in [(Direction::Increment, "incr"), (Direction::Decrement, "decr")] {
            for delta in deltas {
                let mut line = format!("set n 0 0 {}\r\n", stored.len()).into_bytes();
                line.extend_from_slice(stored);
                line.extend_from_slice(b"\r\n");
                memcached.ask(&line);
                let (answer, _) = memcached.ask(format!("{name} n {delta}\r\n").as_bytes());
                let (left, _) = memcached.ask(b"get n\r\n");

                let (mut ours, mut value) = (Vec::new(), Vec::new());
                match counter::apply(stored, direction, delta, &mut value) {
                    Ok(number) => reply::number(&mut ours, number),
                    Err(counter::NonNumeric) => {
                        ours.extend_from_slice(protocol::refusal::NON_NUMERIC);
                        value = stored.to_vec();
                    }
                }
                let shown = format!("{name} {delta} on {}", stored.escape_ascii());
                assert_eq!(ours, answer, "{shown}");
                let mut item = Vec::new();
                reply::value_header(&mut item, b"n", 0, value.len(), None);
                item.extend_from_slice(&value);
                item.extend_from_slice(b"\r\nEND\r\n");
                assert_eq!(
                    item.escape_ascii().to_string(),
                    left.escape_ascii().to_string(),
                    "{shown}"
                );
            }
        }
    }
}
