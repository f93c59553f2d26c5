//! Foreign engines as devices. This is the only crate with unsafe code. Each driver is one module, and each unsafe
//! block names the fact that makes it safe. The crate has no policy and no retry: a driver reports what went wrong
//! and who must act.

#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod dpdk_devices;
pub mod heap;
pub mod host;
pub mod isal;
pub mod lane;
pub mod mailbox;
pub mod qpl;
pub mod remote;

#[cfg(feature = "dpdk")]
pub use dpdk::{Dpdk, DpdkOptions};
pub use lane::{Lane, LaneOptions};
pub use qpl::{Qpl, QplOptions};
pub use remote::{Remote, RemoteOptions};

/// The engines of this build, the most preferred writer first.
pub const ENGINES: &[device::EngineFactory] = &[
    isal::engine,
    device::engines::libdeflate::engine,
    device::engines::zstd::engine,
    device::engines::lz4::engine,
];
