//! The reasons why a value that begins like a frame cannot be read.

use thiserror::Error;

use super::Encoding;

/// The reason why a value that begins like a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The value ends inside the header.
    #[error("frame of {bytes} bytes ends inside its header")]
    Truncated {
        /// The length of the stored value.
        bytes: usize,
    },
    /// The frame was written by a version that this reader does not know.
    #[error("frame version {0} is unknown; frames that begin like this have version 1")]
    Version(u8),
    /// The number of the payload's encoding is not in the table.
    #[error("frame encoding {0} is unknown; valid are {valid}", valid = valid_encodings())]
    Encoding(u8),
    /// The byte with encoding and window differs in one bit from that of a frame that fits the value.
    #[error("frame kind {0:#04x} is unknown, and one bit differs from a kind that fits the value")]
    Kind(u8),
    /// The window is neither "not stated" (0) nor a window that a codec can have.
    #[error("frame window 2^{0} is out of range; valid are 0 (not stated) and 8..=31")]
    Window(u8),
    /// A flag is set that this version does not know.
    #[error("frame flags {0:#04x} are unknown; valid are 0x00 and 0x01")]
    Flags(u8),
    /// The reserved byte is not zero.
    #[error("frame's reserved byte is {0:#04x}; it must be zero")]
    Reserved(u8),
    /// The frame has the long header although the short one holds the same.
    #[error(
        "frame has the long header for {original_bytes} bytes, for which the short one is valid"
    )]
    LongHeader {
        /// The claimed length of the logical value.
        original_bytes: u32,
    },
    /// The frame of version 1 has a dictionary id, which no writer of this version writes.
    #[error("frame needs dictionary {id:#010x}, which this reader does not have")]
    Dictionary {
        /// The dictionary's id.
        id: u32,
    },
    /// The frame names the dictionary 0, which does not exist.
    #[error("frame needs dictionary 0; ids are 1 to {}", super::DictionaryId::MAX)]
    DictionaryZero,
    /// The payload of a frame with a dictionary is not one whole zstd frame.
    #[error(
        "frame's payload of {payload_bytes} bytes is not a zstd frame that states its content's length"
    )]
    Stream {
        /// The length of the payload that was found.
        payload_bytes: usize,
    },
    /// The value ends inside the header or the tag of a sealed value.
    #[error(
        "sealed value of {bytes} bytes; its header and its tag alone are {}",
        super::SealedHeader::OVERHEAD_BYTES
    )]
    SealTruncated {
        /// The length of the stored value.
        bytes: usize,
    },
    /// The second byte differs in one bit from that of a sealed value.
    #[error("sealed value's second byte is {0:#04x}; the only one that is known is 0x01")]
    SealKind(u8),
    /// The sealed value names the key 0, which does not exist.
    #[error("sealed with key 0; ids are 1 to {}", u16::MAX)]
    SealKeyZero,
    /// The header claims a value that is larger than the caller accepts. Nothing was allocated for
    /// it.
    #[error("frame claims {original_bytes} bytes; at most {original_bytes_max} are accepted")]
    TooLong {
        /// The claimed length of the logical value.
        original_bytes: u32,
        /// The longest value that the caller accepts.
        original_bytes_max: usize,
    },
    /// The payload contradicts the encoding and the original length.
    #[error(
        "frame's payload of {payload_bytes} bytes cannot be {} of {original_bytes} bytes",
        encoding.name()
    )]
    Payload {
        /// The encoding.
        encoding: Encoding,
        /// The length of the payload that was found.
        payload_bytes: usize,
        /// The claimed length of the logical value.
        original_bytes: u32,
    },
}

impl FrameError {
    /// Returns whether the value begins like a sealed one, which is never said to be damaged: whoever has the right key
    /// decides.
    pub const fn is_of_seal(&self) -> bool {
        matches!(
            self,
            FrameError::SealTruncated { .. } | FrameError::SealKind(_) | FrameError::SealKeyZero
        )
    }

    /// Returns whether the frame is damaged, so that no reader of any version or configuration can
    /// read it. Frames with other versions, encodings, flags, dictionaries or lengths beyond a bound
    /// may be readable by other readers.
    pub const fn is_damage(&self) -> bool {
        matches!(
            self,
            FrameError::Truncated { .. }
                | FrameError::Payload { .. }
                | FrameError::LongHeader { .. }
                | FrameError::Stream { .. }
        )
    }
}

fn valid_encodings() -> String {
    let mut numbers: Vec<u8> = Encoding::all().map(Encoding::number).collect();
    numbers.sort_unstable();
    numbers.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}
