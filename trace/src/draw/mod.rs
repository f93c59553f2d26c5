//! Traces as pictures: a graph for Graphviz, and SVG that needs no other program. The same traces
//! always give the same text.

mod dot;
mod svg;

pub use dot::dot;
pub use svg::svg;
