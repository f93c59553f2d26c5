//! Tests paths of traces beyond the templates: forks that join, tails, transforms and checksums. Also tests long work
//! that does not block the thread, traces that are registered while others run, and turns before a sleep. Runs on tokio
//! and on our loop.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use device::{FaultPlan, Waiting};
use runtime::trace::kernels::{Documents, transform};
use runtime::trace::{
    Cause, Counted, Ended, LoadBalance, Notify, Origin, PortError, TraceConfig, TraceInput, Traces,
};
use runtime::{CoreConfig, CoreLoop};
use trace::{Base, Catalog, read};
use units::SystemClock;

use crate::common::{Script, config, faulty};
use crate::traces::rig::{Reply, counted, devices, failed, fallbacks, steps, with};

pub(crate) fn catalog(text: &str) -> Catalog {
    read(&[("test", text)]).unwrap_or_else(|faults| panic!("{faults:?}"))
}

const JSON: &str = r#"{"a":1,"status":503}"#;

#[test]
fn arms_meet_and_the_first_ones_payload_goes_on() {
    let text = "trace t takes json {
        fork { copy trans json -> bson } and { checksum copy copy } join
        trans bson -> json fork { checksum } and { fork { copy } and { copy } join } join notify
    }";
    for delay_polls in [0, 2] {
        let plan = FaultPlan { delay_polls, ..FaultPlan::default() };
        with(
            catalog(text),
            Some(faulty(plan)),
            |_| {},
            |rig| async move {
                let ended = rig.traces.run_trace("t", rig.input(JSON)).await.expect("it ends");
                assert_eq!((&ended.payload[..], ended.steps), (JSON.as_bytes(), 7));
                assert_eq!(ended.checksum, Some(u64::from(crc32c(JSON.as_bytes()))));
                assert_eq!(rig.traces.live(), 0);
            },
        );
    }
}

/// Computes Castagnoli's checksum, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum: u32, _| {
            (sum >> 1) ^ (0x82F6_3B78 & 0_u32.wrapping_sub(sum & 1))
        })
    })
}

#[test]
fn numbers_are_compared_across_tails() {
    let text = "field status number\nfield mine flag
    trace t takes protobuf { deserialize tail u }
    trace u takes json {
        if status >= 500 and mine { copy } else { checksum copy copy }
        notify
    }";
    with(
        catalog(text),
        None,
        |_| {},
        |rig| async move {
            let message = transform(&Documents, &JSON.into(), Base::Json, Base::Protobuf);
            let message = message.expect("JSON");
            for (mine, steps) in [(1, 2), (0, 4)] {
                let input = rig.input(message.clone()).field("mine", mine).field("status", 1);
                let ended = rig.traces.run_trace("t", input).await.expect("it ends");
                assert_eq!(ended.steps, steps, "the payload's own status counts, not the caller's");
            }
        },
    );
}

#[test]
fn work_on_the_calling_core_is_cut_into_turns() {
    let text = "trace t takes bytes { copy copy copy copy notify }";
    let other = Rc::new(Cell::new(0));
    with(
        catalog(text),
        None,
        |_| {},
        |rig| async move {
            let payload = Bytes::from(vec![7; 200 << 10]);
            let run = rig.traces.run_trace("t", rig.input(payload.clone()));
            assert_eq!(steps(&rig.traces), 2, "what is more than 256 KiB waits for a turn");
            let turns = Rc::clone(&other);
            tokio::task::spawn_local(async move {
                loop {
                    turns.set(turns.get() + 1);
                    tokio::task::yield_now().await;
                }
            });
            assert_eq!(run.await.expect("it ends").payload, payload);
            assert!(other.get() >= 1, "another task had its turn");
        },
    );
}

#[test]
fn an_arm_that_fails_late_is_counted() {
    let text = "trace t takes json {
        fork { notify }
        and { fork { copy } and { encrypt tcp } join notify }
    }";
    with(
        catalog(text),
        Some(faulty(FaultPlan { delay_polls: 2, ..FaultPlan::default() })),
        |_| {},
        |rig| async move {
            let mut input = rig.input(JSON);
            input.session = None;
            let ended = rig.traces.run_trace("t", input).await.expect("the first arm ends");
            assert_eq!(ended.payload, JSON);
            rig.settled().await;
            let counts = counted(&rig.traces, [Counted::Reported, Counted::FailedLater]);
            assert_eq!((counts, failed(&rig.traces)), ([1, 1], 0));
        },
    );
}

#[test]
fn an_arm_that_fails_first_ends_the_others() {
    let text = "trace t takes json {
        fork { copy copy notify } and { encrypt tcp notify } and { copy checksum notify }
    }";
    with(
        catalog(text),
        Some(faulty(FaultPlan { delay_polls: 5, ..FaultPlan::default() })),
        |_| {},
        |rig| async move {
            let mut input = rig.input(JSON).field("to-compress", 1);
            input.session = None;
            let error = rig.traces.run_trace("t", input).await.expect_err("no keys");
            assert_eq!(error.cause, Cause::NoSession);
            assert_eq!(
                error.to_string(),
                "trace t, step encrypt: the input has no session, and with it no keys"
            );
            assert_eq!((&error.input.payload[..], error.input.fields.len()), (JSON.as_bytes(), 1));
            rig.settled().await;
            let counts = counted(&rig.traces, [Counted::Reported, Counted::FailedLater]);
            assert_eq!((counts, failed(&rig.traces)), ([0, 0], 1));
        },
    );
}

#[test]
fn running_traces_keep_the_programs_they_began_with() {
    let first = "trace t takes bytes { encrypt tcp await r }
    trace r takes bytes { tcp copy notify }";
    let second = "trace r takes bytes { tcp notify }\ntrace s takes bytes { copy notify }";
    with(
        catalog(first),
        None,
        |_| {},
        |rig| async move {
            rig.peer.will(Reply::Hold);
            let run = rig.traces.run_trace("t", rig.input("x"));
            rig.traces.set_catalog(catalog(second));
            let error = rig.traces.run_trace("t", rig.input("x")).await.expect_err("it is gone");
            assert_eq!((&error.cause, &error.input.payload[..]), (&Cause::Unknown, &b"x"[..]));
            rig.traces.run_trace("s", rig.input("x")).await.expect("it is there");
            rig.peer.held().give("answer", Vec::new());
            let ended = run.await.expect("it ends");
            assert_eq!((&ended.payload[..], ended.steps), (&b"answer"[..], 4));
        },
    );
}

/// Ports that can refuse to pick a core, and count the notifications of ends.
#[derive(Clone, Default)]
struct Ports {
    refuses: Rc<Cell<bool>>,
    ended: Rc<Cell<u32>>,
}

impl LoadBalance for Ports {
    fn pick(&mut self, origin: &Origin<'_>, payload: &Bytes) -> Result<usize, PortError> {
        assert_eq!((origin.trace, origin.connection), ("t", 77));
        match self.refuses.get() {
            true => Err(PortError("no core has room; add one".to_owned())),
            false => Ok(payload.len()),
        }
    }
}

impl Notify for Ports {
    fn ended(&mut self, origin: &Origin<'_>, ended: &Ended) {
        assert_eq!((origin.trace, ended.core), ("t", Some(3)));
        self.ended.set(self.ended.get() + 1);
    }
}

#[test]
fn ports_are_told_whose_payload_it_is_and_may_refuse() {
    let ports = Ports::default();
    let given = ports.clone();
    let set = |config: &mut TraceConfig| {
        config.load_balance = Box::new(given.clone());
        config.notify = Box::new(given);
    };
    with(catalog("trace t takes bytes { load-balance notify }"), None, set, |rig| async move {
        let input = || TraceInput { connection: 77, ..TraceInput::new("abc") };
        let ended = rig.traces.run_trace("t", input()).await.expect("there is room");
        assert_eq!((ended.core, ports.ended.get()), (Some(3), 1));
        ports.refuses.set(true);
        let error = rig.traces.run_trace("t", input()).await.expect_err("there is none");
        assert_eq!(
            error.to_string(),
            "trace t, step load-balance: port: no core has room; add one"
        );
        assert_eq!((&error.input.payload[..], ports.ended.get()), (&b"abc"[..], 1));
    });
}

#[test]
fn the_driver_turns_again_after_a_turn_that_submitted() {
    let script = Script::new(|capabilities| capabilities.waiting = Waiting::Signalled);
    let text = "trace t takes bytes { copy copy notify }";
    with(
        catalog(text),
        Some(script.clone()),
        |_| {},
        |rig| async move {
            // The device never signals, so the task that submits must cause the turns.
            let start = || rig.traces.run_trace("t", rig.input("payload"));
            let polls = async || {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                std::mem::take(&mut script.state().polls)
            };
            let _first = (start(), start());
            assert_eq!(polls().await, 1, "for those that have just started");
            script.do_one();
            let _third = start();
            assert_eq!(
                polls().await,
                2,
                "one finds the job and submits the next step, one follows"
            );
            assert_eq!(script.state().accepted, 4);
            let _fourth = start();
            assert_eq!(polls().await, 1, "it found nothing");
        },
    );
}

#[test]
fn on_our_own_loop_many_traces_run_side_by_side() {
    let text = "field odd flag
    trace t takes json {
        compress decompress trans json -> string
        if odd { copy } else { checksum }
        notify
    }";
    let plan = FaultPlan { fail_every: 7, delay_polls: 1, ..FaultPlan::default() };
    let devices = devices(Some(faulty(plan)));
    let core_loop = CoreLoop::new(CoreConfig::new(config(devices, Arc::new(SystemClock::new()))));
    let core_loop = core_loop.expect("the devices open");
    let traces = Traces::on_core(core_loop.core(), TraceConfig::new(catalog(text)));
    let runs = (0..200_u32).map(|number| {
        let traces = traces.clone();
        core_loop.core().spawn(async move {
            let json = format!("{{\"number\":{number}}}");
            let input = TraceInput::new(json.clone()).field("odd", number % 2);
            let ended = traces.run_trace("t", input).await.expect("it ends");
            assert_eq!(ended.payload, json);
            assert_eq!(ended.checksum.is_some(), number % 2 == 0);
        })
    });
    let runs: Vec<_> = runs.collect();
    core_loop.block_on(async move {
        for run in runs {
            run.await;
        }
    });
    assert_eq!(counted(&traces, [Counted::Started, Counted::Reported]), [200, 200]);
    assert_eq!((steps(&traces), traces.live()), (600, 0));
    assert!(fallbacks(&traces) > 0);
}
