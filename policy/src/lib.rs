//! Decisions as pure functions: where a job runs ([`Policy`]) and in which form a value is stored ([`form`]). The crate
//! uses no clock, lock, queue, I/O or hidden randomness. Everything on which a decision may depend is an argument, so
//! the runtime, the simulator and a unit test get the same decision.

pub mod chain;
pub mod dictionary;
pub mod fitted_offload;
pub mod form;
pub mod key_class;
mod least_cost;
pub mod payoff;
pub mod placement;
pub mod policies;
pub mod scheduling;
pub mod trials;

pub use chain::{ChainChoice, ChainStep};
pub use fitted_offload::{FittedOffload, Offload};
pub use form::{Form, FormPolicy, RawReason};
pub use key_class::KeyClasses;
pub use placement::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};
pub use policies::*;
