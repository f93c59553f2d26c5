//! Servers for the tests: real memcached, and small servers that misbehave on purpose.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::thread;

use harness::{Process, TIMEOUT};
use load::{Address, LoadReport, LoadSpec, Pace};
use tempfile::TempDir;
use units::Nanos;
use workload::ArrivalKind;

/// A memcached. It is killed when dropped.
pub(crate) struct Memcached {
    _process: Process,
    pub(crate) address: Address,
    _folder: Option<TempDir>,
}

impl Memcached {
    /// Starts memcached on TCP. If memcached is not installed, it prints a note and returns `None`; in CI the test
    /// fails.
    pub(crate) fn start() -> Option<Self> {
        harness::needs_memcached("")?;
        let started = harness::memcached(None, None, Stdio::null(), &["-t", "1"]);
        let (process, port) = started.expect("memcached starts");
        let address = format!("127.0.0.1:{port}").parse().expect("an address");
        Some(Self { _process: process, address, _folder: None })
    }

    /// Starts memcached on a unix socket. Otherwise it does the same as [`Memcached::start`].
    pub(crate) fn start_unix() -> Option<Self> {
        harness::needs_memcached("")?;
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("socket");
        let process = harness::memcached_on_socket(&socket, None).expect("memcached starts");
        let address = format!("unix:{}", socket.display()).parse().expect("an address");
        Some(Self { _process: process, address, _folder: Some(folder) })
    }
}

/// Starts a server with one thread per connection. `answer` is called for each connection. The function that
/// it returns makes an answer from the command line and the value, or `None` to close the connection.
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
    spec.request_timeout = Nanos::from(TIMEOUT);
    spec
}

/// Returns the first good report of several attempts, because a pause of the machine may spoil a report.
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
    assert!(is_good(&report), "{report:?}");
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
    assert!(report.get.misses > 0, "{report:?}");
    assert_eq!(report.failures(), 0);
}

const ATTEMPTS: usize = 20;

pub(crate) fn run(spec: &LoadSpec) -> LoadReport {
    let report = load::run(spec, |_| (), &AtomicBool::new(false));
    report.unwrap_or_else(|error| panic!("{error}"))
}
