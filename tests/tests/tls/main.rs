//! TLS of all listeners and of the connections to stores and services, against the built binary: the same bytes as
//! without TLS, who is refused, certificates that change under load, and what floods do to others.

mod expiry;
mod services;
#[path = "../tunnel/mod.rs"]
mod tunnel;
mod world;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use expiry::OF_LISTENERS;
use harness::poll_for;
use rebate_tests::{Server, TIMEOUT};
use world::{Line, World, metric, openssl_is_here};

/// Values of every length at which records, buffers or values begin to be handled differently.
const LENGTHS: [usize; 10] = [0, 1, 100, 4_096, 8_192, 16_383, 16_385, 65_537, 300_000, 1_000_000];

#[test]
fn answers_are_the_same_bytes_as_without_tls() {
    let world = World::new();
    let (server, secured) = world.server(&[]);
    let mut exchanges: Vec<Vec<u8>> = vec![
        b"get nothing\r\n".to_vec(),
        b"nonsense\r\n".to_vec(),
        b"set n 0 0 1\r\n1\r\nincr n 5\r\ndecr n 2\r\ndelete n\r\n".to_vec(),
        b"set k 7 0 5\r\nhello\r\ngets k\r\nappend k 0 0 1\r\n!\r\nget k\r\n".to_vec(),
        b"ms m 5 T0\r\nvalue\r\nmg m v s t\r\nmd m\r\nmg m v\r\n".to_vec(),
        b"set bad 0 0 3\r\nlonger\r\n".to_vec(),
        b"verbosity 1\r\nflush_all\r\n".to_vec(),
    ];
    for bytes in LENGTHS {
        let value = rebate_tests::payload::random(bytes);
        let set = format!("set v{bytes} 0 0 {bytes}\r\n");
        let get = format!("\r\nget v{bytes}\r\nget v{bytes} v{bytes}\r\n");
        exchanges.push([set.as_bytes(), &value, get.as_bytes()].concat());
    }
    let pipeline = exchanges.concat();
    exchanges.push(pipeline);
    let mut line = Line::open(&world.client(None), secured).expect("a session");
    for exchange in exchanges {
        let ask = [&exchange[..], b"mn\r\n"].concat();
        let mut plain = TcpStream::connect(server.addr()).expect("it accepts");
        plain.set_read_timeout(Some(TIMEOUT)).expect("a limit");
        let writer = plain.try_clone().expect("a clone");
        let sent = ask.clone();
        let writing = thread::spawn(move || (&writer).write_all(&sent));
        let mut expected = Vec::new();
        let mut space = vec![0; 64 << 10];
        while !expected.ends_with(b"MN\r\n") {
            let bytes = plain.read(&mut space).expect("an answer");
            expected.extend_from_slice(&space[..bytes]);
        }
        writing.join().expect("it ends").expect("it is sent");
        line.send(b"flush_all noreply\r\n").expect("sent");
        line.send(&ask).expect("sent");
        let found = line.read_until(b"MN\r\n").expect("an answer");
        let shown = String::from_utf8_lossy(&exchange[..exchange.len().min(60)]).into_owned();
        assert!(without_cas(&found) == without_cas(&expected), "{shown}");
    }
}

/// Returns the bytes with the versions of `gets` replaced, which count the writes of both clients.
fn without_cas(bytes: &[u8]) -> Vec<u8> {
    let gets = b"VALUE k 7 5 ";
    let Some(at) = bytes.windows(gets.len()).position(|part| part == gets) else {
        return bytes.to_vec();
    };
    let rest = &bytes[at + gets.len()..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    [&bytes[..at + gets.len()], &rest[digits..]].concat()
}

#[test]
fn only_clients_with_a_good_certificate_are_served() {
    let world = World::new();
    world.sign("frontend", 2100);
    world.sign("expired", 2020);
    let ca = format!("tls.ca_file={}", world.text("ca.pem"));
    let args = ["--set", &ca, "--set", "tls.client_auth=require"];
    let (server, secured) = world.server(&args);
    let ask =
        |client: Arc<tls::Client>| Line::open(&client, secured).and_then(|mut line| line.ask(b""));
    assert_eq!(ask(world.client(Some("frontend"))).expect("it is served"), b"MN\r\n");
    let stranger = World::new();
    stranger.sign("stranger", 2100);
    std::fs::copy(stranger.path("stranger.pem"), world.path("stranger.pem")).expect("copied");
    std::fs::copy(stranger.path("stranger.key"), world.path("stranger.key")).expect("copied");
    for name in [None, Some("expired"), Some("stranger")] {
        let answer = ask(world.client(name));
        assert!(!matches!(&answer, Ok(bytes) if bytes == b"MN\r\n"), "{name:?}: {answer:?}");
    }
    let failed = "rebate_tls_handshakes_failed_total{reason=\"certificate\"}";
    let counted = poll_for(TIMEOUT, || (metric(&server, failed) == 3.0).then_some(()));
    assert!(counted.is_some(), "{}", metric(&server, failed));
}

#[test]
fn clients_refuse_a_server_that_they_cannot_trust() {
    let world = World::new();
    let (_server, secured) = world.server(&[]);
    let other = World::new();
    let problem = Line::open(&other.client(None), secured).err().expect("unknown authority");
    assert!(problem.to_string().contains("invalid peer certificate"), "{problem}");
    world.sign("server", 2020);
    let (_expired, secured) = world.server(&[]);
    let problem = Line::open(&world.client(None), secured).err().expect("an expired certificate");
    assert!(problem.to_string().to_lowercase().contains("expired"), "{problem}");
}

#[test]
fn certificates_change_under_load_without_an_error() {
    let world = World::new();
    let (server, secured) = world.server(&[]);
    let client = world.client(None);
    let stop = Arc::new(AtomicBool::new(false));
    let load = |stays: bool| {
        let (stop, client) = (Arc::clone(&stop), Arc::clone(&client));
        thread::spawn(move || -> std::io::Result<u64> {
            let mut line = Line::open(&client, secured)?;
            let mut asked = 0;
            while !stop.load(Ordering::Relaxed) {
                if !stays {
                    line = Line::open(&client, secured)?;
                }
                assert_eq!(line.ask(b"set k 0 0 1\r\nv\r\nget k\r\n")?[..8], *b"STORED\r\n");
                asked += 1;
            }
            Ok(asked)
        })
    };
    let clients = [load(true), load(false)];
    let expiry = OF_LISTENERS;
    let before = metric(&server, expiry);
    // By watching the files: the certificate alone first, which does not belong to the key.
    let (certificate, key) = world.signed("server", 2101);
    std::fs::write(world.path("server.pem"), certificate).expect("written");
    let failed = "rebate_tls_reloads_total{of=\"listeners\",result=\"failure\"}";
    poll_for(TIMEOUT, || (metric(&server, failed) >= 1.0).then_some(())).expect("it is counted");
    assert_eq!(metric(&server, expiry), before, "the old certificate stays");
    std::fs::write(world.path("server.key"), key).expect("written");
    poll_for(TIMEOUT, || (metric(&server, expiry) > before).then_some(())).expect("taken over");
    // By memcached's command, and by the signal.
    let mut line = Line::open(&client, secured).expect("a session");
    assert_eq!(line.ask(b"refresh_certs\r\n").expect("an answer"), b"OK\r\nMN\r\n");
    let reloads = "rebate_tls_reloads_total{of=\"listeners\",result=\"success\"}";
    let so_far = metric(&server, reloads);
    server.signal(rustix::process::Signal::HUP);
    poll_for(TIMEOUT, || (metric(&server, reloads) > so_far).then_some(())).expect("reloaded");
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(client.join().expect("it ends").expect("no error") > 0);
    }
}

#[test]
fn a_wrong_file_for_other_servers_does_not_hold_up_the_listeners() {
    let world = World::new();
    let trusted = world.path("trusted.pem");
    std::fs::copy(world.path("ca.pem"), &trusted).expect("a copy");
    let ca = format!("tls.upstream_ca_file={}", trusted.display());
    let store = ["--store", "memcached://tls://127.0.0.1:1", "--set", &ca];
    let (server, secured) = world.server(&store);
    let mut line = Line::open(&world.client(None), secured).expect("a session");
    assert_eq!(line.ask(b"refresh_certs\r\n").expect("an answer"), b"OK\r\nMN\r\n");
    let reloads = |of: &str, result: &str| {
        metric(&server, &format!("rebate_tls_reloads_total{{of=\"{of}\",result=\"{result}\"}}"))
    };
    let before = (reloads("listeners", "success"), reloads("upstream", "success"));
    std::fs::write(&trusted, "no certificate").expect("written");
    let expiry = OF_LISTENERS;
    let expires = metric(&server, expiry);
    let (certificate, key) = world.signed("server", 2101);
    std::fs::write(world.path("server.pem"), certificate).expect("written");
    std::fs::write(world.path("server.key"), key).expect("written");
    let answer = line.ask(b"refresh_certs\r\n").expect("an answer");
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("ERROR connections to other servers: /"), "{answer}");
    assert!(metric(&server, expiry) > expires, "the listeners have the new certificate");
    assert!(reloads("listeners", "success") > before.0);
    assert!(reloads("upstream", "failure") >= 1.0);
    assert_eq!(reloads("upstream", "success"), before.1);
}

/// Returns the number of rotations of a test run: 40, or that of `REBATE_TLS_ROTATIONS`.
fn rotations() -> usize {
    let wanted = std::env::var("REBATE_TLS_ROTATIONS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(40)
}

#[test]
fn many_rotations_under_load_cause_no_error() {
    let world = World::new();
    let (server, secured) = world.server(&[]);
    let client = world.client(None);
    let stop = Arc::new(AtomicBool::new(false));
    let load = |stays: bool| {
        let (stop, client) = (Arc::clone(&stop), Arc::clone(&client));
        thread::spawn(move || -> std::io::Result<u64> {
            let mut line = Line::open(&client, secured)?;
            let mut asked = 0;
            while !stop.load(Ordering::Relaxed) {
                if !stays {
                    line = Line::open(&client, secured)?;
                }
                assert_eq!(line.ask(b"set k 0 0 1\r\nv\r\nget k\r\n")?[..8], *b"STORED\r\n");
                asked += 1;
            }
            Ok(asked)
        })
    };
    let clients = [load(true), load(true), load(false), load(false)];
    let mut operator = Line::open(&client, secured).expect("a session");
    let expiry = OF_LISTENERS;
    let mut last = metric(&server, expiry);
    for rotation in 0..rotations() {
        let year = 2101 + rotation as i32;
        world.sign("server", year);
        assert_eq!(operator.ask(b"refresh_certs\r\n").expect("an answer"), b"OK\r\nMN\r\n");
        // Every new certificate is in use at once.
        let expires = metric(&server, expiry);
        assert!(expires > last, "rotation {rotation}: {expires} after {last}");
        last = expires;
    }
    stop.store(true, Ordering::Relaxed);
    let asked = clients.map(|client| client.join().expect("it ends").expect("no error"));
    println!("{} rotations, {asked:?} exchanges without an error", rotations());
    assert!(asked.iter().all(|asked| *asked > 0), "{asked:?}");
    for reason in ["plain", "version", "certificate", "closed", "other", "timeout"] {
        let failed = format!("rebate_tls_handshakes_failed_total{{reason=\"{reason}\"}}");
        assert_eq!(metric(&server, &failed), 0.0, "{reason}");
    }
}

#[test]
fn sessions_are_resumed_after_a_reload() {
    let world = World::new();
    let (_server, secured) = world.server(&[]);
    let client = world.client(None);
    let mut first = Line::open(&client, secured).expect("a session");
    assert!(!first.is_resumed());
    assert_eq!(first.ask(b"refresh_certs\r\n").expect("an answer"), b"OK\r\nMN\r\n");
    let mut second = Line::open(&client, secured).expect("a session");
    assert!(second.is_resumed());
    second.ask(b"").expect("it works");
}

#[test]
fn plain_clients_and_old_versions_are_refused() {
    let world = World::new();
    let (server, secured) = world.server(&[]);
    let mut plain = TcpStream::connect(secured).expect("it accepts");
    plain.write_all(b"get k\r\n").expect("sent");
    plain.set_read_timeout(Some(TIMEOUT)).expect("a limit");
    let read = plain.read(&mut [0; 16]);
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let counted = |reason: &str| {
        let name = format!("rebate_tls_handshakes_failed_total{{reason=\"{reason}\"}}");
        poll_for(TIMEOUT, || (metric(&server, &name) >= 1.0).then_some(())).is_some()
    };
    assert!(counted("plain"));
    if !openssl_is_here() {
        return;
    }
    let to = secured.to_string();
    let connect = |version: &str| {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &to, version, "-cipher", "DEFAULT@SECLEVEL=0"]);
        command.stdin(Stdio::null()).output().expect("openssl runs").status.success()
    };
    assert!(connect("-tls1_2"));
    assert!(!connect("-tls1_1"));
    assert!(counted("version"));
}

#[test]
fn floods_of_handshakes_and_garbage_leave_a_neighbour_alone() {
    let world = World::new();
    let (server, secured) = world.server(&["--threads", "1"]);
    let client = world.client(None);
    let mut neighbour = Line::open(&client, secured).expect("a session");
    let mut measure = || {
        let mut times: Vec<Duration> = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(3) {
            let asked = Instant::now();
            assert_eq!(neighbour.ask(b"").expect("an answer"), b"MN\r\n");
            times.push(asked.elapsed());
            thread::sleep(Duration::from_micros(500));
        }
        times.sort_unstable();
        times[times.len() * 99 / 100]
    };
    let calm = measure();
    let stop = Arc::new(AtomicBool::new(false));
    let flood = |kind: usize| {
        let (stop, client) = (Arc::clone(&stop), Arc::clone(&client));
        thread::spawn(move || {
            let mut held = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                match kind {
                    0 => drop(Line::open(&client, secured)),
                    1 => held.extend(TcpStream::connect(secured)),
                    _ => {
                        let sent = TcpStream::connect(secured);
                        let _ = sent.and_then(|mut socket| socket.write_all(&[0x16; 600]));
                    }
                }
                if held.len() > 500 {
                    held.clear();
                }
                thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let floods = [0, 1, 2].map(flood);
    let pressed = measure();
    stop.store(true, Ordering::Relaxed);
    floods.into_iter().for_each(|flood| flood.join().expect("it ends"));
    println!("p99 of a neighbour: {calm:?} alone, {pressed:?} beside the floods");
    // The clients of the flood and other tests use the same processors. Below this bound they decide, not the server.
    let most = (calm * 3).max(Duration::from_millis(20));
    assert!(pressed <= most, "{pressed:?} beside {calm:?}");
    drop(server);
}

#[test]
fn an_idle_connection_takes_at_most_24_kib() {
    let world = World::new();
    let count = 2_000;
    let limit = format!("{}", count + 100);
    let (server, secured) = world.server(&["--connections-max", &limit]);
    let client = world.client(None);
    let value = rebate_tests::payload::random(50_000);
    let set = [b"set k 0 0 50000\r\n", &value[..], b"\r\nget k\r\n"].concat();
    let mut lines: Vec<Line> = Vec::new();
    // The first connections fill the pools and the heap.
    for _ in 0..100 {
        lines.push(Line::open(&client, secured).expect("a session"));
        lines.last_mut().expect("it is there").ask(&set).expect("an answer");
    }
    let before = server.rss_bytes().expect("a number");
    for _ in 0..count - 100 {
        lines.push(Line::open(&client, secured).expect("a session"));
        lines.last_mut().expect("it is there").ask(&set).expect("an answer");
    }
    let each = (server.rss_bytes().expect("a number").saturating_sub(before)) / (count - 100);
    println!("{each} bytes for each of {count} idle connections");
    assert!(each <= 24 << 10, "{each}");
}

#[test]
fn memcached_servers_are_reached_over_tls() {
    let Some(()) = harness::needs_memcached("") else { return };
    let world = World::new();
    let (cert, key) = (world.text("server.pem"), world.text("server.key"));
    let ssl = format!("ssl_chain_cert={cert},ssl_key={key}");
    let store = Server::memcached(&["-Z", "-o", &ssl]);
    let url = format!("memcached://tls://{}", store.addr());
    let ca = format!("tls.upstream_ca_file={}", world.text("ca.pem"));
    let server = Server::rebate_serve(&url, "on", &["--set", &ca]);
    let value = rebate_tests::payload::text(100_000);
    let mut client = server.client();
    assert_eq!(client.set("k", &value).expect("an answer"), "STORED");
    assert!(client.get("k").expect("an answer") == Some(value));
    let other = World::new();
    let ca = format!("tls.upstream_ca_file={}", other.text("ca.pem"));
    let refused = Server::rebate_serve(&url, "on", &["--set", &ca]);
    assert!(refused.client().set("k", b"v").expect("an answer").starts_with("SERVER_ERROR"));
}

#[test]
fn rebate_memcached_has_memcacheds_flags_of_tls() {
    let world = World::new();
    let (cert, key) = (world.text("server.pem"), world.text("server.key"));
    let ssl = format!("ssl_chain_cert={cert},ssl_key={key}");
    let args = ["memcached", "-Z", "-l", "notls:127.0.0.1:-1,127.0.0.1", "-p", "-1"];
    let mut server = Server::rebate_with(
        rebate_tests::rebate_command().args([&args[..], &["-u", "root", "-o", &ssl]].concat()),
        Stdio::piped(),
    );
    let secured = server
        .await_ready(TIMEOUT, "the TLS listener", |process| process.printed("listening on tls://"));
    let secured = secured.expect("it listens").parse().expect("an address");
    let mut line = Line::open(&world.client(None), secured).expect("a session");
    assert_eq!(line.ask(b"get k\r\n").expect("an answer"), b"END\r\nMN\r\n");
    assert_eq!(server.client().ask(b"mn").text(), "MN\r\n");
}
