//! Starts processes under test, this program and memcached, on free ports. It stores their output, reads their CPU time
//! and metrics, pins them where the machine allows, and ends them when they are dropped. It knows the machine and does
//! not know what is measured.

mod awake;
pub mod http;
mod machine;
mod port;
mod process;
mod progress;

pub use awake::Awake;
pub use http::metrics;
pub use machine::{CoreTime, Machine};
pub use port::Port;
pub use process::{
    CpuUsage, PATIENCE, Process, free_path, memcached, memcached_is_here, poll_for, rss_bytes,
    start_memcached,
};
pub use progress::Progress;
