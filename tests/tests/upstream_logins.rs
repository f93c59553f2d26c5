//! Logins of this process at memcached servers, with `-Y` and with SASL, and at store, compression and scheduler
//! services: what clients see, what the pages say about a wrong password, and that a new one is taken over.

#[path = "services/mod.rs"]
mod services;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use api::v1::cache_client::CacheClient;
use api::v1::store_client::StoreClient;
use api::v1::{DeleteRequest, GetRequest, SetRequest, set_response};
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
    let Some(()) = harness::needs_memcached("") else { return };
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
    let Some(()) = harness::needs_memcached("") else { return };
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
    let Some(()) = harness::needs_memcached("") else { return };
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
    let keys: Vec<String> = (0..40).map(|key| format!("k{key}")).collect();
    let all = format!("get {}", keys.join(" "));
    assert!(frontend.server.client().ask(all.as_bytes()).text().contains("VALUE"));
}

#[test]
fn a_server_without_logins_gets_no_password() {
    let Some(()) = harness::needs_memcached("") else { return };
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
    let Some(()) = harness::needs_memcached("") else { return };
    let files = Files::new();
    let memcached = memcached_with_password(&files);
    let frontend = Frontend::start(&files, &["--store", &memcached.as_store()]);
    let server = memcached.addr().to_string();
    frontend.await_ready(503, &[&server, "give store.login_file"]);
    let answer = frontend.server.client().set("a", b"x").expect("an answer");
    assert!(answer.starts_with("SERVER_ERROR"), "{answer}");
}

#[test]
fn a_server_that_wants_another_login_later_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // It lets the client in without a login, and changes its mind.
            let Ok(mut writer) = stream.try_clone() else { return };
            let mut answers = [&b"MN\r\n"[..]]
                .into_iter()
                .chain(std::iter::repeat(&b"CLIENT_ERROR unauthenticated\r\n"[..]));
            for _line in BufReader::new(stream).lines().map_while(Result::ok) {
                let _closed = writer.write_all(answers.next().unwrap_or_default());
            }
        }
    });
    let files = Files::new();
    files.write("login", "web:right-secret");
    let login = format!("store.login_file={}", files.path("login"));
    let store = format!("memcached://{address}");
    let frontend = Frontend::start(&files, &["--store", &store, "--set", &login]);
    let said = "it asks for a user and a password, although store.login_file is set";
    frontend.await_ready(503, &[&address.to_string(), said]);
}

/// Starts memcached with SASL. Returns none and prints a note if this machine cannot.
///
/// # Panics
/// The programs are missing in CI.
fn memcached_with_sasl(files: &Files) -> Option<Server> {
    harness::needs_memcached("")?;
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
    let made = tool.output();
    if !made.as_ref().is_ok_and(|output| output.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "CI needs saslpasswd2 of sasl2-bin: {made:?}");
        eprintln!("SKIPPED: no saslpasswd2 (Debian package sasl2-bin): {made:?}");
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
    // The binary protocol has no packets for these. The error says so, and the connection stays in step.
    assert!(frontend.is_served("after"));
    for command in [
        "mg after t",
        "mg after v h",
        "mg new N30",
        "me after",
        "md after I",
        "ma n T5",
        "ms n 1 MA\r\n1",
        "append after 0 0 1\r\n1",
        "prepend after 0 0 1\r\n1",
    ] {
        let answer = client.ask(command.as_bytes()).text();
        assert!(answer.contains("has no packet for this command"), "{command}: {answer}");
    }
    assert!(frontend.is_served("after"));
    assert!(client.ask(b"stats").text().contains("STAT curr_items 1\r\n"));
}

/// Starts memcached with SASL and a frontend that uses it, if this machine can.
fn behind_sasl(files: &Files, args: &[&str]) -> Option<(Server, Frontend)> {
    let memcached = memcached_with_sasl(files)?;
    files.write("login", "web@localhost:right-secret");
    let [scheme, login] = with_sasl(files);
    let store = memcached.as_store();
    let ours = ["--store", &store, "--set", &scheme, "--set", &login];
    let frontend = Frontend::start(files, &[&ours[..], args].concat());
    frontend.await_ready(200, &[]);
    Some((memcached, frontend))
}

#[test]
fn a_memcached_with_sasl_takes_meta_commands_that_packets_can_express() {
    let files = Files::new();
    let Some((_memcached, frontend)) = behind_sasl(&files, &[]) else { return };
    let mut client = frontend.server.client();
    for (command, answer) in [
        ("mg k v", "EN\r\n"),
        ("ms k 2 F7 T90\r\nhi", "HD\r\n"),
        ("mg k v f s k", "VA 2 f7 s2 kk\r\nhi\r\n"),
        ("mg k s", "HD s2\r\n"),
        ("mg k", "HD\r\n"),
        ("mg k T80 f", "HD f7\r\n"),
        ("mg nothing T80", "EN\r\n"),
        ("mg k T80 v", "VA 2\r\nhi\r\n"),
        ("ms k 2 ME\r\nho", "NS\r\n"),
        ("ms k 2 ME C5\r\nho", "NS\r\n"),
        ("ms k 2 C0\r\nho", "EX\r\n"),
        ("ms nothing 2 C5\r\nho", "NF\r\n"),
        ("ms nothing 2 MR\r\nho", "NS\r\n"),
        ("ms nothing 2 MR C5\r\nho", "NF\r\n"),
        ("ms k 3 MR s\r\nhey", "HD s3\r\n"),
        ("md k C0", "EX\r\n"),
        ("md k C18446744073709551614", "EX\r\n"),
        ("md k", "HD\r\n"),
        ("md k", "NF\r\n"),
        ("ma n", "NF\r\n"),
        ("ma n N0 J5 v", "VA 1\r\n5\r\n"),
        ("ma n D3 v", "VA 1\r\n8\r\n"),
        ("ma n MD D9 v C0", "VA 1\r\n0\r\n"),
        ("ma n C1", "EX\r\n"),
        ("ms YSBi 1 b\r\n1", "HD\r\n"),
        ("mg YSBi b v k", "VA 1 kYSBi b\r\n1\r\n"),
        ("md YSBi b", "HD\r\n"),
    ] {
        assert_eq!(client.ask(command.as_bytes()).text(), answer, "{command}");
    }
    let value = rebate_tests::payload::text(300_000);
    client.send(&[b"ms k 300000\r\n", &value[..], b"\r\n"].concat()).expect("it is sent");
    assert_eq!(client.read_line().as_deref(), Some("HD"));
    assert_eq!(client.line(b"mg k v").as_deref(), Some("VA 300000"));
    assert_eq!(client.read_exact(300_002).as_deref(), Some(&[&value[..], b"\r\n"].concat()[..]));
}

#[test]
fn a_value_that_is_too_large_removes_the_old_one_behind_sasl() {
    let files = Files::new();
    let Some((_memcached, frontend)) = behind_sasl(&files, &[]) else { return };
    let mut client = frontend.server.client();
    assert_eq!(client.set("k", b"old").as_deref(), Ok("STORED"));
    let answer = client.set("k", &vec![b'x'; 2 << 20]);
    assert_eq!(answer.as_deref(), Ok("SERVER_ERROR object too large for cache"));
    assert_eq!(client.get("k"), Ok(None));
}

/// A connection of the binary protocol.
struct Packets(TcpStream);

impl Packets {
    fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).expect("the server accepts");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        Self(stream)
    }

    /// Returns the status, the CAS and the body of the answer to a packet.
    fn ask(&mut self, opcode: u8, cas: u64, parts: [&[u8]; 3]) -> (u16, u64, Vec<u8>) {
        let [extras, key, value] = parts;
        let mut packet = vec![0x80, opcode];
        packet.extend((key.len() as u16).to_be_bytes());
        packet.extend([extras.len() as u8, 0, 0, 0]);
        packet.extend((parts.concat().len() as u32).to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(cas.to_be_bytes());
        packet.extend([extras, key, value].concat());
        self.0.write_all(&packet).expect("the connection is open");
        let mut header = [0; 24];
        self.0.read_exact(&mut header).expect("an answer");
        let [status, cas, body_bytes] = [6..8, 16..24, 8..12].map(|range| {
            header[range].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        });
        let mut body = vec![0; body_bytes as usize];
        self.0.read_exact(&mut body).expect("an answer");
        (status as u16, cas, body)
    }

    /// Returns the status of the answer.
    fn status(&mut self, opcode: u8, cas: u64, parts: [&[u8]; 3]) -> u16 {
        self.ask(opcode, cas, parts).0
    }
}

#[test]
fn binary_clients_change_items_behind_sasl() {
    let [get, set, add, replace, delete, increment] = [0, 1, 2, 3, 4, 5];
    let [touch, gat] = [0x1c, 0x1d];
    let files = Files::new();
    let Some((_memcached, frontend)) = behind_sasl(&files, &[]) else { return };
    let mut client = Packets::connect(frontend.server.addr());
    let (none, kept, soon) = (&b""[..], &[0, 0, 0, 7, 0, 0, 0, 0][..], &[0, 0, 0, 90][..]);
    for key in [&b"k"[..], b"two words", &[b'k'; 250]] {
        let old = [kept, key, b"old"];
        assert_eq!(client.status(replace, 0, old), 1, "there is none");
        let (status, cas, _) = client.ask(set, 0, old);
        assert!(status == 0 && cas != 0, "{status}");
        assert_eq!(client.status(add, 0, old), 2, "there is one");
        let newer = client.ask(set, cas, [kept, key, b"newer"]);
        assert!(newer.0 == 0 && newer.1 != cas, "{newer:?}");
        assert_eq!(client.status(set, cas, old), 2, "another version");
        assert_eq!(client.ask(get, 0, [none, key, none]).2, b"\0\0\0\x07newer");
        assert_eq!(client.status(touch, 0, [soon, key, none]), 0);
        assert_eq!(client.ask(gat, 0, [soon, key, none]).2, b"\0\0\0\x07newer");
        assert_eq!(client.status(delete, cas, [none, key, none]), 2, "another version");
        assert_eq!(client.status(delete, 0, [none, key, none]), 0);
        assert_eq!(client.status(delete, 0, [none, key, none]), 1);
        assert_eq!(client.status(touch, 0, [soon, key, none]), 1);
        let count = |exptime: u32| {
            [&5_u64.to_be_bytes()[..], &9_u64.to_be_bytes(), &exptime.to_be_bytes()].concat()
        };
        assert_eq!(client.status(increment, 0, [&count(u32::MAX), key, none]), 1);
        let created = client.ask(increment, 0, [&count(0), key, none]);
        assert_eq!((created.0, created.2), (0, 9_u64.to_be_bytes().to_vec()));
        let counted = client.ask(increment, created.1, [&count(0), key, none]);
        assert_eq!((counted.0, counted.2), (0, 14_u64.to_be_bytes().to_vec()));
    }
}

#[test]
fn a_damaged_value_is_removed_behind_sasl() {
    let files = Files::new();
    let Some((memcached, frontend)) = behind_sasl(&files, &[]) else { return };
    let mut client = frontend.server.client();
    let mut store = Packets::connect(memcached.addr());
    assert_eq!(store.status(0x21, 0, [b"", b"PLAIN", b"\0web@localhost\0right-secret"]), 0);
    // The second key is one that no text line can hold.
    for (key, get, miss) in [("k", "get k", "END\r\n"), ("a b", "mg YSBi b v", "EN\r\n")] {
        let value = rebate_tests::payload::text(5_000);
        let set = format!("ms YSBi {} b\r\n", value.len());
        let set = if key == "k" { format!("set k 0 0 {}\r\n", value.len()) } else { set };
        client.send(&[set.as_bytes(), &value, b"\r\n"].concat()).expect("it is sent");
        assert!(client.read_line().is_some_and(|line| ["STORED", "HD"].contains(&&line[..])));
        let (status, _, mut frame) = store.ask(0, 0, [b"", key.as_bytes(), b""]);
        assert!(status == 0 && frame[4..].starts_with(b"\xfbRb"), "it is compressed");
        let middle = frame.len() / 2;
        frame[middle] ^= 0x55;
        assert_eq!(store.status(1, 0, [&[0; 8], key.as_bytes(), &frame[4..]]), 0);
        let answer = client.ask(get.as_bytes()).text();
        assert_eq!(answer, miss);
        assert_eq!(store.status(0, 0, [b"", key.as_bytes(), b""]), 1, "{key}");
    }
    assert_eq!(frontend.metric("rebate_unreadable_deleted_total"), 2.0);
}

#[test]
fn the_services_change_items_behind_sasl() {
    let files = Files::new();
    let port = Port::free().expect("a free port");
    let address = port.address().to_string();
    let args = ["--role", "store", "--grpc-listen", &address];
    let Some((_memcached, _frontend)) = behind_sasl(&files, &args) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let channel = api::wire::channel(&api::Address::Tcp(address), TIMEOUT).expect("a channel");
        let mut cache = CacheClient::new(channel.clone());
        let mut store = StoreClient::new(channel);
        for key in [&b"k"[..], b"two words"] {
            let get = || GetRequest { key: key.to_vec().into(), ..GetRequest::default() };
            let delete = || DeleteRequest { key: key.to_vec().into() };
            let set = || {
                let (key, value) = (key.to_vec().into(), b"1"[..].into());
                SetRequest { key, value, ..SetRequest::default() }
            };
            let done = set_response::Outcome::Stored;
            assert_eq!(cache.set(set()).await.expect("set").get_ref().outcome(), done);
            assert!(cache.get(get()).await.expect("get").get_ref().found);
            assert!(cache.delete(delete()).await.expect("delete").get_ref().found);
            assert!(!cache.delete(delete()).await.expect("delete").get_ref().found);
            assert_eq!(store.set(set()).await.expect("set").get_ref().outcome(), done);
            assert_eq!(store.get(get()).await.expect("get").get_ref().value, b"1"[..]);
            assert!(store.delete(delete()).await.expect("delete").get_ref().found);
            assert!(!store.get(get()).await.expect("get").get_ref().found);
        }
    });
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

/// Asks a scheduler for a model. Returns the exit code and what was printed.
fn model(scheduler: &str, authority: &Authority, args: &[&str]) -> (Option<i32>, String) {
    let mut command = rebate_command();
    command.args(["model", "--scheduler", scheduler, "--tls-ca", &authority.text("ca.pem")]);
    let output = command.args(args).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
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
    let (code, answer) = model(&scheduler.address, &authority, &["--auth-file", &path]);
    // The scheduler has answered. Whether the few jobs are enough for a model is its own matter.
    assert!(matches!(code, Some(0 | 1)) && !answer.contains("nauthenticated"), "{answer}");
    let (code, answer) = model(&scheduler.address, &authority, &[]);
    assert!(code == Some(1) && answer.contains("nauthenticated"), "{answer}");
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
