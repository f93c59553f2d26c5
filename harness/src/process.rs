//! The processes of an experiment. They are started, pinned where the machine allows, asked for their CPU time, and
//! ended when dropped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use nix::unistd::Pid;
use units::ByteCount;

/// A child process.
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts this binary with these arguments, on one core if one is named.
    ///
    /// # Errors
    /// The system's reason, with the process's name.
    pub fn rebate(name: &str, args: &[String], core: Option<usize>) -> Result<Self, String> {
        Self::rebate_with(name, args, core, None)
    }

    /// Starts this binary as [`Process::rebate`] does, with one more variable in the environment.
    ///
    /// # Errors
    /// The system's reason, with the process's name.
    pub fn rebate_with(
        name: &str,
        args: &[String],
        core: Option<usize>,
        variable: Option<(&str, &OsStr)>,
    ) -> Result<Self, String> {
        let binary = std::env::current_exe().map_err(|error| error.to_string())?;
        Self::spawn(name, on_core(binary.as_os_str(), core).args(args).envs(variable))
    }

    fn spawn(name: &str, command: &mut Command) -> Result<Self, String> {
        // Processes that are still running at the end complain about those that ended before them.
        command.env("RUST_LOG", "error");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Self { child, name: name.to_owned() })
    }

    /// The name of the process in the experiment.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads standard output until there is a line with each of these beginnings. Returns the rests of those lines.
    ///
    /// # Errors
    /// The process ended first, or took longer than [`PATIENCE`].
    pub fn lines_after<const N: usize>(
        &mut self,
        beginnings: [&str; N],
    ) -> Result<[String; N], String> {
        let out = self.child.stdout.take().ok_or("standard output was taken before")?;
        let (tell, lines) = std::sync::mpsc::channel();
        // The thread ends with the child's output, or when nobody listens any more.
        std::thread::spawn(move || {
            let mut lines = BufReader::new(out).lines().map_while(Result::ok);
            lines.all(|line| tell.send(line).is_ok())
        });
        let mut found = std::array::from_fn::<_, N, _>(|_| None);
        while let Ok(line) = lines.recv_timeout(PATIENCE) {
            for (beginning, found) in beginnings.iter().zip(&mut found) {
                if let Some(rest) = line.strip_prefix(beginning) {
                    found.get_or_insert(rest.to_owned());
                }
            }
            if found.iter().all(Option::is_some) {
                return Ok(found.map(Option::unwrap_or_default));
            }
        }
        let seconds = PATIENCE.as_secs();
        Err(format!("{} did not serve within {seconds} s, or ended before", self.name))
    }

    /// Returns the CPU time of all its threads so far, those that have ended included, and how long the living threads
    /// have waited for a core.
    pub fn spent(&self) -> Spent {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let waited_ns = threads.into_iter().flatten().flatten().filter_map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        Spent { cpu_s: self.cpu_s(), waited_s: waited_ns.sum::<u64>() as f64 / 1e9 }
    }

    /// Returns the CPU time of all its threads so far (s). After its end this is zero.
    pub fn cpu_s(&self) -> f64 {
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(self.child.id() as i32));
        let time = clock.and_then(ClockId::now).map(Duration::from);
        time.unwrap_or_default().as_secs_f64()
    }
}

/// Times of a process's threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Time on a core (s).
    pub cpu_s: f64,
    /// Time in which threads were ready to run while the cores ran something else (s).
    pub waited_s: f64,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Builds the program's command, on one core if one is named.
fn on_core(program: impl AsRef<OsStr>, core: Option<usize>) -> Command {
    let Some(core) = core else { return Command::new(program) };
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]).arg(program);
    command
}

/// Returns a path in the folder for temporary files at which nothing exists yet.
pub fn free_path() -> PathBuf {
    let name = format!("rebate-{}-{:?}", std::process::id(), Instant::now());
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    std::env::temp_dir().join(name)
}

/// Tells whether memcached can be started.
pub fn memcached_is_here() -> bool {
    let version = Command::new("memcached").arg("-V").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Starts a memcached with that much memory. It chooses its port.
///
/// # Errors
/// The reason why it does not serve.
pub fn start_memcached(
    memory: ByteCount,
    threads: usize,
    core: Option<usize>,
) -> Result<(Process, u16), String> {
    let file = free_path();
    let mib = (memory.0 >> 20).max(1);
    let args = format!("-l 127.0.0.1 -p -1 -U 0 -t {threads} -u nobody -m {mib}");
    let mut command = on_core("memcached", core);
    // memcached writes its port into a file that this variable names.
    command.args(args.split(' ')).env("MEMCACHED_PORT_FILENAME", &file);
    let mut process = Process::spawn("memcached", &mut command)?;
    let deadline = Instant::now() + PATIENCE;
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
        std::thread::sleep(POLL);
    };
    let _ = std::fs::remove_file(&file);
    Ok((process, port))
}

/// Reads the samples of a `/metrics` page whose names begin with `name`: the rest of the key, labels included, and the
/// value.
///
/// # Errors
/// The connection failed.
pub fn metrics(host_port: &str, name: &str) -> Result<Vec<(String, f64)>, String> {
    let page = get(host_port, "/metrics").map_err(|error| format!("{host_port}: {error}"))?;
    let sample = |line: &str| {
        let (key, value) = line.rsplit_once(' ')?;
        let rest = key.strip_prefix(name)?;
        Some((rest.to_owned(), value.parse().ok()?))
    };
    Ok(page.lines().filter_map(sample).collect())
}

fn get(host_port: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host_port)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// Longer than any pause of a busy machine. After this time a process counts as hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
