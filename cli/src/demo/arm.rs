//! One side of the comparison: a `rebate serve` process and, if that is what holds the items, a memcached behind it.
//! Dropping it ends them.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use load::{Address, LoadReport};
use nix::unistd::{SysconfVar, sysconf};
use units::{ByteCount, limits};

use super::comparison::Side;

/// What holds the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    Memcached,
    Embedded,
}

/// A running side.
pub(super) struct Arm {
    processes: Vec<Process>,
    address: Address,
    host_port: String,
}

/// What one run of a side came to.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) hit_ratio: f64,
    /// Items held at the end.
    pub(super) items: f64,
    /// Logical bytes of their values, as far as the store's own count and the written share tell.
    pub(super) held_bytes: f64,
    /// Stored bytes of a value, over its logical bytes.
    pub(super) stored_share: f64,
    /// Logical bytes of a value written.
    pub(super) logical_bytes: f64,
    /// Core-seconds of all processes of the side while it was measured.
    pub(super) cpu_s: f64,
    /// Core-microseconds per request.
    pub(super) cpu_us: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) requests_per_s: f64,
    pub(super) failures: u64,
    pub(super) was_bottleneck: bool,
}

impl Backing {
    /// What the store's count of bytes has for an item beside key and value (bytes).
    pub(super) const fn item_overhead_bytes(self) -> usize {
        match self {
            Backing::Memcached => limits::ITEM_OVERHEAD_BYTES,
            Backing::Embedded => store::embedded::ITEM_OVERHEAD_BYTES,
        }
    }
}

impl Arm {
    /// Starts the side's processes and waits until they serve.
    pub(super) fn start(side: Side, backing: Backing, memory: ByteCount) -> Result<Self, String> {
        let mut processes = Vec::new();
        let store = match backing {
            Backing::Embedded => "embedded".to_owned(),
            Backing::Memcached => {
                let (memcached, port) = start_memcached(memory)?;
                processes.push(memcached);
                format!("memcached://127.0.0.1:{port}")
            }
        };
        let binary = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", &store]);
        command.args(["--memory", &memory.to_string(), "--compress", side.name()]);
        let mut rebate = Process::start(&mut command, "rebate serve")?;
        let host_port = rebate.line_after("listening on ")?;
        processes.push(rebate);
        let address = host_port.parse().map_err(|error| format!("{host_port:?}: {error}"))?;
        Ok(Self { processes, address, host_port })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    /// CPU time of the side's processes so far (s).
    pub(super) fn cpu_s(&self) -> f64 {
        self.processes.iter().map(Process::cpu_s).sum()
    }

    /// The side's own counters by name.
    pub(super) fn stats(&self) -> Result<Vec<(String, f64)>, String> {
        let mut stats = Vec::new();
        for page in ["stats\r\n", "stats rebate\r\n"] {
            stats.extend(ask_stats(&self.host_port, page).map_err(|error| error.to_string())?);
        }
        Ok(stats)
    }
}

impl Sample {
    pub(super) fn new(
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

/// Whether memcached can be started.
pub(super) fn memcached_is_here() -> bool {
    let version = Command::new("memcached").arg("-V").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

struct Process {
    child: Child,
    name: &'static str,
}

impl Process {
    fn start(command: &mut Command, name: &'static str) -> Result<Self, String> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Self { child, name })
    }

    /// The rest of the first line of standard output that begins so.
    fn line_after(&mut self, beginning: &str) -> Result<String, String> {
        let out = self.child.stdout.take().ok_or("standard output was taken before")?;
        for line in BufReader::new(out).lines() {
            let line = line.map_err(|error| error.to_string())?;
            if let Some(rest) = line.strip_prefix(beginning) {
                return Ok(rest.to_owned());
            }
        }
        Err(format!("{} ended before it served", self.name))
    }

    fn cpu_s(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // utime and stime are the 14th and 15th field; the second may hold blanks and ends in ')'.
        let fields = text.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
        let ticks: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
        ticks / per_second as f64
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A memcached on a port of its own choice, with that much memory.
fn start_memcached(memory: ByteCount) -> Result<(Process, u16), String> {
    let name = format!("rebate-demo-{}-{:?}", std::process::id(), Instant::now());
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    let file = std::env::temp_dir().join(name);
    let mut command = Command::new("memcached");
    command.args(["-l", "127.0.0.1", "-p", "-1", "-U", "0", "-t", "2", "-u", "nobody"]);
    command.args(["-m", &(memory.0 >> 20).max(1).to_string()]);
    command.env("MEMCACHED_PORT_FILENAME", &file);
    let mut process = Process::start(&mut command, "memcached")?;
    let deadline = Instant::now() + START_PATIENCE;
    let port = loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let port = text.lines().find_map(|line| line.strip_prefix("TCP INET: "));
        if let Some(port) = port.and_then(|port| port.trim().parse().ok()) {
            break port;
        }
        if let Ok(Some(status)) = process.child.try_wait() {
            return Err(format!("memcached ended before it served: {status}"));
        }
        if Instant::now() > deadline {
            return Err("memcached did not say its port".to_owned());
        }
        std::thread::sleep(START_POLL);
    };
    let _ = std::fs::remove_file(&file);
    Ok((process, port))
}

fn ask_stats(host_port: &str, page: &str) -> std::io::Result<Vec<(String, f64)>> {
    let mut stream = TcpStream::connect(host_port)?;
    stream.set_read_timeout(Some(START_PATIENCE))?;
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

const START_PATIENCE: Duration = Duration::from_secs(10);
const START_POLL: Duration = Duration::from_millis(10);
