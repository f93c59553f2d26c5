//! Answers how much a service would gain from acceleration. Parameters come from a file, a CPU profile or a
//! live scheduler; costs may come from device profiles. The command line and the Python package call the same
//! functions and use the same names. The equations are in `model`.

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

pub mod estimate;
pub mod profile;

pub use answer::{Answer, LogCaSizes, Number, ParameterUsed, Ratio, SizesUsed, evaluate};
pub use input::SPECS;
pub use number::plain;
pub use query::{Parameter, Published, Query, Sizes, counted, objective};
pub use request::{Changes, Error, Outcome, Request, Source};
