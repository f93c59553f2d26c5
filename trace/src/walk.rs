//! Computes which ops a trace invokes and how it ends, for given values of fields. This module runs
//! nothing.

use units::Op;

use crate::tree::{End, Node, Trace};

/// The result of a trace for given values of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Walked<'a> {
    /// The invoked ops, with the arms of a fork one after the other.
    pub ops: Vec<Op>,
    /// The work after each op, in the order of `ops`.
    pub behind: Vec<Behind>,
    /// The ends of the trace's paths: one end, or one for each arm of a fork.
    pub ends: Vec<&'a End>,
}

/// The work that an op's dispatcher must do when the op is done. The work before the first op, and
/// between a join and the next op, is not counted here, because a core does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// The number of decided branches.
    pub branches: u32,
    /// The number of transforms.
    pub transforms: u32,
    /// The number of ends. At an end a core is notified, or another trace is loaded.
    pub ends: u32,
}

/// Computes the result of `trace` if each field has the value that `read` returns. A flag is set if
/// its value is not zero.
pub fn walk<'a>(trace: &'a Trace, read: &mut dyn FnMut(&str) -> u32) -> Walked<'a> {
    let mut walker = Walker { read, walked: Walked::default(), last: None };
    walker.block(&trace.body);
    walker.walked
}

struct Walker<'a, 'r> {
    read: &'r mut dyn FnMut(&str) -> u32,
    walked: Walked<'a>,
    /// The index of the op to which the next work belongs. It is none if a core does the work.
    last: Option<usize>,
}

impl<'a> Walker<'a, '_> {
    /// Walks through nodes and returns whether the path continues.
    fn block(&mut self, nodes: &'a [Node]) -> bool {
        nodes.iter().all(|node| match node {
            Node::Run(run) => {
                self.last = Some(self.walked.ops.len());
                self.walked.ops.push(run.op);
                self.walked.behind.push(Behind::default());
                true
            }
            Node::Trans(..) => {
                self.behind(|behind| behind.transforms += 1);
                true
            }
            Node::Branch(branch) => {
                self.behind(|behind| behind.branches += 1);
                let taken = branch.condition.holds(self.read);
                self.block(if taken { &branch.on_true } else { &branch.on_false })
            }
            Node::Fork(fork) => {
                let last = self.last;
                for arm in &fork.arms {
                    self.last = last;
                    self.block(arm);
                }
                self.last = None;
                fork.join
            }
            Node::End(end) => {
                self.behind(|behind| behind.ends += 1);
                self.walked.ends.push(end);
                false
            }
        })
    }

    fn behind(&mut self, change: impl FnOnce(&mut Behind)) {
        if let Some(last) = self.last {
            change(&mut self.walked.behind[last]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_behind_an_op_belongs_to_it() {
        let text = "field a flag\ntrace x takes json { \
                    if a { copy } trans json -> string copy if a { copy } notify }\n\
                    trace y takes json { copy fork { copy trans json -> string notify } and { \
                    trans json -> string notify } }\n\
                    trace z takes json { copy fork { copy } and { copy } join \
                    trans json -> string copy notify }";
        let catalog = crate::read(&[("f.trace", text)]).expect("no faults");
        let behind = |name: &str| {
            let trace = catalog.traces().iter().find(|trace| trace.name == name).expect("is there");
            let counts = |counts: &Behind| [counts.branches, counts.transforms, counts.ends];
            walk(trace, &mut |_| 0).behind.iter().map(counts).collect::<Vec<_>>()
        };
        assert_eq!(behind("x"), [[1, 0, 1]], "what is before the first op is a core's");
        assert_eq!(behind("y"), [[0, 1, 1], [0, 1, 1]], "an arm without an op is the fork's");
        assert_eq!(behind("z"), [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]);
    }
}
