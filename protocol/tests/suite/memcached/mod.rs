//! A real memcached 1.6.18 as a reference. It listens on a free port and stops when its handle is
//! dropped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use harness::Process;

/// A command that is sent after every request. Its answer marks the end of the request's answer.
const SENTINEL: &[u8] = b"mg no_such_item k\r\n";
const SENTINEL_ANSWER: &[u8] = b"EN kno_such_item\r\n";

/// A running memcached and one connection to it.
pub(crate) struct Memcached {
    _process: Process,
    port: u16,
    stream: TcpStream,
}

impl Memcached {
    /// Starts memcached. Returns none and prints a message if this machine has no memcached 1.6.18.
    /// In CI that is a failure.
    pub(crate) fn start() -> Option<Self> {
        harness::needs_memcached("1.6.18")?;
        let started = harness::memcached(None, None, Stdio::null(), &[]);
        let (process, port) = started.expect("memcached starts");
        Some(Self { _process: process, port, stream: connect(port) })
    }

    /// Returns memcached's answer to `bytes`, and whether it closed the connection.
    pub(crate) fn ask(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        self.stream.write_all(bytes).expect("memcached reads");
        // If memcached has closed the connection, sending the sentinel may fail. The read then
        // reports it.
        let _ = self.stream.write_all(SENTINEL);
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => answer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("{error} after {:?}", answer.escape_ascii().to_string()),
            }
            if answer.ends_with(SENTINEL_ANSWER) {
                answer.truncate(answer.len() - SENTINEL_ANSWER.len());
                return (answer, false);
            }
        }
        self.stream = connect(self.port);
        (answer, true)
    }

    /// Waits until memcached's clock, which counts whole seconds, has just advanced. The commands
    /// that follow then see one time.
    #[allow(dead_code, reason = "each test file is a crate of its own, and not all tell the time")]
    pub(crate) fn wait_for_tick(&mut self) {
        let uptime = |memcached: &mut Self| {
            let (stats, _) = memcached.ask(b"stats\r\n");
            let stats = String::from_utf8_lossy(&stats).into_owned();
            stats.lines().find(|line| line.starts_with("STAT uptime ")).map(str::to_owned)
        };
        let before = uptime(self);
        while uptime(self) == before {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("memcached listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    stream.set_nodelay(true).expect("no delay");
    stream
}
