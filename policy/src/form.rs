//! Chooses the form in which a value is stored: unchanged, as one byte, or compressed with a codec. It is a pure
//! function of the value and the configuration. It reads a bounded sample and never compresses.

use device::{Codec, Dialect, Level};
use store::frame;
use units::limits::COMPRESS_BYTES_MIN;

/// Chooses the stored form of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FormPolicy {
    /// Whether new values are compressed at all.
    pub compress: bool,
    /// The codec. If it is none, the value's size decides.
    pub codec: Option<Codec>,
    /// The level of compression.
    pub level: Level,
    /// The size below which values are stored unchanged (bytes).
    pub bytes_min: usize,
    /// The minimum share of a value's size that its stored form, including the header, must save (0 to 1).
    pub saving_min: f64,
    /// The same share while the store has memory to spare (0 to 1). The memory that a value would save is then unused
    /// anyway, and each read of it would have to decompress.
    pub saving_min_spare: f64,
    /// Whether uncompressed values, except numbers, are also stored in a frame. This is for fleets whose
    /// readers accept only frames.
    pub wrap_all: bool,
    /// The limit on the window of new streams (log2 of bytes), if there is one. It is 12 for Intel IAA.
    pub window_log2: Option<u8>,
}

impl Default for FormPolicy {
    /// Compresses with the codec that performed best for a value's size, and keeps what saves a tenth.
    fn default() -> Self {
        Self {
            compress: true,
            codec: None,
            level: Level::Default,
            bytes_min: COMPRESS_BYTES_MIN,
            saving_min: 0.1,
            saving_min_spare: 0.3,
            wrap_all: false,
            window_log2: None,
        }
    }
}

impl FormPolicy {
    /// Returns the form for `value`.
    pub fn choose(&self, value: &[u8]) -> Form {
        match self.raw_reason(value) {
            Some(reason) => self.uncompressed(value, reason),
            None => match frame::same_filled(value) {
                Some(byte) => Form::SameFilled(byte),
                None => self.compressed(value.len()),
            },
        }
    }

    /// Returns the form of a value that is not compressed for this reason.
    pub fn uncompressed(&self, value: &[u8], reason: RawReason) -> Form {
        let is_closed = self.wrap_all && !frame::is_number(value);
        if frame::must_wrap(value) || is_closed { Form::Wrapped } else { Form::Raw(reason) }
    }

    /// Returns the policy for a store that has memory to spare.
    pub fn with_spare_memory(self) -> Self {
        Self { saving_min: self.saving_min.max(self.saving_min_spare), ..self }
    }

    /// Returns the form for `value` if its class has a dictionary. Shorter values shrink with a dictionary than
    /// without, and for long values the policy without dictionaries decides.
    pub fn choose_with_dictionary(&self, value: &[u8]) -> Form {
        if self.window_log2.is_some() || value.len() > DICTIONARY_VALUE_BYTES_MAX {
            return self.choose(value);
        }
        let bytes_min = self.bytes_min.min(DICTIONARY_VALUE_BYTES_MIN);
        match (Self { bytes_min, ..*self }).choose(value) {
            Form::Compressed { stored_bytes_max, .. } => Form::WithDictionary { stored_bytes_max },
            other => other,
        }
    }

    fn raw_reason(&self, value: &[u8]) -> Option<RawReason> {
        if !self.compress {
            return Some(RawReason::Off);
        }
        if value.len() < self.bytes_min {
            return Some(RawReason::Small);
        }
        if frame::is_number(value) {
            return Some(RawReason::Number);
        }
        if frame::looks_compressed(value).is_some() {
            return Some(RawReason::AlreadyCompressed);
        }
        let probe = value.len() >= PROBE_BYTES_MIN;
        let dense = probe && frame::entropy_probe(value) > ENTROPY_BITS_MAX;
        dense.then_some(RawReason::HighEntropy)
    }

    fn compressed(&self, value_bytes: usize) -> Form {
        let (codec, level) = match (self.codec, self.window_log2) {
            // The devices that need a window read only deflate streams.
            (_, Some(_)) => (Codec::Deflate, self.level),
            (Some(codec), None) => (codec, self.level),
            (None, None) => automatic(value_bytes, self.level),
        };
        let dialect = Dialect { codec, window_log2: self.window_log2 };
        let stored_bytes_max = self.stored_bytes_max(value_bytes);
        Form::Compressed { dialect, level, stored_bytes_max }
    }

    /// Returns the largest size of header and stream with which a value is stored compressed (bytes).
    pub fn stored_bytes_max(&self, value_bytes: usize) -> usize {
        (value_bytes as f64 * (1.0 - self.saving_min)) as usize
    }
}

/// The form of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The value is stored unchanged.
    Raw(RawReason),
    /// The value is stored uncompressed in a frame, because it begins like a frame.
    Wrapped,
    /// The value repeats one byte, and a frame stores this byte.
    SameFilled(u8),
    /// A compressed stream is stored in a frame, if header and stream together are not longer than `stored_bytes_max`.
    /// Otherwise the value is stored unchanged.
    Compressed {
        /// The dialect of the stream.
        dialect: Dialect,
        /// The level of compression.
        level: Level,
        /// The largest size of header and stream together (bytes).
        stored_bytes_max: usize,
    },
    /// A stream with the dictionary of the value's class is stored in a frame, under the same condition.
    WithDictionary {
        /// The largest size of header and stream together (bytes).
        stored_bytes_max: usize,
    },
}

impl Form {
    /// Returns whether the value is compressed to see what that saves.
    pub const fn is_tried(&self) -> bool {
        matches!(self, Form::Compressed { .. } | Form::WithDictionary { .. })
    }

    /// Returns the stored size of a value of `value_bytes` in this form (bytes). Its frame has a header of
    /// `header_bytes`. `stream_bytes` is the length of its compressed stream, or none if there is no stream.
    pub fn stored_bytes(
        &self,
        value_bytes: usize,
        header_bytes: usize,
        stream_bytes: Option<usize>,
    ) -> usize {
        match *self {
            Form::Raw(_) => value_bytes,
            Form::Wrapped => header_bytes + value_bytes,
            Form::SameFilled(_) => header_bytes + 1,
            Form::Compressed { stored_bytes_max, .. }
            | Form::WithDictionary { stored_bytes_max } => stream_bytes
                .and_then(|bytes| framed_bytes(header_bytes, bytes, stored_bytes_max))
                .unwrap_or(value_bytes),
        }
    }
}

/// Returns the size of header and stream together (bytes), or none if it is above `stored_bytes_max`. The value is then
/// stored uncompressed.
#[inline]
pub const fn framed_bytes(
    header_bytes: usize,
    stream_bytes: usize,
    stored_bytes_max: usize,
) -> Option<usize> {
    let bytes = header_bytes + stream_bytes;
    if bytes <= stored_bytes_max { Some(bytes) } else { None }
}

/// The reason why a value is stored unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RawReason {
    /// Compression is off.
    Off,
    /// The value is too small to shrink.
    Small,
    /// The value is a number, which the store's incr and decr must be able to read.
    Number,
    /// The value has a format that is already compressed.
    AlreadyCompressed,
    /// A sample of the value is as dense as random bytes.
    HighEntropy,
    /// The value was compressed and saved too little.
    DidNotShrink,
    /// The values of its class saved too little lately, so that this one was not tried.
    NotTried,
}

impl RawReason {
    /// Every reason, in the order of its index.
    pub const ALL: [RawReason; 7] = [
        RawReason::Off,
        RawReason::Small,
        RawReason::Number,
        RawReason::AlreadyCompressed,
        RawReason::HighEntropy,
        RawReason::DidNotShrink,
        RawReason::NotTried,
    ];

    /// Returns the name that metrics use.
    pub const fn name(self) -> &'static str {
        match self {
            RawReason::Off => "off",
            RawReason::Small => "small",
            RawReason::Number => "number",
            RawReason::AlreadyCompressed => "already_compressed",
            RawReason::HighEntropy => "high_entropy",
            RawReason::DidNotShrink => "did_not_shrink",
            RawReason::NotTried => "not_tried",
        }
    }
}

/// Returns the codec that performed best in measurements for a value of this size, on text, JSON and numbers
/// (docs/measurements/codecs.md). Below [`ZSTD_BYTES_MIN`], deflate has the better ratio for its time. From
/// this size on, zstd's first level has the better ratio, and decompression takes two thirds of the time.
const fn automatic(value_bytes: usize, level: Level) -> (Codec, Level) {
    match level {
        Level::Default if value_bytes >= ZSTD_BYTES_MIN => (Codec::Zstd, Level::Fast),
        Level::High if value_bytes >= ZSTD_BYTES_MIN => (Codec::Zstd, Level::High),
        _ => (Codec::Deflate, level),
    }
}

/// The longest value that is stored with a dictionary (bytes). Longer ones have enough content of their own.
pub const DICTIONARY_VALUE_BYTES_MAX: usize = 16 << 10;

/// The shortest value that is stored with a dictionary (bytes). The frame alone takes 8 bytes.
const DICTIONARY_VALUE_BYTES_MIN: usize = 16;

const ZSTD_BYTES_MIN: usize = 16 << 10;

/// The order-0 entropy (bits per byte) above which no codec here saves a tenth. Base64 of random bytes (6 bits) still
/// compresses by a quarter, and random bytes do not. The entropy probe corrects for its sample's size.
const ENTROPY_BITS_MAX: f32 = 7.5;

/// The smallest value whose entropy is probed (bytes). Below this size a sample says too little, and an attempt to
/// compress costs only microseconds.
const PROBE_BYTES_MIN: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use units::Prng;

    fn policy() -> FormPolicy {
        FormPolicy::default()
    }

    fn random(bytes: usize) -> Vec<u8> {
        let mut value = vec![0; bytes];
        Prng::new(1).fill(&mut value);
        value
    }

    #[test]
    fn text_is_compressed_within_the_saving_asked_for() {
        let value = "the quick brown fox jumps over the lazy dog. ".repeat(100);
        let form = policy().choose(value.as_bytes());
        let bound = (value.len() as f64 * 0.9) as usize;
        assert!(
            matches!(form, Form::Compressed { stored_bytes_max, .. } if stored_bytes_max == bound)
        );
    }

    #[test]
    fn what_will_not_shrink_stays_as_it_came() {
        let raw = |value: &[u8]| match policy().choose(value) {
            Form::Raw(reason) => Some(reason),
            _ => None,
        };
        assert_eq!(raw(&[b'x'; 63]), Some(RawReason::Small));
        assert_eq!(raw(b"12345678901234567890"), Some(RawReason::Small));
        for bytes in [1_024, 4_096, 65_536] {
            assert_eq!(raw(&random(bytes)), Some(RawReason::HighEntropy), "{bytes}");
        }
        let mut gzip = vec![0x1f, 0x8b, 8, 0];
        gzip.extend(random(500));
        assert_eq!(raw(&gzip), Some(RawReason::AlreadyCompressed));
        let off = FormPolicy { compress: false, ..policy() };
        assert_eq!(off.choose(&[b'x'; 4_096]), Form::Raw(RawReason::Off));
    }

    #[test]
    fn a_value_like_a_frame_is_never_stored_raw() {
        let off = FormPolicy { compress: false, ..policy() };
        for magic in [&frame::MAGIC[..], b"\xFC", b"\xFD"] {
            let value = [magic, &random(2_000)].concat();
            assert_eq!(off.choose(&value), Form::Wrapped);
            assert_eq!(policy().choose(&value), Form::Wrapped);
            assert_eq!(policy().choose(magic), Form::Wrapped);
        }
    }

    #[test]
    fn a_closed_fleet_has_everything_but_numbers_in_a_frame() {
        let closed = FormPolicy { wrap_all: true, ..policy() };
        assert_eq!(closed.choose(b"small"), Form::Wrapped);
        assert_eq!(closed.choose(&random(4_096)), Form::Wrapped);
        assert_eq!(closed.choose(b"42"), Form::Raw(RawReason::Small));
        let off = FormPolicy { compress: false, ..closed };
        assert_eq!(off.choose(&[b'x'; 4_096]), Form::Wrapped);
        assert_eq!(off.choose(b"42"), Form::Raw(RawReason::Off));
    }

    #[test]
    fn one_byte_stands_for_a_value_that_repeats_it() {
        assert_eq!(policy().choose(&[0; 4_096]), Form::SameFilled(0));
    }

    #[test]
    fn a_dictionary_is_for_short_values_that_may_shrink() {
        let form = |value: &[u8]| policy().choose_with_dictionary(value);
        let text = "abcdefghij".repeat(10_000);
        let text = text.as_bytes();
        assert_eq!(form(&text[..20]), Form::WithDictionary { stored_bytes_max: 18 });
        assert_eq!(form(&text[..16 << 10]), Form::WithDictionary { stored_bytes_max: 14_745 });
        assert!(matches!(form(&text[..1 + (16 << 10)]), Form::Compressed { .. }));
        assert_eq!(form(&text[..15]), Form::Raw(RawReason::Small));
        assert_eq!(form(b"12345678901234567890"), Form::Raw(RawReason::Number));
        assert_eq!(form(&random(2_000)), Form::Raw(RawReason::HighEntropy));
        let windowed = FormPolicy { window_log2: Some(12), ..policy() };
        assert!(matches!(windowed.choose_with_dictionary(&text[..200]), Form::Compressed { .. }));
        let off = FormPolicy { compress: false, ..policy() };
        assert_eq!(off.choose_with_dictionary(&text[..200]), Form::Raw(RawReason::Off));
    }

    #[test]
    fn a_stream_counts_only_if_it_saves_enough() {
        let form = policy().choose(&[b'a', b'b'].repeat(50));
        let stored = |stream_bytes| form.stored_bytes(100, 8, stream_bytes);
        assert_eq!([stored(Some(82)), stored(Some(83)), stored(None)], [90, 100, 100]);
        assert_eq!(Form::SameFilled(0).stored_bytes(100, 8, None), 9);
        assert_eq!(Form::Wrapped.stored_bytes(100, 8, None), 108);
        assert_eq!(Form::Raw(RawReason::Small).stored_bytes(100, 8, Some(1)), 100);
    }

    #[test]
    fn spare_memory_asks_for_a_larger_saving() {
        let saving_min = |form: FormPolicy| form.with_spare_memory().saving_min;
        assert_eq!(saving_min(policy()), 0.3);
        assert_eq!(saving_min(FormPolicy { saving_min: 0.5, ..policy() }), 0.5);
        assert_eq!(saving_min(FormPolicy { saving_min_spare: 0.0, ..policy() }), 0.1);
    }

    #[test]
    fn readers_with_a_window_get_deflate_within_it() {
        let value = "abcdefghij".repeat(1_000);
        let windowed = FormPolicy { window_log2: Some(12), codec: Some(Codec::Zstd), ..policy() };
        assert!(matches!(
            windowed.choose(value.as_bytes()),
            Form::Compressed { dialect: Dialect::IAA, .. }
        ));
    }
}
