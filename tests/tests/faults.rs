//! Tests faults behind and around the built binary: a memcached that is killed, stopped and restarted, clients that
//! vanish, and a drain. Clients must never get wrong bytes, errors must be clear, and Rebate must recover without a
//! restart.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use rebate_tests::load::{check, value};
use rebate_tests::{Load, Port, Server, TIMEOUT, poll_for};
use rustix::process::Signal;

fn in_front_of(store: &Server) -> Server {
    Server::rebate_serve(&store.as_store(), "on", &[])
}

/// Starts a server in front of `store` that times out after one second without an answer from memcached.
fn impatient_in_front_of(store: &Server) -> Server {
    Server::rebate_serve(&store.as_store(), "on", &["--set", "store.timeout_ms=1000"])
}

#[test]
fn killed_memcached_gives_clear_errors_and_recovers() {
    let port = Port::free().expect("a free port");
    let mut store = Server::memcached_at(port.number(), &[]);
    let ours = in_front_of(&store);
    let load = Load::start(ours.addr());
    load.await_good(300);
    store.kill();
    load.await_errors(50);
    let _store = Server::memcached_at(port.number(), &[]);
    load.await_good(300);
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn memcached_killed_again_and_again_is_survived() {
    let port = Port::free().expect("a free port");
    let mut store = Server::memcached_at(port.number(), &[]);
    let ours = in_front_of(&store);
    let load = Load::start(ours.addr());
    for _ in 0..5 {
        load.await_good(50);
        store.kill();
        store = Server::memcached_at(port.number(), &[]);
    }
    load.await_good(100);
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn stopped_memcached_gives_an_error_in_time_and_recovers() {
    let store = Server::memcached(&[]);
    let ours = impatient_in_front_of(&store);
    let mut client = ours.client();
    let is_set = || (client.set("a", b"1").as_deref() == Ok("STORED")).then_some(());
    assert!(poll_for(TIMEOUT, is_set).is_some(), "nothing is stored");
    store.stop().expect("it stands still");
    let answer = client.get("a");
    store.go_on();
    let error = answer.expect_err("a stopped memcached cannot answer");
    assert_eq!(error, "SERVER_ERROR the store gave no answer within 1000 ms");
    let back = poll_for(TIMEOUT, || client.get("a").ok());
    assert_eq!(back, Some(Some(b"1".to_vec())));
}

#[test]
fn late_answers_never_reach_another_request() {
    let store = Server::memcached(&[]);
    let ours = impatient_in_front_of(&store);
    let load = Load::start(ours.addr());
    for _ in 0..2 {
        load.await_good(200);
        store.stop().expect("it stands still");
        load.await_errors(4);
        store.go_on();
    }
    load.await_good(200);
    let wrong = load.stop();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn memcached_may_come_after_the_start() {
    let port = Port::free().expect("a free port");
    let ours = Server::rebate_serve(&format!("memcached://{}", port.address()), "on", &[]);
    let mut client = ours.client();
    let error = client.get("a").expect_err("nobody can answer");
    assert!(error.starts_with("SERVER_ERROR "), "{error}");
    let _store = Server::memcached_at(port.number(), &[]);
    assert_eq!(poll_for(TIMEOUT, || client.get("a").ok()), Some(None));
}

#[test]
fn clients_learn_no_addresses_of_stores() {
    let closed = Port::free().expect("a free port");
    let nonsense = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let nonsense_at = nonsense.local_addr().expect("a bound socket").to_string();
    let _talker = thread::spawn(move || {
        for stream in nonsense.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"where are you, 10.9.8.7?\r\n");
        }
    });
    let cases = [
        (closed.address().to_string(), "SERVER_ERROR the store is down"),
        (nonsense_at, "SERVER_ERROR the store answered nonsense"),
    ];
    for (address, line) in cases {
        let ours = Server::rebate_serve(&format!("memcached://{address}"), "on", &[]);
        let mut client = ours.client();
        assert_eq!(client.get("a").expect_err("nobody answers"), line);
        assert_eq!(client.set("a", b"1").as_deref(), Ok(line));
        let is_named = || ours.output().contains(&address).then_some(());
        assert!(poll_for(TIMEOUT, is_named).is_some(), "the log names {address}");
    }
    let grpc = format!("grpc://{}", closed.address());
    let front = Server::rebate_serve(&grpc, "on", &["--role", "frontend"]);
    let error = front.client().get("a").expect_err("nobody answers");
    assert_eq!(error, "SERVER_ERROR the store is down");
}

#[test]
fn a_value_too_large_removes_the_old_one_or_says_that_it_could_not() {
    let mut store = Server::memcached(&[]);
    let ours = in_front_of(&store);
    let mut client = ours.client();
    let large = vec![b'x'; (1 << 20) + 1];
    let meta_set = [format!("ms a {}\r\n", large.len()).as_bytes(), &large].concat();
    assert_eq!(client.set("a", b"old").as_deref(), Ok("STORED"));
    assert_eq!(client.set("a", &large).as_deref(), Ok("SERVER_ERROR object too large for cache"));
    assert_eq!(client.get("a"), Ok(None));
    store.kill();
    let is_down = || client.get("a").is_err_and(|line| line.ends_with("is down")).then_some(());
    poll_for(TIMEOUT, is_down).expect("the store is down");
    // The old value may be there when the server comes back, so this is not the answer from above.
    assert_eq!(client.set("a", &large).as_deref(), Ok("SERVER_ERROR the store is down"));
    assert_eq!(client.ask(&meta_set).text(), "SERVER_ERROR the store is down\r\n");
    assert_eq!(client.ask(b"mn").text(), "MN\r\n");
}

#[test]
fn keys_of_live_servers_are_served_beside_a_dead_one() {
    let (first, mut second) = (Server::memcached(&[]), Server::memcached(&[]));
    let stores = format!("memcached://{},{}", first.addr(), second.addr());
    let ours = Server::rebate_serve(&stores, "on", &[]);
    let mut client = ours.client();
    let keys: Vec<String> = (0..200).map(|index| format!("key_{index}")).collect();
    for (version, key) in (0..).zip(&keys) {
        assert_eq!(client.set(key, &value(key, version)).as_deref(), Ok("STORED"));
    }
    second.kill();
    let mut served = 0;
    for key in &keys {
        match client.get(key) {
            Ok(found) => {
                assert!(found.is_some(), "{key} is on the live server and was not evicted");
                assert_eq!(check(key, found.as_deref()), Ok(()));
                served += 1;
            }
            Err(error) => assert!(error.starts_with("SERVER_ERROR "), "{key}: {error}"),
        }
    }
    // Two equal servers share 200 keys. A quarter of the keys on one server is far outside the spread of a ring with
    // 160 points per server.
    assert!((50..=150).contains(&served), "{served} of 200 keys are served");
}

#[test]
fn a_get_over_a_dead_server_keeps_the_connection() {
    let (first, mut second) = (Server::memcached(&[]), Server::memcached(&[]));
    let stores = format!("memcached://{},{}", first.addr(), second.addr());
    let ours = Server::rebate_serve(&stores, "on", &[]);
    let mut client = ours.client();
    let keys: Vec<String> = (0..50).map(|index| format!("key_{index}")).collect();
    for key in &keys {
        assert_eq!(client.set(key, &value(key, 1)).as_deref(), Ok("STORED"));
    }
    second.kill();
    let answer = client.ask(format!("get {}", keys.join(" ")).as_bytes());
    let text = answer.text();
    assert!(text.ends_with("END\r\n") || text.contains("SERVER_ERROR "), "{text}");
    assert!(client.ask(b"version").text().starts_with("VERSION "));
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let store = Server::memcached(&[]);
    for ours in [Server::rebate_memcached(&[]), in_front_of(&store)] {
        let mut watcher = ours.client();
        watcher.ask(b"mn");
        let before = ours.stat("curr_connections").expect("stats has curr_connections");
        for round in 0..200 {
            let mut client = ours.client();
            let line = format!("set vanished_{round} 0 0 5000\r\nhalf of it, then ");
            client.send(line.as_bytes()).expect("the server reads");
        }
        // Some clients vanish while the server still owes them answers.
        for _ in 0..50 {
            let gets = b"get a b c\r\n".repeat(100);
            ours.client().send(&gets).expect("the server reads");
        }
        let back = poll_for(TIMEOUT, || (ours.stat("curr_connections")? <= before).then_some(()));
        let now = ours.stat("curr_connections");
        assert!(back.is_some(), "curr_connections was {before} and is {now:?}");
        assert_eq!(watcher.get("vanished_7"), Ok(None), "half a value was stored");
        assert_eq!(watcher.set("a", b"1").as_deref(), Ok("STORED"));
    }
}

#[test]
fn silent_clients_lose_their_connections_when_memcacheds_do() {
    let option = ["-o", "idle_timeout=1"];
    for server in [Server::memcached(&option), Server::rebate_memcached(&option)] {
        let (mut silent, mut half) = (server.client(), server.client());
        silent.ask(b"mn");
        half.send(b"get half_a_li").expect("the server reads");
        assert!(silent.is_closed() && half.is_closed());
        assert_eq!(server.stat("idle_kicks"), Some(2));
    }
    let server = Server::rebate_memcached(&[]);
    let mut patient = server.client();
    patient.deadline = Duration::from_millis(1_500);
    assert!(!patient.is_closed(), "nobody asked for that");
}

#[test]
fn sigterm_answers_what_is_in_flight_and_exits_with_zero() {
    let store = Server::memcached(&[]);
    let mut ours = Server::rebate_serve(&store.as_store(), "on", &["--threads", "1"]);
    let mut client = ours.client();
    let large = value("large", 1_000);
    assert_eq!(client.set("large", &large).as_deref(), Ok("STORED"));
    store.stop().expect("it stands still");
    client.send(b"get large\r\n").expect("the server reads");
    // Makes round trips on another connection of the only thread. After them the server has read the request above and
    // sent it on.
    let mut probe = ours.client();
    for _ in 0..20 {
        probe.ask(b"mn");
    }
    ours.signal(Signal::TERM);
    store.go_on();
    let head = client.read_line();
    assert_eq!(head, Some(format!("VALUE large 0 {}", large.len())));
    assert_eq!(client.read_exact(large.len()).as_deref(), Some(&large[..]));
    let status = ours.wait_exit(TIMEOUT).expect("the drain ends");
    assert_eq!(status.code(), Some(0), "{}", ours.output());
}

#[test]
fn many_shutdown_commands_drain_like_one() {
    let store = Server::memcached(&[]);
    let args = ["--threads", "4", "--set", "server.shutdown=true"];
    let mut ours = Server::rebate_serve(&store.as_store(), "on", &args);
    let mut client = ours.client();
    let large = value("large", 1_000);
    assert_eq!(client.set("large", &large).as_deref(), Ok("STORED"));
    store.stop().expect("it stands still");
    client.send(b"get large\r\n").expect("the server reads");
    let mut others: Vec<_> = (0..40).map(|_| ours.client()).collect();
    for other in &mut others {
        other.ask(b"mn");
    }
    for other in &mut others {
        // The connection may be closed already, because the server drains.
        let _closed = other.send(b"shutdown\r\n");
    }
    assert!(others.iter_mut().all(|other| other.is_closed()));
    store.go_on();
    assert_eq!(client.read_line(), Some(format!("VALUE large 0 {}", large.len())));
    assert_eq!(client.read_exact(large.len()).as_deref(), Some(&large[..]));
    let status = ours.wait_exit(TIMEOUT).expect("the drain ends");
    assert_eq!(status.code(), Some(0), "{}", ours.output());
}

#[test]
fn sigterm_does_not_wait_for_idle_clients() {
    for mut ours in [Server::rebate_memcached(&[]), Server::rebate_serve("embedded", "on", &[])] {
        let mut idle = ours.client();
        idle.ask(b"mn");
        ours.signal(Signal::TERM);
        let status = ours.wait_exit(TIMEOUT).expect("nothing is in flight");
        assert_eq!(status.code(), Some(0), "{}", ours.output());
        assert!(idle.is_closed());
    }
}

#[test]
fn sigterm_waits_for_a_request_up_to_the_limit() {
    let limit = ["--set", "server.drain_timeout_ms=500"];
    let mut ours = Server::rebate_serve("embedded", "on", &limit);
    let mut half = ours.client();
    half.send(b"set a 0 0 100\r\nhalf").expect("the server reads");
    ours.client().ask(b"mn");
    ours.signal(Signal::TERM);
    let status = ours.wait_exit(TIMEOUT).expect("the drain has a hard limit");
    // The server may decide whether an interrupted request is a failure. It must not crash.
    assert!(status.code().is_some_and(|code| code <= 1), "{status}: {}", ours.output());
}
