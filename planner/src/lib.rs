//! Answers what acceleration would give a service. Parameters come from a file, a CPU profile or a live scheduler;
//! costs may come from device profiles. The command line and the Python package call the same functions with the same
//! words. This crate measures nothing, changes nothing and prints nothing; the equations are `model`'s.

mod answer;
mod device;
mod file;
mod input;
mod number;
mod program;
mod query;
mod request;
mod scheduler;
mod sizes;

pub mod profile;

pub use answer::{Answer, LogCaSizes, Number, ParameterUsed, Ratio, SizesUsed, evaluate};
pub use input::SPECS;
pub use number::plain;
pub use query::{Parameter, Published, Query, Sizes, counted, objective};
pub use request::{Changes, Error, Outcome, Request, Source};
