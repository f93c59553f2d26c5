//! The section `[compress]`: the form in which values are stored.

use device::Codec;
use serde::{Deserialize, Serialize};
use units::{ByteCount, limits};

use crate::config::keys::{Key, Kind, hot, with_first};

/// The form in which values are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompressConfig {
    /// `on` compresses. `read-only` and `off` write values as they came and do the same; the two words let a
    /// configuration say what is meant. Every mode reads frames. In every mode a value that begins with the magic of a
    /// frame is wrapped.
    pub mode: CompressMode,
    /// `auto` uses deflate below 16 KiB and zstd from there on (with `level = "fast"` always deflate). The name of a
    /// codec in [format.md](../format.md), such as `lz4`, uses that codec for every size. See
    /// [measurements](../measurements/codecs.md).
    pub codec: CodecName,
    /// The effort: `fast`, `default` or `high`. `high` costs more on every set.
    pub level: LevelName,
    /// Smaller values are stored as they came. Lower values rarely save anything, because a frame's header alone takes
    /// 8 to 16 bytes.
    pub bytes_min: ByteCount,
    /// The share that compression must save, including the frame header. Otherwise the value is stored as it came. With
    /// `0` a value is compressed if it does not grow. With `1` only same-filled values are compressed.
    pub saving_min: f64,
    /// The same share, if it is larger, while a quarter of the embedded store's memory is free
    /// ([why](dictionaries.md#when-compression-pays)). `0` always asks only for `saving_min`: the process takes less
    /// memory before the store is full, and reads of values that hardly shrink take more time. It has no effect on
    /// stores outside this process.
    pub saving_min_spare: f64,
    /// `["iaa"]` writes only deflate within a 4 KiB window, whatever `codec` says. It compresses less.
    pub readable_by: Vec<ReaderName>,
    /// What happens to stored values without a frame. `serve` answers them as they are. `forbid` makes them a miss,
    /// unless they are numbers. With `forbid` every value except numbers is written in a frame, 8 to 16 bytes longer if
    /// it does not shrink. Values that clients wrote past Rebate, or that were written before `forbid`, are lost to
    /// clients of Rebate.
    pub foreign: Foreign,
}

impl Default for CompressConfig {
    fn default() -> Self {
        Self {
            mode: CompressMode::On,
            codec: CodecName::Auto,
            level: LevelName::Default,
            bytes_min: ByteCount(limits::COMPRESS_BYTES_MIN as u64),
            saving_min: 0.1,
            saving_min_spare: 0.3,
            readable_by: Vec::new(),
            foreign: Foreign::Serve,
        }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    hot("compress.mode", Kind::Choice(&["on", "off", "read-only"])).flag("--compress"),
    hot("compress.codec", Kind::Choice(&CODECS)).flag("--codec"),
    hot("compress.level", Kind::Choice(&["fast", "default", "high"])).flag("--level"),
    hot("compress.bytes_min", Kind::Bytes(ByteCount(0), limits::ITEM_BYTES_MAX_HIGHEST)),
    hot("compress.saving_min", Kind::Share),
    hot("compress.saving_min_spare", Kind::Share),
    hot("compress.readable_by", Kind::Choices(&["iaa"])),
    hot("compress.foreign", Kind::Choice(&["serve", "forbid"])).flag("--foreign"),
];

const CODECS: [&str; Codec::ALL.len() + 1] = with_first("auto", &Codec::NAMES);

/// The switch for the compression of new values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum CompressMode {
    On,
    Off,
    ReadOnly,
}

/// The codec of new values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum CodecName {
    Auto,
    #[serde(untagged)]
    Named(#[serde(with = "codec_name")] Codec),
}

mod codec_name {
    use device::Codec;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(codec: &Codec, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(codec.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Codec, D::Error> {
        let name = String::deserialize(from)?;
        Codec::from_name(&name).ok_or_else(|| D::Error::custom(format!("codec {name} is unknown")))
    }
}

/// The effort of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum LevelName {
    Fast,
    Default,
    High,
}

/// A device that must be able to read new values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ReaderName {
    Iaa,
}

/// The treatment of stored values that have no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Foreign {
    Serve,
    Forbid,
}
