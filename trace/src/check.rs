//! Checks one trace: the payload at every step, the arms that can be reached, and whether every
//! path ends. Each node is visited once, and the trace is not changed.

use std::collections::BTreeSet;

use units::{Nanos, Op};

use crate::condition::{Condition, satisfiable};
use crate::encode;
use crate::fault::{Fault, Owner, What, hint};
use crate::limits::{
    CONDITION_UNITS_MAX, DEPTH_MAX, FIELDS_MAX, GLUE_UNITS_MAX, INVOCATIONS_MAX, TRACES_MAX,
};
use crate::payload::{Base, Format};
use crate::tree::{
    Branch, End, Field, FieldKind, Fork, Node, Run, Time, Trace, goes_on, visit_nodes,
};

/// The names that a trace may refer to.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) fields: &'a [Field],
    pub(crate) traces: &'a [Trace],
}

impl<'a> Scope<'a> {
    pub(crate) fn trace(&self, name: &str) -> Option<&'a Trace> {
        self.traces.iter().find(|trace| trace.name == name)
    }

    pub(crate) fn unknown_trace(&self, name: &str) -> What {
        What::UnknownTrace { name: name.to_owned(), hint: String::new() }
    }

    pub(crate) fn field(&self, name: &str) -> Result<&'a Field, What> {
        let found = self.fields.iter().find(|field| field.name == name);
        found.ok_or_else(|| What::UnknownField { name: name.to_owned(), hint: String::new() })
    }

    /// Adds a hint to the first `HINTS_MAX` faults about unknown names: the most similar known
    /// name. The number is limited because each unknown name is compared with all known names, and
    /// a text may hold tens of thousands of both.
    pub(crate) fn add_hints(&self, faults: &mut [Fault]) {
        let mut left = HINTS_MAX;
        for fault in faults {
            let (name, text, names): (_, _, Vec<&str>) = match &mut fault.what {
                What::UnknownTrace { name, hint } => {
                    let names = self.traces.iter().map(|trace| trace.name.as_str());
                    (name, hint, names.take(TRACES_MAX).collect())
                }
                What::UnknownField { name, hint } => {
                    let names = self.fields.iter().map(|field| field.name.as_str());
                    (name, hint, names.take(FIELDS_MAX).collect())
                }
                _ => continue,
            };
            if left == 0 {
                return;
            }
            left -= 1;
            *text = hint(name, names);
        }
    }
}

/// The formats that the payload may have in front of a node. An empty set means that the format is
/// unknown, because of an earlier fault or because no path leads to the node.
pub(crate) type Formats = BTreeSet<Format>;

/// Returns the faults of one trace, and the formats in front of each of its nodes.
pub(crate) fn check(trace: &Trace, index: usize, scope: Scope<'_>) -> (Vec<Fault>, Vec<Formats>) {
    let mut walk =
        Walk { scope, owner: Owner::Trace(index), next: 0, faults: Vec::new(), before: Vec::new() };
    // The depth is checked first, because all further checks recurse as deep as the trace.
    let depth = nesting(trace);
    if depth > DEPTH_MAX {
        walk.whole(What::TooDeep { depth, max: DEPTH_MAX });
        return (walk.faults, walk.before);
    }
    if !walk.sizes(trace) {
        return (walk.faults, walk.before);
    }
    let start = State {
        formats: BTreeSet::from([trace.takes]),
        known: Vec::new(),
        due: Nanos(0),
        last: None,
    };
    if walk.block(&trace.body, start).is_some() {
        let node = open_end(&trace.body, 0);
        walk.faults.push(Fault { owner: walk.owner, node, what: What::MissingNotify });
    }
    (walk.faults, walk.before)
}

/// Returns the formats in front of each of these nodes, if the payload begins with one of the
/// formats in `start`. Conditions are ignored.
pub(crate) fn formats(nodes: &[Node], start: Formats) -> Vec<Formats> {
    let scope = Scope { fields: &[], traces: &[] };
    let owner = Owner::Trace(0);
    let mut walk = Walk { scope, owner, next: 0, faults: Vec::new(), before: Vec::new() };
    walk.block(nodes, State { formats: start, known: Vec::new(), due: Nanos(0), last: None });
    walk.before
}

/// Returns the depth of the deepest node. The outermost nodes have depth 0.
fn nesting(trace: &Trace) -> usize {
    let mut deepest = 0;
    let mut left = vec![(trace.body.as_slice(), 0)];
    while let Some((nodes, depth)) = left.pop() {
        if nodes.is_empty() {
            continue;
        }
        deepest = deepest.max(depth);
        for node in nodes {
            match node {
                Node::Run(_) | Node::Trans(..) | Node::End(_) => {}
                Node::Branch(branch) => {
                    left.extend(
                        [&branch.on_true, &branch.on_false].map(|arm| (&arm[..], depth + 1)),
                    );
                }
                Node::Fork(fork) => {
                    left.extend(fork.arms.iter().map(|arm| (arm.as_slice(), depth + 1)));
                }
            }
        }
    }
    deepest
}

/// The facts that hold on every path to a node.
#[derive(Clone)]
struct State<'a> {
    formats: Formats,
    /// The conditions that were decided since the payload's fields last changed.
    known: Vec<(&'a Condition, bool)>,
    due: Nanos,
    last: Option<Op>,
}

impl<'a> State<'a> {
    fn merge(mut self, other: State<'a>) -> State<'a> {
        // An empty set means that the format is unknown. The result is then unknown too.
        if self.formats.is_empty() || other.formats.is_empty() {
            self.formats.clear();
        } else {
            self.formats.extend(other.formats);
        }
        self.known.retain(|fact| other.known.contains(fact));
        self.due = self.due.max(other.due);
        self.last = self.last.filter(|last| other.last == Some(*last));
        self
    }

    fn payload(&self) -> String {
        words(&self.formats)
    }
}

/// Returns the formats as text, such as `json` or `json or string`.
pub(crate) fn words(formats: &Formats) -> String {
    let names: Vec<String> = formats.iter().map(Format::to_string).collect();
    names.join(" or ")
}

struct Walk<'a> {
    scope: Scope<'a>,
    owner: Owner,
    next: usize,
    faults: Vec<Fault>,
    before: Vec<Formats>,
}

impl<'a> Walk<'a> {
    fn whole(&mut self, what: What) {
        self.faults.push(Fault { owner: self.owner, node: None, what });
    }

    fn fault(&mut self, node: usize, what: What) {
        self.faults.push(Fault { owner: self.owner, node: Some(node), what });
    }

    /// Returns whether the trace is small enough to be checked further. Its size bounds the cost of
    /// the checks.
    fn sizes(&mut self, trace: &Trace) -> bool {
        let count = trace.invocations();
        if count == 0 {
            self.whole(What::NoStep);
        }
        if count > INVOCATIONS_MAX {
            let what = What::TooLong { count, max: INVOCATIONS_MAX };
            self.faults.push(Fault { owner: self.owner, node: first_too_many(trace), what });
        }
        let count = encode::glue_units(&trace.body);
        if count > GLUE_UNITS_MAX {
            self.whole(What::TooMuchControl { count, max: GLUE_UNITS_MAX });
        }
        count <= GLUE_UNITS_MAX
    }

    /// Returns the state behind these nodes. Returns none if every path through them has ended.
    fn block(&mut self, nodes: &'a [Node], state: State<'a>) -> Option<State<'a>> {
        let mut state = Some(state);
        for (index, node) in nodes.iter().enumerate() {
            let at = self.next;
            let Some(before) = state.take() else {
                self.fault(at, What::Unreachable);
                self.skip(&nodes[index..]);
                return None;
            };
            self.next += 1;
            self.before.push(before.formats.clone());
            state = self.node(node, at, before);
        }
        state
    }

    /// Numbers the nodes that no path reaches.
    fn skip(&mut self, nodes: &[Node]) {
        visit_nodes(nodes, 0, &mut |_, _| {
            self.next += 1;
            self.before.push(Formats::new());
        });
    }

    fn node(&mut self, node: &'a Node, at: usize, state: State<'a>) -> Option<State<'a>> {
        match node {
            Node::Run(run) => Some(self.run(*run, at, state)),
            Node::Trans(from, to) => Some(self.transform(*from, *to, at, state)),
            Node::Branch(branch) => self.branch(branch, at, state),
            Node::Fork(fork) => self.fork(fork, at, state),
            Node::End(end) => {
                self.end(end, at, &state);
                None
            }
        }
    }

    fn run(&mut self, run: Run, at: usize, mut state: State<'a>) -> State<'a> {
        if run.op == Op::Notify {
            self.fault(at, What::NotifyWithin);
        }
        let after: Result<Formats, What> = state
            .formats
            .iter()
            .map(|format| {
                let mismatch =
                    |takes| What::Mismatch { op: run.op, takes, payload: state.payload() };
                format.after(run.op).map_err(mismatch)
            })
            .collect();
        state.formats = after.unwrap_or_else(|what| {
            self.fault(at, what);
            Formats::new()
        });
        // The fields are those of the payload that was unwrapped last.
        if matches!(run.op, Op::Decrypt | Op::Rpc | Op::Deserialize) {
            state.known.clear();
        }
        if let Some(due) = run.due {
            self.due(due, at, state.due);
            state.due = due;
        }
        state.last = Some(run.op);
        state
    }

    fn due(&mut self, due: Nanos, at: usize, earlier: Nanos) {
        let text = Time(due).to_string();
        if due.0 == 0 || due.0 > u64::from(u32::MAX) {
            self.fault(at, What::BadTime { time: text, valid: "1ns to 4294967295ns" });
        } else if due < earlier {
            self.fault(at, What::DueBefore { due: text, earlier: Time(earlier).to_string() });
        }
    }

    fn transform(&mut self, from: Base, to: Base, at: usize, mut state: State<'a>) -> State<'a> {
        if from == to {
            self.fault(at, What::EmptyTransform(from.name()));
        }
        if state.formats.iter().any(|format| *format != Format::new(from)) {
            let what = What::TransformMismatch { from: from.to_string(), payload: state.payload() };
            self.fault(at, what);
        }
        state.formats = BTreeSet::from([Format::new(to)]);
        state
    }

    fn branch(&mut self, branch: &'a Branch, at: usize, state: State<'a>) -> Option<State<'a>> {
        if branch.on_true.is_empty() && branch.on_false.is_empty() {
            self.fault(at, What::EmptyBranch);
        }
        if !state.formats.iter().all(|format| format.is_readable()) {
            self.fault(at, What::Unreadable { payload: state.payload() });
        }
        let sound = self.condition(&branch.condition, at);
        let arm = |walk: &mut Self, nodes: &'a [Node], truth: bool| {
            let mut state = state.clone();
            state.known.push((&branch.condition, truth));
            if sound && !satisfiable(&state.known) {
                let condition = branch.condition.to_string();
                let always = if truth { "never holds" } else { "always holds" };
                let arm = if truth { "first" } else { "else" };
                walk.fault(at, What::UnreachableArm { condition, always, arm });
            }
            walk.block(nodes, state)
        };
        let on_true = arm(self, &branch.on_true, true);
        let on_false = arm(self, &branch.on_false, false);
        match (on_true, on_false) {
            (Some(on_true), Some(on_false)) => Some(on_true.merge(on_false)),
            (open, None) | (None, open) => open,
        }
    }

    fn condition(&mut self, condition: &Condition, at: usize) -> bool {
        let before = self.faults.len();
        let count = encode::condition_units(condition);
        if count > CONDITION_UNITS_MAX {
            self.fault(at, What::LongCondition { count, max: CONDITION_UNITS_MAX });
            return false;
        }
        let mut found = Vec::new();
        condition.visit(&mut |name, literal| match (self.scope.field(name), literal) {
            (Err(what), _) => found.push(what),
            (Ok(Field { kind: FieldKind::Flag, .. }), Some(_)) => found.push(What::WrongKind {
                name: name.to_owned(),
                kind: "flag",
                rule: "it is set or not, and compared with nothing",
            }),
            (Ok(Field { kind: FieldKind::Number, .. }), None) => found.push(What::WrongKind {
                name: name.to_owned(),
                kind: "number",
                rule: "compare it with one (==, !=, <, <=, >, >=)",
            }),
            (Ok(_), _) => {}
        });
        found.into_iter().for_each(|what| self.fault(at, what));
        self.faults.len() == before
    }

    fn fork(&mut self, fork: &'a Fork, at: usize, state: State<'a>) -> Option<State<'a>> {
        if fork.arms.len() < 2 {
            self.fault(at, What::TooFewArms(fork.arms.len()));
        }
        let mut joined: Option<State<'a>> = None;
        for (index, arm) in fork.arms.iter().enumerate() {
            match self.block(arm, state.clone()) {
                _ if arm.is_empty() => self.fault(at, What::EmptyArm(index + 1)),
                Some(_) if !fork.join => self.fault(at, What::ArmGoesOn(index + 1)),
                Some(open) => {
                    let formats = joined.as_ref().map(|first| first.formats.clone());
                    let mut merged = match joined.take() {
                        Some(first) => first.merge(open),
                        None => open,
                    };
                    // The payload of the first arm continues.
                    merged.formats = formats.unwrap_or(merged.formats);
                    joined = Some(merged);
                }
                None => {}
            }
            if fork.join && may_end(arm) {
                self.fault(at, What::ArmEnds(index + 1));
            }
        }
        joined
    }

    fn end(&mut self, end: &End, at: usize, state: &State<'a>) {
        let Some(name) = end.target() else { return };
        let Some(target) = self.scope.trace(name) else {
            self.fault(at, self.scope.unknown_trace(name));
            return;
        };
        match end {
            End::Notify => {}
            End::Tail(_) => {
                if state.formats.iter().any(|format| *format != target.takes) {
                    let (trace, takes) = (name.to_owned(), target.takes.to_string());
                    let payload = state.payload();
                    self.fault(at, What::TailMismatch { trace, takes, payload });
                }
            }
            End::Await { within, .. } => {
                if state.last != Some(Op::Tcp) {
                    let last = state.last.map_or("none", Op::name);
                    self.fault(at, What::AwaitWithoutSend(last.to_owned()));
                }
                if !matches!(target.body.first(), Some(Node::Run(Run { op: Op::Tcp, .. }))) {
                    self.fault(at, What::AwaitsNoAnswer(name.to_owned()));
                }
                let valid = |time: Nanos| {
                    time.0.is_multiple_of(1_000)
                        && (1..=u64::from(u32::MAX)).contains(&(time.0 / 1_000))
                };
                if let Some(time) = within.filter(|time| !valid(*time)) {
                    let valid = "whole microseconds, 1us to 4294967295us";
                    self.fault(at, What::BadTime { time: Time(time).to_string(), valid });
                }
            }
        }
    }
}

/// Returns the number of the node at which some path through these nodes stops without an end. The
/// first node has the number `first`.
fn open_end(nodes: &[Node], first: usize) -> Option<usize> {
    let (last, before) = nodes.split_last()?;
    let mut at = first;
    visit_nodes(before, 0, &mut |_, _| at += 1);
    let inner = match last {
        Node::Branch(branch) if goes_on(&branch.on_true) => open_end(&branch.on_true, at + 1),
        Node::Branch(branch) => {
            let mut second = at + 1;
            visit_nodes(&branch.on_true, 0, &mut |_, _| second += 1);
            open_end(&branch.on_false, second)
        }
        Node::Run(_) | Node::Trans(..) | Node::Fork(_) | Node::End(_) => None,
    };
    inner.or(Some(at))
}

/// Returns whether some path through these nodes ends within them.
fn may_end(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::End(_) => true,
        Node::Run(_) | Node::Trans(..) => false,
        Node::Branch(branch) => may_end(&branch.on_true) || may_end(&branch.on_false),
        Node::Fork(fork) => fork.arms.iter().any(|arm| may_end(arm)),
    })
}

/// Returns the first node that exceeds the limit of invocations.
fn first_too_many(trace: &Trace) -> Option<usize> {
    let (mut found, mut index, mut count) = (None, 0, 0);
    trace.visit(&mut |node, _| {
        count += usize::from(matches!(node, Node::Run(_)));
        if count > INVOCATIONS_MAX && found.is_none() {
            found = Some(index);
        }
        index += 1;
    });
    found
}

/// The maximum number of hints in one list of faults.
const HINTS_MAX: usize = 20;
