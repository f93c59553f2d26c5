//! An example service for A/B runs: a cache whose values are compressed, checked and encrypted, with the load made in
//! the same thread. Each of the three taxes can be paid in more than one way, so that two runs differ in one thing
//! alone. The crate draws no conclusions: `rebate reproduce accelerometer` does. It must not serve real clients, and no
//! socket leads to it: its table AES leaks keys through the processor's cache.

mod aes;
mod checksum;
mod cipher;
mod filler;
mod ghash;
mod load;
mod micro;
mod request;
mod runner;
mod service;
mod team;
mod watch;

pub use checksum::Checksum;
pub use cipher::{Cipher, KEY_BYTES};
pub use load::{Load, Mix};
pub use micro::QUARTERS;
pub use request::Request;
pub use runner::{Calls, Kernel, Offload, Runner, Sample, Task, What, switch_ns};
pub use service::{Ops, Service};
pub use team::{Team, keep_to};
pub use watch::{Stage, Stages};
