//! The harness of the end-to-end tests. It starts and stops servers, speaks the text protocol byte by byte, and reads
//! the command table. It contains no product code and does not link the product, so every result holds for the built
//! binary.

pub mod answer;
pub mod authority;
pub mod bystander;
pub mod client;
pub mod http;
pub mod load;
mod packet;
pub mod payload;
pub mod runner;
pub mod server;
pub mod table;

use std::time::Duration;

pub use answer::{Answer, Ending, shown};
pub use authority::Authority;
pub use bystander::{Bystander, MemoryWatch};
pub use client::Client;
pub use harness::{Port, Process, poll_for};
pub use load::Load;
pub use server::{Server, rebate_binary, rebate_command};

/// The longest wait for something that happens at once on an idle machine. It ends waits that hang and does not measure
/// speed: a busy host may take a core away for seconds.
pub const TIMEOUT: Duration = Duration::from_secs(30);
