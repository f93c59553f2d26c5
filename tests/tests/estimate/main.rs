//! Tests `rebate estimate` against real memcached, against `rebate memcached`, and on a folder: what it finds, what it
//! leaves unchanged, and what it says if a server does not tell.

mod hostile;
mod secured;

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use rebate_tests::{Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const USERS: usize = 600;
const PAGES: usize = 20;

fn record(number: usize) -> String {
    let id = number.wrapping_mul(2_654_435_761) % 1_000_000_007;
    format!(
        r#"{{"id":{id},"type":"invoice","user":{{"id":{number},"plan":"team"}},"items":{}}}"#,
        id % 20
    )
}

fn page(number: usize) -> String {
    format!("<p>The page with the number {number} has some text.</p>\n").repeat(20)
}

fn fill(server: &Server) {
    let mut client = server.client();
    let users = (0..USERS).map(|n| (format!("user:{n}:data"), record(n)));
    for (key, value) in users.chain((0..PAGES).map(|n| (format!("page:{n}"), page(n)))) {
        assert_eq!(client.set(&key, value.as_bytes()), Ok("STORED".to_owned()));
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = rebate_command();
    command.arg("estimate").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary starts")
}

fn interrupt(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::INT).expect("a signal");
}

/// Returns the JSON of a run that succeeds.
fn json(arguments: &[&str]) -> Value {
    let output = run(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn estimate(server: &Server, more: &[&str]) -> Value {
    let address = server.addr().to_string();
    json(&[&[address.as_str(), "--seconds", "1"], more].concat())
}

fn number(found: &Value, path: &str) -> f64 {
    let number = found.pointer(path).and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("no {path} in {found:#}"))
}

fn class<'a>(found: &'a Value, name: &str) -> &'a Value {
    let classes = found["classes"].as_array().expect("a list");
    let class = classes.iter().find(|class| class["name"] == name);
    class.unwrap_or_else(|| panic!("no {name} in {found:#}"))
}

fn notes(found: &Value) -> String {
    found["notes"].to_string()
}

#[test]
fn both_servers_give_the_same_sizes() {
    let mut ratios = Vec::new();
    for server in [Server::memcached(&[]), Server::rebate_memcached(&[])] {
        fill(&server);
        // memcached lists an item late while it moves it between its LRU segments.
        let found = poll_for(TIMEOUT, || {
            let found = estimate(&server, &[]);
            (number(&found, "/source/items_listed") as usize == USERS + PAGES).then_some(found)
        });
        let found = found.expect("a whole list");
        assert_eq!(number(&found, "/total/values/value") as usize, USERS + PAGES);
        let bytes: usize =
            (0..USERS).map(record).chain((0..PAGES).map(page)).map(|value| value.len()).sum();
        let error = number(&found, "/total/bytes/value") / bytes as f64 - 1.0;
        assert!(error.abs() < 0.01, "{error}: {found:#}");
        let users = class(&found, "user:*:data");
        assert!(users["uses_dictionary"].as_bool() == Some(true), "{users:#}");
        assert!(number(users, "/stored_ratio/value") < 0.6);
        assert!(number(users, "/items_held_ratio/value") > 1.5);
        assert!(number(class(&found, "page:*"), "/stored_ratio/value") < 0.2);
        assert_eq!(number(&found, "/total/hit_ratio_gain/value"), 0.0);
        assert!(number(&found, "/total/gb_saved/low") > 0.0);
        ratios.push(number(&found, "/total/stored_ratio/value"));
    }
    // The samples come in another order, and dictionaries that differ by less than 3 % count as equal.
    assert!((ratios[0] / ratios[1] - 1.0).abs() < 0.03, "{ratios:?}");
}

#[test]
fn a_probe_leaves_the_server_unchanged() {
    let server = Server::memcached(&[]);
    fill(&server);
    let sets = server.stat("cmd_set");
    estimate(&server, &[]);
    assert_eq!(server.stat("cmd_set"), sets);
    let mut client = server.client();
    for n in 0..USERS {
        let line = client.line(format!("me user:{n}:data").as_bytes()).expect("an answer");
        assert!(line.contains(" fetch=no "), "{line}");
    }
}

#[test]
fn requests_are_watched_by_class() {
    let server = Server::memcached(&[]);
    fill(&server);
    let address = server.addr().to_string();
    let child = command(&[&address, "--seconds", "2", "--json"]).stdout(Stdio::piped()).spawn();
    let child = child.expect("the binary starts");
    let mut client = server.client();
    poll_for(TIMEOUT, || (server.stat("log_watchers")? == 1).then_some(())).expect("a watcher");
    for n in 0..PAGES {
        assert!(client.get(&format!("page:{n}")).is_ok_and(|value| value.is_some()));
    }
    let output = child.wait_with_output().expect("an end");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(number(&found, "/source/requests_watched") as usize, PAGES);
    assert_eq!(number(class(&found, "user:*:data"), "/hits_per_s"), 0.0);
    assert!(number(class(&found, "page:*"), "/hits_per_s") > 0.0);
    assert!(number(&found, "/total/cores/value") > 0.0);
}

#[test]
fn without_a_crawler_items_are_listed_another_way() {
    let server = Server::memcached(&["-o", "no_lru_crawler"]);
    fill(&server);
    let found = estimate(&server, &[]);
    assert!(notes(&found).contains("cachedump"), "{}", notes(&found));
    assert!(number(class(&found, "user:*:data"), "/stored_ratio/value") < 0.6);
}

#[test]
fn a_server_that_lists_nothing_is_an_error() {
    let server = Server::memcached(&["-X"]);
    fill(&server);
    let output = run(&[&server.addr().to_string(), "--seconds", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("metadump not allowed") && error.contains("--corpus"), "{error}");
}

#[test]
fn an_empty_or_absent_server_is_an_error() {
    let server = Server::memcached(&[]);
    let address = server.addr().to_string();
    let output = run(&[&address]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("holds no items"), "{error}");
    drop(server);
    let output = run(&[&address]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("cannot connect"), "{error}");
}

#[test]
fn an_interrupt_ends_the_watch_with_an_estimate() {
    let server = Server::memcached(&[]);
    fill(&server);
    let address = server.addr().to_string();
    let child = command(&[&address, "--seconds", "10m", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    poll_for(TIMEOUT, || (server.stat("log_watchers")? == 1).then_some(())).expect("a watcher");
    interrupt(&child);
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(number(&found, "/total/stored_ratio/value") < 1.0);
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped early"));
}

#[test]
fn a_folder_of_values_needs_no_server() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("users")).expect("a folder");
    for n in 0..USERS {
        fs::write(folder.path().join(format!("users/{n}.json")), record(n)).expect("a file");
    }
    let path = folder.path().display().to_string();
    let page = folder.path().join("page.html").display().to_string();
    let found = json(&["--corpus", &path, "--out", &page, "--price-gb-month", "3"]);
    assert!(number(class(&found, "users/*.json"), "/stored_ratio/value") < 0.6);
    assert!(found["total"]["cores"].is_null() && found["total"]["hit_ratio_gain"].is_null());
    let saved = number(&found, "/total/gb_saved/value");
    assert!((number(&found, "/total/price_saved_month/value") / saved - 3.0).abs() < 1e-6);
    let html = fs::read_to_string(page).expect("a page");
    assert!(html.contains("<svg") && html.contains("users/*.json"));
}

#[test]
fn bad_usage_is_told_from_failed_work() {
    let empty = tempfile::tempdir().expect("a folder");
    let path = empty.path().display().to_string();
    for arguments in [
        &["--corpus", path.as_str()][..],
        &["--corpus", "/nonexistent"],
        &["127.0.0.1:1", "--rate", "0"],
        &["grpc://127.0.0.1:1"],
        &["127.0.0.1:1", "--class", ""],
        &[],
    ] {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
