//! Tests that runs lose no token, that architectures get the same work, and that unanswered requests end.

use std::collections::BTreeMap;

use super::super::ids::KINDS;
use super::super::orchestrators::Architecture;
use super::super::queues::{Central, Hardware, Laxity, PerType, Queues, Software};
use super::super::tests::spec;
use super::*;

/// The settings of a specification in which PEs, entries, a tenant's traces and the time for answers are scarce.
const TIGHT: [(&str, &str); 9] = [
    ("hardware.pes", "1"),
    ("hardware.input_entries", "1"),
    ("hardware.output_entries", "1"),
    ("hardware.overflow_entries", "2"),
    ("tenants.count", "3"),
    ("tenants.traces_max", "4"),
    ("work.remote_ns", "50000"),
    ("work.timeout_ns", "200000"),
    ("hardware.page_fault_share", "0.001"),
];

fn model(architecture: Architecture, per_s: &str, set: &[(&str, &str)]) -> AccelFlow {
    let set: Vec<_> =
        [("load.total_per_s", per_s)].into_iter().chain(set.iter().copied()).collect();
    AccelFlow::new(&spec("steady", &set), architecture, &trace::accelflow()).expect("a model")
}

/// A request as it arrived: its time, its service, the key of its draws, and the bits of its factor for times on cores.
type Came = (Picos, u16, u64, u64);

/// The kind of each step, and its time on a core.
type Work = Vec<(Option<Kind>, f64)>;

/// The results of a window, and the requests that arrived in it.
struct Seen {
    counts: Counts,
    responses: Vec<Vec<u64>>,
    came: Vec<Came>,
}

/// Simulates a window until all its requests have ended.
fn window(model: &AccelFlow, length: Picos) -> Seen {
    match model.queues {
        Queues::Software => window_under::<Software>(model, length),
        Queues::Central => window_under::<Central>(model, length),
        Queues::PerType => window_under::<PerType>(model, length),
        Queues::Laxity => window_under::<Laxity>(model, length),
        Queues::Hardware => window_under::<Hardware>(model, length),
    }
}

fn window_under<D: Discipline>(model: &AccelFlow, length: Picos) -> Seen {
    let streams = Streams::new(7, 3);
    let extent = Extent::WindowPs(length);
    let window = Window { streams: &streams, extent, number: 0, events_max: u64::MAX };
    let mut run = Run::<D>::new(model, &window);
    let mut agenda = Agenda::with_capacity(8);
    run.start(&mut agenda);
    let mut came = Vec::new();
    while let Some(event) = agenda.fire() {
        let next = run.tokens.next();
        assert!(run.handle(event, &mut agenda).is_continue(), "{:?}", run.fault);
        if let Event::Arrive { service } = event {
            let state = &run.tokens[next];
            came.push((agenda.now(), service, state.key, state.app.to_bits()));
        }
    }
    assert_quiet(&run);
    Seen { counts: run.counts, responses: run.responses, came }
}

/// Asserts that no token is in flight and that no token waits, sleeps or occupies anything.
fn assert_quiet<D: Discipline>(run: &Run<'_, D>) {
    let queues = run.model.queues;
    assert_eq!(run.tokens.live(), 0, "{queues:?}: requests or parts were lost");
    assert!(run.discipline.is_empty(), "{queues:?}");
    for (station, kind) in run.stations.iter().zip(KINDS) {
        let pes = station.pes.iter().filter(|pe| pe.token != TokenId::NONE).count();
        let idle = (station.idle(), station.asleep, pes);
        assert_eq!(idle, (station.pes.len(), 0, 0), "{queues:?}: {kind}");
    }
    for tenant in &run.tenants {
        assert_eq!((tenant.live, tenant.held.len()), (0, 0), "{queues:?}");
    }
}

#[test]
fn every_request_ends_whatever_falls_short() {
    for architecture in Architecture::ALL {
        let name = architecture.name();
        let model = model(architecture, "5000", &TIGHT);
        let Seen { counts, responses, came } = window(&model, Picos::millis(300));
        assert!(came.len() > 1_200, "{name}: {}", came.len());
        let mut expected = vec![0; responses.len()];
        came.iter().for_each(|(_, service, ..)| expected[usize::from(*service)] += 1);
        let done: Vec<usize> = responses.iter().map(Vec::len).collect();
        assert_eq!(done, expected, "{name}");
        assert_eq!(counts.requests as usize, came.len(), "{name}");
        assert!(counts.failed > 0 && counts.failed <= counts.timeouts, "{name}");
        if architecture == Architecture::AccelFlow {
            let rare =
                [counts.overflows, counts.fallbacks.iter().sum(), counts.wipes, counts.page_faults];
            assert!(rare.iter().all(|count| *count > 0), "{rare:?}");
        }
    }
}

#[test]
fn architectures_see_the_same_requests_and_the_same_work() {
    // The published numbers of invocations for the requests of each service.
    let invoked = [87, 28, 18, 30, 29, 19, 9, 25];
    let mut first: Option<(Vec<Came>, Work)> = None;
    for architecture in Architecture::ALL {
        let name = architecture.name();
        let model = model(architecture, "2000", &[]);
        let Seen { counts, came, .. } = window(&model, Picos::millis(50));
        let expected: u64 =
            came.iter().map(|(_, service, ..)| invoked[usize::from(*service)]).sum();
        if architecture != Architecture::NonAcc {
            assert_eq!(counts.ops.iter().sum::<u64>(), expected, "{name}");
        }
        // Sizes are a function of a request's key and the step, so the steps have to be the same as well.
        let work = |step: &Step| match step {
            Step::Core { ps, .. } => (None, *ps),
            Step::Op(op) => (Some(op.kind), op.cpu_ps),
            _ => (None, 0.0),
        };
        let work: Work = model.steps.iter().map(work).collect();
        let (requests, steps) = first.get_or_insert_with(|| (came.clone(), work.clone()));
        assert_eq!((&came, &work), (&*requests, &*steps), "{name}");
    }
    let (requests, _) = first.expect("ten architectures");
    assert!(requests.len() > 60, "{}", requests.len());
    let keys: BTreeMap<u64, u64> = requests.iter().map(|(.., key, app)| (*key, *app)).collect();
    assert_eq!(keys.len(), requests.len(), "each draws its own");
}

#[test]
fn branches_are_taken_per_request_and_alike_under_all_architectures() {
    let set = [
        ("branches.to_compress", "0.75"),
        ("branches.compressed", "0.75"),
        ("branches.hit", "0.8"),
        ("branches.found", "0.9"),
        ("branches.cache_compressed", "0.75"),
        ("branches.exception", "0.9"),
    ];
    let mut first = None;
    for architecture in Architecture::ALL.into_iter().filter(|one| *one != Architecture::NonAcc) {
        let model = model(architecture, "2000", &set);
        let Seen { counts, came, .. } = window(&model, Picos::millis(100));
        let ops = counts.ops.iter().sum::<u64>();
        assert_eq!(*first.get_or_insert(ops), ops, "{}", architecture.name());
        // The mean number of ops of each service's requests, over those that came.
        let mean = |service: u16| -> f64 {
            let program = &model.programs[usize::from(service)];
            let steps = program.steps.iter().zip(&program.times);
            steps.filter(|(step, _)| matches!(step, Step::Op(_))).map(|(_, times)| times).sum()
        };
        let expected: f64 = came.iter().map(|(_, service, ..)| mean(*service)).sum();
        let ratio = ops as f64 / expected;
        assert!((ratio - 1.0).abs() < 0.05, "{}: {ratio}", architecture.name());
    }
    let text = "branches.hit is 1.5; it must be";
    assert!(super::super::tests::over_text("steady", "branches.hit", "1.5").contains(text));
}

#[test]
fn who_gets_no_answer_ends_when_a_core_is_told() {
    // No answer arrives within the timeout of one millisecond.
    let set = [("work.remote_ns", "1e12"), ("work.timeout_ns", "1000000")];
    for architecture in [Architecture::NonAcc, Architecture::Relief, Architecture::AccelFlow] {
        let name = architecture.name();
        let model = model(architecture, "2000", &set);
        let Seen { counts, responses, came } = window(&model, Picos::millis(50));
        let unique = model.spec.services().position(|name| name == "UniqId").expect("it is there");
        let asked = came.iter().filter(|(_, service, ..)| usize::from(*service) != unique).count();
        assert!(asked > 40 && asked < came.len(), "{name}: UniqId asks nobody");
        assert_eq!(counts.failed as usize, asked, "{name}");
        for (service, times) in responses.iter().enumerate().filter(|(at, _)| *at != unique) {
            let shortest = times.iter().min().map(|time| Picos(*time));
            assert!(shortest >= Some(Picos::millis(1)), "{name} {service}: {shortest:?}");
        }
        // The steps that follow the answer are not executed.
        let whole: u64 = 28 * came.len() as u64;
        let ops: u64 = counts.ops.iter().sum();
        assert!(ops < whole / 2, "{name}: {ops}");
        assert!(counts.missed >= counts.failed, "{name}");
    }
}
