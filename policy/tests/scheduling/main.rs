//! Tests the scheduler's logic with simulated services in virtual time. The scheduler must find the sizes
//! that pay within seconds, both at the start and after a device changes, and then keep them. Noise, outliers
//! and a reporter of false values must not move them.
#![allow(clippy::unwrap_used)]

mod fleet;

use device::machine::Line;
use fleet::{Cores, Fleet, Nonsense};
use policy::scheduling::{JobReport, Scheduling, SizeSums};
use units::{Nanos, Op, Prng};

const SOFTWARE: Line = Line { fixed_ns: 1_000.0, ns_per_byte: 4.0 };
const DEVICE: Line = Line { fixed_ns: 9_000.0, ns_per_byte: 0.5 };

/// The size at which the lines of software and device cross (bytes): 8,000 / 3.5.
const BREAK_EVEN: f64 = 2_286.0;
/// A device whose fixed time is ten times as long. Its line crosses software's at 89,000 / 3.5.
const SLOWER: Line = Line { fixed_ns: 90_000.0, ns_per_byte: 0.5 };
const BREAK_EVEN_SLOWER: f64 = 25_429.0;

fn fleet(services: usize) -> Fleet {
    Fleet::new(services, SOFTWARE, &[DEVICE])
}

fn off_by(fleet: &Fleet, bytes: f64) -> f64 {
    (fleet.bytes_min("virtual") as f64 / bytes).log2().abs()
}

/// The maximum error of a correct threshold (log2): the band in which the control does not move it, and the
/// error of the curves.
const NEAR_LOG2: f64 = 0.75;

/// The number of seeds. Every property holds for all of them.
const SEEDS: u64 = 16;

#[test]
fn the_size_that_pays_is_found_within_seconds() {
    for seed in 0..SEEDS {
        let mut fleet = fleet(4).with_seed(seed);
        fleet.run_s(10);
        assert!(off_by(&fleet, BREAK_EVEN) < NEAR_LOG2, "{seed}: {}", fleet.bytes_min("virtual"));
        let before = fleet.changes;
        for _ in 0..60 {
            fleet.run_s(1);
            let found = fleet.bytes_min("virtual");
            assert!(off_by(&fleet, BREAK_EVEN) < NEAR_LOG2, "{seed}: {found}");
        }
        assert!(fleet.changes - before <= 3, "{seed}: {} changes", fleet.changes - before);
    }
}

#[test]
fn a_tenfold_change_is_followed_within_seconds() {
    for seed in 0..SEEDS {
        let mut fleet = fleet(3).with_seed(seed);
        fleet.run_s(20);
        for (wanted, line) in [(BREAK_EVEN_SLOWER, SLOWER), (BREAK_EVEN, DEVICE)] {
            fleet.devices[0].line = line;
            fleet.run_s(10);
            let found = fleet.bytes_min("virtual");
            assert!(off_by(&fleet, wanted) < NEAR_LOG2, "{seed}: {wanted}: {found}");
            let before = fleet.changes;
            fleet.run_s(40);
            let found = fleet.bytes_min("virtual");
            assert!(off_by(&fleet, wanted) < NEAR_LOG2, "{seed}: {wanted}: {found}");
            assert!(fleet.changes - before <= 3, "{seed}: {} changes", fleet.changes - before);
        }
    }
}

#[test]
fn a_device_slower_at_every_size_gets_only_probes() {
    let mut fleet = fleet(3);
    fleet.run_s(15);
    fleet.devices[0].line = Line { fixed_ns: 90_000.0, ns_per_byte: 5.0 };
    fleet.run_s(12);
    let before = fleet.devices[0].jobs;
    let all_before = fleet.jobs;
    fleet.run_s(10);
    let share = (fleet.devices[0].jobs - before) as f64 / (fleet.jobs - all_before) as f64;
    assert!(share < 0.01, "{share}");
}

/// Software so slow that the device pays at every size. [`TENFOLD`] is ten times slower at each size.
const DEAR_SOFTWARE: Line = Line { fixed_ns: 20_000.0, ns_per_byte: 40.0 };
const TENFOLD: Line = Line { fixed_ns: 90_000.0, ns_per_byte: 5.0 };

#[test]
fn a_slower_device_is_left_even_with_few_jobs() {
    for seed in 0..SEEDS {
        let mut fleet = Fleet::new(1, DEAR_SOFTWARE, &[DEVICE]).with_seed(seed);
        fleet.run_s(20);
        assert!(fleet.bytes_min("virtual") <= 128, "{seed}: {}", fleet.bytes_min("virtual"));
        fleet.jobs_per_s = 2.0;
        fleet.run_s(100);
        fleet.devices[0].line = TENFOLD;
        fleet.run_s(20);
        // The lines cross at 70,000 / 35 bytes.
        let found = fleet.bytes_min("virtual");
        assert!(off_by(&fleet, 2_000.0) < 1.5, "{seed}: {found}");
        fleet.devices[0].line = DEVICE;
        fleet.run_s(120);
        assert!(fleet.bytes_min("virtual") < 512, "{seed}: {}", fleet.bytes_min("virtual"));
    }
}

#[test]
fn more_jobs_probe_where_few_come() {
    let mut fleet = fleet(2);
    fleet.run_s(30);
    assert_eq!(fleet.scheduling.probe_every(), 256);
    fleet.jobs_per_s = 1.0;
    fleet.run_s(90);
    assert_eq!(fleet.scheduling.probe_every(), 32);
    let before = fleet.changes;
    fleet.run_s(200);
    assert!(fleet.changes - before <= 12, "{} changes", fleet.changes - before);
    fleet.jobs_per_s = 500.0;
    fleet.run_s(4);
    assert_eq!(fleet.scheduling.probe_every(), 256);
}

#[test]
fn busy_cores_do_not_make_it_swing() {
    let software = Line { fixed_ns: 1_000.0, ns_per_byte: 24.0 };
    // If all jobs run in software, cores are busy for 47 % or 70 % of the time. With the device they are busy for
    // little of the time, or for a quarter.
    for (beside_ns, waits) in [(20_000.0, true), (250_000.0, false)] {
        for seed in 0..2 {
            let mut fleet = Fleet::new(2, software, &[DEVICE]).with_seed(seed);
            fleet.cores = Some(Cores::new(2, beside_ns, 2_000.0));
            fleet.run_s(20);
            let mut came_to = Vec::new();
            for line in [DEVICE, TENFOLD, DEVICE] {
                fleet.devices[0].line = line;
                fleet.run_s(15);
                let before = fleet.changes;
                let mut sizes = Vec::new();
                for _ in 0..40 {
                    fleet.run_s(1);
                    let decision = fleet.decision("virtual").unwrap();
                    let is_waited_for = decision.wait_bytes_max > 0;
                    assert_eq!(is_waited_for, waits && line.fixed_ns < 10_000.0, "{decision:?}");
                    sizes.push((decision.bytes_min as f64).log2());
                }
                let changes = fleet.changes - before;
                let (low, high) = ends(&sizes);
                assert!(
                    high - low < 1.0 && changes <= 4,
                    "{beside_ns} {seed}: {changes}, {sizes:?}"
                );
                came_to.push(high);
            }
            let [first, slower, again] = came_to[..] else { panic!("{came_to:?}") };
            assert!(slower - first.max(again) > 1.0, "{beside_ns} {seed}: {came_to:?}");
            assert!((first - again).abs() < 1.0, "{beside_ns} {seed}: {came_to:?}");
        }
    }
}

fn ends(sizes: &[f64]) -> (f64, f64) {
    sizes.iter().fold((f64::MAX, 0.0_f64), |(low, high), size| (low.min(*size), high.max(*size)))
}

#[test]
fn outliers_do_not_move_it() {
    for seed in 0..SEEDS {
        let mut fleet = fleet(3).with_seed(seed);
        fleet.outlier_one_in = 200;
        fleet.run_s(15);
        // The mean of the measured times is 1.5 times the usual mean on both sides, and the mean of a class in one
        // report is up to 10 times. Nothing cuts outliers here as the server does. A size within a factor of three is
        // therefore right, which costs all jobs some 6 %.
        let before = fleet.changes;
        for _ in 0..60 {
            fleet.run_s(1);
            let found = fleet.bytes_min("virtual");
            assert!(off_by(&fleet, BREAK_EVEN) < 1.5, "{seed}: {found}");
        }
        assert!(fleet.changes - before <= 6, "{seed}: {} changes", fleet.changes - before);
    }
}

#[test]
fn a_service_that_reports_nonsense_is_outvoted() {
    for nonsense in Nonsense::ALL {
        let mut fleet = fleet(4);
        fleet.run_s(10);
        fleet.nonsense = Some(nonsense);
        for _ in 0..30 {
            fleet.run_s(1);
            let found = fleet.bytes_min("virtual");
            assert!(off_by(&fleet, BREAK_EVEN) < NEAR_LOG2, "{nonsense:?}: {found}");
        }
        // A scheduler that gets the nonsense from its start finds the size in the same time.
        let mut fleet = fleet.anew();
        fleet.run_s(12);
        let found = fleet.bytes_min("virtual");
        assert!(off_by(&fleet, BREAK_EVEN) < NEAR_LOG2, "{nonsense:?} from nothing: {found}");
        let found =
            fleet.scheduling.fitted(fleet.now()).map(|fitted| fitted.doubted + fitted.refused_jobs);
        assert!(found.sum::<u64>() > 0, "{nonsense:?}");
    }
}

#[test]
fn an_overloaded_device_gets_only_what_it_bears() {
    // The whole load would keep the device busy for 1.6 times the time.
    let software = Line { fixed_ns: 50_000.0, ns_per_byte: 40.0 };
    let mut fleet = Fleet::new(4, software, &[Line { fixed_ns: 100_000.0, ns_per_byte: 16.0 }]);
    fleet.run_s(60);
    let mut sizes = Vec::new();
    let before = fleet.changes;
    fleet.ran.clear();
    for _ in 0..60 {
        fleet.run_s(1);
        sizes.push((fleet.bytes_min("virtual") as f64).log2());
    }
    let (low, high) = ends(&sizes);
    assert!(high - low < 1.0, "{sizes:?}");
    assert!(fleet.changes - before <= 10, "{} changes", fleet.changes - before);
    // The device is used, and it helps.
    let gain = fleet.gain();
    assert!(gain.measured > 1.0, "{gain:?}");
}

#[test]
fn what_is_predicted_is_what_is_measured() {
    let mut fleet = fleet(3);
    fleet.run_s(20);
    fleet.ran.clear();
    fleet.run_s(5);
    let gain = fleet.gain();
    assert!((gain.predicted / gain.measured - 1.0).abs() < 0.05, "{gain:?}");
    assert!(gain.measured > 2.0, "{gain:?}");
}

#[test]
fn software_alone_gains_nothing() {
    let mut scheduling = Scheduling::new(Nanos::secs(1));
    let mut window = SizeSums { log2: 12, ..SizeSums::default() };
    // A store is filled in one go. Later requests come one by one and find none of its data in the core's cache.
    for (second, jobs, each_ns) in
        [(1, 9_000, 20_000)].into_iter().chain((2..14).map(|at| (at, 220, 31_000)))
    {
        let sums = SizeSums {
            log2: 12,
            jobs,
            work_bytes: jobs * 4_096,
            service_ns: jobs * each_ns,
            ..SizeSums::default()
        };
        let (op, covered) = (Op::Compress, Nanos::secs(1));
        let (reporter, device, sizes) = ("one", "software", std::slice::from_ref(&sums));
        let report = JobReport { reporter, op, device, covered, busy: 0.3, sizes };
        scheduling.observe(&report, Nanos::secs(second));
        window.jobs += sums.jobs;
        window.work_bytes += sums.work_bytes;
        window.service_ns += sums.service_ns;
    }
    let curve_ns = scheduling.fitted(Nanos::secs(14)).next().unwrap().service.service.at(4_096);
    assert!((curve_ns / 31_000.0 - 1.0).abs() < 0.02, "{curve_ns}: what jobs take now");
    let gain = scheduling.gain(Op::Compress, [("software", window)]).unwrap();
    assert_eq!((gain.predicted, gain.measured), (1.0, 1.0));
    // The same jobs on the device were quicker than they would be in software now.
    let gain = scheduling.gain(Op::Compress, [("virtual", window)]).unwrap();
    assert!(gain.measured > 1.3, "{gain:?}");
}

#[test]
fn a_slower_device_gets_the_smaller_share() {
    let mut fleet = Fleet::new(3, SOFTWARE, &[DEVICE, DEVICE]);
    fleet.run_s(15);
    let weights = |fleet: &Fleet| {
        ["virtual", "virtual-2"].map(|name| f64::from(fleet.decision(name).unwrap().weight))
    };
    let [one, other] = weights(&fleet);
    assert!((one / other - 1.0).abs() < 0.4, "{one} {other}");
    fleet.devices[1].line = Line { fixed_ns: 30_000.0, ns_per_byte: 1.0 };
    fleet.run_s(12);
    let [one, other] = weights(&fleet);
    assert!(one / other > 1.8, "{one} {other}");
}

#[test]
fn too_few_jobs_decide_nothing() {
    let mut scheduling = Scheduling::new(Nanos::secs(1));
    let sums =
        SizeSums { log2: 12, jobs: 1, work_bytes: 5_000, service_ns: 9_000, ..<_>::default() };
    let mut prng = Prng::new(1);
    let reporters = ["one", "two", "three", "four", "five"];
    for at in 1..2_000_u64 {
        let name = format!("device-{}", prng.bits());
        let reporter = reporters[at as usize / 400];
        let report = |device| JobReport {
            reporter,
            op: Op::Compress,
            device,
            covered: Nanos::secs(1),
            busy: 0.0,
            sizes: std::slice::from_ref(&sums),
        };
        let now = Nanos::millis(at);
        scheduling.observe(&report(&name), now);
        if at < 20 {
            scheduling.observe(&report("software"), now);
        }
        scheduling.decide(now);
        if at == 399 {
            let curves = scheduling.fitted(now).count();
            assert_eq!(curves, 64, "one that makes names up leaves room for others");
        }
    }
    assert_eq!(scheduling.decisions().count(), 0);
    assert_eq!(scheduling.fitted(Nanos::secs(2)).count(), 256);
    assert!(scheduling.left_out > 1_000);
}

#[test]
fn a_lone_reporter_rescales_no_other_size() {
    let mut scheduling = Scheduling::new(Nanos::secs(1));
    let sums = |log2: u32, ns: u64| {
        let work_bytes = 40 * (3 << (log2 - 1));
        SizeSums { log2, jobs: 40, work_bytes, service_ns: 40 * ns, ..SizeSums::default() }
    };
    let honest = [sums(10, 2_000), sums(12, 4_000), sums(14, 12_000)];
    let strange = [sums(4, 4_000_000)];
    let service_ns = |scheduling: &Scheduling, now| {
        let fitted: Vec<_> = scheduling.fitted(now).collect();
        fitted[0].service.service.at(6_144)
    };
    let observe = |scheduling: &mut Scheduling, reporter, covered, sizes: &[SizeSums], now| {
        let (op, device) = (Op::Compress, "software");
        let report = JobReport { reporter, op, device, covered, busy: 0.0, sizes };
        scheduling.observe(&report, now);
    };
    for at in 1..20 {
        for reporter in ["one", "two", "three"] {
            observe(&mut scheduling, reporter, Nanos::secs(1), &honest, Nanos::secs(at));
        }
    }
    let before = service_ns(&scheduling, Nanos::secs(20));
    for at in 0..3 {
        let now = Nanos(Nanos::secs(20).0 + at);
        observe(&mut scheduling, "four", Nanos(0), &strange, now);
    }
    let after = service_ns(&scheduling, Nanos::secs(20));
    assert!((after / before).log2().abs() < 0.5, "{before} ns, then {after} ns");
}
