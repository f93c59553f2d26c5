//! Tests AccelFlow's model against closed forms, for configurations that have one, and against itself: laws that hold
//! for any queue, and results that do not depend on the number of threads.

use sim::accelflow::{AccelFlow, Architecture, Entries, Spec, builtin};
use sim::{Extent, Plan, Recordings, Report, Sample, Simulate, StoredReport, Streams, Verdict};

fn entries(scenario: &str) -> Entries {
    let open = |name: &str| builtin(name).map(str::to_owned).ok_or_else(|| name.to_owned());
    Entries::read(scenario, builtin(scenario).expect("compiled in"), &open).expect("valid")
}

fn model(architecture: Architecture, scenario: &str, set: &[(&str, &str)]) -> (Spec, AccelFlow) {
    let mut entries = entries(scenario);
    for (key, value) in set {
        entries.set(key, value).expect("a key");
    }
    let catalog = trace::accelflow();
    let spec = Spec::read(&entries, &catalog).expect("valid");
    let model = AccelFlow::new(&spec, architecture, &catalog).expect("a model");
    (spec, model)
}

/// Returns settings in which only UniqId gets requests and all its time (100 us) is in one category. Only the queue
/// takes time.
fn alone<'a>(category: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut set = vec![
        ("services.CPost.weight", "1e-6"),
        ("services.ReadH.weight", "1e-6"),
        ("services.StoreP.weight", "1e-6"),
        ("services.Follow.weight", "1e-6"),
        ("services.Login.weight", "1e-6"),
        ("services.CUrls.weight", "1e-6"),
        ("services.RegUsr.weight", "1e-6"),
        ("services.UniqId.weight", "1e3"),
        ("services.UniqId.time_us", "100"),
        ("services.UniqId.tcp", "0"),
        ("services.UniqId.encryption", "0"),
        ("services.UniqId.rpc", "0"),
        ("services.UniqId.serialization", "0"),
        ("services.UniqId.compression", "0"),
        ("services.UniqId.load_balance", "0"),
        ("services.UniqId.app", "0"),
        ("work.size_share", "0"),
        ("hardware.tlb_miss_share", "0"),
        ("hardware.input_entries", "1000000"),
        ("costs.occupancy", "1"),
        ("costs.enqueue_ns", "0"),
        ("accelerators.load-balance.speedup", "1"),
        ("accelerators.load-balance.max_kb", "0.35"),
        ("accelerators.load-balance.median_kb", "0.35"),
    ];
    set.push((category, "1"));
    set.extend(more);
    set
}

/// Returns the mean response time of UniqId (us) over five replications, without their warm-ups.
fn unique_us(architecture: Architecture, set: &[(&str, &str)]) -> f64 {
    let (spec, model) = model(architecture, "steady", set);
    let unique = spec.services().position(|name| name == "UniqId").expect("it is there");
    let mean = |replication| {
        let streams = Streams::new(11, replication);
        let sample = model.replicate(&streams, Extent::Requests(30_000), 1 << 32).expect("a run");
        let kept = &sample.responses[unique][2_000..];
        kept.iter().sum::<u64>() as f64 / kept.len() as f64 * 1e-6
    };
    (0..5).map(mean).sum::<f64>() / 5.0
}

#[test]
fn cores_alone_are_erlangs() {
    // This is M/M/4 at 80 %: C = 0.5964, and the mean wait is C / (4 - 3.2) service times.
    let set = [("hardware.cores", "4"), ("work.app_stages", "1"), ("load.total_per_s", "32000")];
    let found = unique_us(Architecture::NonAcc, &alone("services.UniqId.app", &set));
    let expected = 100.0 * (1.0 + 0.5964 / 0.8);
    assert!((found / expected - 1.0).abs() < 0.03, "{found} us for {expected}");
}

#[test]
fn one_accelerator_alone_is_pollaczeks_and_khinchines() {
    // This is M/D/1 at 60 %: the mean wait is 0.6 / (2 * 0.4) = 0.75 service times. Everything else takes a few
    // nanoseconds.
    let set = [("hardware.pes", "1"), ("load.total_per_s", "6000")];
    for architecture in [Architecture::AccelFlow, Architecture::Direct, Architecture::Ideal] {
        let found = unique_us(architecture, &alone("services.UniqId.load_balance", &set));
        let name = architecture.name();
        let slack = if architecture == Architecture::Direct { 20.0 } else { 2.0 };
        assert!((found - 175.0).abs() < 0.02 * 175.0 + slack, "{name}: {found} us for 175");
    }
}

#[test]
fn data_on_its_way_holds_no_pe() {
    // This is the same queue, but every payload travels for 50 us to reach it. The additional wait stays that of M/D/1.
    // If the PE were held during the travel, it would be busy for 90 % and the wait would be 675 us.
    let at = |per_s| {
        let slow = [("hardware.pes", "1"), ("hardware.dma_setup_ns", "50000")];
        let set = [&slow[..], &[("load.total_per_s", per_s)]].concat();
        unique_us(Architecture::AccelFlow, &alone("services.UniqId.load_balance", &set))
    };
    // At 15 % the wait is 8.8 us.
    let found = at("6000") - at("1500") + 8.8;
    assert!((found - 75.0).abs() < 5.0, "{found} us for 75");
}

fn fact(model: &AccelFlow, sample: &Sample, name: &str) -> f64 {
    let at = model.names().facts.iter().position(|known| known == name).expect("a fact");
    sample.facts[at]
}

#[test]
fn what_is_busy_is_what_comes_times_what_it_takes() {
    // There are nine visits to the manager of 1.5 us. One of them has a branch (T1's), and no payload is large.
    let mut set = alone("services.UniqId.app", &[("load.total_per_s", "20000")]);
    set.push(("costs.manager_branch_ns", "1500"));
    let kinds = ["tcp", "encrypt", "decrypt", "rpc", "serialize", "deserialize"];
    let keys: Vec<[String; 2]> = kinds
        .iter()
        .map(|kind| ["median_kb", "max_kb"].map(|what| format!("accelerators.{kind}.{what}")))
        .collect();
    let small = ["tcp", "encrypt", "decrypt", "rpc", "serialize", "deserialize"]
        .map(|kind| format!("accelerators.{kind}.min_kb"));
    set.extend(small.iter().map(|key| (key.as_str(), "0.1")));
    set.extend(keys.iter().flatten().map(|key| (key.as_str(), "0.5")));
    let (_, relief) = model(Architecture::Relief, "steady", &set);
    let sample =
        relief.replicate(&Streams::new(3, 0), Extent::Requests(40_000), 1 << 32).expect("a run");
    let busy = fact(&relief, &sample, "manager.utilisation");
    let expected = 20_000.0 * (9.0 * 1.5e-6 + 1.5e-6);
    assert!((busy / expected - 1.0).abs() < 0.02, "{busy} for {expected}");
    let cores = fact(&relief, &sample, "cores.utilisation");
    assert!((cores / (20_000.0 * 100e-6 / 36.0) - 1.0).abs() < 0.02, "{cores}");
}

#[test]
fn reports_do_not_depend_on_threads() {
    let (spec, model) = model(Architecture::AccelFlow, "window", &[]);
    let report = |threads| {
        let (replications_min, replications_max) = (6, 6);
        let extent = spec.extent;
        let plan = Plan { extent, threads, replications_min, replications_max, ..Plan::default() };
        plan.run(&model, &|_| {}).expect("a report")
    };
    let one = report(1);
    assert_eq!(one, report(3));
    // A report that a file stores is the same to the last bit when it is read again.
    let kept = serde_json::to_string(&StoredReport::from(&one)).expect("JSON");
    let kept: StoredReport = serde_json::from_str(&kept).expect("as it was written");
    assert_eq!(Report::from(kept), one);
    assert_eq!(one.verdict, Verdict::Window);
    assert!(one.responses.iter().all(|response| response.p99_ns.is_some()));
    assert!(one.across().is_some_and(|across| across.p99_ns.is_some()));
}

#[test]
fn overload_has_no_steady_percentile() {
    let (spec, model) = model(Architecture::Relief, "steady", &[("load.total_per_s", "50000")]);
    let extent = Extent::Requests(2_000);
    let (replications_min, replications_max) = (5, 5);
    let plan = Plan { extent, replications_min, replications_max, ..Plan::default() };
    let report = plan.run(&model, &|_| {}).expect("a report");
    let Verdict::Refused { reason, overload: true, window_ps } = &report.verdict else {
        panic!("not refused")
    };
    assert!(reason.starts_with("the manager: "), "{reason}");
    assert!(window_ps.0 > 0 && report.across().is_none());
    assert!(report.responses.iter().all(|response| response.p99_ns.is_none()));
    assert!(spec.total_per_s() > 49_999.0);
}

#[test]
fn recorded_arrivals_keep_their_shape_at_any_load() {
    let mean_us = |times: &str| {
        let mut entries = entries("steady");
        entries.set("load.process", "recorded").expect("a key");
        entries.set("load.recording", "times.txt").expect("a key");
        entries.record(&mut Recordings::default(), &|_, _| Ok(times.to_owned())).expect("times");
        let spec = Spec::read(&entries, &trace::accelflow()).expect("valid");
        let model = AccelFlow::new(&spec, Architecture::AccelFlow, &trace::accelflow());
        let sample = model.expect("a model").replicate(
            &Streams::new(2, 0),
            Extent::Requests(5_000),
            1 << 32,
        );
        let sample = sample.expect("a run");
        // The rate is 13,400 requests per second, whatever was recorded.
        let rate = 5_000.0 / (sample.duration.as_ns() * 1e-9);
        assert!((rate / 13_400.0 - 1.0).abs() < 0.15, "{rate}");
        let times = sample.responses.concat();
        times.iter().sum::<u64>() as f64 / times.len() as f64 * 1e-6
    };
    // Requests arrive one by one every 100 us, or in groups of fifty every 5 ms.
    let even: String = (0..2_000).map(|at| format!("{}\n", 100 * at)).collect();
    let bursts: String = (0..2_000).map(|at| format!("{}\n", 5_000 * (at / 50))).collect();
    let (even, bursts) = (mean_us(&even), mean_us(&bursts));
    assert!(bursts > 1.2 * even, "{bursts} us and {even} us");
}

#[test]
fn a_paired_reduction_is_narrower_than_its_parts() {
    let set = [("run.requests", "12000")];
    let reports = [Architecture::NonAcc, Architecture::AccelFlow].map(|architecture| {
        let (spec, model) = model(architecture, "steady", &set);
        let (replications_min, replications_max) = (5, 5);
        let extent = spec.extent;
        let plan = Plan { extent, replications_min, replications_max, ..Plan::default() };
        plan.run(&model, &|_| {}).expect("a report")
    });
    let reduction = reports[1].reduction(&reports[0]).expect("one seed").mean;
    let across = reports[1].across().expect("steady").mean_ns;
    assert!(reduction.value > 0.1 && reduction.value < 0.9, "{reduction:?}");
    assert!(reduction.relative_half_width() < across.relative_half_width());
    let other = Report { seed: 2, ..reports[0].clone() };
    assert_eq!(reports[1].reduction(&other), None, "other requests");
}

#[test]
fn bad_values_name_the_key_and_its_range() {
    let bad = [
        ("hardware.pes", "0", "hardware.pes is 0; it must be a whole number from 1 to 255"),
        ("hardware.chiplets", "7", "hardware.chiplets is 7; it must be a whole number from 1 to 6"),
        ("load.total_per_s", "nan", "load.total_per_s is nan; it must be a number from"),
        (
            "load.process",
            "steady",
            "load.process is \"steady\"; it must be poisson, bursty, recorded",
        ),
        ("costs.cohort_pairs", "[\"tcp\"]", "costs.cohort_pairs is [\"tcp\"]; it must be a list"),
        ("load.burst_factor", "6", "load.burst_factor is 6; it must be a number from 1 to 5"),
        ("services.CPost.app", "0.5", "services.CPost.app is 0.5; it must be a number from 0"),
        ("run.requests", "1.5", "run.requests is 1.5; it must be a whole number"),
    ];
    for (key, value, expected) in bad {
        let mut entries = entries("steady");
        entries.set(key, value).expect("a key");
        let error = Spec::read(&entries, &trace::accelflow()).expect_err(key).to_string();
        assert!(error.starts_with(&format!("command line: {expected}")), "{error}");
    }
}

#[test]
fn events_of_a_request_are_few() {
    // The programs give 38.1 events (see a test in `program.rs`). An op that is displaced from a PE costs one more
    // event, and nothing else does.
    let (_, model) = model(Architecture::AccelFlow, "steady", &[("load.total_per_s", "20000")]);
    let sample = model.replicate(&Streams::new(2, 0), Extent::Requests(20_000), 1 << 32);
    let each = fact(&model, &sample.expect("a run"), "events_per_request");
    assert!((each / 38.1 - 1.0).abs() < 0.03, "{each}");
}

#[test]
fn public_relief_lists_forwards_and_is_interrupted_by_dma() {
    let run = |architecture, set: &[(&str, &str)]| {
        let (_, model) = model(architecture, "steady", set);
        let sample = model.replicate(&Streams::new(5, 0), Extent::Requests(6_000), 1 << 32);
        (model.clone(), sample.expect("a run"))
    };
    let of = |(model, sample): &(AccelFlow, Sample), name| fact(model, sample, name);
    let load = ("load.total_per_s", "8000");
    let paper = run(Architecture::Relief, &[load]);
    let public = run(Architecture::ReliefArtifact, &[load]);
    assert_eq!(of(&paper, "ops.forward_share"), 0.0);
    // PEs are mostly idle, so most outputs are taken at once.
    assert!(of(&public, "ops.forward_share") > 0.5, "{}", of(&public, "ops.forward_share"));
    let busy = of(&public, "manager.utilisation");
    assert!(
        (busy / of(&paper, "manager.utilisation") - 1.0).abs() < 0.02,
        "one visit each: {busy}"
    );
    // The manager takes 1.5 us for each op's completion, 1.5 us for its load, and 1.5 us for each write-back.
    let set = [load, ("costs.manager_dma_ns", "1500")];
    let interrupted = of(&run(Architecture::ReliefArtifact, &set), "manager.utilisation");
    assert!(interrupted > 2.0 * busy && interrupted < 3.0 * busy, "{interrupted} and {busy}");
}

#[test]
fn a_steady_state_allocates_nothing_per_event() {
    let (_, model) = model(Architecture::AccelFlow, "steady", &[]);
    let allocations = |requests| {
        let measured = allocation_counter::measure(|| {
            let extent = Extent::Requests(requests);
            model.replicate(&Streams::new(1, 0), extent, 1 << 30).expect("ends");
        });
        measured.count_total
    };
    let (few, many) = (allocations(2_000), allocations(20_000));
    // The lists of response times double their capacity a few more times. The 680,000 further events allocate nothing
    // else.
    assert!(many <= few + 48, "{few} allocations, then {many}");
}
