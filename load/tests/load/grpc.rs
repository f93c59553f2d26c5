//! Tests the generator's bookkeeping and its bytes on gRPC, against servers that serve, stall, lie, refuse, hang or
//! die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use load::{LoadError, LoadReport, Pace, Payload};
use tonic::Status;
use units::Nanos;
use workload::{PayloadClass, SizeDist};

use crate::cache::{Act, CacheOnGrpc};
use crate::support::{misses_are_filled, run, serve, spec, undisturbed};
use harness::TIMEOUT;

fn due(report: &LoadReport) -> u64 {
    report.get.offered + report.set.offered
}

fn all_accounted_for(report: &LoadReport) {
    let answered = report.get.answered + report.set.answered;
    assert_eq!(answered + report.failures(), due(report), "{report:?}");
    let errors = report.get.errors + report.set.errors + report.fill.errors;
    assert_eq!(report.statuses.values().sum::<u64>(), errors, "{report:?}");
}

#[test]
fn an_open_loop_reaches_its_rate_and_verifies_every_byte() {
    let server = CacheOnGrpc::start(|_| Act::Serve);
    let mut spec = spec(&server.address, 1_000.0, Nanos::millis(500));
    spec.warmup = Nanos::millis(50);
    spec.value_bytes = SizeDist::Uniform { min_bytes: 0, max_bytes: 100_000 };
    let report = run(&spec);
    assert!((499..=500).contains(&due(&report)), "{report:?}");
    assert_eq!((report.wrong.count, report.failures()), (0, 0), "{report:?}");
    assert_eq!(report.get.hit_ratio, Some(1.0));
    assert_eq!(report.prepopulate.as_ref().map(|populate| populate.stored), Some(200));
    assert!(report.get.service.p50_ns <= report.get.latency.p50_ns);
    assert!(report.get.value_bytes > 10_000_000 && report.bytes_in > report.get.value_bytes);
    assert!(report.bytes_out > 1_000_000, "{report:?}");
    all_accounted_for(&report);
}

#[test]
fn a_closed_loop_keeps_its_depth_and_every_class_survives() {
    let server = CacheOnGrpc::start(|_| Act::Serve);
    for class in PayloadClass::ALL {
        let mut spec = spec(&server.address, 1.0, Nanos::millis(100));
        let depth = 8;
        (spec.pace, spec.threads, spec.get_share) = (Pace::Closed { depth }, 2, 0.5);
        let in_flight = (depth * spec.connections) as u64;
        spec.payload = Payload::Class(class);
        let report = undisturbed(|| run(&spec), |report| report.get.answered > in_flight);
        assert_eq!((report.wrong.count, report.failures()), (0, 0), "{report:?}");
    }
}

#[test]
fn unix_sockets_carry_the_same_load() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = CacheOnGrpc::start_unix(&folder.path().join("socket"), |_| Act::Serve);
    let report = run(&spec(&server.address, 1_000.0, Nanos::millis(200)));
    assert!(report.get.hits > 150, "{report:?}");
    assert_eq!((report.wrong.count, report.failures()), (0, 0), "{report:?}");
}

#[test]
fn a_miss_is_filled_when_asked_for() {
    let server = CacheOnGrpc::start(|_| Act::Serve);
    misses_are_filled(&server.address, 1_000.0);
}

#[test]
fn wrong_bytes_are_found_whatever_is_wrong_with_them() {
    let wrong: [fn(&mut Vec<u8>); 3] = [
        |value| *value.last_mut().expect("a value") ^= 1,
        |value| value.truncate(100),
        |value| value.fill(0),
    ];
    let spoiled = wrong.map(|spoil| CacheOnGrpc::start(move |_| Act::Spoil(spoil)));
    for server in spoiled.into_iter().chain([CacheOnGrpc::start(|_| Act::Frame)]) {
        let report = run(&spec(&server.address, 1_000.0, Nanos::millis(100)));
        assert!(report.wrong.count > 50, "{report:?}");
        assert_eq!(report.wrong.count, report.get.hits);
        assert!((1..=8).contains(&report.wrong.examples.len()));
    }
}

#[test]
fn refusals_are_counted_by_their_status() {
    let server = CacheOnGrpc::start(|call| match call % 4 {
        0 => Act::Fail(Status::resource_exhausted("tenant over its limit")),
        1 => Act::Fail(Status::unavailable("no upstream")),
        _ => Act::Serve,
    });
    let mut spec = spec(&server.address, 1_000.0, Nanos::millis(200));
    spec.prepopulate = false;
    let report = run(&spec);
    for (status, error) in [
        ("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED: tenant over its limit"),
        ("UNAVAILABLE", "UNAVAILABLE: no upstream"),
    ] {
        assert!((45..=55).contains(&report.statuses[status]), "{report:?}");
        assert_eq!(report.errors[error], report.statuses[status], "{report:?}");
    }
    assert_eq!(report.connections.lost, 0, "{report:?}");
    all_accounted_for(&report);
    let json = serde_json::to_value(&report).expect("a report is data");
    assert!(json["statuses"]["UNAVAILABLE"].is_u64(), "{json}");
}

#[test]
fn a_value_longer_than_any_written_is_refused() {
    let server = CacheOnGrpc::start(|_| Act::Spoil(|value| value.resize(1 << 20, 0)));
    let mut spec = spec(&server.address, 500.0, Nanos::millis(100));
    (spec.get_share, spec.value_bytes_max) = (1.0, units::ByteCount(100_000));
    let report = run(&spec);
    assert_eq!(report.statuses.get("OUT_OF_RANGE"), Some(&due(&report)), "{report:?}");
}

#[test]
fn a_call_timeout_leaves_the_connection_up() {
    let server = CacheOnGrpc::start(|call| if call % 2 == 0 { Act::Hang } else { Act::Serve });
    let mut spec = spec(&server.address, 200.0, Nanos::millis(400));
    (spec.prepopulate, spec.request_timeout) = (false, Nanos::millis(100));
    // If the machine pauses, other requests also time out, and some fail only after the end.
    let report = undisturbed(
        || run(&spec),
        |report| {
            let half = due(report) / 2;
            let late = report.statuses.get("DEADLINE_EXCEEDED").copied().unwrap_or(0);
            (half - 2..=half + 2).contains(&late)
        },
    );
    assert_eq!(report.connections.lost, 0, "{report:?}");
    all_accounted_for(&report);
}

#[test]
fn populating_a_server_that_hangs_ends() {
    let server = CacheOnGrpc::start(|_| Act::Hang);
    let mut spec = spec(&server.address, 1.0, Nanos::secs(60));
    (spec.keys, spec.request_timeout) = (1_000_000, Nanos::millis(100));
    let start = Instant::now();
    let error = load::run(&spec, |_| (), &AtomicBool::new(false)).expect_err("nothing stored");
    assert!(matches!(error, LoadError::NothingStored { .. }), "{error}");
    assert!(start.elapsed() < TIMEOUT);
}

#[test]
fn a_stall_counts_against_every_request_it_held_up() {
    let stalled_once = || {
        let server = CacheOnGrpc::start(|call| match call {
            100 => Act::Stall(Duration::from_millis(200)),
            _ => Act::Serve,
        });
        let mut spec = spec(&server.address, 1_000.0, Nanos::millis(1_000));
        (spec.connections, spec.prepopulate, spec.pipeline_max) = (1, false, 1);
        run(&spec)
    };
    let report = undisturbed(stalled_once, |report| {
        let of_others = [report.get.service.p99_ns, report.generator.lateness.p99_ns];
        of_others.iter().all(|ns| *ns < 50_000_000)
    });
    // All arrivals of a fifth of a second waited. A closed loop would have seen only one slow request.
    assert!(report.get.latency.p99_ns > 100_000_000, "{report:?}");
    assert!(report.get.latency.p90_ns > 50_000_000, "{report:?}");
    assert!(report.get.latency.max_ns > 190_000_000, "{report:?}");
    assert_eq!(report.failures(), 0, "{report:?}");
}

#[test]
fn overload_is_queued_then_dropped_and_said_so() {
    let server = CacheOnGrpc::start(|_| Act::Stall(Duration::from_millis(5)));
    let mut spec = spec(&server.address, 5_000.0, Nanos::millis(300));
    (spec.connections, spec.prepopulate, spec.backlog_max) = (1, false, 100);
    spec.pipeline_max = 1;
    let report = run(&spec);
    assert!(report.unsent > 1_000, "{report:?}");
    assert!(report.get.latency.p50_ns > 50_000_000, "{report:?}");
    all_accounted_for(&report);
}

#[test]
fn a_server_that_dies_and_returns_is_found_again() {
    // The test uses a unix socket, because another process could take a TCP port that is free for a moment.
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let calls = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&calls);
    let server = CacheOnGrpc::start_unix(&path, move |call| {
        seen.store(call, Ordering::SeqCst);
        if call > 50 { Act::Hang } else { Act::Serve }
    });
    let mut spec = spec(&server.address, 500.0, Nanos::millis(1_200));
    (spec.prepopulate, spec.pipeline_max) = (false, 8);
    let report = thread::scope(|scope| {
        let running = scope.spawn(|| run(&spec));
        // After the calls that are served, every connection has as many hanging calls as it may have in flight.
        let (all, start) = (50 + 8 * spec.connections as u64, Instant::now());
        while calls.load(Ordering::SeqCst) < all {
            assert!(start.elapsed() < TIMEOUT, "{calls:?} calls of {all}");
            thread::sleep(Duration::from_millis(1));
        }
        drop(server);
        std::fs::remove_file(&path).expect("the server left it");
        let _returned = CacheOnGrpc::start_unix(&path, |_| Act::Serve);
        running.join().expect("a report")
    });
    assert_eq!(report.connections.lost, 4, "{report:?}");
    assert_eq!(report.connections.reopened, 4, "{report:?}");
    assert!(report.statuses["UNAVAILABLE"] >= 4, "{report:?}");
    assert!(report.errors.keys().all(|error| error.starts_with("no answer: ")), "{report:?}");
    assert!(report.get.answered + report.set.answered > 400, "{report:?}");
    all_accounted_for(&report);
}

#[test]
fn a_peer_that_speaks_something_else_fails_every_request() {
    let address = serve(|| |_: &str, _| Some(b"ERROR\r\n".to_vec()));
    let address = format!("grpc://{address}").parse().expect("an address");
    let mut spec = spec(&address, 500.0, Nanos::millis(100));
    (spec.prepopulate, spec.request_timeout) = (false, Nanos::millis(200));
    let report = run(&spec);
    assert_eq!(report.get.answered + report.set.answered, 0, "{report:?}");
    assert!(report.connections.lost > 0 && !report.errors.is_empty(), "{report:?}");
    all_accounted_for(&report);
}

#[test]
#[ignore = "a measurement, asserts nothing and wants a quiet machine: cargo test --release -p load --test load -- \
            --ignored --nocapture what_a_call_costs"]
fn what_a_call_costs() {
    let server = CacheOnGrpc::start(|_| Act::Serve);
    for bytes in [1 << 10, 64 << 10] {
        let mut spec = spec(&server.address, 1.0, Nanos::secs(2));
        (spec.get_share, spec.warmup) = (1.0, Nanos::millis(300));
        spec.value_bytes = SizeDist::Fixed { bytes };
        for (connections, depth) in [(1, 1), (4, 8)] {
            (spec.connections, spec.pace) = (connections, Pace::Closed { depth });
            println!("{bytes} bytes, {connections} connections of {depth}: {}", cost(&run(&spec)));
        }
        spec.connections = 8;
        for rate_per_s in [2e3, 4e3, 8e3, 12e3, 16e3, 24e3, 32e3] {
            let arrivals = workload::ArrivalKind::Poisson;
            spec.pace = Pace::Open { rate_per_s, arrivals };
            let report = run(&spec);
            println!("{bytes} bytes, {rate_per_s} per s: {}", cost(&report));
            if report.generator.was_bottleneck {
                break;
            }
        }
    }
}

fn cost(report: &LoadReport) -> String {
    let (get, generator) = (&report.get, &report.generator);
    let us = |ns: u64| ns as f64 / 1e3;
    let calls = get.achieved_per_s;
    format!(
        "{calls:.0} per s, {:.1} us of CPU each, busy {:.2}; service p50 {:.0} p99 {:.0} us, \
         latency p99 {:.0} us, lateness p50 {:.1} p99 {:.1} us, {:?}",
        generator.cpu_utilisation * 1e6 / calls,
        generator.cpu_utilisation,
        us(get.service.p50_ns),
        us(get.service.p99_ns),
        us(get.latency.p99_ns),
        us(generator.lateness.p50_ns),
        us(generator.lateness.p99_ns),
        generator.reason
    )
}
