//! Tests that the same traces give the same picture, that all boxes are within the frame, and that
//! no node is missing.

use trace::draw::{dot, svg};
use trace::{Trace, accelflow, read};

fn number(line: &str, name: &str) -> Option<i64> {
    let start = line.find(&format!(" {name}=\""))? + name.len() + 3;
    line[start..].split('"').next()?.parse().ok()
}

#[test]
fn boxes_lie_within_the_frame_and_do_not_overlap() {
    let catalog = accelflow();
    let traces: Vec<&Trace> = catalog.traces().iter().collect();
    let picture = svg(&traces);
    let frame = picture.lines().next().expect("it has lines");
    let (wide, high) = (number(frame, "width"), number(frame, "height"));
    let (wide, high) = (wide.expect("it has a width"), high.expect("it has a height"));
    let mut boxes: Vec<[i64; 4]> = Vec::new();
    for line in picture.lines().filter(|line| line.starts_with("<rect class")) {
        let [x, y, width, height] =
            ["x", "y", "width", "height"].map(|name| number(line, name).expect("a box has all"));
        assert!(x >= 0 && y >= 0 && x + width <= wide && y + height <= high, "{line}");
        for [left, top, right, bottom] in &boxes {
            let apart = x >= *right || x + width <= *left || y >= *bottom || y + height <= *top;
            assert!(apart, "{line} lies on another");
        }
        boxes.push([x, y, x + width, y + height]);
    }
    let mut expected = 0;
    for trace in traces {
        trace.visit(&mut |node, _| {
            expected += usize::from(!matches!(node, trace::Node::Branch(_) | trace::Node::Fork(_)));
        });
    }
    assert_eq!(boxes.len(), expected);
    assert_eq!(picture, svg(&catalog.traces().iter().collect::<Vec<_>>()));
}

#[test]
fn marks_of_the_languages_are_escaped() {
    let text = "field n number trace x takes json { copy if n < 5 { rpc rpc } notify }";
    let catalog = read(&[("t", text)]).expect("no faults");
    let picture = svg(&[&catalog.traces()[0]]);
    assert!(picture.contains(">n &lt; 5?<"), "{picture}");
}

#[test]
fn the_graph_has_an_edge_for_every_way_on() {
    let catalog = accelflow();
    let names = ["T4", "T5", "T6"];
    let traces: Vec<&Trace> = names.iter().filter_map(|name| catalog.trace(name)).collect();
    let graph = dot(&traces);
    assert_eq!(graph.matches("style=dashed").count(), 2, "T4 to T5 and T5 to T6\n{graph}");
    assert_eq!(graph.matches("label=\"yes\"").count(), 5, "{graph}");
    assert_eq!(graph.matches("label=\"no\"").count(), 5, "{graph}");
    assert_eq!(graph.matches('{').count(), graph.matches('}').count());
}
