//! The crate `rebate-client`.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use rebate_client::{Client, Cluster, Distribution, Entry, Error, Options, Stored, Write};
use rebate_tests::{Server, TIMEOUT};

use super::Near;

/// Options with which a loaded machine fails no test.
fn patient() -> Options {
    let retry_after = Duration::from_millis(10);
    Options { connect_timeout: TIMEOUT, timeout: TIMEOUT, retry_after, ..Options::default() }
}

fn cluster(servers: &[String]) -> Cluster {
    Cluster::new(servers, Distribution::Ketama, patient()).expect("servers")
}

/// Runs every command and returns the outcomes, without versions.
fn outcomes(cluster: &mut Cluster) -> String {
    let mut out = String::new();
    let with = |client_flags, exptime_s| Write { client_flags, exptime_s };
    let stored = |stored: Result<Stored, Error>| match stored.expect("an answer") {
        Stored::Stored { .. } => "stored".to_owned(),
        other => format!("{other:?}"),
    };
    let long = vec![b'x'; 300_000];
    let client = cluster.client(b"a");
    for (key, value) in [("a", &b"one"[..]), ("empty", b""), ("binary", b"\r\n\0END\r\n")] {
        assert!(client.set(key.as_bytes(), value, with(7, 100)).expect("stored") > 0, "{key}");
    }
    client.set(b"long", &long, with(u32::MAX, 0)).expect("stored");
    client.set(b"past", b"x", with(0, rebate_client::EXPIRED)).expect("stored");
    for key in ["a", "empty", "binary", "past", "missing"] {
        let item = client.get(key.as_bytes()).expect("an answer");
        let item = item.map(|item| (item.value, item.client_flags, item.cas > 0));
        writeln!(out, "get {key}: {item:?}").expect("text");
    }
    let long_item = client.get(b"long").expect("an answer").expect("an item");
    writeln!(out, "{} {}", long_item.value == long, long_item.client_flags).expect("text");
    let many = client.get_many(&["a", "missing", "empty", "a"]).expect("answers");
    let many = many.into_iter().map(|item| item.map(|item| item.value));
    writeln!(out, "get_many: {:?}", many.collect::<Vec<_>>()).expect("text");
    for (what, outcome) in [
        ("add a", stored(client.add(b"a", b"no", with(0, 0)))),
        ("add b", stored(client.add(b"b", b"yes", with(3, 0)))),
        ("replace b", stored(client.replace(b"b", b"again", with(4, 0)))),
        ("replace missing", stored(client.replace(b"missing", b"no", with(0, 0)))),
        ("append b", stored(client.append(b"b", b"-end"))),
        ("prepend b", stored(client.prepend(b"b", b"start-"))),
        ("append missing", stored(client.append(b"missing", b"x"))),
        ("prepend missing", stored(client.prepend(b"missing", b"x"))),
        ("cas missing", stored(client.cas(b"missing", b"x", with(0, 0), 5))),
        ("cas 0", stored(client.cas(b"b", b"x", with(0, 0), 0))),
        ("touch a", format!("{:?}", client.touch(b"a", 200).ok())),
        ("touch missing", format!("{:?}", client.touch(b"missing", 200).ok())),
        ("delete empty", format!("{:?}", client.delete(b"empty").ok())),
        ("delete missing", format!("{:?}", client.delete(b"missing").ok())),
        ("increment missing", format!("{:?}", client.increment(b"missing", 1).ok())),
        ("increment a", format!("{}", client.increment(b"a", 1).expect_err("no number"))),
    ] {
        writeln!(out, "{what}: {outcome}").expect("text");
    }
    let item = client.get_and_touch(b"b", 100).expect("an answer").expect("an item");
    writeln!(out, "b: {:?} {}", item.value, item.client_flags).expect("text");
    let late = stored(client.cas(b"b", b"late", with(0, 0), item.cas + 1));
    let right = stored(client.cas(b"b", b"new", with(0, 0), item.cas));
    writeln!(out, "cas b: {late} {right}").expect("text");
    client.set(b"n", b"10", with(0, 0)).expect("stored");
    for delta in [5, u64::MAX, 1] {
        let pair = (client.increment(b"n", delta), client.decrement(b"n", 3));
        writeln!(out, "n: {:?} {:?}", pair.0.expect("a sum"), pair.1.expect("a difference"))
            .expect("text");
    }
    writeln!(out, "{:?}", client.delete_many(&["n", "missing", "b"]).expect("answers"))
        .expect("text");
    let pid = client.stats("").expect("statistics").into_iter().any(|(name, _)| name == "pid");
    writeln!(out, "{pid} {}", client.version().expect("a version").is_empty()).expect("text");
    client.flush(0).expect("flushed");
    writeln!(out, "{:?}", client.get(b"a").expect("an answer")).expect("text");
    out
}

#[test]
fn all_commands_mean_the_same_on_all_connections() {
    let (memcached, rebate) = (Server::memcached(&[]), Near::start());
    let expected = outcomes(&mut cluster(&[memcached.addr().to_string()]));
    assert!(expected.contains("cas b: Exists stored"), "{expected}");
    for address in [rebate.near(), rebate.server.addr().to_string()] {
        assert_eq!(outcomes(&mut cluster(std::slice::from_ref(&address))), expected, "{address}");
    }
}

#[test]
fn what_one_client_stores_the_others_read() {
    let (memcached, rebate) = (Server::memcached(&[]), Near::start());
    let addresses = [memcached.addr().to_string(), rebate.server.addr().to_string(), rebate.near()];
    for (address, server) in addresses.iter().zip([&memcached, &rebate.server, &rebate.server]) {
        let mut ours = cluster(std::slice::from_ref(address));
        let value = "compresses well ".repeat(500);
        ours.set(b"ours", value.as_bytes(), Write { client_flags: 9, exptime_s: 0 }).expect("set");
        let answer = server.client().ask(b"get ours").bytes;
        let expected = format!("VALUE ours 9 {}\r\n{value}\r\nEND\r\n", value.len());
        assert!(answer == expected.as_bytes(), "{address}");
        let set = format!("set theirs 8 0 {}\r\n{value}", value.len());
        assert_eq!(server.client().ask(set.as_bytes()).bytes, b"STORED\r\n");
        let item = ours.get(b"theirs").expect("an answer").expect("an item");
        assert!(item.value == value.as_bytes() && item.client_flags == 8, "{address}");
    }
}

/// Keys, each with its number as value.
fn numbered(count: usize) -> Vec<(String, String)> {
    (0..count).map(|number| (format!("key_{number}"), number.to_string())).collect()
}

#[test]
fn gets_of_many_keys_are_split_by_server() {
    let servers = [Near::start(), Near::start()];
    let mut list: Vec<String> = servers.iter().map(Near::both).collect();
    let memcached = Server::memcached(&[]);
    list.push(memcached.addr().to_string());
    let mut ours = cluster(&list);
    let items = numbered(500);
    let entries: Vec<Entry<'_>> = items
        .iter()
        .map(|(key, value)| Entry {
            key: key.as_bytes(),
            value: value.as_bytes(),
            write: Write::default(),
        })
        .collect();
    assert!(ours.set_many(&entries).expect("answers").iter().all(Result::is_ok));
    let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).chain(["missing"]).collect();
    let got = ours.get_many(&keys).expect("answers");
    let got = got.into_iter().map(|item| item.map(|item| String::from_utf8(item.value)));
    let expected = items.iter().map(|(_, value)| Some(Ok(value.clone()))).chain([None]);
    assert!(got.eq(expected), "every key has its value");
    let counts: Vec<u64> = [&servers[0].server, &servers[1].server, &memcached]
        .map(|server| server.stat("curr_items").expect("a count"))
        .to_vec();
    assert!(counts.iter().all(|count| *count > 50), "all servers have keys: {counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), 500);
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let deleted = ours.delete_many(&keys).expect("answers");
    assert_eq!(deleted, [vec![true; 500], vec![false]].concat());
}

#[test]
fn a_lost_server_costs_only_its_keys() {
    let (mut lost, kept) = (Near::start(), Near::start());
    let mut ours = cluster(&[lost.both(), kept.both()]);
    let items = numbered(200);
    for (key, value) in &items {
        ours.set(key.as_bytes(), value.as_bytes(), Write::default()).expect("stored");
    }
    lost.server.kill();
    let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
    let (_, on_kept): (Vec<&str>, Vec<&str>) =
        keys.iter().partition(|key| ours.owner(key.as_bytes()) == 0);
    // The answers of the server that is there are taken all the same: no later call finds them.
    for _ in 0..3 {
        let error = ours.get_many(&keys).expect_err("a server is lost");
        assert!(matches!(error, Error::Unreachable(_)), "{error}");
        let got = ours.get_many(&on_kept).expect("answers");
        for (key, item) in on_kept.iter().zip(got) {
            let value = item.expect("an item").value;
            assert_eq!(format!("key_{}", String::from_utf8_lossy(&value)), **key);
        }
    }
}

#[test]
fn a_server_without_a_near_socket_is_reached_over_tcp() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("near").display().to_string();
    let without = Server::rebate_memcached(&[]);
    let address = format!("near:{path}|{}", without.addr());
    let mut ours = cluster(&[address]);
    ours.set(b"k", b"v", Write::default()).expect("stored");
    assert_eq!(
        ours.clients()[0].address().expect("connected").to_string(),
        without.addr().to_string()
    );
    let with = Server::rebate_serve("embedded", "on", &["--near-listen", &path]);
    let start = Instant::now();
    let near = format!("near:{path}");
    // It returns to the preferred address, which leads to another cache here so that the difference shows.
    while ours.clients()[0].address().is_none_or(|address| address.to_string() != near) {
        ours.get(b"k").expect("an answer");
        assert!(start.elapsed() < TIMEOUT, "it returns");
    }
    assert_eq!(ours.get(b"k").expect("an answer"), None);
    drop(with);
    assert!(ours.get(b"k").expect("an answer").is_some(), "and falls back again");
}

#[test]
fn a_silent_server_costs_the_time_of_one_call() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address").to_string();
    let timeout = Duration::from_millis(100);
    let mut client =
        Client::new(&[&address], Options { timeout, ..patient() }).expect("an address");
    let start = Instant::now();
    let error = client.get(b"k").expect_err("silence");
    assert!(error.is_timeout() && error.to_string().contains(&address), "{error}");
    assert!(error.to_string().contains("100 ms"), "{error}");
    assert!(start.elapsed() >= timeout);
    let error = client.increment(b"k", 1).expect_err("silence");
    assert!(matches!(error, Error::Unknown { .. }) && error.is_timeout(), "{error}");
}

#[test]
fn wrong_arguments_are_named() {
    let memcached = Server::memcached(&[]);
    let mut ours = cluster(&[memcached.addr().to_string()]);
    let error = ours.get(&[b'k'; 251]).expect_err("a long key").to_string();
    assert!(error.contains("251") && error.contains("250"), "{error}");
    let error = ours.touch(b"k", u32::MAX).expect_err("a late time").to_string();
    assert!(error.contains("4294967295") && error.contains("2147483647"), "{error}");
    let error = ours.set(b"k", &vec![0; 2 << 20], Write::default()).expect_err("a long value");
    assert!(error.to_string().contains("too large"), "{error}");
    assert_eq!(ours.get(b"k").expect("the connection is in order"), None);
    let no_servers: [&str; 0] = [];
    Cluster::new(&no_servers, Distribution::Ketama, patient()).expect_err("no servers");
}
