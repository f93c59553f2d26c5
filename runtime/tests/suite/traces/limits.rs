//! Tests the executor's limits: which traces are refused, wait, are late or are cancelled, and that an error contains
//! the input.

use std::sync::Arc;

use bytes::Bytes;
use device::{Codec, Dialect, Level, Pool, TenantId};
use parking_lot::Mutex;
use policy::{AsyncOffload, Choice, JobFacts, Policy, Reason, Snapshot};
use runtime::trace::jobs::Maker;
use runtime::trace::kernels::{self, Documents, Layout};
use runtime::trace::{Cause, CauseKind, Counted, Ran, TraceConfig, TraceInput, in_software};
use trace::Base;
use units::{ByteCount, ManualClock, Nanos, Op, SystemClock};

use crate::common::{Script, config, software};
use crate::traces::paths::catalog;
use crate::traces::rig::{
    Reply, Rig, counted, devices, failed, fallbacks, until, with, with_runtime,
};

const COPIES: &str = "trace t takes bytes { copy copy notify }";

fn input_of(rig: &Rig, tenant: u16) -> TraceInput {
    TraceInput { tenant: TenantId(tenant), ..rig.input("payload") }
}

#[test]
fn in_software_no_payload_grows_beyond_what_one_may_be() {
    with(
        catalog(COPIES),
        None,
        |_| {},
        |rig| async move {
            // A control character has one byte in a message, and six in JSON.
            let json = Bytes::from(format!("{{\"text\":\"{}\"}}", "\\u0001".repeat(500)));
            let layout = Layout::Bare(Base::Json);
            let document = kernels::serialize(&Documents, &json, layout).expect("it is JSON");
            let input = rig.input(rig.peer.seal(&kernels::call("echo", document)));
            let receive = async |payload_bytes_max| {
                let maker = Maker {
                    dialect: Dialect::new(Codec::Deflate),
                    level: Level::Fast,
                    pool: Pool::heap(ByteCount(0)),
                    payload_bytes_max,
                };
                let run = |job| rig.runtime.run_in_software(job, Reason::Configured);
                in_software::receive(run, &maker, &input).await
            };
            let (bytes, max) = (json.len(), 1_024);
            assert!(input.payload.len() < max && max < bytes);
            assert_eq!(receive(max).await, Err(Cause::TooLarge { bytes, max }));
            assert_eq!(receive(bytes).await, Ok(("echo".to_owned(), json.clone())));
        },
    );
}

#[test]
fn traces_are_bounded_per_tenant_and_in_all() {
    let script = Script::polled();
    let bound = |config: &mut TraceConfig| {
        config.limits.tenant_live_max = 2;
        config.limits.live_max = 3;
    };
    with(catalog(COPIES), Some(script.clone()), bound, |rig| async move {
        let traces = &rig.traces;
        let first = traces.run_trace("t", input_of(&rig, 1));
        let second = traces.run_trace("t", input_of(&rig, 1));
        let error = traces.run_trace("t", input_of(&rig, 1)).await.expect_err("a third");
        assert_eq!((&error.cause, error.op), (&Cause::TenantFull { max: 2 }, None));
        assert_eq!((&error.input.payload[..], error.input.tenant), (&b"payload"[..], TenantId(1)));
        let other = traces.run_trace("t", input_of(&rig, 2));
        let error = traces.run_trace("t", input_of(&rig, 2)).await.expect_err("a fourth");
        assert_eq!(error.cause, Cause::Full { max: 3 });
        assert_eq!(traces.live(), 3);
        let metrics = traces.metrics();
        let refused = |cause| metrics.read(Counted::Refused(cause));
        assert_eq!((refused(CauseKind::TenantFull), refused(CauseKind::Full)), (1, 1));
        assert_eq!(metrics.live(), [(TenantId(1), 2), (TenantId(2), 1)]);
        // Traces that end free their places.
        for _ in 0..6 {
            while script.state().accepted == 0 {
                tokio::task::yield_now().await;
            }
            script.state().accepted -= 1;
            script.do_one();
            tokio::task::yield_now().await;
        }
        for run in [first, second, other] {
            assert_eq!(run.await.expect("it ends").payload, "payload");
        }
        let again = traces.run_trace("t", input_of(&rig, 1));
        assert_eq!(traces.live(), 1);
        drop(again);
        rig.settled().await;
        assert_eq!(counted(traces, [Counted::GivenUp]), [1]);
    });
}

#[test]
fn payloads_are_bounded_at_every_step_before_memory_is_taken() {
    let text = "trace t takes bytes { encrypt tcp notify }
    trace unpack takes compressed(bytes) { decompress notify }
    trace pack takes bytes { compress notify }";
    let bound = |config: &mut TraceConfig| config.limits.payload_bytes_max = 1_000;
    with(catalog(text), None, bound, |rig| async move {
        let run = |name: &str, payload: Vec<u8>| rig.traces.run_trace(name, rig.input(payload));
        let error = run("t", vec![0; 1_001]).await.expect_err("too large");
        assert_eq!((&error.cause, error.op), (&Cause::TooLarge { bytes: 1_001, max: 1_000 }, None));
        assert_eq!(error.input.payload.len(), 1_001);
        let error = run("t", vec![0; 990]).await.expect_err("too large with nonce and tag");
        let expected = Cause::TooLarge { bytes: 990 + 12 + 16, max: 1_000 };
        assert_eq!((&error.cause, error.op), (&expected, Some(Op::Encrypt)));
        assert_eq!(error.input.payload.len(), 990);
        // A value that does not shrink is stored unchanged in its frame.
        let noise: Vec<u8> =
            (0..900_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let packed = run("pack", noise.clone()).await.expect("it fits").payload;
        assert_eq!(run("unpack", packed.to_vec()).await.expect("our own").payload, noise);
        // A stream that claims more than the allowed size is refused before a buffer is allocated for it.
        let bomb = rig.compressed(&[7; 100_000]).await;
        let error = run("unpack", bomb.to_vec()).await.expect_err("a bomb");
        assert!(error.to_string().contains("100000 bytes; at most 1000"), "{error}");
    });
}

#[test]
fn damaged_payloads_are_refused_with_the_step_and_the_input() {
    let text = "field f flag
    trace open takes encrypted(bytes) { decrypt notify }
    trace unpack takes compressed(bytes) { decompress notify }
    trace read takes protobuf { deserialize if f { copy } notify }
    trace called takes message(bytes) { rpc notify }
    trace turn takes json { trans json -> bson copy notify }";
    with(
        catalog(text),
        None,
        |_| {},
        |rig| async move {
            let sealed = rig.peer.seal(b"secret");
            let mut changed = sealed.to_vec();
            changed[20] ^= 1;
            let packed = rig.compressed(&[7; 5_000]).await;
            let mut broken = packed.to_vec();
            *broken.last_mut().expect("bytes") ^= 0xFF;
            let field = Bytes::from(
                runtime::trace::value::Value::from_json(br#"{"f":"x"}"#)
                    .expect("JSON")
                    .to_protobuf(),
            );
            for (name, payload, op) in [
                ("open", changed.into(), Some(Op::Decrypt)),
                ("open", sealed.slice(..27), Some(Op::Decrypt)),
                ("unpack", broken.into(), Some(Op::Decompress)),
                ("unpack", packed.slice(..10), Some(Op::Decompress)),
                ("unpack", Bytes::from_static(b"no frame"), Some(Op::Decompress)),
                ("read", Bytes::from_static(&[0xFF]), Some(Op::Deserialize)),
                ("read", field, None),
                ("called", Bytes::from_static(&[0x0A, 9]), Some(Op::Rpc)),
                ("turn", Bytes::from_static(b"{"), None),
            ] {
                let error = rig.traces.run_trace(name, rig.input(payload.clone())).await;
                let error = error.expect_err(name);
                assert_eq!((error.trace.as_str(), error.op), (name, op), "{error}");
                assert_eq!(error.input.payload, payload, "{error}");
                assert!(error.input.session.is_some());
            }
            assert_eq!((failed(&rig.traces), rig.traces.live()), (9, 0));
            let metrics = rig.traces.metrics();
            let failed = |cause| metrics.read(Counted::Failed(cause));
            // The device refuses a message without its tag, and bytes that are not a stream.
            assert_eq!((failed(CauseKind::Malformed), failed(CauseKind::Device)), (7, 2));
            assert_eq!(metrics.live(), []);
        },
    );
}

const ASKS: &str = "trace ask takes bytes { encrypt tcp await hear }
trace ask-briefly takes bytes { encrypt tcp await hear within 2ms }
trace hear takes encrypted(bytes) { tcp decrypt notify }";

#[test]
fn an_answer_is_waited_for_so_long() {
    let clock = ManualClock::default();
    let config = config(devices(None), Arc::new(clock.clone()));
    let bound = |config: &mut TraceConfig| {
        config.limits.answer_within = Nanos::millis(5);
        config.limits.tenant_live_max = 2;
    };
    with_runtime(config, catalog(ASKS), bound, |rig| async move {
        rig.peer.will(Reply::Hold);
        rig.peer.will(Reply::Hold);
        let long = rig.traces.run_trace("ask", rig.input("long"));
        let brief = rig.traces.run_trace("ask-briefly", rig.input("brief"));
        clock.advance(Nanos::millis(2));
        let error = brief.await.expect_err("nobody answered");
        assert_eq!((&error.cause, error.op), (&Cause::NoAnswer(Nanos::millis(2)), Some(Op::Tcp)));
        assert_eq!(error.to_string(), "trace ask-briefly, step tcp: no answer came within 2000 us");
        assert_eq!(error.input.payload, "brief");
        // An answer that arrives now belongs to no trace, and the tenant may start another trace.
        rig.peer.held().give(rig.peer.seal(b"late"), Vec::new());
        rig.peer.will_answer("at once");
        let ended = rig.traces.run_trace("ask", rig.input("x")).await.expect("it is answered");
        assert_eq!(ended.payload, "at once");
        clock.advance(Nanos::millis(2));
        assert_eq!(rig.traces.live(), 1);
        rig.peer.held().give(rig.peer.seal(b"in time"), Vec::new());
        assert_eq!(long.await.expect("it is answered").payload, "in time");
        let counts = counted(&rig.traces, [Counted::Unanswered, Counted::Reported]);
        assert_eq!((counts, failed(&rig.traces)), ([1, 2], 1));
    });
}

#[test]
fn the_caller_learns_at_once_that_a_peer_is_gone() {
    with(
        catalog(ASKS),
        None,
        |_| {},
        |rig| async move {
            for (reply, cause) in [
                (Reply::Hang, "the peer is gone and will not answer"),
                (Reply::Refuse, "port: the line is cut"),
            ] {
                rig.peer.will(reply);
                let error =
                    rig.traces.run_trace("ask", rig.input("x")).await.expect_err("no answer");
                assert_eq!(error.to_string(), format!("trace ask, step tcp: {cause}"));
                assert_eq!(error.input.payload, "x");
            }
            rig.peer.will(Reply::Hold);
            let waiting = rig.traces.run_trace("ask", rig.input("x"));
            drop(waiting);
            rig.settled().await;
            // The trace's answer belongs to no trace any more.
            rig.peer.held().give("anything", Vec::new());
            tokio::task::yield_now().await;
            assert_eq!(counted(&rig.traces, [Counted::GivenUp]), [1]);
        },
    );
}

/// A policy that records how much time each job had left, and advances the clock for each job.
struct Watches {
    clock: ManualClock,
    left: Mutex<Vec<(Op, Option<Nanos>)>>,
}

impl Policy for Watches {
    fn name(&self) -> &'static str {
        "watches"
    }

    fn place(&self, job: &JobFacts, snapshot: &Snapshot<'_>, draw: u64) -> Choice {
        self.left.lock().push((job.op, job.time_left));
        self.clock.advance(Nanos::micros(3));
        AsyncOffload { work_bytes_min: 0 }.place(job, snapshot, draw)
    }
}

#[test]
fn steps_pass_the_slack_of_their_deadlines_on() {
    let text = "trace t takes bytes { copy checksum due 8us copy due 9us tail u }
    trace u takes bytes { checksum copy due 20us notify }";
    let clock = ManualClock::default();
    let watches = Arc::new(Watches { clock: clock.clone(), left: Mutex::default() });
    let mut config = config(devices(None), Arc::new(clock));
    config.policy = Arc::clone(&watches) as Arc<dyn Policy>;
    with_runtime(
        config,
        catalog(text),
        |_| {},
        |rig| async move {
            rig.traces.run_trace("t", rig.input("x")).await.expect("deadlines are soft");
            let us = |left| Some(Nanos::micros(left));
            let expected = [
                (Op::Copy, us(8)),
                (Op::Checksum, us(5)),
                (Op::Copy, us(3)),
                (Op::Checksum, us(11)),
                (Op::Copy, us(8)),
            ];
            assert_eq!(*watches.left.lock(), expected);
            assert_eq!(counted(&rig.traces, [Counted::Late]), [0]);
            // Another deadline for the whole trace, which two steps miss.
            let mut input = rig.input("x");
            input.deadline = Some(Nanos::micros(15 + 9));
            rig.traces.run_trace("t", input).await.expect("deadlines are soft");
            assert_eq!(watches.left.lock()[8], (Op::Checksum, us(0)));
            assert_eq!(counted(&rig.traces, [Counted::Late]), [2]);
        },
    );
}

#[test]
fn later_steps_wait_for_a_full_device() {
    let script = Script::new(|capabilities| capabilities.queue_depth = 1);
    let bound = |config: &mut TraceConfig| config.limits.overflow_max = 1;
    let mut config = config(devices(Some(script.clone())), Arc::new(SystemClock::new()));
    config.job_timeout = Nanos::secs(60);
    with_runtime(config, catalog(COPIES), bound, |rig| async move {
        // The first trace has the device. The first steps of the others find it full and go to software, as the policy
        // decides. The second step of the second trace waits in the overflow area. The third trace finds the area full
        // as well.
        let first = rig.traces.run_trace("t", rig.input("first"));
        let second = rig.traces.run_trace("t", rig.input("second"));
        let third = rig.traces.run_trace("t", rig.input("third"));
        let ended = third.await.expect("software does it");
        assert_eq!((&ended.payload[..], ended.fallbacks), (&b"third"[..], 2));
        let counts = counted(&rig.traces, [Counted::Overflowed, Counted::OverflowFull]);
        assert_eq!((counts, fallbacks(&rig.traces)), ([1, 1], 3));
        let metrics = rig.traces.metrics();
        let ran = |place| metrics.read(Counted::Step(Op::Copy, place));
        assert_eq!((ran(Ran::Software), ran(Ran::Device)), (3, 0));
        assert_eq!(metrics.read(Counted::Fallback(Reason::QueueFull)), 3);
        // The waiting job enters the device as soon as there is space. The second step of the first trace then waits
        // for it.
        script.do_one();
        while script.state().accepted < 2 {
            tokio::task::yield_now().await;
        }
        script.do_one();
        while script.state().accepted < 3 {
            tokio::task::yield_now().await;
        }
        script.do_one();
        for (run, expected) in [(first, ("first", 0)), (second, ("second", 1))] {
            let ended = run.await.expect("the device does it");
            assert_eq!((&ended.payload[..], ended.fallbacks), (expected.0.as_bytes(), expected.1));
        }
        assert_eq!(rig.traces.live(), 0);
    });
}

#[test]
fn a_wait_for_one_device_does_not_block_another() {
    let small = Script::new(|can| (can.queue_depth, can.work_bytes_max) = (1, ByteCount(1_000)));
    let large = Script::new(|can| can.queue_depth = 1);
    let mut config =
        config(vec![software(), small.clone(), large.clone()], Arc::new(SystemClock::new()));
    config.job_timeout = Nanos::secs(60);
    let text = format!("{COPIES} trace once takes bytes {{ copy notify }}");
    with_runtime(
        config,
        catalog(&text),
        |_| {},
        |rig| async move {
            let run = |name: &str, bytes| rig.traces.run_trace(name, rig.input(vec![7; bytes]));
            let _full = (run("once", 100), run("once", 5_000));
            // Both devices are full. After the first step the large payload waits, and the small payload waits behind
            // it.
            let _waiting = (run("t", 5_000), run("t", 100));
            assert_eq!(counted(&rig.traces, [Counted::Overflowed]), [2]);
            small.do_one();
            until("the small one has gone in", || small.state().accepted == 2).await;
            assert_eq!((small.state().accepted, large.state().accepted), (2, 1));
        },
    );
}

#[test]
fn a_trace_that_is_given_up_leaves_nothing() {
    let script = Script::new(|capabilities| capabilities.queue_depth = 1);
    with(
        catalog(COPIES),
        Some(script.clone()),
        |_| {},
        |rig| async move {
            let in_flight = rig.traces.run_trace("t", rig.input("inside"));
            let waiting = rig.traces.run_trace("t", rig.input("waiting"));
            assert_eq!(counted(&rig.traces, [Counted::Overflowed]), [1]);
            drop((in_flight, waiting));
            rig.settled().await;
            assert_eq!(counted(&rig.traces, [Counted::GivenUp]), [2]);
            assert_eq!(rig.runtime.metrics().detached(), 1);
            // The device returns the detached job, and has space for the next job.
            script.do_one();
            let again = rig.traces.run_trace("t", rig.input("again"));
            while script.state().accepted < 2 {
                tokio::task::yield_now().await;
            }
            script.do_one();
            assert_eq!(again.await.expect("it ends").payload, "again");
            assert_eq!(rig.traces.live(), 0);
        },
    );
}
