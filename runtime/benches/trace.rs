//! Compares a received request that runs as a trace with one whose jobs and kernels the caller awaits one by one. The
//! request is T1 of \[AccelFlow\]: decrypt, unwrap, deserialize, decompress 4 KiB. A trace runs in two ways: each
//! step is submitted when the one before it is done (`trace`), and the device runs the steps that it can in one chain
//! (`chain`). The caller has two ways too: structured data is its own work (`by_hand`), or a job for the device that
//! takes it (`awaited`, only with \[AccelFlow\]'s accelerators). The emulation computes results on the submitting
//! thread, so ways that give the device the same steps can be compared with each other. Runs on software, on a pool
//! of two workers, on an emulated QAT 4xxx (which decrypts and decompresses) and on the emulated accelerators of
//! \[AccelFlow\] (which run every step), with 1 to 64 requests in flight, on our loop and in tokio. Each case reports
//! the median latency, the requests per second, and the processor time per request of the submitting thread and of
//! all threads. A device that must be polled keeps its core busy while it waits, and this time is counted. The flags
//! are those of `harness::Bench`.
#![allow(missing_docs, unreachable_pub)]

mod common;

use std::cell::RefCell;
use std::future::Future;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use device::engines::BUILT_IN;
use device::{
    Codec, Device, Dialect, Function, FunctionKind, Input, Job, Level, Outcome, Pool, Software,
    Task, Virtual, VirtualOptions, Worker,
};
use harness::bench::{process_time, thread_time};
use harness::{Bench, quantile};
use policy::AsyncOffload;
use runtime::trace::in_software;
use runtime::trace::jobs::Maker;
use runtime::trace::kernels::{DATA, Documents, called, deserialize, read_fields, transform};
use runtime::trace::value::{Kind, Value};
use runtime::trace::{Session, TraceConfig, TraceInput, Traces};
use runtime::{CoreConfig, CoreLoop, Finished, RuntimeConfig, TokioRuntime};
use tokio::task::LocalSet;
use trace::{Base, Catalog, Format};
use units::{ByteCount, Op, Prng};
use workload::DeviceProfile;

fn main() {
    let mut bench = Bench::new("cargo bench -p runtime --bench trace", 7);
    let each = Duration::from_millis(if bench.quick { 30 } else { 400 });
    for device in DEVICES {
        for executor in ["core_loop", "tokio"] {
            for in_flight in [1, 4, 16, 64] {
                for arm in [Arm::Chain, Arm::Trace, Arm::ByHand, Arm::Awaited] {
                    if matches!(arm, Arm::Awaited) && device != "virtual_accelflow" {
                        continue;
                    }
                    let case = format!("{}.{device}.{executor}.{in_flight}", arm.name());
                    if bench.wants(&case) {
                        let run = |_| measure(device, executor, in_flight, arm, each);
                        let runs: Vec<_> = bench.runs().map(run).collect();
                        bench.rows(&case, ROWS, &runs);
                    }
                }
            }
        }
    }
    bench.finish();
}

/// The results of a run, each with its unit. Only an emulated device has jobs that are late.
const ROWS: [(&str, &str); 6] = [
    ("p50", "ns"),
    ("rate", "requests/s"),
    ("thread", "ns/request"),
    ("process", "ns/request"),
    // The thread's time without what the emulation spends beyond the cost of real submissions.
    ("host", "ns/request"),
    ("late", "%"),
];

#[derive(Clone, Copy)]
enum Arm {
    Chain,
    Trace,
    ByHand,
    Awaited,
}

impl Arm {
    fn name(self) -> &'static str {
        match self {
            Arm::Chain => "chain",
            Arm::Trace => "trace",
            Arm::ByHand => "by_hand",
            Arm::Awaited => "awaited",
        }
    }
}

fn measure(device: &str, executor: &str, in_flight: usize, arm: Arm, each: Duration) -> [f64; 6] {
    let software: Arc<dyn Device> = Arc::new(Software::default());
    let emulation = device.strip_prefix("virtual_").map(emulated);
    let mut devices = vec![software];
    devices.extend(emulation.clone().map(|device| device as Arc<dyn Device>));
    devices.extend((device == "workers").then(workers));
    let policy = Arc::new(AsyncOffload { work_bytes_min: 0 });
    let chains = matches!(arm, Arm::Chain);
    let config = RuntimeConfig { devices, policy, chains, ..config() };
    let run = Run { in_flight, arm, each, emulation: emulation.clone() };
    let [p50_ns, per_s, thread_ns, process_ns, host_ns] = match executor {
        "core_loop" => on_core_loop(config, run),
        _ => in_tokio(config, run),
    };
    let late_pct = emulation.map_or(f64::NAN, |device| 100.0 * device.counters().late_share());
    [p50_ns, per_s, thread_ns, process_ns, host_ns, late_pct]
}

/// What is done in a run.
struct Run {
    in_flight: usize,
    arm: Arm,
    each: Duration,
    emulation: Option<Arc<Virtual>>,
}

fn workers() -> Arc<dyn Device> {
    let count = |count| NonZeroUsize::new(count).expect("not zero");
    Arc::new(Worker::start(count(2), count(64), &BUILT_IN).expect("threads start"))
}

fn emulated(device: &str) -> Arc<Virtual> {
    let name = if device == "qat" { "qat-4xxx" } else { device };
    let profile = DeviceProfile::find(name).expect("it is compiled in");
    let device = Virtual::new(&profile, &BUILT_IN, VirtualOptions::default());
    Arc::new(device.expect("the profile is sound"))
}

fn on_core_loop(config: RuntimeConfig, run: Run) -> [f64; 5] {
    let core_loop = CoreLoop::new(CoreConfig::new(config)).expect("the devices open");
    let core = core_loop.core().clone();
    let traces = Traces::on_core(&core, trace_config());
    let spawner = core.clone();
    core_loop.block_on(async move {
        let requests = Requests::make(&traces).await;
        let Run { in_flight, arm, .. } = run;
        let tally = Tally::start(run);
        let mut tasks = Vec::new();
        for number in 0..in_flight {
            let (core, traces) = (core.clone(), traces.clone());
            let (requests, tally) = (Rc::clone(&requests), Rc::clone(&tally));
            tasks.push(spawner.spawn(async move {
                asks(&requests, &tally, number, arm, &traces, |job| core.run(job)).await;
            }));
        }
        for task in tasks {
            task.await;
        }
        tally.measured()
    })
}

fn in_tokio(config: RuntimeConfig, run: Run) -> [f64; 5] {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&executor.expect("tokio starts"), async {
        let runtime = TokioRuntime::start(config).expect("the devices open");
        let traces = Traces::in_tokio(&runtime, trace_config());
        let requests = Requests::make(&traces).await;
        let Run { in_flight, arm, .. } = run;
        let tally = Tally::start(run);
        let mut tasks = Vec::new();
        for number in 0..in_flight {
            let (runtime, traces) = (runtime.clone(), traces.clone());
            let (requests, tally) = (Rc::clone(&requests), Rc::clone(&tally));
            tasks.push(tokio::task::spawn_local(async move {
                asks(&requests, &tally, number, arm, &traces, |job| runtime.run(job)).await;
            }));
        }
        for task in tasks {
            task.await.expect("no task panics");
        }
        tally.measured()
    })
}

/// Sends one request after the other until the time is over.
async fn asks<F: Future<Output = Finished>>(
    requests: &Requests,
    tally: &Tally,
    first: usize,
    arm: Arm,
    traces: &Traces,
    run: impl Fn(Box<Job>) -> F,
) {
    let mut next = first;
    while Instant::now() < tally.until {
        let input = requests.inputs[next % requests.inputs.len()].clone();
        next += 1;
        let start = Instant::now();
        let payload = match arm {
            Arm::Chain | Arm::Trace => {
                let ended = traces.run_trace("T1", input).await;
                ended.expect("the request is sound").payload
            }
            Arm::ByHand => {
                let received = in_software::receive(&run, &requests.maker, &input).await;
                received.expect("the request is sound").1
            }
            Arm::Awaited => awaited(&run, &requests.maker, &input).await,
        };
        tally.latencies_ns.borrow_mut().push(start.elapsed().as_nanos() as u64);
        assert_eq!(payload.len(), JSON_BYTES);
    }
}

/// Receives a request like T1, and awaits a job for each step.
async fn awaited<F: Future<Output = Finished>>(
    run: impl Fn(Box<Job>) -> F,
    maker: &Maker,
    input: &TraceInput,
) -> Bytes {
    let step = |op, payload| {
        let run = &run;
        async move {
            in_software::step(run, maker, op, &payload, input).await.expect("the request is sound")
        }
    };
    let function = |kind, body: fn(&Bytes) -> Result<Bytes, &'static str>, payload: Bytes| {
        let task = Task::Function(Function::new(kind, body));
        run(Box::new(Job::new(task, Input::heap(payload), maker.pool.take(0))))
    };
    let result = |finished: Finished| {
        let Outcome::Done { output_bytes } = finished.outcome else {
            panic!("the request is sound")
        };
        finished.job.output.freeze(0..output_bytes)
    };
    let message = step(Op::Decrypt, input.payload.clone()).await;
    let unwrap = |message: &Bytes| Ok(called(message).map_err(|error| error.what)?.arguments);
    let arguments = result(function(FunctionKind::Rpc, unwrap, message).await);
    let read = |message: &Bytes| deserialize(&Documents, message).map_err(|error| error.what);
    let json = result(function(FunctionKind::Deserialize, read, arguments).await);
    let picked = |_: &Bytes| Ok(Bytes::copy_from_slice(&0_u64.to_le_bytes()));
    let is_compressed = ["compressed".to_owned()];
    let fields = read_fields(&Documents, &json, Format::new(Base::Json), &is_compressed);
    assert_eq!(fields.expect("the request is sound"), [Some(1)]);
    let frame = transform(&Documents, &json, Base::Json, Base::String).expect("it has data");
    let payload = step(Op::Decompress, frame).await;
    result(function(FunctionKind::LoadBalance, picked, payload.clone()).await);
    payload
}

struct Tally {
    start: (Instant, Duration, Duration),
    until: Instant,
    latencies_ns: RefCell<Vec<u64>>,
    emulation: Option<Arc<Virtual>>,
    excess_ns: u64,
}

impl Tally {
    fn start(Run { each, emulation, .. }: Run) -> Rc<Self> {
        let latencies_ns = RefCell::new(Vec::with_capacity(1 << 20));
        let excess_ns = excess_ns(emulation.as_ref());
        let start = (Instant::now(), thread_time(), process_time());
        Rc::new(Self { start, until: start.0 + each, latencies_ns, emulation, excess_ns })
    }

    fn measured(&self) -> [f64; 5] {
        let (wall, thread, process) = self.start;
        let excess_ns = (excess_ns(self.emulation.as_ref()) - self.excess_ns) as f64;
        let spent = [wall.elapsed(), thread_time() - thread, process_time() - process];
        let mut latencies_ns = self.latencies_ns.take();
        let count = latencies_ns.len() as f64;
        let p50_ns = quantile(&mut latencies_ns, 0.5) as f64;
        let [wall_s, thread_s, process_s] = spent.map(|time| time.as_secs_f64());
        let thread_ns = 1e9 * thread_s;
        let host_ns = thread_ns - excess_ns;
        let all = [thread_ns, 1e9 * process_s, host_ns].map(|ns| ns / count);
        [p50_ns, count / wall_s, all[0], all[1], all[2]]
    }
}

fn excess_ns(emulation: Option<&Arc<Virtual>>) -> u64 {
    emulation.map_or(0, |device| device.counters().host_excess_ns)
}

fn trace_config() -> TraceConfig {
    let texts = [
        ("accelflow", trace::ACCELFLOW[0].1),
        // These are the ops that the peer applies to its requests.
        (
            "peer",
            "trace pack takes string { compress notify } trace seal takes bytes { encrypt notify }",
        ),
    ];
    let catalog: Catalog = trace::read(&texts).expect("no faults");
    TraceConfig::new(catalog)
}

struct Requests {
    inputs: Vec<TraceInput>,
    maker: Maker,
}

impl Requests {
    /// Creates distinct requests with the traces of a peer. Each request is also received once, so that an
    /// emulated device knows its results.
    async fn make(traces: &Traces) -> Rc<Self> {
        let [ours, theirs] = [[1; 32], [2; 32]];
        let (session, peer) = (Session::new(&ours, &theirs), Session::new(&theirs, &ours));
        let mut random = Prng::new(1);
        let mut inputs = Vec::new();
        for _ in 0..REQUESTS {
            let packed = traces.run_trace("pack", TraceInput::new(json(&mut random))).await;
            let frame = packed.expect("it is compressed").payload;
            let document = [("compressed", Kind::Flag(true)), (DATA, Kind::Data(frame))];
            let arguments = Bytes::from(Value::map(document).to_protobuf());
            let call = runtime::trace::kernels::call("user.get", arguments);
            let sealed = traces.run_trace("seal", TraceInput::new(call).session(&peer)).await;
            let message = sealed.expect("it is encrypted").payload;
            let input = TraceInput::new(message).session(&session);
            let ended = traces.run_trace("T1", input.clone()).await;
            assert_eq!(ended.expect("the request is sound").payload.len(), JSON_BYTES);
            inputs.push(input);
        }
        let maker = Maker {
            dialect: Dialect::new(Codec::Deflate),
            level: Level::Fast,
            pool: Pool::heap(ByteCount::mib(4)),
            payload_bytes_max: 1 << 20,
        };
        Rc::new(Self { inputs, maker })
    }
}

/// Returns a JSON document of random words.
fn json(random: &mut Prng) -> String {
    let mut json = r#"{"text":""#.to_owned();
    while json.len() < JSON_BYTES {
        json.push_str(WORDS[(random.bits() % WORDS.len() as u64) as usize]);
    }
    json.truncate(JSON_BYTES - 2);
    json.push_str(r#""}"#);
    json
}

const WORDS: [&str; 8] =
    ["request ", "answer ", "user ", "time ", "service ", "of ", "error ", "the cache "];

const DEVICES: [&str; 4] = ["software", "workers", "virtual_qat", "virtual_accelflow"];
const JSON_BYTES: usize = 4_096;
const REQUESTS: usize = 32;
