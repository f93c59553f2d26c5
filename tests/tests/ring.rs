//! Tests that a ring of memcached servers survives the loss of a server, and that its list changes without a restart.
//! The limits of time are twice those of docs/operating/ring.md, because a busy host may take a core away.
//! `bench/ring.py` measures the real times.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rebate_tests::http::page;
use rebate_tests::{Client, Load, Port, Server, TIMEOUT, poll_for};
use rustix::process::Signal;

/// The longest time from a fault to the server's removal, and from its end to the return.
const OUT_LIMIT: Duration = Duration::from_secs(4);
const BACK_LIMIT: Duration = Duration::from_secs(10);

/// Three memcached servers behind Rebate. The third one is for faults.
struct Ring {
    _first: Server,
    _second: Server,
    third: Server,
    port: Port,
    rebate: Server,
    /// The third server's name in the ring.
    name: String,
}

impl Ring {
    fn start(settings: &[&str]) -> Self {
        Self::start_with(settings, |address| address.to_string())
    }

    /// Starts a ring in which the third server has the name that `name` returns for its address.
    fn start_with(settings: &[&str], name: impl FnOnce(SocketAddr) -> String) -> Self {
        let (first, second) = (Server::memcached(&[]), Server::memcached(&[]));
        let port = Port::free().expect("a free port");
        let third = Server::memcached_at(port.number(), &[]);
        let name = name(third.addr());
        let url = format!("memcached://{},{},{name}", first.addr(), second.addr());
        let rebate = serve(&url, settings);
        let ring = Self { _first: first, _second: second, third, port, rebate, name };
        let all_up = || (ring.sum("rebate_upstream_up") == 6.0).then_some(());
        assert!(poll_for(TIMEOUT, all_up).is_some(), "{}", ring.metrics());
        ring
    }

    fn restart_third(&mut self) {
        self.third = Server::memcached_at(self.port.number(), &[]);
    }

    /// Stores keys and returns those that are on the third server, and the others.
    fn keys(&self) -> (Vec<String>, Vec<String>) {
        let (mut ours, mut third) = (self.rebate.client(), self.third.client());
        let keys = (0..60).map(|index| format!("key_{index}"));
        keys.inspect(|key| assert_eq!(ours.set(key, key.as_bytes()).as_deref(), Ok("STORED")))
            .partition(|key| third.get(key).expect("the server answers").is_some())
    }

    fn metrics(&self) -> String {
        page(self.rebate.admin().expect("admin pages"), "/metrics").expect("metrics").1
    }

    fn sum(&self, family: &str) -> f64 {
        sum(&self.metrics(), &[family])
    }

    /// Returns whether the third server is in the ring.
    fn is_in(&self) -> bool {
        let server = format!("server=\"{}\"", self.name);
        sum(&self.metrics(), &["rebate_ring_server_in{", &server]) == 1.0
    }

    /// Waits until the third server is out for `reason`.
    fn await_out(&self, reason: &str) {
        let begun = Instant::now();
        let is_out = || (!self.is_in()).then_some(());
        assert!(poll_for(OUT_LIMIT, is_out).is_some(), "in after {:?}", begun.elapsed());
        let server = format!("server=\"{}\"", self.name);
        let reason = format!("reason=\"{reason}\"");
        let page_text = self.metrics();
        let given = sum(&page_text, &["rebate_ring_server_out{", &server, &reason]);
        assert_eq!(given, 1.0, "{page_text}");
        let (_, ready) =
            page(self.rebate.admin().expect("admin pages"), "/readyz").expect("a page");
        assert!(ready.contains(&format!("{} is out of the ring", self.name)), "{ready}");
        self.rebate.await_printed("a server is out of the ring").expect("a line in the log");
    }

    fn await_back(&self) {
        let is_back = || self.is_in().then_some(());
        assert!(poll_for(BACK_LIMIT, is_back).is_some(), "{}", self.metrics());
    }
}

fn serve(url: &str, settings: &[&str]) -> Server {
    let admin = ["--admin-listen", "127.0.0.1:0", "--threads", "2"];
    let timeout = ["--set", "store.timeout_ms=1000"];
    Server::rebate_serve(url, "on", &[&admin, &timeout[..], settings].concat())
}

/// Returns the sum of the samples whose lines have all of these parts.
fn sum(metrics: &str, parts: &[&str]) -> f64 {
    let lines = metrics.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.filter(|line| parts.iter().all(|part| line.contains(part)));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Reads keys over and over until it is stopped. Everything but the stored value is an error.
struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Vec<String>)>,
}

impl Reader {
    fn start(addr: SocketAddr, keys: Vec<String>) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (mut client, mut reads, mut errors) = (connect(addr), 0, Vec::new());
            for key in keys.iter().cycle() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                match client.get(key) {
                    Ok(Some(value)) if value == key.as_bytes() => reads += 1,
                    other => errors.push(format!("{key}: {other:?}")),
                }
            }
            (reads, errors)
        });
        Self { stop, thread }
    }

    fn assert_no_errors(self) {
        self.stop.store(true, Ordering::SeqCst);
        let (reads, errors) = self.thread.join().expect("no panic");
        assert!(errors.is_empty() && reads > 0, "{reads} reads, {errors:?}");
    }
}

fn connect(addr: SocketAddr) -> Client {
    Client::connect(addr).expect("Rebate accepts")
}

/// A proxy in front of a server, which delays each piece of an answer.
struct SlowProxy {
    addr: SocketAddr,
    delay_ms: Arc<AtomicU64>,
}

impl SlowProxy {
    fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("a bound socket");
        let delay_ms = Arc::<AtomicU64>::default();
        let delay = Arc::clone(&delay_ms);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(server) else { continue };
                let both = (client.try_clone(), server.try_clone());
                let (Ok(client_again), Ok(server_again)) = both else { continue };
                let delay = Arc::clone(&delay);
                thread::spawn(move || copy(client, server, &AtomicU64::new(0)));
                thread::spawn(move || copy(server_again, client_again, &delay));
            }
        });
        Self { addr, delay_ms }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, delay_ms: &AtomicU64) {
    let mut chunk = [0; 64 << 10];
    let _ = to.set_nodelay(true);
    while let Ok(bytes @ 1..) = from.read(&mut chunk) {
        thread::sleep(Duration::from_millis(delay_ms.load(Ordering::SeqCst)));
        if to.write_all(&chunk[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn a_killed_server_leaves_the_ring_and_returns() {
    let mut ring = Ring::start(&[]);
    let (_, others) = ring.keys();
    let reader = Reader::start(ring.rebate.addr(), others);
    ring.third.kill();
    ring.await_out("failures");
    ring.restart_third();
    ring.await_back();
    reader.assert_no_errors();
}

#[test]
fn a_stopped_server_leaves_the_ring_and_returns() {
    let ring = Ring::start(&[]);
    let (lost, others) = ring.keys();
    let reader = Reader::start(ring.rebate.addr(), others);
    ring.third.stop().expect("it stands still");
    ring.await_out("silence");
    let begun = Instant::now();
    let error = ring.rebate.client().get(&lost[0]).expect_err("the server is out");
    assert_eq!(error, "SERVER_ERROR the store is down");
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    ring.third.go_on();
    ring.await_back();
    assert_eq!(ring.rebate.client().get(&lost[0]), Ok(Some(lost[0].clone().into_bytes())));
    reader.assert_no_errors();
}

#[test]
fn a_slow_server_leaves_the_ring_and_returns() {
    let mut proxy = None;
    let settings = ["--set", "store.lost_keys=miss"];
    let ring = Ring::start_with(&settings, |server| {
        proxy.insert(SlowProxy::start(server)).addr.to_string()
    });
    let delay_ms = proxy.expect("a proxy").delay_ms;
    let (_, others) = ring.keys();
    let reader = Reader::start(ring.rebate.addr(), others);
    delay_ms.store(500, Ordering::SeqCst);
    ring.await_out("latency");
    delay_ms.store(0, Ordering::SeqCst);
    ring.await_back();
    reader.assert_no_errors();
}

#[test]
fn a_slow_server_is_named_and_stays_where_errors_are_wanted() {
    let mut proxy = None;
    let ring =
        Ring::start_with(&[], |server| proxy.insert(SlowProxy::start(server)).addr.to_string());
    let delay_ms = proxy.expect("a proxy").delay_ms;
    let (slow, others) = ring.keys();
    let reader = Reader::start(ring.rebate.addr(), others);
    delay_ms.store(300, Ordering::SeqCst);
    let is_slow =
        |slow: f64| (ring.sum("rebate_ring_server_slow{") == slow && ring.is_in()).then_some(());
    assert!(poll_for(OUT_LIMIT, || is_slow(1.0)).is_some(), "{}", ring.metrics());
    let ready = page(ring.rebate.admin().expect("admin pages"), "/readyz").expect("a page");
    let named = format!("{} is slow, and stays in the ring", ring.name);
    assert!(ready.0 == 200 && ready.1.contains(&named), "{ready:?}");
    ring.rebate.await_printed("a server of the ring is slow").expect("a line in the log");
    let value = ring.rebate.client().get(&slow[0]);
    assert_eq!(value, Ok(Some(slow[0].clone().into_bytes())), "a late answer");
    delay_ms.store(0, Ordering::SeqCst);
    assert!(poll_for(BACK_LIMIT, || is_slow(0.0)).is_some(), "{}", ring.metrics());
    reader.assert_no_errors();
}

#[test]
fn a_server_without_an_address_leaves_the_ring() {
    let (first, second) = (Server::memcached(&[]), Server::memcached(&[]));
    let unknown = "nowhere.invalid:11211";
    let url = format!("memcached://{},{},{unknown}", first.addr(), second.addr());
    let rebate = serve(&url, &["--set", "store.lost_keys=miss"]);
    let admin = rebate.admin().expect("admin pages");
    let is_out =
        || page(admin, "/readyz")?.1.contains("nowhere.invalid:11211 is out").then_some(());
    assert!(poll_for(TIMEOUT, is_out).is_some(), "{:?}", page(admin, "/readyz"));
    let mut client = rebate.client();
    assert!((0..60).all(|index| client.get(&format!("key_{index}")) == Ok(None)));
}

#[test]
fn a_flapping_server_disturbs_no_other() {
    let mut ring = Ring::start(&[]);
    let (_, others) = ring.keys();
    let reader = Reader::start(ring.rebate.addr(), others);
    for _ in 0..4 {
        ring.third.kill();
        thread::sleep(Duration::from_millis(300));
        ring.restart_third();
        thread::sleep(Duration::from_millis(300));
    }
    ring.await_back();
    reader.assert_no_errors();
}

/// Sends a line and returns the lines of the answer.
fn lines(client: &mut Client, line: &str) -> Vec<String> {
    let answer = client.ask(line.as_bytes());
    String::from_utf8_lossy(&answer.bytes).lines().map(str::to_owned).collect()
}

#[test]
fn gets_of_several_keys_have_the_other_servers_values() {
    let mut ring = Ring::start(&[]);
    let (lost, others) = ring.keys();
    ring.third.kill();
    ring.await_out("failures");
    let mut client = ring.rebate.client();
    let all = [&lost[..], &others[..]].concat().join(" ");
    for command in ["get", "gets", "gat 100", "gats 100"] {
        let lines = lines(&mut client, &format!("{command} {all}"));
        let values = lines.iter().filter(|line| line.starts_with("VALUE ")).count();
        let last = lines.last().map(String::as_str);
        assert_eq!((values, last), (others.len(), Some("SERVER_ERROR the store is down")));
    }
    let metas: Vec<String> = [&lost[0], &others[0]].map(|key| format!("mg {key} v")).to_vec();
    let answer = lines(&mut client, &metas.join("\r\n"));
    let expected =
        ["SERVER_ERROR the store is down", &format!("VA {}", others[0].len()), &others[0]];
    assert_eq!(answer, expected);
}

#[test]
fn every_error_answer_is_counted_once() {
    let mut ring = Ring::start(&[]);
    let (lost, _) = ring.keys();
    ring.third.kill();
    ring.await_out("failures");
    let mut client = ring.rebate.client();
    let server = format!("server=\"{}\"", ring.name);
    let key = &lost[0];
    for (command, name) in [
        (format!("get {}", lost.join(" ")), "get"),
        (format!("gat 10 {key}"), "gat"),
        (format!("set {key} 0 0 1\r\n1"), "set"),
        (format!("delete {key}"), "delete"),
        (format!("touch {key} 10"), "touch"),
        (format!("incr {key} 1"), "incr"),
        (format!("mg {key} v"), "mg"),
        (format!("ms {key} 1\r\n1"), "ms"),
        (format!("md {key}"), "md"),
        (format!("ma {key}"), "ma"),
    ] {
        for _ in 0..7 {
            assert_eq!(lines(&mut client, &command), ["SERVER_ERROR the store is down"]);
        }
        let command = format!("command=\"{name}\"");
        let parts = ["rebate_errors_total{", &command, "kind=\"out\"", &server];
        assert_eq!(sum(&ring.metrics(), &parts), 7.0, "{name}");
    }
}

#[test]
fn lost_keys_may_be_misses_and_their_writes_errors() {
    let mut ring = Ring::start(&["--set", "store.lost_keys=miss"]);
    let (lost, others) = ring.keys();
    ring.third.kill();
    ring.await_out("failures");
    let mut client = ring.rebate.client();
    let all = [&lost[..], &others[..]].concat().join(" ");
    let found = lines(&mut client, &format!("get {all}"));
    assert_eq!(
        (found.len(), found.last().map(String::as_str)),
        (2 * others.len() + 1, Some("END"))
    );
    assert_eq!(lines(&mut client, &format!("mg {} v", lost[0])), ["EN"]);
    assert_eq!(client.set(&lost[0], b"1").as_deref(), Ok("SERVER_ERROR the store is down"));
    let server = format!("server=\"{}\"", ring.name);
    let misses = sum(&ring.metrics(), &["rebate_ring_misses_total{", &server]);
    assert_eq!(misses, lost.len() as f64 + 1.0);
}

#[test]
fn the_next_server_keeps_items_for_a_short_time() {
    let settings = ["--set", "store.lost_keys=next", "--set", "store.next_ttl_s=100"];
    let ring = Ring::start(&settings);
    let (lost, others) = ring.keys();
    let key = &lost[0];
    ring.third.stop().expect("it stands still");
    ring.await_out("silence");
    let mut client = ring.rebate.client();
    assert_eq!(client.get(key), Ok(None), "the next server has no copy");
    let ttl_s = |client: &mut Client, key: &str| {
        let line = lines(client, &format!("mg {key} t")).concat();
        line.strip_prefix("HD t").and_then(|ttl| ttl.parse::<i32>().ok()).unwrap_or(i32::MAX)
    };
    for write in [
        format!("set {key} 0 0 1\r\n1"),
        format!("set {key} 0 5000 1\r\n1"),
        format!("ms {key} 1\r\n1"),
        format!("touch {key} 0"),
        format!("gat 0 {key}"),
    ] {
        let _ = lines(&mut client, &write);
        let ttl_s = ttl_s(&mut client, key);
        assert!((90..=100).contains(&ttl_s), "{write}: {ttl_s}");
    }
    let _ = lines(&mut client, &format!("touch {} 0", others[0]));
    assert_eq!(lines(&mut client, &format!("mg {} t", others[0])), ["HD t-1"]);
    ring.third.go_on();
    ring.await_back();
    assert_eq!(client.get(key), Ok(Some(key.clone().into_bytes())), "its server has the old value");
}

/// A server whose list of servers is in a file.
struct Listed {
    rebate: Server,
    file: tempfile::NamedTempFile,
    reloads: f64,
}

impl Listed {
    fn start(list: &str) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file");
        write_list(&file, list);
        let path = file.path().to_str().expect("a path of ASCII");
        let rebate = Server::rebate(&[
            "serve",
            "--config",
            path,
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ]);
        Self { rebate, file, reloads: 0.0 }
    }

    fn metrics(&self) -> String {
        page(self.rebate.admin().expect("admin pages"), "/metrics").expect("metrics").1
    }

    /// Changes the list and waits until it is in use.
    fn change(&mut self, list: &str) {
        write_list(&self.file, list);
        self.rebate.signal(Signal::HUP);
        self.reloads += 1.0;
        let is_done = || {
            let count = sum(&self.metrics(), &["rebate_ring_changes_total "]);
            (count == self.reloads).then_some(())
        };
        assert!(poll_for(TIMEOUT, is_done).is_some(), "{}", self.rebate.output());
    }
}

fn write_list(file: &tempfile::NamedTempFile, list: &str) {
    let text =
        format!("[store]\nurl = \"memcached://{list}\"\ndistribution = \"ketama-weighted\"\n");
    std::fs::write(file.path(), text).expect("the file can be written");
}

#[test]
fn a_hundred_changes_of_the_list_give_no_error() {
    let servers = [Server::memcached(&[]), Server::memcached(&[]), Server::memcached(&[])];
    let [a, b, c] = servers.each_ref().map(Server::addr);
    let lists = [format!("{a},{b}"), format!("{a},{b},{c}"), format!("{a}:3,{c}")];
    let mut listed = Listed::start(&lists[2]);
    let load = Load::start(listed.rebate.addr());
    for list in lists.iter().cycle().take(100) {
        listed.change(list);
    }
    load.await_good(100);
    assert_eq!(load.missed().0, 0, "errors");
    assert_eq!(load.stop(), Vec::<String>::new());
}

#[test]
fn only_the_keys_of_a_removed_server_move() {
    let servers = [Server::memcached(&[]), Server::memcached(&[]), Server::memcached(&[])];
    let [a, b, c] = servers.each_ref().map(Server::addr);
    let mut listed = Listed::start(&format!("{a},{b},{c}"));
    let mut client = listed.rebate.client();
    let keys: Vec<String> = (0..1_000).map(|index| format!("key_{index}")).collect();
    for key in &keys {
        assert_eq!(client.set(key, b"1").as_deref(), Ok("STORED"));
    }
    let kept = servers[0].stat("curr_items").zip(servers[1].stat("curr_items"));
    let kept = kept.map(|(a, b)| (a + b) as usize).expect("both answer");
    let hits = |client: &mut Client| {
        keys.iter().filter(|key| client.get(key).expect("an answer").is_some()).count()
    };
    listed.change(&format!("{a},{b}"));
    assert_eq!(hits(&mut client), kept);
    listed.change(&format!("{a},{b},{c}"));
    assert_eq!(hits(&mut client), keys.len(), "every key is where it was");
}

/// A DNS server for one name. `None` as a list of ports fails the lookup.
struct Dns {
    addr: SocketAddr,
    ports: Arc<Mutex<Option<Vec<u16>>>>,
}

impl Dns {
    fn start(ports: &[u16]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let addr = socket.local_addr().expect("a bound socket");
        let ports = Arc::new(Mutex::new(Some(ports.to_vec())));
        let shared = Arc::clone(&ports);
        thread::spawn(move || {
            let mut query = [0; 1_500];
            while let Ok((bytes, from)) = socket.recv_from(&mut query) {
                let ports = shared.lock().expect("no panic").clone();
                let _ = socket.send_to(&answer(&query[..bytes], ports.as_deref()), from);
            }
        });
        Self { addr, ports }
    }

    fn set(&self, ports: Option<&[u16]>) {
        *self.ports.lock().expect("no panic") = ports.map(<[u16]>::to_vec);
    }
}

/// Answers a question for A with 127.0.0.1, and for SRV with a record for each port.
fn answer(query: &[u8], ports: Option<&[u16]>) -> Vec<u8> {
    let name_end = 12 + query[12..].iter().position(|byte| *byte == 0).expect("a name") + 1;
    let kind = u16::from_be_bytes([query[name_end], query[name_end + 1]]);
    let records: Vec<Vec<u8>> = match (kind, ports) {
        (1, Some(_)) => vec![vec![127, 0, 0, 1]],
        (33, Some(ports)) => ports
            .iter()
            .map(|port| {
                let [high, low] = port.to_be_bytes();
                let head = [0, 0, 0, 50, high, low];
                [&head[..], b"\x03127\x010\x010\x011\x00"].concat()
            })
            .collect(),
        _ => Vec::new(),
    };
    let code = if ports.is_some() { 0x80 } else { 0x82 };
    let mut out = [&query[..2], &[0x81, code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]].concat();
    out.extend_from_slice(&query[12..name_end + 4]);
    for data in records {
        let [high, low] = kind.to_be_bytes();
        out.extend_from_slice(&[0xc0, 12, high, low, 0, 1, 0, 0, 0, 1, 0, data.len() as u8]);
        out.extend_from_slice(&data);
    }
    out
}

fn metrics_of(server: &Server) -> String {
    page(server.admin().expect("admin pages"), "/metrics").expect("metrics").1
}

/// Waits until the ring has exactly the servers with these ports.
fn await_servers(rebate: &Server, ports: &[u16]) {
    let names: Vec<String> = ports
        .iter()
        .map(|port| format!("rebate_ring_server_in{{server=\"127.0.0.1:{port}\"}}"))
        .collect();
    let is_so = || {
        let metrics = metrics_of(rebate);
        let count =
            metrics.lines().filter(|line| line.starts_with("rebate_ring_server_in{")).count();
        (count == ports.len() && names.iter().all(|name| metrics.contains(name))).then_some(())
    };
    assert!(poll_for(TIMEOUT, is_so).is_some(), "{}\n{}", metrics_of(rebate), rebate.output());
}

#[test]
fn srv_records_are_the_list_and_change_it() {
    let servers = [Server::memcached(&[]), Server::memcached(&[])];
    let [a, b] = servers.each_ref().map(|server| server.addr().port());
    let dns = Dns::start(&[a]);
    let resolver = format!("store.resolver={}", dns.addr);
    let settings = ["--set", &resolver, "--set", "store.resolve_every_s=1"];
    let rebate = serve("memcached://dnssrv+_memcache._tcp.cache.test.", &settings);
    assert_eq!(rebate.client().set("key", b"1").as_deref(), Ok("STORED"), "known at the start");
    await_servers(&rebate, &[a]);
    dns.set(Some(&[a, b]));
    await_servers(&rebate, &[a, b]);
    dns.set(None);
    let failed = || {
        let count = sum(&metrics_of(&rebate), &["rebate_ring_lookups_total{", "failure"]);
        (count > 0.0).then_some(())
    };
    assert!(poll_for(TIMEOUT, failed).is_some(), "a lookup fails");
    await_servers(&rebate, &[a, b]);
    dns.set(Some(&[b]));
    await_servers(&rebate, &[b]);
}

#[test]
fn addresses_of_a_name_are_the_list() {
    let server = Server::memcached(&[]);
    let port = server.addr().port();
    let dns = Dns::start(&[]);
    let resolver = format!("store.resolver={}", dns.addr);
    let rebate = serve(&format!("memcached://dns+cache.test.:{port}"), &["--set", &resolver]);
    assert_eq!(rebate.client().set("key", b"1").as_deref(), Ok("STORED"));
    await_servers(&rebate, &[port]);
}

#[test]
fn a_name_may_be_found_after_the_start() {
    let server = Server::memcached(&[]);
    let port = server.addr().port();
    let dns = Dns::start(&[port]);
    dns.set(None);
    let resolver = format!("store.resolver={}", dns.addr);
    let settings = ["--set", &resolver, "--set", "store.resolve_every_s=1"];
    let rebate = serve("memcached://dnssrv+cache.test.", &settings);
    let error = rebate.client().get("key").expect_err("no server is known");
    assert_eq!(error, "SERVER_ERROR the store is down");
    let ready = page(rebate.admin().expect("admin pages"), "/readyz").expect("a page");
    assert!(ready.0 == 503 && ready.1.contains("no servers"), "{ready:?}");
    dns.set(Some(&[port]));
    await_servers(&rebate, &[port]);
}

#[test]
fn a_name_that_is_never_found_holds_up_no_change() {
    let servers = [Server::memcached(&[]), Server::memcached(&[])];
    let [a, b] = servers.each_ref().map(Server::addr);
    let dns = Dns::start(&[]);
    dns.set(None);
    let file = tempfile::NamedTempFile::new().expect("a file");
    let write = |list: &str| {
        let text = format!(
            "[store]\nurl = \"memcached://{list}\"\nresolver = \"{}\"\nresolve_every_s = 1\n",
            dns.addr
        );
        std::fs::write(file.path(), text).expect("the file can be written");
    };
    write(&a.to_string());
    let path = file.path().display().to_string();
    let listen = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let rebate = Server::rebate(&[&["serve", "--config", &path], &listen[..]].concat());
    await_servers(&rebate, &[a.port()]);
    write(&format!("{a},{b},dnssrv+cache.test."));
    rebate.signal(Signal::HUP);
    await_servers(&rebate, &[a.port(), b.port()]);
    let ready = page(rebate.admin().expect("admin pages"), "/readyz").expect("a page");
    let said = "dnssrv+cache.test. is not found for ";
    assert!(ready.0 == 200 && ready.1.contains(said), "{ready:?}");
    assert!(ready.1.contains("; it has no servers yet: "), "{ready:?}");
    let found = "rebate_ring_name_found{name=\"dnssrv+cache.test.\"} 0";
    assert!(metrics_of(&rebate).contains(found), "{}", metrics_of(&rebate));
    rebate.await_printed("a name of the ring was not found").expect("a line in the log");
    write("dnssrv+cache.test.");
    rebate.signal(Signal::HUP);
    let await_count = |parts: &[&str], count: f64| {
        let is_there = || (sum(&metrics_of(&rebate), parts) >= count).then_some(());
        assert!(poll_for(TIMEOUT, is_there).is_some(), "{parts:?}: {}", metrics_of(&rebate));
    };
    await_count(&["rebate_config_reloads_total{", "success"], 2.0);
    let failures = ["rebate_ring_lookups_total{", "failure"];
    await_count(&failures, sum(&metrics_of(&rebate), &failures) + 2.0);
    await_servers(&rebate, &[a.port(), b.port()]);
    dns.set(Some(&[b.port()]));
    await_servers(&rebate, &[b.port()]);
    rebate.await_printed("a name of the ring is found again").expect("a line in the log");
}

#[test]
fn nodes_of_elasticache_are_the_list_and_change_it() {
    let servers = [Server::memcached(&[]), Server::memcached(&[])];
    let [a, b] = servers.each_ref().map(|server| server.addr().port());
    let endpoint = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = endpoint.local_addr().expect("a bound socket");
    let nodes = Arc::new(Mutex::new(format!("|127.0.0.1|{a}")));
    let shared = Arc::clone(&nodes);
    thread::spawn(move || {
        for mut client in endpoint.incoming().flatten() {
            let _ = client.read(&mut [0; 100]);
            let list = format!("12\n{}\n", shared.lock().expect("no panic"));
            let text = format!("CONFIG cluster 0 {}\r\n{list}\r\nEND\r\n", list.len());
            let _ = client.write_all(text.as_bytes());
        }
    });
    let url = format!("memcached://elasticache+{address}");
    let rebate = serve(&url, &["--set", "store.resolve_every_s=1"]);
    await_servers(&rebate, &[a]);
    *nodes.lock().expect("no panic") = format!("|127.0.0.1|{a} |127.0.0.1|{b}");
    await_servers(&rebate, &[a, b]);
}
