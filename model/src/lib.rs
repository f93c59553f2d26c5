//! Answers two questions: what does acceleration gain, and what does a job cost on each device? The crate has the
//! numbered equations of \[Accelerometer\], LogCA, parameters with intervals and origins, the choice of the sizes that
//! pay, and [`cost`], which fits curves while jobs run. It is pure: it has no files, threads or clock, and time and
//! randomness are arguments. All numbers are in host cycles unless a name says otherwise.

mod break_even;
mod case;
pub mod cost;
mod design;
pub mod equations;
pub mod logca;
mod parameters;
pub mod program;
mod quantity;
mod queueing;
mod selection;
mod sizes;

pub use break_even::{BreakEven, Kernel, Objective, break_even, offload_gain, paying_share};
pub use case::{Case, Estimate, Limit, Projection, Sensitivity, SizeRule};
pub use design::{Design, Strategy, Threading, UnknownWord, Variant};
pub use equations::{Switches, latency_reduction, speedup};
pub use parameters::{BadParameter, Parameters, Symbol, Values};
pub use quantity::{Provenance, Quantity, Spread};
pub use queueing::Queueing;
pub use selection::{Counted, Selection, select};
pub use sizes::{Bin, SizeHistogram};
