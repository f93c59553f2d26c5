//! The commands of a near client mean what those of text mean: both run on servers of the same kind, step by step, and
//! every answer is compared. Text over a near connection is compared byte for byte.

use std::io::IoSlice;
use std::time::Instant;

use drivers::near::NearClient;
use rebate_client::{Client, Error, Stored, Write as With};

use super::{Service, TIMEOUT, Text};

/// A command, and where it differs what its answer is in text.
enum Step {
    Get(&'static str),
    GetMany(&'static [&'static str]),
    GetAndTouch(&'static str, u32),
    Set(&'static str, &'static str, u32, u32),
    Add(&'static str, &'static str),
    Replace(&'static str, &'static str),
    Append(&'static str, &'static str),
    Prepend(&'static str, &'static str),
    /// A cas with the version that the last get of the key has returned, plus a number.
    Cas(&'static str, &'static str, u64),
    /// A cas with the version 0, which no item has.
    CasZero(&'static str),
    Delete(&'static str),
    Touch(&'static str, u32),
    Increment(&'static str, u64),
    Decrement(&'static str, u64),
}

use Step::{
    Add, Append, Cas, CasZero, Decrement, Delete, Get, GetAndTouch, GetMany, Increment, Prepend,
    Replace, Set, Touch,
};

const STEPS: &[Step] = &[
    Get("a"),
    Set("a", "one", 7, 0),
    Get("a"),
    Set("a", "", 0, 0),
    Get("a"),
    Set("a", "two", u32::MAX, 100),
    Get("a"),
    GetMany(&["a", "missing", "a"]),
    GetMany(&["missing"]),
    Add("a", "no"),
    Add("b", "yes"),
    Get("b"),
    Replace("b", "again"),
    Replace("missing", "no"),
    Get("b"),
    Append("b", "-end"),
    Prepend("b", "start-"),
    Append("missing", "x"),
    Prepend("missing", "x"),
    Get("b"),
    Cas("b", "new", 0),
    Get("b"),
    Cas("b", "late", 1),
    CasZero("b"),
    CasZero("missing"),
    Get("b"),
    Delete("b"),
    Delete("b"),
    Cas("b", "gone", 0),
    Touch("a", 200),
    Touch("missing", 200),
    GetAndTouch("a", 300),
    GetAndTouch("missing", 300),
    Set("n", "10", 0, 0),
    Increment("n", 5),
    Decrement("n", 20),
    Increment("n", u64::MAX),
    Increment("n", 1),
    Increment("missing", 1),
    Decrement("missing", 1),
    Increment("a", 1),
    Get("n"),
    // A date that has passed: the item is never seen.
    Set("old", "x", 0, 2_592_001),
    Get("old"),
    Touch("a", 2_592_001),
    Get("a"),
];

/// Runs a step near. Returns the answer in the words of text.
fn run_near(client: &mut Client, step: &Step, version: &mut u64) -> String {
    let stored = |stored: Result<Stored, Error>| match stored.expect("an answer") {
        Stored::Stored { .. } => "STORED\r\n",
        Stored::NotStored => "NOT_STORED\r\n",
        Stored::Exists => "EXISTS\r\n",
        Stored::NotFound => "NOT_FOUND\r\n",
    };
    let number = |number: Result<Option<u64>, Error>| match number {
        Ok(Some(number)) => format!("{number}\r\n"),
        Ok(None) => "NOT_FOUND\r\n".to_owned(),
        Err(Error::NotANumber) => {
            "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n".to_owned()
        }
        Err(error) => panic!("{error}"),
    };
    let done = |found: Result<bool, Error>, word: &str| match found.expect("an answer") {
        true => format!("{word}\r\n"),
        false => "NOT_FOUND\r\n".to_owned(),
    };
    let with = With::default();
    match *step {
        Get(key) => {
            let item = client.get(key.as_bytes()).expect("an answer");
            *version = item.as_ref().map_or(*version, |item| item.cas);
            items(&[(key, item)])
        }
        GetMany(keys) => {
            let got = client.get_many(keys).expect("answers");
            items(&keys.iter().copied().zip(got).collect::<Vec<_>>())
        }
        GetAndTouch(key, exptime_s) => {
            let item = client.get_and_touch(key.as_bytes(), exptime_s).expect("an answer");
            items(&[(key, item)])
        }
        Set(key, value, client_flags, exptime_s) => {
            let with = With { client_flags, exptime_s };
            client.set(key.as_bytes(), value.as_bytes(), with).expect("stored");
            "STORED\r\n".to_owned()
        }
        Add(key, value) => stored(client.add(key.as_bytes(), value.as_bytes(), with)).to_owned(),
        Replace(key, value) => {
            stored(client.replace(key.as_bytes(), value.as_bytes(), with)).to_owned()
        }
        Append(key, value) => stored(client.append(key.as_bytes(), value.as_bytes())).to_owned(),
        Prepend(key, value) => stored(client.prepend(key.as_bytes(), value.as_bytes())).to_owned(),
        Cas(key, value, more) => {
            let cas = *version + more;
            stored(client.cas(key.as_bytes(), value.as_bytes(), with, cas)).to_owned()
        }
        CasZero(key) => stored(client.cas(key.as_bytes(), b"x", with, 0)).to_owned(),
        Delete(key) => done(client.delete(key.as_bytes()), "DELETED"),
        Touch(key, exptime_s) => done(client.touch(key.as_bytes(), exptime_s), "TOUCHED"),
        Increment(key, delta) => number(client.increment(key.as_bytes(), delta)),
        Decrement(key, delta) => number(client.decrement(key.as_bytes(), delta)),
    }
}

/// Returns items in the form of text, without their versions.
fn items(items: &[(&str, Option<rebate_client::Item>)]) -> String {
    let mut text = String::new();
    for (key, item) in items {
        let Some(item) = item else { continue };
        assert!(item.cas > 0, "{key} has a version");
        let value = String::from_utf8_lossy(&item.value);
        text += &format!("VALUE {key} {} {}\r\n{value}\r\n", item.client_flags, item.value.len());
    }
    text + "END\r\n"
}

/// Runs a step as text. Returns the answer without versions.
fn run_text(client: &mut Text, step: &Step, version: &mut u64) -> String {
    let set = |verb: &str, key: &str, value: &str, more: &str| {
        format!("{verb} {key} 0 0 {}{more}\r\n{value}", value.len())
    };
    match *step {
        Get(key) => {
            let answer = client.ask(&format!("gets {key}"));
            let Some((line, rest)) = answer.split_once("\r\n").filter(|_| answer != "END\r\n")
            else {
                return answer;
            };
            let (line, cas) = line.rsplit_once(' ').expect("a version");
            *version = cas.parse().expect("a version");
            format!("{line}\r\n{rest}")
        }
        GetMany(keys) => client.ask(&format!("get {}", keys.join(" "))),
        GetAndTouch(key, exptime_s) => client.ask(&format!("gat {exptime_s} {key}")),
        Set(key, value, client_flags, exptime_s) => {
            let bytes = value.len();
            client.ask(&format!("set {key} {client_flags} {exptime_s} {bytes}\r\n{value}"))
        }
        Add(key, value) => client.ask(&set("add", key, value, "")),
        Replace(key, value) => client.ask(&set("replace", key, value, "")),
        Append(key, value) => client.ask(&set("append", key, value, "")),
        Prepend(key, value) => client.ask(&set("prepend", key, value, "")),
        Cas(key, value, more) => {
            client.ask(&set("cas", key, value, &format!(" {}", *version + more)))
        }
        CasZero(key) => client.ask(&set("cas", key, "x", " 0")),
        Delete(key) => client.ask(&format!("delete {key}")),
        Touch(key, exptime_s) => client.ask(&format!("touch {key} {exptime_s}")),
        Increment(key, delta) => client.ask(&format!("incr {key} {delta}")),
        Decrement(key, delta) => client.ask(&format!("decr {key} {delta}")),
    }
}

#[test]
fn every_command_means_near_what_it_means_in_text() {
    let (one, other) = (Service::start(), Service::start());
    let (mut near, mut text) = (one.client(), other.text());
    let (mut near_version, mut text_version) = (0, 0);
    for (number, step) in STEPS.iter().enumerate() {
        let ours = run_near(&mut near, step, &mut near_version);
        let theirs = run_text(&mut text, step, &mut text_version);
        assert_eq!(ours, theirs, "step {number}");
    }
}

#[test]
fn near_and_text_clients_read_each_other_s_items() {
    let service = Service::start();
    let (mut near, mut text) = (service.client(), service.text());
    // It compresses, so the store has another form than both clients.
    let value = "the same words again and again ".repeat(400);
    near.set(b"near", value.as_bytes(), With { client_flags: 5, exptime_s: 0 }).expect("stored");
    let answer = text.ask("get near");
    assert_eq!(answer, format!("VALUE near 5 {}\r\n{value}\r\nEND\r\n", value.len()));
    let stored = text.ask(&format!("set text 6 0 {}\r\n{value}", value.len()));
    assert_eq!(stored, "STORED\r\n");
    let item = near.get(b"text").expect("an answer").expect("an item");
    assert_eq!((item.client_flags, item.value), (6, value.into_bytes()));
    let compressed = service.metric("rebate_values_written_total{form=\"compressed\"} ");
    assert_eq!(compressed, 2, "both were compressed");
}

#[test]
fn long_values_and_many_keys_pass() {
    let service = Service::start();
    let mut near = service.client();
    let long: Vec<u8> =
        (0..1_000_000_u32).map(|number| (number.wrapping_mul(number) >> 7) as u8).collect();
    for bytes in [1_000_000, 131_072, 131_048, 65_536, 1, 0] {
        near.set(b"long", &long[..bytes], With::default()).expect("stored");
        let item = near.get(b"long").expect("an answer").expect("an item");
        assert!(item.value == long[..bytes], "{bytes} bytes");
    }
    let keys: Vec<String> = (0..500).map(|number| format!("key:{number}")).collect();
    for key in keys.iter().step_by(2) {
        near.set(key.as_bytes(), key.as_bytes(), With::default()).expect("stored");
    }
    let items = near.get_many(&keys).expect("answers");
    assert_eq!(items.len(), keys.len());
    for (number, (key, item)) in keys.iter().zip(&items).enumerate() {
        let value = item.as_ref().map(|item| item.value.as_slice());
        assert_eq!(value, number.is_multiple_of(2).then_some(key.as_bytes()), "{key}");
    }
    assert_eq!(near.get_many::<&str>(&[]).expect("nothing"), []);
}

#[test]
fn what_is_no_request_is_refused_before_it_is_sent() {
    let service = Service::start();
    let mut near = service.client();
    let long_key = vec![b'k'; 251];
    for key in [&b""[..], b"a b", b"a\r\nflush_all", &long_key] {
        assert!(matches!(near.get(key), Err(Error::Key(_))), "{key:?}");
        assert!(matches!(near.set(key, b"v", With::default()), Err(Error::Key(_))), "{key:?}");
        assert!(matches!(near.get_many(&[key]), Err(Error::Key(_))), "{key:?}");
    }
    let far = With { client_flags: 0, exptime_s: 1 << 31 };
    assert!(matches!(near.set(b"k", b"v", far), Err(Error::Expiry { .. })));
    let too_long = vec![0; 2 << 20];
    let error = near.set(b"k", &too_long, With::default()).expect_err("too long here").to_string();
    assert!(error.contains("status 0x3"), "{error}");
    near.set(b"k", b"v", With::default()).expect("the connection is still of use");
}

#[test]
fn statistics_and_the_version_are_the_server_s() {
    let service = Service::start();
    let mut near = service.client();
    near.get(b"missing").expect("an answer");
    let lines = near.stats("").expect("answers");
    let value = |name: &str| {
        let line = lines.iter().find(|(other, _)| other == name);
        line.map(|(_, value)| value.clone()).expect(name)
    };
    assert_eq!(value("get_misses"), "1");
    assert_eq!(value("curr_connections"), "1");
    let version = near.version().expect("an answer");
    assert_eq!(value("version"), version);
    assert!(near.stats("settings").expect("answers").iter().any(|(name, _)| name == "maxbytes"));
    assert!(matches!(near.stats("nonsense"), Err(Error::Refused { status: 1, .. })));
    let conns = service.text().ask("stats conns");
    assert!(conns.contains(&format!("addr near:{}", service.path().display())), "{conns}");
}

/// Lines that a near connection must answer as a socket does, because any memcached client may be at its other end.
const LINES: &[&str] = &[
    "set a 1 0 3\r\nabc\r\nget a b a\r\n",
    "mg a v f t\r\nms m 2 T0\r\nhi\r\nmg m v\r\nmd m\r\n",
    "set n 0 0 1 noreply\r\n9\r\nincr n 1\r\ndecr n 100\r\n",
    "append a 0 0 1\r\nd\r\nprepend a 0 0 1\r\n0\r\nget a\r\n",
    "nonsense\r\nget\r\nset a b c\r\nverbosity 1\r\nversion\r\n",
    "set bad 0 0 3\r\nabcdef\r\nget bad\r\nflush_all\r\nget a\r\n",
];

#[test]
fn text_over_a_near_connection_is_answered_byte_for_byte() {
    let (one, other) = (Service::start(), Service::start());
    let mut near = NearClient::connect(&one.path(), Instant::now() + TIMEOUT).expect("connects");
    let mut text = other.text();
    for lines in LINES {
        let expected = text.ask(lines);
        let sent = format!("{lines}\r\nmn\r\n");
        let written = near.write(&[IoSlice::new(sent.as_bytes())], Instant::now() + TIMEOUT);
        assert_eq!(written.expect("room"), sent.len());
        let mut answer = Vec::new();
        while answer.len() < expected.len() + 4 {
            let mut space = [0; 1_000];
            let bytes = near.read(&mut space, Instant::now() + TIMEOUT).expect("an answer");
            assert!(bytes > 0, "the end after {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&space[..bytes]);
        }
        assert_eq!(String::from_utf8_lossy(&answer), expected + "MN\r\n", "{lines}");
    }
}
