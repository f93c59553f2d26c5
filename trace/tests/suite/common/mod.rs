//! Generates random traces: some with any content that the text form can express, and some that
//! pass all checks.

use proptest::collection::vec;
use proptest::prelude::*;
use trace::{
    Base, Branch, Comparison, Condition, Draft, End, Field, FieldKind, Fork, Format, Node, Run,
    Service, Stage, Trace, Wrap,
};
use units::{Nanos, Op};

pub(crate) fn format() -> impl Strategy<Value = Format> {
    let wraps = vec(proptest::sample::select(&Wrap::ALL[..]), 0..=3);
    (proptest::sample::select(&Base::ALL[..]), wraps).prop_map(|(base, wraps)| {
        let within = |format: Format, wrap| format.within(wrap).expect("at most three");
        wraps.into_iter().fold(Format::new(base), within)
    })
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z_][a-z0-9_.]{0,6}x"
}

fn condition() -> impl Strategy<Value = Condition> {
    let comparison = proptest::sample::select(&Comparison::ALL[..]);
    let test = prop_oneof![
        name().prop_map(Condition::Flag),
        (name(), comparison, any::<u32>()).prop_map(|(n, c, l)| Condition::Number(n, c, l)),
    ];
    test.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(Condition::not),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| a.and(b)),
            (inner.clone(), inner).prop_map(|(a, b)| a.or(b)),
        ]
    })
}

fn node() -> impl Strategy<Value = Node> {
    let time = || proptest::option::of(any::<u32>().prop_map(|ns| Nanos(u64::from(ns) * 250)));
    let ops: Vec<Op> = Op::ALL.into_iter().filter(|op| *op != Op::Notify).collect();
    let base = || proptest::sample::select(&Base::ALL[..]);
    let leaf = prop_oneof![
        (proptest::sample::select(ops), time()).prop_map(|(op, due)| Node::Run(Run { op, due })),
        (base(), base()).prop_map(|(from, to)| Node::Trans(from, to)),
        Just(Node::End(End::Notify)),
        name().prop_map(|name| Node::End(End::Tail(name))),
        (name(), time()).prop_map(|(trace, within)| Node::End(End::Await { trace, within })),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let arm = || vec(inner.clone(), 0..4);
        let arms = vec(arm(), 1..4);
        prop_oneof![
            (condition(), arm(), arm()).prop_map(|(condition, on_true, on_false)| {
                Node::Branch(Branch { condition, on_true, on_false })
            }),
            (arms, any::<bool>()).prop_map(|(arms, join)| Node::Fork(Fork { arms, join })),
        ]
    })
}

fn stage() -> impl Strategy<Value = Stage> {
    let with = vec(name(), 0..3);
    let leaf = prop_oneof![
        Just(Stage::Cpu),
        (name(), with).prop_map(|(trace, with)| Stage::Run { trace, with }),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        let path = vec(inner, 0..3);
        (any::<u32>(), path).prop_map(|(times, path)| Stage::Parallel { times, path })
    })
}

/// Returns any draft that the text form can express. It may fail the checks.
pub(crate) fn any_draft() -> impl Strategy<Value = Draft> {
    let kind = prop_oneof![Just(FieldKind::Flag), Just(FieldKind::Number)];
    let field = (name(), kind).prop_map(|(name, kind)| Field { name, kind });
    let trace = (name(), format(), vec(node(), 0..5)).prop_map(|(name, takes, body)| Trace {
        name,
        takes,
        body,
    });
    let service = (name(), vec(stage(), 0..4)).prop_map(|(name, path)| Service { name, path });
    (vec(field, 0..3), vec(trace, 0..3), vec(service, 0..2))
        .prop_map(|(fields, traces, services)| Draft { fields, traces, services })
}

/// Returns a draft that passes all checks, with a trace `grown` of at most `steps` invocations, and
/// with the names that this trace uses.
pub(crate) fn grown(choices: &[u8], steps: usize) -> Draft {
    let mut draft = Draft::default();
    for index in 0..FLAGS {
        draft = draft.flag(format!("f{index}")).number(format!("n{index}"));
    }
    let json = Format::new(Base::Json);
    let encrypted = json.within(Wrap::Encrypted).expect("one wrap");
    let simple = |name: &str, takes, op| {
        let body = vec![Node::Run(Run { op, due: None }), Node::End(End::Notify)];
        Trace { name: name.to_owned(), takes, body }
    };
    let mut growth = Growth { choices: choices.iter(), left: steps - 1, tests: 0, due: 0 };
    let mut body = vec![Node::Run(Run { op: Op::Copy, due: None })];
    body.extend(growth.ended(json, 0));
    draft
        .trace(simple("plain", json, Op::Copy))
        .trace(Trace { name: "grown".to_owned(), takes: json, body })
        .trace(simple("answer", encrypted, Op::Tcp))
}

const FLAGS: usize = 32;

struct Growth<'a> {
    choices: std::slice::Iter<'a, u8>,
    left: usize,
    tests: usize,
    due: u64,
}

impl Growth<'_> {
    fn pick(&mut self, below: usize) -> usize {
        self.choices.next().map_or(0, |byte| usize::from(*byte) % below)
    }

    fn run(&mut self, op: Op) -> Node {
        self.left -= 1;
        self.due += 1 + self.pick(9) as u64;
        let due = (self.pick(4) == 1).then_some(Nanos(self.due));
        Node::Run(Run { op, due })
    }

    /// Returns a condition. Each condition tests a different field, so that every arm can be
    /// reached.
    fn condition(&mut self) -> Option<Condition> {
        let at = self.tests;
        self.tests += 1;
        let flag = Condition::flag(format!("f{at}"));
        let comparison = Comparison::ALL[self.pick(4)];
        let number = Condition::number(format!("n{at}"), comparison, 1_000 + at as u32);
        (at < FLAGS).then(|| match self.pick(5) {
            0 => flag,
            1 => number,
            2 => flag.and(number),
            3 => flag.not().or(number),
            _ => number.not(),
        })
    }

    /// Returns nodes that keep the format and do not end.
    fn open(&mut self, format: Format, depth: usize) -> Vec<Node> {
        let mut nodes = Vec::new();
        while self.left > 2 && (nodes.is_empty() || self.pick(3) != 0) {
            match self.pick(8) {
                0 => nodes.push(self.run(Op::Checksum)),
                1 if format.within(Wrap::Encrypted).is_some() => {
                    nodes.push(self.run(Op::Encrypt));
                    nodes.push(self.run(Op::Decrypt));
                }
                2 if format.bare() == Some(Base::Json) => {
                    nodes.push(Node::Trans(Base::Json, Base::Bson));
                    nodes.push(Node::Trans(Base::Bson, Base::Json));
                }
                3 | 4 if depth < 4 && format.is_readable() => {
                    let Some(condition) = self.condition() else { continue };
                    let on_true = self.open(format, depth + 1);
                    let ends = self.pick(2) == 1;
                    let on_false = if ends { self.ended(format, depth + 1) } else { Vec::new() };
                    if !on_true.is_empty() || !on_false.is_empty() {
                        nodes.push(Node::Branch(Branch { condition, on_true, on_false }));
                    }
                }
                _ => nodes.push(self.run(Op::LoadBalance)),
            }
        }
        nodes
    }

    /// Returns nodes that end the path.
    fn ended(&mut self, mut format: Format, depth: usize) -> Vec<Node> {
        let mut nodes = Vec::new();
        while self.left > 4 && self.pick(6) != 0 {
            match self.pick(6) {
                0 if depth < 4 => {
                    let arms = (0..2 + self.pick(2)).map(|_| self.ended(format, depth + 1));
                    nodes.push(Node::Fork(Fork { arms: arms.collect(), join: false }));
                    return nodes;
                }
                1 if depth < 4 && format.is_readable() => {
                    let Some(condition) = self.condition() else { continue };
                    let on_true = self.ended(format, depth + 1);
                    let on_false = self.ended(format, depth + 1);
                    nodes.push(Node::Branch(Branch { condition, on_true, on_false }));
                    return nodes;
                }
                2 if depth < 4 && self.left > 8 => {
                    let arms = [Op::Copy, Op::Checksum].map(|op| vec![self.run(op)]);
                    nodes.push(Node::Fork(Fork { arms: arms.to_vec(), join: true }));
                }
                3 => {
                    let op = Op::ALL[self.pick(11)];
                    if let Ok(after) = format.after(op) {
                        format = after;
                        nodes.push(self.run(op));
                    }
                }
                _ => nodes.extend(self.open(format, depth + 1)),
            }
        }
        let end = match self.pick(4) {
            0 if format == Format::new(Base::Json) => End::Tail("plain".to_owned()),
            1 if self.left > 0 => {
                nodes.push(self.run(Op::Tcp));
                let within = (self.pick(2) == 0).then_some(Nanos::micros(500));
                End::Await { trace: "answer".to_owned(), within }
            }
            _ => End::Notify,
        };
        nodes.push(Node::End(end));
        nodes
    }
}
