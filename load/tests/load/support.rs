//! Servers for the tests: real memcached, and small servers that misbehave on purpose.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use load::{Address, LoadReport, LoadSpec, Pace};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use units::Nanos;
use workload::ArrivalKind;

/// A memcached that chooses its port. It is killed when dropped.
pub(crate) struct Memcached {
    child: Child,
    pub(crate) address: Address,
    folder: tempfile::TempDir,
}

impl Memcached {
    /// Starts memcached on TCP. If memcached is not installed, it prints a note and returns `None`; in CI the test
    /// fails.
    pub(crate) fn start() -> Option<Self> {
        let arguments = ["-l", "127.0.0.1", "-p", "-1", "-U", "0"].map(str::to_owned);
        Self::start_with(
            |_| arguments.to_vec(),
            |folder| {
                let text = std::fs::read_to_string(folder.join("ports")).unwrap_or_default();
                let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: "))?;
                format!("127.0.0.1:{port}").parse().ok()
            },
        )
    }

    /// Starts memcached on a unix socket. Otherwise it does the same as [`Memcached::start`].
    pub(crate) fn start_unix() -> Option<Self> {
        let socket = |folder: &Path| folder.join("socket");
        let arguments = |folder: &Path| vec!["-s".to_owned(), socket(folder).display().to_string()];
        Self::start_with(arguments, |folder| {
            let listening = UnixStream::connect(socket(folder)).is_ok();
            let address = format!("unix:{}", socket(folder).display());
            listening.then(|| address.parse().expect("an address"))
        })
    }

    fn start_with(
        arguments: impl Fn(&Path) -> Vec<String>,
        ready: impl Fn(&Path) -> Option<Address>,
    ) -> Option<Self> {
        if !Path::new(MEMCACHED).exists() {
            assert!(std::env::var_os("CI").is_none(), "{MEMCACHED} is needed in CI");
            eprintln!("SKIPPED: {MEMCACHED} is not installed");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        // memcached creates its files after it has switched to the user `nobody`.
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).expect("own folder");
        let child = Command::new(MEMCACHED)
            .args(["-u", "nobody", "-t", "1", "-a", "777"])
            .args(arguments(folder.path()))
            .env("MEMCACHED_PORT_FILENAME", folder.path().join("ports"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("memcached starts");
        let address = "unix:not-yet".parse().expect("an address");
        let mut memcached = Self { child, address, folder };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(address) = ready(memcached.folder.path()) {
                memcached.address = address;
                return Some(memcached);
            }
            let died = memcached.child.try_wait().expect("memcached's state");
            assert!(died.is_none(), "memcached ended at once: {died:?}");
            thread::sleep(Duration::from_millis(2));
        }
        panic!("memcached did not listen within {PATIENCE:?}");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Starts a server with one thread per connection. `answer` is called for each connection, and its result makes answers
/// from the command line and the value. An answer of `None` closes the connection.
pub(crate) fn serve<A>(answer: impl Fn() -> A + Send + 'static) -> Address
where
    A: FnMut(&str, Vec<u8>) -> Option<Vec<u8>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = answer();
            thread::spawn(move || session(stream, answer));
        }
    });
    address.to_string().parse().expect("an address")
}

fn session(
    stream: TcpStream,
    mut answer: impl FnMut(&str, Vec<u8>) -> Option<Vec<u8>>,
) -> Option<()> {
    let mut input = BufReader::new(stream.try_clone().ok()?);
    let mut output = stream;
    loop {
        let mut line = String::new();
        let bytes = input.read_line(&mut line).ok()?;
        let mut value = Vec::new();
        if line.starts_with("set ") {
            let length: usize = line.split_ascii_whitespace().nth(4)?.parse().ok()?;
            value.resize(length + 2, 0);
            input.read_exact(&mut value).ok()?;
            value.truncate(length);
        }
        if bytes == 0 {
            return None;
        }
        output.write_all(&answer(line.trim_end(), value)?).ok()?;
    }
}

/// Returns a short open-loop load without a warm-up.
pub(crate) fn spec(address: &Address, rate_per_s: f64, duration: Nanos) -> LoadSpec {
    let mut spec = LoadSpec::new(vec![address.clone()]);
    spec.pace = Pace::Open { rate_per_s, arrivals: ArrivalKind::Uniform };
    spec.duration = duration;
    spec.warmup = Nanos(0);
    spec.connections = 4;
    spec.keys = 200;
    spec.request_timeout = Nanos::from(PATIENCE);
    spec
}

/// Returns a port that refuses connections. The socket is bound but does not listen, so no other process can get the
/// port.
pub(crate) fn closed_port() -> (OwnedFd, SocketAddr) {
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
    let address = rustix::net::getsockname(&socket).expect("an address");
    (socket, address.try_into().expect("an address of TCP"))
}

/// Returns the first good report. A pause of the machine may spoil a report, but not as many in a row as there are
/// attempts.
pub(crate) fn undisturbed(
    mut attempt: impl FnMut() -> LoadReport,
    is_good: impl Fn(&LoadReport) -> bool,
) -> LoadReport {
    let mut report = attempt();
    for _ in 1..ATTEMPTS {
        if is_good(&report) {
            return report;
        }
        report = attempt();
    }
    assert!(is_good(&report), "{}", report.table());
    report
}

/// Checks that all misses are filled on an empty server.
pub(crate) fn misses_are_filled(address: &Address, rate: f64) {
    let mut spec = spec(address, rate, Nanos::millis(500));
    (spec.prepopulate, spec.set_on_miss, spec.get_share) = (false, true, 1.0);
    spec.keys = 20;
    let of_other_keys = || {
        spec.seed += 1;
        run(&spec)
    };
    // If the machine pauses, a miss may come after the end of the load and is then not filled.
    let report = undisturbed(of_other_keys, |report| {
        report.get.hits > report.get.misses && report.fill.answered == report.get.misses
    });
    assert!(report.get.misses > 0, "{}", report.table());
    assert_eq!(report.failures(), 0);
}

const ATTEMPTS: usize = 20;

/// The timeout for everything that should happen. It is long enough for any busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(spec: &LoadSpec) -> LoadReport {
    let report = load::run(spec, |_| (), &AtomicBool::new(false));
    report.unwrap_or_else(|error| panic!("{error}"))
}

const MEMCACHED: &str = "/usr/bin/memcached";
