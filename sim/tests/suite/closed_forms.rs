//! Tests the simulator against queueing theory. Seeds are fixed, so a test that passes once always passes. Each
//! estimate must be within 2 % of theory, and theory must be within twice the half-width of the interval.
#![allow(missing_docs)]

use crate::common::*;
use sim::*;

#[track_caller]
fn agrees(what: &str, found: Option<Interval>, theory: f64) {
    let found = found.unwrap_or_else(|| panic!("{what} is not reported"));
    let reach = found.ci95[1] - found.value;
    let off = (found.value - theory).abs();
    assert!(off <= 2.0 * reach + 1e-9, "{what}: {found:?}, theory {theory}");
    assert!(off <= 0.02 * theory, "{what}: {found:?}, theory {theory}");
}

#[track_caller]
fn mean_agrees(report: &Report, theory: f64) {
    assert_eq!(report.verdict, Verdict::Steady);
    agrees("mean", report.response("web").expect("measured").mean_ns, theory);
}

/// Returns the mean response time of one server (ns) by the Pollaczek-Khinchine formula, for Poisson arrivals and
/// service times with the squared coefficient of variation `cv2`.
fn one_server(load: f64, cv2: f64) -> f64 {
    SERVICE_NS + load * SERVICE_NS * (1.0 + cv2) / 2.0 / (1.0 - load)
}

/// Returns the probability of waiting by the Erlang C formula, from the recurrence of Erlang B.
fn erlang_c(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let b = (1..=servers).fold(1.0, |b, count| offered * b / (f64::from(count) + offered * b));
    b / (1.0 - load * (1.0 - b))
}

#[test]
fn one_exponential_server() {
    let report = study(&plan(60_000), &queue(1, 0.7, exponential()));
    let mean = SERVICE_NS / 0.3;
    mean_agrees(&report, mean);
    agrees("p99", report.responses[0].p99_ns, 100f64.ln() * mean);
    agrees("waited", report.fact("cpu.waited"), 0.7);
    agrees("utilisation", report.fact("cpu.utilisation"), 0.7);
    agrees("wait", report.fact("cpu.wait_ns"), 0.7 * mean);
}

#[test]
fn eight_servers_wait_as_erlang_says() {
    let report = study(&plan(100_000), &queue(8, 0.8, exponential()));
    let waited = erlang_c(8, 0.8);
    agrees("waited", report.fact("cpu.waited"), waited);
    mean_agrees(&report, SERVICE_NS + waited * SERVICE_NS / 8.0 / 0.2);
}

#[test]
fn one_server_with_less_and_with_more_spread() {
    let fixed = DurationSpec::Fixed { ns: SERVICE_NS };
    mean_agrees(&study(&plan(60_000), &queue(1, 0.7, fixed)), one_server(0.7, 0.0));
    let erlang = DurationSpec::Erlang { mean_ns: SERVICE_NS, stages: 4 };
    mean_agrees(&study(&plan(60_000), &queue(1, 0.7, erlang)), one_server(0.7, 0.25));
    let spread = DurationSpec::Hyperexponential { mean_ns: SERVICE_NS, cv2: 4.0 };
    mean_agrees(&study(&plan(150_000), &queue(1, 0.5, spread)), one_server(0.5, 4.0));
}

#[test]
fn a_tandem_is_the_sum_of_its_stations() {
    let half = DurationSpec::Exponential { mean_ns: SERVICE_NS / 2.0 };
    let stations = vec![
        station("first", serve(1, exponential()), &["think"]),
        station("think", StationKind::Delay { time: exponential() }, &["second"]),
        station("second", serve(1, half), &[]),
    ];
    let theory = SERVICE_NS / 0.4 + SERVICE_NS + SERVICE_NS / 2.0 / 0.7;
    mean_agrees(&study(&plan(60_000), &network(0.6, stations)), theory);
}

#[test]
fn feedback_loads_a_jackson_network_by_its_visits() {
    // Half of the requests return, so each is served twice on average and the load doubles.
    let stations = vec![station("cpu", serve(1, exponential()), &["cpu", "done"])];
    let spec = network(0.3, stations);
    let network = Network::new(&spec).expect("valid");
    let load = network.loads()[0].1.expect("a station with servers");
    assert!((load - 0.6).abs() < 1e-9, "{load}");
    mean_agrees(&study(&plan(60_000), &spec), 2.0 * SERVICE_NS / 0.4);
}

#[test]
fn forks_of_two_and_four_match_theory() {
    let forked = |branches: &[&str]| {
        let fork =
            StationKind::Fork { branches: branches.iter().map(|&name| name.to_owned()).collect() };
        let mut stations = vec![station("fork", fork, &[])];
        stations.extend(branches.iter().map(|name| station(name, serve(1, exponential()), &[])));
        study(&plan(60_000), &network(0.6, stations))
    };
    let single = SERVICE_NS / 0.4;
    // The result of Flatto and Hahn for two parallel exponential servers.
    mean_agrees(&forked(&["a", "b"]), (12.0 - 0.6) / 8.0 * single);
    // The bound of Nelson and Tantawi: the response is at most as slow as with independent branches.
    let four = forked(&["a", "b", "c", "d"]).responses[0].mean_ns.expect("steady");
    let harmonic = 1.0 + 1.0 / 2.0 + 1.0 / 3.0 + 1.0 / 4.0;
    assert!(four.ci95[0] > 1.5 * single && four.ci95[1] < harmonic * single, "{four:?}");
}

#[test]
fn without_places_to_wait_requests_are_refused_as_erlang_says() {
    let mut spec = queue(4, 0.9, exponential());
    let StationKind::Serve { waiting_max, .. } = &mut spec.stations[0].does else { panic!() };
    *waiting_max = Some(0);
    let b = (1..=4).fold(1.0, |b, count| 3.6 * b / (f64::from(count) + 3.6 * b));
    let report = study(&plan(60_000), &spec);
    agrees("refused", report.fact("cpu.refused"), b);
    mean_agrees(&report, SERVICE_NS);

    // Refused requests go to a spare station, and none is lost.
    let StationKind::Serve { overflow, .. } = &mut spec.stations[0].does else { panic!() };
    *overflow = Some("spare".to_owned());
    spec.stations.push(station("spare", StationKind::Delay { time: exponential() }, &[]));
    let report = study(&plan(60_000), &spec);
    assert_eq!(report.responses[0].requests + report.responses[0].warm_up, 600_000);
    mean_agrees(&report, SERVICE_NS);
}

#[test]
fn a_link_is_a_server_and_a_delay() {
    let bytes = workload_sizes();
    let link = StationKind::Link {
        bytes_per_s: 1_000_000_000,
        latency_ns: 250.0,
        bytes,
        buffer_bytes: None,
    };
    let report = study(&plan(60_000), &network(0.7, vec![station("wire", link, &[])]));
    mean_agrees(&report, one_server(0.7, 0.0) + 250.0);
    agrees("utilisation", report.fact("wire.utilisation"), 0.7);
}

/// Returns a size of a thousand bytes. At one byte per nanosecond it takes one service time.
fn workload_sizes() -> workload::SizeDist {
    workload::SizeDist::Fixed { bytes: SERVICE_NS as u64 }
}

#[test]
fn priorities_wait_as_cobham_says() {
    let mut spec = queue(1, 0.5, exponential());
    let StationKind::Serve { discipline, .. } = &mut spec.stations[0].does else { panic!() };
    *discipline = Discipline::Priority;
    let class = |name: &str, load, priority| SourceSpec { priority, ..source(name, load, "cpu") };
    spec.sources = vec![class("batch", 0.4, 1), class("urgent", 0.3, 0)];
    let report = study(&plan(100_000), &spec);
    let left = 0.7 * SERVICE_NS;
    let mean = |name| report.response(name).expect("measured").mean_ns;
    agrees("urgent", mean("urgent"), SERVICE_NS + left / 0.7);
    agrees("batch", mean("batch"), SERVICE_NS + left / 0.7 / 0.3);
}

#[test]
fn equal_deadlines_are_first_come_first_served() {
    let fifo = queue(2, 0.8, exponential());
    let mut due = fifo.clone();
    due.sources[0].deadline_ns = Some(5_000.0);
    let StationKind::Serve { discipline, .. } = &mut due.stations[0].does else { panic!() };
    *discipline = Discipline::Deadline;
    let sample = |spec: &NetworkSpec| {
        let network = Network::new(spec).expect("valid");
        network.replicate(&Streams::new(1, 0), Extent::Requests(5_000), 1 << 20).expect("ends")
    };
    assert_eq!(sample(&fifo), sample(&due));
}

#[test]
fn a_burst_without_contrast_is_poisson() {
    let bursty = |on: f64, off: f64| {
        let mut spec = queue(1, 0.5, exponential());
        let per_s = 1e9 / SERVICE_NS;
        spec.sources[0].arrivals = ArrivalSpec::Bursty {
            on_per_s: on * per_s,
            off_per_s: off * per_s,
            on_mean_ns: 20.0 * SERVICE_NS,
            off_mean_ns: 20.0 * SERVICE_NS,
        };
        study(&plan(60_000), &spec)
    };
    mean_agrees(&bursty(0.6, 0.6), SERVICE_NS / 0.4);
    let burst = bursty(1.2, 0.0).responses[0].mean_ns.expect("steady");
    assert!(burst.ci95[0] > 1.5 * SERVICE_NS / 0.4, "{burst:?}");
}
