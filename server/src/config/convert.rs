//! Converts the configuration's words to the values that the lower crates take.

use std::sync::Arc;
use std::time::Duration;

use device::{Codec, Level};
use policy::{FormPolicy, NamedPolicy, Parameters, Policy};
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

/// Returns the limits that keep jobs from devices. By default there are no limits, and nothing is checked.
pub(crate) fn limits(runtime: &RuntimeSection) -> Limits {
    let is_bound = runtime.tenant_jobs_max < RuntimeSection::default().tenant_jobs_max;
    Limits {
        tenant_jobs_max: if is_bound { runtime.tenant_jobs_max } else { usize::MAX },
        waiting_max: runtime.waiting_max,
    }
}

/// Returns the policy of this configuration. `accelerators` is the number of devices, the first ones behind software,
/// to which offloading can pay.
pub fn policy(
    name: PolicyName,
    runtime: &RuntimeSection,
    devices: usize,
    accelerators: usize,
) -> Arc<dyn Policy> {
    let named = match name {
        PolicyName::Auto => NamedPolicy::automatic(devices, accelerators),
        PolicyName::Named(named) => named,
    };
    named.build(&Parameters {
        accelerators,
        offload_bytes_min: runtime.offload_bytes_min.as_usize(),
        inline_bytes_max: runtime.inline_bytes_max.as_usize(),
        latency_max: Nanos::micros(runtime.latency_max_us),
    })
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
