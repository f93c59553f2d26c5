//! A child process that is watched while it runs. Its output is stored, its end is noticed at once, and
//! dropping its handle kills it. The process can be stopped, and pinned to a core where the machine allows
//! this. Its CPU time can be read. This module does not know what the process serves.

use std::ffi::{OsStr, OsString};
use std::fs::DirEntry;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::time::ClockId;
use nix::unistd;
use rustix::process::{Pid, Signal, kill_process};
use units::ByteCount;

/// A running child process. Dropping it kills the process and waits for its end.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
    lines: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
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
        Self::quiet(name, on_core(binary.as_os_str(), core).args(args).envs(variable))
    }

    /// Starts a process of an experiment. Only its errors are shown, and its name replaces its command in messages.
    fn quiet(name: &str, command: &mut Command) -> Result<Self, String> {
        // Processes that are still running at the end report that others have ended.
        command.env("RUST_LOG", "error");
        let mut process = Self::start_with(command, Stdio::inherit())?;
        name.clone_into(&mut process.name);
        Ok(process)
    }

    /// Starts `command` and stores its output.
    ///
    /// # Errors
    /// The system's reason, with the command.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        Self::start_with(command, Stdio::piped())
    }

    /// Starts `command`, stores its standard output and sends its standard error to `stderr`.
    ///
    /// # Errors
    /// The system's reason, with the command.
    pub fn start_with(command: &mut Command, stderr: impl Into<Stdio>) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let name = format!("{command:?}");
        let mut child = command.spawn().map_err(|error| format!("cannot start {name}: {error}"))?;
        let lines = Arc::default();
        let readers = [keep(child.stdout.take(), &lines), keep(child.stderr.take(), &lines)];
        Ok(Self { child, name, lines, readers: readers.into_iter().flatten().collect() })
    }

    /// Returns the name of the process in the experiment, or its command.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Waits until the process has printed one line with each of these beginnings. Returns the rest of each line.
    ///
    /// # Errors
    /// The process ended first, or took longer than [`TIMEOUT`].
    pub fn lines_after<const N: usize>(
        &mut self,
        beginnings: [&str; N],
    ) -> Result<[String; N], String> {
        self.await_ready(TIMEOUT, "address", |process| {
            let found = beginnings.map(|beginning| process.printed(beginning));
            found.iter().all(Option::is_some).then(|| found.map(Option::unwrap_or_default))
        })
    }

    /// Returns the process id, which /proc and signals use.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the process has printed so far on both streams. The output is complete once the end of the
    /// process was noticed.
    pub fn output(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Waits until a printed line contains `text`. The order of the two streams is not defined, and a line may come
    /// later than the answer or signal that it describes.
    ///
    /// # Errors
    /// No line contains `text` within [`TIMEOUT`]. The error contains the output.
    pub fn await_printed(&self, text: &str) -> Result<(), String> {
        let is_there = poll_for(TIMEOUT, || self.output().contains(text).then_some(()));
        is_there.ok_or_else(|| format!("no {text:?} in\n{}", self.output()))
    }

    /// Returns the rest of the first printed line that starts with `label`.
    pub fn printed(&self, label: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().find_map(|line| line.strip_prefix(label)).map(|rest| rest.trim().to_owned())
    }

    /// Waits until `probe` returns a value, but not longer than the process lives.
    ///
    /// # Errors
    /// The process ended or `limit` passed before `probe` returned a value. The error contains the output.
    pub fn await_ready<T>(
        &mut self,
        limit: Duration,
        what: &str,
        probe: impl Fn(&Self) -> Option<T>,
    ) -> Result<T, String> {
        let found = poll_for(limit, || match probe(self) {
            Some(found) => Some(Ok(found)),
            None => self.exited().map(Err),
        });
        match found {
            Some(Ok(found)) => Ok(found),
            Some(Err(status)) => Err(format!("{} ended: {status}\n{}", self.name, self.output())),
            None => Err(format!("{}: no {what} within {limit:?}\n{}", self.name, self.output())),
        }
    }

    /// Sends a signal. A process that has ended is ignored.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.id()).ok().and_then(Pid::from_raw) {
            let _gone = kill_process(pid, signal);
        }
    }

    /// Stops the process, so that it looks like a hung process. When this function returns, no thread of the process
    /// runs. A wait is needed because `kill` only sends the signal, and a thread on another core may answer a request
    /// before the signal reaches it.
    ///
    /// # Errors
    /// The process has ended, or a thread still runs after [`TIMEOUT`].
    pub fn stop(&self) -> Result<(), String> {
        self.signal(Signal::STOP);
        let is_stopped = poll_for(TIMEOUT, || {
            let states = self.thread_states().unwrap_or_default();
            let has_ended = states.contains(&'Z');
            (has_ended || !states.is_empty() && states.iter().all(|&state| state == 'T'))
                .then_some(!has_ended)
        });
        match is_stopped {
            Some(true) => Ok(()),
            _ => Err(format!("{} does not stand still\n{}", self.name, self.output())),
        }
    }

    /// Continues a stopped process.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Returns the state of each thread of the process, as the letters of proc(5).
    fn thread_states(&self) -> Option<Vec<char>> {
        let state = |task: DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
            // The name in front of the state, in parentheses, may contain any character.
            stat.rsplit_once(')')?.1.trim_start().chars().next()
        };
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).ok()?;
        tasks.map(|task| state(task.ok()?)).collect()
    }

    /// Returns the exit status, if the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        // A grandchild may still have the streams open.
        poll_for(TIMEOUT, || self.readers.iter().all(JoinHandle::is_finished).then_some(()));
        Some(status)
    }

    /// Waits at most `limit` for the process to end.
    pub fn wait_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        poll_for(limit, || self.exited())
    }

    /// Kills the process with SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        self.exited();
    }

    /// Returns the resident memory of the process (bytes), from /proc.
    pub fn rss_bytes(&self) -> Option<u64> {
        rss_bytes(self.id())
    }

    /// Returns the CPU time of all threads of the process so far, including threads that have ended, and the
    /// time that the living threads have waited for a core.
    pub fn cpu_usage(&self) -> CpuUsage {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let waited_ns = threads.into_iter().flatten().flatten().filter_map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_whitespace().nth(1)?.parse::<u64>().ok()
        });
        CpuUsage { cpu_s: self.cpu_s(), waited_s: waited_ns.sum::<u64>() as f64 / 1e9 }
    }

    /// Returns the CPU time of all threads of the process so far, by mode.
    pub fn cpu_modes(&self) -> CpuModes {
        CpuModes::read(&format!("/proc/{}/stat", self.child.id()))
    }

    /// Returns the CPU time of all threads of the process so far (s). It is zero after the process has ended.
    pub fn cpu_s(&self) -> f64 {
        let clock = ClockId::pid_cpu_clock_id(unistd::Pid::from_raw(self.child.id() as i32));
        let time = clock.and_then(ClockId::now).map(Duration::from);
        time.unwrap_or_default().as_secs_f64()
    }
}

/// Processor time in a program's own code and in the kernel, as the kernel counts it: in ticks of 10 ms. It divides
/// the exact sum of both by the share of clock interrupts that met each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuModes {
    /// The time in the program's own code (s).
    pub user_s: f64,
    /// The time in the kernel (s).
    pub system_s: f64,
}

impl CpuModes {
    /// Returns the times of the calling thread so far.
    pub fn of_thread() -> Self {
        Self::read("/proc/thread-self/stat")
    }

    /// Reads a file with a state of the kernel's. The times are zero if there is none.
    fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // The name of the program may contain spaces. The state that follows it is field 3, and the times are 14 and
        // 15.
        let fields = text.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let mut times = fields.split(' ').skip(11).map_while(|ticks| ticks.parse::<f64>().ok());
        let mut next_s = || times.next().unwrap_or_default() / TICKS_PER_S;
        Self { user_s: next_s(), system_s: next_s() }
    }
}

/// The unit of times in /proc (`USER_HZ`, 100 on every architecture of Linux that Rust runs on).
const TICKS_PER_S: f64 = 100.0;

/// The times of a process's threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuUsage {
    /// The time on a core (s).
    pub cpu_s: f64,
    /// The time in which threads were ready to run while the cores ran something else (s).
    pub waited_s: f64,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn keep(
    stream: Option<impl Read + Send + 'static>,
    lines: &Arc<Mutex<Vec<String>>>,
) -> Option<JoinHandle<()>> {
    let (stream, lines) = (stream?, Arc::clone(lines));
    Some(thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).into_owned();
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        }
    }))
}

/// Returns the resident memory of a process (bytes), from /proc.
pub fn rss_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Calls `probe` until it returns a value. Returns `None` if it has returned none within `limit`.
pub fn poll_for<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        thread::sleep(POLL);
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

/// Returns whether memcached can be started.
pub fn memcached_is_here() -> bool {
    memcached_version().is_some()
}

fn memcached_version() -> Option<String> {
    let output = Command::new(memcached_binary()).arg("-V").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns `None` and prints a note if this machine does not have the memcached that a test needs. `version` is the
/// end of what `memcached -V` prints, and empty if any version will do.
///
/// # Panics
/// The memcached is missing in CI.
pub fn needs_memcached(version: &str) -> Option<()> {
    let found = memcached_version();
    if found.as_ref().is_some_and(|found| found.ends_with(version)) {
        return Some(());
    }
    assert!(std::env::var_os("CI").is_none(), "CI needs memcached {version}: {found:?}");
    eprintln!("SKIPPED: no memcached {version}: {found:?}");
    None
}

/// Starts memcached for an experiment with `memory` of memory. Returns the process and its port.
///
/// # Errors
/// The reason why memcached does not serve.
pub fn start_memcached(
    memory: ByteCount,
    threads: usize,
    core: Option<usize>,
) -> Result<(Process, u16), String> {
    let (memory, threads) = ((memory.0 >> 20).max(1).to_string(), threads.to_string());
    let args = ["-t", &threads, "-u", "nobody", "-m", &memory];
    let (mut process, port) = memcached(None, core, Stdio::inherit(), &args)?;
    "memcached".clone_into(&mut process.name);
    Ok((process, port))
}

/// Starts memcached on this port, or on a port that it chooses. `args` are appended to this module's
/// arguments. Returns the process and its port.
///
/// # Errors
/// The reason why memcached does not serve.
pub fn memcached(
    port: Option<u16>,
    core: Option<usize>,
    stderr: impl Into<Stdio>,
    args: &[&str],
) -> Result<(Process, u16), String> {
    let file = free_path();
    let mut command = memcached_command(core);
    let asked = port.map_or("-1".to_owned(), |port| port.to_string());
    if !args.contains(&"-u") {
        command.args(AS_ROOT);
    }
    command.args(["-l", "127.0.0.1", "-p", &asked, "-U", "0"]).args(args);
    // memcached writes its port into a file that this variable names.
    command.env("MEMCACHED_PORT_FILENAME", &file);
    let mut process = Process::start_with(&mut command, stderr)?;
    let port = process.await_ready(TIMEOUT, "port file", |_| {
        let text = std::fs::read_to_string(&file).ok()?;
        text.lines().find_map(|line| line.strip_prefix("TCP INET: "))?.trim().parse().ok()
    });
    let _ = std::fs::remove_file(&file);
    Ok((process, port?))
}

/// Starts memcached on a Unix socket, on one core if one is named.
///
/// # Errors
/// The reason why memcached does not serve.
pub fn memcached_on_socket(socket: &Path, core: Option<usize>) -> Result<Process, String> {
    let mut command = memcached_command(core);
    let mut process = Process::start(command.args(AS_ROOT).arg("-s").arg(socket))?;
    process.await_ready(TIMEOUT, "socket", |_| UnixStream::connect(socket).ok())?;
    Ok(process)
}

fn memcached_command(core: Option<usize>) -> Command {
    on_core(memcached_binary(), core)
}

/// memcached refuses to run as root without -u and ignores -u for anyone else.
const AS_ROOT: [&str; 2] = ["-u", "root"];

fn memcached_binary() -> OsString {
    std::env::var_os("MEMCACHED_BIN").unwrap_or_else(|| "memcached".into())
}

/// A time that is longer than any pause of a busy machine. A process that takes longer counts as hanging.
pub const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
