//! The configuration's words as the values that the lower rooms take.

use std::time::Duration;

use device::{Codec, Level};
use policy::FormPolicy;

use crate::config::{
    CodecName, CompressConfig, CompressMode, Foreign, LevelName, ReaderName, StoreConfig,
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
