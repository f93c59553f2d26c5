//! Tests which requests are kept, and that their stages are theirs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use telemetry::timeline::{self, Detail, Kind, Timeline};
use telemetry::{Chosen, Record, Recorder, Requests, Rules, Started, Why};
use units::{Nanos, Op, TraceContext};

fn recorder(sample_every: u64, slow: Nanos) -> (Arc<Requests>, Recorder) {
    let requests = Arc::new(Requests::new(Rules { sample_every, slow }, |_| {}));
    let devices = vec![Arc::from("software"), Arc::from("worker")];
    (Arc::clone(&requests), Recorder::new(requests, devices, Some(7)))
}

fn started(command: &'static str) -> Started<'static> {
    Started { at: Instant::now(), command, key: b"key" }
}

/// Ends the current request of the task, and returns it if it was kept.
fn end(requests: &Requests, recorder: &Recorder) -> Option<Arc<Record>> {
    let before = requests.counts();
    let timeline = timeline::suspend().expect("a request is recorded");
    recorder.end(*timeline, Instant::now(), || "client".to_owned());
    (requests.counts() != before).then(|| requests.latest().concat().into_iter().next()).flatten()
}

fn run<F: Future>(future: F) -> F::Output {
    let executor = tokio::runtime::Builder::new_current_thread().enable_time().build();
    executor.expect("an executor").block_on(future)
}

#[test]
fn one_request_in_so_many_is_sampled() {
    for every in [1, 10, 1_000] {
        let (_, recorder) = recorder(every, Nanos(0));
        let asked = 200_000;
        let sampled = (0..asked).filter(|_| recorder.choose().is_some()).count() as f64;
        let expected = f64::from(asked) / every as f64;
        assert!((sampled / expected - 1.0).abs() < 0.2, "{sampled} of {expected}");
    }
    let (_, recorder) = recorder(0, Nanos(0));
    assert!((0..100_000).all(|_| recorder.choose().is_none()));
}

#[test]
fn rules_change_while_the_process_runs() {
    let (requests, recorder) = recorder(0, Nanos(0));
    assert_eq!(recorder.choose(), None);
    requests.set_rules(Rules { sample_every: 1, slow: Nanos(1) });
    recorder.set_rules();
    assert_eq!(recorder.choose(), Some(Chosen::Sampled));
    requests.set_rules(Rules { sample_every: 0, slow: Nanos(1) });
    recorder.set_rules();
    assert_eq!(recorder.choose(), Some(Chosen::MaybeSlow));
    assert_eq!(requests.rules(), Rules { sample_every: 0, slow: Nanos(1) });
}

#[test]
fn stages_belong_to_the_request_that_is_current() {
    let (requests, recorder) = recorder(1, Nanos(0));
    run(timeline::scope(async {
        recorder.begin(&started("first"), Chosen::Sampled);
        let store = timeline::open(Kind::Store);
        assert!(store.context().is_some_and(|context| context.is_sampled));
        let first = timeline::suspend();
        recorder.begin(&started("second"), Chosen::Sampled);
        let job = timeline::open(Kind::Job(Op::Decompress));
        tokio::time::sleep(Duration::from_millis(2)).await;
        let service = Nanos::millis(1);
        job.close_with(|| Detail::Job { device: 1, placement: "async", reason: "policy", service });
        let second = end(&requests, &recorder).expect("it was sampled");
        assert_eq!(
            (second.command, second.why, &*second.key),
            ("second", Why::Sampled, &b"key"[..])
        );
        let [stage] = &*second.stages else { panic!("{second:?}") };
        assert_eq!((stage.kind, stage.by.as_deref()), (Kind::Job(Op::Decompress), Some("worker")));
        assert!(stage.took >= Nanos::millis(2), "{stage:?}");
        timeline::resume(first.expect("it rests"));
        store.close_with(|| Detail::Server("a:1".into()));
        let first = end(&requests, &recorder).expect("it was sampled");
        let [stage] = &*first.stages else { panic!("{first:?}") };
        assert_eq!((first.command, stage.by.as_deref()), ("first", Some("a:1")));
        assert_ne!(first.trace_id, second.trace_id);
    }));
}

#[test]
fn tasks_do_not_see_the_requests_of_others() {
    let (requests, recorder) = recorder(1, Nanos(0));
    let one = |command, pause| {
        let (requests, recorder) = (&requests, &recorder);
        timeline::scope(async move {
            recorder.begin(&started(command), Chosen::Sampled);
            for _ in 0..3 {
                let stage = timeline::open(Kind::Memory);
                tokio::time::sleep(pause).await;
                stage.close();
            }
            end(requests, recorder).expect("it was sampled")
        })
    };
    let (a, b) = run(async {
        tokio::join!(one("a", Duration::from_millis(3)), one("b", Duration::from_millis(2)))
    });
    assert_eq!((a.command, a.stages.len(), b.command, b.stages.len()), ("a", 3, "b", 3));
}

#[test]
fn only_slow_requests_are_kept_without_samples() {
    let (requests, recorder) = recorder(0, Nanos::millis(5));
    run(timeline::scope(async {
        for (pause_ms, is_kept) in [(0, false), (6, true)] {
            recorder.begin(&started("get"), Chosen::MaybeSlow);
            assert!(timeline::open(Kind::Store).context().is_none(), "nothing is sent along");
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            let kept = end(&requests, &recorder);
            assert_eq!(kept.map(|kept| kept.why), is_kept.then_some(Why::Slow));
        }
    }));
    assert_eq!(requests.counts().slow, 1);
}

#[test]
fn without_a_request_nothing_is_recorded() {
    let stage = timeline::open(Kind::Store);
    assert!(!stage.is_recorded() && stage.context().is_none());
    stage.close();
    assert!(timeline::suspend().is_none());
}

#[test]
fn a_caller_that_records_gets_a_span_below_its_own() {
    let (requests, recorder) = recorder(0, Nanos(0));
    let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let caller: TraceContext = text.parse().expect("a context");
    let unsampled = TraceContext { is_sampled: false, ..caller };
    assert!(recorder.begin_call(&started("call"), Some(unsampled)).is_none());
    assert!(recorder.begin_call(&started("call"), None).is_none());
    let timeline = recorder.begin_call(&started("call"), Some(caller)).expect("recorded");
    recorder.end(*timeline, Instant::now(), String::new);
    let [_, _, asked] = requests.latest();
    let record = asked.first().expect("it is kept");
    assert_eq!((record.why, record.trace_id), (Why::Asked, caller.trace_id));
    assert_eq!(record.parent_id, Some(caller.span_id));
    assert_ne!(record.span_id, caller.span_id);
}

#[test]
fn callers_cannot_have_everything_recorded() {
    let (_, recorder) = recorder(0, Nanos(0));
    let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().ok();
    let begin = Instant::now();
    let recorded_at = |at| {
        let started = Started { at, ..started("call") };
        (0..10_000).filter(|_| recorder.begin_call(&started, caller).is_some()).count()
    };
    assert_eq!(recorded_at(begin), 200);
    assert_eq!(recorded_at(begin + Duration::from_millis(999)), 0);
    assert_eq!(recorded_at(begin + Duration::from_secs(1)), 200);
}

#[test]
fn a_call_that_is_dropped_is_recorded() {
    let (requests, recorder) = recorder(1, Nanos(0));
    let timeline = recorder.begin_call(&started("call"), None).expect("every call is sampled");
    let end = |timeline: Box<Timeline>| recorder.end(*timeline, Instant::now(), String::new);
    run(async {
        let call = timeline::recording(
            timeline,
            async {
                let stage = timeline::open(Kind::Store);
                std::future::pending::<()>().await;
                stage.close();
            },
            end,
        );
        assert!(tokio::time::timeout(Duration::from_millis(5), call).await.is_err());
    });
    let record = requests.latest()[1].first().cloned().expect("it is kept");
    let [stage] = &*record.stages else { panic!("{record:?}") };
    assert!(stage.took >= Nanos::millis(4) && record.total >= stage.took, "{record:?}");
}

#[test]
fn a_stage_of_an_earlier_request_changes_no_other() {
    let (requests, recorder) = recorder(1, Nanos(0));
    run(timeline::scope(async {
        recorder.begin(&started("first"), Chosen::Sampled);
        let of_first = timeline::open(Kind::Store);
        recorder.begin(&started("second"), Chosen::Sampled);
        let of_second = timeline::open(Kind::Memory);
        assert!(of_first.context().is_none() && of_second.context().is_some());
        of_first.close_with(|| Detail::Server("a:1".into()));
        of_second.close();
        let second = end(&requests, &recorder).expect("it was sampled");
        assert_eq!((second.stages.len(), second.stages[0].by.as_deref()), (1, None));
    }));
}

#[test]
fn shares_add_up_to_the_total() {
    let (requests, recorder) = recorder(1, Nanos(0));
    let begin = Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().expect("one");
    let mut timeline = recorder.begin_for(&Started { at: begin, command: "get", key: b"" }, caller);
    // The second begins within the first, the third lies within both, and the last ends behind the request.
    for (from, until) in [(1, 5), (3, 8), (4, 5), (9, 20)] {
        timeline.add(Kind::Store, at(from), at(until), Detail::None);
    }
    recorder.end(*timeline, at(10), String::new);
    let record = requests.latest()[2].first().cloned().expect("it is kept");
    let (shares, rest) = record.shares();
    assert_eq!(shares, [4, 3, 0, 1].map(Nanos::millis));
    assert_eq!(rest, Nanos::millis(2));
}

#[test]
fn stages_and_records_are_bounded() {
    let (requests, recorder) = recorder(1, Nanos(0));
    run(timeline::scope(async {
        for _ in 0..100 {
            recorder.begin(&started("get"), Chosen::Sampled);
            for _ in 0..100 {
                timeline::open(Kind::Store).close();
            }
            let record = end(&requests, &recorder).expect("it was sampled");
            assert_eq!((record.stages.len(), record.stages_left_out), (64, 36));
        }
    }));
    assert_eq!(requests.latest()[1].len(), 32);
}
