//! Learns the cost of a job on a device from the jobs that ran. [`CostFit`] receives observations. [`CostCurve`] is its
//! current knowledge, which policies read. Each pair of op and device has a fit and a curve. Times are in ns, sizes in
//! bytes.
//!
//! The underlying model is a queue with `lanes` servers and a service time that is a line over bytes:
//!
//! ```text
//! latency = service(bytes) + wait
//! wait    = max(0, depth - lanes + lanes/(lanes + 1)) / lanes * mean service of the jobs ahead
//! ```
//!
//! The wait is exact on average for jobs of equal size that are served in order. The first of `lanes` running jobs is
//! done after 1/(lanes + 1) of a service time, and the others ahead follow every 1/lanes. For a given number of lanes,
//! the latency is linear in the two coefficients of the line. So every job contributes, whatever queue it found.
//! Several hypotheses about the number of lanes are fitted side by side, and the best predictor is used. The module
//! knows no clocks, queues or devices.

mod bank;
mod curve;
mod estimates;
mod fit;
mod means;

pub use curve::{CostCurve, SizeClass, SizeCurve};
pub use estimates::Estimates;
pub use fit::{CostFit, Observation};
pub use means::Mean;
