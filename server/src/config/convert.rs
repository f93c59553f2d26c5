//! The configuration's words as the values that the lower crates take.

use std::sync::Arc;
use std::time::Duration;

use device::{Codec, Level};
use policy::{
    AlwaysSoftware, AsyncOffload, Batch, BoundedInline, BoundedOffload, FormPolicy,
    LatencyCritical, LeastHostCycles, LeastLatency, Policy, SyncOffload,
};
use runtime::{Fallback, Limits};
use units::Nanos;

use super::{
    CodecName, CompressConfig, CompressMode, FallbackName, Foreign, LevelName, PolicyName,
    ReaderName, RuntimeSection, StoreConfig,
};
use crate::upstream::Timing;
use crate::values::Rules;

pub(crate) fn rules(compress: &CompressConfig) -> Rules {
    Rules { form: form(compress), foreign: compress.foreign }
}

/// Returns the form in which values are stored under this configuration.
pub fn form(compress: &CompressConfig) -> FormPolicy {
    let iaa = compress.readable_by.contains(&ReaderName::Iaa);
    FormPolicy {
        compress: compress.mode == CompressMode::On,
        codec: match compress.codec {
            CodecName::Auto => None,
            CodecName::Deflate => Some(Codec::Deflate),
            CodecName::Zstd => Some(Codec::Zstd),
            CodecName::Lz4 => Some(Codec::Lz4),
        },
        level: match compress.level {
            LevelName::Fast => Level::Fast,
            LevelName::Default => Level::Default,
            LevelName::High => Level::High,
        },
        bytes_min: compress.bytes_min.as_usize(),
        saving_min: compress.saving_min,
        wrap_all: compress.foreign == Foreign::Forbid,
        window_log2: iaa.then_some(IAA_WINDOW_LOG2),
    }
}

pub(crate) fn fallback(name: FallbackName) -> Fallback {
    match name {
        FallbackName::Prefer => Fallback::Prefer,
        FallbackName::Require => Fallback::Require,
        FallbackName::Forbid => Fallback::Forbid,
    }
}

/// Returns the limits that keep jobs from devices. By default there are none, and then nothing is checked.
pub(crate) fn limits(runtime: &RuntimeSection) -> Limits {
    let is_bound = runtime.tenant_jobs_max < RuntimeSection::default().tenant_jobs_max;
    Limits {
        tenant_jobs_max: if is_bound { runtime.tenant_jobs_max } else { usize::MAX },
        waiting_max: runtime.waiting_max,
    }
}

/// The policy of this configuration, `accelerators` being the devices behind software that are worth a trip.
pub fn policy(
    name: PolicyName,
    runtime: &RuntimeSection,
    devices: usize,
    accelerators: usize,
) -> Arc<dyn Policy> {
    let inline_bytes_max = runtime.inline_bytes_max.as_usize();
    let offload_bytes_min = runtime.offload_bytes_min.as_usize();
    match name {
        PolicyName::Auto if accelerators > 0 => {
            policy(PolicyName::BoundedOffload, runtime, devices, accelerators)
        }
        PolicyName::Auto if devices > 1 => {
            policy(PolicyName::BoundedInline, runtime, devices, accelerators)
        }
        PolicyName::Auto | PolicyName::AlwaysSoftware => Arc::new(AlwaysSoftware),
        PolicyName::BoundedInline => Arc::new(BoundedInline { inline_bytes_max }),
        PolicyName::BoundedOffload => {
            Arc::new(BoundedOffload { accelerators, offload_bytes_min, inline_bytes_max })
        }
        PolicyName::SyncOffload => Arc::new(SyncOffload { work_bytes_min: offload_bytes_min }),
        PolicyName::AsyncOffload => Arc::new(AsyncOffload { work_bytes_min: offload_bytes_min }),
        PolicyName::LatencyCritical => {
            Arc::new(LatencyCritical { software_bytes_max: offload_bytes_min.saturating_sub(1) })
        }
        PolicyName::Batch => Arc::new(Batch),
        PolicyName::LeastLatency => Arc::new(LeastLatency { inline_bytes_max }),
        PolicyName::LeastHostCycles => {
            let latency_max = Nanos::micros(runtime.latency_max_us);
            Arc::new(LeastHostCycles { latency_max, inline_bytes_max })
        }
    }
}

pub(crate) fn timing(store: &StoreConfig) -> Timing {
    Timing {
        request: Duration::from_millis(store.timeout_ms),
        connect: Duration::from_millis(store.connect_timeout_ms),
        retry_min: Duration::from_millis(store.retry_min_ms),
        retry_max: Duration::from_millis(store.retry_max_ms),
    }
}

/// Intel IAA reads deflate within 4 KiB (QPL documentation, "Limitations").
const IAA_WINDOW_LOG2: u8 = 12;
