//! Tests of profiles other than IAA's: kernels, software on a core, submissions in batches, times that depend on the
//! data, and page faults. The calibrated profiles must match the published rows that they were fitted to.

use super::*;
use crate::buffer::Buffer;
use crate::chain::{Chain, Follow, Next};
use crate::cipher::{AssociatedData, KEY_BYTES, Key, NONCE_BYTES, Nonce};
use crate::function::{Function, FunctionKind};
use crate::job::Polynomial;

crate::device_contract!(virtual_dsa, device("dsa"));
crate::device_contract!(virtual_accelflow, device("accelflow"));
crate::device_contract!(virtual_bluefield2, device("bluefield2"));
crate::device_contract!(virtual_epyc7542_isal, device("epyc7542-isal"));

fn device(name: &str) -> Arc<Virtual> {
    Arc::new(Virtual::new(&profile(name), &ENGINES, VirtualOptions::default()).expect("able"))
}

fn function(kind: FunctionKind) -> Task {
    Task::Function(Function::new(kind, |input| Ok(input.clone())))
}

fn profile(name: &str) -> DeviceProfile {
    DeviceProfile::find(name).expect("compiled in")
}

const DEFLATE: Dialect = Dialect::new(Codec::Deflate);
const CRC32C: Task = Task::Checksum { polynomial: Polynomial::Crc32c };

/// Makes a job that compresses `input`. Its output has space for a result that does not shrink, because the stored
/// writer shrinks nothing.
fn deflate(input: Bytes) -> Box<Job> {
    let capacity = input.len() + 1_024;
    job(Task::Compress { dialect: DEFLATE, level: Level::Fast }, input, capacity)
}

#[test]
fn a_profiles_device_does_exactly_its_ops() {
    for name in DeviceProfile::names() {
        let (published, device) = (profile(name), device(name));
        assert_eq!(device.name(), format!("virtual-{name}"));
        let accepts = |task: &Task| device.capabilities().accepts(task, 4_096);
        let compress = Task::Compress { dialect: DEFLATE, level: Level::Fast };
        let decompress = Task::Decompress { dialect: DEFLATE, original_bytes: 4_096 };
        let (key, nonce) = (Key::new(&[1; KEY_BYTES]), Nonce([1; NONCE_BYTES]));
        let none = AssociatedData::default;
        let crc64 = Task::Checksum { polynomial: Polynomial::Crc64 };
        for (task, has) in [
            (compress, published.compress.is_some() && name != "iaa"),
            (decompress, published.decompress.is_some()),
            (
                Task::Encrypt { key: key.clone(), nonce, associated: none() },
                published.encrypt.is_some(),
            ),
            (Task::Decrypt { key, nonce, associated: none() }, published.decrypt.is_some()),
            (CRC32C, published.crc32c.is_some()),
            (crc64, published.crc64.is_some()),
            (Task::Copy, published.copy.is_some()),
            (function(FunctionKind::Serialize), published.serialize.is_some()),
            (function(FunctionKind::Deserialize), published.deserialize.is_some()),
            (function(FunctionKind::Rpc), published.rpc.is_some()),
            (function(FunctionKind::LoadBalance), published.load_balance.is_some()),
        ] {
            // IAA requires its own window, and a small input that fits into the window satisfies that.
            let small =
                name == "iaa" && published.compress.is_some() && task.op() == units::Op::Compress;
            assert_eq!(accepts(&task), has || small, "{name} {task:?}");
        }
    }
}

#[test]
fn a_kernel_takes_the_time_of_its_curve() {
    let dsa = free_to_submit(profile("dsa"));
    let clock = ManualClock::default();
    let mut queue = open(&make(&dsa, clock.clone()));
    let input = Bytes::from(Payload::Text.bytes(4_096, 1));
    for (task, latency_ns) in [(Task::Copy, 1_737), (CRC32C, 1_302)] {
        queue.try_submit(job(task, input.clone(), 4_096)).expect("room");
        clock.advance(Nanos(latency_ns - 1));
        assert_eq!(drain(&mut *queue).len(), 0);
        clock.advance(Nanos(1));
        assert_eq!(drain(&mut *queue).pop().expect("due").service, Nanos(latency_ns));
        clock.advance(Nanos::micros(10));
    }
}

#[test]
fn software_on_a_core_spends_its_time_in_submission() {
    let clock = Ticking::default();
    let core = profile("epyc7542-isal");
    let device = make(&core, clock.clone());
    assert_eq!(device.capabilities().waiting, Waiting::Inline);
    let mut queue = open(&device);
    for (bytes, latency_ns) in [(64, 2_919), (8_192, 20_414)] {
        let before = clock.now();
        queue.try_submit(deflate(Payload::Random.bytes(bytes, 1).into())).expect("room");
        let spent = clock.now() - before;
        assert!((Nanos(latency_ns)..Nanos(latency_ns + 6)).contains(&spent), "{bytes}: {spent:?}");
        let completion = drain(&mut *queue).pop().expect("done");
        assert_eq!((completion.service, queue.pending()), (Nanos(latency_ns), 0));
    }
    for seed in 0..64 {
        queue.try_submit(deflate(Payload::Random.bytes(64, seed).into())).expect("room");
    }
    let refused = queue.try_submit(deflate(Bytes::from_static(b"x"))).expect_err("nobody polls");
    assert_eq!(refused.reason, RefusedReason::Full);
    assert_eq!(device.counters().late, 0);
}

#[test]
fn submissions_between_polls_go_out_together() {
    let spent = |name: &str, polled: bool| {
        let clock = Ticking::default();
        let mut queue = open(&make(&profile(name), clock.clone()));
        let input = Bytes::from_static(&[7; 64]);
        let start = clock.now();
        for _ in 0..8 {
            let job = match name {
                "dsa" => job(Task::Copy, input.clone(), 64),
                _ => deflate(input.clone()),
            };
            queue.try_submit(job).expect("room");
            if polled {
                drain(&mut *queue);
            }
        }
        clock.now() - start
    };
    // This is the cost of 8 submissions of 19 ns and of a few clock reads of 1 ns each.
    let (together, alone) = (spent("dsa", false), spent("dsa", true));
    assert!((8 * 19..8 * 19 + 60).contains(&together.0), "{together:?}");
    assert!((8 * 106..8 * 106 + 60).contains(&alone.0), "{alone:?}");
    let (together, alone) = (spent("bluefield2", false), spent("bluefield2", true));
    assert!(together.0 >= 8 * 360 && alone.0 >= 8 * 360, "{together:?} {alone:?}");
}

#[test]
fn time_depends_on_the_ratio_by_profile() {
    let clock = ManualClock::default();
    let service = |name: &str, class: Payload| {
        let published = free_to_submit(profile(name));
        let mut queue = open(&make(&published, clock.clone()));
        queue.try_submit(deflate(class.bytes(8_192, 1).into())).expect("room");
        clock.advance(Nanos::secs(1));
        drain(&mut *queue).pop().expect("due").service
    };
    let qat = profile("qat-4xxx");
    let beyond_ns = compression(&qat).latency(8_192).0 - 7_327;
    let hard = service("qat-4xxx", Payload::Random).0 - 7_327;
    assert!(hard.abs_diff(beyond_ns * 7 / 2) <= 2, "3.5 times the rest: {hard} {beyond_ns}");
    assert!(service("qat-4xxx", Payload::Text) < Nanos(13_000));
    let same = service("bluefield2", Payload::Random);
    assert_eq!((same, service("bluefield2", Payload::Text)), (Nanos(9_948), Nanos(9_948)));
}

#[test]
fn page_faults_follow_the_seed() {
    let mut faulty = unpaced();
    faulty.fault_tail.as_mut().expect("published").jobs_per_million.value = 100_000;
    let run = |page_faults: Option<u64>| {
        let clock = ManualClock::default();
        let (device_clock, work_clock) = (Arc::new(clock.clone()), Arc::new(clock.clone()));
        let options =
            VirtualOptions { clock: device_clock, work_clock, page_faults, ..Default::default() };
        let device = Virtual::new(&faulty, &ENGINES, options).expect("able");
        let mut queue = open(&device);
        let services: Vec<_> = (0..1_000)
            .map(|_| {
                queue.try_submit(compress(4_096, 1)).expect("room");
                clock.advance(Nanos::millis(1));
                drain(&mut *queue).pop().expect("the longest is 556 us").service
            })
            .collect();
        (services, device.counters().faulted)
    };
    let lone = compression(&faulty).latency(4_096);
    assert_eq!(run(None), (vec![lone; 1_000], 0));
    let (first, faulted) = run(Some(7));
    assert_eq!((first.clone(), faulted), run(Some(7)));
    assert_ne!(first, run(Some(8)).0);
    let waited = |service: &&Nanos| **service > lone;
    assert_eq!(first.iter().filter(waited).count() as u64, faulted);
    assert!((70..130).contains(&faulted), "{faulted}");
    let waits = first.iter().filter(waited).map(|service| *service - lone);
    assert!(waits.clone().all(|wait| (Nanos::micros(1)..Nanos::micros(556)).contains(&wait)));
    assert!(waits.filter(|wait| *wait < Nanos::micros(10)).count() as u64 > faulted * 9 / 10);
}

#[test]
fn a_poll_looks_at_the_clock_once_at_most() {
    let clock = Ticking::default();
    let mut queue = open(&make(&profile("bluefield2"), clock.clone()));
    let looks = |queue: &mut dyn Queue| {
        let before = clock.now();
        assert!(drain(queue).is_empty());
        (clock.now() - before).0 - 1
    };
    assert_eq!(looks(&mut *queue), 0);
    queue.try_submit(deflate(Payload::Random.bytes(65_536, 1).into())).expect("room");
    assert_eq!(looks(&mut *queue), 1);
}

#[test]
fn working_time_is_read_only_for_tight_jobs() {
    let asked = |name: &str, task: &Task| {
        let (clock, work) = (ManualClock::default(), Ticking::default());
        let (device_clock, work_clock) = (Arc::new(clock.clone()), Arc::new(work.clone()));
        let options =
            VirtualOptions { clock: device_clock, work_clock, ..VirtualOptions::default() };
        let published = free_to_submit(profile(name));
        let mut queue = open(&Virtual::new(&published, &ENGINES, options).expect("able"));
        let input = Bytes::from(Payload::Random.bytes(1_024, 1));
        let mut submit = || {
            let before = work.now();
            queue.try_submit(job(task.clone(), input.clone(), 2_048)).expect("room");
            (work.now() - before).0 - 1
        };
        (submit(), submit())
    };
    let compress = Task::Compress { dialect: DEFLATE, level: Level::Fast };
    assert_eq!(asked("bluefield2", &compress), (1, 0), "made, then remembered");
    assert_eq!(asked("dsa", &Task::Copy), (1, 1), "as fast as the emulation");
}

/// Compares the profiles with \[OffloadSched\] table 4.2, where a request encrypts 8 KiB on the core and then
/// compresses them. The published throughput and median of a row do not agree: each is up to 4.3 % from their
/// middle. The tolerance is therefore 4.5 %.
#[test]
fn the_calibrated_profiles_meet_table_4_2() {
    let (core, device) = (profile("epyc7542-isal"), profile("bluefield2"));
    let encrypt = core.encrypt.as_ref().expect("calibrated").latency(8_192).0 as f64 / 1e3;
    let software = encrypt + compression(&core).latency(8_192).0 as f64 / 1e3;
    let sync = encrypt + compression(&device).latency(8_192).0 as f64 / 1e3;
    let switches = 0.1;
    let busy = encrypt + device.submit(8_192).0 as f64 / 1e3 + switches;
    for (request_us, thousands_per_s, median_us, service_share) in
        [(software, 28.1, 38.4, 1.0), (sync, 39.3, 27.6, 1.0), (busy, 60.2, 36.1, 2.0)]
    {
        let rate_off = 1e3 / request_us / thousands_per_s;
        let median_off = service_share * request_us / median_us;
        assert!((rate_off - 1.0).abs() < 0.045, "{thousands_per_s} K/s: {rate_off}");
        assert!((median_off - 1.0).abs() < 0.045, "{median_us} us: {median_off}");
    }
    assert!((27.6 / 1.045..38.4 * 1.045).contains(&sync));
}

/// Compares the profiles with \[OffloadSched\] chapter 2. The break-even is near 256 B for median data. From
/// 8 KiB on, off-chip takes at most 25 % longer than on-chip, without the time of the submitting core.
#[test]
fn the_calibrated_profiles_meet_chapter_2() {
    let [core, host, arm] = ["epyc7542-isal", "bluefield2", "bluefield2-arm"].map(profile);
    let software = |bytes, percent| compression(&core).latency_at(bytes, percent).0 as f64;
    let offload = |bytes| compression(&host).latency(bytes).0 as f64;
    // The expected value is the middle of four classes, between random bytes and text that hardly shrinks at this
    // size.
    let off = software(256, 100.0) / offload(256);
    assert!((0.95..1.05).contains(&off), "{off}");
    assert!(software(1_024, 37.0) > offload(1_024));
    let device = |published: &DeviceProfile, bytes| {
        (compression(published).latency(bytes).0 - published.submit(bytes).0) as f64
    };
    for bytes in [8_192, 16_384, 65_536, 1 << 20] {
        assert!(device(&host, bytes) <= 1.2501 * device(&arm, bytes), "{bytes}");
    }
    assert!(device(&host, 4_096) > 1.25 * device(&arm, 4_096));
    assert_eq!((host.submit(64), host.submit(65_536)), (Nanos(360), Nanos(2_800)));
    assert_eq!((arm.submit(64), arm.submit(1 << 20)), (Nanos(1_000), Nanos(11_000)));
    // Off-chip takes about 1.9 us longer at every size.
    for bytes in [64, 256, 1_024, 8_192, 65_536] {
        let added = device(&host, bytes) - device(&arm, bytes);
        assert!((1_800.0..1_920.0).contains(&added), "{bytes}: {added}");
    }
}

/// Submits one job of each task, and returns when each is due.
fn due(device: &Virtual, clock: &ManualClock, tasks: &[Task], bytes: usize) -> Vec<u64> {
    let mut queue = open(device);
    for task in tasks {
        let input = Bytes::from(vec![7; bytes]);
        queue.try_submit(job(task.clone(), input, bytes + 64)).expect("it has room");
    }
    let (mut done, mut due) = (Vec::new(), Vec::new());
    while queue.pending() > 0 {
        clock.advance(Nanos(1));
        let ready = queue.poll(&mut done);
        due.extend(std::iter::repeat_n(clock.now().0, ready));
    }
    due
}

#[test]
fn each_op_of_an_ensemble_has_its_own_engines() {
    let mut published = free_to_submit(profile("accelflow"));
    for op in [&mut published.rpc, &mut published.load_balance] {
        let engines = op.as_mut().and_then(|op| op.engines.as_mut());
        engines.expect("its own").value = 1;
    }
    let at = |op: &Option<OpProfile>| op.as_ref().expect("it has it").latency(1_000).0;
    let (rpc, balance) = (at(&published.rpc), at(&published.load_balance));
    let clock = ManualClock::default();
    let device = make(&published, clock.clone());
    let [rpcs, balances] = [FunctionKind::Rpc, FunctionKind::LoadBalance].map(function);
    let tasks = [rpcs.clone(), rpcs, balances];
    assert!(2 * rpc < balance, "{rpc} {balance}");
    assert_eq!(due(&device, &clock, &tasks, 1_000), [rpc, 2 * rpc, balance]);
}

#[test]
fn decryption_shares_the_engines_of_encryption() {
    let mut published = free_to_submit(profile("qat-4xxx"));
    for op in [&mut published.encrypt, &mut published.decrypt] {
        let op = op.as_mut().expect("it ciphers");
        op.batch.iter_mut().for_each(|point| point.ns_per_page.value = 0);
    }
    let encrypt = published.encrypt.as_mut().expect("it encrypts");
    encrypt.engines.as_mut().expect("its own").value = 1;
    let latency = encrypt.latency(1_000).0;
    let clock = ManualClock::default();
    let device = make(&published, clock.clone());
    let (key, nonce) = (Key::new(&[1; KEY_BYTES]), Nonce([1; NONCE_BYTES]));
    let associated = AssociatedData::NONE;
    let encrypt = Task::Encrypt { key: key.clone(), nonce, associated: associated.clone() };
    let decrypt = Task::Decrypt { key, nonce, associated };
    let due = due(&device, &clock, &[encrypt, decrypt], 1_000);
    assert_eq!(due[0], latency);
    assert!(due[1] > latency, "{due:?}");
}

#[test]
fn an_op_takes_no_more_than_its_own_queue_holds() {
    let mut published = free_to_submit(profile("accelflow"));
    let rpc = published.rpc.as_mut().expect("it has RPC");
    rpc.entries_total.as_mut().expect("its own").value = 2;
    let device = make(&published, ManualClock::default());
    let mut queue = open(&device);
    let mut takes = |kind| {
        let refused = queue.try_submit(job(function(kind), Bytes::from_static(b"x"), 64)).err();
        refused.map(|refused| refused.reason)
    };
    let taken = [FunctionKind::Rpc; 3].map(&mut takes);
    assert_eq!(taken, [None, None, Some(RefusedReason::Full)]);
    assert_eq!(takes(FunctionKind::Serialize), None);
}

/// Encrypts the result before it.
struct Encrypt(Task);

impl Follow for Encrypt {
    fn op(&self) -> units::Op {
        units::Op::Encrypt
    }

    fn work_bytes(&self) -> usize {
        1_000
    }

    fn prepare(&self, output: &mut Buffer, offset: usize) -> Option<Next> {
        let filled = output.len();
        Some(Next {
            task: self.0.clone(),
            input: (offset..filled).into(),
            output: Pool::heap(ByteCount(0)).take(filled + 16),
            output_offset: 0,
            dictionary: None,
        })
    }
}

/// Returns a job that compresses this many bytes and then encrypts the stream.
fn compress_and_encrypt(bytes: usize) -> Box<Job> {
    let (key, nonce) = (Key::new(&[1; KEY_BYTES]), Nonce([1; NONCE_BYTES]));
    let encrypt = Task::Encrypt { key, nonce, associated: AssociatedData::NONE };
    let mut job = deflate(Payload::Random.bytes(bytes, 1).into());
    job.chain = Some(Chain::new(&job, vec![Arc::new(Encrypt(encrypt))]));
    job
}

#[test]
fn a_chain_pays_the_trip_once_and_the_hand_over() {
    for name in ["qat-4xxx", "accelflow"] {
        let published = free_to_submit(profile(name));
        let chains = published.chains.clone().expect("it has chains");
        let clock = ManualClock::default();
        let device = make(&published, clock.clone());
        let mut queue = open(&device);
        queue.try_submit(compress_and_encrypt(4_000)).expect("it has room");
        let mut done = Vec::new();
        while queue.poll(&mut done) == 0 {
            clock.advance(Nanos(1));
        }
        let job = &done[0].job;
        let step = &job.chain.as_ref().expect("it keeps its chain").done()[0];
        let (stream_bytes, percent) = (step.result.len() as u64, step.result.len() as f64 / 40.0);
        let compress = published.compress().expect("it compresses").latency_at(4_000, percent);
        let encrypt = published.encrypt.as_ref().expect("it encrypts").latency(stream_bytes);
        let hand_over = chains.hand_over(stream_bytes);
        let trip = Nanos(chains.trip_ns.value);
        assert_eq!(clock.now(), compress + hand_over + encrypt.since(trip), "{name}");
        assert_eq!((step.service, done[0].service), (compress + hand_over, encrypt.since(trip)));
        assert_eq!(device.counters().handed_over, 1);
        assert_eq!(device.counters().jobs, 1);
    }
}

#[test]
fn a_chain_whose_next_engines_are_full_comes_back_on_the_way() {
    let mut published = free_to_submit(profile("accelflow"));
    let encrypt = published.encrypt.as_mut().expect("it encrypts");
    encrypt.entries_total.as_mut().expect("its own").value = 1;
    let clock = ManualClock::default();
    let device = make(&published, clock.clone());
    let mut queue = open(&device);
    for _ in 0..2 {
        queue.try_submit(compress_and_encrypt(4_000)).expect("it has room");
    }
    clock.advance(Nanos::secs(1));
    let mut done = Vec::new();
    queue.poll(&mut done);
    let ops: Vec<_> = done.iter().map(|completion| completion.job.task.op()).collect();
    assert!(ops.contains(&units::Op::Compress) && ops.contains(&units::Op::Encrypt), "{ops:?}");
    assert!(done.iter().all(|one| matches!(one.outcome, Outcome::Done { .. })));
    assert_eq!(device.counters().refused_full, 1);
}
