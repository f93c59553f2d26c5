//! Tests real memcached clients with the built binary: the matrix of clients in `tests/clients`, libmemcached's
//! conformance tool, and libmemcached's ring. The same runs with memcached show that they are right. A client that
//! cannot be installed is a failure in CI, and is skipped with a message elsewhere.

mod matrix;
mod programs;
mod script;
mod servers;

use std::process::Command;

use programs::Language;
use rebate_client::{Cluster, Distribution, Options, Write};
use rebate_tests::{Server, TIMEOUT};

#[test]
fn memccapable_passes_what_memcached_passes() {
    for protocol in ["-a", "-b"] {
        let Some(reference) = memccapable(&Server::memcached(&[]), protocol) else { return };
        assert!(reference.len() > 20, "memccapable reports its tests: {reference:?}");
        let store = Server::memcached(&[]);
        for server in [
            Server::rebate_memcached(&[]),
            Server::rebate_serve("embedded", "on", &[]),
            Server::rebate_serve(&store.as_store(), "on", &[]),
        ] {
            assert_eq!(memccapable(&server, protocol).as_ref(), Some(&reference));
        }
    }
}

#[test]
fn ring_agrees_with_libmemcached() {
    if let Err(problem) = matrix::prepared(Language::Python) {
        return missing(&problem);
    }
    let stores = [Server::memcached(&[]), Server::memcached(&[]), Server::memcached(&[])];
    let list = stores.each_ref().map(|store| store.addr().to_string()).join(",");
    let front = Server::rebate_serve(&format!("memcached://{list}"), "off", &[]);
    let mut ring = Language::Python.program("ring.py");
    let output = ring.args([&front.addr().to_string(), &list]).output().expect("python runs");
    let [out, errors] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
    assert!(output.status.success(), "{out}{errors}");
}

#[test]
fn our_client_agrees_with_libmemcached() {
    if let Err(problem) = matrix::prepared(Language::Python) {
        return missing(&problem);
    }
    for (behavior, distribution) in
        [("ketama", Distribution::Ketama), ("ketama_weighted", Distribution::KetamaWeighted)]
    {
        let stores = [Server::memcached(&[]), Server::memcached(&[]), Server::memcached(&[])];
        let list = stores.each_ref().map(|store| store.addr().to_string());
        let options = Options { timeout: TIMEOUT, ..Options::default() };
        let mut ours = Cluster::new(&list, distribution, options).expect("servers");
        for number in 0..500 {
            let key = format!("ring_{number}_{}", number * 7919);
            ours.set(key.as_bytes(), key.as_bytes(), Write::default()).expect("stored");
        }
        let mut ring = Language::Python.program("ring.py");
        let output = ring.args(["-", &list.join(","), behavior]).output().expect("python runs");
        let [out, errors] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
        assert!(output.status.success(), "{behavior}: {out}{errors}");
    }
}

/// Returns the lines of memccapable's report on a protocol, one per test. Returns `None` if memccapable is not
/// installed.
fn memccapable(server: &Server, protocol: &str) -> Option<Vec<String>> {
    let port = server.addr().port().to_string();
    let output = Command::new("memccapable")
        .args([protocol, "-t", "30", "-h", "127.0.0.1", "-p", &port])
        .output();
    let Ok(output) = output else {
        missing("memccapable (Debian package libmemcached-tools)");
        return None;
    };
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let verdict = |line: &&str| line.contains("[pass]") || line.contains("[FAIL]");
    Some(report.lines().filter(verdict).map(str::to_owned).collect())
}

/// Fails in CI, where everything has to be there, and prints a message elsewhere.
fn missing(what: &str) {
    assert!(std::env::var_os("CI").is_none(), "CI needs what this machine lacks: {what}");
    eprintln!("SKIPPED: this machine lacks {what}");
}
