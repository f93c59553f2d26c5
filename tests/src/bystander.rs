//! A well-behaved client that runs while a test disturbs the server. It sets and gets small values without pause,
//! checks every byte, and reports its failures and latencies. It also watches the memory of a process. This module does
//! not know what the test does, or which numbers are good enough.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use harness::rss_bytes;

use crate::Client;
use crate::payload::text;

/// Connections of a well-behaved client. Each runs in its own thread until the client is stopped.
#[derive(Debug)]
pub struct Bystander {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Report>>,
}

/// The observations of a well-behaved client.
#[derive(Debug, Default)]
pub struct Report {
    /// The latencies of the requests that were answered correctly, in ascending order.
    pub latencies: Vec<Duration>,
    /// A description of each failed request, with the answer that came.
    pub failures: Vec<String>,
}

impl Bystander {
    /// Starts `connections` to `addr`. Each sets and gets values of `value_bytes` under its own keys, one request at a
    /// time. A request times out after `deadline`.
    pub fn start(
        addr: SocketAddr,
        connections: usize,
        value_bytes: usize,
        deadline: Duration,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |index| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || drive(addr, index, value_bytes, deadline, &stop))
        };
        Self { threads: (0..connections).map(start).collect(), stop }
    }

    /// Runs a client for `time` and reports its observations.
    pub fn observe(
        addr: SocketAddr,
        connections: usize,
        value_bytes: usize,
        time: Duration,
    ) -> Report {
        let bystander = Self::start(addr, connections, value_bytes, crate::TIMEOUT);
        thread::sleep(time);
        bystander.stop()
    }

    /// Stops the client and returns its observations.
    pub fn stop(self) -> Report {
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Report::default();
        for thread in self.threads {
            match thread.join() {
                Ok(report) => {
                    all.latencies.extend(report.latencies);
                    all.failures.extend(report.failures);
                }
                Err(_) => all.failures.push("a connection panicked".to_owned()),
            }
        }
        all.latencies.sort_unstable();
        all
    }
}

impl Report {
    /// Returns the latency that `share` of the requests (0.99 for the 99th percentile) did not exceed. It is zero
    /// without requests.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        self.latencies.get(index).copied().unwrap_or_default()
    }
}

fn drive(
    addr: SocketAddr,
    index: usize,
    value_bytes: usize,
    deadline: Duration,
    stop: &AtomicBool,
) -> Report {
    let mut report = Report::default();
    let mut client = None;
    for round in 0_u64.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let key = format!("bystander_{index}_{}", round % 64);
        let value = [format!("{key} ").into_bytes(), text(value_bytes)].concat();
        let since = Instant::now();
        match exchange(&mut client, addr, deadline, &key, &value) {
            Ok(()) => report.latencies.push(since.elapsed() / 2),
            Err(failure) => {
                report.failures.push(format!("after {:?}: {failure}", since.elapsed()));
                client = None;
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    report
}

/// Sets a value and gets it again, on the existing connection or on a new one.
fn exchange(
    client: &mut Option<Client>,
    addr: SocketAddr,
    deadline: Duration,
    key: &str,
    value: &[u8],
) -> Result<(), String> {
    let connected = match client.take() {
        Some(connected) => connected,
        None => {
            let mut connected = Client::connect(addr).map_err(|error| error.to_string())?;
            connected.deadline = deadline;
            connected
        }
    };
    let client = client.insert(connected);
    match client.set(key, value)?.as_str() {
        "STORED" => {}
        other => return Err(format!("set: {other}")),
    }
    match client.get(key)? {
        Some(found) if found == value => Ok(()),
        Some(found) => Err(format!("get: {} wrong bytes", found.len())),
        None => Err("get: a miss".to_owned()),
    }
}

/// Watches the resident memory of a process.
#[derive(Debug)]
pub struct MemoryWatch {
    stop: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryWatch {
    /// Reads the resident memory of the process `pid` every few milliseconds from now on.
    pub fn start(pid: u32) -> Self {
        let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, highest) = (Arc::clone(&stop), Arc::clone(&peak));
        let watch = move || {
            while !stopped.load(Ordering::SeqCst) {
                highest.fetch_max(rss_bytes(pid).unwrap_or(0), Ordering::SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
        };
        Self { stop, peak, thread: Some(thread::spawn(watch)) }
    }

    /// Returns the highest resident memory seen so far (bytes).
    pub fn peak_bytes(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
