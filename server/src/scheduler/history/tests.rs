//! Tests that sums are right for any sequence of reports, repetitions and restarts, that refused reports
//! change nothing, and that memory stays within its limit.

use api::v1::{DeviceCounts, PathCounts, SizeCounts};
use proptest::collection::vec;
use proptest::prelude::*;

use super::counts::{JOBS, LOST, SERVICE_NS};
use super::*;

fn bounds() -> Bounds {
    Bounds {
        instances_max: 3,
        memory: ByteCount::mib(1),
        keep: Nanos::secs(600),
        silent_after: Nanos::secs(10),
    }
}

fn path(device: &str, jobs: u64) -> PathCounts {
    PathCounts {
        op: "compress".into(),
        device: device.into(),
        placement: "async".into(),
        reason: "policy".into(),
        jobs,
        service_ns: jobs * 1_000,
        sizes: vec![SizeCounts {
            log2: 12,
            jobs,
            work_bytes: jobs * 4_096,
            ..SizeCounts::default()
        }],
        service_log2_ns: vec![0, jobs],
        ..PathCounts::default()
    }
}

fn report(instance: &str, epoch: u64, uptime_ms: u64, paths: Vec<PathCounts>) -> ReportRequest {
    ReportRequest {
        instance: instance.into(),
        role: "frontend,store".into(),
        epoch,
        uptime_ms,
        paths,
        ..ReportRequest::default()
    }
}

fn jobs(snapshots: &[InstanceSnapshot]) -> u64 {
    let counts = snapshots.iter().flat_map(|of| of.counted.values());
    counts.map(|counts| counts.get(JOBS)).sum()
}

fn last(last_ms: u64) -> Filter {
    Filter { last_ms, ..Filter::default() }
}

const SECOND: Nanos = Nanos::secs(1);

#[test]
fn windows_cover_the_steps_that_are_mostly_within() {
    let mut history = History::new(bounds());
    // The first report covers an hour, which no window of a minute includes.
    let mut now = Nanos::secs(5);
    history.report(&report("a", 1, 3_600_000, vec![path("x", 1_000)]), now).unwrap();
    for step in 1..=10 {
        now += SECOND;
        let paths = vec![path("x", 1_000 + step * 10), path("y", step)];
        history.report(&report("a", 1, 3_600_000 + step * 1_000, paths), now).unwrap();
    }
    let of = |last_ms: u64, at| {
        let snapshots = history.query(&last(last_ms), at);
        (snapshots[0].covered_ms, jobs(&snapshots))
    };
    assert_eq!(of(0, now), (3_610_000, 1_110));
    assert_eq!(of(60_000, now), (10_000, 110));
    assert_eq!(of(3_000, now), (3_000, 33));
    assert_eq!(of(3_000, now + Nanos::millis(400)), (3_000, 33));
    assert_eq!(of(3_000, now + Nanos::millis(600)), (2_000, 22));
    assert_eq!(of(3_000, now + Nanos::secs(60)), (0, 0));
    let snapshots = history.query(&last(0), now + Nanos::secs(3));
    assert_eq!((snapshots[0].age_ms, snapshots[0].uptime_ms), (3_000, 3_610_000));
}

#[test]
fn filters_leave_out_what_is_not_asked_for() {
    let mut history = History::new(bounds());
    let device = DeviceCounts { device: "x".into(), lost: 2, ..DeviceCounts::default() };
    let mut first = report("a", 1, 10, vec![path("x", 3), path("y", 4)]);
    first.devices = vec![device];
    let mut second = report("b", 1, 10, vec![path("x", 5)]);
    second.role = "compression".into();
    second.paths[0].op = "decompress".into();
    history.report(&first, SECOND).unwrap();
    history.report(&second, SECOND).unwrap();
    let of = |filter: &Filter| jobs(&history.query(filter, SECOND)[..]);
    let all = Filter::default();
    let text = |text: &str| text.to_owned();
    assert_eq!(of(&Filter { instance: text("a"), ..all.clone() }), 9);
    assert_eq!(of(&Filter { role: text("store"), op: text("compress"), ..all.clone() }), 9);
    assert_eq!(of(&Filter { role: text("compression"), ..all.clone() }), 5);
    assert_eq!(of(&Filter { role: text("fronten"), ..all.clone() }), 0);
    assert_eq!(of(&Filter { device: text("y"), ..all.clone() }), 4);
    let snapshots = history.query(&Filter { op: text("copy"), ..all }, SECOND);
    let lost = snapshots[0].counted.values().map(|counts| counts.get(LOST)).sum::<u64>();
    assert_eq!(lost, 2, "what happened to a device is of no one op");
}

#[test]
fn what_goes_back_is_refused_and_changes_nothing() {
    let mut history = History::new(bounds());
    history.report(&report("a", 7, 1_000, vec![path("x", 10), path("y", 1)]), SECOND).unwrap();
    let mut sizes = path("x", 10);
    sizes.sizes[0].work_bytes -= 1;
    for (bad, wanted) in [
        (report("a", 7, 1_001, vec![path("x", 9)]), "went back without a new epoch"),
        (report("a", 7, 999, vec![path("x", 11)]), "uptime_ms = 999"),
        (report("a", 7, 1_001, vec![path("y", 2), sizes]), "sizes of log2 12"),
    ] {
        let refused = history.report(&bad, SECOND).unwrap_err();
        assert!(matches!(&refused, Refusal::Back(why) if why.contains(wanted)), "{refused}");
        assert_eq!(jobs(&history.query(&last(0), SECOND)), 11);
    }
    history.report(&report("a", 8, 5, vec![path("x", 9)]), SECOND).unwrap();
    assert_eq!(jobs(&history.query(&last(0), SECOND)), 20);
    let refused = history.report(&report("a", 7, 2_000, vec![path("x", 20)]), SECOND).unwrap_err();
    assert!(matches!(&refused, Refusal::Back(why) if why.contains("another process")), "{refused}");
}

#[test]
fn hostile_reports_are_refused() {
    let mut history = History::new(bounds());
    let long = "x".repeat(1 << 20);
    let many = |count: usize| (0..count).map(|n| path(&format!("d{n}"), 1)).collect();
    let mut fallbacks = report("a", 1, 1, Vec::new());
    fallbacks.devices = vec![DeviceCounts {
        device: "d".into(),
        fallbacks: (0..1_000).map(|n| (format!("r{n}"), 1)).collect(),
        ..DeviceCounts::default()
    }];
    let mut classes = path("x", 1);
    classes.service_log2_ns = vec![1; 65];
    let mut sizes = path("x", 1);
    sizes.sizes[0].log2 = 64;
    let mut twice = path("x", 1);
    twice.sizes.push(twice.sizes[0]);
    for bad in [
        report("", 1, 1, Vec::new()),
        report(&long, 1, 1, Vec::new()),
        report("a\n", 1, 1, Vec::new()),
        ReportRequest { role: long.clone(), ..report("a", 1, 1, Vec::new()) },
        report("a", 1, 1, vec![path(&long, 1)]),
        report("a", 1, 1, vec![path("x", 1), path("x", 2)]),
        report("a", 1, 1, many(1_000)),
        report("a", 1, 1, vec![classes]),
        report("a", 1, 1, vec![sizes]),
        report("a", 1, 1, vec![twice]),
        fallbacks,
    ] {
        let refused = history.report(&bad, SECOND).unwrap_err();
        assert!(matches!(&refused, Refusal::Invalid(why) if why.len() < 400), "{refused}");
    }
    assert_eq!(history.bytes(), ByteCount(0));
    // Every report has new devices; the limit counts all of them.
    let endless = (0..100_u64).map(|n| {
        let paths = (0..100).map(|m| path(&format!("d{}", n * 100 + m), 1)).collect();
        history.report(&report("a", 1, n, paths), SECOND).map(|_| ())
    });
    let results: Vec<_> = endless.collect();
    assert!(results[..10].iter().all(Result::is_ok));
    assert!(matches!(results.last(), Some(Err(Refusal::Invalid(_)))), "{results:?}");
}

#[test]
fn the_oldest_silent_instance_makes_room() {
    let mut history = History::new(bounds());
    for (name, at) in [("a", 1), ("b", 0), ("c", 2)] {
        history.report(&report(name, 1, 1, vec![path("x", 1)]), Nanos::secs(at)).unwrap();
    }
    let newcomer = report("d", 1, 1, vec![path("x", 1)]);
    let refused = history.report(&newcomer, Nanos::secs(9)).unwrap_err();
    assert!(matches!(refused, Refusal::Exhausted(_)), "{refused}");
    history.report(&newcomer, Nanos::secs(10)).unwrap();
    let names: Vec<_> = history.query(&last(0), SECOND).into_iter().map(|of| of.instance).collect();
    assert_eq!(names, ["a", "c", "d"]);
    // An instance is forgotten when it is silent for longer than reports are stored.
    history.report(&newcomer, Nanos::secs(700)).unwrap();
    assert_eq!(history.query(&last(0), Nanos::secs(700)).len(), 1);
}

#[test]
fn old_differences_make_room_for_new_counts() {
    let memory = ByteCount::kib(16);
    let mut history = History::new(Bounds { memory, ..bounds() });
    let mut now = Nanos(0);
    for step in 1..=500 {
        now += SECOND;
        let paths = vec![path("x", step), path("y", 2 * step)];
        history.report(&report("a", 1, step * 1_000, paths), now).unwrap();
        assert!(history.bytes() <= memory, "{}", history.bytes());
    }
    assert_eq!(jobs(&history.query(&last(0), now)), 1_500);
    let window = history.query(&last(600_000), now);
    let covered_s = window[0].covered_ms / 1_000;
    assert!((10..500).contains(&covered_s), "{covered_s} s");
    assert_eq!(jobs(&window), 3 * covered_s, "what is covered is what is counted");
    let wide = (0..200).map(|n| path(&format!("d{n}"), 1)).collect();
    let refused = history.report(&report("b", 1, 1, wide), now).unwrap_err();
    assert!(matches!(refused, Refusal::Exhausted(_)), "{refused}");
    assert_eq!(history.query(&last(600_000), now)[0].covered_ms / 1_000, covered_s);
}

/// An action of a process between two reports.
#[derive(Clone, Debug)]
enum Act {
    Work {
        jobs: u64,
        ms: u64,
    },
    Restart,
    /// The process sends its last report again.
    Repeat,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_u64..50, 1_u64..5_000).prop_map(|(jobs, ms)| Act::Work { jobs, ms }),
        1 => Just(Act::Restart),
        2 => Just(Act::Repeat),
    ]
}

proptest! {
    #[test]
    fn any_sequence_of_reports_sums_right(acts in vec((0_usize..3, act()), 1..200)) {
        let mut history = History::new(Bounds { memory: ByteCount::mib(64), ..bounds() });
        let mut now = Nanos(0);
        let mut processes = [(1_u64, 0_u64, 0_u64); 3];
        let (mut all, mut all_ms) = ([0_u64; 3], [0_u64; 3]);
        let mut known = [false; 3];
        for (who, act) in acts {
            let (epoch, uptime_ms, counted) = &mut processes[who];
            match act {
                Act::Work { jobs, ms } => {
                    *counted += jobs;
                    *uptime_ms += ms;
                    all[who] += jobs;
                    all_ms[who] += ms;
                    now += Nanos::millis(ms);
                }
                Act::Restart => (*epoch, *uptime_ms, *counted) = (*epoch + 1, 0, 0),
                Act::Repeat => {}
            }
            let paths = vec![path("x", *counted)];
            let sent = report(&format!("p{who}"), *epoch, *uptime_ms, paths);
            history.report(&sent, now).unwrap();
            known[who] = true;
        }
        // The history may drop an instance only after the time for which it keeps reports.
        if now < bounds().keep {
            for of in history.query(&last(0), now) {
                let who: usize = of.instance[1..].parse().unwrap();
                prop_assert!(known[who]);
                let counts = of.counted.values().next().cloned().unwrap_or_default();
                prop_assert_eq!(counts.get(JOBS), all[who]);
                prop_assert_eq!(counts.get(SERVICE_NS), all[who] * 1_000);
                prop_assert_eq!(of.covered_ms, all_ms[who]);
            }
            let windows = jobs(&history.query(&last(u64::MAX), now));
            prop_assert_eq!(windows, all.iter().sum::<u64>(), "differences add up to the sums");
        }
    }
}
