//! Tests restarts of the built binary with `-e FILE` and `store.file`: what the next process has, and why it
//! has nothing. Items must come back as they were, or not at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rebate_tests::http::page_within;
use rebate_tests::payload::random;
use rebate_tests::{Client, Process, Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::Signal;
use units::Prng;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("items")
    }
}

/// Starts `rebate memcached -e FILE` with two workers.
fn start(file: &Path, args: &[&str]) -> Server {
    let file = file.to_str().expect("UTF-8");
    Server::rebate_memcached(&[&["-t", "2", "-v", "-e", file], args].concat())
}

/// Ends the server with a signal and waits for its end.
fn end(mut server: Server, signal: Signal) -> String {
    server.signal(signal);
    let status = server.wait_exit(TIMEOUT).expect("it ends");
    assert!(status.success(), "{status}\n{}", server.output());
    server.output()
}

/// Returns a value of `stats rebate`.
fn restart_fact(server: &Server, name: &str) -> String {
    let answer = server.client().ask(b"stats rebate");
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    let line = format!("STAT restart:{name} ");
    let found = text.lines().find_map(|found| found.strip_prefix(&line));
    found.unwrap_or_else(|| panic!("no {line}in {text}")).trim().to_owned()
}

fn ask(client: &mut Client, line: &str) -> String {
    String::from_utf8_lossy(&client.ask(line.as_bytes()).bytes).into_owned()
}

#[test]
fn a_restart_keeps_values_flags_versions_and_lifetimes() {
    let folder = Folder::new();
    let server = start(&folder.file(), &[]);
    let mut client = server.client();
    let long = random(200_000);
    assert_eq!(client.set("long", &long).as_deref(), Ok("STORED"));
    for key in 0..500 {
        let line = format!("set key_{key} {key} 3600 300\r\n{}", "text ".repeat(60));
        assert_eq!(ask(&mut client, &line), "STORED\r\n");
    }
    ask(&mut client, "mg key_1 v");
    ask(&mut client, "md key_2 I");
    ask(&mut client, "ms c3Bh 2 b F7\r\nhi");
    let commands =
        ["gets key_0 key_499", "mg key_1 h f c s v", "mg key_2 c s f", "mg c3Bh b k f c v"];
    // The first fetch of a stale item wins the right to refill it, and the marks stay from then on.
    commands.iter().for_each(|command| drop(ask(&mut client, command)));
    let before = commands.map(|command| ask(&mut client, command));
    drop(client);
    let log = end(server, Signal::USR1);
    assert!(log.contains("saved 502 items"), "{log}");
    let server = start(&folder.file(), &[]);
    assert_eq!(restart_fact(&server, "outcome"), "loaded");
    assert_eq!(restart_fact(&server, "loaded_items"), "502");
    let mut client = server.client();
    assert_eq!(commands.map(|command| ask(&mut client, command)), before);
    assert_eq!(client.get("long"), Ok(Some(long)));
    let ttl = ask(&mut client, "mg key_3 t");
    let left_s: u32 = ttl.trim_start_matches("HD t").trim().parse().expect("a time");
    assert!((3_000..=3_600).contains(&left_s), "{ttl}");
}

#[test]
fn no_version_of_before_matches_a_new_item() {
    let folder = Folder::new();
    let server = start(&folder.file(), &[]);
    let mut client = server.client();
    let version = |client: &mut Client| {
        let answer = ask(client, "ms k 1 c\r\nv");
        answer.trim_start_matches("HD c").trim().parse::<u64>().expect("a version")
    };
    let before = (0..10).map(|_| version(&mut client)).max().expect("ten");
    ask(&mut client, "delete k");
    end(server, Signal::TERM);
    let server = start(&folder.file(), &[]);
    assert!(version(&mut server.client()) > before);
}

#[test]
fn every_graceful_end_saves() {
    let folder = Folder::new();
    for (nth, signal) in [Signal::TERM, Signal::INT, Signal::USR1].into_iter().enumerate() {
        let server = start(&folder.file(), &[]);
        assert_eq!(server.stat("curr_items"), Some(nth as u64));
        assert_eq!(server.client().set(&format!("k{nth}"), b"v").as_deref(), Ok("STORED"));
        end(server, signal);
    }
    assert!(folder.file().is_file());
}

#[test]
fn a_killed_process_leaves_nothing_to_load() {
    let folder = Folder::new();
    let server = start(&folder.file(), &[]);
    assert_eq!(server.client().set("k", b"old").as_deref(), Ok("STORED"));
    end(server, Signal::TERM);
    let mut server = start(&folder.file(), &[]);
    assert_eq!(server.client().set("k", b"new").as_deref(), Ok("STORED"));
    server.kill();
    drop(server);
    let server = start(&folder.file(), &[]);
    assert_eq!(server.client().get("k"), Ok(None));
    assert_eq!(restart_fact(&server, "outcome"), "not_saved");
    let reason = "the process before ended without saving its items";
    server.await_printed(reason).expect("the log says why");
    assert_eq!(restart_fact(&server, "reason"), reason);
}

#[test]
fn damage_gives_an_empty_start_that_serves() {
    let folder = Folder::new();
    let server = start(&folder.file(), &[]);
    assert_eq!(server.client().set("k", b"v").as_deref(), Ok("STORED"));
    end(server, Signal::TERM);
    let bytes = fs::read(folder.file()).expect("it was saved");
    fs::write(folder.file(), &bytes[..bytes.len() - 1]).expect("written");
    let server = start(&folder.file(), &[]);
    assert_eq!(restart_fact(&server, "outcome"), "refused");
    assert!(restart_fact(&server, "reason").contains("it ends too early"));
    assert_eq!(server.client().get("k"), Ok(None));
    assert_eq!(server.client().set("k", b"v").as_deref(), Ok("STORED"));
}

#[test]
fn saving_and_loading_need_no_second_copy() {
    let folder = Folder::new();
    let start = || {
        let mut command = rebate_command();
        command.args(["memcached", "-p", "-1", "-l", "127.0.0.1", "-U", "0", "-u", "root"]);
        command.args(["-t", "2", "-m", "32", "-e"]).arg(folder.file());
        // The memory of a training, which may run at any time, is not of interest here.
        command.env("REBATE_VALUES__DICTIONARIES", "false");
        Server::rebate_with(&mut command, Stdio::piped())
    };
    let mut server = start();
    let mut client = server.client();
    for key in 0..20_000 {
        let value = noise(key);
        let head = format!("set key_{key} 0 0 1000 noreply\r\n");
        client.send(&[head.as_bytes(), &value, b"\r\n"].concat()).expect("it is taken");
    }
    assert_eq!(client.set("last", b"v").as_deref(), Ok("STORED"));
    drop(client);
    let filled = peak_bytes(server.id()).expect("it runs");
    let mut most = 0;
    server.signal(Signal::TERM);
    poll_for(TIMEOUT, || {
        most = most.max(peak_bytes(server.id()).unwrap_or(0));
        server.exited()
    });
    assert!(most < filled + SPARE_BYTES, "saving took {most} bytes with {filled} held");
    let server = start();
    assert_eq!(server.stat("curr_items"), Some(20_001));
    let loaded = peak_bytes(server.id()).expect("it runs");
    assert!(loaded < filled + SPARE_BYTES, "loading took {loaded} bytes, filling {filled}");
}

/// Returns 1,000 random bytes that no other number has, so that neither codecs nor dictionaries make them shorter.
fn noise(number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 1_000];
    Prng::new(number).fill(&mut bytes);
    bytes
}

/// Returns the largest resident memory that the process had so far.
fn peak_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib << 10)
}

/// The memory that saving and loading may need beside the items: buffers, and the pages of the program that only a
/// start and an end need, some 12 MiB in development builds. A second copy of the items would take 20 MB.
const SPARE_BYTES: u64 = 15 << 20;

#[test]
fn a_smaller_memory_keeps_what_was_used_last() {
    let folder = Folder::new();
    let server = start(&folder.file(), &["-m", "32"]);
    let mut client = server.client();
    for key in 0..10_000 {
        assert_eq!(client.set(&format!("key_{key}"), &noise(key)).as_deref(), Ok("STORED"));
    }
    let used = (0..200).map(|key| format!("key_{key}"));
    used.clone().for_each(|key| assert!(client.get(&key).expect("an answer").is_some()));
    end(server, Signal::TERM);
    let server = start(&folder.file(), &["-m", "4"]);
    let mut client = server.client();
    let mut has = |key: String| client.get(&key).expect("an answer").is_some();
    assert!(used.clone().filter(|key| has(key.clone())).count() > 180, "those that were used");
    let newest = (9_500..10_000).filter(|key| has(format!("key_{key}"))).count();
    assert!(newest > 450, "{newest} of the newest 500");
    let evicted: u64 = restart_fact(&server, "evicted_items").parse().expect("a number");
    assert!(evicted > 5_000, "{evicted} evicted");
}

#[test]
fn a_restart_may_change_options() {
    let folder = Folder::new();
    let server = start(&folder.file(), &["-I", "4m", "-m", "32"]);
    let text = "some words ".repeat(100);
    assert_eq!(server.client().set("text", text.as_bytes()).as_deref(), Ok("STORED"));
    assert_eq!(server.client().set("long", &random(2 << 20)).as_deref(), Ok("STORED"));
    end(server, Signal::TERM);
    let file = format!("store.file={}", folder.file().display());
    let args = ["--threads", "1", "--memory", "256MiB", "--admin-listen", "127.0.0.1:0"];
    let more = ["--set", &file, "--codec", "lz4"];
    let server = Server::rebate_serve("embedded", "off", &[&args[..], &more].concat());
    assert_eq!(server.client().get("text"), Ok(Some(text.into_bytes())));
    assert_eq!(server.client().get("long"), Ok(None), "above the new largest item");
    assert_eq!(restart_fact(&server, "skipped_items"), "1");
    let admin = server.admin().expect("an admin address");
    let (_, page) = page_within(admin, "/metrics", TIMEOUT).expect("the page");
    assert!(page.contains("rebate_restart_outcome{outcome=\"loaded\"} 1"), "{page}");
    assert!(page.contains("rebate_restart_items{result=\"loaded\"} 1"), "{page}");
}

#[test]
fn a_second_process_with_the_file_is_refused() {
    let folder = Folder::new();
    let first = start(&folder.file(), &[]);
    let mut second = rebate_command();
    second
        .args(["memcached", "-p", "-1", "-l", "127.0.0.1", "-u", "root", "-e"])
        .arg(folder.file());
    let mut second = Process::start(&mut second).expect("it starts");
    let status = second.wait_exit(TIMEOUT).expect("it ends");
    assert!(!status.success());
    assert!(second.output().contains("is in use by another process"), "{}", second.output());
    assert_eq!(first.client().set("k", b"v").as_deref(), Ok("STORED"));
}

#[test]
fn a_full_disk_is_reported_and_leaves_no_file() {
    let folder = Folder::new();
    let Some(_small) = SmallDisk::at(folder.0.path(), "256k") else { return };
    let server = start(&folder.file(), &[]);
    for key in 0..20 {
        let value = random(50_000);
        assert_eq!(server.client().set(&format!("k{key}"), &value).as_deref(), Ok("STORED"));
    }
    let log = end(server, Signal::TERM);
    assert!(log.contains("No space left on device"), "{log}");
    assert!(!folder.file().exists());
    let server = start(&folder.file(), &[]);
    assert_eq!(restart_fact(&server, "outcome"), "not_saved");
    assert!(restart_fact(&server, "reason").contains("No space left on device"));
}

#[test]
fn a_foreign_file_is_neither_loaded_nor_replaced() {
    let folder = Folder::new();
    let mut file = fs::File::create(folder.file()).expect("created");
    file.write_all(b"somebody else's accounts").expect("written");
    let server = start(&folder.file(), &[]);
    assert_eq!(server.client().set("k", b"v").as_deref(), Ok("STORED"));
    let log = end(server, Signal::TERM);
    assert!(log.contains("it is not a snapshot of a store"), "{log}");
    assert_eq!(fs::read(folder.file()).expect("still there"), b"somebody else's accounts");
}

#[test]
fn a_store_elsewhere_cannot_have_a_file() {
    let mut command = rebate_command();
    let keys = ["--set", "store.file=/tmp/items", "--store", "memcached://127.0.0.1:1"];
    let done = command.args(["serve", "--check-config"]).args(keys).output().expect("it runs");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{text}");
    assert!(text.contains("only an embedded store can be saved"), "{text}");
}

/// A small file system. It needs root, and the test ends without it.
struct SmallDisk<'p>(&'p Path);

impl<'p> SmallDisk<'p> {
    fn at(path: &'p Path, size: &str) -> Option<Self> {
        let size = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(path).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then_some(Self(path))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
