//! Describes a trace in words: its steps, and the payload behind each step.

use std::fmt::Write;

use units::Op;

use crate::catalog::Catalog;
use crate::check::{Formats, words};
use crate::encode::Head;
use crate::tree::{End, Node, Time, Trace};
use crate::walk::walk;

/// Describes `trace`, which must belong to `catalog`.
pub fn explain(catalog: &Catalog, trace: &Trace) -> String {
    let mut out = String::new();
    let bytes = catalog.encode(&trace.name, Head::default()).map_or(0, |bytes| bytes.len());
    let (fewest, most) = lengths(trace);
    let count = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
    let address = catalog.address(&trace.name).unwrap_or_default();
    line(&mut out, 0, &format!("{} takes {}.", trace.name, trace.takes));
    line(
        &mut out,
        0,
        &format!("It invokes {count} ops; {bytes} bytes encoded, at address {address}."),
    );
    let before = catalog.formats(trace);
    let mut explainer = Explainer { out, before: &before, node: 0, step: 0 };
    explainer.block(&trace.body, 1);
    explainer.out
}

/// Returns the fewest and the most ops that one run of the trace invokes. The arms of a fork are
/// added up.
fn lengths(trace: &Trace) -> (usize, usize) {
    let (mut fields, mut literals) = (Vec::new(), vec![0, 1]);
    trace.visit(&mut |node, _| {
        if let Node::Branch(branch) = node {
            branch.condition.visit(&mut |field, literal| {
                if !fields.contains(&field) {
                    fields.push(field);
                }
                let around = literal.map(|at| [at, at.saturating_sub(1), at.saturating_add(1)]);
                literals.extend(around.into_iter().flatten());
            });
        }
    });
    literals.sort_unstable();
    literals.dedup();
    let trials = literals.len().checked_pow(u32::try_from(fields.len()).unwrap_or(u32::MAX));
    let Some(trials) = trials.filter(|trials| *trials <= TRIALS_MAX) else {
        return (1, trace.invocations());
    };
    let count = |trial: usize| {
        let mut read = |field: &str| {
            let place = fields.iter().position(|known| *known == field).unwrap_or(0);
            let digit = trial / literals.len().pow(u32::try_from(place).unwrap_or(0));
            literals[digit % literals.len()]
        };
        walk(trace, &mut read).ops.len()
    };
    let counts: Vec<usize> = (0..trials).map(count).collect();
    (counts.iter().copied().min().unwrap_or(0), counts.iter().copied().max().unwrap_or(0))
}

/// The maximum number of combinations of field values that are tried.
const TRIALS_MAX: usize = 65_536;

struct Explainer<'a> {
    out: String,
    before: &'a [Formats],
    node: usize,
    step: usize,
}

impl Explainer<'_> {
    fn block(&mut self, nodes: &[Node], indent: usize) {
        for node in nodes {
            let before = self.before.get(self.node).cloned().unwrap_or_default();
            self.node += 1;
            self.explain_node(node, &before, indent);
        }
    }

    fn explain_node(&mut self, node: &Node, before: &Formats, indent: usize) {
        match node {
            Node::Run(run) => {
                self.step += 1;
                let after = before.iter().filter_map(|format| format.after(run.op).ok()).collect();
                let what = does(run.op, self.step == 1, &words(before), &words(&after));
                let due = run.due.map(|due| format!(", due {}", Time(due))).unwrap_or_default();
                line(&mut self.out, indent, &format!("{}. {}: {what}{due}", self.step, run.op));
            }
            Node::Trans(from, to) => {
                line(
                    &mut self.out,
                    indent,
                    &format!("the payload is transformed from {from} to {to}"),
                );
            }
            Node::Branch(branch) => {
                line(&mut self.out, indent, &format!("if {}:", branch.condition));
                self.arm(&branch.on_true, indent + 1);
                if !branch.on_false.is_empty() {
                    line(&mut self.out, indent, "otherwise:");
                    self.arm(&branch.on_false, indent + 1);
                }
            }
            Node::Fork(fork) => {
                let count = fork.arms.len();
                line(&mut self.out, indent, &format!("the payload goes {count} ways at once:"));
                for (index, arm) in fork.arms.iter().enumerate() {
                    line(&mut self.out, indent, &format!("way {}:", index + 1));
                    self.arm(arm, indent + 1);
                }
                if fork.join {
                    let text = "once all have come this far, the payload of way 1 goes on";
                    line(&mut self.out, indent, text);
                }
            }
            Node::End(end) => line(&mut self.out, indent, &ends(end)),
        }
    }

    fn arm(&mut self, nodes: &[Node], indent: usize) {
        if nodes.is_empty() {
            line(&mut self.out, indent, "nothing");
        }
        self.block(nodes, indent);
    }
}

fn does(op: Op, first: bool, before: &str, after: &str) -> String {
    match op {
        Op::Tcp if first => format!("receives {before}"),
        Op::Tcp => format!("sends {before}"),
        Op::LoadBalance => "picks a core".to_owned(),
        Op::Copy => format!("copies {before}"),
        Op::Checksum => format!("sums up {before}"),
        Op::Notify
        | Op::Compress
        | Op::Decompress
        | Op::Encrypt
        | Op::Decrypt
        | Op::Serialize
        | Op::Deserialize
        | Op::Rpc => format!("{before} becomes {after}"),
    }
}

fn ends(end: &End) -> String {
    match end {
        End::Notify => "the core that started it is notified".to_owned(),
        End::Tail(trace) => format!("{trace} goes on at once"),
        End::Await { trace, within } => {
            let within = within.map(|time| format!(", or the core is told after {}", Time(time)));
            format!("{trace} goes on when the answer arrives{}", within.unwrap_or_default())
        }
    }
}

fn line(out: &mut String, indent: usize, text: &str) {
    writeln!(out, "{:width$}{text}", "", width = 2 * indent).expect("a string takes any text");
}
