//! Tests output that must not change without a note: the text of every `--help`, the configuration's keys, the names of
//! the metrics, and results that are the same on every machine. The output is compared with the files in
//! `tests/recorded`.
//!
//! `REBATE_RECORD=write cargo test -p rebate-tests --test recorded` writes these files again. A change of a file
//! belongs in `CHANGELOG.md`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use rebate_tests::http::page_within;
use rebate_tests::{Server, TIMEOUT, poll_for, rebate_command};

/// Returns what a command prints.
fn printed(arguments: &[&str]) -> String {
    let done = rebate_command().args(arguments).output().expect("the binary starts");
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "rebate {}: {}\n{said}", arguments.join(" "), done.status);
    text
}

/// Compares the text with the file, or writes the file.
fn assert_recorded(file: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded").join(file);
    if std::env::var_os("REBATE_RECORD").is_some_and(|mode| mode == "write") {
        fs::write(&path, found).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let (kept, found): (Vec<_>, Vec<_>) = (kept.lines().collect(), found.lines().collect());
    let gone = kept.iter().filter(|line| !found.contains(line)).map(|line| format!("- {line}"));
    let new = found.iter().filter(|line| !kept.contains(line)).map(|line| format!("+ {line}"));
    let differences: Vec<String> = gone.chain(new).take(40).collect();
    assert!(kept == found, "{} differs:\n{}", path.display(), differences.join("\n"));
}

/// Appends the help of a command and of all its subcommands.
fn add_help(command: &[&str], all: &mut String) {
    let text = printed(&[command, &["--help"]].concat());
    let _ = writeln!(all, "==== rebate {}\n{text}", command.join(" "));
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        // A command's name is indented by two columns. The continuation of a long description is indented further.
        let Some(rest) = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) else {
            continue;
        };
        match rest.split_whitespace().next() {
            Some("help") | None => {}
            Some(name) => add_help(&[command, &[name]].concat(), all),
        }
    }
}

#[test]
fn help_is_as_recorded() {
    let mut all = String::new();
    add_help(&[], &mut all);
    assert_recorded("help.txt", &all);
}

#[test]
fn configuration_keys_are_as_recorded() {
    let mut section = String::new();
    let mut keys = String::new();
    for line in printed(&["serve", "--print-config"]).lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
            continue;
        }
        let line = line.strip_prefix("# ").unwrap_or(line);
        let reload = line.rsplit(", ").next().unwrap_or_default();
        if let Some(key) = line.split_whitespace().next() {
            let _ = writeln!(keys, "{section}.{key} {reload}");
        }
    }
    assert_recorded("configuration_keys.txt", &keys);
}

#[test]
fn metric_names_are_as_recorded() {
    let store = Server::memcached(&[]);
    let folder = tempfile::tempdir().expect("a directory");
    let file = format!("store.file={}", folder.path().join("items").display());
    let common = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let grpc = ["--grpc-listen", "127.0.0.1:0"];
    let address = format!("{},dns+{}", store.as_store(), store.addr());
    let mut names = BTreeSet::new();
    // The servers of a ring appear after the first request to them.
    for (more, last) in [
        (&["--set", &file, "--set", "otlp.address=127.0.0.1:9"][..], ""),
        (&["--store", &address], "rebate_upstream_up{"),
    ] {
        let server = Server::rebate(&[&common[..], &grpc, more].concat());
        let admin = server.admin().expect("an admin address");
        let text = poll_for(TIMEOUT, || {
            let (_, text) = page_within(admin, "/metrics", TIMEOUT)?;
            text.contains(last).then_some(text)
        });
        let text = text.expect("metrics");
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        names.extend(types.map(str::to_owned));
    }
    let all: String = names.into_iter().map(|name| name + "\n").collect();
    assert_recorded("metric_names.txt", &all);
}

#[test]
fn alerts_name_only_metrics_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a file of the repository");
    let rules = read("deploy/alerts.yaml");
    let documented = read("docs/operating/metrics.md");
    let is_part_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = rules.split(|letter| !is_part_of_name(letter));
    let metrics: BTreeSet<&str> = words.filter(|word| word.starts_with("rebate_")).collect();
    assert!(metrics.len() > 10, "{metrics:?}");
    let is_documented = |name: &&str| documented.contains(&format!("`{name}`"));
    let unknown: Vec<_> = metrics.into_iter().filter(|name| !is_documented(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?} in no row of docs/operating/metrics.md");
    let explained = read("docs/operating/alerts.md");
    let alerts = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let unexplained: Vec<_> = alerts.filter(|alert| !explained.contains(alert)).collect();
    assert!(unexplained.is_empty(), "{unexplained:?} not in docs/operating/alerts.md");
}

#[test]
fn deterministic_results_are_as_recorded() {
    let runs = ["--runs", "5", "--json"];
    let sim = |spec: &[&str]| printed(&[&["sim", "--spec"], spec, &runs].concat());
    let results = [
        ("sim_accelflow.json", sim(&["steady", "--architecture", "accelflow"])),
        ("sim_relief.json", sim(&["relief"])),
        ("sim_arcalis.json", sim(&["arcalis", "--architecture", "near-cache"])),
        ("model.json", printed(&["model", "--file", "accelerometer-recommendations", "--json"])),
        ("trace_explained.txt", printed(&["trace", "explain", "--trace", "T1"])),
    ];
    for (file, found) in results {
        // Lines with the speed of the simulation differ between machines.
        let is_stable = |line: &&str| !line.contains("_per_second\":");
        let lines: Vec<&str> = found.lines().filter(is_stable).collect();
        assert_recorded(file, &(lines.join("\n") + "\n"));
    }
}
