//! Tests the generator's rate, its bookkeeping and its bytes against real memcached.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::{Memcached, misses_are_filled, run, spec, undisturbed};
use harness::TIMEOUT;
use load::{LoadReport, Pace, Payload, Phase, Progress};
use units::Nanos;
use workload::{ArrivalKind, PayloadClass, SizeDist};

#[test]
fn open_loop_offers_its_rate_and_verifies_every_byte() {
    let Some(memcached) = Memcached::start() else { return };
    let mut spec = spec(&memcached.address, 2_000.0, Nanos::millis(1_000));
    spec.pace = Pace::Open { rate_per_s: 2_000.0, arrivals: ArrivalKind::Poisson };
    spec.warmup = Nanos::millis(100);
    spec.value_bytes = SizeDist::Uniform { min_bytes: 0, max_bytes: 100_000 };
    let [offered, achieved] = [
        |report: &LoadReport| report.get.offered_per_s + report.set.offered_per_s,
        |report: &LoadReport| report.get.achieved_per_s + report.set.achieved_per_s,
    ];
    let report =
        undisturbed(|| run(&spec), |report| (achieved(report) / offered(report) - 1.0).abs() < 0.1);
    let offered = offered(&report);
    // The tolerance is five standard deviations of the number of arrivals in one second.
    assert!((offered / 2_000.0 - 1.0).abs() < 0.12, "{report:?}");
    assert_eq!((report.wrong.count, report.failures()), (0, 0), "{report:?}");
    assert_eq!(report.get.hit_ratio, Some(1.0));
    assert_eq!(report.prepopulate.as_ref().map(|populate| populate.stored), Some(200));
    assert!(report.get.service.p50_ns <= report.get.latency.p50_ns);
    assert!(report.get.value_bytes > 10_000_000);
}

#[test]
fn closed_loop_outruns_an_open_one_and_every_class_survives() {
    let Some(memcached) = Memcached::start() else { return };
    for class in PayloadClass::ALL {
        let mut spec = spec(&memcached.address, 1.0, Nanos::millis(150));
        spec.pace = Pace::Closed { depth: 8 };
        spec.payload = Payload::Class(class);
        spec.threads = 2;
        spec.get_share = 0.5;
        let report = undisturbed(|| run(&spec), |report| report.get.answered > 100);
        assert_eq!((report.wrong.count, report.failures()), (0, 0), "{report:?}");
    }
}

#[test]
fn unix_sockets_carry_the_same_load() {
    let Some(memcached) = Memcached::start_unix() else { return };
    let report = run(&spec(&memcached.address, 2_000.0, Nanos::millis(200)));
    assert!(report.get.hits > 300, "{report:?}");
    assert_eq!((report.wrong.count, report.failures()), (0, 0), "{report:?}");
}

#[test]
fn a_miss_is_filled_when_asked_for() {
    let Some(memcached) = Memcached::start() else { return };
    misses_are_filled(&memcached.address, 4_000.0);
}

#[test]
fn a_value_the_server_refuses_is_counted_in_its_words() {
    let Some(memcached) = Memcached::start() else { return };
    let mut spec = spec(&memcached.address, 500.0, Nanos::millis(200));
    spec.value_bytes = SizeDist::Fixed { bytes: 2 << 20 };
    spec.value_bytes_max = units::ByteCount::mib(2);
    spec.keys = 3;
    let error = load::run(&spec, |_| (), &AtomicBool::new(false)).expect_err("nothing stored");
    assert!(error.to_string().contains("SERVER_ERROR object too large for cache"), "{error}");
    (spec.prepopulate, spec.get_share) = (false, 0.0);
    let report = run(&spec);
    assert!(report.errors.contains_key("SERVER_ERROR object too large for cache"), "{report:?}");
    assert_eq!(report.set.errors, report.set.offered);
}

#[test]
fn the_stop_flag_ends_a_run_with_what_was_measured() {
    let Some(memcached) = Memcached::start() else { return };
    let spec = spec(&memcached.address, 1_000.0, Nanos::secs(600));
    let (stop, start) = (AtomicBool::new(false), Instant::now());
    let progress = |progress: &Progress| {
        let is_enough = progress.phase == Phase::Measure && progress.answered >= 300;
        stop.fetch_or(is_enough, Ordering::Relaxed);
    };
    let report = load::run(&spec, progress, &stop).expect("a report");
    assert!(report.stopped_early && start.elapsed() < 2 * TIMEOUT);
    assert!(report.get.answered > 100, "{report:?}");
    // The rate is over the measured time, and not over the ten minutes of the spec.
    assert!((10.0..1_000.0).contains(&report.get.offered_per_s), "{report:?}");
    let json = serde_json::to_value(&report).expect("a report is data");
    assert!(json["get"]["latency"]["p99_ns"].is_u64(), "{json}");
}
