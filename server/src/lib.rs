//! The server: listeners, sessions, connections to memcached servers, admin pages and configuration. `policy`
//! makes decisions, devices (de)compress, and `store` defines the stored form. This crate moves bytes between
//! them and answers clients.
//!
//! ```text
//! control thread   accept -> worker (round robin)        admin HTTP
//! worker thread    session -> values (pack, unpack) -> runtime -> device
//!                  gRPC call -> the same, or a job of another process's runtime
//!                  lane -> a job of another process's runtime
//!                  request -> programs on that runtime
//!                          -> backend -> embedded store, or links to memcached servers or store services
//! ```

mod accept;
pub mod access;
mod admin;
mod asked_job;
mod backend;
mod background;
mod budget;
mod certificates;
pub mod config;
mod connection_table;
mod context;
pub mod counters;
mod damaged;
mod device_log;
mod dictionaries;
pub mod errors;
mod grpc;
mod handshakes;
mod hot_values;
mod idle_memory;
mod inherited;
mod job_stages;
mod lane;
mod listeners;
pub mod logins;
mod long_keys;
mod members;
pub mod memory;
mod near;
mod once;
mod otlp;
mod platform;
mod probe;
pub mod programs;
mod qualify;
mod readiness;
mod reply_buffer;
mod restart;
mod scheduler;
pub mod sealing;
mod server;
mod session;
pub mod simulated;
mod slow_log;
mod spare_memory;
mod stats;
mod stream;
mod supervise;
mod tls;
mod turns;
mod upstream;
mod values;
mod watchers;
mod worker;

pub use config::Config;
pub use hot_values::VALUE_BYTES_MIN as HOT_VALUE_BYTES_MIN;
pub use inherited::InheritedSockets;
pub use platform::{Platform, ProfileCpu};
pub use server::{Devices, Server, ServerHandle, StartError, descriptors_reserved};
