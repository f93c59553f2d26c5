//! Discrete-event simulation. It has three layers, and each is usable without the next:
//!
//! ```text
//! Agenda, Model, run      the event loop: picoseconds, one total order
//! Servers, Link           stations that a model is composed of; Durations and Arrivals supply their times
//! Network                 a model read from a specification: stations, routes, forks, overflow
//! accelflow               a model composed of stations: AccelFlow's server under several orchestrators
//! relief                  RELIEF's own applications on its accelerators, under RELIEF and under AccelFlow
//! arcalis                 the near-cache RPC engine between two cores, with the engine of `rpc`
//! Plan, Report            replications in parallel, warm-up, intervals, the stability verdict
//! System, points, sweep   the model of a specification; other values for its keys; many studies at once
//! ```
//!
//! A simulation is a function of (seed, specification, version). It does not depend on a clock, the order of
//! hashes, the number of threads or the platform's mathematical library. This crate prints nothing and reads
//! files only where a caller passes `file_text`. The `policy` crate decides where a job should run.

pub mod accelflow;
mod agenda;
pub mod arcalis;
mod arrivals;
mod closed_loop;
mod draws;
mod durations;
mod entries;
mod heap;
mod laxity;
mod link;
mod network;
mod picos;
mod points;
mod recording;
pub mod relief;
mod runtime_model;
mod servers;
mod statistics;
mod stored;
mod streams;
mod study;
pub mod sweep;
mod system;

pub use agenda::{Agenda, End, Model, run};
pub use arrivals::{ArrivalSpec, Arrivals};
pub use closed_loop::{ClosedLoop, ClosedRun};
pub use draws::Draws;
pub use durations::{BadValue, DurationSpec, Durations};
pub use entries::{Entries, KINDS, ReadText, SpecError, file_text};
pub use heap::FourAry;
pub use link::Link;
pub use network::{
    Discipline, Network, NetworkSpec, RouteSpec, SourceSpec, StationKind, StationSpec,
};
pub use picos::Picos;
pub use points::{Assignment, Sweep, points, read_entries, set};
pub use recording::Recordings;
pub use runtime_model::{RuntimeModel, RuntimeRun};
pub use servers::{Offer, Servers, ServersCounts};
pub use statistics::{Interval, KEPT_MIN, drift, mean, quantile, student, warm_up};
pub use stored::StoredReport;
pub use streams::Streams;
pub use study::{
    Across, BadPlan, Difference, Extent, Fact, Names, Plan, Reduction, Report, Response, RunError,
    Sample, Simulate, StudyError, Verdict,
};
pub use system::{System, SystemError, builtin, entries, scenarios};
