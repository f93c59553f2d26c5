//! Where keys must not be seen: configuration, log, pages, errors, and memory that a core dump has.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use rebate_tests::payload::text;
use rebate_tests::{Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::Signal;

use crate::services::page;
use crate::{CLOSED, Frontend, Keys, secret, secret_text};

/// Returns the forms of the secret of a key that a text could show.
fn shown(id: u16) -> [String; 3] {
    let hex: String = secret(id).iter().map(|byte| format!("{byte:02x}")).collect();
    [secret_text(id), hex.to_uppercase(), hex]
}

fn assert_hidden(what: &str, output: &str) {
    for form in [1, 2].map(shown).as_flattened() {
        assert!(!output.contains(&form[..12]), "{what} shows a key");
    }
}

fn output_of(args: &[&str], keys: &Keys) -> (Option<i32>, String) {
    let keys = format!("values.keys={}", keys.path().display());
    let mut command = rebate_command();
    command.args(["serve", "--set", &keys, "--set", "values.path=compress,encrypt"]).args(args);
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn configuration_and_errors_show_no_key() {
    let keys = Keys::new(2, &[1, 2]);
    let (code, output) = output_of(&["--print-config"], &keys);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("keys.toml"), "{output}");
    assert_hidden("--print-config", &output);
    assert_eq!(output_of(&["--check-config"], &keys).0, Some(0));
    for wrong in [
        format!("active = \"{}\"\n", secret_text(1)),
        format!("active = 1\n[[key]]\nid = 1\nsecret = {}\n", secret_text(1)),
        format!("active = 1\n[[key]]\nid = 1\nsecret = \"{}\"\n", &secret_text(1)[..40]),
        format!("active = 1\n[[key]]\nid = 1\n\"{}\" = 1\n", secret_text(1)),
        format!("active = 1\n[[key]]\nid = \"{}\"\n", secret_text(1)),
        format!("active = 2\n[[key]]\nid = 1\nsecret = \"{}\"\n", secret_text(1)),
    ] {
        keys.write_text(&wrong);
        for args in [&["--check-config"][..], &["--listen", "127.0.0.1:0"]] {
            let (code, output) = output_of(args, &keys);
            assert_eq!(code, Some(if args.len() == 1 { 2 } else { code.unwrap_or(0).max(1) }));
            assert!(output.contains("values.keys: ") && output.contains("keys.toml"), "{output}");
            assert_hidden("an error", &output);
        }
    }
}

#[test]
fn log_and_pages_show_no_key() {
    let (store, keys) = (Server::memcached(&[]), Keys::new(2, &[1, 2]));
    let ours = Frontend::sealing(&store, &keys, &[&CLOSED[..], &["-vv"]].concat());
    let mut client = ours.server.client();
    assert_eq!(client.set("k", &text(5_000)).as_deref(), Ok("STORED"));
    assert_eq!(store.client().set("k", b"planted").as_deref(), Ok("STORED"));
    assert_eq!(client.get("k"), Ok(None));
    keys.write_text(&format!("active = 1\n[[key]]\nid = 1\nsecret = {}\n", secret_text(1)));
    let failed = "rebate_value_key_reloads_total{result=\"failure\"}";
    poll_for(TIMEOUT, || (ours.metric(failed) >= 1.0).then_some(())).expect("it is counted");
    keys.write(1, &[1, 2]);
    let done = "rebate_value_key_reloads_total{result=\"success\"}";
    poll_for(TIMEOUT, || (ours.metric(done) >= 1.0).then_some(())).expect("it is counted");
    for path in ["/", "/metrics", "/config", "/readyz", "/healthz", "/scheduler"] {
        assert_hidden(path, &page(ours.admin(), path).2);
    }
    for command in ["stats", "stats settings", "stats conns", "stats rebate"] {
        assert_hidden(command, &client.ask(command.as_bytes()).text());
    }
    let log = std::fs::read_to_string(&ours.log).expect("a log");
    assert!(log.contains("values.keys"), "the log tells of the reload: {log}");
    assert_hidden("the log", &log);
}

/// Returns the mappings that a core dump would contain: those that can be read and are not left out.
fn dumped(pid: u32) -> Vec<(u64, u64)> {
    let smaps = std::fs::read_to_string(format!("/proc/{pid}/smaps")).expect("the mappings");
    let (mut found, mut current) = (Vec::new(), None);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-')
            && let (Ok(start), Ok(end)) =
                (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16))
        {
            let is_readable = words.next().is_some_and(|rights| rights.starts_with('r'));
            current = (is_readable && !line.contains("[vvar") && !line.contains("[vsyscall"))
                .then_some((start, end));
        } else if first == "VmFlags:" {
            let is_left_out = words.any(|flag| flag == "dd");
            found.extend(current.take().filter(|_| !is_left_out));
        }
    }
    found
}

/// Returns where the memory that a core dump would contain has these bytes.
fn places_in_dump(pid: u32, wanted: &[u8]) -> Vec<u64> {
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the memory of a child");
    let mut places = Vec::new();
    let mut read_bytes = 0;
    for (start, end) in dumped(pid) {
        let mut bytes = vec![0; (end - start) as usize];
        if memory.read_exact_at(&mut bytes, start).is_err() {
            continue;
        }
        read_bytes += bytes.len();
        let found = bytes.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted);
        places.extend(found.map(|(at, _)| start + at as u64));
    }
    assert!(read_bytes > 1 << 20, "only {read_bytes} bytes could be read");
    places
}

#[test]
fn a_core_dump_has_no_key() {
    let (store, keys) = (Server::memcached(&[]), Keys::new(1, &[1]));
    let args = ["--set", "values.tenant=a-name-that-is-in-memory"];
    let ours = Frontend::sealing(&store, &keys, &args);
    let mut client = ours.server.client();
    for round in 0..3 {
        for index in 0..50 {
            let key = format!("k{index}");
            assert_eq!(client.set(&key, &text(100 + index * 100)).as_deref(), Ok("STORED"));
            assert_eq!(client.get(&key), Ok(Some(text(100 + index * 100))), "{round}");
        }
        keys.write(2, &[1, 2]);
        ours.server.signal(Signal::HUP);
        let done = "rebate_value_key_reloads_total{result=\"success\"}";
        let wanted = f64::from(round + 1);
        poll_for(TIMEOUT, || (ours.metric(done) >= wanted).then_some(())).expect("reloaded");
    }
    let pid = ours.server.id();
    assert!(!places_in_dump(pid, b"a-name-that-is-in-memory").is_empty(), "the search works");
    for id in [1, 2] {
        // The first half of a key is a round key of its schedule.
        assert_eq!(places_in_dump(pid, &secret(id)[..16]), Vec::<u64>::new(), "key {id}");
        assert_eq!(places_in_dump(pid, &secret(id)[16..]), Vec::<u64>::new(), "key {id}");
        assert_eq!(places_in_dump(pid, secret_text(id).as_bytes()), Vec::<u64>::new(), "{id}");
    }
}
