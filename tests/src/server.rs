//! The servers under test and their oracle: memcached and `rebate`, each on a port that it chooses. This module does
//! not know which answers are right.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::Process;

use crate::{Client, TIMEOUT};

/// A server that accepts connections.
#[derive(Debug)]
pub struct Server {
    process: Process,
    addr: SocketAddr,
    admin: Option<SocketAddr>,
}

impl Server {
    /// Starts memcached on a free port. `args` are appended to this module's arguments.
    ///
    /// # Panics
    /// If memcached is not installed or does not come up.
    pub fn memcached(args: &[&str]) -> Self {
        Self::memcached_on(None, args)
    }

    /// Starts memcached on a port that is reserved for it ([`crate::Port`]), as a restart after a crash does.
    ///
    /// # Panics
    /// If memcached does not come up.
    pub fn memcached_at(port: u16, args: &[&str]) -> Self {
        Self::memcached_on(Some(port), args)
    }

    fn memcached_on(port: Option<u16>, args: &[&str]) -> Self {
        let started = harness::memcached(port, None, Stdio::piped(), args);
        let (process, port) = started.unwrap_or_else(|error| panic!("{error}"));
        Self::accepting(process, SocketAddr::from((Ipv4Addr::LOCALHOST, port)), None)
    }

    /// Starts `rebate` with `args` and waits for the line `listening on ADDR`.
    ///
    /// # Panics
    /// If the binary is missing or does not come up.
    pub fn rebate(args: &[&str]) -> Self {
        Self::rebate_with(rebate_command().args(args), Stdio::piped())
    }

    /// Starts a command of `rebate` with its log sent to `stderr`, and waits as [`Server::rebate`] does.
    ///
    /// # Panics
    /// See [`Server::rebate`].
    pub fn rebate_with(command: &mut Command, stderr: impl Into<Stdio>) -> Self {
        let process = Process::start_with(command, stderr);
        let mut process = process.unwrap_or_else(|error| panic!("{error}"));
        let addr = process
            .await_ready(TIMEOUT, "line `listening on ADDR`", |process| {
                process.printed("listening on ")
            })
            .unwrap_or_else(|error| panic!("{error}"))
            .trim_start_matches("tls://")
            .parse()
            .unwrap_or_else(|error| panic!("`listening on` without an address: {error}"));
        let admin = process.printed("admin on ").and_then(|text| text.parse().ok());
        Self::accepting(process, addr, admin)
    }

    /// Starts the monolith: `rebate memcached` with the embedded store.
    pub fn rebate_memcached(args: &[&str]) -> Self {
        let ours = ["memcached", "-p", "-1", "-l", "127.0.0.1", "-U", "0", "-u", "root"];
        Self::rebate(&[&ours, args].concat())
    }

    /// Starts `rebate serve` with this store and compression mode. `args` are appended to these arguments.
    pub fn rebate_serve(store: &str, compress: &str, args: &[&str]) -> Self {
        let ours = ["serve", "--listen", "127.0.0.1:0", "--store", store, "--compress", compress];
        Self::rebate(&[&ours, args].concat())
    }

    /// Returns the address that clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the address of the admin pages, if the server printed it before it was ready.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Returns the value of `--store` for a server whose only store is this memcached.
    pub fn as_store(&self) -> String {
        format!("memcached://{}", self.addr)
    }

    /// Opens a new connection.
    ///
    /// # Panics
    /// If the server does not accept.
    pub fn client(&self) -> Client {
        Client::connect(self.addr)
            .unwrap_or_else(|error| panic!("{} refuses a connection: {error}", self.addr))
    }

    /// Returns one number of the plain `stats`.
    pub fn stat(&self, name: &str) -> Option<u64> {
        let answer = self.client().ask(b"stats");
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        let line = format!("STAT {name} ");
        text.lines().find_map(|found| found.strip_prefix(&line))?.trim().parse().ok()
    }

    /// Returns a server that a test has started itself, once `address` says where it listens.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn listening(
        mut process: Process,
        address: impl Fn(&Process) -> Option<SocketAddr>,
    ) -> Self {
        let found = process.await_ready(TIMEOUT, "an address", address);
        let addr = found.unwrap_or_else(|error| panic!("{error}"));
        Self::accepting(process, addr, None)
    }

    fn accepting(mut process: Process, addr: SocketAddr, admin: Option<SocketAddr>) -> Self {
        let connect = |_: &Process| TcpStream::connect_timeout(&addr, Duration::from_secs(1)).ok();
        let accepted = process.await_ready(TIMEOUT, "accepted connection", connect);
        accepted.unwrap_or_else(|error| panic!("{error}"));
        Self { process, addr, admin }
    }
}

impl Deref for Server {
    type Target = Process;
    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Returns the path of the built binary: `REBATE_BIN`, or the binary next to this test in the target folder, or that of
/// the other profile.
///
/// # Panics
/// There is no binary. The message says how to build one.
pub fn rebate_binary() -> PathBuf {
    if let Some(named) = std::env::var_os("REBATE_BIN") {
        return PathBuf::from(named);
    }
    let test = std::env::current_exe().unwrap_or_default();
    let profile = test.ancestors().nth(2).map(PathBuf::from).unwrap_or_default();
    let places = [".", "../release", "../debug"].map(|place| profile.join(place).join("rebate"));
    let found = places.iter().find(|place| place.is_file());
    found.cloned().unwrap_or_else(|| {
        panic!(
            "no binary at {}: run `cargo build -p cli` first, or set REBATE_BIN",
            places[0].display()
        )
    })
}

/// Returns a command that runs the built binary with long limits. On a busy machine a healthy peer may be
/// silent for seconds. With the default limits its requests and jobs would then time out and be answered
/// differently. A test of one of these limits overrides it with `--set`.
pub fn rebate_command() -> Command {
    let mut command = Command::new(rebate_binary());
    for limit in [
        "STORE__TIMEOUT_MS",
        "STORE__CONNECT_TIMEOUT_MS",
        "RUNTIME__JOB_TIMEOUT_MS",
        "SERVER__DRAIN_TIMEOUT_MS",
    ] {
        command.env(format!("REBATE_{limit}"), LIMIT_MS);
    }
    command
}

/// The value of the long limits (ms). It exceeds [`TIMEOUT`], so no limit ends an operation within it.
const LIMIT_MS: &str = "120000";
