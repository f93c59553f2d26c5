//! Tests the generator against servers that stall, lie, close or do not run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{run, serve, spec, undisturbed};
use harness::{Port, TIMEOUT};
use load::{Address, LoadError};
use units::Nanos;

fn misses(line: &str) -> Vec<u8> {
    let answer = if line.starts_with("get ") { "END\r\n" } else { "STORED\r\n" };
    answer.as_bytes().to_vec()
}

#[test]
fn a_stall_counts_against_every_request_it_held_up() {
    let address = serve(|| {
        let mut served = 0;
        move |line: &str, _| {
            served += 1;
            if served == 100 {
                thread::sleep(Duration::from_millis(200));
            }
            Some(misses(line))
        }
    });
    let mut spec = spec(&address, 1_000.0, Nanos::millis(1_000));
    (spec.connections, spec.prepopulate, spec.pipeline_max) = (1, false, 1);
    let report = undisturbed(
        || run(&spec),
        |report| {
            let of_others = [report.get.service.p99_ns, report.generator.lateness.p99_ns];
            of_others.iter().all(|ns| *ns < 50_000_000)
        },
    );
    // All arrivals of a fifth of a second waited. A closed loop would have seen only one slow request.
    assert!(report.get.latency.p99_ns > 100_000_000, "{report:?}");
    assert!(report.get.latency.p90_ns > 50_000_000, "{report:?}");
    assert_eq!(report.failures(), 0, "{report:?}");
}

#[test]
fn wrong_bytes_are_found_whatever_is_wrong_with_them() {
    let wrong: [fn(&mut Vec<u8>); 3] = [
        |value| *value.last_mut().expect("a value") ^= 1,
        |value| value.truncate(100),
        |value| value.fill(0),
    ];
    for spoil in wrong {
        let address = serve(move || {
            let mut stored = std::collections::HashMap::new();
            move |line: &str, value: Vec<u8>| {
                let key = line.split(' ').nth(1)?.to_owned();
                if line.starts_with("set ") {
                    stored.insert(key, value);
                    return Some(b"STORED\r\n".to_vec());
                }
                let Some(value) = stored.get(&key) else { return Some(b"END\r\n".to_vec()) };
                let mut value = value.clone();
                spoil(&mut value);
                let mut answer = format!("VALUE {key} 0 {}\r\n", value.len()).into_bytes();
                answer.extend_from_slice(&value);
                answer.extend_from_slice(b"\r\nEND\r\n");
                Some(answer)
            }
        });
        let mut spec = spec(&address, 2_000.0, Nanos::millis(200));
        (spec.connections, spec.prepopulate, spec.set_on_miss) = (1, false, true);
        let report = undisturbed(|| run(&spec), |report| report.wrong.count > 50);
        assert_eq!(report.wrong.count, report.get.hits);
        assert!((1..=8).contains(&report.wrong.examples.len()));
    }
}

#[test]
fn a_value_of_another_key_is_wrong_bytes() {
    let address = serve(|| {
        |line: &str, _| {
            let other = b"VALUE other 0 2\r\nxx\r\nEND\r\n".to_vec();
            Some(if line.starts_with("get ") { other } else { misses(line) })
        }
    });
    let mut spec = spec(&address, 1_000.0, Nanos::millis(100));
    spec.prepopulate = false;
    let report = run(&spec);
    assert_eq!(report.wrong.count, report.get.hits, "{report:?}");
    assert!(report.wrong.examples[0].contains("other"), "{:?}", report.wrong);
}

#[test]
fn closed_connections_are_counted_and_opened_again() {
    let address = serve(|| {
        let mut left = 20;
        move |line: &str, _| {
            left -= 1;
            (left > 0).then(|| misses(line))
        }
    });
    let mut spec = spec(&address, 1_000.0, Nanos::millis(500));
    spec.prepopulate = false;
    let report = undisturbed(|| run(&spec), |report| report.get.answered > 100);
    assert!(report.connections.lost > 3, "{report:?}");
    assert!(report.connections.reopened > 3, "{report:?}");
    assert!(report.errors.keys().all(|error| error.starts_with("connection lost: ")));
    assert!(!report.errors.is_empty());
}

#[test]
fn nonsense_ends_the_connection_and_says_what_it_was() {
    for nonsense in ["HTTP/1.1 400 Bad Request\r\n", "STORED\r\n", "VALUE k 0 99999999999\r\n"] {
        let address = serve(move || move |_: &str, _| Some(nonsense.as_bytes().to_vec()));
        let mut spec = spec(&address, 500.0, Nanos::millis(100));
        (spec.prepopulate, spec.get_share) = (false, 1.0);
        let report = run(&spec);
        assert_eq!(report.get.answered, 0, "{report:?}");
        assert!(report.connections.lost > 0 && !report.errors.is_empty(), "{report:?}");
    }
}

#[test]
fn a_server_that_never_answers_times_out() {
    let address = serve(|| |_: &str, _| Some(Vec::new()));
    let mut spec = spec(&address, 200.0, Nanos::millis(400));
    (spec.prepopulate, spec.request_timeout) = (false, Nanos::millis(100));
    let start = Instant::now();
    let report = run(&spec);
    assert!(start.elapsed() < TIMEOUT);
    let timeout = "connection lost: no answer within the request timeout";
    assert!(report.errors.contains_key(timeout), "{report:?}");
    assert_eq!(report.get.offered + report.set.offered, report.failures(), "{report:?}");
}

#[test]
fn overload_is_queued_then_dropped_and_said_so() {
    let address = serve(|| {
        |line: &str, _| {
            thread::sleep(Duration::from_millis(5));
            Some(misses(line))
        }
    });
    let mut spec = spec(&address, 5_000.0, Nanos::millis(300));
    (spec.connections, spec.prepopulate, spec.backlog_max) = (1, false, 100);
    spec.pipeline_max = 1;
    let report = run(&spec);
    assert!(report.unsent > 1_000, "{report:?}");
    assert!(report.get.latency.p50_ns > 50_000_000, "{report:?}");
    let due = report.get.offered + report.set.offered;
    let accounted = report.get.answered + report.set.answered + report.failures();
    assert_eq!(due, accounted, "{report:?}");
}

#[test]
fn a_missing_target_is_a_clear_error_in_bounded_time() {
    let closed = Port::free().expect("a free port");
    let (classic, grpc) = (closed.address().to_string(), format!("grpc://{}", closed.address()));
    for address in
        [classic.as_str(), "unix:/nonexistent/socket", &grpc, "grpc:///nonexistent/socket"]
    {
        let address: Address = address.parse().expect("an address");
        let start = Instant::now();
        let spec = spec(&address, 100.0, Nanos::secs(60));
        let error = load::run(&spec, |_| (), &AtomicBool::new(false)).expect_err("unreachable");
        assert!(matches!(error, LoadError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        assert!(start.elapsed() < TIMEOUT);
    }
}

#[test]
fn every_arrival_is_taken_up_even_if_the_server_dies() {
    let served = Arc::new(AtomicU64::new(0));
    let address = serve(move || {
        let served = served.clone();
        move |line: &str, _| (served.fetch_add(1, Ordering::Relaxed) < 50).then(|| misses(line))
    });
    let mut spec = spec(&address, 500.0, Nanos::millis(400));
    (spec.prepopulate, spec.request_timeout) = (false, Nanos::millis(200));
    let report = run(&spec);
    let due = report.get.offered + report.set.offered;
    // The last of the 200 equal gaps ends together with the run.
    assert!((199..=200).contains(&due), "{report:?}");
    let answered = report.get.answered + report.set.answered;
    assert_eq!(answered + report.failures(), due, "{report:?}");
    // Some of the last answers may be lost with their connections.
    assert!((1..=50).contains(&answered), "{report:?}");
}
