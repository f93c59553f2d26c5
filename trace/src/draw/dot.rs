//! Draws traces as a graph in Graphviz' DOT.

use std::fmt::Write;

use crate::tree::{End, Node, Trace};

/// Returns a graph with one cluster per trace. Dashed edges lead to the traces that continue, if
/// these are drawn too.
pub fn dot(traces: &[&Trace]) -> String {
    let mut out = String::from("digraph traces {\n");
    let mut put = |text: &str| writeln!(out, "{text}").expect("a string takes any text");
    put("  rankdir=LR; fontname=\"monospace\";");
    put("  node [shape=box, fontname=\"monospace\"]; edge [fontname=\"monospace\"];");
    let mut across = Vec::new();
    for (index, trace) in traces.iter().enumerate() {
        let mut graph =
            Graph { prefix: format!("t{index}n"), next: 1, text: String::new(), tails: Vec::new() };
        graph.block(&trace.body, vec![(0, "")]);
        put(&format!("  subgraph cluster_{index} {{"));
        put(&format!("    label=\"{}\";", trace.name));
        put(&format!("    t{index}n0 [label=\"{}\", shape=plaintext];", trace.takes));
        put(graph.text.trim_end_matches('\n'));
        put("  }");
        across.extend(graph.tails);
    }
    for (from, target, is_awaited) in across {
        if let Some(to) = traces.iter().position(|trace| trace.name == target) {
            let label = if is_awaited { " label=\"answer\"" } else { "" };
            put(&format!("  {from} -> t{to}n0 [style=dashed{label}];"));
        }
    }
    put("}");
    out
}

/// The nodes from which an edge leads to the next node, each with the label of its edge.
type Open = Vec<(usize, &'static str)>;

struct Graph {
    prefix: String,
    next: usize,
    text: String,
    /// The edges to other traces: the node, the trace that continues, and whether it continues only
    /// after an answer.
    tails: Vec<(String, String, bool)>,
}

impl Graph {
    fn block(&mut self, nodes: &[Node], mut open: Open) -> Open {
        for node in nodes {
            open = self.node(node, open);
        }
        open
    }

    fn node(&mut self, node: &Node, open: Open) -> Open {
        match node {
            Node::Run(run) => vec![(self.add(&run.to_string(), "box", open), "")],
            Node::Trans(..) => vec![(self.add(&node.to_string(), "note", open), "")],
            Node::Branch(branch) => {
                let at = self.add(&format!("{}?", branch.condition), "diamond", open);
                let mut ends = self.block(&branch.on_true, vec![(at, "yes")]);
                ends.extend(self.block(&branch.on_false, vec![(at, "no")]));
                ends
            }
            Node::Fork(fork) => {
                let at = self.add("fork", "triangle", open);
                let arms = fork.arms.iter().map(|arm| self.block(arm, vec![(at, "")]));
                let ends: Open = arms.collect::<Vec<_>>().concat();
                if fork.join {
                    vec![(self.add("join", "invtriangle", ends), "")]
                } else {
                    Open::new()
                }
            }
            Node::End(end) => {
                let at = self.add(&end.to_string(), "oval", open);
                if let Some(target) = end.target() {
                    let awaited = matches!(end, End::Await { .. });
                    self.tails.push((format!("{}{at}", self.prefix), target.to_owned(), awaited));
                }
                Open::new()
            }
        }
    }

    fn add(&mut self, label: &str, shape: &str, open: Open) -> usize {
        let (at, prefix) = (self.next, self.prefix.clone());
        self.next += 1;
        let label = label.replace('\\', "\\\\").replace('"', "\\\"");
        let mut put = |text: String| {
            writeln!(self.text, "    {text}").expect("a string takes any text");
        };
        put(format!("{prefix}{at} [label=\"{label}\", shape={shape}];"));
        for (from, label) in open {
            let label =
                if label.is_empty() { String::new() } else { format!(" [label=\"{label}\"]") };
            put(format!("{prefix}{from} -> {prefix}{at}{label};"));
        }
        at
    }
}
