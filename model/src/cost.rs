//! The cost of a job on a device, learnt from the jobs that ran. [`CostFit`] takes observations. [`CostCurve`] is its
//! present knowledge, which policies read. There is one of each per (op, device). Times are in ns, sizes in bytes.
//!
//! The model behind it is a queue with `lanes` servers and a service time that is a line over bytes:
//!
//! ```text
//! latency = service(bytes) + wait
//! wait    = max(0, depth - lanes + lanes/(lanes + 1)) / lanes * mean service of the jobs ahead
//! ```
//!
//! The wait is exact on average for jobs of equal size in order: the next of `lanes` running jobs is done after
//! 1/(lanes + 1) of a service, and the others ahead follow every 1/lanes. For a given number of lanes, latency is
//! linear in the line's two coefficients, so every job informs them, whatever queue it met. A bank of hypotheses about
//! the lanes is fitted side by side, and the one that predicted best answers. The module knows no clocks, queues or
//! devices.

mod bank;
mod curve;
mod estimates;
mod fit;
mod means;

pub use curve::{CostCurve, SizeClass, SizeCurve};
pub use estimates::Estimates;
pub use fit::{CostFit, Observation};
pub use means::Mean;
