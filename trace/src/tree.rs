//! The data types of traces. The builder, the text form and the decoder make traces. Only a trace
//! in a [`Catalog`](crate::Catalog) has been checked.

use std::fmt;

use units::{Nanos, Op};

use crate::condition::Condition;
use crate::payload::{Base, Format};

/// A field of the payload that branches may read. Its index in the catalog is its slot in the
/// encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name that conditions use.
    pub name: String,
    /// The kind of the field's content.
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
    /// Returns the kind's name in traces.
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
    /// The format of the payload at the start of the trace.
    pub takes: Format,
    /// The nodes, in order.
    pub body: Vec<Node>,
}

/// One action of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// An invocation of an op.
    Run(Run),
    /// A transform, which changes the payload's base from the first to the second.
    Trans(Base, Base),
    /// A branch, which takes one of two arms. If the arm does not end, the nodes behind the branch
    /// follow.
    Branch(Branch),
    /// A fork, which sends the payload to every arm at once.
    Fork(Fork),
    /// The end of the path.
    End(End),
}

/// An invocation of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The op.
    pub op: Op,
    /// The time by which the op should be done (ns), counted from the start of the first trace of a
    /// chain of tails. If an op is early, the time that it saves is available to the next op. The
    /// deadline is soft.
    pub due: Option<Nanos>,
}

/// A choice between two arms that depends on the payload's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The condition.
    pub condition: Condition,
    /// The nodes that run if the condition holds.
    pub on_true: Vec<Node>,
    /// The nodes that run if the condition does not hold.
    pub on_false: Vec<Node>,
}

/// Several arms that run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The arms, at least two.
    pub arms: Vec<Vec<Node>>,
    /// Whether the nodes that follow wait for all arms and continue with the payload of the first
    /// arm. Otherwise every arm ends by itself.
    pub join: bool,
}

/// The end of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The payload is written to memory, and the core that started the trace is notified.
    Notify,
    /// The named trace continues with the payload immediately.
    Tail(String),
    /// `tcp` has just sent a message, and the named trace starts when the answer to it arrives.
    Await {
        /// The trace that receives the answer.
        trace: String,
        /// The timeout for the answer. When it expires, the core is notified.
        within: Option<Nanos>,
    },
}

impl Trace {
    /// Returns the number of invocations in the trace, including those in all arms.
    pub fn invocations(&self) -> usize {
        invocations(&self.body)
    }

    /// Calls `visit` with every node and its depth, in the order of the text.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Node, usize)) {
        visit_nodes(&self.body, 0, visit);
    }

    /// Returns the ends that continue with another trace, in the order of the text.
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
    /// Returns the name of the trace that continues, if there is one.
    pub fn target(&self) -> Option<&str> {
        match self {
            End::Notify => None,
            End::Tail(trace) | End::Await { trace, .. } => Some(trace),
        }
    }
}

impl Node {
    /// Returns the number of invocations in this node and its arms.
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

/// Writes the first line of a node in the text form, without the brace.
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

/// A time that is printed in the largest unit that divides it.
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

/// The units of time with their lengths (ns), from the longest to the shortest.
pub(crate) const TIME_UNITS_NS: [(u64, &str); 4] =
    [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];

pub(crate) fn invocations(nodes: &[Node]) -> usize {
    nodes.iter().map(Node::invocations).sum()
}

/// Returns whether some path leads through these nodes to the node behind them.
pub(crate) fn goes_on(nodes: &[Node]) -> bool {
    nodes.iter().all(|node| match node {
        Node::Run(_) | Node::Trans(..) => true,
        Node::Branch(branch) => goes_on(&branch.on_true) || goes_on(&branch.on_false),
        Node::Fork(fork) => fork.join,
        Node::End(_) => false,
    })
}

/// Calls `visit` with every node and its depth, in the order of the text.
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
