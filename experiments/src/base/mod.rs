//! The parts that belong to no single experiment: a run, and its results as rows for programs and a page for people.

mod build;
pub(crate) mod figures;
mod kept;
mod lines;
pub(crate) mod rows;
mod session;

pub use build::inputs;
pub use figures::page_facts;
pub(crate) use kept::Kept;
pub use rows::{Spread, command};
pub use session::{Problem, Session};
pub(crate) use session::{entries, progress_bar, study};
