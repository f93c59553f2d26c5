//! Tests properties of all traces. Text and bytes convert in both directions without a change,
//! compiled programs and split traces invoke the same ops as the original trace, and no input makes
//! a reader panic.

use proptest::collection::vec;
use proptest::prelude::*;
use trace::{
    Catalog, Draft, End, Head, Instruction, SplitError, Trace, accelflow, compile, draft, explain,
    format, print, read, split, walk,
};
use units::Op;

fn fields(seed: u64) -> impl FnMut(&str) -> u32 {
    move |field: &str| {
        let hash = field.bytes().fold(seed | 1, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3).rotate_left(23)
        });
        if field.starts_with('f') { (hash & 1) as u32 } else { 990 + (hash % 50) as u32 }
    }
}

/// Runs a program and collects the ops that it invokes, with the arms of a fork one after the
/// other. Returns true if the program ended, and false if an arm arrived at its join.
fn run(
    program: &[Instruction],
    mut pc: usize,
    read: &mut dyn FnMut(&str) -> u32,
    ops: &mut Vec<Op>,
) -> bool {
    loop {
        let next = pc + 1;
        pc = match &program[pc] {
            Instruction::Run { op, .. } => {
                ops.push(*op);
                next
            }
            Instruction::Trans(..) => next,
            Instruction::Branch { condition, on_false } => {
                if condition.holds(read) {
                    next
                } else {
                    usize::from(*on_false)
                }
            }
            Instruction::Jump(to) => usize::from(*to),
            Instruction::Fork { arms, join } => {
                let ended: Vec<bool> =
                    arms.iter().map(|arm| run(program, usize::from(*arm), read, ops)).collect();
                assert!(ended.iter().all(|ended| *ended != join.is_some()));
                match join {
                    Some(join) => usize::from(*join),
                    None => return true,
                }
            }
            Instruction::Arrive { .. } => return false,
            Instruction::End(_) => return true,
        };
    }
}

/// Collects the ops of a trace and of the traces to which its tails lead.
fn chain(catalog: &Catalog, trace: &Trace, seed: u64, ops: &mut Vec<Op>) {
    let walked = walk(trace, &mut fields(seed));
    ops.extend(walked.ops);
    for end in walked.ends {
        if let End::Tail(target) = end {
            chain(catalog, catalog.trace(target).expect("checked"), seed, ops);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn text_says_what_the_draft_says(whole in crate::common::any_draft()) {
        let text = print(&whole);
        prop_assert_eq!(draft("t", &text), Ok(whole), "{}", text);
        prop_assert_eq!(format("t", &text), Ok(text.clone()));
    }

    #[test]
    fn grown_traces_are_valid_and_encode(choices in vec(any::<u8>(), 0..200),
                                         tenant: u16, mark in 0_u8..16, seed: u64) {
        let whole = crate::common::grown(&choices, 16);
        let text = print(&whole);
        let catalog = whole.check();
        prop_assert!(catalog.is_ok(), "{:?}\n{}", catalog, text);
        let catalog = catalog.expect("just seen");
        let grown = catalog.trace("grown").expect("it is there");
        let head = Head { tenant, mark: mark % u8::try_from(grown.invocations()).expect("few") };
        let bytes = catalog.encode("grown", head).expect("it is there");
        prop_assert_eq!(catalog.decode("grown", &bytes), Ok((grown.clone(), head)));
        let mut ops = Vec::new();
        prop_assert!(run(&compile(grown), 0, &mut fields(seed), &mut ops));
        prop_assert_eq!(&ops, &walk(grown, &mut fields(seed)).ops);
        prop_assert!(explain(&catalog, grown).lines().count() > grown.invocations());
    }

    #[test]
    fn decoding_is_total_and_canonical(choices in vec(any::<u8>(), 0..200),
                                       flips in vec(any::<u16>(), 1..4),
                                       noise in vec(any::<u8>(), 0..80)) {
        let catalog = crate::common::grown(&choices, 16).check().expect("valid");
        let mut bytes = catalog.encode("grown", Head::default()).expect("it is there");
        for flip in flips {
            let bit = usize::from(flip) % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for bytes in [bytes, noise] {
            if let Ok((decoded, head)) = catalog.decode("other", &bytes) {
                let whole = catalog.clone().into_draft().trace(decoded);
                if let Ok(catalog) = whole.check() {
                    prop_assert_eq!(catalog.encode("other", head), Ok(bytes));
                }
            }
        }
    }

    #[test]
    fn a_split_trace_does_what_the_whole_did(choices in vec(any::<u8>(), 100..900),
                                             seed: u64) {
        let whole = crate::common::grown(&choices, 90);
        let grown = whole.traces[1].clone();
        let mut expected = walk(&grown, &mut fields(seed)).ops;
        let tails = walk(&grown, &mut fields(seed)).ends;
        expected.extend(tails.iter().filter(|end| matches!(end, End::Tail(_))).map(|_| Op::Copy));
        let parts = match split(&grown) {
            Ok(parts) => parts,
            Err(SplitError::Join { .. }) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let mut traces = vec![whole.traces[0].clone(), whole.traces[2].clone()];
        traces.extend(parts);
        let catalog = Draft { traces, ..whole }.check();
        prop_assert!(catalog.is_ok(), "{:?}", catalog);
        let catalog = catalog.expect("just seen");
        let mut ops = Vec::new();
        chain(&catalog, catalog.trace("grown").expect("it is there"), seed, &mut ops);
        ops.sort();
        expected.sort();
        prop_assert_eq!(ops, expected);
    }

    #[test]
    fn no_text_makes_a_reader_panic(words in vec(0_usize..WORDS.len(), 0..60)) {
        let text: Vec<&str> = words.iter().map(|word| WORDS[*word]).collect();
        let text = text.join(" ");
        let _ = read(&[("t", &text)]);
        if let Ok(once) = format("t", &text) {
            prop_assert_eq!(format("t", &once), Ok(once.clone()));
            prop_assert_eq!(draft("t", &once), draft("t", &text));
            prop_assert_eq!(once.matches("# c").count(), text.matches("# c").count(), "{}", once);
        }
    }

    #[test]
    fn comments_stay_wherever_they_stand(
        places in vec((0_usize..400, 0_usize..4), 1..20),
    ) {
        let mut words: Vec<&str> = TANGLED.split(' ').collect();
        for (place, what) in places {
            let what = ["# c\n", "\n# c\n", "\n\n", "\n\n# c\n\n"][what];
            words.insert(place % (words.len() + 1), what);
        }
        let text = words.join(" ");
        let once = format("t", &text).expect("comments change nothing");
        prop_assert_eq!(format("t", &once), Ok(once.clone()), "{}\n--\n{}", text, once);
        prop_assert_eq!(draft("t", &once), draft("t", &text));
        prop_assert_eq!(once.matches("# c").count(), text.matches("# c").count(), "{}", once);
    }
}

const TANGLED: &str = "field a flag field b number trace t takes json { tcp due 5us if a and \
    ( b < 7 or not a ) { copy } else { } fork { copy } and { if a { tcp } else { rpc } } join fork { notify \
    } and { tail t } } service s { run t with a , b parallel 3 { cpu } cpu }";

const WORDS: [&str; 46] = [
    "field",
    "trace",
    "service",
    "takes",
    "{",
    "}",
    "{",
    "}",
    "(",
    ")",
    ",",
    "->",
    "if",
    "else",
    "fork",
    "and",
    "join",
    "or",
    "not",
    "tcp",
    "compress",
    "notify",
    "tail",
    "await",
    "within",
    "due",
    "5us",
    "7",
    "99999999999999999999s",
    "x",
    "y",
    "flag",
    "number",
    "json",
    "encrypted",
    "trans",
    "==",
    "<",
    "# c\n",
    "\n",
    "é",
    "run",
    "with",
    "cpu",
    "parallel",
    "trace x takes json { copy notify }",
];

#[test]
fn the_papers_traces_compile_to_what_they_say() {
    let catalog = accelflow();
    for trace in catalog.traces() {
        for seed in 0..64 {
            let mut ops = Vec::new();
            assert!(run(&compile(trace), 0, &mut fields(seed), &mut ops));
            assert_eq!(ops, walk(trace, &mut fields(seed)).ops, "{}", trace.name);
        }
    }
}
