//! Foreign engines as devices. This is the only crate with unsafe code. Each driver is one module, and each unsafe
//! block names the fact that makes it safe. The crate has no policy and no retry: a driver reports what went wrong
//! and who must act.

mod asked;
pub mod dictionary;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod dpdk_devices;
pub mod heap;
pub mod host;
pub mod isal;
pub mod lane;
pub mod mailbox;
pub mod near;
pub mod profiler;
pub mod program;
pub mod qpl;
pub mod remote;
pub mod secret;
mod shared;

#[cfg(feature = "dpdk")]
pub use dpdk::{Dpdk, DpdkOptions};
pub use lane::{Lane, LaneOptions};
pub use qpl::{Qpl, QplOptions};
pub use remote::{Remote, RemoteOptions};

use device::EngineFactory;
use device::engines::BUILT_IN;

/// The engines of this build, the most preferred writer first.
pub const ENGINES: &[EngineFactory] = &{
    let mut all = [isal::engine as EngineFactory; BUILT_IN.len() + 1];
    let mut at = 0;
    while at < BUILT_IN.len() {
        all[at + 1] = BUILT_IN[at];
        at += 1;
    }
    all
};
