//! Builds traces in code with `seq`, `branch` and `trans` of \[AccelFlow\], and with `fork`,
//! `join`, `tail`, `wait` and `notify`. Nodes can be added to a [`Block`] but not to a [`Path`].
//! Only a path makes a trace, so a missing notify does not compile. The catalog checks what types
//! cannot express (formats, names, sizes).

use units::{Nanos, Op};

use crate::condition::Condition;
use crate::limits::{DEPTH_MAX, GLUE_UNITS_MAX, INVOCATIONS_MAX};
use crate::payload::{Base, Format};
use crate::tree::{Branch, End, Fork, Node, Run, Trace};

/// A part of a trace to which more nodes can be added.
///
/// A block stops growing when it is far larger or deeper than a catalog accepts, so building it can
/// neither fill the memory nor overflow a stack. The catalog then refuses the trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Block(Nodes);

/// A part of a trace that ends in a notification or in another trace. No node can be added to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Path(Nodes);

/// An arm of a branch: a [`Block`] or a [`Path`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct BranchArm(Nodes);

/// A list of nodes, with the number of nodes including those in arms, and the depth of nesting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Nodes {
    all: Vec<Node>,
    count: usize,
    depth: usize,
}

impl Nodes {
    /// Adds a node without arms.
    fn push(&mut self, node: Node) {
        if self.count <= COUNT_KEPT {
            self.all.push(node);
            self.count += 1;
        }
    }

    /// Adds a node that is made of these arms.
    fn nest(
        &mut self,
        arms: impl IntoIterator<Item = Nodes>,
        node: impl FnOnce(Vec<Nodes>) -> Node,
    ) {
        if self.count > COUNT_KEPT {
            return;
        }
        let (mut kept, mut count, mut depth) = (Vec::new(), self.count + 1, 0);
        for arm in arms {
            count += 1 + arm.count;
            depth = depth.max(1 + arm.depth);
            kept.push(arm);
            if count > COUNT_KEPT {
                break;
            }
        }
        if depth > DEPTH_MAX + 1
            && let Some(deepest) = kept.iter().position(|arm| arm.depth + 1 == depth)
        {
            // The arm alone is too deep already.
            *self = kept.swap_remove(deepest);
            return;
        }
        self.all.push(node(kept));
        (self.count, self.depth) = (count, self.depth.max(depth));
    }
}

impl From<Block> for BranchArm {
    fn from(block: Block) -> BranchArm {
        BranchArm(block.0)
    }
}

impl From<Path> for BranchArm {
    fn from(path: Path) -> BranchArm {
        BranchArm(path.0)
    }
}

impl Trace {
    /// Makes a trace whose payload has this format at the start.
    pub fn new(name: impl Into<String>, takes: Format, path: Path) -> Trace {
        Trace { name: name.into(), takes, body: path.0.all }
    }
}

/// Begins a block with ops that run one after the other.
pub fn seq(ops: impl IntoIterator<Item = Op>) -> Block {
    Block::default().seq(ops)
}

/// Begins a block with a transform.
pub fn trans(from: Base, to: Base) -> Block {
    Block::default().trans(from, to)
}

impl Block {
    /// Makes an empty block, for an arm that does nothing.
    pub fn empty() -> Block {
        Block::default()
    }

    /// Adds ops that run one after the other.
    pub fn seq(mut self, ops: impl IntoIterator<Item = Op>) -> Block {
        for op in ops.into_iter().take(COUNT_KEPT + 1) {
            self.0.push(Node::Run(Run { op, due: None }));
        }
        self
    }

    /// Adds one op with its deadline (see [`Run::due`]).
    pub fn due(mut self, op: Op, due: Nanos) -> Block {
        self.0.push(Node::Run(Run { op, due: Some(due) }));
        self
    }

    /// Adds a transform that changes the payload's base.
    pub fn trans(mut self, from: Base, to: Base) -> Block {
        self.0.push(Node::Trans(from, to));
        self
    }

    /// Adds a branch to one of two arms. Nodes that are added later continue each arm that has not
    /// ended. If both arms have ended, use [`Block::either`].
    pub fn branch(
        mut self,
        condition: Condition,
        on_true: impl Into<BranchArm>,
        on_false: impl Into<BranchArm>,
    ) -> Block {
        self.choice(condition, on_true.into().0, on_false.into().0);
        self
    }

    /// Ends the path with a branch to one of two arms, which both end.
    pub fn either(mut self, condition: Condition, on_true: Path, on_false: Path) -> Path {
        self.choice(condition, on_true.0, on_false.0);
        Path(self.0)
    }

    /// Ends the path with several arms that run at the same time. Each arm ends by itself.
    pub fn fork(mut self, arms: impl IntoIterator<Item = Path>) -> Path {
        self.fan(arms.into_iter().map(|path| path.0), false);
        Path(self.0)
    }

    /// Adds several arms that run at the same time. The nodes that follow wait for all arms and
    /// continue with the payload of the first arm.
    pub fn join(mut self, arms: impl IntoIterator<Item = Block>) -> Block {
        self.fan(arms.into_iter().map(|block| block.0), true);
        self
    }

    fn choice(&mut self, condition: Condition, on_true: Nodes, on_false: Nodes) {
        self.0.nest([on_true, on_false], |arms| {
            let mut arms = arms.into_iter().map(|arm| arm.all);
            let mut next = || arms.next().unwrap_or_default();
            Node::Branch(Branch { condition, on_true: next(), on_false: next() })
        });
    }

    fn fan(&mut self, arms: impl Iterator<Item = Nodes>, join: bool) {
        self.0.nest(arms, |arms| {
            Node::Fork(Fork { arms: arms.into_iter().map(|arm| arm.all).collect(), join })
        });
    }

    /// Ends the path with a notification to the core that started the trace.
    pub fn notify(self) -> Path {
        self.end(End::Notify)
    }

    /// Ends the path with the named trace, which continues at once.
    pub fn tail(self, trace: impl Into<String>) -> Path {
        self.end(End::Tail(trace.into()))
    }

    /// Ends the path with a wait for the answer to the message that `tcp` has just sent. The named
    /// trace continues when the answer arrives.
    pub fn wait(self, trace: impl Into<String>, within: Option<Nanos>) -> Path {
        self.end(End::Await { trace: trace.into(), within })
    }

    fn end(mut self, end: End) -> Path {
        self.0.push(Node::End(end));
        Path(self.0)
    }
}

/// The maximum number of nodes and arms in a block. A catalog refuses a trace of this size, because
/// each node and each arm takes a unit of the encoding or is an invocation.
const COUNT_KEPT: usize = 4 * (INVOCATIONS_MAX + GLUE_UNITS_MAX);
