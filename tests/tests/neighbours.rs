//! Tests what the other clients of a server see while one client or many misbehave: their failures and latencies, the
//! memory of the process, and whether the health pages tell the truth. These tests cover only clients that misbehave.
//! Devices, logs and stores have their own files.
//!
//! `REBATE_BIN=target/release/rebate cargo test -p rebate-tests --test neighbours -- --nocapture --test-threads 1`
//! prints the numbers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rebate_tests::bystander::Report;
use rebate_tests::http::page_within;
use rebate_tests::payload::random;
use rebate_tests::{Bystander, MemoryWatch, Server, TIMEOUT, poll_for};

const MIB: u64 = 1 << 20;

/// The product's default limits. The other tests use longer limits.
const LIMITS: [&str; 6] = [
    "--set",
    "store.timeout_ms=1000",
    "--set",
    "store.connect_timeout_ms=500",
    "--admin-listen",
    "127.0.0.1:0",
];

/// The time for which a bystander is watched. It is long enough that one second of failures is visible.
const WATCHED: Duration = Duration::from_secs(4);

/// A request that takes at least this long counts as delayed by another client. An undisturbed request takes
/// well below a millisecond. The bound allows for a machine whose cores are busy with other work for a while.
const KEPT: Duration = Duration::from_millis(400);

/// Threads that misbehave until this value is dropped.
struct Attack {
    stop: Arc<AtomicBool>,
    bytes: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    /// Runs `act` on `threads` threads, repeatedly, until the attack ends.
    fn start(threads: usize, act: impl Fn(usize, &AtomicU64) + Clone + Send + 'static) -> Self {
        let (stop, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let start = |index| {
            let (stop, bytes, act) = (Arc::clone(&stop), Arc::clone(&bytes), act.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    act(index, &bytes);
                }
            })
        };
        Self { threads: (0..threads).map(start).collect(), stop, bytes }
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("the server accepts");
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    stream
}

fn rebate(store: &str, compress: &str, more: &[&str]) -> Server {
    Server::rebate_serve(store, compress, &[&LIMITS, more].concat())
}

fn set(server: &Server, key: &str, value: &[u8]) {
    assert_eq!(server.client().set(key, value).as_deref(), Ok("STORED"));
}

fn is_healthy(server: &Server) -> bool {
    let admin = server.admin().expect("admin pages are on");
    let is_ok = |path| page_within(admin, path, TIMEOUT).is_some_and(|(status, _)| status == 200);
    is_ok("/healthz") && is_ok("/readyz")
}

/// Watches bystanders without and with the attack. Prints both results and returns the second.
fn compare(
    name: &str,
    server: &Server,
    value_bytes: usize,
    attack: impl FnOnce() -> Attack,
) -> Report {
    let quiet = Bystander::observe(server.addr(), 2, value_bytes, WATCHED / 2);
    let memory = MemoryWatch::start(server.id());
    let before = memory.peak_bytes();
    let attack = attack();
    let report = Bystander::observe(server.addr(), 2, value_bytes, WATCHED);
    let bytes = attack.bytes();
    println!(
        "{name}: {} requests, {} failed, p50 {:?} (quiet {:?}), p99 {:?} (quiet {:?}, ratio {:.1}), max {:?}, \
         RSS {} to {} MiB, attackers read {} MiB",
        report.latencies.len(),
        report.failures.len(),
        report.quantile(0.5),
        quiet.quantile(0.5),
        report.quantile(0.99),
        quiet.quantile(0.99),
        report.quantile(0.99).as_secs_f64() / quiet.quantile(0.99).as_secs_f64(),
        report.quantile(1.0),
        before / MIB,
        memory.peak_bytes() / MIB,
        bytes / MIB,
    );
    assert!(is_healthy(server), "the health pages do not say ok under {name}");
    drop(attack);
    report
}

fn assert_undisturbed(report: &Report) {
    assert!(report.failures.is_empty(), "{:#?}", &report.failures[..report.failures.len().min(5)]);
    let p99 = report.quantile(0.99);
    assert!(p99 < KEPT, "one request in a hundred took {p99:?} or more");
}

/// Sends gets of a large value, 17 kB of requests per second, and reads nothing.
fn get_and_read_nothing(addr: SocketAddr, line: &[u8]) {
    let mut stream = connect(addr);
    let since = Instant::now();
    while since.elapsed() < WATCHED {
        if stream.write_all(line).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Pipelines gets of a large value and reads every answer.
fn get_and_read_all(addr: SocketAddr, line: &[u8], bytes: &AtomicU64) {
    let mut stream = connect(addr);
    let mut sink = vec![0; 256 << 10];
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        if stream.write_all(line).is_err() {
            return;
        }
        match stream.read(&mut sink) {
            Ok(0) | Err(_) => return,
            Ok(read) => _ = bytes.fetch_add(read as u64, Ordering::Relaxed),
        }
    }
}

#[test]
fn gets_of_a_large_value_do_not_hold_up_others() {
    let store = Server::memcached(&[]);
    let ours = rebate(&store.as_store(), "on", &["--threads", "1"]);
    set(&ours, "large", &random(1_000_000));
    let (addr, line) = (ours.addr(), b"get large\r\n".repeat(16));
    for (name, reads) in [("unread gets", false), ("gets that are read", true)] {
        let line = line.clone();
        let report = compare(name, &ours, 200, || {
            Attack::start(1, move |_, bytes| {
                if reads {
                    get_and_read_all(addr, &line, bytes);
                } else {
                    get_and_read_nothing(addr, &line);
                }
            })
        });
        assert_undisturbed(&report);
    }
    assert_eq!(ours.stat("upstream_timeouts"), Some(0), "the server answered all the time");
}

#[test]
fn gets_of_many_large_keys_do_not_hold_up_others() {
    let store = Server::memcached(&[]);
    let ours = rebate(&store.as_store(), "on", &["--threads", "1"]);
    set(&ours, "large", &random(1_000_000));
    let addr = ours.addr();
    let line = [b"get".to_vec(), b" large".repeat(64), b"\r\n".to_vec()].concat().repeat(16);
    let report = compare("multi-gets of 64 MB", &ours, 200, || {
        Attack::start(2, move |_, bytes| get_and_read_all(addr, &line, bytes))
    });
    assert_undisturbed(&report);
    assert_eq!(ours.stat("upstream_timeouts"), Some(0), "the server answered all the time");
}

/// Requests many missing keys, as a client with short answers does. Then requests long values and disconnects.
fn look_polite_and_ask_for_much(addr: SocketAddr, line: &[u8]) {
    let mut stream = connect(addr);
    let mut answers = vec![0; 128 * b"END\r\n".len()];
    let is_known = stream.write_all(&b"get missing\r\n".repeat(128)).is_ok()
        && stream.read_exact(&mut answers).is_ok();
    if is_known {
        let _ = stream.write_all(line);
    }
}

#[test]
fn clients_that_look_polite_do_not_hold_up_others() {
    let store = Server::memcached(&[]);
    let ours = rebate(&store.as_store(), "on", &["--threads", "1"]);
    set(&ours, "large", &random(1_000_000));
    let addr = ours.addr();
    let line = [b"get".to_vec(), b" large".repeat(64), b"\r\n".to_vec()].concat();
    let report = compare("multi-gets after short answers", &ours, 200, || {
        Attack::start(32, move |_, _| look_polite_and_ask_for_much(addr, &line))
    });
    assert_undisturbed(&report);
    // Disconnected clients occupy their places until their answers fail, so a new client may have to retry.
    let timeouts = poll_for(TIMEOUT, || ours.stat("upstream_timeouts"));
    assert_eq!(timeouts, Some(0), "the server answered all the time");
}

/// A store that accepts gets and never answers them.
struct MuteStore {
    addr: SocketAddr,
    /// The number of gets received on each connection.
    gets: Arc<Mutex<Vec<usize>>>,
}

impl MuteStore {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let gets = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&gets);
        thread::spawn(move || {
            for (index, stream) in listener.incoming().flatten().enumerate() {
                shared.lock().expect("no thread panics").push(0);
                let gets = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut answers = stream.try_clone().expect("a descriptor");
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        if line.starts_with("get ") {
                            gets.lock().expect("no thread panics")[index] += 1;
                        } else {
                            let _ = answers.write_all(b"MN\r\n");
                        }
                    }
                });
            }
        });
        Self { addr, gets }
    }

    fn gets(&self) -> Vec<usize> {
        self.gets.lock().expect("no thread panics").clone()
    }
}

/// Checks that gets of unknown keys do not delay short exchanges, although any of these keys may have a long
/// value. Most of the gets must use the connection for long exchanges, so that few of them share the
/// connection of short exchanges.
#[test]
fn unknown_clients_take_few_places_among_short_exchanges() {
    const CLIENTS: usize = 300;
    let store = MuteStore::start();
    let more = ["--threads", "1", "--set", "store.timeout_ms=60000"];
    let ours = rebate(&format!("memcached://{}", store.addr), "on", &more);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(ours.addr())).collect();
    for (index, stream) in clients.iter_mut().enumerate() {
        stream.write_all(format!("get unknown{index}\r\n").as_bytes()).expect("the server reads");
    }
    let all = poll_for(TIMEOUT, || (store.gets().iter().sum::<usize>() == CLIENTS).then_some(()));
    let mut gets = store.gets();
    assert!(all.is_some(), "{gets:?} of {CLIENTS}");
    gets.retain(|count| *count > 0);
    gets.sort_unstable();
    println!("gets on each connection to the store: {gets:?}");
    assert!(matches!(gets[..], [1..=16, _]), "{gets:?}: 16 may share the short one's connection");
}

/// Opens connections that each begin to send a value of 1 MB and then send a byte now and then.
fn begin_values(addr: SocketAddr, connections: usize) -> Attack {
    Attack::start(1, move |_, _| {
        let mut streams: Vec<TcpStream> = (0..connections).map(|_| connect(addr)).collect();
        for (index, stream) in streams.iter_mut().enumerate() {
            let _cut = stream.write_all(format!("set slow_{index} 0 0 1000000\r\n").as_bytes());
        }
        let since = Instant::now();
        while since.elapsed() < WATCHED / 2 {
            thread::sleep(Duration::from_millis(100));
            streams.retain_mut(|stream| stream.write_all(b"x").is_ok());
        }
    })
}

#[test]
fn slow_writers_do_not_hold_up_large_values_of_others() {
    let ours = rebate("embedded", "on", &["--threads", "1"]);
    let addr = ours.addr();
    let report = compare("70 slow writers", &ours, 100_000, || begin_values(addr, 70));
    assert_undisturbed(&report);
}

#[test]
fn a_value_that_stands_still_ends_with_the_idle_timeout() {
    let ours = rebate("embedded", "on", &["--set", "server.idle_timeout_s=1"]);
    let mut half = ours.client();
    half.send(b"set a 0 0 100000\r\nhalf of it").expect("the server reads");
    assert!(half.is_closed(), "a silent client keeps its place within a value");
    assert_eq!(ours.stat("slow_kicks"), Some(1));
}

/// Opens many connections that each send the request eight times and read nothing.
fn ask_and_read_nothing(addr: SocketAddr, connections: usize, line: &'static [u8]) -> Attack {
    Attack::start(1, move |_, _| {
        let mut streams: Vec<TcpStream> = (0..connections).map(|_| connect(addr)).collect();
        for _ in 0..8 {
            streams.retain_mut(|stream| stream.write_all(line).is_ok());
        }
        thread::sleep(WATCHED);
    })
}

/// Many clients request a value of 141 stored bytes that inflates to 1 MB, and never read.
#[test]
fn clients_that_never_read_hold_no_more_than_the_budget() {
    let budget = [
        "--threads",
        "1",
        "--set",
        "runtime.inflight_bytes_max=32MiB",
        "--connections-max",
        "1200",
    ];
    let ours = rebate("embedded", "on", &budget);
    set(
        &ours,
        "inflates",
        &vec![b'a'; 500_000].into_iter().chain(vec![b'b'; 500_000]).collect::<Vec<_>>(),
    );
    let addr = ours.addr();
    let memory = MemoryWatch::start(ours.id());
    let before = poll_for(TIMEOUT, || Some(memory.peak_bytes()).filter(|bytes| *bytes > 0));
    let before = before.expect("/proc tells the memory");
    let report = compare("900 clients that never read", &ours, 200, || {
        ask_and_read_nothing(addr, 900, b"get inflates\r\n")
    });
    assert_undisturbed(&report);
    let grown = memory.peak_bytes().saturating_sub(before) / MIB;
    assert!(grown <= 32 + 40, "{grown} MiB more, of a budget of 32 MiB");
}

/// Many clients request an incompressible value of memcached, and never read. The memory of such a value is
/// charged to the budget although nothing is inflated.
#[test]
fn unread_store_values_stay_within_the_budget() {
    let store = Server::memcached(&[]);
    let budget = ["--threads", "1", "--set", "runtime.inflight_bytes_max=16MiB"];
    let ours = rebate(&store.as_store(), "on", &budget);
    let value = random(1_000_000);
    set(&ours, "large", &value);
    let addr = ours.addr();
    let memory = MemoryWatch::start(ours.id());
    let before = poll_for(TIMEOUT, || Some(memory.peak_bytes()).filter(|bytes| *bytes > 0));
    let before = before.expect("/proc tells the memory");
    let report = compare("200 clients that read nothing of a store", &ours, 200, || {
        ask_and_read_nothing(addr, 200, b"get large\r\n")
    });
    assert_undisturbed(&report);
    let grown = memory.peak_bytes().saturating_sub(before) / MIB;
    assert!(grown <= 16 + 20, "{grown} MiB more, of a budget of 16 MiB");
    // A client that reads is served although others do not read.
    let found = ours.client().get("large");
    assert_eq!(found, Ok(Some(value)));
}

#[test]
fn memory_returns_to_the_system_after_a_burst() {
    let ours = rebate("embedded", "on", &["--threads", "1"]);
    set(&ours, "inflates", &[vec![b'a'; 500_000], vec![b'b'; 500_000]].concat());
    let resident = || ours.rss_bytes().expect("/proc tells the memory");
    let before = resident();
    let mut clients: Vec<_> = (0..40).map(|_| connect(ours.addr())).collect();
    for stream in &mut clients {
        stream.write_all(&b"get inflates\r\n".repeat(8)).expect("the server reads");
    }
    let burst = poll_for(TIMEOUT, || (resident() > before + 24 * MIB).then_some(()));
    assert!(burst.is_some(), "{} MiB, then {}", before / MIB, resident() / MIB);
    drop(clients);
    // The bound allows for the buffers that a worker keeps, and for fragmentation of the heap.
    let back = poll_for(TIMEOUT, || (resident() < before + 16 * MIB).then_some(()));
    assert!(back.is_some(), "{} MiB, then {}", before / MIB, resident() / MIB);
}

#[test]
fn a_small_memory_sum_is_refused_with_the_smallest_valid() {
    let output = std::process::Command::new(rebate_tests::rebate_binary())
        .args(["serve", "--check-config", "--set", "server.memory_max=100MiB"])
        .output()
        .expect("the binary starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("server.memory_max") && text.contains("give at least"), "{text}");
}
