//! An example service for A/B runs: a cache whose values are compressed, checked and encrypted. The same
//! thread makes the load. Each of the three taxes has more than one implementation, so that two runs can
//! differ in one thing alone. The module draws no conclusions from the runs. The service has no socket and
//! must not serve real clients, because its table-based AES leaks keys through the processor's cache.

mod aes;
mod cache;
mod checksum;
mod cipher;
mod filler;
mod ghash;
mod load;
mod micro;
mod request;
mod runner;
mod team;
mod watch;

pub(crate) use cache::{Ops, Service};
pub(crate) use checksum::Checksum;
pub(crate) use cipher::{Cipher, KEY_BYTES};
pub(crate) use load::{Load, Mix};
pub(crate) use micro::QUARTERS;
pub(crate) use runner::{Calls, Kernel, Offload, Runner, Sample, Task, What, switch_ns};
pub(crate) use team::{Team, keep_to};
pub(crate) use watch::Stage;
