//! The offload runtime. One [`Runtime`] per core places jobs on devices, receives their completions, falls back to
//! software and counts every path. It knows devices only through the contract of the crate `device`. It runs on any
//! executor through [`Runtime::turn`], and uses no socket. Three adapters drive it. [`core_loop`] is our executor and
//! the fastest. [`tokio_adapter`] is for services in tokio. [`blocking`] is for a plain thread.

mod admission;
pub mod blocking;
mod breaker;
mod chains;
mod config;
pub mod core;
pub mod core_loop;
mod costs;
mod entry;
mod history;
mod job_table;
pub mod metrics;
mod no_queue;
pub mod qualification;
mod read_back;
pub mod reputation;
mod run;
mod slot;
mod time;
pub mod tokio_adapter;
pub mod trace;

pub use crate::core::{Outstanding, Runtime};
pub use admission::Limits;
pub use blocking::BlockingRuntime;
pub use chains::ChainKind;
pub use config::{Fallback, RuntimeConfig, StartError};
pub use core_loop::{Core, CoreConfig, CoreLoop, Cores, CoresConfig};
pub use entry::{Finished, Path, Ticket};
pub use metrics::{ChainCount, Metrics, PathCount, SizeCount};
pub use reputation::Reputation;
pub use run::Run;
pub use tokio_adapter::TokioRuntime;
