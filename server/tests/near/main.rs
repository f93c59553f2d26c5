//! Near clients of a whole server: what they may do and get, what becomes of those that die or lie, and what they cost.

mod commands;
mod deadlines;
mod hostile;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::Software;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rebate_client::{Client, Options, Write as With};
use server::config::Config;
use server::{Devices, InheritedSockets, Platform, Server, ServerHandle};
use tempfile::TempDir;

/// The longest that a test waits for anything.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Tests that count what the process uses run alone.
static TURNS: RwLock<()> = RwLock::new(());

/// A server with one worker thread.
struct Service {
    running: Option<ServerHandle>,
    folder: TempDir,
    _turn: Option<RwLockReadGuard<'static, ()>>,
}

impl Service {
    fn start() -> Self {
        Self::start_with(|_| ())
    }

    fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        // A test may have several servers. A plain `read` would wait for a test that waits for the first of them.
        let turn = TURNS.read_recursive();
        Self { _turn: Some(turn), ..Self::start_alone(change) }
    }

    fn start_alone(change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.server.threads = 1;
        config.server.listen = vec!["127.0.0.1:0".to_owned()];
        config.server.admin_listen = "127.0.0.1:0".to_owned();
        config.server.near_listen = Some(folder.path().join("near"));
        change(&mut config);
        let running = start(config);
        Self { running: Some(running), folder, _turn: None }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("near")
    }

    fn near_address(&self) -> String {
        format!("near:{}", self.path().display())
    }

    fn tcp_address(&self) -> SocketAddr {
        self.running.as_ref().expect("runs").addresses()[0]
    }

    fn client(&self) -> Client {
        Client::new(&[self.near_address()], patient()).expect("an address")
    }

    fn text(&self) -> Text {
        Text::connect(self.tcp_address())
    }

    fn metric(&self, name: &str) -> u64 {
        let address = self.running.as_ref().and_then(ServerHandle::admin_address).expect("listens");
        let mut stream = TcpStream::connect(address).expect("accepts");
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("reads");
        let mut page = String::new();
        stream.read_to_string(&mut page).expect("answers");
        let line = page.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().parse().expect(line)
    }

    /// Waits until the metric has the value.
    fn wait_for(&self, name: &str, value: u64) {
        let start = Instant::now();
        while self.metric(name) != value {
            assert!(start.elapsed() < TIMEOUT, "{name} is {}", self.metric(name));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(Duration::from_secs(10));
        }
    }
}

fn start(config: Config) -> ServerHandle {
    let devices = Devices { all: vec![Arc::new(Software::default())], accelerators: 0 };
    let platform = Platform { watch_near: Some(drivers::near::watch), ..Platform::default() };
    Server::start_on(platform, InheritedSockets::default(), config, devices).expect("starts")
}

/// Returns options with which a loaded machine fails no test.
fn patient() -> Options {
    Options { connect_timeout: TIMEOUT, timeout: TIMEOUT, ..Options::default() }
}

/// A client of the text protocol over TCP.
struct Text(TcpStream);

impl Text {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("accepts");
        stream.set_read_timeout(Some(TIMEOUT)).expect("can be set");
        Self(stream)
    }

    /// Sends lines and returns the answer, of which `mn` marks the end.
    fn ask(&mut self, lines: &str) -> String {
        self.0.write_all(format!("{lines}\r\nmn\r\n").as_bytes()).expect("reads");
        let mut answer = Vec::new();
        while !answer.ends_with(b"MN\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("answers");
            answer.push(byte[0]);
        }
        String::from_utf8_lossy(&answer[..answer.len() - 4]).into_owned()
    }
}

fn alone() -> RwLockWriteGuard<'static, ()> {
    TURNS.write()
}

#[test]
fn a_client_falls_back_and_returns() {
    let mut first = Service::start();
    let second = Service::start_with(|config| config.server.near_listen = None);
    let addresses = [first.near_address(), second.tcp_address().to_string()];
    let options = Options { retry_after: Duration::from_millis(50), ..patient() };
    let mut client = Client::new(&addresses, options).expect("addresses");
    assert_eq!(client.address(), None);
    client.set(b"k", b"first", With::default()).expect("stored");
    assert_eq!(client.address().map(ToString::to_string).as_ref(), Some(&addresses[0]));

    first.stop();
    assert_eq!(client.get(b"k").expect("the other answers"), None, "it is another cache");
    assert_eq!(client.address().map(ToString::to_string).as_ref(), Some(&addresses[1]));
    client.set(b"k", b"second", With::default()).expect("stored");

    let mut config = Config::default();
    config.server.listen = vec!["127.0.0.1:0".to_owned()];
    config.server.near_listen = Some(first.path());
    first.running = Some(start(config));
    let start = Instant::now();
    while client.address().map(ToString::to_string).as_ref() != Some(&addresses[0]) {
        assert!(start.elapsed() < TIMEOUT, "it stays with {:?}", client.address());
        client.get(b"k").expect("one of them answers");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_change_that_the_lost_server_has_not_read_is_sent_again() {
    let mut first = Service::start();
    let second = Service::start_with(|config| config.server.near_listen = None);
    let addresses = [first.near_address(), second.tcp_address().to_string()];
    let mut client = Client::new(&addresses, patient()).expect("addresses");
    client.set(b"n", b"1", With::default()).expect("stored");
    first.stop();
    second.text().ask("set n 0 0 1\r\n5");
    // The near connection's memory shows that the first server has read nothing of this.
    assert_eq!(client.increment(b"n", 2).expect("certain"), Some(7));
    let mut only = Client::new(&addresses[1..], patient()).expect("addresses");
    assert_eq!(only.get(b"n").expect("an answer").expect("an item").value, b"7");
}

#[test]
fn the_rules_know_a_near_client_by_the_user_of_its_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("access.toml");
    let uid = rustix::process::geteuid().as_raw();
    let rules = format!(
        "[roles.reader]\ncommands = [\"read\"]\nkey_prefix = \"open:\"\n\
         [[unix]]\nuid = {uid}\nrole = \"reader\"\n"
    );
    std::fs::write(&file, rules).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("can be set");
    let service = Service::start_with(|config| config.server.access_file = Some(file));
    let mut client = service.client();
    assert_eq!(client.get(b"open:k").expect("may read"), None);
    for refused in [
        client.set(b"open:k", b"v", With::default()).expect_err("may not write").to_string(),
        client.get(b"other").expect_err("another prefix").to_string(),
    ] {
        assert!(refused.contains("status 0x24"), "{refused}");
    }
}

#[test]
fn the_socket_has_the_configured_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let mut service = Service::start_with(|config| config.server.unix_socket_mode = 0o640);
    let mode = service.path().metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    service.stop();
    assert!(!service.path().exists(), "the file is removed");
}

#[test]
fn a_client_above_the_limit_is_closed_and_counted() {
    let service = Service::start_with(|config| {
        config.server.listen = Vec::new();
        config.server.connections_max = 2;
    });
    let mut clients = [(); 2].map(|()| service.client());
    for client in &mut clients {
        client.version().expect("an answer");
    }
    let error = service.client().version().expect_err("no place");
    assert!(error.to_string().contains("no cache answers"), "{error}");
    drop(clients);
    service.wait_for("rebate_near_held_bytes ", 0);
    service.client().version().expect("there is a place again");
}

#[test]
fn a_drain_answers_what_was_asked_and_ends_the_connection() {
    let mut service = Service::start();
    let mut client = service.client();
    client.set(b"k", b"v", With::default()).expect("stored");
    let start = Instant::now();
    service.stop();
    assert!(start.elapsed() < Duration::from_secs(9), "an idle near client holds up no drain");
    let error = client.get(b"k").expect_err("it has ended").to_string();
    assert!(error.contains("no cache answers"), "{error}");
}

/// The worker works on a long value while the requests and the drain come, so it sees both at once.
#[test]
fn a_drain_answers_requests_that_come_with_it() {
    let mut service = Service::start();
    let mut clients: Vec<Text> = (0..16).map(|_| service.text()).collect();
    for client in &mut clients {
        client.ask("version");
    }
    let mut long = service.text();
    let words = (0..100_000).map(|at| format!("{}, ", at * 7 % 9973)).collect::<String>();
    let set = format!("set long 0 0 {}\r\n{words}\r\n", words.len());
    long.0.write_all(set.as_bytes()).expect("reads");
    for client in &mut clients {
        client.0.write_all(b"mn\r\n").expect("reads");
    }
    service.stop();
    for mut client in clients.into_iter().chain([long]) {
        let mut answer = String::new();
        client.0.read_to_string(&mut answer).expect("it ends in order");
        assert!(["MN\r\n", "STORED\r\n"].contains(&answer.as_str()), "{answer:?}");
    }
}

#[test]
fn a_hundred_idle_clients_burn_no_processor() {
    let _alone = alone();
    let service = Service::start_alone(|_| ());
    let mut clients: Vec<Client> = (0..100).map(|_| service.client()).collect();
    for client in &mut clients {
        for _ in 0..20 {
            client.version().expect("an answer");
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let before = worker_ticks();
    // The time that is measured. There is nothing to wait for.
    std::thread::sleep(Duration::from_secs(3));
    let ticks = worker_ticks() - before;
    // A tick is 10 ms of processor time, and 30 are a tenth of a core.
    assert!(ticks < 30, "{ticks} ticks in 3 s");
    for client in &mut clients {
        client.version().expect("all are still served");
    }
}

/// Returns the processor time of this process's worker threads (ticks of 10 ms).
fn worker_ticks() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let stats = tasks.flatten().filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (name, numbers) = stat.rsplit_once(") ")?;
        let numbers: Vec<&str> = numbers.split(' ').collect();
        let ticks = |at: usize| numbers[at].parse::<u64>().expect("a number");
        // User and system time are the 14th and 15th fields of all, and the third is the first here.
        name.contains("(rebate-worker").then(|| ticks(11) + ticks(12))
    });
    stats.sum()
}

#[test]
fn memory_and_descriptors_come_back() {
    let _alone = alone();
    let service = Service::start_alone(|_| ());
    // The first client makes what stays, such as the threads' own memory.
    let churn = || {
        let mut clients: Vec<Client> = (0..40).map(|_| service.client()).collect();
        for client in &mut clients {
            client.set(b"k", &[7; 50_000], With::default()).expect("stored");
            assert_eq!(client.get(b"k").expect("an answer").expect("an item").value.len(), 50_000);
        }
        assert!(service.metric("rebate_near_held_bytes ") >= 40 * 128 * 1024);
        drop(clients);
        service.wait_for("rebate_near_held_bytes ", 0);
    };
    churn();
    // The pages of the metrics were read over connections that are closed a little later.
    std::thread::sleep(Duration::from_millis(500));
    let used = || (descriptors(), mapped());
    let before = used();
    for _ in 0..5 {
        churn();
    }
    let start = Instant::now();
    while used() != before {
        let after = used();
        assert!(start.elapsed() < TIMEOUT, "{after:?} descriptors and mappings, not {before:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// Returns the number of mappings of memory that is shared with near clients.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
    maps.lines().filter(|line| line.contains("memfd:rebate-shared")).count()
}
