//! Reads the admin pages over plain HTTP, as probes and scrapers do. The server documents which metrics exist. These
//! tests only check that the metrics are present, can be parsed, and count.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use rebate_tests::http::page;
use rebate_tests::load::Load;
use rebate_tests::payload::text;
use rebate_tests::{Port, Server, TIMEOUT, poll_for, rebate_command};
use serde_json::Value;

const ADMIN: [&str; 2] = ["--admin-listen", "127.0.0.1:0"];

fn admin_of(server: &Server) -> SocketAddr {
    server.admin().expect("the admin address is printed before `listening on`")
}

#[test]
fn probes_answer_and_other_paths_do_not() {
    let ours = Server::rebate_serve("embedded", "on", &ADMIN);
    let admin = admin_of(&ours);
    for (path, wanted) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 200), ("/nosuch", 404)]
    {
        let status = page(admin, path).map(|(status, _)| status);
        assert_eq!(status, Some(wanted), "{path}");
    }
}

#[test]
fn metrics_are_lines_of_names_and_numbers_that_change() {
    let ours = Server::rebate_serve("embedded", "on", &ADMIN);
    let admin = admin_of(&ours);
    let before = page(admin, "/metrics").expect("metrics").1;
    let mut client = ours.client();
    assert_eq!(client.set("a", &text(50_000)).as_deref(), Ok("STORED"));
    assert_eq!(client.get("a"), Ok(Some(text(50_000))));
    let after = page(admin, "/metrics").expect("metrics").1;
    for line in after.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let number = line.rsplit(' ').next().and_then(|word| word.parse::<f64>().ok());
        assert!(number.is_some(), "{line}");
    }
    assert_ne!(before, after);
}

#[test]
fn hostile_requests_do_not_end_the_admin_pages() {
    let ours = Server::rebate_serve("embedded", "on", &ADMIN);
    let admin = admin_of(&ours);
    for bytes in [vec![b'a'; 1 << 20], vec![0; 100], b"GET\r\n\r\n".to_vec(), b"GET /".to_vec()] {
        let mut stream = TcpStream::connect(admin).expect("admin accepts");
        stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout can be set");
        let _closed = stream.write_all(&bytes);
    }
    assert_eq!(page(admin, "/healthz").map(|(status, _)| status), Some(200));
}

#[test]
fn not_ready_while_memcached_is_dead_but_healthy() {
    let port = Port::free().expect("a free port");
    let mut store = Server::memcached_at(port.number(), &[]);
    let ours = Server::rebate_serve(&store.as_store(), "on", &ADMIN);
    let admin = admin_of(&ours);
    let ready = |wanted: bool| {
        poll_for(TIMEOUT, || {
            // An outage is noticed only with requests, because the store is judged by its answers.
            let _either = ours.client().get("a");
            let (status, _) = page(admin, "/readyz")?;
            ((status == 200) == wanted).then_some(())
        })
    };
    assert!(ready(true).is_some(), "not ready with a live store");
    store.kill();
    assert!(ready(false).is_some(), "ready without a store");
    assert_eq!(page(admin, "/healthz").map(|(status, _)| status), Some(200));
    let _store = Server::memcached_at(port.number(), &[]);
    assert!(ready(true).is_some(), "not ready with the store back");
}

#[test]
fn a_profile_of_a_loaded_server_names_its_work() {
    let ours = Server::rebate_serve("embedded", "on", &ADMIN);
    let admin = admin_of(&ours);
    let load = Load::start(ours.addr());
    load.await_good(10);
    let mut model = rebate_command();
    model.args(["model", "--json", "--profile", &format!("http://{admin}?seconds=3")]);
    let output = model.output().expect("rebate runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(load.stop(), Vec::<String>::new(), "samples fail no request");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let profile = &report["profile"];
    assert!(profile["samples"].as_u64() > Some(5), "{profile}");
    let leaves = profile["leaf"].as_array().expect("categories");
    let named = leaves.iter().filter(|row| row["category"] != "uncategorised");
    let share: f64 = named.filter_map(|row| row["share"].as_f64()).sum();
    assert!(share > 0.2, "{share} of the time has a category: {profile}");
}

/// Begins a profile of a minute, and returns once it runs. The first look may be quicker than the profile, which is
/// then refused, so each look has its own.
fn begun_profile(admin: SocketAddr) -> TcpStream {
    let begun = poll_for(TIMEOUT, || {
        let mut long = TcpStream::connect(admin).expect("admin accepts");
        let request = b"GET /debug/pprof?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        long.write_all(request).expect("sent");
        let look = page(admin, "/debug/pprof?seconds=1").map(|(status, _)| status);
        (look == Some(409)).then_some(long)
    });
    begun.expect("a second profile is refused beside the first")
}

#[test]
fn one_profile_is_taken_at_a_time() {
    let ours = Server::rebate_serve("embedded", "on", &ADMIN);
    let admin = admin_of(&ours);
    let status = |path: &str| page(admin, path).map(|(status, _)| status);
    let mut first = begun_profile(admin);
    assert_eq!(status("/healthz"), Some(200), "the other pages answer");
    assert_eq!(status("/debug/pprof?seconds=61"), Some(400));
    drop(ours);
    let mut answer = Vec::new();
    let _ = first.read_to_end(&mut answer);
    assert_eq!(answer, b"", "a profile does not keep a server alive");
}

#[test]
fn a_profile_ends_with_its_client() {
    let ours = Server::rebate_serve("embedded", "on", &ADMIN);
    let admin = admin_of(&ours);
    let status = |path: &str| page(admin, path).map(|(status, _)| status);
    drop(begun_profile(admin));
    let ended =
        poll_for(TIMEOUT / 2, || (status("/debug/pprof?seconds=1") == Some(200)).then_some(()));
    assert!(ended.is_some(), "it ends long before its minute");
}
