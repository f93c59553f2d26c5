//! The builder: the seed's `seq`, `branch` and `trans`, and `fork`, `join`, `tail`, `wait` and `notify`. A [`Block`] is
//! open, a [`Path`] has ended, and only a path makes a trace: a missing notify does not compile. What types cannot say
//! (formats, names, sizes) the catalog checks.

use units::{Nanos, Op};

use crate::condition::Condition;
use crate::payload::{Base, Format};
use crate::tree::{Branch, End, Fork, Node, Run, Trace};

/// A part of a trace that something follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Block(Vec<Node>);

/// A part of a trace that nothing follows: it ends in a notification or another trace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Path(Vec<Node>);

/// An arm of a branch, open or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Arm(Vec<Node>);

impl From<Block> for Arm {
    fn from(block: Block) -> Arm {
        Arm(block.0)
    }
}

impl From<Path> for Arm {
    fn from(path: Path) -> Arm {
        Arm(path.0)
    }
}

impl Trace {
    /// A trace that takes a payload of this format.
    pub fn new(name: impl Into<String>, takes: Format, path: Path) -> Trace {
        Trace { name: name.into(), takes, body: path.0 }
    }
}

/// Ops one after the other, to begin with.
pub fn seq(ops: impl IntoIterator<Item = Op>) -> Block {
    Block::default().seq(ops)
}

/// A transform, to begin with.
pub fn trans(from: Base, to: Base) -> Block {
    Block::default().trans(from, to)
}

impl Block {
    /// Nothing: the arm of a branch that does nothing.
    pub fn empty() -> Block {
        Block::default()
    }

    /// Ops one after the other.
    pub fn seq(mut self, ops: impl IntoIterator<Item = Op>) -> Block {
        self.0.extend(ops.into_iter().map(|op| Node::Run(Run { op, due: None })));
        self
    }

    /// One op with its deadline (see [`Run::due`]).
    pub fn due(mut self, op: Op, due: Nanos) -> Block {
        self.0.push(Node::Run(Run { op, due: Some(due) }));
        self
    }

    /// The payload changes its base.
    pub fn trans(mut self, from: Base, to: Base) -> Block {
        self.0.push(Node::Trans(from, to));
        self
    }

    /// One of two arms; what follows goes on where an arm is open. Where both have ended, [`Block::either`].
    pub fn branch(
        mut self,
        condition: Condition,
        on_true: impl Into<Arm>,
        on_false: impl Into<Arm>,
    ) -> Block {
        let (on_true, on_false) = (on_true.into().0, on_false.into().0);
        self.0.push(Node::Branch(Branch { condition, on_true, on_false }));
        self
    }

    /// One of two arms, both of which end.
    pub fn either(mut self, condition: Condition, on_true: Path, on_false: Path) -> Path {
        let (on_true, on_false) = (on_true.0, on_false.0);
        self.0.push(Node::Branch(Branch { condition, on_true, on_false }));
        Path(self.0)
    }

    /// Several arms at once, each of which ends by itself.
    pub fn fork(mut self, arms: impl IntoIterator<Item = Path>) -> Path {
        let arms = arms.into_iter().map(|path| path.0).collect();
        self.0.push(Node::Fork(Fork { arms, join: false }));
        Path(self.0)
    }

    /// Several arms at once; what follows waits for all and goes on with the first one's payload.
    pub fn join(mut self, arms: impl IntoIterator<Item = Block>) -> Block {
        let arms = arms.into_iter().map(|block| block.0).collect();
        self.0.push(Node::Fork(Fork { arms, join: true }));
        self
    }

    /// The core that started the trace is told.
    pub fn notify(self) -> Path {
        self.end(End::Notify)
    }

    /// The named trace goes on at once.
    pub fn tail(self, trace: impl Into<String>) -> Path {
        self.end(End::Tail(trace.into()))
    }

    /// The named trace goes on when the answer to what `tcp` has just sent arrives.
    pub fn wait(self, trace: impl Into<String>, within: Option<Nanos>) -> Path {
        self.end(End::Await { trace: trace.into(), within })
    }

    fn end(mut self, end: End) -> Path {
        self.0.push(Node::End(end));
        Path(self.0)
    }
}
