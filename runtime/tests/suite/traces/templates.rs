//! Runs every template of \[AccelFlow\] with real payloads: AES-256-GCM, protobuf and deflate. Runs on software, on
//! workers, on a device that is polled late, and on a device that fails, refuses and dies. The result is the same
//! everywhere.

use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use device::engines::BUILT_IN;
use device::{Device, FaultPlan, Loss, Worker};
use runtime::trace::kernels::{Documents, Layout, call, called, deserialize, serialize, transform};
use runtime::trace::value::{Kind, Value};
use runtime::trace::{Counted, Ended};
use trace::{Base, walk};
use units::{Nanos, Op, SystemClock};

use crate::common::faulty;
use crate::traces::rig::{Reply, Rig, counted, failed, fallbacks, until, with};

/// The counts of events that should not happen on a device that works.
#[derive(Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) fallbacks: u64,
    pub(crate) failed: u64,
}

const SMOOTH: Counts = Counts { fallbacks: 0, failed: 0 };

#[test]
fn on_software() {
    assert_eq!(with(trace::accelflow(), None, |_| {}, all), SMOOTH);
}

#[test]
fn on_workers() {
    let count = |count| NonZeroUsize::new(count).expect("not zero");
    let workers = Worker::start(count(2), count(8), &BUILT_IN).expect("threads start");
    assert_eq!(with(trace::accelflow(), Some(Arc::new(workers)), |_| {}, all), SMOOTH);
}

#[test]
fn on_a_device_that_is_polled() {
    assert_eq!(on_faulty(FaultPlan { delay_polls: 3, ..FaultPlan::default() }), SMOOTH);
}

#[test]
fn on_a_device_that_fails_and_refuses() {
    let plan = FaultPlan { fail_every: 3, refuse_every: 4, delay_polls: 1, ..FaultPlan::default() };
    let counts = on_faulty(plan);
    assert!(counts.fallbacks > 10 && counts.failed == 0, "{counts:?}");
}

/// Every kind of fault, each once in a hundred jobs, also in the middle of chains. No result is wrong, because the
/// templates check each of them.
#[test]
fn on_a_device_with_rare_faults_in_the_middle_of_chains() {
    let plans = [
        FaultPlan { fail_every: 100, ..FaultPlan::default() },
        FaultPlan { break_every: 100, ..FaultPlan::default() },
        FaultPlan { busy_every: 100, ..FaultPlan::default() },
        FaultPlan { refuse_every: 100, ..FaultPlan::default() },
        FaultPlan { lose_every: 100, ..FaultPlan::default() },
        FaultPlan { hang_every: 100, ..FaultPlan::default() },
        FaultPlan { fail_every: 97, break_every: 89, hang_every: 83, ..FaultPlan::default() },
    ];
    for plan in plans {
        let case = format!("{plan:?}");
        // A device that was lost, or hung, is not used for a while.
        let hangs = plan.hang_every > 0;
        let chains_min = if plan.lose_every + plan.hang_every > 0 { 1 } else { 200 };
        let devices = crate::traces::rig::devices(Some(faulty(plan)));
        let mut config = crate::common::config(devices, Arc::new(SystemClock::new()));
        // Without hangs, no job times out on a busy machine.
        config.job_timeout = if hangs { Nanos::millis(20) } else { Nanos::secs(60) };
        let run = async |rig: Rig| {
            let mut counts = SMOOTH;
            for _ in 0..8 {
                counts.fallbacks = round(&rig).await;
                counts.failed = failed(&rig.traces);
            }
            let chains = rig.runtime.metrics().chains();
            let on_device = chains.iter().filter(|count| count.device != "software");
            (counts, on_device.map(|count| count.chains).sum::<u64>())
        };
        let (counts, chains) =
            crate::traces::rig::with_runtime(config, trace::accelflow(), |_| {}, run);
        assert!(chains >= chains_min, "{case}: {chains} chains");
        assert_eq!(counts.failed, 0, "{case}");
    }
}

#[test]
fn on_a_device_that_dies_with_jobs_in_flight() {
    for (loss, job_timeout) in [(Loss::Reported, Nanos::secs(60)), (Loss::Hang, Nanos::millis(5))] {
        let plan = FaultPlan { lose_after: Some(7), loss, delay_polls: 1, ..FaultPlan::default() };
        let counts = on(faulty(plan), job_timeout);
        assert!(counts.fallbacks > 0 && counts.failed == 0, "{counts:?}");
    }
}

/// Runs the templates on a faulty device. The job timeout is so long that no job times out on a busy machine.
fn on_faulty(plan: FaultPlan) -> Counts {
    on(faulty(plan), Nanos::secs(60))
}

fn on(device: Arc<dyn Device>, job_timeout: Nanos) -> Counts {
    let devices = crate::traces::rig::devices(Some(device));
    let mut config = crate::common::config(devices, Arc::new(SystemClock::new()));
    config.job_timeout = job_timeout;
    crate::traces::rig::with_runtime(config, trace::accelflow(), |_| {}, all)
}

const JSON: &str =
    r#"{"user":7,"text":"words that repeat, words that repeat, words that repeat","x":0.5}"#;

pub(crate) async fn all(rig: Rig) -> Counts {
    let fallbacks = round(&rig).await;
    Counts { fallbacks, failed: failed(&rig.traces) }
}

/// Runs every template once, and returns the number of jobs so far that went to software after a fault.
async fn round(rig: &Rig) -> u64 {
    requests(rig).await;
    responses(rig).await;
    cache_reads(rig).await;
    database_reads(rig).await;
    writes(rig).await;
    rpcs(rig).await;
    http(rig).await;
    rig.settled().await;
    fallbacks(&rig.traces)
}

fn message(json: &str) -> Bytes {
    serialize(&Documents, &Bytes::copy_from_slice(json.as_bytes()), Layout::Bare(Base::Json))
        .expect("JSON")
}

/// Creates a document with these members, and with the frame as its data.
fn packed(frame: Bytes, members: &[&str]) -> Bytes {
    let Value { kind: Some(Kind::Map(mut map)) } = Value::map([("data", Kind::Data(frame))]) else {
        panic!("a map")
    };
    for member in members {
        let Some(Kind::Map(one)) = Value::map([(member, Kind::Flag(true))]).kind else {
            panic!("a map")
        };
        map.members.extend(one.members);
    }
    Value::new(Kind::Map(map)).to_protobuf().into()
}

fn json(message: &Bytes) -> Bytes {
    deserialize(&Documents, message).expect("our message")
}

/// Checks that the sent message was compressed, and that its content is `original`.
async fn check_compressed(rig: &Rig, message: &Bytes, original: &str) {
    let json = json(message);
    let flag = Value::from_json(&json).expect("JSON").get("compressed").cloned();
    assert_eq!(flag, Some(Value::new(Kind::Flag(true))));
    let frame = transform(&Documents, &json, Base::Json, Base::String).expect("JSON");
    assert!(frame.starts_with(&[0xFB, b'R', b'b', 1, 1]), "a frame of deflate");
    assert!(frame.len() < original.len());
    assert_eq!(rig.by_job(Op::Decompress, &frame).await, original);
}

/// Runs the trace to its end with these fields set.
async fn run(rig: &Rig, name: &str, payload: impl Into<Bytes>, fields: &[&str]) -> Ended {
    let mut input = rig.input(payload).function("user.get");
    for field in fields {
        input = input.field(*field, 1);
    }
    rig.traces.run_trace(name, input).await.unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the number of ops of these traces if the named fields are set.
fn steps(traces: &[&str], fields: &[&str]) -> u32 {
    let catalog = trace::accelflow();
    let ops = traces.iter().map(|name| {
        let trace = catalog.trace(name).expect("it is there");
        walk(trace, &mut |field| u32::from(fields.contains(&field))).ops.len() as u32
    });
    ops.sum()
}

async fn requests(rig: &Rig) {
    let sealed = rig.peer.seal(&call("user.get", message(JSON)));
    let ended = run(rig, "T1", sealed, &[]).await;
    assert_eq!((ended.payload, ended.core), (Bytes::from(JSON), Some(3)));
    assert_eq!((ended.function.as_str(), ended.steps), ("user.get", steps(&["T1"], &[])));

    let frame = rig.compressed(JSON.as_bytes()).await;
    let sealed = rig.peer.seal(&call("f", packed(frame, &["compressed"])));
    let ended = run(rig, "T1", sealed, &[]).await;
    assert_eq!((ended.payload, ended.steps), (Bytes::from(JSON), steps(&["T1"], &["compressed"])));
}

async fn responses(rig: &Rig) {
    for name in ["T2", "error"] {
        let ended = run(rig, name, JSON, &[]).await;
        assert_eq!(ended.steps, 4);
        let [(by, sent)] = &rig.peer.received()[..] else { panic!("one message") };
        let call = called(sent).expect("a call");
        assert_eq!((by.as_str(), call.function.as_str()), (name, "user.get"));
        assert_eq!(json(&call.arguments), JSON);
    }
    run(rig, "T3", JSON, &[]).await;
    let [(_, sent)] = &rig.peer.received()[..] else { panic!("one message") };
    check_compressed(rig, &called(sent).expect("a call").arguments, JSON).await;
}

async fn cache_reads(rig: &Rig) {
    let answer = r#"{"hit":true,"user":7}"#;
    rig.peer.will_answer(message(answer));
    let ended = run(rig, "T4", r#"{"get":"user:7"}"#, &[]).await;
    assert_eq!(
        (&ended.payload[..], ended.steps),
        (answer.as_bytes(), steps(&["T4", "T5"], &["hit"]))
    );
    let [(_, sent)] = &rig.peer.received()[..] else { panic!("one message") };
    assert_eq!(json(sent), r#"{"get":"user:7"}"#);

    let frame = rig.compressed(JSON.as_bytes()).await;
    rig.peer.will_answer(packed(frame, &["hit", "compressed"]));
    let ended = run(rig, "T4", "{}", &[]).await;
    assert_eq!(ended.payload, JSON);
    assert_eq!(ended.steps, steps(&["T4", "T5"], &["hit", "compressed"]));
    rig.peer.received();
}

async fn database_reads(rig: &Rig) {
    // The cache does not have the value, and the database has it. The caller gets its answer while the cache is
    // written.
    rig.peer.will_answer(message(r#"{"hit":false}"#));
    let found =
        r#"{"found":true,"cache-compressed":true,"text":"again and again and again and again"}"#;
    rig.peer.will_answer(message(found));
    rig.peer.will(Reply::Hold);
    let [before] = counted(&rig.traces, [Counted::Reported]);
    let ended = run(rig, "T4", "{}", &[]).await;
    assert_eq!(ended.payload, found);
    let sent = sent(rig, 3).await;
    assert_eq!(sent.iter().map(|(by, _)| by.as_str()).collect::<Vec<_>>(), ["T4", "T5", "T6"]);
    check_compressed(rig, &sent[2].1, found).await;
    assert_eq!(rig.traces.live(), 1);
    rig.peer.held().give(rig.peer.seal(&message(r#"{"exception":false}"#)), Vec::new());
    rig.settled().await;
    assert_eq!(counted(&rig.traces, [Counted::Reported]), [before + 1]);

    // Neither store has the value, so the client gets an error.
    rig.peer.will_answer(message(r#"{"hit":false}"#));
    rig.peer.will_answer(message(r#"{"found":false,"error":"no such user"}"#));
    run(rig, "T4", "{}", &[]).await;
    let sent = rig.peer.received();
    let (by, error) = sent.last().expect("three messages");
    let error = called(error).expect("a call");
    assert_eq!((by.as_str(), error.function.as_str()), ("error", "user.get"));
    assert_eq!(json(&error.arguments), r#"{"found":false,"error":"no such user"}"#);
}

/// Waits for this many messages and returns them.
async fn sent(rig: &Rig, count: usize) -> Vec<(String, Bytes)> {
    let mut sent = Vec::new();
    until("the messages are sent", || {
        sent.extend(rig.peer.received());
        sent.len() == count
    })
    .await;
    sent
}

async fn writes(rig: &Rig) {
    rig.peer.will_answer(message(r#"{"exception":false}"#));
    let ended = run(rig, "T8", JSON, &[]).await;
    assert_eq!(ended.steps, steps(&["T8", "T7"], &[]));
    assert_eq!(json(&rig.peer.received()[0].1), JSON);

    rig.peer.will_answer(message(r#"{"exception":true}"#));
    let ended = run(rig, "T8", JSON, &["to-compress"]).await;
    assert_eq!(ended.steps, steps(&["T8", "T7", "error"], &["to-compress", "exception"]));
    let sent = rig.peer.received();
    check_compressed(rig, &sent[0].1, JSON).await;
    assert_eq!(sent[1].0, "error");
}

async fn rpcs(rig: &Rig) {
    rig.peer.will_answer(call("user.get", message(r#"{"user":7}"#)));
    let ended = run(rig, "T9", JSON, &[]).await;
    assert_eq!(ended.payload, r#"{"user":7}"#);
    assert_eq!(ended.steps, steps(&["T9", "T10"], &[]));
    let call_sent = called(&rig.peer.received()[0].1).expect("a call");
    assert_eq!(
        (call_sent.function.as_str(), json(&call_sent.arguments)),
        ("user.get", JSON.into())
    );

    let frame = rig.compressed(JSON.as_bytes()).await;
    rig.peer.will_answer(call("user.get", packed(frame, &["compressed"])));
    let ended = run(rig, "T9", JSON, &["to-compress"]).await;
    assert_eq!(ended.payload, JSON);
    assert_eq!(ended.steps, steps(&["T9", "T10"], &["to-compress", "compressed"]));

    rig.peer.will_answer(call("user.get", message(r#"{"exception":true}"#)));
    let ended = run(rig, "T9", JSON, &[]).await;
    assert_eq!(ended.steps, steps(&["T9", "T10", "error"], &["exception"]));
    rig.peer.received();
}

async fn http(rig: &Rig) {
    let page = "<html>".repeat(100);
    let frame = rig.compressed(page.as_bytes()).await;
    rig.peer.will(Reply::Now(frame, vec![("compressed".to_owned(), 1)]));
    let ended = run(rig, "T11", page.clone(), &["to-compress"]).await;
    assert_eq!(ended.payload, page);
    assert_eq!(ended.steps, steps(&["T11", "T12"], &["to-compress", "compressed"]));
    let sent = &rig.peer.received()[0].1;
    assert_eq!(rig.by_job(Op::Decompress, sent).await, page);

    rig.peer.will(Reply::Now(Bytes::from_static(b"plain"), Vec::new()));
    let ended = run(rig, "T11", page, &[]).await;
    assert_eq!((&ended.payload[..], ended.steps), (&b"plain"[..], steps(&["T11", "T12"], &[])));
    rig.peer.received();
}
