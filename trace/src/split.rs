//! Cuts a trace with too many invocations into several traces that continue each other.

use thiserror::Error;

use crate::check::{Formats, formats, words};
use crate::limits::INVOCATIONS_MAX;
use crate::payload::Format;
use crate::tree::{End, Fork, Node, Trace, invocations, visit_nodes};

/// The reason why a trace cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum SplitError {
    #[error(
        "{trace}: a fork that joins holds {count} invocations, and its arms cannot go elsewhere"
    )]
    Join { trace: String, count: usize },
    #[error(
        "{trace}: where it has to be cut, the payload is {payload}, and a trace takes one format"
    )]
    Formats { trace: String, payload: String },
}

/// Splits a trace into parts of at most [`INVOCATIONS_MAX`] invocations each. The first part keeps
/// the trace's name, and the other parts add a number to it. Nothing else about the trace is
/// checked.
///
/// # Errors
/// Returns the place where the trace cannot be cut.
pub fn split(trace: &Trace) -> Result<Vec<Trace>, SplitError> {
    let mut splitter = Splitter { name: &trace.name, parts: 1, waiting: Vec::new() };
    let mut done = Vec::new();
    let mut next = Some(trace.clone());
    while let Some(mut part) = next {
        let start = Formats::from([part.takes]);
        splitter.trim(&mut part.body, INVOCATIONS_MAX, &start)?;
        done.push(part);
        next = splitter.waiting.pop();
    }
    Ok(done)
}

struct Splitter<'a> {
    name: &'a str,
    parts: usize,
    /// The parts that were cut off. They may still be too long.
    waiting: Vec<Trace>,
}

impl Splitter<'_> {
    /// Cuts these nodes to at most `budget` invocations. The payload in front of them has one of
    /// the formats in `start`.
    fn trim(
        &mut self,
        nodes: &mut Vec<Node>,
        budget: usize,
        start: &Formats,
    ) -> Result<(), SplitError> {
        if invocations(nodes) <= budget {
            return Ok(());
        }
        let before = formats(nodes, start.clone());
        let at = |nodes: &[Node], place| &before[number(nodes, place)];
        let (mut fits, mut used) = (0, 0);
        while used + nodes[fits].invocations() <= budget {
            used += nodes[fits].invocations();
            fits += 1;
        }
        // Finds the latest place at which the payload has exactly one format. Unless the budget is
        // 0, an op must run in front of it.
        let is_cut = |place: &usize| {
            at(nodes, *place).len() == 1 && (budget == 0 || invocations(&nodes[..*place]) > 0)
        };
        if let Some(place) = (0..=fits).rev().find(is_cut) {
            let takes = self.takes(at(nodes, place))?;
            let rest = nodes.split_off(place);
            nodes.push(self.part(takes, rest));
            return Ok(());
        }
        let start = at(nodes, fits).clone();
        if matches!(nodes[fits], Node::Run(_)) {
            self.takes(&start)?;
        }
        let behind = nodes.get(fits + 1).map(|_| at(nodes, fits + 1));
        let mut rest = nodes.split_off(fits + 1);
        if let Some(behind) = behind.filter(|_| invocations(&rest) > 0) {
            let takes = self.takes(behind)?;
            rest = vec![self.part(takes, rest)];
        }
        close(nodes, &rest);
        self.trim_arms(&mut nodes[fits], budget - used, &start)
    }

    /// Divides the budget among the arms of a node that is too large by itself.
    fn trim_arms(
        &mut self,
        node: &mut Node,
        budget: usize,
        start: &Formats,
    ) -> Result<(), SplitError> {
        let mut arms: Vec<&mut Vec<Node>> = match node {
            Node::Branch(branch) => vec![&mut branch.on_true, &mut branch.on_false],
            Node::Fork(Fork { arms, join: false }) => arms.iter_mut().collect(),
            Node::Fork(_) | Node::Run(_) | Node::Trans(..) | Node::End(_) => {
                let (trace, count) = (self.name.to_owned(), node.invocations());
                return Err(SplitError::Join { trace, count });
            }
        };
        arms.sort_by_key(|arm| invocations(arm));
        let (mut left, count) = (budget, arms.len());
        for (index, arm) in arms.into_iter().enumerate() {
            let share = left / (count - index);
            self.trim(arm, share, start)?;
            left -= invocations(arm);
        }
        Ok(())
    }

    /// Makes a trace of these nodes, and returns the node that continues with this trace.
    fn part(&mut self, takes: Format, body: Vec<Node>) -> Node {
        self.parts += 1;
        let name = format!("{}.{}", self.name, self.parts);
        self.waiting.push(Trace { name: name.clone(), takes, body });
        Node::End(End::Tail(name))
    }

    fn takes(&self, formats: &Formats) -> Result<Format, SplitError> {
        let only = formats.first().copied().filter(|_| formats.len() == 1);
        only.ok_or_else(|| {
            let (trace, payload) = (self.name.to_owned(), words(formats));
            SplitError::Formats { trace, payload }
        })
    }
}

/// Appends `rest` to every path through these nodes that does not end.
fn close(nodes: &mut Vec<Node>, rest: &[Node]) {
    match nodes.last_mut() {
        Some(Node::End(_) | Node::Fork(Fork { join: false, .. })) => {}
        Some(Node::Branch(branch)) => {
            close(&mut branch.on_true, rest);
            close(&mut branch.on_false, rest);
        }
        Some(Node::Run(_) | Node::Trans(..) | Node::Fork(_)) | None => {
            nodes.extend_from_slice(rest)
        }
    }
}

/// Returns the number of a block's node in the order of the text. `place` is the node's index in
/// the block.
fn number(nodes: &[Node], place: usize) -> usize {
    let mut count = 0;
    visit_nodes(&nodes[..place], 0, &mut |_, _| count += 1);
    count
}
