//! A real memcached 1.6.18 as a reference. It listens on a free port and stops when its handle is
//! dropped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A command that is sent behind every request. Its answer marks the end of the request's answer.
const SENTINEL: &[u8] = b"mg no_such_item k\r\n";
const SENTINEL_ANSWER: &[u8] = b"EN kno_such_item\r\n";

/// A running memcached and one connection to it.
pub(crate) struct Memcached {
    child: Child,
    port: u16,
    stream: TcpStream,
}

impl Memcached {
    /// Starts memcached. Returns none and prints a message if this machine has no memcached 1.6.18.
    /// In CI that is a failure.
    pub(crate) fn start() -> Option<Self> {
        let version = Command::new("memcached").arg("-V").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        match version {
            Ok(version) if version.trim() == "memcached 1.6.18" => {}
            other => {
                assert!(std::env::var_os("CI").is_none(), "CI needs memcached 1.6.18: {other:?}");
                eprintln!("SKIPPED: no memcached 1.6.18 to compare with: {other:?}");
                return None;
            }
        }
        let directory = tempfile::tempdir().expect("a directory for the port's file");
        let port_file = directory.path().join("port");
        let child = Command::new("memcached")
            .args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-u", "root"])
            .env("MEMCACHED_PORT_FILENAME", &port_file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("memcached starts");
        let port = wait_for_port(&port_file);
        Some(Self { child, port, stream: connect(port) })
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

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("memcached listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
    stream.set_nodelay(true).expect("no delay");
    stream
}

fn wait_for_port(file: &Path) -> u16 {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: "));
        if let Some(port) = port.and_then(|port| port.trim().parse().ok()) {
            return port;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("memcached told no port within ten seconds");
}
