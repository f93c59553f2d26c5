//! One side of the comparison: a `rebate serve` process and, if memcached holds the items, a memcached behind it.
//! Dropping the value ends the processes.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use load::{Address, LoadReport};
use units::{ByteCount, limits};

use super::Side;
use crate::testbed::Backing;
use harness::{Process, TIMEOUT, start_memcached};

/// A running side of the comparison.
pub struct Variant {
    processes: Vec<Process>,
    address: Address,
    host_port: String,
}

/// The results of one run of a side.
#[derive(Clone, Debug)]
pub struct Sample {
    pub(super) hit_ratio: f64,
    /// The number of items held at the end.
    pub(super) items: f64,
    /// The logical bytes of the held values. They are estimated from the store's count and the stored share of the
    /// bytes written.
    pub(super) held_bytes: f64,
    /// The stored bytes of a value, divided by its logical bytes.
    pub(super) stored_share: f64,
    /// The mean logical bytes of a written value.
    pub(super) logical_bytes: f64,
    /// The core-seconds that all processes of the side took while the side was measured.
    pub(super) cpu_s: f64,
    /// The core-microseconds per request.
    pub(super) cpu_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) requests_per_s: f64,
    pub(super) failures: u64,
    pub(super) was_bottleneck: bool,
}

/// Returns the bytes per item that the store counts in addition to key and value.
pub const fn item_overhead_bytes(backing: Backing) -> usize {
    match backing {
        Backing::Memcached => limits::ITEM_OVERHEAD_BYTES,
        Backing::Embedded => store::embedded::ITEM_OVERHEAD_BYTES,
    }
}

impl Variant {
    /// Starts the side's processes and waits until they serve.
    ///
    /// # Errors
    /// What did not start, and why.
    pub fn start(side: Side, backing: Backing, memory: ByteCount) -> Result<Self, String> {
        let mut processes = Vec::new();
        let store = match backing {
            Backing::Embedded => "embedded".to_owned(),
            Backing::Memcached => {
                let (memcached, port) = start_memcached(memory, 2, None)?;
                processes.push(memcached);
                format!("memcached://127.0.0.1:{port}")
            }
        };
        let args = ["serve", "--listen=127.0.0.1:0"].map(str::to_owned);
        let more = [
            format!("--store={store}"),
            format!("--memory={memory}"),
            format!("--compress={}", side.name()),
        ];
        let mut rebate = Process::rebate("rebate serve", &[&args[..], &more].concat(), None)?;
        let [host_port] = rebate.lines_after(["listening on "])?;
        processes.push(rebate);
        let address = host_port.parse().map_err(|error| format!("{host_port:?}: {error}"))?;
        Ok(Self { processes, address, host_port })
    }

    /// Returns where the side serves.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns the CPU time of the side's processes so far (s).
    pub fn cpu_s(&self) -> f64 {
        self.processes.iter().map(Process::cpu_s).sum()
    }

    /// Returns the server's counters by name.
    ///
    /// # Errors
    /// Why the server does not tell them.
    pub fn stats(&self) -> Result<Vec<(String, f64)>, String> {
        let mut stats = Vec::new();
        for page in ["stats\r\n", "stats rebate\r\n"] {
            stats.extend(ask_stats(&self.host_port, page).map_err(|error| error.to_string())?);
        }
        Ok(stats)
    }
}

impl Sample {
    /// Puts together what the load, the processes and the server tell of a run.
    pub fn new(
        report: &LoadReport,
        cpu_s: f64,
        stats: &[(String, f64)],
        item_overhead_bytes: f64,
    ) -> Self {
        let stat = |name: &str| {
            stats.iter().find(|(other, _)| other == name).map_or(0.0, |(_, value)| *value)
        };
        let answered = (report.get.answered + report.set.answered + report.fill.answered) as f64;
        let logical = stat("logical_bytes_written").max(1.0);
        let stored_share = stat("stored_bytes_written") / logical;
        let items = stat("curr_items");
        let stored_bytes = (stat("bytes") - items * item_overhead_bytes).max(0.0);
        Self {
            hit_ratio: report.get.hit_ratio.unwrap_or(0.0),
            items,
            held_bytes: stored_bytes / stored_share.max(1e-9),
            stored_share,
            logical_bytes: logical / stat("cmd_set").max(1.0),
            cpu_s,
            cpu_us: cpu_s * 1e6 / answered.max(1.0),
            p50_us: report.get.latency.p50_ns as f64 / 1e3,
            p99_us: report.get.latency.p99_ns as f64 / 1e3,
            requests_per_s: answered / report.measured_s.max(1e-9),
            failures: report.failures(),
            was_bottleneck: report.generator.was_bottleneck,
        }
    }
}

fn ask_stats(host_port: &str, page: &str) -> std::io::Result<Vec<(String, f64)>> {
    let mut stream = TcpStream::connect(host_port)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(page.as_bytes())?;
    let mut stats = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next().and_then(|value| value.parse().ok())) {
            (Some("STAT"), Some(name), Some(value)) => stats.push((name.to_owned(), value)),
            (Some("STAT"), ..) => {}
            _ => break,
        }
    }
    Ok(stats)
}
