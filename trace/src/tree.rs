//! A trace as data, which the builder, the text form and the decoder make and everything else reads. Nothing here is
//! checked; a trace in a [`Catalog`](crate::Catalog) is.

use std::fmt;

use units::{Nanos, Op};

use crate::condition::Condition;
use crate::payload::{Base, Format};

/// A field of the payload that branches may read. Its place among the catalog's fields is its slot in the encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name that conditions use.
    pub name: String,
    /// The kind of its content.
    pub kind: FieldKind,
}

/// The kind of a field's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FieldKind {
    Flag,
    /// An unsigned number of 32 bits.
    Number,
}

impl FieldKind {
    /// Returns the word that traces use.
    pub const fn name(self) -> &'static str {
        match self {
            FieldKind::Flag => "flag",
            FieldKind::Number => "number",
        }
    }
}

/// A program of ops within one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The name that `tail`, `await` and `run_trace` use.
    pub name: String,
    /// The payload's format when it starts.
    pub takes: Format,
    /// The nodes, in order.
    pub body: Vec<Node>,
}

/// One thing that a trace does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// An invocation of an op.
    Run(Run),
    /// The payload changes its base from the first to the second.
    Trans(Base, Base),
    /// One of two arms is taken. If an arm does not end, the nodes behind the branch go on.
    Branch(Branch),
    /// The payload goes to every arm at once.
    Fork(Fork),
    /// The path ends.
    End(End),
}

/// An invocation of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The op.
    pub op: Op,
    /// The time by which it should be done (ns), counted from the start of the first trace of a chain of tails. An op
    /// that is early leaves its slack to the next. It is a soft deadline.
    pub due: Option<Nanos>,
}

/// A choice by the payload's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The condition.
    pub condition: Condition,
    /// The nodes to run if it holds.
    pub on_true: Vec<Node>,
    /// The nodes to run if it does not.
    pub on_false: Vec<Node>,
}

/// Several arms at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The arms, at least two.
    pub arms: Vec<Vec<Node>>,
    /// True if the nodes that follow wait for all arms, and go on with the first one's payload. Otherwise every arm
    /// ends by itself.
    pub join: bool,
}

/// The end of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The payload goes to memory, and the core that started the trace is told.
    Notify,
    /// The named trace goes on with the payload at once.
    Tail(String),
    /// The named trace starts when the answer to what `tcp` has just sent arrives.
    Await {
        /// The trace that receives the answer.
        trace: String,
        /// The time for which it waits. Then the core is told.
        within: Option<Nanos>,
    },
}

impl Trace {
    /// Returns the invocations that its encoding holds: those of all arms.
    pub fn invocations(&self) -> usize {
        invocations(&self.body)
    }

    /// Calls `visit` with every node in the order of the text, and how deep it is nested.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Node, usize)) {
        visit_nodes(&self.body, 0, visit);
    }

    /// Returns the traces that it goes on with, in the order of the text.
    pub fn follows(&self) -> Vec<&End> {
        let mut ends = Vec::new();
        self.visit(&mut |node, _| match node {
            Node::End(end) if *end != End::Notify => ends.push(end),
            _ => {}
        });
        ends
    }
}

impl End {
    /// Returns the trace that goes on.
    pub fn target(&self) -> Option<&str> {
        match self {
            End::Notify => None,
            End::Tail(trace) | End::Await { trace, .. } => Some(trace),
        }
    }
}

impl Node {
    /// Returns the invocations of this node and its arms.
    pub fn invocations(&self) -> usize {
        match self {
            Node::Run(_) => 1,
            Node::Trans(..) | Node::End(_) => 0,
            Node::Branch(branch) => invocations(&branch.on_true) + invocations(&branch.on_false),
            Node::Fork(fork) => fork.arms.iter().map(|arm| invocations(arm)).sum(),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Notify => f.write_str("notify"),
            End::Tail(trace) => write!(f, "tail {trace}"),
            End::Await { trace, within: None } => write!(f, "await {trace}"),
            End::Await { trace, within: Some(time) } => {
                write!(f, "await {trace} within {}", Time(*time))
            }
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.due {
            None => write!(f, "{}", self.op),
            Some(due) => write!(f, "{} due {}", self.op, Time(due)),
        }
    }
}

/// A node's first line in the text form, without the brace.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Run(run) => write!(f, "{run}"),
            Node::Trans(from, to) => write!(f, "trans {from} -> {to}"),
            Node::Branch(branch) => write!(f, "if {}", branch.condition),
            Node::Fork(_) => f.write_str("fork"),
            Node::End(end) => write!(f, "{end}"),
        }
    }
}

/// A time in the largest unit that it is a whole number of.
pub(crate) struct Time(pub(crate) Nanos);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.0;
        let (unit, name) = TIME_UNITS_NS
            .into_iter()
            .find(|(unit, _)| ns != 0 && ns.is_multiple_of(*unit))
            .unwrap_or((1, "ns"));
        write!(f, "{}{name}", ns / unit)
    }
}

/// The units of times, largest first.
pub(crate) const TIME_UNITS_NS: [(u64, &str); 4] =
    [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];

pub(crate) fn invocations(nodes: &[Node]) -> usize {
    nodes.iter().map(Node::invocations).sum()
}

/// Returns whether a path leads behind these nodes.
pub(crate) fn goes_on(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| match node {
        Node::Run(_) | Node::Trans(..) => true,
        Node::Branch(branch) => goes_on(&branch.on_true) || goes_on(&branch.on_false),
        Node::Fork(fork) => fork.join,
        Node::End(_) => false,
    })
}

/// Calls `visit` with every node in the order of the text, and with its depth.
pub(crate) fn visit_nodes<'a>(
    nodes: &'a [Node],
    depth: usize,
    visit: &mut dyn FnMut(&'a Node, usize),
) {
    for node in nodes {
        visit(node, depth);
        match node {
            Node::Run(_) | Node::Trans(..) | Node::End(_) => {}
            Node::Branch(branch) => {
                visit_nodes(&branch.on_true, depth + 1, visit);
                visit_nodes(&branch.on_false, depth + 1, visit);
            }
            Node::Fork(fork) => {
                for arm in &fork.arms {
                    visit_nodes(arm, depth + 1, visit);
                }
            }
        }
    }
}
