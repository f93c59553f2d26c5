//! The harness of the end-to-end tests: starts and stops servers, speaks the text protocol byte by byte,
//! and reads the command table. It holds no product code and never links the product's behaviour:
//! whatever is proved here is proved about the built binary.

pub mod answer;
pub mod bystander;
pub mod client;
pub mod http;
pub mod load;
pub mod payload;
pub mod runner;
pub mod server;
pub mod table;

use std::time::Duration;

pub use answer::{Answer, Ending, shown};
pub use bystander::{Bystander, MemoryWatch};
pub use client::Client;
pub use harness::{Port, Process, poll_for};
pub use load::Load;
pub use server::{Server, rebate_binary, rebate_command};

/// Longest wait for anything that should happen at once on an idle machine. It ends what hangs, and is no measure of
/// pace: a busy host may take a core away for seconds.
pub const PATIENCE: Duration = Duration::from_secs(30);
