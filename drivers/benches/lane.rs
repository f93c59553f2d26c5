//! Measures the hop over a lane alone: round trips of jobs that a second process answers without any work, by size. The
//! cases are:
//! - `own-cores.polled`: two cores, and the client polls in a loop;
//! - `own-cores.adaptive`: two cores under tokio, and the lane decides whether to poll;
//! - `one-core`: both processes share a core;
//! - `own-cores.asleep`: two cores, and both sides sleep before every job.
//!
//! The flags are those of `harness::Bench`, and `--event-interval=N`, which makes tokio check for events after every N
//! polls. For each case there are the median and the 99th percentile of the trips, the number of
//! times that the client woke the service per job, and the bytes per job that both sides copied.
//!
//! Each value is written anew before its trip, so that it is in the cache of the core that wrote it. The trip uses the
//! value in one of these ways:
//! - `in_place`: an input in the lane's memory that the service does not read, so that the time is the hop alone;
//! - `in`: an input in the lane's memory that the service copies, as it does before a codec that is not proven on
//!   changing input;
//! - `in_heap`: an input in other memory that the client copies to the lane's memory and the service copies from
//!   there;
//! - `out`: a result that the client copies out of the service's memory, so that the service cannot change it after
//!   its verification.

mod common;

use std::error::Error;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use common::Signal;
use device::{
    Buffer, Class, Codec, Device, Dialect, Input, Job, Level, Outcome, Pool, Queue, Task, Waiting,
};
use drivers::lane::{LaneServer, Results, ServedLane, Taken};
use drivers::{Lane, LaneOptions};
use harness::{Bench, Process, TIMEOUT, bench, quantile};
use units::cores::pin;
use units::{ByteCount, Nanos};

type Problem = Box<dyn Error>;

fn main() -> Result<(), Problem> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, path, core] = &args[..]
        && flag == "--serve"
    {
        return serve(Path::new(path), core.parse()?);
    }
    let mut bench = Bench::new("cargo bench -p drivers --bench lane", 1);
    let trips = if bench.quick { 200 } else { 20_000 };
    for case in CASES {
        for value in VALUES {
            for bytes in SIZES {
                let name = format!("{}.{}.{}", case.name, value.name, ByteCount(bytes as u64));
                if !bench.wants(&name) {
                    continue;
                }
                let trips = if case.pause < SLEEP_MIN { trips } else { trips / 20 };
                let runs = bench.runs().map(|_| measure(case, value, bytes, trips));
                let runs: Vec<_> = runs.collect::<Result<_, _>>()?;
                bench.rows(&name, ROWS, &runs);
            }
        }
    }
    bench.finish();
    Ok(())
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The core of the service. The client runs on core 0.
    service_core: usize,
    tokio: bool,
    /// The pause between jobs. It is either too short to sleep or long enough for both sides to sleep.
    pause: Duration,
}

/// A pause that is long enough for a service on its own core to write the next result.
const SPIN_PAUSE: Duration = Duration::from_micros(20);

const SLEEP_MIN: Duration = Duration::from_micros(100);

/// The use of a value in a trip.
#[derive(Clone, Copy)]
struct Value {
    name: &'static str,
    is_result: bool,
    /// True if the input is in the lane's memory.
    in_place: bool,
    /// True if the service copies the input.
    is_read: bool,
}

const VALUES: [Value; 4] = [
    Value { name: "in_place", is_result: false, in_place: true, is_read: false },
    Value { name: "in", is_result: false, in_place: true, is_read: true },
    Value { name: "in_heap", is_result: false, in_place: false, is_read: true },
    Value { name: "out", is_result: true, in_place: true, is_read: true },
];

const CASES: [Case; 4] = [
    Case { name: "own-cores.polled", service_core: 1, tokio: false, pause: SPIN_PAUSE },
    Case { name: "own-cores.adaptive", service_core: 1, tokio: true, pause: SPIN_PAUSE },
    Case { name: "one-core", service_core: 0, tokio: true, pause: Duration::ZERO },
    Case {
        name: "own-cores.asleep",
        service_core: 1,
        tokio: true,
        pause: Duration::from_micros(400),
    },
];

const SIZES: [usize; 4] = [64, 4 << 10, 16 << 10, 64 << 10];

/// The results of a run, each with its unit.
const ROWS: [(&str, &str); 4] =
    [("p50", "us"), ("p99", "us"), ("bells", "1/job"), ("copied", "B/job")];

fn measure(case: Case, value: Value, bytes: usize, trips: usize) -> Result<[f64; 4], Problem> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("lane");
    let service = service(&path, case.service_core)?;
    pin(CLIENT_CORE)?;
    let waiting =
        if case.tokio { Waiting::Signalled } else { Waiting::Polled { expected: Nanos(0) } };
    let lane = Lane::new(&path, &LaneOptions { waiting, ..LaneOptions::default() });
    let lane = Arc::new(lane);
    let (input_bytes, output_bytes) = if value.is_result { (64, bytes) } else { (bytes, 64) };
    let inputs = match lane.input_memory().filter(|_| value.in_place) {
        Some(memory) => Pool::registered(memory, ByteCount::mib(1)),
        None => Pool::heap(ByteCount::mib(1)),
    };
    let outputs = Pool::heap(ByteCount::mib(1));
    let is_read = value.is_read;
    let client = Client { input_bytes, output_bytes, is_read, inputs, outputs, pause: case.pause };
    let mut times = if case.tokio {
        let options = tokio::runtime::LocalOptions::default();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        if let Some(polls) = bench::value("--event-interval") {
            builder.event_interval(polls.parse()?);
        }
        let executor = builder.enable_all().build_local(options)?;
        // The client runs in a task, like a server's sessions, because the executor polls the future of `block_on`
        // itself only occasionally.
        let lane = Arc::clone(&lane);
        let run = async move { client.in_tokio(&lane, trips).await.map_err(|e| e.to_string()) };
        executor.block_on(async { tokio::task::spawn_local(run).await })??
    } else {
        client.polling(&lane, trips)?
    };
    drop(service);
    let counters = lane.counters();
    let counted = |name| {
        counters.iter().find(|counter| counter.0 == name).map_or(0, |counter| counter.1) as f64
    };
    let here = counted("inputs_copied_bytes") + counted("results_copied_bytes");
    let there = if value.is_read { input_bytes as f64 } else { 0.0 };
    let per_job = |count: f64| count / trips as f64;
    let (doorbells, copied) = (per_job(counted("bells")), per_job(here) + there);
    times.drain(..trips / 10);
    let [p50, p99] = [0.5, 0.99].map(|share| quantile(&mut times, share).as_secs_f64() * 1e6);
    Ok([p50, p99, doorbells, copied])
}

struct Client {
    input_bytes: usize,
    output_bytes: usize,
    is_read: bool,
    inputs: Pool,
    outputs: Pool,
    pause: Duration,
}

impl Client {
    fn job(&self) -> Box<Job> {
        let dialect = Dialect::new(Codec::Lz4);
        // The service answers with a result that fills the available space, so this is a copy of this many bytes.
        let task = match self.output_bytes {
            64 => Task::Compress { dialect, level: Level::Fast },
            original_bytes => Task::Decompress { dialect, original_bytes },
        };
        let mut input = self.inputs.take(self.input_bytes);
        input.space().fill(7);
        input.set_len(self.input_bytes);
        let output = self.outputs.take(self.output_bytes);
        let mut job = Job::new(task, Input::pooled(input, 0..self.input_bytes), output);
        job.class = if self.is_read { Class::Batch } else { Class::LatencyCritical };
        Box::new(job)
    }

    fn polling(&self, lane: &Lane, trips: usize) -> Result<Vec<Duration>, Problem> {
        let mut queue = lane.open_queue(Waker::noop().clone())?;
        let (mut times, mut done) = (Vec::with_capacity(trips), Vec::new());
        for _ in 0..trips {
            let job = self.job();
            let start = Instant::now();
            submit(queue.as_mut(), job)?;
            while queue.poll(&mut done) == 0 {
                std::hint::spin_loop();
            }
            times.push(start.elapsed());
            check(&done.pop().ok_or("a completion")?.outcome)?;
            spin_for(self.pause);
        }
        Ok(times)
    }

    async fn in_tokio(&self, lane: &Lane, trips: usize) -> Result<Vec<Duration>, Problem> {
        let signal = Arc::new(Signal::default());
        let mut queue = lane.open_queue(Waker::from(Arc::clone(&signal)))?;
        let (mut times, mut done) = (Vec::with_capacity(trips), Vec::new());
        for _ in 0..trips {
            let job = self.job();
            let start = Instant::now();
            submit(queue.as_mut(), job)?;
            while queue.poll(&mut done) == 0 {
                signal.0.notified().await;
            }
            times.push(start.elapsed());
            check(&done.pop().ok_or("a completion")?.outcome)?;
            match self.pause {
                pause if pause >= SLEEP_MIN => tokio::time::sleep(pause).await,
                pause => spin_for(pause),
            }
        }
        Ok(times)
    }
}

/// Pauses without giving up the core.
fn spin_for(pause: Duration) {
    let start = Instant::now();
    while start.elapsed() < pause {
        std::hint::spin_loop();
    }
}

fn submit(queue: &mut dyn Queue, job: Box<Job>) -> Result<(), Problem> {
    queue.try_submit(job).map_err(|refused| format!("refused: {:?}", refused.reason).into())
}

fn check(outcome: &Outcome) -> Result<(), Problem> {
    match outcome {
        Outcome::Done { .. } => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Starts the service's process. It ends when it is dropped.
fn service(path: &Path, core: usize) -> Result<Process, Problem> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--serve").arg(path).arg(core.to_string());
    let mut service = Process::start_with(&mut command, Stdio::inherit())?;
    service.await_ready(TIMEOUT, "lane", |_| path.exists().then_some(()))?;
    Ok(service)
}

fn serve(path: &Path, core: usize) -> Result<(), Problem> {
    pin(core)?;
    let listener = UnixListener::bind(path)?;
    let socket = Arc::new(listener.accept()?.0);
    let mut serving = loop {
        if let Some(serving) = LaneServer::greet(&socket, ByteCount::mib(16))? {
            break serving;
        }
    };
    let pool = Pool::heap(ByteCount::mib(1));
    // The result is written before it is requested, because the time of that write is not part of the hop.
    let mut result: Option<Buffer> = None;
    loop {
        let (mut taken, mut result_bytes) = (0, 0);
        while let Taken::Job(request) = serving.take()? {
            taken += 1;
            if request.class == Class::Batch {
                let mut input = pool.take(request.input_bytes);
                if !serving.copy_input(&request, &mut input) {
                    return Err("an input outside of its memory".into());
                }
            }
            result_bytes = request.output_bytes;
            let fits = |buffer: &Buffer| buffer.len() == result_bytes;
            let output = result.take().filter(fits).or_else(|| written(&serving, result_bytes));
            let (output, part) = (output.ok_or("no room")?, 0..result_bytes);
            let results = Results { first: None, output, part, follow_key_unknown: false };
            serving.finish(request.ticket, results, Nanos(0));
        }
        serving.publish();
        if taken > 0 && core != CLIENT_CORE {
            result = written(&serving, result_bytes);
        }
        if taken == 0 && !serving.wait(Duration::from_secs(10)) {
            return Ok(());
        }
    }
}

fn written(serving: &LaneServer, bytes: usize) -> Option<Buffer> {
    let mut result = serving.output(bytes)?;
    result.space().fill(9);
    result.set_len(bytes);
    Some(result)
}

const CLIENT_CORE: usize = 0;
