//! Traces as pictures: a graph for Graphviz, and SVG that needs nothing. The same traces give the same text.

mod dot;
mod svg;

pub use dot::dot;
pub use svg::svg;

/// Returns the text with the characters escaped that XML and DOT use themselves.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
