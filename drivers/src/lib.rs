//! Foreign engines behind the device contract; the one address of unsafe code. Each driver is one
//! file, and each unsafe block names the fact it rests on. No policy and no retries: a driver says
//! what went wrong and who must act.

pub mod isal;
pub mod qpl;
pub mod remote;

pub use qpl::{Qpl, QplOptions};
pub use remote::{Remote, RemoteOptions};
