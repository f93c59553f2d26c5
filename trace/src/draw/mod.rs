//! Traces as pictures: a graph for Graphviz, and SVG that needs nothing. The same traces give the same text.

mod dot;
mod svg;

pub use dot::dot;
pub use svg::svg;
