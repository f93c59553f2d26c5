//! Traces as pictures: a graph for Graphviz, and SVG that needs nothing. The same traces, the same text.

mod dot;
mod svg;

pub use dot::dot;
pub use svg::svg;

/// With what XML and DOT take for themselves escaped.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
