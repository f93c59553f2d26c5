//! Logins of this process at memcached servers, with `-Y` and with SASL, and at store, compression and scheduler
//! services: what clients see, what the pages say about a wrong password, and that a new one is taken over.

#[path = "services/mod.rs"]
mod services;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rebate_tests::{Authority, Port, Process, Server, TIMEOUT, poll_for, rebate_command};
use services::metrics;
use tempfile::TempDir;

/// The files of one test: those of the servers, and the login of the frontend.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        // The file is replaced as a whole, as operators should do.
        let new = self.0.path().join(format!("{name}.new"));
        std::fs::write(&new, text).expect("it is written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&new, mode).expect("its owner");
        std::fs::rename(&new, &path).expect("it is renamed");
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

/// A server for memcached clients, its admin pages and its log.
struct Frontend {
    server: Server,
    log: PathBuf,
}

impl Frontend {
    fn start(files: &Files, args: &[&str]) -> Self {
        let log = files.0.path().join("frontend.log");
        let mut command = rebate_command();
        command.args(["serve", "--role", "frontend", "--listen", "127.0.0.1:0"]);
        command.args(["--admin-listen", "127.0.0.1:0", "--threads", "2"]);
        command.args(args);
        let stderr = Stdio::from(std::fs::File::create(&log).expect("a log"));
        Self { server: Server::rebate_with(&mut command, stderr), log }
    }

    fn admin(&self) -> SocketAddr {
        self.server.admin().expect("admin pages")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until /readyz has this status and its text has all of these words.
    fn await_ready(&self, status: u16, words: &[&str]) {
        let mut last = (0, String::new());
        let is_so = poll_for(TIMEOUT, || {
            let (found, _, text) = services::page(self.admin(), "/readyz");
            last = (found, text);
            let has_all = words.iter().all(|word| last.1.contains(word));
            (last.0 == status && has_all).then_some(())
        });
        assert!(is_so.is_some(), "{status} {words:?}: {last:?}\n{}", self.log());
    }

    fn metric(&self, name: &str) -> f64 {
        metrics(self.admin()).get(name).copied().unwrap_or_default()
    }

    /// Sets a value and gets it again.
    fn is_served(&self, key: &str) -> bool {
        let value = rebate_tests::payload::text(3_000);
        let mut client = self.server.client();
        client.set(key, &value).expect("an answer") == "STORED"
            && client.get(key).expect("an answer") == Some(value)
    }
}

/// Checks what is told about a wrong password, corrects it, and checks that it is used.
fn correct_the_password(frontend: &Frontend, files: &Files, server: &str, right: &str) {
    let user = right.split(':').next().expect("a user");
    frontend.await_ready(503, &[server, &format!("refuses the login of user {user:?}")]);
    let refused = format!("rebate_ring_logins_refused_total{{server=\"{server}\"}}");
    assert!(frontend.metric(&refused) >= 1.0, "{refused}");
    assert!(!frontend.is_served("early"));
    let log = frontend.log();
    assert!(log.contains(server) && log.contains(user), "{log}");
    for secret in ["wrong-secret", "right-secret"] {
        assert!(!log.contains(secret), "{log}");
    }
    // A file with a mistake changes nothing.
    files.write("login", "no login");
    let failed = "rebate_login_reloads_total{result=\"failure\"}";
    poll_for(TIMEOUT, || (frontend.metric(failed) >= 1.0).then_some(())).expect("it is counted");
    files.write("login", right);
    frontend.await_ready(200, &[]);
    assert!(frontend.is_served("late"));
}

/// Starts memcached with this user and password.
fn memcached_with_password(files: &Files) -> Server {
    files.write("passwords", "web:right-secret\n");
    Server::memcached(&["-Y", &files.path("passwords")])
}

#[test]
fn a_memcached_with_passwords_is_used() {
    if !harness::memcached_is_here() {
        return;
    }
    let files = Files::new();
    let memcached = memcached_with_password(&files);
    files.write("login", "web:right-secret");
    let login = format!("store.login_file={}", files.path("login"));
    let frontend = Frontend::start(&files, &["--store", &memcached.as_store(), "--set", &login]);
    frontend.await_ready(200, &[]);
    for key in ["a", "b", "c"] {
        assert!(frontend.is_served(key));
    }
    let mut client = frontend.server.client();
    assert_eq!(client.ask(b"append a 0 0 1\r\n!").text(), "STORED\r\n");
    assert_eq!(client.ask(b"delete a").text(), "DELETED\r\n");
}

#[test]
fn a_wrong_password_of_memcached_is_told_and_corrected() {
    if !harness::memcached_is_here() {
        return;
    }
    let files = Files::new();
    let memcached = memcached_with_password(&files);
    files.write("login", "web:wrong-secret");
    let login = format!("store.login_file={}", files.path("login"));
    let frontend = Frontend::start(&files, &["--store", &memcached.as_store(), "--set", &login]);
    let server = memcached.addr().to_string();
    correct_the_password(&frontend, &files, &server, "web:right-secret");
}

#[test]
fn other_servers_of_the_ring_go_on() {
    if !harness::memcached_is_here() {
        return;
    }
    let files = Files::new();
    let (closed, open) = (memcached_with_password(&files), Server::memcached(&[]));
    files.write("login", "web:wrong-secret");
    let login = format!("store.login_file={}", files.path("login"));
    let store = format!("memcached://{},{}", closed.addr(), open.addr());
    let frontend = Frontend::start(&files, &["--store", &store, "--set", &login]);
    let name = closed.addr().to_string();
    frontend.await_ready(200, &[&name, "refuses the login of user \"web\""]);
    let served = (0..40).filter(|key| frontend.is_served(&format!("k{key}"))).count();
    let there = open.stat("curr_items").expect("a number");
    assert!(served > 0 && served < 40, "{served} of 40 keys");
    assert_eq!(there, served as u64, "those of the other server");
    let keys: Vec<_> = (0..40).map(|key| format!("k{key}")).collect();
    let many = frontend.server.client().ask(format!("get {}", keys.join(" ")).as_bytes());
    assert_eq!(many.text().matches("VALUE ").count(), served);
}

#[test]
fn a_server_without_logins_gets_no_password() {
    if !harness::memcached_is_here() {
        return;
    }
    let files = Files::new();
    let memcached = Server::memcached(&[]);
    files.write("login", "web:right-secret");
    let login = format!("store.login_file={}", files.path("login"));
    let frontend = Frontend::start(&files, &["--store", &memcached.as_store(), "--set", &login]);
    assert!(frontend.is_served("a"));
    assert_eq!(memcached.stat("cmd_set"), Some(1), "only the client's");
}

#[test]
fn a_server_that_wants_a_login_is_told() {
    if !harness::memcached_is_here() {
        return;
    }
    let files = Files::new();
    let memcached = memcached_with_password(&files);
    let frontend = Frontend::start(&files, &["--store", &memcached.as_store()]);
    let server = memcached.addr().to_string();
    frontend.await_ready(503, &[&server, "give store.login_file"]);
    let answer = frontend.server.client().set("a", b"x").expect("an answer");
    assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
}

/// Starts memcached with SASL, if this machine can.
fn memcached_with_sasl(files: &Files) -> Option<Server> {
    let (folder, database) = (files.0.path(), files.path("sasldb"));
    let settings = format!(
        "mech_list: plain\npwcheck_method: auxprop\nauxprop_plugin: sasldb\n\
         sasldb_path: {database}\n"
    );
    files.write("memcached.conf", &settings);
    files.write("new-password", "right-secret");
    let mut tool = Command::new("/usr/sbin/saslpasswd2");
    tool.args(["-p", "-c", "-a", "memcached", "-u", "localhost", "-f", &database, "web"]);
    tool.stdin(std::fs::File::open(folder.join("new-password")).expect("a file"));
    let is_made = tool.output().is_ok_and(|output| output.status.success());
    if !is_made || !harness::memcached_is_here() {
        return None;
    }
    let port_file = folder.join("port");
    let mut command = Command::new("memcached");
    command.args(["-S", "-u", "root", "-l", "127.0.0.1", "-p", "-1", "-U", "0"]);
    command.env("SASL_CONF_PATH", folder).env("MEMCACHED_PORT_FILENAME", &port_file);
    let process = Process::start(&mut command).expect("it starts");
    Some(Server::listening(process, |_| port_of(&port_file)))
}

fn port_of(file: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(file).ok()?;
    let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: "))?;
    Some(SocketAddr::from(([127, 0, 0, 1], port.trim().parse().ok()?)))
}

fn with_sasl(files: &Files) -> [String; 2] {
    ["store.login=sasl".to_owned(), format!("store.login_file={}", files.path("login"))]
}

#[test]
fn a_memcached_with_sasl_is_used() {
    let files = Files::new();
    let Some(memcached) = memcached_with_sasl(&files) else { return };
    files.write("login", "web@localhost:right-secret");
    let [scheme, login] = with_sasl(&files);
    let store = memcached.as_store();
    let args = ["--store", &store, "--set", &scheme, "--set", &login];
    let frontend = Frontend::start(&files, &args);
    frontend.await_ready(200, &[]);
    let mut client = frontend.server.client();
    for bytes in [0, 1, 8_000, 70_000, 1_000_000] {
        for value in [rebate_tests::payload::random(bytes), rebate_tests::payload::text(bytes)] {
            assert_eq!(client.set("k", &value).expect("an answer"), "STORED", "{bytes}");
            assert!(client.get("k").expect("an answer") == Some(value), "{bytes}");
        }
    }
    for (command, answer) in [
        (&b"set n 5 0 1\r\n7"[..], "STORED\r\n"),
        (b"incr n 5", "12\r\n"),
        (b"decr n 2", "10\r\n"),
        (b"incr nothing 1", "NOT_FOUND\r\n"),
        (b"get n nothing n", "VALUE n 5 2\r\n10\r\nVALUE n 5 2\r\n10\r\nEND\r\n"),
        (b"add n 0 0 1\r\n1", "NOT_STORED\r\n"),
        (b"replace nothing 0 0 1\r\n1", "NOT_STORED\r\n"),
        (b"cas n 0 0 1 1\r\n1", "EXISTS\r\n"),
        (b"cas nothing 0 0 1 1\r\n1", "NOT_FOUND\r\n"),
        (b"touch n 100", "TOUCHED\r\n"),
        (b"gat 100 n", "VALUE n 5 2\r\n10\r\nEND\r\n"),
        (b"set gone 0 -1 1\r\n1", "STORED\r\n"),
        (b"get gone", "END\r\n"),
        (b"delete n", "DELETED\r\n"),
        (b"delete n", "NOT_FOUND\r\n"),
        (b"flush_all", "OK\r\n"),
        (b"get k", "END\r\n"),
    ] {
        let shown = command.escape_ascii();
        assert_eq!(client.ask(command).text(), answer, "{shown}");
    }
    // The binary protocol has no meta commands. The error says so, and the connection stays in step.
    let answer = client.ask(b"mg k t").text();
    assert!(answer.contains("binary protocol"), "{answer}");
    assert!(frontend.is_served("after"));
    assert!(client.ask(b"stats").text().contains("STAT curr_items 1\r\n"));
}

#[test]
fn a_wrong_password_of_sasl_is_told_and_corrected() {
    let files = Files::new();
    let Some(memcached) = memcached_with_sasl(&files) else { return };
    files.write("login", "web@localhost:wrong-secret");
    let [scheme, login] = with_sasl(&files);
    let store = memcached.as_store();
    let args = ["--store", &store, "--set", &scheme, "--set", &login];
    let frontend = Frontend::start(&files, &args);
    let server = memcached.addr().to_string();
    correct_the_password(&frontend, &files, &server, "web@localhost:right-secret");
}

/// The rules of services: only the user `web` may use them.
const RULES: &str = "
[roles.frontend]
commands = [\"read\", \"write\", \"delete\", \"stats\", \"store-service\", \"compression-service\",
  \"scheduler-service\"]
[[users]]
name = \"web\"
password = \"right-secret\"
role = \"frontend\"
";

/// A service with rules at a port that is reserved for it.
struct Service {
    process: Process,
    address: String,
    _port: Port,
}

impl Service {
    /// Starts a service. With an authority, it speaks TLS.
    fn start(files: &Files, role: &str, authority: Option<&Authority>) -> Self {
        let port = Port::free().expect("a free port");
        let prefix = if authority.is_some() { "tls://" } else { "" };
        let address = format!("{prefix}{}", port.address());
        let rules = files.write("access.toml", RULES);
        let mut command = rebate_command();
        command.args(["serve", "--role", role, "--grpc-listen", &address, "--threads", "1"]);
        command.args(["--admin-listen", "127.0.0.1:0", "--access-file"]).arg(rules);
        command.args(authority.iter().flat_map(|authority| authority.server_flags()));
        let mut process = Process::start(&mut command).expect("it starts");
        let grpc =
            process.await_ready(TIMEOUT, "line `grpc on ADDR`", |one| one.printed("grpc on "));
        assert_eq!(grpc.expect("it serves"), address);
        Self { process, address, _port: port }
    }

    fn metric(&self, name: &str) -> f64 {
        let admin = self.process.printed("admin on ").expect("admin pages");
        let admin = admin.parse().expect("an address");
        metrics(admin).get(name).copied().unwrap_or_default()
    }
}

#[test]
fn a_store_service_is_used_with_a_password() {
    let files = Files::new();
    let store = Service::start(&files, "store", None);
    files.write("login", "web:wrong-secret");
    let login = format!("store.login_file={}", files.path("login"));
    let url = format!("grpc://{}", store.address);
    let frontend = Frontend::start(&files, &["--store", &url, "--set", &login]);
    correct_the_password(&frontend, &files, &store.address, "web:right-secret");
    let mut client = frontend.server.client();
    assert_eq!(client.ask(b"delete late").text(), "DELETED\r\n");
}

#[test]
fn a_store_service_that_wants_a_login_is_told() {
    let files = Files::new();
    let store = Service::start(&files, "store", None);
    let url = format!("grpc://{}", store.address);
    let frontend = Frontend::start(&files, &["--store", &url]);
    frontend.await_ready(503, &[&store.address, "give store.login_file"]);
}

#[test]
fn all_services_are_used_with_passwords_over_tls() {
    let (files, authority) = (Files::new(), Authority::new());
    let start = |role| Service::start(&files, role, Some(&authority));
    let (store, compression, scheduler) =
        (start("store"), start("compression"), start("scheduler"));
    files.write("login", "web:right-secret");
    let path = files.path("login");
    let logins = ["store.login_file", "runtime.compression_login_file", "scheduler.login_file"]
        .map(|key| format!("{key}={path}"));
    let url = format!("grpc://{}", store.address);
    let mut args = vec!["--store", &url, "--set", "runtime.offload_bytes_min=0"];
    let to = format!("runtime.compression={}", compression.address);
    args.extend(["--set", &to, "--scheduler", &scheduler.address]);
    args.extend(logins.iter().flat_map(|login| ["--set", login]));
    let trusts = authority.upstream_flags();
    args.extend(trusts.iter().map(String::as_str));
    let frontend = Frontend::start(&files, &args);
    frontend.await_ready(200, &[]);
    assert!(frontend.is_served("a"));
    let jobs = || {
        let all = metrics(frontend.admin());
        let device = format!("device=\"remote-{}\"", compression.address);
        let of_device = all
            .iter()
            .filter(|(name, _)| name.starts_with("rebate_jobs_total") && name.contains(&device));
        of_device.map(|(_, jobs)| *jobs).sum::<f64>()
    };
    assert!(
        poll_for(TIMEOUT, || {
            assert!(frontend.is_served("b"));
            (jobs() > 0.0).then_some(())
        })
        .is_some()
    );
    let reports = "rebate_scheduler_reports_total{result=\"kept\"}";
    let is_reported = || (frontend.metric(reports) > 0.0).then_some(());
    assert!(poll_for(TIMEOUT, is_reported).is_some(), "{}", frontend.log());
    assert!(store.metric("rebate_logins_total") > 0.0);
    let password = |log: &str| log.contains("right-secret");
    assert!(!password(&frontend.log()) && !password(&store.process.output()));
}

#[test]
fn a_wrong_password_of_compression_costs_speed_only() {
    let files = Files::new();
    let compression = Service::start(&files, "compression", None);
    files.write("login", "web:wrong-secret");
    let login = format!("runtime.compression_login_file={}", files.path("login"));
    let to = format!("runtime.compression={}", compression.address);
    let args = ["--set", &to, "--set", &login, "--set", "runtime.offload_bytes_min=0"];
    let frontend = Frontend::start(&files, &args);
    assert!(frontend.is_served("a"));
    let device = format!("remote-{}", compression.address);
    let refused =
        format!("rebate_device_counter_total{{device=\"{device}\",counter=\"logins_refused\"}}");
    let is_counted = || {
        assert!(frontend.is_served("b"));
        (frontend.metric(&refused) >= 1.0).then_some(())
    };
    assert!(poll_for(TIMEOUT, is_counted).is_some(), "{}", frontend.log());
    let log = frontend.log();
    assert!(log.contains("refuses the login of user \"web\""), "{log}");
    assert!(!log.contains("wrong-secret"), "{log}");
}

#[test]
fn wrong_files_are_refused_before_the_start() {
    let files = Files::new();
    let file = files.write("login", "secret-without-user");
    let set = |key: &str| format!("{key}={}", file.display());
    let store = "memcached://127.0.0.1:1";
    for (args, said) in [
        (vec!["--store", store, "--set", &set("store.login_file")], "give one line USER:PASSWORD"),
        (vec!["--set", &set("store.login_file")], "there is nobody to log in to"),
        (vec!["--store", store, "--set", "store.login=sasl"], "needs store.login_file"),
        (vec!["--set", &set("scheduler.login_file")], "scheduler.login_file: "),
        (vec!["--set", "runtime.compression_login_file=/none"], "/none: No such file"),
    ] {
        let output = rebate_command().arg("serve").args(&args).arg("--check-config").output();
        let output = output.expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(said), "{args:?}: {text}");
        assert!(!text.contains("secret-without-user"), "{text}");
    }
}
