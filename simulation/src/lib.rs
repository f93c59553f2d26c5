//! Whole deployments in one thread and in simulated time: clients, servers, memcached as a model, the network between
//! them and their faults, from one seed. The server's code is the product's, see [`server::simulated`].
//!
//! The caller makes the event loop, with tokio's paused clock. Time then moves only when every task waits.
//!
//! ```text
//! seed -> scenario -> run -> servers, clients, faults on a network -> history, judges -> outcome -> shrink
//! ```

pub mod accelerator;
pub mod client;
pub mod disk;
pub mod history;
pub mod memcached;
pub mod network;
pub mod process;
pub mod processes;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod trace;
pub mod watchdog;
pub mod world;
