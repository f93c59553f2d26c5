//! The seven modes of the experiment: the five modes of \[OffloadSched\] and our two policies. Each mode has an id,
//! which row ids contain, and a name. The module only defines the modes.

use std::sync::Arc;

use policy::{
    AlwaysSoftware, AsyncOffload, Batch, LatencyCritical, LeastHostCycles, LeastLatency, Policy,
    SyncOffload,
};
use units::Nanos;

/// The way in which jobs are placed on software or the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    Software,
    Sync,
    LatencyCritical,
    Async,
    Batch,
    LeastLatency,
    LeastHostCycles,
}

impl Mode {
    /// The modes of table 4.1 of the paper.
    pub(super) const PAPER: [Mode; 5] =
        [Mode::Software, Mode::Sync, Mode::LatencyCritical, Mode::Async, Mode::Batch];

    /// All modes. The modes of the paper are first.
    pub(super) const ALL: [Mode; 7] = [
        Mode::Software,
        Mode::Sync,
        Mode::LatencyCritical,
        Mode::Async,
        Mode::Batch,
        Mode::LeastLatency,
        Mode::LeastHostCycles,
    ];

    /// Returns the mode's name in row ids.
    pub(super) const fn id(self) -> &'static str {
        match self {
            Mode::Software => "software",
            Mode::Sync => "sync",
            Mode::LatencyCritical => "latency_critical",
            Mode::Async => "async",
            Mode::Batch => "batch",
            Mode::LeastLatency => "least_latency",
            Mode::LeastHostCycles => "least_host_cycles",
        }
    }

    /// Returns the paper's name for the mode, or our name if the paper has none.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Mode::Software => "Software",
            Mode::Sync => "Sync",
            Mode::LatencyCritical => "Custom (LC)",
            Mode::Async => "Async",
            Mode::Batch => "Custom (Batch)",
            Mode::LeastLatency => "LeastLatency",
            Mode::LeastHostCycles => "LeastHostCycles",
        }
    }

    /// Returns whether a request occupies the calling core until it is done.
    pub(super) const fn keeps_core(self) -> bool {
        matches!(self, Mode::Software | Mode::Sync | Mode::LatencyCritical)
    }

    /// Returns the policy of the mode.
    pub(super) fn policy(self) -> Arc<dyn Policy> {
        match self {
            Mode::Software => Arc::new(AlwaysSoftware),
            Mode::Sync => Arc::new(SyncOffload { work_bytes_min: 0 }),
            Mode::LatencyCritical => Arc::new(LatencyCritical::default()),
            Mode::Async => Arc::new(AsyncOffload { work_bytes_min: 0 }),
            Mode::Batch => Arc::new(Batch),
            Mode::LeastLatency => Arc::new(LeastLatency { inline_bytes_max: INLINE_BYTES_MAX }),
            Mode::LeastHostCycles => Arc::new(LeastHostCycles {
                latency_max: LATENCY_MAX,
                inline_bytes_max: INLINE_BYTES_MAX,
            }),
        }
    }
}

/// The largest job that the policies may run on the calling core. No job of the workloads is larger, so the
/// limit has no effect.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// The greatest latency that the policy accepts. It is well above that of any job of the workloads on an idle device.
const LATENCY_MAX: Nanos = Nanos::micros(200);
