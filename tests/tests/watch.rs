//! Tests `watch` and `stats conns`: the lines are those of memcached, a client that reads too slowly loses lines and
//! disturbs nobody, and a watcher ends with its right and with the server.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use rebate_tests::{Bystander, Client, MemoryWatch, Server, TIMEOUT, poll_for};

/// Starts a watcher.
fn watch(server: &Server, events: &str) -> Client {
    let mut watcher = server.client();
    let answer = watcher.line(format!("watch {events}").as_bytes());
    assert_eq!(answer.as_deref(), Some("OK"));
    watcher
}

/// Returns the next line without its time and its number, and without the parts whose names are `varying`.
fn event(watcher: &mut Client, varying: &[&str]) -> String {
    let line = watcher.read_line().expect("a line");
    let mut words = line.split(' ');
    let time = words.next().and_then(|word| word.strip_prefix("ts="));
    let time: f64 = time.and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    assert!(time > 1e9, "{line}");
    let number = words.next().and_then(|word| word.strip_prefix("gid="));
    assert!(number.is_some_and(|number| number.parse::<u64>().is_ok()), "{line}");
    let is_fixed = |word: &&str| !varying.iter().any(|name| word.starts_with(name));
    words.filter(is_fixed).collect::<Vec<&str>>().join(" ")
}

/// Commands, each with the number of lines about it.
const COMMANDS: [(&str, usize); 25] = [
    ("get a", 1),
    ("set a 0 0 2\r\nhi", 2),
    ("get a nothing", 2),
    ("set a 0 100 2\r\nhi", 2),
    ("gat 90 a", 1),
    ("touch a 80", 1),
    ("append a 0 0 1\r\n!", 2),
    ("add a 0 0 1\r\nx", 2),
    ("replace nothing 0 0 1\r\nx", 2),
    ("cas a 0 0 1 99999\r\nx", 2),
    ("cas nothing 0 0 1 99999\r\nx", 2),
    ("incr a 1", 1),
    ("set n 0 0 2\r\n41", 2),
    ("incr n 1", 1),
    ("decr nothing 1", 1),
    ("ms b 2 T30\r\nab", 2),
    ("ms b 2 ME\r\nab", 2),
    ("ms YWFh 2 b MR\r\nab", 2),
    ("mg b v", 1),
    ("mg nothing v", 1),
    ("mg nothing N30 v", 1),
    ("me b", 1),
    ("md b", 1),
    ("delete a", 1),
    ("delete a", 1),
];

/// Returns a line with its time to live rounded to tens of seconds, because a second may pass.
fn rounded(line: &str) -> String {
    let round = |word: &str| match word.strip_prefix("ttl=").map(str::parse::<u32>) {
        Some(Ok(seconds)) => format!("ttl={}", (seconds + 5) / 10 * 10),
        _ => word.to_owned(),
    };
    line.split(' ').map(round).collect::<Vec<String>>().join(" ")
}

#[test]
fn lines_about_items_are_memcacheds() {
    let servers = [
        ("memcached", Server::memcached(&[])),
        ("monolith", Server::rebate_memcached(&[])),
        ("embedded", Server::rebate_serve("embedded", "on", &[])),
    ];
    let mut reference: Vec<String> = Vec::new();
    for (name, server) in &servers {
        let mut watcher = watch(server, "fetchers mutations");
        let mut client = server.client();
        let mut lines = Vec::new();
        for (command, count) in COMMANDS {
            let _answer = client.ask(command.as_bytes());
            for _ in 0..count {
                lines.push(format!("{command:?}: {}", rounded(&event(&mut watcher, &["cfd="]))));
            }
        }
        if reference.is_empty() {
            reference = lines;
        } else {
            assert_eq!(lines, reference, "{name}");
        }
    }
}

#[test]
fn a_number_that_is_created_is_an_add() {
    let server = Server::rebate_memcached(&[]);
    let mut watcher = watch(&server, "mutations");
    let mut client = server.client();
    assert_eq!(client.line(b"ma n N0 J15").as_deref(), Some("HD"));
    let expected = "type=item_store key=n status=stored cmd=add ttl=0 clsid=1 size=2";
    assert_eq!(event(&mut watcher, &["cfd="]), expected);
}

#[test]
fn a_refused_value_is_an_event() {
    let server = Server::rebate_memcached(&[]);
    let mut watcher = watch(&server, "mutations");
    let big = [&b"set big 0 0 2000000\r\n"[..], &[b'x'; 2_000_000], b"\r\n"].concat();
    let answer = server.client().exchange(&big).text();
    assert_eq!(answer, "SERVER_ERROR object too large for cache\r\n");
    let expected = "type=item_store key=big status=too_large cmd=set ttl=0 clsid=0 size=0";
    assert_eq!(event(&mut watcher, &["cfd="]), expected);
}

#[test]
fn packets_are_events_as_lines_are() {
    let server = Server::rebate_memcached(&[]);
    let mut watcher = watch(&server, "fetchers mutations");
    // A set of `k` with the value `v`, and a get of `k`.
    let set = b"\x80\x01\0\x01\x08\0\0\0\0\0\0\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0kv";
    let get = b"\x80\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0k";
    let mut client = server.client();
    client.speech = rebate_tests::client::Speech::Packets;
    client.exchange(&[&set[..], &get[..]].concat());
    for expected in [
        "type=item_get key=k status=not_found clsid=0 size=0",
        "type=item_store key=k status=stored cmd=set ttl=0 clsid=1 size=1",
        "type=item_get key=k status=found clsid=1 size=1",
    ] {
        assert_eq!(event(&mut watcher, &["cfd="]), expected);
    }
}

#[test]
fn in_front_of_memcached_our_own_commands_are_events() {
    let store = Server::memcached(&[]);
    let server = Server::rebate_serve(&store.as_store(), "on", &[]);
    let mut watcher = watch(&server, "fetchers mutations deletions");
    let mut client = server.client();
    let text = "compressible ".repeat(100);
    let set = format!("set a 0 60 {}\r\n{text}", text.len());
    for line in [&set[..], "get a", "get b", "mg a v", "delete a", "delete a"] {
        let _answer = client.ask(line.as_bytes());
    }
    let size = text.len();
    for expected in [
        format!("type=item_store key=a status=stored cmd=set ttl=60 clsid=1 size={size}"),
        format!("type=item_get key=a status=found clsid=1 size={size}"),
        "type=item_get key=b status=not_found clsid=0 size=0".to_owned(),
        format!("type=item_get key=a status=found clsid=1 size={size}"),
        "type=deleted key=a cmd=delete clsid=1".to_owned(),
    ] {
        assert_eq!(event(&mut watcher, &["cfd="]), expected);
    }
}

#[test]
fn deletions_tell_the_size() {
    let server = Server::rebate_memcached(&[]);
    let mut watcher = watch(&server, "deletions");
    let mut client = server.client();
    for line in ["set a 0 0 2\r\nhi", "delete a", "delete a", "ms b 3\r\nabc", "md b I", "md b"] {
        let _answer = client.ask(line.as_bytes());
    }
    assert_eq!(event(&mut watcher, &[]), "type=deleted key=a cmd=delete clsid=1 size=2");
    assert_eq!(event(&mut watcher, &[]), "type=deleted key=b cmd=md clsid=1 size=3");
}

#[test]
fn every_eviction_is_an_event() {
    let few = ["--memory", "2MiB", "--set", "server.watcher_bytes=4MiB"];
    let server = Server::rebate_serve("embedded", "off", &few);
    let mut watcher = watch(&server, "evictions");
    let mut client = server.client();
    let value = "v".repeat(1_000);
    for first in (0..6_000).step_by(500) {
        let set = |index| format!("set key{index} 0 1000 1000 noreply\r\n{value}\r\n");
        let lines: String = (first..first + 500).map(set).collect();
        assert_eq!(client.exchange(lines.as_bytes()).text(), "");
    }
    let evictions = server.stat("evictions").expect("a number");
    assert!(evictions > 1_000, "{evictions}");
    let mut keys = BTreeSet::new();
    for _ in 0..evictions {
        let line = event(&mut watcher, &["la=", "ttl=", "size="]);
        let key = line.strip_prefix("type=eviction key=").and_then(|rest| rest.split(' ').next());
        assert!(keys.insert(key.unwrap_or_default().to_owned()), "{line} came twice");
        assert!(line.ends_with(" fetch=no clsid=1"), "{line}");
    }
    assert_eq!(server.stat("log_watcher_sent"), Some(evictions));
    assert_eq!(server.stat("log_watcher_skipped"), Some(0));
}

/// Returns the next event of the connection from this port, without the varying parts. Other connections are not of
/// interest, such as those that have found that the server accepts.
fn event_of(watcher: &mut Client, port: u16) -> String {
    let port = format!("rport={port}");
    loop {
        let line = event(watcher, &["cfd="]);
        if line.split(' ').any(|word| word == port) {
            return line.replace(&format!(" {port}"), "");
        }
    }
}

#[test]
fn connections_are_events_with_the_reason_of_their_end() {
    let server = Server::rebate_memcached(&["-o", "idle_timeout=1"]);
    let mut watcher = watch(&server, "connevents");
    for (bytes, is_kept, reason) in [
        (&b"quit\r\n"[..], true, "normal"),
        (b"version\r\n", false, "normal"),
        (b"GET / HTTP/1.1\r\n\r\n", true, "error"),
        (b"version\r\n", true, "idle_timeout"),
    ] {
        let mut client = TcpStream::connect(server.addr()).expect("the server accepts");
        let port = client.local_addr().expect("an address").port();
        client.write_all(bytes).expect("it is sent");
        if !is_kept {
            drop(client.shutdown(std::net::Shutdown::Write));
        }
        let opened = "type=conn_new rip=127.0.0.1 transport=tcp";
        assert_eq!(event_of(&mut watcher, port), opened);
        let closed = format!("type=conn_close rip=127.0.0.1 transport=tcp reason={reason}");
        assert_eq!(event_of(&mut watcher, port), closed, "{}", bytes.escape_ascii());
    }
}

#[test]
fn keys_are_encoded() {
    let server = Server::rebate_memcached(&[]);
    let mut watcher = watch(&server, "");
    let key = "#".repeat(250);
    server.client().ask(format!("get {key}").as_bytes());
    let line = event(&mut watcher, &[]);
    assert!(line.contains(&format!("key={} ", "%23".repeat(250))), "{line}");
}

#[test]
fn a_slow_watcher_loses_lines_and_disturbs_nobody() {
    let server = Server::rebate_memcached(&["-t", "1", "-o", "watcher_logbuf_size=16"]);
    let before = server.rss_bytes().expect("/proc tells the resident memory");
    let memory = MemoryWatch::start(server.id());
    let mut slow = TcpStream::connect(server.addr()).expect("the server accepts");
    slow.write_all(b"watch fetchers\r\n").expect("the server reads");
    let attentive = watch(&server, "fetchers");
    let bystander = Bystander::start(server.addr(), 2, 100, TIMEOUT);
    let mut client = server.client();
    let gets = format!("get {}\r\n", "k".repeat(200)).repeat(200);
    let skipped = || server.stat("log_watcher_skipped").filter(|count| *count > 1_000);
    let overflowed = poll_for(TIMEOUT, || {
        client.exchange(gets.as_bytes());
        skipped()
    });
    assert!(overflowed.is_some(), "the slow watcher loses lines");
    let report = bystander.stop();
    assert!(report.failures.is_empty() && !report.latencies.is_empty(), "{:?}", report.failures);
    let taken = memory.peak_bytes().saturating_sub(before);
    assert!(taken < 32 << 20, "{taken} bytes for watchers");
    drop(attentive);
    // Once it reads, it is told how many lines it has lost.
    slow.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut text = Vec::new();
    let told = poll_for(TIMEOUT, || {
        client.ask(b"get more");
        let mut chunk = [0; 256 << 10];
        let count = slow.read(&mut chunk).expect("lines");
        text.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find_map(|line| line.strip_prefix("skipped="))?;
        line.parse::<u64>().ok()
    });
    assert!(told.is_some_and(|count| count > 0), "{told:?}");
}

#[test]
fn the_number_of_watchers_is_limited() {
    let server = Server::rebate_memcached(&[]);
    let mut all: Vec<Client> = (0..20).map(|_| watch(&server, "evictions")).collect();
    let refused = server.client().line(b"watch evictions");
    assert_eq!(refused.as_deref(), Some("WATCHER_TOO_MANY log watcher limit reached"));
    assert_eq!(server.stat("log_watchers"), Some(20));
    all.clear();
    let ended = poll_for(TIMEOUT, || (server.stat("log_watchers") == Some(0)).then_some(()));
    assert!(ended.is_some(), "watchers that have disconnected are not counted");
    watch(&server, "evictions");
}

#[test]
fn watching_may_be_forbidden() {
    let forbid = ["--set", "server.watch=false"];
    for server in [
        Server::memcached(&["-W"]),
        Server::rebate_memcached(&["-W"]),
        Server::rebate_serve("embedded", "on", &forbid),
    ] {
        let answer = server.client().line(b"watch mutations");
        assert_eq!(answer.as_deref(), Some("CLIENT_ERROR watch commands not allowed"));
    }
}

#[test]
fn unknown_events_are_refused_as_in_memcached() {
    for server in [Server::memcached(&[]), Server::rebate_memcached(&[])] {
        for line in ["watch nonsense", "watch fetchers nonsense"] {
            assert_eq!(server.client().line(line.as_bytes()).as_deref(), Some("ERROR"), "{line}");
        }
        watch(&server, "sysevents rawcmds");
    }
}

#[test]
fn watchers_do_not_delay_the_end_of_the_server() {
    let mut server = Server::rebate_memcached(&["-A"]);
    let mut watcher = watch(&server, "fetchers");
    let began = Instant::now();
    server.client().send(b"shutdown\r\n").expect("it is sent");
    assert!(watcher.is_closed());
    assert!(server.wait_exit(TIMEOUT).is_some_and(|status| status.success()), "it has drained");
    // The limit of a drain is 120 s here.
    assert!(began.elapsed() < TIMEOUT);
}

/// Returns the facts of `stats conns` by the connection's number.
fn connections(server: &Server) -> BTreeMap<u32, BTreeMap<String, String>> {
    let text = server.client().ask(b"stats conns").text();
    let mut all: BTreeMap<u32, BTreeMap<String, String>> = BTreeMap::new();
    for line in text.lines().filter(|line| *line != "END") {
        let fact = line.strip_prefix("STAT ").and_then(|rest| rest.split_once(' '));
        let (name, value) = fact.unwrap_or_else(|| panic!("{line}"));
        let (number, name) = name.split_once(':').unwrap_or_else(|| panic!("{line}"));
        let number = number.parse().unwrap_or_else(|_| panic!("{line}"));
        all.entry(number).or_default().insert(name.to_owned(), value.to_owned());
    }
    assert!(text.ends_with("END\r\n"), "{text}");
    all
}

/// Returns the states of all connections, in order.
fn states(server: &Server) -> Vec<String> {
    let mut states: Vec<String> =
        connections(server).into_values().filter_map(|facts| facts.get("state").cloned()).collect();
    states.sort_unstable();
    states
}

#[test]
fn conns_tells_what_connections_do_as_memcached_does() {
    for server in [Server::memcached(&[]), Server::rebate_memcached(&[])] {
        let watcher = watch(&server, "evictions");
        let mut idle = server.client();
        idle.ask(b"version");
        let mut sends = server.client();
        sends.send(b"set a 0 0 10\r\nhalf").expect("it is sent");
        let expected =
            ["conn_listening", "conn_nread", "conn_parse_cmd", "conn_read", "conn_watch"];
        let seen = poll_for(TIMEOUT, || (states(&server) == expected).then_some(()));
        assert!(seen.is_some(), "{:?}", states(&server));
        let all = connections(&server);
        let address = server.addr();
        for facts in all.values() {
            let is_listener = facts["state"] == "conn_listening";
            assert_eq!(facts.contains_key("listen_addr"), !is_listener, "{facts:?}");
            let listener = if is_listener { &facts["addr"] } else { &facts["listen_addr"] };
            assert_eq!(*listener, format!("tcp:{address}"));
            assert!(facts["addr"].starts_with("tcp:127.0.0.1:"), "{facts:?}");
            assert!(facts["secs_since_last_cmd"].parse::<u32>().is_ok(), "{facts:?}");
        }
        drop((watcher, idle, sends));
    }
}

#[test]
fn conns_tells_for_how_long_a_client_was_silent() {
    let server = Server::rebate_memcached(&[]);
    let mut silent = server.client();
    silent.ask(b"version");
    let longest = || {
        let silences =
            connections(&server).into_values().filter(|facts| facts["state"] == "conn_read");
        silences.filter_map(|facts| facts["secs_since_last_cmd"].parse::<u32>().ok()).max()
    };
    assert!(poll_for(TIMEOUT, || longest().filter(|seconds| *seconds >= 2)).is_some());
    silent.ask(b"version");
    assert!(longest().is_some_and(|seconds| seconds < 2));
}

#[test]
fn conns_lists_many_connections_and_forgets_closed_ones() {
    let server = Server::rebate_memcached(&["-c", "2000"]);
    let clients: Vec<Client> = (0..600).map(|_| server.client()).collect();
    let count = |server: &Server| connections(server).len();
    // A listener and the client that asks.
    let all = poll_for(TIMEOUT, || (count(&server) == 602).then_some(()));
    assert!(all.is_some(), "{}", count(&server));
    drop(clients);
    let few = poll_for(TIMEOUT, || (count(&server) == 2).then_some(()));
    assert!(few.is_some(), "{}", count(&server));
}
