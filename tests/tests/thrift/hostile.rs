//! Tests what memcached clients of a server see while Thrift clients misbehave: their failures and latencies, and the
//! memory of the process.
//!
//! `REBATE_BIN=target/release/rebate cargo test -p rebate-tests --test thrift -- --nocapture --test-threads 1 hostile`
//! prints the numbers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rebate_tests::bystander::Report;
use rebate_tests::{Bystander, MemoryWatch, TIMEOUT};

use super::{Cache, framed, set};

const MIB: u64 = 1 << 20;

/// The time for which a bystander is watched.
const WATCHED: Duration = Duration::from_millis(1_500);

/// A request of a bystander that takes at least this long counts as delayed. An undisturbed one takes well below a
/// millisecond. The bound allows for a machine whose cores are busy with other work for a while.
const KEPT: Duration = Duration::from_millis(400);

/// The most memory that hostile clients may add to the process (bytes). The budget of values in flight is 64 MiB, and
/// each connection has buffers beside it.
const ADDED_BYTES_MAX: u64 = 300 * MIB;

/// Threads that misbehave until this value is dropped.
struct Attack {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    /// Runs `act` on `threads` threads, repeatedly, until the attack ends.
    fn start(threads: usize, act: impl Fn() + Clone + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let (stop, act) = (Arc::clone(&stop), act.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    act();
                }
            })
        };
        Self { threads: (0..threads).map(start).collect(), stop }
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

/// Watches bystanders without and with the attack. Prints both results, and checks the second.
fn assert_undisturbed(
    name: &str,
    cache: &Cache,
    value_bytes: usize,
    attack: impl FnOnce() -> Attack,
) {
    let addr = cache.server.addr();
    let quiet = Bystander::observe(addr, 2, value_bytes, WATCHED / 4);
    let memory = MemoryWatch::start(cache.server.id());
    thread::sleep(Duration::from_millis(50));
    let before = memory.peak_bytes();
    let attack = attack();
    let report = Bystander::observe(addr, 2, value_bytes, WATCHED);
    let added = memory.peak_bytes() - before;
    println!(
        "{name}: {} requests, {} failed, p50 {:?} (quiet {:?}), p99 {:?} (quiet {:?}), \
         max {:?} (quiet {:?}), RSS {} MiB and {} more",
        report.latencies.len(),
        report.failures.len(),
        report.quantile(0.5),
        quiet.quantile(0.5),
        report.quantile(0.99),
        quiet.quantile(0.99),
        report.quantile(1.0),
        quiet.quantile(1.0),
        before / MIB,
        added / MIB,
    );
    drop(attack);
    assert_report(name, &report);
    assert!(added < ADDED_BYTES_MAX, "{name}: {} MiB more", added / MIB);
}

fn assert_report(name: &str, report: &Report) {
    let failures = &report.failures;
    assert!(failures.is_empty(), "{name}: {:#?}", &failures[..failures.len().min(5)]);
    let p99 = report.quantile(0.99);
    assert!(p99 < KEPT, "{name}: one request in a hundred took {p99:?} or more");
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("the server accepts");
    stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout can be set");
    stream
}

/// Sends bytes for a second on one connection, and reads what comes.
fn send_and_read(addr: SocketAddr, bytes: &[u8]) {
    let mut stream = connect(addr);
    let mut reader = stream.try_clone().expect("a second handle");
    let reading = thread::spawn(move || {
        let mut sink = vec![0; 256 << 10];
        while reader.read(&mut sink).is_ok_and(|read| read > 0) {}
    });
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) && stream.write_all(bytes).is_ok() {}
    drop(stream);
    let _ = reading.join();
}

/// Sends bytes until the server takes no more, and reads nothing for a while.
fn send_and_read_nothing(addr: SocketAddr, bytes: &[u8]) {
    let mut stream = connect(addr);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        if stream.write_all(bytes).is_err() {
            thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Returns a get of many keys.
fn many<'a>(keys: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut arguments = b"\x0f\0\x09\x0b".to_vec();
    arguments.extend((keys.len() as u32).to_be_bytes());
    for key in keys {
        arguments.extend((key.len() as u32).to_be_bytes());
        arguments.extend(key);
    }
    arguments.push(0);
    framed("GetMany", 1, &arguments)
}

/// Returns a set of a short value, with an unknown field in front of it.
fn set_with(field: &[u8]) -> Vec<u8> {
    framed("Set", 1, &[field, b"\x0b\0\x01\0\0\0\x03key\x0b\0\x02\0\0\0\x01v\0"].concat())
}

/// A field that is a list of as many empty structs, each of which is one byte.
fn empty_structs(count: u32) -> Vec<u8> {
    let head = [&b"\x0f\0\x63\x0c"[..], &count.to_be_bytes()].concat();
    [head, vec![0; count as usize]].concat()
}

#[test]
fn hostile_calls_do_not_hold_up_others() {
    let cache = Cache::start("embedded", "on", &["--threads", "1"]);
    let addr = cache.thrift;
    let mut calls = cache.calls();
    let value = [b'v'; 300];
    for number in 0..100 {
        assert!(set(&mut calls, &format!("k{number}"), &value).result(0).is_ok());
    }
    let names: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    let hits = |count| names.iter().cycle().take(count).map(|name| name.as_bytes());
    let floods: [(&str, Vec<u8>); 8] = [
        ("gets of 200,000 keys", many(vec![&b"m"[..]; 200_000].into_iter())),
        ("gets of 50,000 keys", many(vec![&b"m"[..]; 50_000].into_iter())),
        ("gets of keys that no line can hold", many(vec![&b"\n"[..]; 50_000].into_iter())),
        ("gets of 30,000 items", many(hits(30_000).collect::<Vec<_>>().into_iter())),
        ("sets with a million unknown structs", set_with(&empty_structs(1 << 20))),
        ("sets with a million unknown fields", set_with(&b"\x02\0\x63\x01".repeat(250_000))),
        (
            "sets with keys",
            set_with(&[&b"\x0f\0\x09\x0b\0\x03\x80\0"[..], &[0; 4 * 0x38000]].concat()),
        ),
        ("statistics", framed("Stats", 1, b"\0").repeat(100)),
    ];
    for (name, bytes) in floods {
        let bytes = Arc::new(bytes);
        let read = Arc::clone(&bytes);
        assert_undisturbed(name, &cache, 200, || {
            Attack::start(2, move || send_and_read(addr, &read))
        });
        assert_undisturbed(&format!("{name}, unread"), &cache, 200, || {
            Attack::start(2, move || send_and_read_nothing(addr, &bytes))
        });
    }
}

#[test]
fn hostile_connections_do_not_hold_up_others() {
    let cache = Cache::start("embedded", "on", &["--threads", "1"]);
    let addr = cache.thrift;
    let set = framed(
        "Set",
        1,
        &[&b"\x0b\0\x01\0\0\0\x03key\x0b\0\x02\0\x0f\0\0"[..], &[b'v'; 0xf0000], b"\0"].concat(),
    );
    // Frames that their client does not finish before it is gone.
    let cut = set[..set.len() / 2].to_vec();
    assert_undisturbed("clients that end inside of a frame", &cache, 200, || {
        Attack::start(4, move || {
            let _ = connect(addr).write_all(&cut);
        })
    });
    let lies: Vec<Vec<u8>> = [i32::MAX, -1, i32::MIN, 0]
        .map(|length| [&length.to_be_bytes()[..], &set[4..4_000]].concat())
        .to_vec();
    assert_undisturbed("frames with a wrong length", &cache, 200, || {
        Attack::start(4, move || {
            for bytes in &lies {
                let mut stream = connect(addr);
                let _ = stream.write_all(bytes);
                let _ = stream.read(&mut [0; 64]);
            }
        })
    });
    let half = set[..30_000].to_vec();
    let open: Vec<TcpStream> = (0..800)
        .map(|_| {
            let mut stream = connect(addr);
            stream.write_all(&half).expect("it is sent");
            stream
        })
        .collect();
    assert_undisturbed("800 half frames", &cache, 200, || Attack::start(0, || {}));
    drop(open);
    let values = set.repeat(4);
    assert_undisturbed("values of almost the limit", &cache, 200, || {
        Attack::start(4, move || send_and_read(addr, &values))
    });
}

#[test]
fn held_answers_leave_memory_to_others() {
    let cache = Cache::start("embedded", "on", &["--threads", "1", "--memory", "256MiB"]);
    let addr = cache.thrift;
    let mut calls = cache.calls();
    let names: Vec<String> = (0..15).map(|number| format!("key{number}")).collect();
    for name in &names {
        assert!(set(&mut calls, name, &name.as_bytes().repeat(200_000)).result(0).is_ok());
    }
    let bytes = many(names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().into_iter());
    let read = bytes.clone();
    assert_undisturbed("answers of 14 MB", &cache, 100_000, || {
        Attack::start(16, move || send_and_read(addr, &read))
    });
    assert_undisturbed("answers of 14 MB, unread", &cache, 100_000, || {
        Attack::start(16, move || send_and_read_nothing(addr, &bytes))
    });
}

/// Counts how often a memcached client of the only thread is answered while a call is served.
fn answers_during(cache: &Cache, call: &[u8]) -> usize {
    let mut stream = TcpStream::connect(cache.thrift).expect("it accepts");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut client = cache.server.client();
    client.ask(b"mn");
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let asking = thread::spawn(move || {
        let mut answers = 0;
        while !is_done.load(Ordering::SeqCst) {
            client.ask(b"mn");
            answers += 1;
        }
        answers
    });
    stream.write_all(call).expect("it is sent");
    super::answer(&mut stream);
    done.store(true, Ordering::SeqCst);
    asking.join().expect("the client is answered")
}

#[test]
fn long_calls_leave_turns_to_others() {
    let cache = Cache::start("embedded", "on", &["--threads", "1"]);
    // No line can hold this key, so each is found by itself.
    let call = many(vec![&b"\n"[..]; 50_000].into_iter());
    let answers = answers_during(&cache, &call);
    assert!(answers > 5, "{answers} answers during a get of 50,000 keys");
}

#[test]
fn calls_have_limits_on_what_is_read_in_one_go() {
    let cache = Cache::start("embedded", "on", &[]);
    let mut stream = cache.connect();
    let (reply, exception) = (2, 3);
    let bool_field: &[u8] = b"\x02\0\x63\x01";
    for (bytes, kind) in [
        (many(vec![&b"k"[..]; 52_000].into_iter()), reply),
        // The error of a get of too many keys is a reply, and its frame is skipped.
        (many(vec![&b"k"[..]; 200_000].into_iter()), reply),
        (set_with(&empty_structs(2_000)), reply),
        (set_with(&empty_structs(3_000)), exception),
        (set_with(&bool_field.repeat(50)), reply),
        (set_with(&bool_field.repeat(100)), exception),
        (set_with(&[&b"\x0b\0\x63\0\x01\0\0"[..], &[0; 1 << 16]].concat()), reply),
        (framed("Version", 1, b"\0"), reply),
    ] {
        stream.write_all(&bytes).expect("it is sent");
        assert_eq!(super::answer(&mut stream).0, kind, "a call of {} bytes", bytes.len());
    }
    let keys: Vec<String> = (0..60_000).map(|number| format!("{number}")).collect();
    let answer = super::get_many(&mut cache.calls(), &keys);
    let line = answer.result(1).expect_err("too long");
    assert_eq!(line, b"SERVER_ERROR object too large for cache\r\n");
}
