//! The hop over a lane and nothing else: round trips of jobs that the service answers without any work, by size, with
//! the value on the way in or on the way out, to a second process. Client and service poll on cores of their own, as a
//! loop of the client's or as the lane decides by itself under tokio; share one core; or both sleep before every job.
//! `--quick` runs each case shortly, a word runs the cases whose name has it. Times are medians and 99th percentiles;
//! the copies that a lane makes (one on each side for each value) are in them.

use std::error::Error;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use device::{Codec, Device, Dialect, Input, Job, Level, Outcome, Pool, Queue, Task, Waiting};
use drivers::lane::{Serving, Taken};
use drivers::{Lane, LaneOptions};
use rustix::thread::{CpuSet, sched_setaffinity};
use units::{ByteCount, Nanos};

type Problem = Box<dyn Error>;

fn main() -> Result<(), Problem> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, path, core] = &args[..]
        && flag == "--serve"
    {
        return serve(Path::new(path), core.parse()?);
    }
    let quick = args.iter().any(|arg| arg == "--quick");
    let wanted: Vec<_> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let trips = if quick { 200 } else { 20_000 };
    println!("case                     value   bytes     p50 us    p99 us    bells/job");
    for case in CASES {
        if wanted.iter().any(|word| !case.name.contains(*word)) {
            continue;
        }
        for (direction, sizes) in [("in", SIZES), ("out", SIZES)] {
            for bytes in sizes {
                let trips = if case.pause.is_zero() { trips } else { trips / 20 };
                let measured = measure(case, direction == "in", bytes, trips)?;
                let Measured { p50, p99, bells } = measured;
                let (p50, p99) = (p50.as_nanos() as f64 / 1e3, p99.as_nanos() as f64 / 1e3);
                let name = case.name;
                println!(
                    "{name:<24} {direction:<5} {bytes:>7} {p50:>10.2} {p99:>9.2} {bells:>12.2}"
                );
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Where the service runs; the client runs on 0.
    service_core: usize,
    tokio: bool,
    /// Between jobs.
    pause: Duration,
}

const CASES: [Case; 4] = [
    Case { name: "own-cores.polled", service_core: 1, tokio: false, pause: Duration::ZERO },
    Case { name: "own-cores.adaptive", service_core: 1, tokio: true, pause: Duration::ZERO },
    Case { name: "one-core", service_core: 0, tokio: true, pause: Duration::ZERO },
    Case {
        name: "own-cores.asleep",
        service_core: 1,
        tokio: true,
        pause: Duration::from_micros(400),
    },
];

const SIZES: [usize; 4] = [64, 4 << 10, 16 << 10, 64 << 10];

struct Measured {
    p50: Duration,
    p99: Duration,
    /// Times that the client woke the service.
    bells: f64,
}

fn measure(case: Case, is_in: bool, bytes: usize, trips: usize) -> Result<Measured, Problem> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("lane");
    let service = Service::start(&path, case.service_core)?;
    pin(0)?;
    let waiting =
        if case.tokio { Waiting::Signalled } else { Waiting::Polled { expected: Nanos(0) } };
    let lane = Lane::new(&path, &LaneOptions { waiting, ..LaneOptions::default() });
    let lane = Arc::new(lane);
    let (input, output_bytes) = if is_in { (bytes, 64) } else { (64, bytes) };
    let client = Client {
        input: Bytes::from(vec![7; input]),
        output_bytes,
        pool: Pool::heap(ByteCount::mib(1)),
        pause: case.pause,
    };
    let mut times = if case.tokio {
        let options = tokio::runtime::LocalOptions::default();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let executor = builder.enable_all().build_local(options)?;
        // In a task, as a server's sessions are: what `block_on` itself waits for is looked at only now and then.
        let lane = Arc::clone(&lane);
        let run = async move { client.in_tokio(&lane, trips).await.map_err(|e| e.to_string()) };
        executor.block_on(async { tokio::task::spawn_local(run).await })??
    } else {
        client.polling(&lane, trips)?
    };
    drop(service);
    let bells = lane.counters().iter().find(|own| own.0 == "bells").map_or(0, |own| own.1);
    times.drain(..trips / 10);
    times.sort_unstable();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    Ok(Measured { p50: at(0.5), p99: at(0.99), bells: bells as f64 / trips as f64 })
}

struct Client {
    input: Bytes,
    output_bytes: usize,
    pool: Pool,
    pause: Duration,
}

impl Client {
    fn job(&self) -> Box<Job> {
        let dialect = Dialect::of(Codec::Lz4);
        // As the service answers all the room that there is, this is a copy of so many bytes.
        let task = match self.output_bytes {
            64 => Task::Compress { dialect, level: Level::Fast },
            original_bytes => Task::Decompress { dialect, original_bytes },
        };
        let output = self.pool.take(self.output_bytes);
        Box::new(Job::new(task, Input::heap(self.input.clone()), output))
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
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
        Ok(times)
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

#[derive(Default)]
struct Signal(tokio::sync::Notify);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.notify_one();
    }
}

/// The service's process; it ends with its client.
struct Service(Child);

impl Service {
    fn start(path: &Path, core: usize) -> Result<Self, Problem> {
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.arg("--serve").arg(path).arg(core.to_string()).spawn()?;
        let service = Self(child);
        let start = Instant::now();
        while !path.exists() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("the service does not listen".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(service)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(path: &Path, core: usize) -> Result<(), Problem> {
    pin(core)?;
    let listener = UnixListener::bind(path)?;
    let socket = Arc::new(listener.accept()?.0);
    let mut serving = loop {
        if let Some(serving) = Serving::greet(&socket, ByteCount::mib(16))? {
            break serving;
        }
    };
    let pool = Pool::heap(ByteCount::mib(1));
    loop {
        let mut taken = 0;
        while let Taken::Job(request) = serving.take()? {
            taken += 1;
            let mut input = pool.take(request.input_bytes);
            if !serving.copy_input(&request, &mut input) {
                return Err("an input outside of its memory".into());
            }
            let mut output = serving.output(request.output_bytes).ok_or("no room")?;
            output.set_len(request.output_bytes.min(output.capacity()));
            serving.finish(request.ticket, output, request.output_bytes, Nanos(0));
        }
        serving.show();
        if taken == 0 && !serving.wait(Duration::from_secs(10)) {
            return Ok(());
        }
    }
}

fn pin(core: usize) -> Result<(), Problem> {
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
