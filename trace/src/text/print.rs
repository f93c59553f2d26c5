//! Turns a draft into the lines of its canonical layout, without comments. Each node takes one
//! line, and arms are indented.

use crate::catalog::Draft;
use crate::service::{Service, Stage};
use crate::tree::{Field, Node, Trace};

/// A line and its depth of indentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) indent: usize,
    pub(crate) text: String,
}

/// Returns the lines of fields, traces and services, in this order.
pub(crate) fn lines(draft: &Draft) -> Vec<Line> {
    let mut out = Vec::new();
    draft.fields.iter().for_each(|field| self::field(field, &mut out));
    draft.traces.iter().for_each(|trace| self::trace(trace, &mut out));
    draft.services.iter().for_each(|service| self::service(service, &mut out));
    out
}

pub(crate) fn field(field: &Field, out: &mut Vec<Line>) {
    push(out, 0, format!("field {} {}", field.name, field.kind.name()));
}

pub(crate) fn trace(trace: &Trace, out: &mut Vec<Line>) {
    push(out, 0, format!("trace {} takes {} {{", trace.name, trace.takes));
    block(&trace.body, 1, out);
    push(out, 0, "}");
}

pub(crate) fn service(service: &Service, out: &mut Vec<Line>) {
    push(out, 0, format!("service {} {{", service.name));
    stages(&service.path, 1, out);
    push(out, 0, "}");
}

fn push(out: &mut Vec<Line>, indent: usize, text: impl Into<String>) {
    out.push(Line { indent, text: text.into() });
}

fn block(nodes: &[Node], indent: usize, out: &mut Vec<Line>) {
    for node in nodes {
        match node {
            Node::Run(_) | Node::Trans(..) | Node::End(_) => push(out, indent, node.to_string()),
            Node::Branch(branch) => {
                push(out, indent, format!("{node} {{"));
                block(&branch.on_true, indent + 1, out);
                if !branch.on_false.is_empty() {
                    push(out, indent, "} else {");
                    block(&branch.on_false, indent + 1, out);
                }
                push(out, indent, "}");
            }
            Node::Fork(fork) => {
                push(out, indent, "fork {");
                for (index, arm) in fork.arms.iter().enumerate() {
                    if index > 0 {
                        push(out, indent, "} and {");
                    }
                    block(arm, indent + 1, out);
                }
                push(out, indent, if fork.join { "} join" } else { "}" });
            }
        }
    }
}

fn stages(path: &[Stage], indent: usize, out: &mut Vec<Line>) {
    for stage in path {
        match stage {
            Stage::Cpu => push(out, indent, "cpu"),
            Stage::Run { trace, with } if with.is_empty() => {
                push(out, indent, format!("run {trace}"));
            }
            Stage::Run { trace, with } => {
                push(out, indent, format!("run {trace} with {}", with.join(", ")));
            }
            Stage::Parallel { times, path } => {
                push(out, indent, format!("parallel {times} {{"));
                stages(path, indent + 1, out);
                push(out, indent, "}");
            }
        }
    }
}
