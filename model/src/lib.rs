//! Answers two questions: what does acceleration give, and what does a job cost where? It has the equations of
//! \[Accelerometer\] by their numbers, LogCA beside them, parameters with intervals and origins, the choice of the
//! sizes that pay, and [`cost`]: curves fitted while jobs run. It is pure: there are no files, threads or clock, and
//! time and randomness are arguments. Everything is in cycles of the host unless a name says otherwise.

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
