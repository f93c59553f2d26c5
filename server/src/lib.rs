//! The services and their wiring: listeners, sessions, connections to memcached servers, admin pages, configuration.
//! `policy` makes the decisions, a device (de)compresses, and `store` defines the stored form. This crate moves bytes
//! between them and answers clients.
//!
//! ```text
//! control thread   accept -> worker (round robin)        admin HTTP
//! worker thread    session -> values (pack, unpack) -> runtime -> device
//!                  gRPC call -> the same, or a job of another process's runtime
//!                  lane -> a job of another process's runtime
//!                  request -> traces of that runtime
//!                          -> backend -> embedded store, or links to memcached servers or store services
//! ```

mod accept;
mod admin;
mod backend;
mod budget;
pub mod config;
mod context;
pub mod counters;
mod damaged;
mod device_log;
mod grpc;
mod idle_memory;
mod lane;
mod long_keys;
pub mod memory;
mod probe;
mod qualify;
mod readiness;
mod reply_buffer;
mod scheduler;
mod server;
mod session;
mod stats;
mod stream;
mod supervise;
pub mod traces;
mod turns;
mod upstream;
mod values;
mod worker;

pub use config::Config;
pub use server::{Devices, Platform, Server, ServerHandle, StartError, descriptors_reserved};
