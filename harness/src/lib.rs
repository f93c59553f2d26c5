//! Starts processes under test, this program and memcached, on free ports. It stores their output, reads their CPU
//! time and metrics, pins them where the machine allows, and ends them when they are dropped. It knows the machine,
//! and it is the main of the benchmarks in `benches/`. It does not know what is measured.

mod awake;
pub mod bench;
pub mod http;
mod machine;
mod port;
mod process;
mod progress;
mod statistics;

pub use awake::Awake;
pub use bench::Bench;
pub use http::metrics;
pub use machine::{CoreTime, Machine};
pub use port::Port;
pub use process::{
    CpuModes, CpuUsage, Process, TIMEOUT, free_path, memcached, memcached_is_here,
    memcached_on_socket, needs_memcached, poll_for, rss_bytes, start_memcached,
};
pub use progress::Progress;
pub use statistics::{Limit, Spread, quantile};
