//! Draws traces as railroad diagrams in SVG. The path runs from left to right, and the arms of a
//! branch or fork are below each other.

use maud::{Markup, PreEscaped, html};

use crate::tree::{Node, Trace};

/// Draws the traces below each other.
pub fn svg(traces: &[&Trace]) -> String {
    let sizes: Vec<Size> = traces.iter().map(|trace| sequence(&trace.body)).collect();
    let heads: Vec<i32> = traces.iter().map(|trace| text_width(&trace.takes.to_string())).collect();
    let width = sizes.iter().zip(&heads).map(|(size, head)| size.width + head).max().unwrap_or(0);
    let width = width + 2 * MARGIN + GAP;
    let height: i32 = sizes.iter().map(|size| size.up + size.down + TITLE).sum();
    let height = height + 2 * MARGIN;
    let mut picture = Picture::default();
    let mut top = MARGIN;
    for ((trace, size), head) in traces.iter().zip(&sizes).zip(heads) {
        picture.put(html! { text x=(MARGIN) y=(top + 16) class="name" { (trace.name) } });
        let y = top + TITLE - 8 + size.up;
        picture.label(MARGIN, y, &trace.takes.to_string(), "start");
        let x = MARGIN + head;
        picture.rail(x, y, x + GAP, y);
        picture.block(&trace.body, x + GAP, y);
        top += TITLE + size.up + size.down;
    }
    let svg = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox={ "0 0 " (width) " " (height) } {
            (PreEscaped(STYLE))
            rect width=(width) height=(height) fill="#fff" {}
            (PreEscaped(picture.out))
        }
    };
    svg.into_string() + "\n"
}

/// The size of a part of the picture (pixels): its width, and its extent above and below its rail.
#[derive(Clone, Copy, Default)]
struct Size {
    width: i32,
    up: i32,
    down: i32,
    /// Whether the part ends the path, so that nothing follows it.
    ends: bool,
}

fn sequence(nodes: &[Node]) -> Size {
    let mut all = Size { up: HALF + PAD, down: HALF + PAD, ..Size::default() };
    for node in nodes {
        let size = size_of(node);
        all.width += size.width;
        all.up = all.up.max(size.up);
        all.down = all.down.max(size.down);
        all.ends |= size.ends;
    }
    all
}

fn size_of(node: &Node) -> Size {
    let plain = |ends| Size {
        width: text_width(&node.to_string()) + GAP,
        up: HALF + PAD,
        down: HALF + PAD,
        ends,
    };
    match node {
        Node::Run(_) | Node::Trans(..) => plain(false),
        Node::End(_) => plain(true),
        Node::Branch(branch) => {
            let question = text_width(&format!("{}?", branch.condition)) + 2 * POINT;
            stacked(question, &[&branch.on_true, &branch.on_false], false)
        }
        Node::Fork(fork) => {
            let arms: Vec<&Vec<Node>> = fork.arms.iter().collect();
            stacked(BAR, &arms, fork.join)
        }
    }
}

/// Returns the size of a branch or fork: a head of width `head`, and the arms below each other.
fn stacked(head: i32, arms: &[&Vec<Node>], bar: bool) -> Size {
    let sizes: Vec<Size> = arms.iter().map(|arm| sequence(arm)).collect();
    let widest = sizes.iter().map(|size| size.width).max().unwrap_or(0);
    let ends = sizes.iter().all(|size| size.ends);
    let up = sizes.first().map_or(0, |first| first.up);
    let total: i32 = sizes.iter().map(|size| size.up + size.down).sum();
    let behind = if ends { 0 } else { GAP + if bar { BAR } else { 0 } };
    Size { width: head + TURN + GAP + widest + behind, up, down: total - up, ends }
}

#[derive(Default)]
struct Picture {
    out: String,
}

impl Picture {
    fn put(&mut self, part: Markup) {
        self.out += &part.into_string();
        self.out.push('\n');
    }

    fn rail(&mut self, x: i32, y: i32, to_x: i32, to_y: i32) {
        if (x, y) != (to_x, to_y) {
            self.put(html! { path class="rail" d=(format_args!("M{x} {y}L{to_x} {to_y}")) {} });
        }
    }

    fn label(&mut self, x: i32, y: i32, text: &str, anchor: &str) {
        self.put(html! { text x=(x) y=(y + 4) text-anchor=(anchor) { (text) } });
    }

    /// Draws nodes from `x` on along the rail at `y`. Returns the `x` after the last node.
    fn block(&mut self, nodes: &[Node], mut x: i32, y: i32) -> i32 {
        for node in nodes {
            x = self.node(node, x, y);
        }
        x
    }

    fn node(&mut self, node: &Node, x: i32, y: i32) -> i32 {
        let text = node.to_string();
        let width = text_width(&text);
        match node {
            Node::Run(_) | Node::Trans(..) | Node::End(_) => {
                let (class, round) = match node {
                    Node::Run(_) => ("op", 3),
                    Node::End(_) => ("end", HALF),
                    _ => ("trans", 0),
                };
                self.put(html! {
                    rect class=(class) x=(x) y=(y - HALF) width=(width) height=(2 * HALF)
                        rx=(round) {}
                });
                self.label(x + width / 2, y, &text, "middle");
                if !matches!(node, Node::End(_)) {
                    self.rail(x + width, y, x + width + GAP, y);
                }
                x + width + GAP
            }
            Node::Branch(branch) => {
                let text = format!("{}?", branch.condition);
                let width = text_width(&text) + 2 * POINT;
                let (right, top, bottom) = (x + width, y - HALF, y + HALF);
                let (inner, outer) = (x + POINT, right - POINT);
                let shape = format!(
                    "M{x} {y}L{inner} {top}L{outer} {top}L{right} {y}L{outer} {bottom}L{inner} \
                     {bottom}Z"
                );
                self.put(html! { path class="ask" d=(shape) {} });
                self.label(x + width / 2, y, &text, "middle");
                self.arms(&[&branch.on_true, &branch.on_false], right, y, &["yes", "no"], false)
            }
            Node::Fork(fork) => {
                let arms: Vec<&Vec<Node>> = fork.arms.iter().collect();
                self.rail(x, y, x + BAR, y);
                self.arms(&arms, x + BAR, y, &[], fork.join)
            }
        }
    }

    fn arms(&mut self, arms: &[&Vec<Node>], x: i32, y: i32, names: &[&str], join: bool) -> i32 {
        let sizes: Vec<Size> = arms.iter().map(|arm| sequence(arm)).collect();
        let begin = x + TURN + GAP;
        let end = begin + sizes.iter().map(|size| size.width).max().unwrap_or(0);
        let (turn, merge) = (x + TURN / 2, end + GAP / 2);
        let mut at = y;
        let (mut lowest, mut lowest_open, mut highest_open) = (y, None, None);
        for (index, (arm, size)) in arms.iter().zip(&sizes).enumerate() {
            if index > 0 {
                at += sizes[index - 1].down + size.up;
            }
            lowest = at;
            self.rail(if index == 0 { x } else { turn }, at, begin, at);
            if let Some(name) = names.get(index) {
                self.label(turn + 4, at - 10, name, "start");
            }
            let stop = self.block(arm, begin, at);
            if !size.ends {
                self.rail(stop, at, merge, at);
                highest_open = highest_open.or(Some(at));
                lowest_open = Some(at);
            }
        }
        self.bar(turn, y, lowest, names.is_empty());
        let (Some(top), Some(bottom)) = (highest_open, lowest_open) else { return end };
        self.bar(merge, y.min(top), bottom, join);
        let next = end + GAP + if join { BAR } else { 0 };
        self.rail(merge, y, next, y);
        next
    }

    /// Draws the vertical line at which arms divide or meet. It is thick for arms that run at the same time.
    fn bar(&mut self, x: i32, y: i32, to_y: i32, thick: bool) {
        if thick {
            let (top, bottom) = (y - HALF, to_y + HALF);
            self.put(html! { path class="bar" d=(format_args!("M{x} {top}L{x} {bottom}")) {} });
        } else {
            self.rail(x, y, x, to_y);
        }
    }
}

/// Returns the width of a text in a monospaced font of twelve pixels, including a margin.
fn text_width(text: &str) -> i32 {
    i32::try_from(text.chars().count()).unwrap_or(i32::MAX / 64) * 15 / 2 + 14
}

const MARGIN: i32 = 16;
const TITLE: i32 = 40;
/// Half the height of a box.
const HALF: i32 = 14;
const PAD: i32 = 8;
const GAP: i32 = 18;
const TURN: i32 = 28;
const POINT: i32 = 10;
const BAR: i32 = 8;

const STYLE: &str = "<style>
text{font:12px monospace;fill:#1b1f24}
.name{font-weight:bold;font-size:14px}
.rail{stroke:#57606a;fill:none}
.bar{stroke:#1b1f24;stroke-width:4}
.op{fill:#ddf4ff;stroke:#0969da}
.trans{fill:#fff8c5;stroke:#9a6700}
.end{fill:#dafbe1;stroke:#1a7f37}
.ask{fill:#fbefff;stroke:#8250df}
</style>
";
