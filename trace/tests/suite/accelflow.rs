//! Tests the traces and services of \[AccelFlow\]. It checks every count that the paper's tables
//! print, and the statements of the paper's text about single traces.

use trace::{
    ACCELFLOW, Base, Block, Condition, Draft, End, Format, Head, Trace, Wrap, accelflow, dump,
    explain, format, seq, trans, walk,
};
use units::Op;

fn ops(name: &str, set: &[&str]) -> usize {
    let catalog = accelflow();
    let trace = catalog.trace(name).expect("it is there");
    walk(trace, &mut |field| u32::from(set.contains(&field))).ops.len()
}

#[test]
fn services_invoke_as_many_accelerators_as_table_iv_says() {
    let catalog = accelflow();
    let counts: Vec<(&str, u64)> = catalog
        .services()
        .iter()
        .map(|service| (service.name.as_str(), catalog.invocations(service)))
        .collect();
    let published = [
        ("CPost", 87),
        ("ReadH", 28),
        ("StoreP", 18),
        ("Follow", 30),
        ("Login", 29),
        ("CUrls", 19),
        ("UniqId", 9),
        ("RegUsr", 25),
    ];
    assert_eq!(counts, published);
}

#[test]
fn traces_invoke_what_the_figures_draw() {
    let counts = [
        ("T1", &[][..], 5),
        ("T1", &["compressed"], 6),
        ("T2", &[], 4),
        ("T3", &[], 5),
        ("T4", &[], 3),
        ("T5", &["hit"], 4),
        ("T5", &["hit", "compressed"], 5),
        ("T5", &[], 6),
        ("T6", &["found"], 7),
        ("T6", &["found", "compressed", "cache-compressed"], 9),
        ("T6", &[], 3),
        ("T7", &[], 4),
        ("T7", &["exception"], 3),
        ("T8", &[], 3),
        ("T8", &["to-compress"], 4),
        ("T9", &[], 4),
        ("T9", &["to-compress"], 5),
        ("T10", &[], 5),
        ("T10", &["compressed"], 6),
        ("T11", &[], 2),
        ("T11", &["to-compress"], 3),
        ("T12", &[], 3),
        ("T12", &["compressed"], 4),
        ("error", &[], 4),
    ];
    for (name, set, count) in counts {
        assert_eq!(ops(name, set), count, "{name} with {set:?}");
    }
}

#[test]
fn every_trace_fits_a_cache_line() {
    let catalog = accelflow();
    for trace in catalog.traces() {
        let bytes = catalog.encode(&trace.name, Head::default()).expect("it is there");
        assert!(bytes.len() <= 64, "{}: {} bytes", trace.name, bytes.len());
        let decoded = catalog.decode(&trace.name, &bytes).expect("its own bytes");
        assert_eq!(decoded, (trace.clone(), Head::default()));
    }
    assert!(catalog.encode("T6", Head::default()).expect("it is there").len() > 8);
}

#[test]
fn the_example_of_the_format_is_t1() {
    let bytes = accelflow().encode("T1", Head::default()).expect("it is there");
    let page = include_str!("../../../docs/format.md");
    assert!(page.contains(&dump(&bytes)), "{}", dump(&bytes));
}

#[test]
fn listing_1_builds_t1() {
    let request = Format::new(Base::Protobuf)
        .within(Wrap::Message)
        .and_then(|message| message.within(Wrap::Encrypted))
        .expect("two wraps fit");
    let path = seq([Op::Tcp, Op::Decrypt, Op::Rpc, Op::Deserialize])
        .branch(
            Condition::flag("compressed"),
            trans(Base::Json, Base::String).seq([Op::Decompress]),
            Block::empty(),
        )
        .seq([Op::LoadBalance])
        .notify();
    let built = Trace::new("T1", request, path);
    assert_eq!(accelflow().trace("T1"), Some(&built));
}

#[test]
fn asterisks_are_waits() {
    let catalog = accelflow();
    let follows = |name: &str| -> Vec<String> {
        let trace = catalog.trace(name).expect("it is there");
        trace.follows().into_iter().map(End::to_string).collect()
    };
    assert_eq!(follows("T4"), ["await T5"]);
    assert_eq!(follows("T5"), ["await T6"]);
    assert_eq!(follows("T6"), ["await T7", "tail error"]);
    assert_eq!(follows("T9"), ["await T10"]);
    assert_eq!(follows("T1"), [""; 0]);
}

#[test]
fn the_texts_are_in_the_canonical_layout() {
    for (name, text) in ACCELFLOW {
        assert_eq!(format(name, text).expect("it can be read"), text, "{name}: run trace fmt");
    }
}

#[test]
fn a_path_that_skips_what_was_awaited_is_refused() {
    let draft = accelflow().into_draft();
    let broken = trace::draft("x", "service x {\nrun T4\ncpu\nrun T2\n}").expect("it can be read");
    let faults = Draft { services: broken.services, ..draft }.check().expect_err("T5 is missing");
    assert_eq!(faults[0].what.to_string(), "T4 goes on with T5, so that is what runs next");
}

#[test]
fn explaining_names_every_step() {
    let catalog = accelflow();
    let text = explain(&catalog, catalog.trace("T1").expect("it is there"));
    let expected = "\
T1 takes encrypted(message(protobuf)).
It invokes 5 to 6 ops; 32 bytes encoded, at address 0.
  1. tcp: receives encrypted(message(protobuf))
  2. decrypt: encrypted(message(protobuf)) becomes message(protobuf)
  3. rpc: message(protobuf) becomes protobuf
  4. deserialize: protobuf becomes json
  if compressed:
    the payload is transformed from json to string
    5. decompress: string becomes string
  6. load-balance: picks a core
  the core that started it is notified
";
    assert_eq!(text, expected);
}
