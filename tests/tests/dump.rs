//! Tests lists of stored items: `stats cachedump`, `lru_crawler metadump` and `mgdump`. They are tested for the
//! embedded store and in front of memcached, in memcached's forms. The tests also check what other clients see
//! meanwhile, and run memcached's own tool.

mod services;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rebate_tests::payload::text;
use rebate_tests::{Bystander, Client, MemoryWatch, Server, TIMEOUT, poll_for};

/// Starts memcached and the servers that replace it.
fn servers() -> Vec<(&'static str, Vec<Server>)> {
    let (one, two, three) =
        (Server::memcached(&[]), Server::memcached(&[]), Server::memcached(&[]));
    let ring = format!("memcached://{},{}", two.addr(), three.addr());
    vec![
        ("memcached", vec![Server::memcached(&[])]),
        ("monolith", vec![Server::rebate_memcached(&[])]),
        ("embedded", vec![Server::rebate_serve("embedded", "on", &[])]),
        ("one server", vec![Server::rebate_serve(&one.as_store(), "on", &[]), one]),
        ("two servers", vec![Server::rebate_serve(&ring, "on", &[]), two, three]),
    ]
}

/// Sends a line and reads up to the line that ends the list.
fn list(client: &mut Client, line: &str, end: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut next = client.line(line.as_bytes()).expect("an answer");
    while next != end {
        assert!(next.contains(' '), "{line}: {next}");
        lines.push(next);
        next = client.read_line().unwrap_or_else(|| panic!("{line} ends after {lines:?}"));
    }
    lines
}

/// Repeats [`list`] until the list has `count` lines and returns it. memcached leaves items out while it moves them
/// between its LRU segments.
fn whole_list(client: &mut Client, line: &str, count: usize) -> Vec<String> {
    let mut listed = Vec::new();
    poll_for(TIMEOUT, || {
        listed = list(client, line, "END");
        (listed.len() == count).then_some(())
    });
    assert_eq!(listed.len(), count, "{line}: {listed:?}");
    listed
}

const KEYS: [&str; 5] = ["plain", "with%percent", "utf8-\u{e9}", "never", "ends"];

fn fill(client: &mut Client) {
    for key in KEYS {
        let exptime = if key == "ends" { 1_000 } else { 0 };
        let line = format!("set {key} 0 {exptime} 5\r\nvalue");
        assert_eq!(client.ask(line.as_bytes()).text(), "STORED\r\n");
    }
    assert_eq!(client.ask(b"ms YSBi 5 b\r\nvalue").text(), "HD\r\n");
    client.ask(b"get plain");
}

/// Returns the fields of a line without the numbers that differ between servers.
fn fields(line: &str) -> String {
    let varying = ["exp=1", "la=", "cas=", "size="];
    let kept = line.split(' ').filter(|word| !varying.iter().any(|name| word.starts_with(name)));
    kept.collect::<Vec<&str>>().join(" ")
}

#[test]
fn metadump_lists_every_item_as_memcached_does() {
    let mut reference = None;
    for (name, servers) in servers() {
        let mut client = servers[0].client();
        for class in ["all", "hash"] {
            assert_eq!(list(&mut client, &format!("lru_crawler metadump {class}"), "END").len(), 0);
        }
        fill(&mut client);
        let listed = whole_list(&mut client, "lru_crawler metadump all", KEYS.len() + 1);
        let known: BTreeSet<String> = listed.iter().map(|line| fields(line)).collect();
        assert_eq!(reference.get_or_insert_with(|| known.clone()), &known, "{name}");
        for class in ["hash", "1", "1,2"] {
            let line = format!("lru_crawler metadump {class}");
            let listed = whole_list(&mut client, &line, KEYS.len() + 1);
            let again: BTreeSet<String> = listed.iter().map(|line| fields(line)).collect();
            assert_eq!(again, known, "{name}: {class}");
        }
        assert_eq!(list(&mut client, "lru_crawler metadump 2", "END").len(), 0, "{name}");
        for line in &listed {
            let words: BTreeMap<&str, &str> =
                line.split(' ').filter_map(|word| word.split_once('=')).collect();
            let number = |name: &str| -> i64 { words[name].parse().expect(line) };
            let ends = number("exp") - number("la");
            assert!(
                if words["key"] == "ends" { ends == 1_000 } else { words["exp"] == "-1" },
                "{line}"
            );
            assert!(number("cas") > 0 && (50..100).contains(&number("size")), "{line}");
        }
    }
}

#[test]
fn cachedump_lists_items_as_memcached_does() {
    for (name, servers) in servers() {
        let mut client = servers[0].client();
        fill(&mut client);
        let listed = whole_list(&mut client, "stats cachedump 1 0", KEYS.len());
        let mut keys: Vec<&str> = listed.iter().filter_map(|line| line.split(' ').nth(1)).collect();
        keys.sort_unstable();
        let mut wanted = KEYS;
        wanted.sort_unstable();
        assert_eq!(keys, wanted, "{name}: without keys in base64");
        for line in &listed {
            let ends = line.ends_with(" [5 b; 0 s]");
            assert_eq!(ends, !line.contains(" ends "), "{name}: {line}");
            assert!(line.starts_with("ITEM ") && line.contains(" [5 b; "), "{name}: {line}");
        }
        whole_list(&mut client, "stats cachedump 1 2", 2);
        whole_list(&mut client, "stats cachedump 1 0 0", KEYS.len());
        assert_eq!(list(&mut client, "stats cachedump 2 0", "END").len(), 0, "{name}");
        // The next command is answered as usual.
        assert_eq!(client.get("never"), Ok(Some(b"value".to_vec())), "{name}");
    }
}

#[test]
fn mgdump_lists_commands_that_find_the_items() {
    for server in [Server::rebate_memcached(&[]), Server::rebate_serve("embedded", "on", &[])] {
        let mut client = server.client();
        fill(&mut client);
        let listed = list(&mut client, "lru_crawler mgdump all", "EN");
        assert_eq!(listed.len(), KEYS.len() + 1);
        for line in listed {
            assert_eq!(client.ask(format!("{line} v").as_bytes()).text(), "VA 5\r\nvalue\r\n");
        }
    }
}

#[test]
fn memcdump_finds_every_key() {
    let installed = Command::new("memcdump").arg("--version").output().is_ok();
    if !installed {
        assert!(std::env::var_os("CI").is_none(), "CI needs memcdump (libmemcached-tools)");
        return eprintln!("SKIPPED: this machine has no memcdump (libmemcached-tools)");
    }
    for (name, servers) in servers() {
        let mut client = servers[0].client();
        fill(&mut client);
        // memcdump does not print keys that are not ASCII.
        client.ask("delete utf8-\u{e9}".as_bytes());
        whole_list(&mut client, "stats cachedump 1 0", KEYS.len() - 1);
        let output = Command::new("memcdump")
            .arg(format!("--servers={}", servers[0].addr()))
            .output()
            .expect("memcdump runs");
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        let found: BTreeSet<&str> = found.lines().map(str::trim).collect();
        let wanted = KEYS.into_iter().filter(|key| key.is_ascii()).collect();
        assert_eq!(found, wanted, "{name}: {output:?}");
    }
}

#[test]
fn stats_tell_of_one_class_while_there_are_items() {
    let server = Server::rebate_memcached(&[]);
    let mut client = server.client();
    assert_eq!(list(&mut client, "stats items", "END").len(), 0);
    fill(&mut client);
    let items = list(&mut client, "stats items", "END");
    assert!(items.contains(&"STAT items:1:number 6".to_owned()), "{items:?}");
    let slabs = list(&mut client, "stats slabs", "END");
    assert!(slabs.contains(&"STAT 1:used_chunks 6".to_owned()), "{slabs:?}");
    assert!(slabs.contains(&"STAT active_slabs 1".to_owned()), "{slabs:?}");
}

#[test]
fn lists_may_be_forbidden() {
    let forbid = ["--set", "server.dump=false"];
    let servers = [
        Server::memcached(&["-X"]),
        Server::rebate_memcached(&["-X"]),
        Server::rebate_serve("embedded", "on", &forbid),
    ];
    for server in servers {
        let mut client = server.client();
        fill(&mut client);
        let ask = |client: &mut Client, line: &str| client.ask(line.as_bytes()).text();
        let refused = ask(&mut client, "stats cachedump 1 0");
        assert_eq!(refused, "CLIENT_ERROR stats cachedump not allowed\r\n");
        assert_eq!(ask(&mut client, "lru_crawler metadump all"), "ERROR metadump not allowed\r\n");
    }
}

#[test]
fn a_list_with_a_dead_server_ends_in_an_error() {
    let (one, mut two) = (Server::memcached(&[]), Server::memcached(&[]));
    let ring = format!("memcached://{},{}", one.addr(), two.addr());
    let ours = Server::rebate_serve(&ring, "on", &[]);
    let mut client = ours.client();
    fill(&mut client);
    two.kill();
    for line in ["lru_crawler metadump all", "stats cachedump 1 0"] {
        let answer = client.ask(line.as_bytes()).text();
        assert!(answer.ends_with("SERVER_ERROR the store is down\r\n"), "{line}: {answer}");
    }
    assert!(client.ask(b"version").text().starts_with("VERSION "));
}

#[test]
fn a_store_service_says_that_it_lists_nothing() {
    let service = services::Service::start("store", 0, &["--store", "embedded"]);
    let url = format!("grpc://{}", service.grpc);
    let ours = Server::rebate_serve(&url, "on", &["--role", "frontend"]);
    let answer = ours.client().ask(b"lru_crawler metadump all").text();
    assert_eq!(
        answer,
        "SERVER_ERROR a store service lists no items: ask the servers behind it\r\n"
    );
}

/// The number of items, which is more than the sockets and one step of a list can hold.
const MANY: usize = 60_000;

fn fill_with_many(server: &Server) {
    let mut client = server.client();
    let filler = "k".repeat(150);
    for first in (0..MANY).step_by(1_000) {
        let set = |index| format!("set {filler}_{index} 0 0 3 noreply\r\nabc\r\n");
        let lines: String = (first..first + 1_000).map(set).collect();
        assert_eq!(client.exchange(lines.as_bytes()).text(), "");
    }
}

#[test]
fn a_large_list_is_whole_and_others_are_served_meanwhile() {
    let server = Server::rebate_memcached(&["-m", "256", "-t", "1"]);
    fill_with_many(&server);
    let bystander = Bystander::start(server.addr(), 2, 100, TIMEOUT);
    for _ in 0..3 {
        let listed = list(&mut server.client(), "lru_crawler metadump all", "END");
        let kept: BTreeSet<&String> = listed.iter().filter(|line| line.contains("kkkk")).collect();
        assert_eq!(kept.len(), MANY);
    }
    let report = bystander.stop();
    assert!(report.failures.is_empty() && !report.latencies.is_empty(), "{:?}", report.failures);
}

#[test]
fn a_client_that_does_not_read_its_list_holds_nobody() {
    let server = Server::rebate_memcached(&["-m", "256", "-t", "1"]);
    fill_with_many(&server);
    let watch = MemoryWatch::start(server.id());
    let before = server.rss_bytes().expect("/proc tells the resident memory");
    let mut deaf = TcpStream::connect(server.addr()).expect("the server accepts");
    deaf.write_all(b"lru_crawler metadump all\r\n").expect("the server reads");
    // Waits until the list is in progress. Other clients are then told that the server is busy.
    let line = b"lru_crawler metadump 1";
    let busy = b"BUSY currently processing crawler request";
    let is_refused = || server.client().line(line).filter(|line| line.as_bytes() == busy);
    assert!(poll_for(TIMEOUT, is_refused).is_some(), "a list that nobody reads is under way");
    let report = Bystander::observe(server.addr(), 2, 100, Duration::from_millis(500));
    assert!(report.failures.is_empty() && !report.latencies.is_empty(), "{:?}", report.failures);
    // The client that does not read loses its connection, and the next list is produced.
    let mut other = server.client();
    let next = || (other.ask(line).text().len() > 1 << 20).then_some(());
    assert!(poll_for(TIMEOUT, next).is_some(), "a list that nobody reads is never given up");
    let taken = watch.peak_bytes().saturating_sub(before);
    assert!(taken < 32 << 20, "{taken} bytes for lists");
    let mut rest = Vec::new();
    deaf.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    let _ = deaf.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"END\r\n"), "it was cut");
}

#[test]
fn sizes_in_lists_are_those_that_me_tells() {
    let store = Server::memcached(&[]);
    let servers = [
        Server::rebate_memcached(&[]),
        Server::rebate_serve("embedded", "on", &[]),
        Server::rebate_serve(&store.as_store(), "on", &[]),
    ];
    for server in servers {
        let mut client = server.client();
        assert_eq!(client.set("k", &text(5_000)).as_deref(), Ok("STORED"));
        let size = |text: String| {
            let size = text.split_whitespace().find_map(|word| word.strip_prefix("size="));
            size.and_then(|size| size.parse::<usize>().ok()).expect(&text)
        };
        let listed = size(client.ask(b"me k").text());
        assert_eq!(size(client.ask(b"lru_crawler metadump all").text()), listed);
        assert!(listed < 5_000, "the stored size, not the logical one");
    }
}
