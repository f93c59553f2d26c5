//! Tests the built binary as a process: its output, its exit, its signals, and that `rebate memcached` fails with
//! memcached's exit codes. Other tests cover what clients see.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A long timeout, because the host of a virtual machine may take cores away. Only a failing test reaches it.
const TIMEOUT: Duration = Duration::from_secs(60);

fn rebate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rebate"));
    command.args(args).env_remove("RUST_LOG");
    command
}

fn output(args: &[&str]) -> Output {
    rebate(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A serving process that is killed when the test ends.
struct Serving {
    child: Child,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Serving {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Self { child, out, err }
    }

    /// Returns the address of the first `listening on` line.
    fn address(&mut self) -> String {
        line_with(&mut self.out, "listening on ")
    }

    fn logged(&mut self, what: &str) -> String {
        line_with(&mut self.err, what)
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the process did not end");
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the text behind `what` on the first line that contains it.
fn line_with(from: &mut impl BufRead, what: &str) -> String {
    let mut seen = String::new();
    for line in from.lines() {
        let line = line.unwrap();
        if let Some((_, rest)) = line.split_once(what) {
            return rest.to_owned();
        }
        seen += &line;
        seen.push('\n');
    }
    panic!("no line with {what:?} in:\n{seen}");
}

fn ask(address: &str, request: &[u8], answer_bytes: usize) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = vec![0; answer_bytes];
    stream.read_exact(&mut answer).unwrap();
    text(&answer)
}

#[test]
fn serve_answers_clients_and_ends_well_on_a_signal() {
    let args = ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let mut server = Serving::start(&mut rebate(&args));
    let admin = line_with(&mut server.out, "admin on ");
    let address = server.address();
    assert_eq!(ask(&admin, b"GET /healthz HTTP/1.0\r\n\r\n", 5), "HTTP/");
    assert_eq!(ask(&address, b"set k 0 0 1\r\nx\r\n", 8), "STORED\r\n");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.code(), Some(0));
}

/// Checks that failed device tests do not prevent a start. No process listens at the service's address. A busy machine
/// may not complete a job in the short time that a start has for it. The server starts in both cases and logs the
/// verdict when there is one.
#[test]
fn devices_are_tried_when_a_server_starts() {
    let service = ["--compression", "127.0.0.1:9"];
    let args = [&["serve", "--listen", "127.0.0.1:0", "--device", "worker"][..], &service].concat();
    let mut server = Serving::start(&mut rebate(&args));
    let address = server.address();
    assert_eq!(ask(&address, b"mn\r\n", 4), "MN\r\n");
    let mut tried = server.logged("remote-127.0.0.1:9");
    if !tried.starts_with(" is not qualified: ") {
        // The start continued without the verdict and said so.
        tried = server.logged("remote-127.0.0.1:9");
    }
    assert!(tried.starts_with(" is not qualified: "), "{tried}");
    assert!(!tried.contains("no completion within"), "{tried}");
    server.signal(Signal::SIGTERM);
}

#[test]
fn a_second_signal_ends_a_drain_at_once() {
    let forever = "server.drain_timeout_ms=86400000";
    let args = ["serve", "--listen", "127.0.0.1:0", "--threads", "1", "--set", forever];
    let mut server = Serving::start(&mut rebate(&args));
    let address = server.address();
    let mut client = TcpStream::connect(&address).unwrap();
    client.write_all(b"set k 0 0 10\r\nhalf").unwrap();
    // The only event loop answers after it has read the set that never ends.
    assert_eq!(ask(&address, b"mn\r\n", 4), "MN\r\n");
    server.signal(Signal::SIGTERM);
    server.logged("draining");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.code(), Some(1));
}

#[test]
fn an_invalid_reload_keeps_the_old_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rebate.toml");
    fs::write(&path, "[server]\nlisten = ['127.0.0.1:0']\n").unwrap();
    let config = path.to_str().unwrap();
    let mut server = Serving::start(&mut rebate(&["serve", "--config", config]));
    let address = server.address();
    for (addition, logged) in [
        ("[compress]\nmode = 'off'\n", "reloaded: compress.mode"),
        ("[compress]\nmode = 'maybe'\n", "not reloaded: "),
        ("[store]\nmemory = '1GiB'\n", "not reloaded: store.memory cannot change"),
    ] {
        fs::write(&path, format!("[server]\nlisten = ['127.0.0.1:0']\n{addition}")).unwrap();
        server.signal(Signal::SIGHUP);
        server.logged(logged);
    }
    assert_eq!(ask(&address, b"mn\r\n", 4), "MN\r\n");
}

#[test]
fn printed_configuration_is_one_that_it_accepts() {
    let printed = output(&["serve", "--set", "store.memory=1g", "--print-config"]);
    assert_eq!(printed.status.code(), Some(0));
    let shown = text(&printed.stdout);
    assert!(shown.contains("memory = \"1GiB\"  # flag --set, restart"), "{shown}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rebate.toml");
    fs::write(&path, &printed.stdout).unwrap();
    let again = output(&["serve", "--config", path.to_str().unwrap(), "--check-config"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
}

#[test]
fn bad_usage_ends_with_2_and_failed_work_with_1() {
    for (args, code, named) in [
        (&["serve", "--check-config", "--threads", "65"][..], 2, "65"),
        (
            &["serve", "--check-config", "--set", "server.thread=1"],
            2,
            "did you mean server.threads?",
        ),
        (&["serve", "--check-config", "--set", "nonsense"], 2, "section.key=VALUE"),
        (&["serve", "--role", "compression"], 2, "server.grpc_listen: is empty"),
        (&["serve", "--role", "cook"], 2, "all, frontend, compression, store, scheduler"),
        (&["serve", "--config", "/nonexistent"], 2, "/nonexistent"),
        (&["serve", "--insecure", "--listen", "192.0.2.1:1"], 1, "192.0.2.1:1"),
        (&["load", "127.0.0.1:1"], 1, "127.0.0.1:1"),
        (&["load", "127.0.0.1:1", "--rate", "-1"], 2, "rate_per_s is -1"),
        (&["load", "127.0.0.1:1", "--preset", "nonesuch"], 2, "nonesuch"),
        (&["nonesuch"], 2, "nonesuch"),
    ] {
        let output = output(args);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {message}");
        assert!(message.contains(named), "{args:?}: {message}");
    }
}

#[test]
fn a_full_stderr_does_not_stop_a_warning_command() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut check = rebate(&["serve", "--check-config", "--memory", "1GB"]);
    assert!(check.stderr(full).status().unwrap().success());
}

#[test]
fn every_command_has_help_with_examples() {
    for command in
        ["serve", "load", "devices", "doctor", "health", "memcached", "demo", "reproduce"]
    {
        let help = output(&[command, "--help"]);
        assert_eq!(help.status.code(), Some(0), "{command}");
        assert!(text(&help.stdout).contains("Examples:"), "{command}");
    }
}

#[test]
fn devices_are_listed_for_people_and_programs() {
    let table = text(&output(&["devices"]).stdout);
    assert!(table.starts_with("device "), "{table}");
    let json = output(&["devices", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["devices"][0]["name"], "software");
    assert!(json["engines"].as_array().is_some_and(|engines| engines.len() >= 3));
}

#[test]
fn devices_fail_if_a_service_does_not_describe_itself() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listed = output(&["devices", "--compression", &free.to_string(), "--json"]);
    assert_eq!(listed.status.code(), Some(1), "{}", text(&listed.stderr));
    let json: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(json["services"][0]["problem"].is_string(), "{json}");
    assert_eq!(output(&["devices"]).status.code(), Some(0));
}

#[test]
fn load_reports_what_a_server_did() {
    let mut server = Serving::start(&mut rebate(&["serve", "--listen", "127.0.0.1:0"]));
    let address = server.address();
    let args =
        ["load", &address, "--duration", "200ms", "--warmup", "0s", "--keys", "100", "--json"];
    let result = output(&[&args[..], &["--timeout", "60s"]].concat());
    assert_eq!(result.status.code(), Some(0), "{}", text(&result.stderr));
    let report: serde_json::Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!(report["wrong"]["count"], 0);
    assert!(report["get"]["answered"].as_u64() > Some(0));
}

#[test]
fn the_memcached_face_names_its_ports_as_memcached_does() {
    let folder = tempfile::tempdir().unwrap();
    let ports = folder.path().join("ports");
    let mut command = rebate(&["memcached", "-u", "root", "-p", "-1", "-l", "127.0.0.1", "-U0"]);
    let mut server = Serving::start(command.env("MEMCACHED_PORT_FILENAME", &ports));
    let address = server.address();
    let port = address.rsplit(':').next().unwrap();
    let named = wait_for_content(&ports);
    assert_eq!(named, format!("TCP INET: {port}\n"));
    assert_eq!(ask(&address, b"mn\r\n", 4), "MN\r\n");
    server.signal(Signal::SIGINT);
    assert_eq!(server.code(), Some(0));
}

#[test]
fn a_daemon_outlives_its_parent_and_removes_its_pid_file() {
    let folder = tempfile::tempdir().unwrap();
    let (pidfile, ports) = (folder.path().join("pid"), folder.path().join("ports"));
    let mut command = rebate(&["memcached", "-d", "-u", "root", "-p-1", "-l127.0.0.1", "-P"]);
    command.arg("pid").current_dir(folder.path()).env("MEMCACHED_PORT_FILENAME", &ports);
    assert!(command.status().unwrap().success());
    let pid: i32 = wait_for_content(&pidfile).trim().parse().unwrap();
    let port = wait_for_content(&ports).trim().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(ask(&format!("127.0.0.1:{port}"), b"mn\r\n", 4), "MN\r\n");
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while pidfile.exists() {
        assert!(Instant::now() < deadline, "the pid file is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn wrong_flags_end_with_memcacheds_exit_codes() {
    let binary = std::env::var_os("MEMCACHED_BIN").unwrap_or_else(|| "memcached".into());
    if Command::new(&binary).arg("-V").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI needs memcached");
        eprintln!("SKIPPED: no memcached to compare with");
        return;
    }
    for line in [
        "-h",
        "-V",
        "-i",
        "-c 0",
        "-c -1",
        "-c abc",
        "-t 0",
        "-t abc",
        "-R 0",
        "-R abc",
        "-m 0",
        "-m abc",
        "-I 0",
        "-I 512",
        "-I 64m",
        "-I 2000m",
        "-I 1025m -m 8192",
        "-n 0",
        "-f 1",
        "-N 0",
        "-p 70000",
        "-l 127.0.0.1:abc",
        "-l 999.1.1.1",
        "-l [::1",
        "-l 192.0.2.1",
        "-s /nonexistent/x",
        "-B http",
        "-Q",
        "-p",
        "--port",
        "--nonesuch",
        "--disable",
        "--daemon=yes",
        "-o nonesuch",
        "-o hashpower",
        "-o hashpower=99",
        "-o hash_algorithm=md5",
        "-o slab_automove=3",
        "-o hot_lru_pct=80",
        "-o ext_path",
        "-o modern,,track_sizes",
        "-c 99999999",
        "-c0 -V",
        "-V -c0",
    ] {
        let args: Vec<&str> = ["-u", "root"].into_iter().chain(line.split(' ')).collect();
        let real = Command::new(&binary).args(&args).output().unwrap();
        let ours = rebate(&["memcached"]).args(&args).output().unwrap();
        assert_eq!(ours.status.code(), real.status.code(), "{line}: {}", text(&ours.stderr));
        let silent = ours.stderr.is_empty() && ours.stdout.is_empty();
        assert!(!silent, "{line}: ends without a word");
    }
}

#[test]
fn root_needs_a_user_to_become() {
    if !nix::unistd::Uid::current().is_root() {
        eprintln!("SKIPPED: not root");
        return;
    }
    for (args, code) in
        [(&["memcached", "-p", "-1"][..], 64), (&["memcached", "-u", "no-such"], 67)]
    {
        assert_eq!(output(args).status.code(), Some(code), "{args:?}");
    }
    let args = ["memcached", "-u", "nobody", "-p", "-1", "-l", "127.0.0.1"];
    let mut server = Serving::start(&mut rebate(&args));
    server.address();
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    assert!(ids.split_whitespace().all(|id| id != "0"), "{ids}");
}

/// Waits for a file that another process creates in one step, and returns its text.
fn wait_for_content(path: &Path) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match fs::read_to_string(path) {
            Ok(text) => return text,
            Err(error) => assert!(Instant::now() < deadline, "{}: {error}", path.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
