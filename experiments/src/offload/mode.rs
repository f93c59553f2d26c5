//! The seed's five modes and our two policies, by the names that rows have. Which policy each is, and nothing else.

use std::sync::Arc;

use policy::{
    AlwaysSoftware, AsyncOffload, Batch, LatencyCritical, LeastHostCycles, LeastLatency, Policy,
    SyncOffload,
};
use units::Nanos;

/// How jobs are placed.
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
    /// Those of the seed's table 4.1.
    pub(super) const SEED: [Mode; 5] =
        [Mode::Software, Mode::Sync, Mode::LatencyCritical, Mode::Async, Mode::Batch];

    /// All, the seed's first.
    pub(super) const ALL: [Mode; 7] = [
        Mode::Software,
        Mode::Sync,
        Mode::LatencyCritical,
        Mode::Async,
        Mode::Batch,
        Mode::LeastLatency,
        Mode::LeastHostCycles,
    ];

    /// The word in row ids.
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

    /// The seed's name, or ours.
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

    /// Whether a request holds the calling core until it is done.
    pub(super) const fn keeps_core(self) -> bool {
        matches!(self, Mode::Software | Mode::Sync | Mode::LatencyCritical)
    }

    /// The policy.
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

/// No job of the workloads is larger: size alone keeps none from the calling core.
const INLINE_BYTES_MAX: usize = 256 << 10;

/// Well above what any of the workloads' jobs takes on an idle device.
const LATENCY_MAX: Nanos = Nanos::micros(200);
