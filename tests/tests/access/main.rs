//! Tests who may do what: every command of every protocol for every identity against a running server, logins as
//! memcached answers them, quotas, and clients beside one that guesses passwords.

mod logins;
mod packets;
mod table;
#[path = "../tunnel/mod.rs"]
mod tunnel;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use api::tonic::Code;
use api::v1::GetRequest;
use api::v1::cache_client::CacheClient;
use rebate_tests::{Authority, Bystander, Port, Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::Signal;
use table::{GrpcProtocol, RULES, USERS, authorization, with};
use tls::Application;
use tunnel::Tunnel;

/// A server with rules.
struct Guarded {
    server: Server,
    grpc: SocketAddr,
    _ports: Vec<Port>,
    folder: tempfile::TempDir,
    identified: Identified,
    /// The tunnels to the TLS listeners for memcached clients and for gRPC, by user.
    tunnels: BTreeMap<&'static str, (Tunnel, Tunnel)>,
}

/// How the server learns who a user is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Identified {
    ByPassword,
    ByCertificate,
}

impl Guarded {
    fn start(rules: &str) -> Self {
        Self::start_at(rules, &[], |_| {})
    }

    /// Starts a server whose users of the table come over TLS.
    fn start_with_tls(rules: &str, identified: Identified) -> Self {
        let authority = Authority::new();
        let mut guarded = Self::start_at(rules, &["tls://"], |command| {
            command.args(authority.server_flags()).args(authority.client_auth_flags("request"));
        });
        let mut printed = |what: &str| {
            let address = guarded.server.await_ready(TIMEOUT, what, |one| one.printed(what));
            address.expect("it listens").parse().expect("an address")
        };
        let text: SocketAddr = printed("listening on tls://");
        let grpc: SocketAddr = printed("grpc on tls://");
        for (user, ..) in USERS {
            let is_certified = identified == Identified::ByCertificate && !user.is_empty();
            if is_certified {
                authority.sign(user, 2100);
            }
            let name = is_certified.then_some(user);
            let text = Tunnel::start(&authority, name, text, Application::Plain);
            let grpc = Tunnel::start(&authority, name, grpc, Application::Http2);
            guarded.tunnels.insert(user, (text, grpc));
        }
        guarded.identified = identified;
        guarded
    }

    /// Starts a server with listeners without TLS, and one more of each kind for each prefix of an address.
    fn start_at(rules: &str, prefixes: &[&str], more: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        write_rules(&folder.path().join("access.toml"), rules);
        let file = folder.path().join("access.toml");
        let mut command = rebate_command();
        let mut ports = Vec::new();
        command.arg("serve");
        for prefix in [""].iter().chain(prefixes) {
            let port = Port::free().expect("a free port");
            command.args(["--listen", &format!("{prefix}127.0.0.1:0")]);
            command.args(["--grpc-listen", &format!("{prefix}{}", port.address())]);
            ports.push(port);
        }
        command.args(["--admin-listen", "127.0.0.1:0", "--threads", "2", "--memory", "64MiB"]);
        command.arg("--access-file").arg(file);
        more(&mut command);
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let server = Server::rebate_with(&mut command, Stdio::from(log));
        let grpc = server.printed("grpc on ").and_then(|text| text.parse().ok());
        Self {
            server,
            grpc: grpc.expect("a gRPC address"),
            _ports: ports,
            folder,
            identified: Identified::ByPassword,
            tunnels: BTreeMap::new(),
        }
    }

    /// Returns the address at which a user reaches the server.
    fn address_of(&self, user: &str) -> SocketAddr {
        self.tunnels.get(user).map_or_else(|| self.server.addr(), |(text, _)| text.address)
    }

    /// Returns the address at which a user reaches gRPC.
    fn grpc_of(&self, user: &str) -> SocketAddr {
        self.tunnels.get(user).map_or(self.grpc, |(_, grpc)| grpc.address)
    }

    /// Returns whether users log in with passwords.
    fn logs_in(&self) -> bool {
        self.identified == Identified::ByPassword
    }

    fn rules(&self) -> PathBuf {
        self.folder.path().join("access.toml")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn metric(&self, line: &str) -> f64 {
        let admin = self.server.admin().expect("admin pages");
        let (_, page) = rebate_tests::http::page(admin, "/metrics").unwrap_or_default();
        let value = page.lines().find_map(|found| found.strip_prefix(line));
        value.and_then(|value| value.trim().parse().ok()).unwrap_or(-1.0)
    }

    fn text(&self, user: &str) -> Text {
        let mut text = Text::connect(self.address_of(user));
        if !user.is_empty() && self.logs_in() {
            assert_eq!(text.log_in(user, &format!("{user}-password")), "STORED\r\n", "{user}");
        }
        text
    }
}

fn write_rules(path: &Path, rules: &str) {
    std::fs::write(path, rules).expect("the rules are written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("its owner");
}

/// A connection of the text protocol that reads whatever comes within a short time.
struct Text(TcpStream);

impl Text {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        Self(stream)
    }

    /// Sends bytes and reads until the answer ends with `end`, or the connection ends.
    fn ask_until(&mut self, bytes: &[u8], end: &[u8]) -> Vec<u8> {
        let _closed = self.0.write_all(bytes);
        let mut answer = Vec::new();
        let mut byte = [0; 4096];
        while !answer.ends_with(end) {
            match self.0.read(&mut byte) {
                Ok(count) if count > 0 => answer.extend_from_slice(&byte[..count]),
                _ => break,
            }
        }
        answer
    }

    /// Sends bytes and returns the first line of the answer.
    fn ask(&mut self, bytes: &[u8]) -> String {
        let answer = self.ask_until(bytes, b"\r\n");
        let end =
            answer.windows(2).position(|two| two == b"\r\n").map_or(answer.len(), |at| at + 2);
        String::from_utf8_lossy(&answer[..end]).into_owned()
    }

    fn log_in(&mut self, user: &str, password: &str) -> String {
        let value = format!("{user} {password}");
        self.ask(format!("set x 0 0 {}\r\n{value}\r\n", value.len()).as_bytes())
    }
}

#[test]
fn a_refused_command_leaves_the_next_one_readable() {
    let server = Guarded::start(RULES);
    let mut text = server.text("reader");
    let value = "v".repeat(100_000);
    let sent =
        format!("set a 0 0 {}\r\n{value}\r\nset a 0 0 1 noreply\r\nx\r\nget a\r\n", value.len());
    let answer = text.ask_until(sent.as_bytes(), b"END\r\n");
    assert_eq!(String::from_utf8_lossy(&answer), "CLIENT_ERROR permission denied\r\nEND\r\n");
}

#[test]
fn a_value_too_large_drops_no_item_of_others() {
    let server = Guarded::start(RULES);
    assert_eq!(server.text("admin").ask(b"set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    for user in ["reader", "web"] {
        let large = format!("set a 0 0 2000000\r\n{}\r\n", "v".repeat(2_000_000));
        let answer = server.text(user).ask(large.as_bytes());
        assert!(answer.starts_with("CLIENT_ERROR permission denied"), "{user}: {answer}");
    }
    assert_eq!(server.text("admin").ask(b"get a\r\n"), "VALUE a 0 1\r\n");
}

#[test]
fn grpc_answers_say_who_must_log_in() {
    let (server, grpc) = (Guarded::start(RULES), GrpcProtocol::new());
    let get = "Cache/Get KEY";
    assert_eq!(grpc.call(&server, "", get, "a"), Code::Unauthenticated);
    assert_eq!(grpc.call(&server, "watcher", get, "a"), Code::PermissionDenied);
    let basic = authorization("reader", "reader-password").replace("Bearer", "Basic");
    assert_eq!(grpc.call_with(&server, &basic, get, "a"), Code::Ok);
    let wrong = authorization("reader", "reader-passwort");
    for header in [&wrong[..], "Bearer", "Bearer x", "Digest abc", "Basic !!!"] {
        assert_eq!(grpc.call_with(&server, header, get, "a"), Code::Unauthenticated, "{header}");
    }
}

#[test]
fn a_reload_changes_the_rights_of_open_connections() {
    let server = Guarded::start(RULES);
    let (mut reader, mut web) = (server.text("reader"), server.text("web"));
    assert_eq!(reader.ask(b"get a\r\n"), "END\r\n");
    write_rules(&server.rules(), &RULES.replace("[\"read\"]", "[\"stats\"]"));
    server.server.signal(Signal::HUP);
    let denied = "CLIENT_ERROR permission denied\r\n";
    let told = poll_for(TIMEOUT, || (reader.ask(b"get a\r\n") == denied).then_some(()));
    assert!(told.is_some(), "{}", server.log());
    assert_eq!(web.ask(b"get web:a\r\n"), "END\r\n");
    // A wrong file keeps the rules.
    write_rules(&server.rules(), "[roles.x]\ncommands = [\"none\"]\n");
    server.server.signal(Signal::HUP);
    let failed = "rebate_access_reloads_total{result=\"failure\"}";
    assert!(poll_for(TIMEOUT, || (server.metric(failed) == 1.0).then_some(())).is_some());
    assert_eq!(
        (reader.ask(b"get a\r\n"), web.ask(b"get web:a\r\n")),
        (denied.into(), "END\r\n".into())
    );
    // A user whose password changes must log in again.
    write_rules(&server.rules(), &RULES.replace("web-password", "new-password"));
    server.server.signal(Signal::HUP);
    let logged_out = "CLIENT_ERROR unauthenticated\r\n";
    assert!(
        poll_for(TIMEOUT, || (web.ask(b"get web:a\r\n") == logged_out).then_some(())).is_some()
    );
    assert!(server.log().contains("not reloaded, the old ones stay"), "{}", server.log());
}

#[test]
fn the_audit_log_has_no_values_and_no_passwords() {
    let server = Guarded::start(RULES);
    let mut text = server.text("");
    assert_eq!(
        text.log_in("admin", "guess-of-a-password"),
        "CLIENT_ERROR authentication failure\r\n"
    );
    // A client that does not know that its first set is a login, and a password in the place of a user.
    let refused = "CLIENT_ERROR authentication failure\r\n";
    assert_eq!(text.ask(b"set k 0 0 21\r\nsecret-token and more\r\n"), refused);
    assert_eq!(text.log_in("secret-password", "admin"), refused);
    text.ask(b"secret-line-of-a-value\r\n");
    server.text("reader").ask(b"set long-key-that-goes-on 0 0 12\r\nsecret-value\r\n");
    server.text("admin").ask(b"flush_all\r\n");
    let lines = || server.log().lines().filter(|line| line.contains("server::audit")).count();
    assert!(poll_for(TIMEOUT, || (lines() >= 6).then_some(())).is_some(), "{}", server.log());
    let log = server.log();
    for said in [
        "wrong password for \"admin\"",
        "wrong password for an unknown user of 12 bytes",
        "user reader",
        "set",
        "long-key-that-go",
        "flush_all",
        "127.0.0.1:",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
    for hidden in ["guess-of", "secret", "long-key-that-goes-on", "admin-password"] {
        assert!(!log.contains(hidden), "{hidden}: {log}");
    }
}

#[test]
fn the_audit_log_is_bounded() {
    let server = Guarded::start(RULES);
    let mut text = server.text("reader");
    let refused = 2_000;
    for _ in 0..refused {
        assert_eq!(text.ask(b"delete a\r\n"), "CLIENT_ERROR permission denied\r\n");
    }
    assert!(server.metric("rebate_audit_lines_left_out_total") > 1_000.0);
    let lines = server.log().lines().filter(|line| line.contains("refused")).count();
    assert!((20..1_000).contains(&lines), "{lines} lines");
}

#[test]
fn an_identity_has_its_connections_only() {
    let server = Guarded::start(RULES);
    let (mut first, second) = (server.text("two"), server.text("two"));
    let mut third = Text::connect(server.server.addr());
    assert_eq!(third.log_in("two", "two-password"), "CLIENT_ERROR authentication failure\r\n");
    assert_eq!(first.ask(b"version\r\n").split(' ').next(), Some("VERSION"));
    drop(second);
    let again = || (third.log_in("two", "two-password") == "STORED\r\n").then_some(());
    assert!(poll_for(TIMEOUT, again).is_some());
}

#[test]
fn connections_that_get_an_identity_by_a_reload_count() {
    let server = Guarded::start(RULES);
    let mut open = [(); 2].map(|()| Text::connect(server.server.addr()));
    let unknown = "CLIENT_ERROR unauthenticated\r\n";
    open.iter_mut().for_each(|text| assert_eq!(text.ask(b"version\r\n"), unknown));
    let network = "\n[[networks]]\ncidr = \"127.0.0.1/32\"\nrole = \"two\"\n";
    write_rules(&server.rules(), &(RULES.to_owned() + network));
    server.server.signal(Signal::HUP);
    for text in &mut open {
        let is_known = || text.ask(b"version\r\n").starts_with("VERSION").then_some(());
        poll_for(TIMEOUT, is_known).expect("the new rules");
    }
    let full = Text::connect(server.server.addr()).ask(b"");
    assert_eq!(full, "ERROR Too many open connections\r\n");
}

/// Counts the answers of `clients` connections of a user that ask without pause for a time.
fn answers_within(server: &Guarded, user: &str, clients: usize, time: Duration) -> u64 {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut connections: Vec<_> = (0..clients).map(|_| server.text(user)).collect();
    thread::scope(|scope| {
        for text in &mut connections {
            let (stop, count) = (&stop, &count);
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    if text.ask(b"get a\r\n") == "END\r\n" {
                        count.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        thread::sleep(time);
        stop.store(true, Ordering::SeqCst);
        count.load(Ordering::SeqCst)
    })
}

#[test]
fn a_quota_holds_over_all_workers() {
    let server = Guarded::start(RULES);
    let time = Duration::from_secs(5);
    let found = answers_within(&server, "ten", 4, time) as f64;
    let wanted = 500.0 * time.as_secs_f64();
    assert!((found / wanted - 1.0).abs() < 0.06, "{found} of {wanted}");
    assert!(server.metric("rebate_access_quota_waits_total") > 0.0);
}

#[test]
fn a_strict_quota_answers_an_error() {
    let server = Guarded::start(RULES);
    let mut text = server.text("strict");
    let answers: BTreeSet<_> = (0..100).map(|_| text.ask(b"get a\r\n")).collect();
    let expected = ["END\r\n", "SERVER_ERROR over quota\r\n"].map(String::from);
    assert_eq!(answers, BTreeSet::from(expected));
    assert!(server.metric("rebate_access_refused_total{reason=\"quota\"}") > 50.0);
}

#[test]
fn bytes_count_towards_a_quota() {
    let server = Guarded::start(RULES);
    let mut text = server.text("slow");
    let value = "v".repeat(100_000);
    let set = format!("set a 0 0 {}\r\n{value}\r\n", value.len());
    let since = Instant::now();
    for _ in 0..20 {
        assert_eq!(text.ask(set.as_bytes()), "STORED\r\n");
    }
    let took = since.elapsed().as_secs_f64();
    assert!((1.5..10.0).contains(&took), "2 MB at 1 MiB/s took {took} s");
}

#[test]
fn clients_beside_guesses_are_served() {
    // A bystander does not log in.
    let server = Guarded::start(
        "[roles.all]\ncommands = [\"all\"]\n[anonymous]\nrole = \"all\"\n\
         [[users]]\nname = \"a\"\npassword = \"12345678\"\nrole = \"all\"\n",
    );
    let (grpc, stop) = (server.grpc, AtomicBool::new(false));
    let alone = Bystander::observe(server.server.addr(), 2, 100, Duration::from_secs(2));
    let beside = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| guess(grpc, &stop));
        }
        let beside = Bystander::observe(server.server.addr(), 2, 100, Duration::from_secs(3));
        stop.store(true, Ordering::SeqCst);
        beside
    });
    assert!(beside.failures.is_empty(), "{:?}", beside.failures);
    let (alone, beside) = (alone.quantile(0.99), beside.quantile(0.99));
    println!("p99 alone {alone:?}, beside guesses {beside:?}");
    assert!(beside < Duration::from_millis(20) + 20 * alone, "{alone:?} to {beside:?}");
    assert!(server.metric("rebate_logins_failed_total") > 10.0);
    assert!(server.metric("rebate_logins_delayed_total") > 0.0);
}

/// Guesses a password over gRPC, with many calls at once, until it is stopped.
fn guess(address: SocketAddr, stop: &AtomicBool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let address = address.to_string().parse().expect("an address");
    let channel = api::wire::channel(&address, TIMEOUT).expect("a channel");
    let header = authorization("a", "87654321");
    while !stop.load(Ordering::SeqCst) {
        let calls = (0..64).map(|_| {
            let mut cache = CacheClient::new(channel.clone());
            let request = with(&header, GetRequest { key: "a".into(), ..GetRequest::default() });
            runtime.spawn(async move { cache.get(request).await.map(drop) })
        });
        let calls: Vec<_> = calls.collect();
        for call in calls {
            let _refused = runtime.block_on(call);
        }
    }
}

#[test]
fn a_unix_client_has_the_rights_of_its_user() {
    let folder = tempfile::tempdir().expect("a folder");
    let uid = rustix::process::getuid().as_raw();
    let (rules, socket) = (folder.path().join("rules"), folder.path().join("socket"));
    let text = "[roles.all]\ncommands = [\"read\"]\n[[unix]]\nuid = UID\nrole = \"all\"\n";
    for (owner, answer) in [(uid, "END\r\n"), (uid + 1, "CLIENT_ERROR unauthenticated\r\n")] {
        write_rules(&rules, &text.replace("UID", &owner.to_string()));
        let mut command = rebate_command();
        command.args(["serve", "--listen", "127.0.0.1:0"]).arg("--unix-socket").arg(&socket);
        command.arg("--access-file").arg(&rules);
        let _server = Server::rebate_with(&mut command, Stdio::null());
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(b"get a\r\n").expect("it reads");
        let mut found = vec![0; answer.len()];
        stream.read_exact(&mut found).expect("an answer");
        assert_eq!(String::from_utf8_lossy(&found), answer);
    }
}

#[test]
fn an_open_address_needs_rules_or_insecure() {
    let refused = |args: &[&str]| {
        let done = rebate_command().arg("serve").args(args).arg("--check-config").output();
        let done = done.expect("it runs");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:1"] {
        for flag in ["--listen", "--grpc-listen"] {
            let (code, said) = refused(&[flag, address]);
            assert_eq!(code, Some(2), "{flag} {address}: {said}");
            assert!(said.contains("--insecure") && said.contains("access_file"), "{said}");
            assert_eq!(refused(&[flag, address, "--insecure"]).0, Some(0));
        }
    }
    for address in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0", "localhost:0"] {
        assert_eq!(refused(&["--listen", address]).0, Some(0), "{address}");
    }
}
