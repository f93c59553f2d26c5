//! Measures the cost of jobs at a compression service on another host. It uses one TCP connection (here over the
//! loopback device) to `rebate serve --role compression`. Client and service run on their own cores, with a fixed
//! number of jobs in flight at all times. Short jobs submitted together share a call (`shared`), or each job has its
//! own call (`single`). Jobs of more than 16 KiB always have their own call, so the difference of their two rows
//! shows the noise. Jobs decompress LZ4, which is the least work available. For each case it prints jobs per second,
//! a job's median time from submission to completion, and the CPU time per job of this process and of the service. It
//! prints medians and ranges of five runs, with all cases in turn.
//!
//! The service is `target/release/rebate` (`cargo build --release -p cli`), or the binary named by `--service=PATH`.
//! `--quick` makes the runs short. A word selects the cases whose name contains it.

mod common;

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::Signal;
use device::contract::payload::Payload;
use device::cores::pin;
use device::engines::lz4;
use device::{Codec, Device, Dialect, Input, Job, Level, Outcome, Pool, Queue, Task};
use drivers::{Remote, RemoteOptions};
use rustix::time::{ClockId, clock_gettime};
use units::ByteCount;

type Problem = Box<dyn Error>;

fn main() -> Result<(), Problem> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let length = Duration::from_millis(if has("--quick") { 30 } else { 400 });
    // The server does the same at its start, before there are threads.
    let _ = drivers::heap::keep_large_blocks();
    let service = Service::start(args.iter().find_map(|arg| arg.strip_prefix("--service=")))?;
    let cases = SIZES.iter().flat_map(|bytes| DEPTHS.map(|depth| (*bytes, depth)));
    let cases = cases.flat_map(|(bytes, depth)| WAYS.map(|way| Case { bytes, depth, way }));
    let words = || args.iter().filter(|arg| !arg.starts_with("--"));
    let cases = cases.filter(|case| words().all(|word| case.name().contains(word)));
    let mut cases: Vec<_> = cases.map(|case| (case, Vec::new())).collect();
    for _ in 0..RUNS {
        for (case, runs) in &mut cases {
            runs.push(case.measure(&service, length)?);
        }
    }
    for (case, runs) in &cases {
        for (at, (what, unit)) in ROWS.into_iter().enumerate() {
            let mut values: Vec<f64> = runs.iter().map(|run| run[at]).collect();
            values.sort_unstable_by(f64::total_cmp);
            let (low, value, high) = (values[0], values[RUNS / 2], values[RUNS - 1]);
            let id = format!("remote.{what}.{}", case.name());
            println!("{id:<44} {value:>9.1} {unit:<6} [{low:.1}, {high:.1}]");
        }
    }
    Ok(())
}

struct Case {
    bytes: usize,
    depth: usize,
    /// The name of the mode, and the most jobs per call.
    way: (&'static str, usize),
}

const SIZES: [usize; 3] = [256, 4 << 10, 64 << 10];
const DEPTHS: [usize; 3] = [1, 8, 32];
const WAYS: [(&str, usize); 2] = [("shared", api::wire::JOBS_PER_CALL_MAX), ("single", 1)];
const RUNS: usize = 5;

/// The results of a run, each with its unit.
const ROWS: [(&str, &str); 4] =
    [("jobs", "jobs/s"), ("p50", "us"), ("cpu_client", "us/job"), ("cpu_service", "us/job")];

impl Case {
    fn name(&self) -> String {
        format!("{}.depth_{}.{}", ByteCount(self.bytes as u64), self.depth, self.way.0)
    }

    /// Runs once over a new connection.
    fn measure(&self, service: &Service, length: Duration) -> Result<[f64; 4], Problem> {
        let options = RemoteOptions { jobs_per_call: self.way.1, ..RemoteOptions::default() };
        let remote = Remote::new(service.address.parse()?, &options)?;
        let (dialect, mut stream) = (Dialect::new(Codec::Lz4), vec![0; 2 * self.bytes]);
        let original = Payload::Text.bytes(self.bytes, 1);
        let written = lz4::engine().compress(dialect, Level::Fast, &original, &mut stream);
        stream.truncate(written.map_err(|error| format!("{error:?}"))?);
        let task = Task::Decompress { dialect, original_bytes: self.bytes };
        let pool = Pool::heap(ByteCount::mib(8));
        let client = Client { task, stream: stream.into(), pool };
        let (depth, pid) = (self.depth, service.process.id());
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let executor = builder.enable_all().build_local(tokio::runtime::LocalOptions::default())?;
        // The client runs in a task, like a server's sessions.
        let run = async move {
            let run = client.run(&remote, depth, length, || (cpu_here(), cpu_of(pid))).await;
            run.map_err(|error| error.to_string())
        };
        Ok(executor.block_on(async { tokio::task::spawn_local(run).await })??)
    }
}

struct Client {
    task: Task,
    stream: Bytes,
    pool: Pool,
}

impl Client {
    /// Keeps `depth` jobs in flight for `length`, after a warm-up of an eighth of that time. `cpu` returns the CPU
    /// time of this process and of the service's process so far.
    async fn run(
        &self,
        remote: &Remote,
        depth: usize,
        length: Duration,
        cpu: impl Fn() -> (Duration, Duration),
    ) -> Result<[f64; 4], Problem> {
        let signal = Arc::new(Signal::default());
        let mut queue = remote.open_queue(Waker::from(Arc::clone(&signal)))?;
        let (mut begun, mut times) = (vec![Instant::now(); depth], Vec::new());
        let (mut ready, mut done): (Vec<usize>, Vec<_>) = ((0..depth).collect(), Vec::new());
        let (mut start, mut before) = (Instant::now(), None);
        while before.is_none() || start.elapsed() < length {
            if before.is_none() && start.elapsed() > length / 8 {
                times.clear();
                (start, before) = (Instant::now(), Some(cpu()));
            }
            for place in ready.drain(..) {
                begun[place] = Instant::now();
                self.submit(queue.as_mut(), place as u64)?;
            }
            if queue.poll(&mut done) == 0 {
                signal.0.notified().await;
            }
            for completion in done.drain(..) {
                let Outcome::Done { .. } = completion.outcome else {
                    return Err(format!("a job came to {:?}", completion.outcome).into());
                };
                let place = completion.job.tag as usize;
                times.push(begun[place].elapsed());
                ready.push(place);
            }
        }
        let (took, after, before) = (start.elapsed(), cpu(), before.ok_or("it began")?);
        times.sort_unstable();
        let p50 = times.get(times.len() / 2).ok_or("no job came back")?;
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        let each = |time: Duration| us(time) / times.len() as f64;
        let (here, there) = (each(after.0 - before.0), each(after.1 - before.1));
        Ok([times.len() as f64 / took.as_secs_f64(), us(*p50), here, there])
    }

    fn submit(&self, queue: &mut dyn Queue, tag: u64) -> Result<(), Problem> {
        let original_bytes = self.task.output_bytes(self.stream.len()).ok_or("it has one size")?;
        let output = self.pool.take(original_bytes);
        let input = Input::heap(self.stream.clone());
        let mut job = Box::new(Job::new(self.task.clone(), input, output));
        job.tag = tag;
        queue.try_submit(job).map_err(|refused| format!("refused: {:?}", refused.reason).into())
    }
}

/// The service's process. It ends with its client.
struct Service {
    process: Child,
    address: String,
    /// The service's output. It stays open so that the service can print.
    _output: BufReader<ChildStdout>,
}

impl Service {
    /// Starts the service on core 1 and moves this process to core 0. Without a name, the binary is in the folder
    /// above this executable's folder.
    fn start(binary: Option<&str>) -> Result<Self, Problem> {
        let built = || Some(std::env::current_exe().ok()?.ancestors().nth(2)?.join("rebate"));
        let binary = binary.map(Into::into).or_else(built).ok_or("where is this executable?")?;
        let mut command = Command::new(&binary);
        command.args(["serve", "--role", "compression", "--threads", "1", "--workers", "0"]);
        command.args(["--grpc-listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        pin(1)?;
        let process = command.spawn();
        pin(0)?;
        let mut process = process.map_err(|error| format!("{}: {error}", binary.display()))?;
        let output = process.stdout.take().ok_or("its output is piped")?;
        let (mut output, mut line) = (BufReader::new(output), String::new());
        while output.read_line(&mut line)? > 0 {
            if let Some(address) = line.trim().strip_prefix("grpc on ") {
                return Ok(Self { address: address.to_owned(), process, _output: output });
            }
            line.clear();
        }
        Err("the service ended before it said where it listens".into())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn cpu_here() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the CPU time of all threads of a process.
fn cpu_of(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let spent = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.filter_map(spent).sum())
}
