//! Tests who may do what: every command of every protocol for every identity against a running server, logins as
//! memcached answers them, quotas, and clients beside one that guesses passwords.

mod logins;
mod packets;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use api::tonic::metadata::MetadataValue;
use api::tonic::{Code, Request};
use api::v1::cache_client::CacheClient;
use api::v1::compression_client::CompressionClient;
use api::v1::scheduler_client::SchedulerClient;
use api::v1::store_client::StoreClient;
use api::v1::{
    DeleteRequest, DescribeRequest, ExecuteRequest, GetRequest, MultiGetRequest, QueryRequest,
    SetRequest,
};
use rebate_tests::{Bystander, Port, Server, TIMEOUT, poll_for, rebate_command};
use rustix::process::Signal;

/// The roles of the table. `admin` is the only one that may do everything.
const RULES: &str = r#"
[roles.reader]
commands = ["read"]
[roles.web]
commands = ["read", "write", "delete"]
key_prefix = "web:"
[roles.watcher]
commands = ["stats"]
[roles.frontend]
commands = ["read", "write", "store-service", "compression-service"]
[roles.admin]
commands = ["all"]
[roles.ten]
commands = ["all"]
requests_per_s = 500
[roles.strict]
commands = ["all"]
requests_per_s = 20
over_quota = "refuse"
[roles.two]
commands = ["all"]
connections = 2
[roles.slow]
commands = ["all"]
bytes_per_s = "1MiB"
[[users]]
name = "reader"
password = "reader-password"
role = "reader"
[[users]]
name = "web"
password = "web-password"
role = "web"
[[users]]
name = "watcher"
password = "watcher-password"
role = "watcher"
[[users]]
name = "frontend"
password = "frontend-password"
role = "frontend"
[[users]]
name = "admin"
password = "admin-password"
role = "admin"
[[users]]
name = "ten"
password = "ten-password"
role = "ten"
[[users]]
name = "strict"
password = "strict-password"
role = "strict"
[[users]]
name = "two"
password = "two-password"
role = "two"
[[users]]
name = "slow"
password = "slow-password"
role = "slow"
"#;

/// A server with rules.
struct Guarded {
    server: Server,
    grpc: SocketAddr,
    _port: Port,
    folder: tempfile::TempDir,
}

impl Guarded {
    fn start(rules: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        write_rules(&folder.path().join("access.toml"), rules);
        let file = folder.path().join("access.toml");
        let port = Port::free().expect("a free port");
        let address = port.address().to_string();
        let mut command = rebate_command();
        command.args(["serve", "--listen", "127.0.0.1:0", "--grpc-listen", &address]);
        command.args(["--admin-listen", "127.0.0.1:0", "--threads", "2", "--memory", "64MiB"]);
        command.arg("--access-file").arg(file);
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let server = Server::rebate_with(&mut command, Stdio::from(log));
        let grpc = server.printed("grpc on ").and_then(|text| text.parse().ok());
        Self { server, grpc: grpc.expect("a gRPC address"), _port: port, folder }
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
        let mut text = Text::connect(self.server.addr());
        if !user.is_empty() {
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

/// What a client tries. `KEY` stands for the key.
const READ: u16 = 1;
const WRITE: u16 = 2;
const DELETE: u16 = 4;
const FLUSH: u16 = 8;
const STATS: u16 = 16;
const DUMP: u16 = 32;
const ADMIN: u16 = 64;
const STORE: u16 = 128;
const COMPRESSION: u16 = 256;
const SCHEDULER: u16 = 512;

/// A way to try commands as a user: one row for each protocol.
trait Protocol {
    /// Returns the commands, with the rights that each needs. Those with a key have `KEY` in their names.
    fn commands(&self) -> Vec<(&'static str, u16)>;
    /// Runs a command as `user`, who is nobody if it is empty. Returns whether the server served it.
    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool;
}

struct TextProtocol;

impl Protocol for TextProtocol {
    fn commands(&self) -> Vec<(&'static str, u16)> {
        vec![
            ("get KEY\r\n", READ),
            ("gets KEY\r\n", READ),
            ("gat 9 KEY\r\n", READ | WRITE),
            ("gats 9 KEY\r\n", READ | WRITE),
            ("get web:other KEY\r\n", READ),
            ("set KEY 0 0 1\r\n1\r\n", WRITE),
            ("add KEY 0 0 1\r\n1\r\n", WRITE),
            ("replace KEY 0 0 1\r\n1\r\n", WRITE),
            ("append KEY 0 0 1\r\n1\r\n", WRITE),
            ("prepend KEY 0 0 1\r\n1\r\n", WRITE),
            ("cas KEY 0 0 1 9\r\n1\r\n", WRITE),
            ("touch KEY 9\r\n", WRITE),
            ("incr KEY 1\r\n", READ | WRITE),
            ("decr KEY 1\r\n", READ | WRITE),
            ("delete KEY\r\n", DELETE),
            ("flush_all\r\n", FLUSH),
            ("flush_all 0\r\n", FLUSH),
            ("stats\r\n", STATS),
            ("stats items\r\n", STATS),
            ("stats dictionaries\r\n", DUMP),
            ("stats reset\r\n", ADMIN),
            ("stats conns\r\n", ADMIN),
            ("stats cachedump 1 0\r\n", DUMP),
            ("lru_crawler metadump all\r\n", DUMP),
            ("lru_crawler mgdump all\r\n", DUMP),
            ("lru_crawler enable\r\n", ADMIN),
            ("verbosity 1\r\n", ADMIN),
            ("cache_memlimit 64\r\n", ADMIN),
            ("slabs automove 0\r\n", ADMIN),
            ("lru mode flat\r\n", ADMIN),
            ("shutdown\r\n", ADMIN),
            ("watch\r\n", ADMIN),
            ("watch fetchers mutations\r\n", ADMIN),
            ("version\r\n", 0),
        ]
    }

    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool {
        let answer = server.text(user).ask(command.replace("KEY", key).as_bytes());
        assert!(!answer.is_empty(), "{user}: {command}: closed");
        // A set of a client without rights is a login.
        ["permission denied", "unauthenticated", "bad authentication token"]
            .iter()
            .all(|refusal| !answer.contains(refusal))
    }
}

struct MetaProtocol;

impl Protocol for MetaProtocol {
    fn commands(&self) -> Vec<(&'static str, u16)> {
        vec![
            ("mg KEY v\r\n", READ),
            ("mg KEY T9 v\r\n", READ | WRITE),
            ("mg KEY N9 v\r\n", READ | WRITE),
            ("mg KEY R9 v\r\n", READ | WRITE),
            ("ms KEY 1\r\n1\r\n", WRITE),
            ("ms KEY 1 MA\r\n1\r\n", WRITE),
            ("md KEY\r\n", DELETE),
            ("md KEY I T9\r\n", DELETE | WRITE),
            ("md KEY x\r\n", DELETE | WRITE),
            ("ms KEY 1 MA N9\r\n1\r\n", WRITE),
            ("ms KEY 1 E9\r\n1\r\n", WRITE),
            ("ma KEY N0 v\r\n", READ | WRITE),
            ("ma KEY MD\r\n", READ | WRITE),
            ("me KEY\r\n", READ),
            ("mn\r\n", 0),
        ]
    }

    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool {
        TextProtocol.is_served(server, user, command, key)
    }
}

struct GrpcProtocol(tokio::runtime::Runtime);

impl GrpcProtocol {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Self(runtime.expect("a runtime"))
    }

    fn call(&self, server: &Guarded, user: &str, command: &str, key: &str) -> Code {
        self.call_with(server, &authorization(user, &format!("{user}-password")), command, key)
    }

    fn call_with(&self, server: &Guarded, header: &str, command: &str, key: &str) -> Code {
        let _inside = self.0.enter();
        let address = server.grpc.to_string().parse().expect("an address");
        let channel = api::wire::channel(&address, TIMEOUT).expect("a channel");
        let key = key.as_bytes().to_vec();
        let get = GetRequest { key: key.clone().into(), ..GetRequest::default() };
        let mut cache = CacheClient::new(channel.clone());
        let mut store = StoreClient::new(channel.clone());
        let set =
            SetRequest { key: key.clone().into(), value: "1".into(), ..SetRequest::default() };
        let delete = DeleteRequest { key: key.clone().into() };
        let many = MultiGetRequest {
            keys: vec!["web:other".into(), key.clone().into()],
            ..MultiGetRequest::default()
        };
        let line = command.strip_prefix("Store/Execute ").unwrap_or_default();
        let line = line.replace("KEY", &String::from_utf8_lossy(&key));
        let execute = ExecuteRequest { parts: vec![line.into_bytes().into()] };
        let answered = self.0.block_on(async {
            match command {
                "Cache/Get KEY" => cache.get(with(header, get)).await.map(drop),
                "Cache/MultiGet KEY" => cache.multi_get(with(header, many)).await.map(drop),
                "Cache/Set KEY" => cache.set(with(header, set)).await.map(drop),
                "Cache/Delete KEY" => cache.delete(with(header, delete)).await.map(drop),
                "Store/Get KEY" => store.get(with(header, get)).await.map(drop),
                "Store/MultiGet KEY" => store.multi_get(with(header, many)).await.map(drop),
                "Store/Set KEY" => store.set(with(header, set)).await.map(drop),
                "Store/Delete KEY" => store.delete(with(header, delete)).await.map(drop),
                "Compression/Describe" => CompressionClient::new(channel)
                    .describe(with(header, DescribeRequest::default()))
                    .await
                    .map(drop),
                "Scheduler/Query" => SchedulerClient::new(channel)
                    .query(with(header, QueryRequest::default()))
                    .await
                    .map(drop),
                _ => store.execute(with(header, execute)).await.map(drop),
            }
        });
        answered.err().map_or(Code::Ok, |status| status.code())
    }
}

impl Protocol for GrpcProtocol {
    fn commands(&self) -> Vec<(&'static str, u16)> {
        vec![
            ("Cache/Get KEY", READ),
            ("Cache/MultiGet KEY", READ),
            ("Cache/Set KEY", WRITE),
            ("Cache/Delete KEY", DELETE),
            ("Store/Get KEY", STORE | READ),
            ("Store/MultiGet KEY", STORE | READ),
            ("Store/Set KEY", STORE | WRITE),
            ("Store/Delete KEY", STORE | DELETE),
            ("Store/Execute get KEY\r\n", STORE | READ),
            ("Store/Execute set KEY 0 0 1\r\n1\r\n", STORE | WRITE),
            ("Store/Execute set KEY 0 0 2000000\r\n1\r\n", STORE | WRITE),
            ("Store/Execute flush_all\r\n", STORE | FLUSH),
            ("Store/Execute stats\r\n", STORE | STATS),
            ("Store/Execute lru_crawler metadump all\r\n", STORE | DUMP),
            ("Store/Execute verbosity 1\r\n", STORE | ADMIN),
            ("Compression/Describe", COMPRESSION),
            ("Scheduler/Query", SCHEDULER),
        ]
    }

    fn is_served(&self, server: &Guarded, user: &str, command: &str, key: &str) -> bool {
        match self.call(server, user, command, key) {
            Code::PermissionDenied | Code::Unauthenticated => false,
            // The command whose value is missing is refused after its rights were checked.
            Code::Ok | Code::InvalidArgument => true,
            other => panic!("{user}: {command}: {other}"),
        }
    }
}

fn with<T>(authorization: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if !authorization.is_empty() {
        let value = MetadataValue::try_from(authorization).expect("a header");
        request.metadata_mut().insert("authorization", value);
    }
    request
}

/// Returns the header of a user, or nothing for nobody.
fn authorization(user: &str, password: &str) -> String {
    if user.is_empty() {
        String::new()
    } else {
        format!("Bearer {}", base64(&format!("{user}:{password}")))
    }
}

fn base64(text: &str) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut coded = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            coded.push(if digit > three.len() { '=' } else { DIGITS[value as usize] as char });
        }
    }
    coded
}

/// The users of the table: the rights and the prefix of each.
const USERS: [(&str, u16, &str); 6] = [
    ("", 0, ""),
    ("reader", READ, ""),
    ("web", READ | WRITE | DELETE, "web:"),
    ("watcher", STATS, ""),
    ("frontend", READ | WRITE | STORE | COMPRESSION, ""),
    ("admin", u16::MAX, ""),
];

#[test]
fn every_command_is_open_to_its_roles_only() {
    let server = Guarded::start(RULES);
    let grpc = GrpcProtocol::new();
    let protocols: [&dyn Protocol; 4] =
        [&TextProtocol, &MetaProtocol, &packets::BinaryProtocol, &grpc];
    let mut wrong = BTreeSet::new();
    for protocol in protocols {
        for (command, needed) in protocol.commands() {
            for (user, rights, prefix) in USERS {
                let keys: &[&str] =
                    if command.contains("KEY") { &["web:a", "a", "we"] } else { &[""] };
                for key in keys {
                    let has_key = key.is_empty() || key.starts_with(prefix);
                    let is_open = !user.is_empty() && rights & needed == needed && has_key;
                    if protocol.is_served(&server, user, command, key) != is_open {
                        wrong.insert(format!(
                            "{user:?} {command:?} {key:?} must be open: {is_open}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
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
    text.ask(b"secret-line-of-a-value\r\n");
    server.text("reader").ask(b"set long-key-that-goes-on 0 0 12\r\nsecret-value\r\n");
    server.text("admin").ask(b"flush_all\r\n");
    let lines = || server.log().lines().filter(|line| line.contains("server::audit")).count();
    assert!(poll_for(TIMEOUT, || (lines() >= 4).then_some(())).is_some(), "{}", server.log());
    let log = server.log();
    for said in
        ["wrong password for", "user reader", "set", "long-key-that-go", "flush_all", "127.0.0.1:"]
    {
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
    assert!((100..1_000).contains(&lines), "{lines} lines");
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
