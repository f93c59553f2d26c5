//! The layout of version 1: a magic of three bytes, and a header of 16 bytes for every value.

use units::limits::FRAME_HEADER_BYTES_MAX;

use super::header::CHECKSUM_BYTES;
use super::{Encoding, FrameError, FrameVersion, Header};

/// The first bytes of every frame of version 1. 0xFB never occurs in UTF-8, so no text value begins with it.
pub const MAGIC: [u8; 3] = [0xFB, b'R', b'b'];

pub(super) const NUMBER: u8 = 1;

pub(super) const HEADER_BYTES: usize = 16;

/// Returns the header's bytes before the checksum, and their number.
pub(super) fn prefix(header: &Header) -> ([u8; FRAME_HEADER_BYTES_MAX], usize) {
    let Header { encoding, window_log2, original_bytes, .. } = header;
    let [l0, l1, l2, l3] = original_bytes.to_le_bytes();
    let [m0, m1, m2] = MAGIC;
    let encoding = encoding.number();
    let bytes = [m0, m1, m2, NUMBER, encoding, *window_log2, 0, 0, l0, l1, l2, l3, 0, 0, 0, 0];
    (bytes, PREFIX_BYTES)
}

/// Parses the header of a value that begins with the magic.
pub(super) fn parse(value: &[u8], original_bytes_max: usize) -> Result<Header, FrameError> {
    let truncated = FrameError::Truncated { bytes: value.len() };
    let Some((head, payload)) = value.split_first_chunk::<HEADER_BYTES>() else {
        // A header of another version may be shorter.
        let version = value.get(MAGIC.len()).copied().unwrap_or(0);
        return Err(if version == NUMBER { truncated } else { FrameError::Version(version) });
    };
    let [_, _, _, version, encoding, window_log2, flags, reserved, lengths @ ..] = *head;
    let [l0, l1, l2, l3, c0, c1, c2, c3] = lengths;
    let original_bytes = u32::from_le_bytes([l0, l1, l2, l3]);

    if version != NUMBER {
        return Err(FrameError::Version(version));
    }
    let encoding = Encoding::from_number(encoding).ok_or(FrameError::Encoding(encoding))?;
    super::check_window(window_log2)?;
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
    let plausible = match encoding {
        Encoding::Stored => payload_bytes == original_bytes as usize,
        Encoding::SameFilled => payload_bytes == 1,
        Encoding::Compressed(_) => payload_bytes > 0,
    };
    if !plausible {
        return Err(FrameError::Payload { encoding, payload_bytes, original_bytes });
    }
    Ok(Header {
        version: FrameVersion::V1,
        encoding,
        window_log2,
        original_bytes,
        payload_bytes: u32::try_from(payload_bytes).unwrap_or(u32::MAX),
        checksum: u32::from_le_bytes([c0, c1, c2, c3]),
        dictionary_id: None,
    })
}

/// The length of the header's part before the checksum, which the checksum covers.
const PREFIX_BYTES: usize = HEADER_BYTES - CHECKSUM_BYTES;

const FLAG_DICTIONARY: u8 = 1;
