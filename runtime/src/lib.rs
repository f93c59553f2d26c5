//! The offload runtime: one [`Runtime`] per core places jobs on devices, learns their completions
//! and falls back to software, counting every path. It knows devices only through the contract,
//! runs on any executor through [`Runtime::turn`], and touches no socket. [`tokio_adapter`] makes
//! it awaitable in tokio tasks.

mod config;
pub mod core;
mod entry;
pub mod metrics;
mod slot;
pub mod tokio_adapter;

pub use crate::core::{Outstanding, Runtime};
pub use config::{Fallback, RuntimeConfig, StartError};
pub use entry::{Finished, Path, Ticket};
pub use metrics::{Metrics, PathCount, SizeCount};
pub use tokio_adapter::{Run, TokioRuntime};
