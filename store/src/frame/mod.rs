//! The stored form of a value: a self-describing header and the payload. docs/format.md describes
//! every byte. This module classifies stored values and checks their headers. It does not compress
//! and does not allocate.

mod probe;

use std::ops::Range;

use thiserror::Error;
use units::limits::FRAME_HEADER_BYTES;

pub use probe::{entropy_probe, is_number, looks_compressed, same_filled};

/// The classification of a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// The value has no magic: it was written before Rebate was installed, or by a writer that
    /// bypasses Rebate. It is its own logical value.
    Foreign,
    /// A frame with a consistent header. The decoded payload must still pass [`Header::verify`].
    Frame {
        /// The parsed header.
        header: Header,
        /// The position of the payload in the stored value.
        payload: Range<usize>,
    },
    /// The value has the magic, but something else is wrong. Answer with a miss and never with its
    /// bytes.
    Invalid(FrameError),
}

/// The reason why a value with the frame's magic cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The value ends inside the header.
    #[error("frame of {bytes} bytes ends inside its header")]
    Truncated {
        /// The length of the stored value.
        bytes: usize,
    },
    /// The frame was written by a version that this reader does not know.
    #[error("frame version {0} is unknown; this reader knows {VERSION}")]
    Version(u8),
    /// The codec's number is not in the table.
    #[error("frame codec {0} is unknown; valid are 0..=4")]
    Codec(u8),
    /// The window is neither "not stated" (0) nor a window that a codec can have.
    #[error("frame window 2^{0} is out of range; valid are 0 (not stated) and 8..=31")]
    Window(u8),
    /// A flag is set that this version does not know.
    #[error("frame flags {0:#04x} are unknown; valid are 0x00 and 0x01")]
    Flags(u8),
    /// The reserved byte is not zero.
    #[error("frame's reserved byte is {0:#04x}; it must be zero")]
    Reserved(u8),
    /// The payload needs a dictionary that this reader does not have.
    #[error("frame needs dictionary {id:#010x}, which this reader does not have")]
    Dictionary {
        /// The dictionary's id.
        id: u32,
    },
    /// The header claims a value that is larger than the caller accepts. Nothing was allocated for
    /// it.
    #[error("frame claims {original_bytes} bytes; at most {original_bytes_max} are accepted")]
    TooLong {
        /// The claimed length of the logical value.
        original_bytes: u32,
        /// The longest value that the caller accepts.
        original_bytes_max: usize,
    },
    /// The payload's length contradicts the codec and the original length.
    #[error(
        "frame's payload of {payload_bytes} bytes cannot be {codec:?} of {original_bytes} bytes"
    )]
    Payload {
        /// The codec.
        codec: Codec,
        /// The length of the payload that was found.
        payload_bytes: usize,
        /// The claimed length of the logical value.
        original_bytes: u32,
    },
}

impl FrameError {
    /// Returns whether the frame is damaged, so that no reader of any version or configuration can
    /// read it. Frames with other versions, codecs, flags, dictionaries or lengths beyond a bound
    /// may be readable by other readers.
    pub const fn is_damage(&self) -> bool {
        matches!(self, FrameError::Truncated { .. } | FrameError::Payload { .. })
    }
}

/// The encoding of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Codec {
    /// The value itself, uncompressed.
    Stored = 0,
    /// Raw deflate (RFC 1951), without a zlib or gzip wrapper.
    Deflate = 1,
    /// One zstd frame (RFC 8878).
    Zstd = 2,
    /// One lz4 block, without an lz4 frame.
    Lz4 = 3,
    /// One byte, of which the whole value consists.
    SameFilled = 4,
}

impl Codec {
    /// All codecs, in the order of their numbers.
    pub const ALL: [Codec; 5] =
        [Codec::Stored, Codec::Deflate, Codec::Zstd, Codec::Lz4, Codec::SameFilled];

    /// Returns the codec's name in metrics and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::Stored => "stored",
            Codec::Deflate => "deflate",
            Codec::Zstd => "zstd",
            Codec::Lz4 => "lz4",
            Codec::SameFilled => "same-filled",
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The codec of the payload.
    pub codec: Codec,
    /// The base-2 logarithm of the window that bounds every match distance; 0 if not stated.
    pub window_log2: u8,
    /// The length of the logical value.
    pub original_bytes: u32,
    /// The length of the payload. It is not part of the header: the stored value's length
    /// determines it. The checksum covers it, because not every decoder notices bytes behind its
    /// stream.
    pub payload_bytes: u32,
    /// The CRC-32C over the header's first 12 bytes, the payload's length and the logical value.
    pub checksum: u32,
}

impl Header {
    /// Builds the header of a frame for `original`, including the checksum.
    ///
    /// # Panics
    /// If `original` is 4 GiB or longer. The largest item is 1 GiB.
    pub fn seal(codec: Codec, window_log2: u8, original: &[u8], payload_bytes: usize) -> Self {
        let length = |bytes: usize| u32::try_from(bytes).expect("items are at most 1 GiB");
        let (original_bytes, payload_bytes) = (length(original.len()), length(payload_bytes));
        let mut header = Self { codec, window_log2, original_bytes, payload_bytes, checksum: 0 };
        header.checksum = header.checksum_of(original);
        header
    }

    /// Writes the header's bytes.
    pub fn encode(&self, out: &mut [u8; FRAME_HEADER_BYTES]) {
        out[..PREFIX_BYTES].copy_from_slice(&self.prefix());
        out[PREFIX_BYTES..].copy_from_slice(&self.checksum.to_le_bytes());
    }

    /// Returns whether `original` is the value for which this header was sealed.
    pub fn verify(&self, original: &[u8]) -> bool {
        original.len() == self.original_bytes as usize
            && self.checksum_of(original) == self.checksum
    }

    /// Computes the checksum over the logical value instead of the payload. Errors of a decoder are
    /// thus detected as well as errors of memory.
    fn checksum_of(&self, original: &[u8]) -> u32 {
        let head = crc32c::crc32c(&self.prefix());
        let head = crc32c::crc32c_append(head, &self.payload_bytes.to_le_bytes());
        crc32c::crc32c_append(head, original)
    }

    fn prefix(&self) -> [u8; PREFIX_BYTES] {
        let [l0, l1, l2, l3] = self.original_bytes.to_le_bytes();
        let [m0, m1, m2] = MAGIC;
        [m0, m1, m2, VERSION, self.codec as u8, self.window_log2, 0, 0, l0, l1, l2, l3]
    }
}

/// The first bytes of every frame. 0xFB never occurs in UTF-8, so no text value begins with it.
pub const MAGIC: [u8; 3] = [0xFB, b'R', b'b'];

/// The version that this code writes, and the only version that it reads.
pub const VERSION: u8 = 1;

/// Classifies a stored value without allocating and without reading the payload. A frame that
/// claims more than `original_bytes_max` is invalid.
pub fn inspect(value: &[u8], original_bytes_max: usize) -> Inspected {
    if !must_wrap(value) {
        return Inspected::Foreign;
    }
    match parse(value, original_bytes_max) {
        Ok(header) => Inspected::Frame { header, payload: FRAME_HEADER_BYTES..value.len() },
        Err(reason) => Inspected::Invalid(reason),
    }
}

/// Returns whether a logical value begins like a frame. Such a value must be wrapped in a frame, or
/// readers would take it for a frame.
pub fn must_wrap(value: &[u8]) -> bool {
    value.starts_with(&MAGIC)
}

/// The length of the header's part before the checksum, which the checksum covers.
const PREFIX_BYTES: usize = 12;

const FLAG_DICTIONARY: u8 = 1;
const WINDOW_LOG2_MIN: u8 = 8;
const WINDOW_LOG2_MAX: u8 = 31;
const _: () = assert!(PREFIX_BYTES + size_of::<u32>() == FRAME_HEADER_BYTES);

fn parse(value: &[u8], original_bytes_max: usize) -> Result<Header, FrameError> {
    let truncated = FrameError::Truncated { bytes: value.len() };
    let Some((head, payload)) = value.split_first_chunk::<FRAME_HEADER_BYTES>() else {
        // A header of another version may be shorter.
        let version = value.get(MAGIC.len()).copied().unwrap_or(0);
        return Err(if version == VERSION { truncated } else { FrameError::Version(version) });
    };
    let [_, _, _, version, codec, window_log2, flags, reserved, lengths @ ..] = *head;
    let [l0, l1, l2, l3, c0, c1, c2, c3] = lengths;
    let original_bytes = u32::from_le_bytes([l0, l1, l2, l3]);

    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let codec = Codec::from_number(codec).ok_or(FrameError::Codec(codec))?;
    if window_log2 != 0 && !(WINDOW_LOG2_MIN..=WINDOW_LOG2_MAX).contains(&window_log2) {
        return Err(FrameError::Window(window_log2));
    }
    if flags & !FLAG_DICTIONARY != 0 {
        return Err(FrameError::Flags(flags));
    }
    if reserved != 0 {
        return Err(FrameError::Reserved(reserved));
    }
    if flags & FLAG_DICTIONARY != 0 {
        let id = payload.first_chunk::<4>().ok_or(truncated)?;
        return Err(FrameError::Dictionary { id: u32::from_le_bytes(*id) });
    }
    if original_bytes as usize > original_bytes_max {
        return Err(FrameError::TooLong { original_bytes, original_bytes_max });
    }
    let payload_bytes = payload.len();
    let plausible = match codec {
        Codec::Stored => payload_bytes == original_bytes as usize,
        Codec::SameFilled => payload_bytes == 1,
        Codec::Deflate | Codec::Zstd | Codec::Lz4 => payload_bytes > 0,
    };
    if !plausible {
        return Err(FrameError::Payload { codec, payload_bytes, original_bytes });
    }
    let checksum = u32::from_le_bytes([c0, c1, c2, c3]);
    let payload_bytes = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
    Ok(Header { codec, window_log2, original_bytes, payload_bytes, checksum })
}

#[cfg(test)]
mod tests;
