//! Tests the form and the level of the log of the built binary.

use std::process::Stdio;

use rebate_tests::{Server, TIMEOUT, rebate_command};
use rustix::process::Signal;
use serde_json::Value;

/// Returns the lines that a server with these flags wrote to its log from its start to its end.
fn log_of(flags: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("log");
    let log = std::fs::File::create(&path).expect("a file");
    let mut command = rebate_command();
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(flags).env_remove("RUST_LOG");
    let mut server = Server::rebate_with(&mut command, Stdio::from(log));
    server.signal(Signal::HUP);
    server.signal(Signal::TERM);
    assert!(server.wait_exit(TIMEOUT).is_some_and(|status| status.success()));
    let text = std::fs::read_to_string(&path).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn every_line_is_an_object_with_log_format_json() {
    let lines = log_of(&["--log-format", "json"]);
    let objects: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let is_draining = |object: &&Value| object["message"] == "draining";
    let draining = objects.iter().find(is_draining).unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(draining["level"], "INFO");
    assert!(draining["timestamp"].is_string() && draining["target"].is_string(), "{draining}");
}

#[test]
fn a_level_leaves_out_less_important_lines() {
    assert!(log_of(&[]).iter().any(|line| line.contains("draining")));
    assert_eq!(log_of(&["--log-level", "warn"]), [""; 0]);
    let more = log_of(&["--log-level", "warn", "-v"]);
    assert!(more.iter().any(|line| line.contains("draining")), "{more:?}");
}
