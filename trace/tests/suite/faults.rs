//! Tests the message and the place of every fault that a text can have.

use trace::{Base, Block, Condition, Draft, Format, Trace, What, draft, read, seq, split};
use units::Op;

/// Puts a body into a text. The body is on one line and begins at column 23.
fn body(text: &str) -> String {
    format!("field a flag field b flag field n number\ntrace x takes json {{ {text} }}")
}

fn errors(text: &str) -> Vec<String> {
    let errors = read(&[("f.trace", text)]).expect_err("it has faults");
    errors.iter().map(ToString::to_string).collect()
}

fn is_refused(text: &str, expected: &str) {
    assert_eq!(errors(text), [expected]);
}

#[test]
fn errors_have_a_place_and_a_hint() {
    let cases = [
        (
            "trace x takes json {\n    decompres\n}",
            "f.trace:2:5: expected an op, `trans`, `if`, `fork`, `notify`, `tail`, `await` or `}`, \
             found `decompres`; did you mean decompress?",
        ),
        (
            "field a flg",
            "f.trace:1:9: expected `flag` or `number`, found `flg`; did you mean flag?",
        ),
        (
            "trase x",
            "f.trace:1:1: expected `field`, `trace` or `service`, found `trase`; did you \
             mean trace?",
        ),
        (
            "trace tcp takes json {",
            "f.trace:1:7: expected the trace's name, found `tcp`, a word of \
             the language",
        ),
        (
            "trace x takes xml {",
            "f.trace:1:15: expected a format (json, bson, string, protobuf, \
             bytes, compressed, encrypted, message), found `xml`",
        ),
        (
            "trace x takes json {\ntcp",
            "f.trace:2:4: expected an op, `trans`, `if`, `fork`, \
             `notify`, `tail`, `await` or `}`, found the end of the text",
        ),
        (
            "trace x takes json { tcp due 5 }",
            "f.trace:1:30: expected a time such as 500ns, 20us, \
             5ms or 1s, found `5`",
        ),
        (
            "trace x takes json { if n == 4294967296 {",
            "f.trace:1:30: expected a number from 0 to \
             4294967295, found `4294967296`",
        ),
        ("trace x takes json { if a & b {", "f.trace:1:27: expected `{`, found `&`"),
        ("trace x takes json { trans json string", "f.trace:1:33: expected `->`, found `string`"),
        (
            "service s { cpus }",
            "f.trace:1:13: expected `run`, `cpu`, `parallel` or `}`, found \
             `cpus`; did you mean cpu?",
        ),
        ("é", "f.trace:1:1: expected `field`, `trace` or `service`, found `é`"),
    ];
    for (text, expected) in cases {
        is_refused(text, expected);
    }
    let deep = "if a { ".repeat(40);
    is_refused(&format!("trace x takes json {{ {deep}"), "f.trace:1:85: nested 9 deep; at most 8");
    let nots = "not ".repeat(10_000);
    assert_eq!(errors(&format!("trace x takes json {{ if {nots} a {{")).len(), 1);
}

#[test]
fn what_makes_no_sense_is_placed() {
    let cases = [
        (
            "tcp",
            "2:22: the path ends here without notify, tail or await: nobody would learn of its \
             result",
        ),
        ("if a { tcp } else { copy notify }", "2:29: the path ends here"),
        ("if a { tcp notify } else { tcp }", "2:49: the path ends here"),
        ("tcp if a { copy notify }", "2:26: the path ends here"),
        ("notify", "2:7: no op runs"),
        ("tcp notify tcp", "2:33: never reached"),
        ("tcp if c { copy } notify", "2:26: no field is called c"),
        (
            "tcp if a { copy if a { rpc } else { copy } } notify",
            "2:38: the condition a always holds \
             here: the else arm is never taken",
        ),
        ("if a { tcp notify } if not a { copy } notify", "2:42: the condition not a always holds"),
        ("if a { if not a { tcp } } copy notify", "2:29: the condition not a never holds"),
        (
            "if n > 5 and n < 6 { tcp } copy notify",
            "2:22: the condition n > 5 and n < 6 never \
             holds here: the first arm is never taken",
        ),
        ("if n { tcp } copy notify", "2:22: n is a number: compare it with one"),
        ("if a == 1 { tcp } copy notify", "2:22: a is a flag: it is set or not"),
        ("if a { } copy notify", "2:22: both arms are empty"),
        ("decrypt notify", "2:22: decrypt takes encrypted(...); the payload is json here"),
        (
            "encrypt compress notify",
            "2:30: compress takes data that is neither compressed nor \
             encrypted: neither shrinks; the payload is encrypted(json) here",
        ),
        (
            "if a { trans json -> string } deserialize notify",
            "2:52: deserialize takes protobuf; the \
             payload is json or string here",
        ),
        ("trans bson -> json copy notify", "2:22: the payload is json here, not bson"),
        ("trans json -> json copy notify", "2:22: json to json transforms nothing"),
        (
            "encrypt if a { copy } notify",
            "2:30: a branch cannot read the fields of a payload that \
             is encrypted(json)",
        ),
        ("copy tail y", "2:27: no trace is called y"),
        ("encrypt tail x", "2:30: x takes json; the payload is encrypted(json) here"),
        (
            "copy await x",
            "2:27: await stands behind a tcp that has sent something; here the last op \
             is copy",
        ),
        ("copy tcp await x", "2:31: x cannot be awaited: it does not begin with tcp"),
        ("tcp await x within 5ns", "2:26: 5ns does not fit: whole microseconds"),
        ("copy tail x", "2:27: the traces go round without waiting: x -> x"),
        (
            "tcp due 5us copy due 4us notify",
            "2:34: due 4us, before a step that comes earlier: that \
             one is due 5us",
        ),
        ("tcp due 9s notify", "2:22: 9s does not fit: 1ns to 4294967295ns"),
        ("fork { tcp notify }", "2:22: a fork has at least two arms, not 1"),
        (
            "fork { tcp notify } and { tcp }",
            "2:22: arm 2 of the fork goes on, but nothing joins it",
        ),
        (
            "fork { tcp } and { if a { notify } copy } join notify",
            "2:22: a path of arm 2 may end, \
             and the join would wait for it forever",
        ),
        ("fork { tcp } and { } join notify", "2:22: arm 2 of the fork is empty"),
    ];
    for (text, expected) in cases {
        let found = errors(&body(text));
        let expected = format!("f.trace:{expected}");
        assert!(found[0].starts_with(&expected), "{text}\n{}\n{expected}", found.join("\n"));
        // A trace that continues with itself is also checked as the trace that continues, so it may
        // have a second fault.
        let meant_two = text.ends_with('x') || text == "tcp await x within 5ns";
        assert!(found.len() == 1 || meant_two, "{text}: {found:#?}");
    }
}

#[test]
fn a_field_that_was_unwrapped_anew_may_be_asked_again() {
    let text = body("rpc if a { tcp } rpc if a { copy } serialize notify");
    assert!(read(&[("f", &text)]).is_ok(), "{:?}", read(&[("f", &text)]));
}

#[test]
fn cycles_are_shown_whole_and_waiting_breaks_them() {
    let ring = |second: &str| {
        format!(
            "trace x takes json {{ tcp tail y }}\n\
             trace y takes json {{ tcp {second} z }}\n\
             trace z takes json {{ tcp tail x }}"
        )
    };
    is_refused(
        &ring("tail"),
        "f.trace:3:26: the traces go round without waiting: x -> y -> z -> x; an await or a notify \
         has to break the circle",
    );
    assert!(read(&[("f", &ring("await"))]).is_ok());
}

#[test]
fn names_are_unique_across_texts_and_faults_name_theirs() {
    let one = "field a flag\ntrace x takes json { copy notify }";
    let two = "trace x takes json {\n copy\n notify }\nfield a flag";
    let found = read(&[("one", one), ("two", two)]).expect_err("twice");
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["two:1:7: x is there already", "two:4:7: a is there already"]);
}

#[test]
fn a_trace_one_too_long_can_be_split() {
    let text = body(&("copy ".repeat(20) + "notify"));
    is_refused(
        &text,
        "f.trace:2:102: 20 invocations; an encoded trace holds 16, and this is number 17: split \
         the trace before it (trace::split does)",
    );
    let whole = draft("f", &text).expect("it can be read");
    let parts = split(&whole.traces[0]).expect("it can be cut");
    let counts: Vec<usize> = parts.iter().map(Trace::invocations).collect();
    assert_eq!(counts, [16, 4]);
    assert_eq!(parts[1].name, "x.2");
    assert!(Draft { traces: parts, ..whole }.check().is_ok());
}

#[test]
fn services_run_existing_traces_in_a_possible_order() {
    let traces = "field a flag field n number
        trace send takes json { encrypt tcp await answer }
        trace answer takes json { tcp if a { copy } notify }\n";
    let cases = [
        ("run nobody", "no trace is called nobody"),
        ("run send cpu", "send goes on with answer, so that is what runs next"),
        ("run send", "send goes on with answer, so that is what runs next"),
        (
            "run send run answer run send run answer",
            "nothing goes on with send here: a core has to \
             start it, so cpu comes before it",
        ),
        ("run answer with b", "no field is called b"),
        ("run answer with n", "n is a number: a path sets flags only"),
        ("run send with a run answer", "send does not read the flag a"),
        ("parallel 0 { cpu }", "parallel takes 1 to 1024 copies, not 0"),
        ("parallel 2 { }", "nothing in it: a service runs at least one trace"),
        ("", "nothing in it: a service runs at least one trace"),
    ];
    for (path, expected) in cases {
        let found = errors(&format!("{traces}service s {{ {path} }}"));
        assert!(found.iter().any(|error| error.contains(expected)), "{path}: {found:#?}");
    }
    let good = format!("{traces}service s {{ parallel 2 {{ run send run answer with a }} cpu }}");
    let catalog = read(&[("f", &good)]).expect("no faults");
    assert_eq!(catalog.invocations(catalog.service("s").expect("it is there")), 8);
}

#[test]
fn the_builder_is_checked_as_the_text_is() {
    let json = Format::new(Base::Json);
    let check = |path| Draft::default().flag("a").trace(Trace::new("x", json, path)).check();
    let first = |path| check(path).expect_err("it has a fault")[0].what.clone();
    assert_eq!(first(seq([Op::Copy, Op::Notify]).notify()), What::NotifyWithin);
    assert_eq!(first(seq([Op::Copy; 17]).notify()), What::TooLong { count: 17, max: 16 });
    let ended = || seq([Op::Copy]).notify();
    let both = seq([Op::Copy]).branch(Condition::flag("a"), ended(), ended());
    assert_eq!(first(both.notify()), What::Unreachable);
    assert!(check(seq([Op::Copy]).either(Condition::flag("a"), ended(), ended())).is_ok());
    let deep = (0..9).fold(Block::empty().seq([Op::Copy]), |inner, at| {
        let number = Condition::number("n", trace::Comparison::Equal, at);
        Block::empty().branch(number, inner, Block::empty())
    });
    assert_eq!(first(deep.notify()), What::TooDeep { depth: 9, max: 8 });
    // These blocks are as deep and as large as the builder allows. They are refused without filling
    // the memory or overflowing the stack.
    let flag = || Condition::flag("a");
    let deep = (0..100_000)
        .fold(seq([Op::Copy]), |inner, _| seq([Op::Copy]).branch(flag(), inner, Block::empty()));
    assert_eq!(first(deep.notify()), What::TooDeep { depth: 9, max: 8 });
    let wide =
        (0..100).fold(seq([Op::Copy]), |block, _| block.clone().join([block.clone(), block]));
    assert!(matches!(first(wide.notify()), What::TooDeep { .. } | What::TooLong { .. }));
    let flat = (0..100_000)
        .fold(Block::empty(), |block, _| block.branch(flag(), seq([Op::Copy]), ended()));
    assert!(matches!(first(flat.notify()), What::TooLong { .. }));
    let empty = (0..100_000)
        .fold(seq([Op::Copy]), |block, _| block.branch(flag(), Block::empty(), Block::empty()));
    assert!(matches!(first(empty.notify()), What::TooMuchControl { .. }));
    let arms = (0..1_000_000).map(|_| Block::empty());
    assert!(matches!(first(seq([Op::Copy]).join(arms).notify()), What::TooMuchControl { .. }));
    let bad = Draft::default().trace(Trace::new("two words", json, ended())).check();
    assert_eq!(bad.expect_err("no name")[0].what, What::BadName("two words".to_owned()));
}

#[test]
fn only_the_first_unknown_names_are_hinted() {
    let wrong = |at| format!("trace t{at} takes json {{ copy tail missin }}\n");
    let wrong: String = (0..40).map(wrong).collect();
    let found = errors(&format!("{wrong}trace missing takes json {{ copy notify }}"));
    assert!(found[0].ends_with("no trace is called missin; did you mean missing?"), "{found:#?}");
    let hinted = found.iter().filter(|error| error.contains("did you mean"));
    assert_eq!((found.len(), hinted.count()), (40, 20));
}

#[test]
fn a_text_too_large_is_refused_early() {
    let long = " ".repeat((1 << 20) + 1);
    is_refused(&long, "f.trace:1:1: 1048577 bytes; at most 1048576 are read");
    let there_and_back = "trans json -> bson trans bson -> json ".repeat(128);
    is_refused(
        &body(&format!("copy {there_and_back} notify")),
        "f.trace:2:7: its branches, transforms and ends take 257 units of the encoding; 255 fit",
    );
    for chain in ["a or ", "a and ", "not a or "] {
        let found = errors(&body(&format!("copy if {}a {{ copy }} notify", chain.repeat(100_000))));
        let expected = "a condition of more than 31 tests; 31 fit";
        assert!(found.len() == 1 && found[0].ends_with(expected), "{found:?}");
    }
    let many: String = (0..30_000).map(|at| format!("if n == {at} {{ notify }} ")).collect();
    assert_eq!(errors(&body(&format!("copy {many}"))).len(), 1);
    let fields = (0..257).fold(Draft::default(), |draft, at| draft.flag(format!("f{at}")));
    let what = fields.check().expect_err("too many")[0].what.clone();
    assert_eq!(what, What::TooMany { what: "fields", count: 257, max: 256 });
    let name = "n".repeat(65);
    is_refused(&format!("field {name} flag"), "f.trace:1:7: a name has at most 64 bytes, not 65");
}
