//! Converts the configuration's words to the values that the lower crates take.

use std::sync::Arc;
use std::time::Duration;

use device::Level;
use policy::form::DICTIONARY_VALUE_BYTES_MAX;
use policy::{FormPolicy, NamedPolicy, Parameters, Policy};
use runtime::{Fallback, Limits};
use store::frame::FrameVersion;
use units::Nanos;

use super::{
    CodecName, CompressConfig, CompressMode, Config, FallbackName, Foreign, LevelName, PolicyName,
    ReaderName, RequestsConfig, RuntimeSection, Services, StoreConfig, StoreUrl, ValuePath,
};
use crate::upstream::Timing;
use crate::values::Rules;

pub(crate) fn rules(config: &Config) -> Rules {
    let Config { compress, .. } = config;
    let frame_version = frame_version(config);
    let form = value_form(config);
    let dictionary_value_bytes_max = dictionary_value_bytes_max(config, &form, frame_version);
    let seals = path(config).seals;
    Rules { form, foreign: compress.foreign, frame_version, dictionary_value_bytes_max, seals }
}

/// Returns which requests are recorded.
pub(crate) fn requests(config: &Config) -> telemetry::Rules {
    let RequestsConfig { sample_every, slow_us } = config.requests;
    telemetry::Rules { sample_every, slow: Nanos::micros(slow_us) }
}

/// Returns the compiled path of values. A valid configuration has one that compiles.
fn path(config: &Config) -> ValuePath {
    ValuePath::compile(&config.values.path).unwrap_or_default()
}

/// Returns the form in which values are stored under this configuration, before they are sealed. A seal takes the place
/// of a frame where only values of ours are read.
pub(crate) fn value_form(config: &Config) -> FormPolicy {
    let (form, path) = (form(&config.compress), path(config));
    FormPolicy {
        compress: form.compress && path.compresses,
        wrap_all: form.wrap_all && !path.seals,
        ..form
    }
}

/// Returns the longest value that is stored with a dictionary (bytes), or 0 if none is. Devices cannot read
/// dictionaries: values that may be offloaded have none.
fn dictionary_value_bytes_max(config: &Config, form: &FormPolicy, version: FrameVersion) -> usize {
    let runtime = &config.runtime;
    let fallbacks = [runtime.fallback_compress, runtime.fallback_decompress];
    let is_on = config.values.dictionaries
        && version == FrameVersion::V2
        && form.compress
        && form.window_log2.is_none()
        && !fallbacks.contains(&FallbackName::Require);
    let has_devices = runtime.devices.iter().any(|device| device != WORKER_DEVICE);
    match (is_on, has_devices || !runtime.compression.is_empty()) {
        (false, _) => 0,
        (true, false) => DICTIONARY_VALUE_BYTES_MAX,
        (true, true) => {
            let offloaded_from = runtime.offload_bytes_min.as_usize();
            DICTIONARY_VALUE_BYTES_MAX.min(offloaded_from.saturating_sub(1))
        }
    }
}

/// The device that is other cores of this process, whose jobs software could do as well.
const WORKER_DEVICE: &str = "worker";

/// Returns the version of the frames of new values. Without a setting, it is the newest one only if no other process
/// reads the store, because an older frontend would serve such frames as they are. Whoever opens sealed values reads
/// every version.
fn frame_version(config: &Config) -> FrameVersion {
    let is_embedded = matches!(config.store.url.parse(), Ok(StoreUrl::Embedded));
    let services = Services::from_roles(&config.server.roles);
    let is_shared = services.store && !config.server.grpc_listen.is_empty();
    config.values.frame_version.unwrap_or(if is_embedded && !is_shared || path(config).seals {
        FrameVersion::V2
    } else {
        FrameVersion::V1
    })
}

/// Returns the form in which these settings store values.
pub fn form(compress: &CompressConfig) -> FormPolicy {
    let iaa = compress.readable_by.contains(&ReaderName::Iaa);
    FormPolicy {
        compress: compress.mode == CompressMode::On,
        codec: match compress.codec {
            CodecName::Auto => None,
            CodecName::Named(codec) => Some(codec),
        },
        level: match compress.level {
            LevelName::Fast => Level::Fast,
            LevelName::Default => Level::Default,
            LevelName::High => Level::High,
        },
        bytes_min: compress.bytes_min.as_usize(),
        saving_min: compress.saving_min,
        saving_min_spare: compress.saving_min_spare,
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

/// Returns the limits on the jobs of a tenant and on waiting jobs. The default for tenants means no limit.
pub(crate) fn limits(runtime: &RuntimeSection) -> Limits {
    let is_bound = runtime.tenant_jobs_max < RuntimeSection::default().tenant_jobs_max;
    Limits {
        tenant_jobs_max: if is_bound { runtime.tenant_jobs_max } else { usize::MAX },
        waiting_max: runtime.waiting_max,
    }
}

/// Returns the placement policy `name`. `accelerators` is the number of devices to which offloading can pay;
/// they come first after software.
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

/// The log2 of the deflate window that Intel IAA can read: 4 KiB (QPL documentation, "Limitations").
const IAA_WINDOW_LOG2: u8 = 12;
