//! The policies that a configuration or a scheduler can name. A new policy needs a file, and here its module and its
//! entry in the list.
//! The valid values of keys, `--help`, the wire format and the tests of all policies read this list.
//! [`crate::FittedOffload`] is not on it, because its sizes come from a scheduler.

mod batch;
mod bounded_offload;
mod latency_critical;
mod least_host_cycles;
mod least_latency;
mod software;
mod threshold;

use std::fmt;
use std::sync::Arc;

use units::Nanos;

pub use batch::Batch;
pub use bounded_offload::BoundedOffload;
pub use latency_critical::LatencyCritical;
pub use least_host_cycles::LeastHostCycles;
pub use least_latency::LeastLatency;
pub use software::AlwaysSoftware;
pub use threshold::{AsyncOffload, BoundedInline, SyncOffload};

use crate::Policy;

/// The configured parameters of policies.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The number of devices that run jobs faster than software. These are the first devices after software.
    pub accelerators: usize,
    /// The smallest job that is offloaded (bytes).
    pub offload_bytes_min: usize,
    /// The largest job that may hold the calling core (bytes).
    pub inline_bytes_max: usize,
    /// The maximum expected latency of a job.
    pub latency_max: Nanos,
}

/// A policy in [`POLICIES`], which configurations and schedulers can name.
pub struct NamedPolicy {
    /// The name that configurations use.
    pub name: &'static str,
    new: fn(&Parameters) -> Arc<dyn Policy>,
}

/// The policies, in the order in which they are shown.
pub static POLICIES: [NamedPolicy; 9] = [
    NamedPolicy { name: "always-software", new: |_| Arc::new(AlwaysSoftware) },
    NamedPolicy {
        name: "bounded-inline",
        new: |with| Arc::new(BoundedInline { inline_bytes_max: with.inline_bytes_max }),
    },
    NamedPolicy {
        name: BOUNDED_OFFLOAD,
        new: |&Parameters { accelerators, offload_bytes_min, inline_bytes_max, .. }| {
            Arc::new(BoundedOffload { accelerators, offload_bytes_min, inline_bytes_max })
        },
    },
    NamedPolicy {
        name: "sync-offload",
        new: |with| Arc::new(SyncOffload { work_bytes_min: with.offload_bytes_min }),
    },
    NamedPolicy {
        name: "async-offload",
        new: |with| Arc::new(AsyncOffload { work_bytes_min: with.offload_bytes_min }),
    },
    NamedPolicy {
        name: "latency-critical",
        new: |with| {
            let software_bytes_max = with.offload_bytes_min.saturating_sub(1);
            Arc::new(LatencyCritical { software_bytes_max })
        },
    },
    NamedPolicy { name: "batch", new: |_| Arc::new(Batch) },
    NamedPolicy {
        name: "least-latency",
        new: |with| Arc::new(LeastLatency { inline_bytes_max: with.inline_bytes_max }),
    },
    NamedPolicy {
        name: "least-host-cycles",
        new: |&Parameters { latency_max, inline_bytes_max, .. }| {
            Arc::new(LeastHostCycles { latency_max, inline_bytes_max })
        },
    },
];

/// The policy whose sizes and shares a scheduler may fit.
pub const BOUNDED_OFFLOAD: &str = "bounded-offload";

impl NamedPolicy {
    /// Returns the policy of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        POLICIES.iter().find(|policy| policy.name == name)
    }

    /// Returns the policy for a process whose configuration names no policy. `devices` includes software.
    pub fn automatic(devices: usize, accelerators: usize) -> &'static Self {
        let name = match (accelerators, devices) {
            (1.., _) => BOUNDED_OFFLOAD,
            (0, 2..) => "bounded-inline",
            (0, _) => "always-software",
        };
        Self::find(name).expect("it is on the list")
    }

    /// Creates the policy with these parameters.
    pub fn build(&self, parameters: &Parameters) -> Arc<dyn Policy> {
        (self.new)(parameters)
    }
}

impl PartialEq for NamedPolicy {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for NamedPolicy {}

impl fmt::Debug for NamedPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Creates every policy in [`POLICIES`].
    pub(crate) fn all() -> impl Iterator<Item = Arc<dyn Policy>> {
        let parameters = Parameters {
            accelerators: 1,
            offload_bytes_min: 1_000,
            inline_bytes_max: 9_000,
            latency_max: Nanos::micros(100),
        };
        POLICIES.iter().map(move |policy| policy.build(&parameters))
    }

    #[test]
    fn each_name_makes_the_policy_of_that_name() {
        for (policy, listed) in all().zip(&POLICIES) {
            assert_eq!(policy.name(), listed.name);
            assert_eq!(NamedPolicy::find(listed.name), Some(listed));
        }
        assert_eq!(NamedPolicy::find("auto"), None);
    }

    #[test]
    fn the_automatic_policy_depends_on_the_devices() {
        let name = |devices, accelerators| NamedPolicy::automatic(devices, accelerators).name;
        assert_eq!([name(1, 0), name(2, 0)], ["always-software", "bounded-inline"]);
        assert_eq!([name(2, 1), name(3, 1)], [BOUNDED_OFFLOAD; 2]);
    }
}
