//! The section `[values]`: frames, dictionaries, and the values that are kept without frames.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use store::frame::FrameVersion;

use crate::config::keys::{Key, Kind, hot, restart};
use crate::config::path::ValueOp;

/// The frames around stored values, the dictionaries for them, and the values that are kept without frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ValuesConfig {
    /// The version of the frames that are written, see [format.md](../format.md). Every version is read. `1` takes 16
    /// bytes for each framed value. `2` takes 8 (12 above 64 KiB), and a frame under another key than its own is a
    /// miss. Servers that are older than version 2 serve such frames as foreign values, so set `2` only when [all of
    /// them are new](migration.md#frames-of-version-2). Unset means 2 if the store is embedded and no other process
    /// reaches it, and else 1. Other processes reach it if `grpc_listen` is set and `roles` has `store`.
    #[serde(with = "frame_version")]
    pub frame_version: Option<FrameVersion>,
    /// Values of a class of keys are stored with a [dictionary](dictionaries.md) that was trained on such values, if
    /// that saves enough. It needs frames of version 2, `compress.mode = "on"`, an empty `compress.readable_by`, and no
    /// `fallback_*` of `require`.
    pub dictionaries: bool,
    /// What is done with a value on its way to the store, in this order; reads undo it. `["compress", "encrypt"]`
    /// [seals](sealed.md) every value, and needs `keys`. `["encrypt"]` seals and does not compress, and `[]` does
    /// neither. Stored values of every path stay readable.
    pub path: Vec<ValueOp>,
    /// The file with the keys of [sealed values](sealed.md): `active = ID`, and for each key a table `[[key]]` with
    /// `id` (1 to 65535) and `secret` (32 bytes in base64). With it, sealed values are read. It is read again when it
    /// changes.
    pub keys: Option<PathBuf>,
    /// A name that is bound to every sealed value. Values that were sealed under another name are misses.
    pub tenant: String,
    /// Prefixes of keys; the keys with one of them are a class of that name. Other keys belong to classes by their
    /// pattern.
    pub classes: Vec<String>,
    /// The share of `store.memory`, at most 0.25, in which the embedded store keeps the compressed values that are read
    /// most decompressed. Reads of these values decompress nothing. The memory is taken only as values of at least 800
    /// bytes are read that decompress slowly, and items make way for it. High: fewer reads decompress, and fewer items
    /// fit. `0` keeps none. It has no effect on other stores, if `compress.mode` is not `on` at the start, or if the
    /// share is less than 64 KiB.
    pub hot_share: f64,
}

impl Default for ValuesConfig {
    fn default() -> Self {
        Self {
            frame_version: None,
            dictionaries: true,
            path: vec![ValueOp::Compress],
            keys: None,
            tenant: String::new(),
            classes: Vec::new(),
            hot_share: 0.05,
        }
    }
}

/// The keys of the section, in the order of the fields.
pub(super) const KEYS: &[Key] = &[
    hot("values.frame_version", Kind::Count(1, 2)).flag("--frame-version"),
    hot("values.dictionaries", Kind::Switch),
    hot("values.path", Kind::Choices(&["compress", "encrypt"])),
    restart("values.keys", Kind::Path),
    restart("values.tenant", Kind::Name),
    restart("values.classes", Kind::Names),
    restart("values.hot_share", Kind::Share),
];

mod frame_version {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use store::frame::FrameVersion;

    pub(super) fn serialize<S: Serializer>(
        version: &Option<FrameVersion>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        version.map(FrameVersion::number).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<FrameVersion>, D::Error> {
        let Some(number) = Option::<u8>::deserialize(from)? else { return Ok(None) };
        let unknown = || D::Error::custom(format!("frame version {number} is unknown"));
        FrameVersion::from_number(number).map(Some).ok_or_else(unknown)
    }
}
