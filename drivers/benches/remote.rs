//! Measures the cost of jobs at a compression service on another host. It uses one TCP connection (here over the
//! loopback device) to `rebate serve --role compression`. Client and service run on their own cores, with a fixed
//! number of jobs in flight at all times. Short jobs submitted together share a call (`shared`), or each job has its
//! own call (`single`). Jobs of more than 16 KiB always have their own call, so the difference of their two rows
//! shows the noise. Jobs decompress LZ4, which is the least work available. For each case it prints jobs per second,
//! a job's median time from submission to completion, and the CPU time per job of this process and of the service.
//! Each run has all cases in turn.
//!
//! The flags are those of `harness::Bench`, and `--service=PATH`, which names the service's binary. It is otherwise
//! `target/release/rebate` (`cargo build --release -p cli`).

mod common;

use std::error::Error;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::Signal;
use device::contract::payload::Payload;
use device::engines::lz4;
use device::{Codec, Device, Dialect, Input, Job, Level, Outcome, Pool, Queue, Task};
use drivers::{Remote, RemoteOptions};
use harness::bench::process_time;
use harness::{Bench, Process, bench, quantile};
use units::ByteCount;
use units::cores::pin;

type Problem = Box<dyn Error>;

fn main() -> Result<(), Problem> {
    let mut bench = Bench::new("cargo bench -p drivers --bench remote", 5);
    let length = Duration::from_millis(if bench.quick { 30 } else { 400 });
    // The server does the same at its start, before there are threads.
    let _ = drivers::heap::keep_large_blocks();
    let service = Service::start()?;
    let cases = SIZES.iter().flat_map(|bytes| DEPTHS.map(|depth| (*bytes, depth)));
    let cases = cases.flat_map(|(bytes, depth)| WAYS.map(|way| Case { bytes, depth, way }));
    let cases = cases.filter(|case| bench.wants(&case.name()));
    let mut cases: Vec<_> = cases.map(|case| (case, Vec::new())).collect();
    for _ in bench.runs() {
        for (case, runs) in &mut cases {
            runs.push(case.measure(&service, length)?);
        }
    }
    for (case, runs) in &cases {
        bench.rows(&case.name(), ROWS, runs);
    }
    bench.finish();
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

/// The results of a run, each with its unit.
const ROWS: [(&str, &str); 4] = [
    ("remote.jobs", "jobs/s"),
    ("remote.p50", "us"),
    ("remote.cpu_client", "us/job"),
    ("remote.cpu_service", "us/job"),
];

impl Case {
    fn name(&self) -> String {
        format!("{}.depth_{}.{}", ByteCount(self.bytes as u64), self.depth, self.way.0)
    }

    /// Measures the case once over a new connection.
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
        let depth = self.depth;
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let executor = builder.enable_all().build_local(tokio::runtime::LocalOptions::default())?;
        let process = Rc::clone(&service.process);
        // The client runs in a task, like a server's sessions.
        let run = async move {
            let cpu_s = || [process_time().as_secs_f64(), process.cpu_s()];
            let run = client.run(&remote, depth, length, cpu_s).await;
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
    /// Keeps `depth` jobs in flight for `length`, after a warm-up of an eighth of that time. `cpu_s` returns the
    /// CPU time of this process and of the service's process so far.
    async fn run(
        &self,
        remote: &Remote,
        depth: usize,
        length: Duration,
        cpu_s: impl Fn() -> [f64; 2],
    ) -> Result<[f64; 4], Problem> {
        let signal = Arc::new(Signal::default());
        let mut queue = remote.open_queue(Waker::from(Arc::clone(&signal)))?;
        let (mut begun, mut times) = (vec![Instant::now(); depth], Vec::new());
        let (mut ready, mut done): (Vec<usize>, Vec<_>) = ((0..depth).collect(), Vec::new());
        let (mut start, mut before) = (Instant::now(), None);
        while before.is_none() || start.elapsed() < length {
            if before.is_none() && start.elapsed() > length / 8 {
                times.clear();
                (start, before) = (Instant::now(), Some(cpu_s()));
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
        let (took, after, before) = (start.elapsed(), cpu_s(), before.ok_or("it began")?);
        let count = times.len() as f64;
        let each_us = |at: usize| (after[at] - before[at]) * 1e6 / count;
        let p50_us = quantile(&mut times, 0.5).as_secs_f64() * 1e6;
        Ok([count / took.as_secs_f64(), p50_us, each_us(0), each_us(1)])
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

/// The service. It ends with its client.
struct Service {
    process: Rc<Process>,
    address: String,
}

impl Service {
    /// Starts the service on core 1 and moves this process to core 0. If no binary is named, it is `rebate` from the
    /// folder above this executable's folder.
    fn start() -> Result<Self, Problem> {
        let built = || Some(std::env::current_exe().ok()?.ancestors().nth(2)?.join("rebate"));
        let binary = bench::value("--service").map(Into::into).or_else(built);
        let mut command = Command::new(binary.ok_or("where is this executable?")?);
        command.args(["serve", "--role", "compression", "--threads", "1", "--workers", "0"]);
        command.args(["--grpc-listen", "127.0.0.1:0"]);
        pin(1)?;
        let process = Process::start_with(&mut command, Stdio::inherit());
        pin(0)?;
        let mut process = process?;
        let [address] = process.lines_after(["grpc on "])?;
        Ok(Self { process: Rc::new(process), address })
    }
}
