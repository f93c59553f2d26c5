//! The header of a frame, as all versions have it. The modules of the versions lay out its bytes.

use units::limits::FRAME_HEADER_BYTES_MAX;
use units::{Codec, DictionaryId};

use super::{version1, version2};
use crate::checksum;

/// The version of a frame. Readers read every version. Which version is written is a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameVersion {
    /// A header of 16 bytes. The checksum does not cover the key.
    V1,
    /// A header of 8 bytes for values up to 64 KiB, and of 12 for longer ones. The checksum covers the key.
    V2,
}

impl FrameVersion {
    /// Every version.
    pub const ALL: [FrameVersion; 2] = [FrameVersion::V1, FrameVersion::V2];

    /// Returns the number of the version.
    pub const fn number(self) -> u8 {
        match self {
            FrameVersion::V1 => version1::NUMBER,
            FrameVersion::V2 => version2::NUMBER,
        }
    }

    /// Returns the version with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.number() == number)
    }

    /// Returns the length of the header for a value of `original_bytes` bytes, without a dictionary.
    pub const fn header_bytes(self, window_log2: u8, original_bytes: usize) -> usize {
        match self {
            FrameVersion::V1 => version1::HEADER_BYTES,
            FrameVersion::V2 => version2::header_bytes(window_log2, original_bytes),
        }
    }
}

/// The encoding of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The value itself, uncompressed.
    Stored,
    /// One byte, which the whole value repeats.
    SameFilled,
    /// A stream of this codec.
    Compressed(Codec),
}

impl Encoding {
    /// Returns the name in metrics and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Encoding::Stored => "stored",
            Encoding::SameFilled => "same-filled",
            Encoding::Compressed(codec) => codec.name(),
        }
    }

    /// Returns the number in the header.
    pub const fn number(self) -> u8 {
        match self {
            Encoding::Stored => 0,
            Encoding::SameFilled => 4,
            Encoding::Compressed(codec) => codec.frame_number(),
        }
    }

    /// Returns the encoding with this number in the header.
    pub fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Encoding::Stored),
            4 => Some(Encoding::SameFilled),
            _ => Codec::from_frame_number(number).map(Encoding::Compressed),
        }
    }

    /// Returns every encoding.
    pub fn all() -> impl Iterator<Item = Self> {
        let compressed = Codec::ALL.into_iter().map(Encoding::Compressed);
        [Encoding::Stored, Encoding::SameFilled].into_iter().chain(compressed)
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of the layout.
    pub version: FrameVersion,
    /// The encoding of the payload.
    pub encoding: Encoding,
    /// The base-2 logarithm of the window that bounds every match distance; 0 if not stated.
    pub window_log2: u8,
    /// The length of the logical value.
    pub original_bytes: u32,
    /// The length of the payload (bytes). The header does not contain it, because the stored value's length
    /// determines it. The checksum covers it, because not every decoder notices bytes behind its stream.
    pub payload_bytes: u32,
    /// The CRC-32C over the header's bytes before it, the lengths, the key (not in version 1) and the logical value.
    pub checksum: u32,
    /// The dictionary that the payload needs. The payload is then a zstd frame without its magic number.
    pub dictionary_id: Option<DictionaryId>,
}

impl Header {
    /// Builds the header of a frame for `original`, including the checksum. Only a compressed payload has a
    /// window.
    ///
    /// # Panics
    /// If `original` is 4 GiB or longer. The largest item is 1 GiB.
    pub fn seal(
        version: FrameVersion,
        encoding: Encoding,
        window_log2: u8,
        key: &[u8],
        original: &[u8],
        payload_bytes: usize,
    ) -> Self {
        let is_compressed = matches!(encoding, Encoding::Compressed(_));
        let header = Self {
            version,
            encoding,
            window_log2: if is_compressed { window_log2 } else { 0 },
            original_bytes: length(original.len()),
            payload_bytes: length(payload_bytes),
            checksum: 0,
            dictionary_id: None,
        };
        Self { checksum: header.checksum_of(key, original), ..header }
    }

    /// Builds the header of a frame whose payload is a zstd frame that was written with this dictionary: without
    /// magic number, dictionary id and checksum, with the content's size, and as a single segment.
    ///
    /// # Panics
    /// If `original` is 4 GiB or longer.
    pub fn seal_with_dictionary(
        id: DictionaryId,
        key: &[u8],
        original: &[u8],
        payload_bytes: usize,
    ) -> Self {
        let header = Self {
            version: FrameVersion::V2,
            encoding: Encoding::Compressed(Codec::ZstdDictionary),
            window_log2: 0,
            original_bytes: length(original.len()),
            payload_bytes: length(payload_bytes),
            checksum: 0,
            dictionary_id: Some(id),
        };
        Self { checksum: header.checksum_of(key, original), ..header }
    }

    /// The length of a header with a dictionary (bytes).
    pub const DICTIONARY_HEADER_BYTES: usize = version2::SHORT_HEADER_BYTES;

    /// Returns the length of the header (bytes).
    pub const fn header_bytes(&self) -> usize {
        match self.dictionary_id {
            Some(_) => Self::DICTIONARY_HEADER_BYTES,
            None => self.version.header_bytes(self.window_log2, self.original_bytes as usize),
        }
    }

    /// Writes the header to the beginning of `out`. Returns its length, which is at most
    /// [`FRAME_HEADER_BYTES_MAX`].
    ///
    /// # Panics
    /// If `out` is shorter than the header.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let (prefix, prefix_bytes) = self.prefix();
        let (head, rest) = out.split_at_mut(prefix_bytes);
        head.copy_from_slice(&prefix[..prefix_bytes]);
        rest[..CHECKSUM_BYTES].copy_from_slice(&self.checksum.to_le_bytes());
        prefix_bytes + CHECKSUM_BYTES
    }

    /// Returns whether `original` under `key` is the value for which this header was sealed.
    pub fn verify(&self, key: &[u8], original: &[u8]) -> bool {
        original.len() == self.original_bytes as usize
            && self.checksum_of(key, original) == self.checksum
    }

    /// Computes the checksum over the logical value instead of the payload, so that errors of a
    /// decoder are detected as well as memory errors.
    fn checksum_of(&self, key: &[u8], original: &[u8]) -> u32 {
        let (mut head, mut bytes) = self.prefix();
        let mut push = |length: u32| {
            head[bytes..bytes + size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
            bytes += size_of::<u32>();
        };
        if self.version == FrameVersion::V1 {
            push(self.payload_bytes);
            return checksum::append(checksum::of_bytes(&head[..bytes]), original);
        }
        push(self.original_bytes);
        push(self.payload_bytes);
        let head = checksum::append(checksum::of_bytes(&head[..bytes]), key);
        checksum::append(head, original)
    }

    /// Returns the bytes before the checksum and their number, in a buffer that also has room for what the checksum
    /// covers in addition.
    fn prefix(&self) -> ([u8; FRAME_HEADER_BYTES_MAX], usize) {
        match (self.version, self.dictionary_id) {
            (_, Some(id)) => version2::dictionary_prefix(id),
            (FrameVersion::V1, None) => version1::prefix(self),
            (FrameVersion::V2, None) => version2::prefix(self),
        }
    }
}

/// The length of the checksum, which ends every header.
pub(super) const CHECKSUM_BYTES: usize = size_of::<u32>();

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("items are at most 1 GiB")
}
