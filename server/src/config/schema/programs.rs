//! The section `[programs]`: the example service, which runs each request as a program of several ops.

use serde::{Deserialize, Serialize};
use units::ByteCount;

use crate::config::keys::{JOBS_MAX, Key, Kind, LATENCY_US_MAX, restart};

/// The example service of docs/traces.md, which runs each request as a program of several ops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProgramsConfig {
    /// Addresses for callers, each with `tls://`, because the keys of programs come from TLS. If it is empty, no
    /// programs are run. Who may call: [access.md](access.md).
    pub listen: Vec<String>,
    /// Programs in flight. Further requests are read and answered in software: slower, never lost. A function that
    /// asks a peer fails then. High: memory, about three times `payload_bytes_max` each.
    pub live_max: usize,
    /// Programs of one tenant in flight. Low: a tenant alone cannot use the devices. High: one tenant can use them up.
    pub tenant_live_max: usize,
    /// The largest payload at every step, 1 KiB to 64 MiB, at most `runtime.inflight_bytes_max`. A longer message ends
    /// its connection.
    pub payload_bytes_max: ByteCount,
    /// Jobs in the middle of programs that wait while every device that would take them is full. Further jobs, and with
    /// `0` all of them, go where the policy sends them: to software, if all devices are full.
    pub overflow_max: usize,
    /// The time after its start at which a program should be done (us). Policies and waiting jobs see it, and late
    /// steps count in `rebate_program_steps_late_total`. `0` means no deadline.
    pub due_us: u64,
}

impl Default for ProgramsConfig {
    fn default() -> Self {
        let limits = runtime::trace::TraceLimits::default();
        Self {
            listen: Vec::new(),
            live_max: limits.live_max,
            tenant_live_max: limits.tenant_live_max,
            payload_bytes_max: ByteCount(limits.payload_bytes_max as u64),
            overflow_max: limits.overflow_max,
            due_us: 0,
        }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    restart("programs.listen", Kind::Addresses).flag("--program-listen"),
    restart("programs.live_max", Kind::Count(1, JOBS_MAX)),
    restart("programs.tenant_live_max", Kind::Count(1, JOBS_MAX)),
    restart("programs.payload_bytes_max", Kind::Bytes(ByteCount::kib(1), PAYLOAD_MAX)),
    restart("programs.overflow_max", Kind::Count(0, JOBS_MAX)),
    restart("programs.due_us", Kind::Count(0, LATENCY_US_MAX)),
];

/// The largest payload. Processing a document takes up to forty times its size in memory.
const PAYLOAD_MAX: ByteCount = ByteCount::mib(64);
