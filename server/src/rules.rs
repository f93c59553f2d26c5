//! The configuration's words as the values that the lower rooms take.

use std::sync::Arc;
use std::time::Duration;

use device::{Codec, Level};
use policy::{
    AlwaysSoftware, AsyncOffload, BoundedInline, BoundedOffload, FormPolicy, Policy, SyncOffload,
};
use runtime::Fallback;

use crate::config::{
    CodecName, CompressConfig, CompressMode, FallbackName, Foreign, LevelName, PolicyName,
    ReaderName, RuntimeSection, StoreConfig,
};
use crate::upstream::Timing;
use crate::values::Rules;

pub(crate) fn rules(compress: &CompressConfig) -> Rules {
    let iaa = compress.readable_by.contains(&ReaderName::Iaa);
    let form = FormPolicy {
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
    };
    Rules { form, foreign: compress.foreign }
}

pub(crate) fn fallback(name: FallbackName) -> Fallback {
    match name {
        FallbackName::Prefer => Fallback::Prefer,
        FallbackName::Require => Fallback::Require,
        FallbackName::Forbid => Fallback::Forbid,
    }
}

/// The policy of this configuration, `accelerators` being the devices behind software that are worth a trip.
pub(crate) fn policy(
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
