//! What a trace does for given fields: the ops it invokes and how it ends. It runs nothing.

use units::Op;

use crate::tree::{End, Node, Trace};

/// What a trace does for given fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked<'a> {
    /// The ops invoked, arms of a fork one after the other.
    pub ops: Vec<Op>,
    /// How its paths end: one, or one for each arm of a fork.
    pub ends: Vec<&'a End>,
    /// Branches decided behind an op, by its dispatcher. One before the first op is decided by who starts the trace.
    pub branches: usize,
    /// Transforms made.
    pub transforms: usize,
}

/// What `trace` does where a field has the value that `read` gives; flags are set above zero.
pub fn walk<'a>(trace: &'a Trace, read: &mut dyn FnMut(&str) -> u32) -> Walked<'a> {
    let mut walked = Walked::default();
    block(&trace.body, read, &mut walked);
    walked
}

/// Whether the path goes on.
fn block<'a>(
    nodes: &'a [Node],
    read: &mut dyn FnMut(&str) -> u32,
    walked: &mut Walked<'a>,
) -> bool {
    nodes.iter().all(|node| match node {
        Node::Run(run) => {
            walked.ops.push(run.op);
            true
        }
        Node::Trans(..) => {
            walked.transforms += 1;
            true
        }
        Node::Branch(branch) => {
            walked.branches += usize::from(!walked.ops.is_empty());
            let taken = branch.condition.holds(read);
            block(if taken { &branch.on_true } else { &branch.on_false }, read, walked)
        }
        Node::Fork(fork) => {
            for arm in &fork.arms {
                block(arm, read, walked);
            }
            fork.join
        }
        Node::End(end) => {
            walked.ends.push(end);
            false
        }
    })
}
