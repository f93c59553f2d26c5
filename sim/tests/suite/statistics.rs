//! Tests what a study promises: intervals that cover the true value, a verdict on runs without a steady state, a stop
//! at the requested precision, the same bytes from the same seed, and no allocation per event.
#![allow(missing_docs)]

use crate::common::*;
use sim::*;

#[test]
fn intervals_cover_the_truth_as_often_as_they_say() {
    let (mean, studies) = (SERVICE_NS / 0.5, 60);
    let network = Network::new(&queue(1, 0.5, exponential())).expect("valid");
    let mut covered = [0, 0];
    for seed in 0..studies {
        let report = Plan { seed, ..plan(4_000) }.run(&network, &|_| ()).expect("ends");
        let response = &report.responses[0];
        let truths = [(response.mean_ns, mean), (response.p99_ns, 100f64.ln() * mean)];
        for (count, (interval, truth)) in covered.iter_mut().zip(truths) {
            // A study that refuses the steady state has no interval, so nothing covers the true value.
            *count += u32::from(interval.is_some_and(|interval| interval.holds(truth)));
        }
    }
    // The expected number is 95 % of 60, which is 57. A number below 51 has a probability of 0.1 %.
    assert!(covered.iter().all(|count| *count >= 51), "{covered:?} of {studies}");
    assert!(covered.iter().any(|count| *count < 60), "intervals that never miss are too wide");
}

#[test]
fn an_overloaded_station_has_no_steady_state() {
    let spec = queue(2, 1.1, exponential());
    let report = study(&plan(20_000), &spec);
    let Verdict::Refused { reason, overload: true, window_ps } = &report.verdict else {
        panic!("{report:?}")
    };
    assert_eq!(reason, "station cpu is offered 1.100 times what it can do");
    assert_eq!((report.responses[0].mean_ns, report.responses[0].p99_ns), (None, None));
    assert_eq!(report.fact("cpu.utilisation"), None, "of an overload nothing is said");

    // The window that the verdict offers can be simulated.
    let window = Plan { extent: Extent::WindowPs(*window_ps), ..plan(1) };
    let report = study(&window, &spec);
    assert_eq!(report.verdict, Verdict::Window);
    assert!(report.responses[0].p99_ns.is_some_and(|p99| p99.value > 10.0 * SERVICE_NS));
}

#[test]
fn an_overload_behind_a_large_buffer_shows_as_drift() {
    let mut spec = queue(1, 1.1, exponential());
    let StationKind::Serve { waiting_max, .. } = &mut spec.stations[0].does else { panic!() };
    *waiting_max = Some(1 << 20);
    let report = study(&plan(20_000), &spec);
    let Verdict::Refused { reason, .. } = &report.verdict else { panic!("{report:?}") };
    assert!(reason.starts_with("web: "), "{reason}");
    assert_eq!(report.responses[0].p99_ns, None);
}

#[test]
fn a_high_load_that_is_steady_is_not_refused() {
    for seed in 1..=5 {
        let report = study(&Plan { seed, ..plan(100_000) }, &queue(1, 0.9, exponential()));
        assert_eq!(report.verdict, Verdict::Steady, "seed {seed}");
    }
}

#[test]
fn a_study_ends_at_the_requested_precision() {
    let spec = queue(1, 0.7, exponential());
    let wanted = Plan { precision: Some(0.02), ..plan(20_000) };
    let report = study(&wanted, &spec);
    assert!(
        report.precise == Some(true) && report.replications > 10 && report.replications < 200,
        "{report:?}"
    );
    for response in &report.responses {
        let intervals = [response.mean_ns, response.p99_ns].map(|one| one.expect("steady"));
        assert!(intervals.iter().all(|one| one.relative_half_width() <= 0.02));
    }
    let report = study(&Plan { replications_max: 15, ..wanted }, &spec);
    assert!(report.precise == Some(false) && report.replications == 15);
}

#[test]
fn common_random_numbers_make_differences_sharper() {
    let report = |servers: u32| {
        let stations = vec![station("cpu", serve(servers, exponential()), &[])];
        study(&plan(20_000), &network(2.4, stations))
    };
    let (three, four) = (report(3), report(4));
    let difference = three.difference(&four, "web").expect("one seed, one extent");
    let alone = three.responses[0].mean_ns.expect("steady");
    let reach = |interval: Interval| interval.ci95[1] - interval.value;
    assert!(difference.mean_ns.ci95[0] > 0.0, "{difference:?}");
    assert!(reach(difference.mean_ns) < reach(alone), "{difference:?} {alone:?}");
    let other = study(&Plan { seed: 2, ..plan(20_000) }, &queue(3, 0.8, exponential()));
    assert_eq!(three.difference(&other, "web"), None, "other seeds share nothing");
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let spec = busy_network();
    let bytes = |threads, seed| {
        let plan = Plan { threads, seed, precision: Some(0.05), ..plan(20_000) };
        serde_json::to_string(&study(&plan, &spec)).expect("a report is JSON")
    };
    let one = bytes(1, 1);
    assert_eq!(one, bytes(2, 1));
    assert_eq!(one, bytes(5, 1));
    assert_ne!(one, bytes(2, 2));
    // The report is the same on any machine. A change of this number requires a change of the version.
    assert_eq!(hash(&one), EXPECTED, "{one}");
}

const EXPECTED: u64 = 5_758_993_266_903_591_044;

/// Returns the 64-bit FNV-1a hash.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns a network with every kind of station, source and route.
fn busy_network() -> NetworkSpec {
    toml::from_str(
        r#"
        [[sources]]
        name = "web"
        to = "cpu"
        priority = 1
        [sources.arrivals.bursty]
        on_per_s = 1.5e6
        off_per_s = 1e5
        on_mean_ns = 2e4
        off_mean_ns = 3e4

        [[sources]]
        name = "batch"
        to = "cpu"
        deadline_ns = 5e4
        arrivals = { recorded = { gaps_ns = [900, 2500, 3100, 700], random_start = true } }

        [[stations]]
        name = "cpu"
        next = [{ to = "fan", share = 0.5 }, { to = "wire", share = 0.3 }, { to = "done", share = 0.2 }]
        [stations.does.serve]
        servers = 3
        discipline = "priority"
        waiting_max = 40
        overflow = "spare"
        service = { hyperexponential = { mean_ns = 1200, cv2 = 3 } }

        [[stations]]
        name = "spare"
        does = { delay = { time = { erlang = { mean_ns = 4000, stages = 3 } } } }

        [[stations]]
        name = "fan"
        next = [{ to = "wire" }]
        does = { fork = { branches = ["left", "right", "left"] } }

        [[stations]]
        name = "left"
        [stations.does.serve]
        servers = 2
        discipline = "deadline"
        service = { quantiles = { points = [[0, 100], [0.9, 700], [1, 4000]] } }

        [[stations]]
        name = "right"
        [stations.does.serve]
        servers = 1
        waiting_max = 8
        [stations.does.serve.service.bytes]
        sizes = { uniform = { min_bytes = 64, max_bytes = 2048 } }
        fixed_ns = 50
        ns_per_byte = 0.4

        [[stations]]
        name = "wire"
        [stations.does.link]
        bytes_per_s = 2_000_000_000
        latency_ns = 25
        buffer_bytes = 65536
        bytes = { fixed = { bytes = 1024 } }
        "#,
    )
    .expect("the text is a network")
}

#[test]
fn requests_in_flight_and_windows_are_bounded() {
    let mut spec = queue(1, 2.0, exponential());
    spec.tokens_max = 100;
    let network = Network::new(&spec).expect("valid");
    let error = plan(10_000).run(&network, &|_| ()).expect_err("the queue grows");
    let text = error.to_string();
    assert!(text.starts_with("replication 0: at ") && text.contains("100 requests"), "{text}");
    let error = Plan { events_max: 500, ..plan(10_000) }.run(&network, &|_| ());
    assert!(error.expect_err("the events run out").to_string().contains("tokens_max"), "first");
    let steady = Network::new(&queue(1, 0.1, exponential())).expect("valid");
    let error = Plan { events_max: 500, ..plan(10_000) }.run(&steady, &|_| ());
    assert!(error.expect_err("the events run out").to_string().contains("events_max"));
}

#[test]
fn faults_in_a_network_name_place_and_valid_values() {
    let fault = |change: &dyn Fn(&mut NetworkSpec)| {
        let mut spec = queue(1, 0.5, exponential());
        change(&mut spec);
        Network::new(&spec).expect_err("invalid").to_string()
    };
    let does = |spec: &mut NetworkSpec, does| spec.stations[0].does = does;
    assert_eq!(
        fault(&|spec| spec.sources[0].to = "gpu".to_owned()),
        "sources.web.to is gpu; it must name a station: cpu"
    );
    assert_eq!(
        fault(&|spec| does(spec, serve(0, exponential()))),
        "stations.cpu.does.serve.servers is 0; it must be a number from 1 to 1e6"
    );
    assert!(fault(&|spec| spec.stations.clear()).starts_with("stations is a list of 0;"));
    assert!(fault(&|spec| spec.stations[0].name = "done".to_owned()).contains("stations[0].name"));
    let next = |to: &str, share| vec![RouteSpec { to: to.to_owned(), share }];
    assert!(fault(&|spec| spec.stations[0].next = next("cpu", 1.0)).contains("without an end"));
    let breeds = |spec: &mut NetworkSpec| {
        let branches = vec!["cpu".to_owned(); 2];
        spec.stations.push(station("fork", StationKind::Fork { branches }, &[]));
        spec.stations[0].next = next("fork", 1.0);
    };
    assert!(fault(&breeds).contains("without an end"));
    assert!(fault(&|spec| spec.stations[0].next = next("done", 0.5)).contains("must sum to 1"));
    let circle = |spec: &mut NetworkSpec| {
        let StationKind::Serve { waiting_max, overflow, .. } = &mut spec.stations[0].does else {
            panic!()
        };
        (*waiting_max, *overflow) = (Some(1), Some("cpu".to_owned()));
    };
    assert!(fault(&circle).starts_with("stations.cpu.does.serve.overflow is a circle;"));
}

#[test]
fn steady_state_allocates_nothing_per_event() {
    let network = Network::new(&queue(8, 0.8, exponential())).expect("valid");
    let allocations = |requests| {
        let extent = Extent::Requests(requests);
        let measured = allocation_counter::measure(|| {
            network.replicate(&Streams::new(1, 0), extent, 1 << 30).expect("ends");
        });
        measured.count_total
    };
    let (few, many) = (allocations(10_000), allocations(200_000));
    // Buffers double a few more times for a longer queue. The 380,000 further events allocate nothing else.
    assert!(many <= few + 8, "{few} allocations, then {many}");
}
