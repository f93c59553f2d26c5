//! Tests Arcalis' model against the functional version of its engine, against closed forms, and against itself.

use std::sync::mpsc::channel;
use std::thread;

use rpc::services::memcached::Memcached;
use rpc::{
    Address, Code, Command, Completion, DataPage, Engine, Half, Interface, Limits, Memory, Record,
    Reply, State, Unmapped,
};
use sim::arcalis::{Arcalis, Attachment, Seen, Spec, builtin};
use sim::{Entries, Extent, Plan, Sample, Simulate, Streams};

fn spec(scenario: &str, set: &[(&str, &str)]) -> Result<Spec, String> {
    let open = |name: &str| builtin(name).map(str::to_owned).ok_or_else(|| name.to_owned());
    let entries = Entries::read(scenario, builtin(scenario).expect("compiled in"), &open);
    let mut entries = entries.map_err(|error| error.to_string())?;
    for (key, value) in set {
        entries.set(key, value).map_err(|error| error.to_string())?;
    }
    Spec::read(&entries).map_err(|error| error.to_string())
}

fn model(scenario: &str, attachment: Attachment, set: &[(&str, &str)]) -> Arcalis {
    Arcalis::new(&spec(scenario, set).expect("valid"), attachment).expect("a model")
}

fn sample(model: &Arcalis, requests: u64) -> Sample {
    model.replicate(&Streams::new(1, 0), Extent::Requests(requests), 1 << 32).expect("a sample")
}

fn fact(model: &Arcalis, sample: &Sample, name: &str) -> f64 {
    let place = model.names().facts.iter().position(|known| known == name).expect(name);
    sample.facts[place]
}

fn throughput(scenario: &str, attachment: Attachment, set: &[(&str, &str)]) -> f64 {
    let model = model(scenario, attachment, set);
    fact(&model, &sample(&model, 5_000), "throughput_per_s")
}

/// A data page whose operations complete only when the driver says so. The engine therefore drains, as in the model.
#[derive(Default)]
struct Late {
    page: DataPage,
    in_flight: usize,
}

impl Memory for Late {
    fn pair(
        &mut self,
        from: Address,
        length: usize,
        to: Address,
    ) -> Result<(&[u8], &mut [u8]), Unmapped> {
        self.in_flight = 1;
        self.page.pair(from, length, to)
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// Runs the engine on one thread and the application on another, with one packet at a time. Returns what the engine
/// saw.
fn functional(packets: &[Vec<u8>], results: Vec<Vec<u8>>) -> Seen {
    let (mut page, mut seen) = (Late::default(), Seen::default());
    let [net_recv, app_recv, app_resp, net_resp] = [(); 4].map(|()| page.page.map(2_048));
    let mut engine = Engine::new(Limits::default(), std::sync::Arc::new(Memcached));
    let (to_app, requests) = channel::<Vec<u8>>();
    let (to_net, responses) = channel::<Vec<u8>>();
    let app = thread::spawn(move || {
        for (request, result) in requests.into_iter().zip(results) {
            let record = Record::read(&request).expect("a record");
            let mut response = vec![0; 2_048];
            let mut reply = Reply::to(&record, &mut response).expect("room");
            let place = reply.body.copy(rpc::flat::View::new(&result)).expect("room");
            let length = reply.seal(place);
            response.truncate(length);
            to_net.send(response).expect("the other thread is there");
        }
    });
    let issue = |engine: &mut Engine, seen: &mut Seen, command: Command| {
        seen.words[command.interface() as usize - 1].push(command.word());
        engine.issue(command.interface(), command.word()).expect("taken");
    };
    issue(&mut engine, &mut seen, Command::AppReadyFlag(app_recv));
    for packet in packets {
        page.page.bytes_mut(net_recv).expect("mapped")[..packet.len()].copy_from_slice(packet);
        issue(&mut engine, &mut seen, Command::SendNetBuf(net_recv));
        issue(&mut engine, &mut seen, Command::SendNetLen(packet.len() as u64));
        issue(&mut engine, &mut seen, Command::DpdkNetFlag(net_resp));
        let done = settle(&mut engine, &mut page, &mut seen, Interface::AppRecv);
        to_app
            .send(page.page.bytes(app_recv).expect("mapped")[..done.length].to_vec())
            .expect("up");
        let response = responses.recv().expect("an answer");
        let place = page.page.bytes_mut(app_resp).expect("mapped");
        place[..response.len()].copy_from_slice(&response);
        issue(&mut engine, &mut seen, Command::SendAppBuf(app_resp));
        issue(&mut engine, &mut seen, Command::SendAppResp(response.len() as u64));
        issue(&mut engine, &mut seen, Command::AppReadyFlag(app_recv));
        let done = settle(&mut engine, &mut page, &mut seen, Interface::NetResp);
        seen.frames.push(page.page.bytes(net_resp).expect("mapped")[..done.length].to_vec());
    }
    drop(to_app);
    app.join().expect("no panic");
    seen
}

/// Steps both halves until neither moves. Returns the completion of this interface's read.
fn settle(engine: &mut Engine, page: &mut Late, seen: &mut Seen, read: Interface) -> Completion {
    loop {
        let step = engine.step_rx(page).or_else(|| engine.step_tx(page));
        match step {
            Some(step) => seen.states[usize::from(step.half == Half::Tx)].push(step.to),
            None if page.in_flight > 0 => page.in_flight = 0,
            None => break,
        }
    }
    let done = engine.take(read).expect("a completion");
    assert_eq!(done.code, Code::Done);
    done
}

/// Returns the words without addresses, because each driver chooses the addresses of its buffers.
fn without_addresses(words: &[Vec<u64>; 4]) -> Vec<Vec<u64>> {
    let one = |word: &u64| match Command::decode(*word).expect("a command") {
        Command::SendNetLen(_) | Command::SendAppResp(_) => *word,
        _ => word & 15,
    };
    words.iter().map(|words| words.iter().map(one).collect()).collect()
}

/// Returns the states with both idle states replaced by the same state. With several requests in flight, the
/// end of a request is often the beginning of the next.
fn at_rest(states: &[Vec<State>; 2]) -> Vec<Vec<State>> {
    let one = |state: &State| if *state == State::IdleResp { State::IdleRecv } else { *state };
    states.iter().map(|states| states.iter().map(one).collect()).collect()
}

#[test]
fn the_timed_engine_sees_what_the_functional_one_sees() {
    for window in ["1", "4"] {
        let model = model("arcalis", Attachment::NearCache, &[("run.window", window)]);
        let (_, timed) = model.observe(&Streams::new(3, 0), 300).expect("a run");
        assert_eq!((timed.packets.len(), timed.frames.len()), (300, 300));
        assert!(timed.states.iter().all(|states| states.contains(&State::Drain)));
        let functional = functional(&timed.packets, timed.results.clone());
        assert_eq!(without_addresses(&timed.words), without_addresses(&functional.words));
        assert_eq!(timed.frames, functional.frames);
        if window == "1" {
            assert_eq!(timed.states, functional.states);
        } else {
            assert!(timed.states[0].contains(&State::IdleResp), "more is there when one ends");
            assert_eq!(at_rest(&timed.states), at_rest(&functional.states));
        }
    }
}

#[test]
fn an_application_core_works_or_waits() {
    for workload in ["memc_low", "post_mid", "unique_id"] {
        let model = model("arcalis", Attachment::Upi, &[("run.workload", workload)]);
        let sample = sample(&model, 4_000);
        let stages = ["app_wait_ns", "app_handler_ns", "app_bytes_ns", "app_issue_ns"];
        let cycle: f64 = stages.iter().map(|stage| fact(&model, &sample, stage)).sum();
        let per_s = fact(&model, &sample, "throughput_per_s");
        assert!((cycle * per_s * 1e-9 - 1.0).abs() < 2e-3, "{workload}: {cycle} ns, {per_s}/s");
    }
}

#[test]
fn one_request_takes_its_stages_and_four_crossings() {
    let set =
        [("run.window", "1"), ("attachment.near_cache_ns", "300"), ("shapes.value_bytes", "0")];
    let model = model("arcalis", Attachment::NearCache, &set);
    let sample = sample(&model, 500);
    let value = |name: &str| fact(&model, &sample, name);
    let stages = [
        "net_ns",
        "rx_header_ns",
        "rx_deserialize_ns",
        "rx_memory_ns",
        "rx_finish_ns",
        "tx_serialize_ns",
        "tx_memory_ns",
        "tx_finish_ns",
        "app_handler_ns",
        "app_bytes_ns",
        "app_issue_ns",
    ];
    let sum: f64 = stages.into_iter().map(value).sum();
    // The command interface handles six items one after another: two words, a completion, two words and a completion.
    let commands = 6.0 * 4.0;
    let crossings = 4.0 * 150.0;
    let per_request = 1e9 / value("throughput_per_s");
    let expected = sum + commands + crossings;
    assert!((per_request - expected).abs() < 1.0, "{per_request} {expected}");
}

#[test]
fn fitted_numbers_are_met() {
    let of = |scenario, workload, attachment| {
        throughput(scenario, attachment, &[("run.workload", workload)]) * 1e-3
    };
    let near = |found: f64, published: f64| {
        assert!((found / published - 1.0).abs() < 0.02, "{found} {published}");
    };
    for (workload, per_s, speedup) in
        [("memc_low", 248.0, 4.16), ("memc_high", 258.0, 3.05), ("post_high", 74.0, 1.79)]
    {
        let found = of("arcalis", workload, Attachment::NearCache);
        near(found, per_s);
        near(found / of("arcalis", workload, Attachment::Cpu), speedup);
    }
    near(of("arcalis", "unique_id", Attachment::Cpu), 25.0);
    near(of("arcalis-dagger", "set_50", Attachment::NearCache), 1_000.0);
}

#[test]
fn nearer_is_faster_and_a_cache_and_two_engines_help() {
    let all = Attachment::ENGINES.map(|attachment| throughput("arcalis", attachment, &[]));
    assert!(all.is_sorted_by(|near, far| near > far), "{all:?}");
    assert!(all[3] > throughput("arcalis", Attachment::Cpu, &[]));
    let with = |set| throughput("arcalis", Attachment::NearCache, &[set]);
    assert!(with(("engine.cache_kib", "0")) < 0.9 * all[0]);
    assert!(with(("engine.decoupled", "no")) < all[0]);
    assert!((with(("engine.cache_kib", "2048")) / all[0] - 1.0).abs() < 1e-3);
    assert!(with(("run.window", "1")) < all[0]);
}

#[test]
fn faults_are_retried_and_nothing_is_lost() {
    for share in ["0.05", "0.5"] {
        let set = [
            ("memory.fault_share", share),
            ("memory.page_kib", "4"),
            ("memory.tlb_entries", "2"),
            ("run.workload", "post_mid"),
        ];
        let model = model("arcalis", Attachment::NearCache, &set);
        let sample = sample(&model, 2_000);
        assert_eq!(sample.responses.iter().map(Vec::len).sum::<usize>(), 2_000);
        assert!(fact(&model, &sample, "faults_per_request") > 0.1);
        assert!(fact(&model, &sample, "walks_per_request") > 2.0);
        assert!(fact(&model, &sample, "rx_memory_ns") > 60.0);
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let model = model("arcalis", Attachment::NearCache, &[]);
    let report = |threads| {
        let extent = Extent::Requests(2_000);
        let plan = Plan { extent, threads, replications_min: 6, ..Plan::default() };
        serde_json::to_string(&plan.run(&model, &|_| {}).expect("a report")).expect("JSON")
    };
    assert_eq!(report(1), report(3));
}

#[test]
fn bad_keys_name_their_place_and_valid_values() {
    let refused = |key, value| spec("arcalis", &[(key, value)]).expect_err("invalid");
    for (key, value, expected) in [
        ("run.window", "0", "run.window is 0; it must be a whole number from 1 to 16"),
        ("run.workload", "web", "run.workload is \"web\"; it must be memc_high, memc_low,"),
        ("memory.page_kib", "8", "memory.page_kib is 8; it must be 4 or 2048"),
        ("memory.fault_share", "0.9", "memory.fault_share is 0.9; it must be a number from 0 to"),
        ("workloads.memc_low.set", "0.9", "workloads.memc_low: its shares are 1.7 together; they"),
        ("workloads.unique_id.compose_unique_id", "0.5", "workloads.unique_id: its shares are 0.5"),
        ("engine.speed", "1", "unknown key engine.speed; engine has cache_kib"),
    ] {
        let error = refused(key, value);
        assert!(error.starts_with("command line: ") && error.contains(expected), "{error}");
    }
    let open = |name: &str| builtin(name).map(str::to_owned).ok_or_else(|| name.to_owned());
    let text = "base = \"arcalis.toml\"\n[workloads.mine]\n\
               get = { value = 0.5, kind = \"assumed\", source = \"s\" }\n\
               read_post = { value = 0.5, kind = \"assumed\", source = \"s\" }\n";
    let entries = Entries::read("own.toml", text, &open).expect("well formed");
    let error = Spec::read(&entries).expect_err("two services").to_string();
    assert!(error.starts_with("own.toml:4: workloads.mine.read_post: "), "{error}");
    let large = spec("arcalis", &[("shapes.value_bytes", "4000")]).expect("in range");
    let error = Arcalis::new(&large, Attachment::NearCache).expect_err("too long");
    assert_eq!(error, "a message of set is longer than memory.buffer_bytes, 2048");
}
