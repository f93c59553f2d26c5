//! Tests jobs with chains in the runtime: where their ops run and how they are counted, and that a fault in the middle
//! costs no result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use device::contract::payload::Payload;
use device::{
    AssociatedData, Buffer, Capabilities, Chain, Codec, Device, DeviceError, Dialect, FaultPlan,
    Faulty, Follow, Input, Job, Key, Level, Next, Nonce, Outcome, Pool, Queue, Successions, Task,
    TenantId, Virtual, VirtualOptions,
};
use policy::{Placement, Reason};
use runtime::{ChainKind, Finished, Metrics, RuntimeConfig, TokioRuntime};
use tokio::task::LocalSet;
use units::{ByteCount, Nanos, Op, SystemClock};
use workload::DeviceProfile;

use crate::common::{config, software};

const DEFLATE: Dialect = Dialect::new(Codec::Deflate);

/// Encrypts the whole output before it, or decompresses the result before it.
struct Then {
    task: Task,
    pool: Pool,
}

impl Follow for Then {
    fn op(&self) -> Op {
        self.task.op()
    }

    fn work_bytes(&self) -> usize {
        2_000
    }

    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        output[..offset].fill(0xAB);
        let filled = output.len();
        let output_bytes = self.task.output_bytes(filled)?;
        let mut output = self.pool.take(output_bytes + MARK.len());
        output.extend(MARK);
        let output_offset = MARK.len();
        let task = self.task.clone();
        Some(Next { task, input: (0..filled).into(), output, output_offset, dictionary: None })
    }
}

/// What the caller writes in front of a sealed value.
const MARK: &[u8] = b"mark";

/// The bytes in front of a stream, as of a frame's header.
const HEADER_BYTES: usize = 5;

struct Keys {
    key: Key,
    pool: Pool,
}

impl Keys {
    fn new() -> Self {
        Self { key: Key::new(&[7; 32]), pool: Pool::heap(ByteCount::mib(1)) }
    }

    fn chained(&self, mut job: Job, then: Task) -> Box<Job> {
        let then = Then { task: then, pool: self.pool.clone() };
        job.chain = Some(Chain::new(&job, vec![Arc::new(then)]));
        Box::new(job)
    }

    fn seal(&self, original: &Bytes) -> Box<Job> {
        let task = Task::Compress { dialect: DEFLATE, level: Level::Fast };
        let output = self.pool.take(original.len() + 1_024);
        let mut job = Job::new(task, Input::heap(original.clone()), output);
        job.output_offset = HEADER_BYTES;
        let (key, associated) = (self.key.clone(), AssociatedData::NONE);
        self.chained(job, Task::Encrypt { key, nonce: Nonce([9; 12]), associated })
    }

    /// Checks that the sealed value is the original, compressed and encrypted.
    fn check(&self, finished: &Finished, original: &Bytes) {
        let Outcome::Done { output_bytes } = finished.outcome else {
            panic!("{:?}", finished.outcome)
        };
        let output = &finished.job.output[..];
        assert_eq!(output.len(), MARK.len() + output_bytes);
        assert_eq!(&output[..MARK.len()], MARK);
        let (key, associated) = (self.key.clone(), AssociatedData::NONE);
        let decrypt = Task::Decrypt { key, nonce: Nonce([9; 12]), associated };
        let frame = in_software(decrypt, &output[MARK.len()..]);
        assert_eq!(frame[..HEADER_BYTES], [0xAB; HEADER_BYTES]);
        let original_bytes = original.len();
        let decompress = Task::Decompress { dialect: DEFLATE, original_bytes };
        assert_eq!(in_software(decompress, &frame[HEADER_BYTES..]), original[..]);
    }
}

fn in_software(task: Task, input: &[u8]) -> Vec<u8> {
    let bytes = task.output_bytes(input.len()).expect("it is known");
    let output = Pool::heap(ByteCount(0)).take(bytes);
    let job = Job::new(task, Input::heap(Bytes::copy_from_slice(input)), output);
    let mut queue = software().open_queue(Waker::noop().clone()).expect("it opens");
    queue.try_submit(Box::new(job)).expect("it has room");
    let mut done = Vec::new();
    queue.poll(&mut done);
    let completion = done.pop().expect("it is inline");
    assert!(matches!(completion.outcome, Outcome::Done { .. }), "{:?}", completion.outcome);
    completion.job.output.to_vec()
}

fn emulated(name: &str) -> Arc<dyn Device> {
    let profile = DeviceProfile::find(name).expect("compiled in");
    let device = Virtual::new(&profile, drivers::ENGINES, VirtualOptions::default());
    Arc::new(device.expect("its engines are there"))
}

/// Runs the body on software and this device, to which every job is offered.
fn with<T>(
    device: Arc<dyn Device>,
    change: impl FnOnce(&mut RuntimeConfig),
    body: impl AsyncFnOnce(&TokioRuntime) -> T,
) -> T {
    let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&executor.expect("tokio starts"), async {
        let mut config = config(vec![software(), device], Arc::new(SystemClock::new()));
        config.job_timeout = Nanos::secs(60);
        change(&mut config);
        let runtime = TokioRuntime::start(config).expect("the devices open");
        body(&runtime).await
    })
}

/// Returns the number of jobs by op and device.
fn jobs(metrics: &Metrics) -> BTreeMap<(&'static str, String), u64> {
    let mut jobs = BTreeMap::new();
    for path in metrics.paths() {
        *jobs.entry((path.op.name(), path.device)).or_default() += path.jobs;
    }
    jobs
}

/// Returns the number of chains by device and reason.
fn chains(metrics: &Metrics) -> Vec<(ChainKind, String, Placement, Reason, u64)> {
    let chains = metrics.chains().into_iter();
    chains.map(|one| (one.kind, one.device, one.placement, one.reason, one.chains)).collect()
}

fn key(op: &'static str, device: &str) -> (&'static str, String) {
    (op, device.to_owned())
}

fn text(bytes: usize) -> Bytes {
    Payload::Text.bytes(bytes, bytes as u64).into()
}

#[test]
fn a_chain_runs_in_one_trip_and_each_op_is_counted() {
    for name in ["qat-4xxx", "accelflow"] {
        with(
            emulated(name),
            |_| {},
            async |runtime| {
                let (keys, original) = (Keys::new(), text(4_000));
                let (finished, first) = runtime.run_chain(keys.seal(&original)).await;
                keys.check(&finished, &original);
                assert_eq!((first, finished.path.device), (finished.path, 1));
                let (metrics, device) = (runtime.metrics(), format!("virtual-{name}"));
                let counted = jobs(&metrics);
                assert_eq!(counted.len(), 2, "{counted:?}");
                assert_eq!(counted[&key("compress", &device)], 1);
                assert_eq!(counted[&key("encrypt", &device)], 1);
                let whole = ChainKind::CompressEncrypt;
                assert_eq!(
                    chains(&metrics),
                    [(whole, device, Placement::Async, Reason::Policy, 1)]
                );
            },
        );
    }
}

#[test]
fn ops_go_apart_where_no_device_runs_both() {
    with(
        emulated("iaa"),
        |_| {},
        async |runtime| {
            let (keys, original) = (Keys::new(), text(4_000));
            let (finished, first) = runtime.run_chain(keys.seal(&original)).await;
            keys.check(&finished, &original);
            assert_eq!((first.device, finished.path.device), (1, 0));
            let metrics = runtime.metrics();
            let counted = jobs(&metrics);
            assert_eq!(counted[&key("compress", "virtual-iaa")], 1, "{counted:?}");
            assert_eq!(counted[&key("encrypt", "software")], 1, "{counted:?}");
            assert_eq!(metrics.chains(), []);
            assert_eq!(metrics.chains_apart()[0], (ChainKind::CompressEncrypt, 1));
        },
    );
}

#[test]
fn software_runs_a_chain_by_itself() {
    let policy = |config: &mut RuntimeConfig| config.policy = Arc::new(policy::AlwaysSoftware);
    with(emulated("accelflow"), policy, async |runtime| {
        let (keys, original) = (Keys::new(), text(9_000));
        let (finished, _) = runtime.run_chain(keys.seal(&original)).await;
        keys.check(&finished, &original);
        let metrics = runtime.metrics();
        let counted = chains(&metrics);
        assert_eq!(counted.len(), 1, "{counted:?}");
        assert_eq!((counted[0].1.as_str(), counted[0].4), ("software", 1));
    });
}

/// A device whose results are this process's own, like those of workers.
struct Own(Faulty);

impl Device for Own {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        self.0.open_queue(waker)
    }

    fn runs_own_code(&self) -> bool {
        true
    }

    fn successions(&self) -> Successions {
        self.0.successions()
    }
}

#[test]
fn software_continues_from_what_own_code_has_done() {
    let plan = FaultPlan { break_every: 1, ..FaultPlan::default() };
    let device = Arc::new(Own(Faulty::new(emulated("accelflow"), plan)));
    with(
        device,
        |_| {},
        async |runtime| {
            let (keys, original) = (Keys::new(), text(4_000));
            let (finished, _) = runtime.run_chain(keys.seal(&original)).await;
            keys.check(&finished, &original);
            assert_eq!(finished.path.reason, Reason::DeviceFault);
            let counted = jobs(&runtime.metrics());
            assert_eq!(counted[&key("compress", "faulty-virtual-accelflow")], 1, "{counted:?}");
            assert_eq!(counted[&key("encrypt", "software")], 1, "{counted:?}");
            assert_eq!(counted.len(), 2, "{counted:?}");
        },
    );
}

#[test]
fn everything_is_redone_after_a_foreign_device_failed_in_the_middle() {
    let plan = FaultPlan { break_every: 1, ..FaultPlan::default() };
    let device = Arc::new(Faulty::new(emulated("accelflow"), plan));
    with(
        device,
        |_| {},
        async |runtime| {
            let (keys, original) = (Keys::new(), text(4_000));
            let (finished, _) = runtime.run_chain(keys.seal(&original)).await;
            keys.check(&finished, &original);
            let metrics = runtime.metrics();
            let counted = jobs(&metrics);
            assert_eq!(counted[&key("compress", "software")], 1, "{counted:?}");
            assert_eq!(counted[&key("encrypt", "software")], 1, "{counted:?}");
            assert_eq!(counted.len(), 2, "{counted:?}");
            let whole = ChainKind::CompressEncrypt;
            let path = (Placement::Software, Reason::DeviceFault);
            assert_eq!(chains(&metrics), [(whole, "software".to_owned(), path.0, path.1, 1)]);
        },
    );
}

#[test]
fn no_fault_costs_a_result() {
    let every = 7;
    let plans = [
        FaultPlan { break_every: every, ..FaultPlan::default() },
        FaultPlan { fail_every: every, ..FaultPlan::default() },
        FaultPlan { busy_every: every, ..FaultPlan::default() },
        FaultPlan { refuse_every: every, ..FaultPlan::default() },
        FaultPlan { corrupt_every: every, ..FaultPlan::default() },
        FaultPlan { shorten_every: every, ..FaultPlan::default() },
        FaultPlan { lose_every: every, ..FaultPlan::default() },
        FaultPlan { hang_every: 20, ..FaultPlan::default() },
        FaultPlan { delay_polls: 3, ..FaultPlan::default() },
        FaultPlan { late_every: every, late_by: Duration::from_millis(20), ..FaultPlan::default() },
    ];
    for plan in plans {
        for inner in [emulated("accelflow"), software()] {
            let device = Arc::new(Faulty::new(inner, plan.clone()));
            let change = |config: &mut RuntimeConfig| {
                config.verify_every = std::num::NonZeroU32::new(1);
                config.job_timeout = Nanos::millis(10);
                config.reprobe_after = Nanos::millis(1);
            };
            with(device, change, async |runtime| {
                let keys = Keys::new();
                for round in 0..60 {
                    let original = text(100 + 151 * round);
                    let mut job = keys.seal(&original);
                    job.tenant = TenantId(round as u16 % 3);
                    let (finished, _) = runtime.run_chain(job).await;
                    keys.check(&finished, &original);
                }
            });
        }
    }
}

#[test]
fn a_chain_whose_first_op_does_not_fit_ends_there() {
    with(
        emulated("accelflow"),
        |_| {},
        async |runtime| {
            let (keys, original) = (Keys::new(), Bytes::from(Payload::Random.bytes(4_000, 1)));
            let mut job = keys.seal(&original);
            job.output = keys.pool.take(2_000);
            let (finished, _) = runtime.run_chain(job).await;
            assert_eq!(finished.outcome, Outcome::DoesNotFit);
            assert_eq!(finished.job.task.op(), Op::Compress);
            assert_eq!(runtime.metrics().chains(), []);
        },
    );
}

#[test]
fn a_policy_with_costs_places_chains_too() {
    let policy = |config: &mut RuntimeConfig| {
        config.policy = Arc::new(policy::LeastHostCycles {
            latency_max: Nanos::secs(1),
            inline_bytes_max: 1 << 20,
        });
    };
    with(emulated("accelflow"), policy, async |runtime| {
        let (keys, original) = (Keys::new(), text(16_000));
        for _ in 0..200 {
            let (finished, _) = runtime.run_chain(keys.seal(&original)).await;
            keys.check(&finished, &original);
        }
        let metrics = runtime.metrics();
        let one_trip: u64 = metrics.chains().iter().map(|one| one.chains).sum();
        let apart = metrics.chains_apart()[0].1;
        assert_eq!(one_trip + apart, 200);
        assert!(one_trip > 0, "{one_trip} in one trip, {apart} apart");
    });
}
