//! Decisions as pure functions: where a job runs ([`Policy`]) and in which form a value is stored ([`form`]). The crate
//! uses no clock, lock, queue, I/O or hidden randomness. Everything on which a decision may depend is an argument, so
//! the runtime, the simulator and a unit test get the same decision.

pub mod batch;
pub mod bounded_offload;
pub mod dictionary;
pub mod fitted_offload;
pub mod form;
pub mod key_class;
pub mod latency_critical;
mod least_cost;
pub mod least_host_cycles;
pub mod least_latency;
pub mod list;
pub mod payoff;
pub mod placement;
pub mod scheduling;
pub mod software;
pub mod threshold;
pub mod trials;

pub use batch::Batch;
pub use bounded_offload::BoundedOffload;
pub use fitted_offload::{FittedOffload, Offload};
pub use form::{Form, FormPolicy, RawReason};
pub use key_class::KeyClasses;
pub use latency_critical::LatencyCritical;
pub use least_host_cycles::LeastHostCycles;
pub use least_latency::LeastLatency;
pub use list::{NamedPolicy, POLICIES, Parameters};
pub use placement::{Choice, DeviceState, JobFacts, Placement, Policy, Reason, Snapshot};
pub use software::AlwaysSoftware;
pub use threshold::{AsyncOffload, BoundedInline, SyncOffload};
