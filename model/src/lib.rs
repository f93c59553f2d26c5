//! What does acceleration give, and what does a job cost where? The equations of Accelerometer (Sriraman and
//! Dhanotia, ASPLOS 2020) by their numbers, LogCA beside them, parameters with intervals and where they come from,
//! the choice of the sizes that pay, and [`cost`]: curves fitted while jobs run. Pure: no files, threads or clock;
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
