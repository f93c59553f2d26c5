//! Draws traces as a graph for Graphviz, or as SVG that needs no other program. The same traces
//! always give the same text.

mod dot;
mod svg;

pub use dot::dot;
pub use svg::svg;
