//! The layout of version 2: a magic of one byte, and a header of 8 bytes for values up to 64 KiB. Values of other
//! programs may begin with that byte too. So this module uses everything that a frame's structure says to tell frames,
//! damaged frames and foreign values apart. docs/format.md says how often it takes a foreign value for a frame.

use units::limits::FRAME_HEADER_BYTES_MAX;
use units::{Codec, ZstdFrame};

use super::header::CHECKSUM_BYTES;
use super::{DictionaryId, Encoding, FrameError, FrameVersion, Header, Inspected};

/// The first byte of a frame without a dictionary. Neither magic occurs in UTF-8.
pub(super) const MAGIC: u8 = 0xFC;

/// The first byte of a frame with a dictionary.
pub(super) const MAGIC_DICTIONARY: u8 = 0xFD;

pub(super) const NUMBER: u8 = 2;

pub(super) const SHORT_HEADER_BYTES: usize = 8;

/// Returns the length of a header without a dictionary.
pub(super) const fn header_bytes(window_log2: u8, original_bytes: usize) -> usize {
    if is_short(window_log2, original_bytes) { SHORT_HEADER_BYTES } else { LONG_HEADER_BYTES }
}

/// Returns the bytes before the checksum of a header without a dictionary, and their number.
pub(super) fn prefix(header: &Header) -> ([u8; FRAME_HEADER_BYTES_MAX], usize) {
    let Header { encoding, window_log2, original_bytes, .. } = *header;
    let mut bytes = [0; FRAME_HEADER_BYTES_MAX];
    bytes[0] = MAGIC;
    if is_short(window_log2, original_bytes as usize) {
        bytes[1] = encoding.number() | window_log2.saturating_sub(WINDOW_LOG2_BASE) << WINDOW_SHIFT;
        bytes[2..4].copy_from_slice(&((original_bytes - 1) as u16).to_le_bytes());
        return (bytes, SHORT_HEADER_BYTES - CHECKSUM_BYTES);
    }
    (bytes[1], bytes[2]) = (LONG | encoding.number(), window_log2);
    bytes[4..8].copy_from_slice(&original_bytes.to_le_bytes());
    (bytes, LONG_HEADER_BYTES - CHECKSUM_BYTES)
}

/// Returns the bytes before the checksum of a header with a dictionary, and their number.
pub(super) fn dictionary_prefix(id: DictionaryId) -> ([u8; FRAME_HEADER_BYTES_MAX], usize) {
    let [i0, i1, i2, _] = id.get().to_le_bytes();
    let mut bytes = [0; FRAME_HEADER_BYTES_MAX];
    bytes[..4].copy_from_slice(&[MAGIC_DICTIONARY, i0, i1, i2]);
    (bytes, SHORT_HEADER_BYTES - CHECKSUM_BYTES)
}

/// Classifies a value that begins with [`MAGIC`]. If its kind is valid, or if it would be a frame after one flipped bit
/// of its kind, the value may be a damaged frame and is never foreign.
pub(super) fn inspect(value: &[u8], original_bytes_max: usize) -> Inspected {
    let Some(&kind) = value.get(1) else {
        return Inspected::Invalid(FrameError::Truncated { bytes: value.len() });
    };
    match parse(kind, value, original_bytes_max) {
        Ok(header) => Inspected::Frame { payload: header.header_bytes()..value.len(), header },
        Err(FrameError::Kind(_)) if !fits_with_one_flip(kind, value) => Inspected::Foreign,
        Err(reason) => Inspected::Invalid(reason),
    }
}

/// Classifies a value that begins with [`MAGIC_DICTIONARY`]. If the first byte of its zstd frame is one that a writer
/// writes, or if it would be one after one flipped bit and all else is valid, the value is never foreign.
pub(super) fn inspect_dictionary(value: &[u8], original_bytes_max: usize) -> Inspected {
    let Some((head, payload @ [descriptor, rest @ ..])) = value.split_first_chunk() else {
        return Inspected::Invalid(FrameError::Truncated { bytes: value.len() });
    };
    if !DESCRIPTORS.contains(descriptor) {
        let invalid = Inspected::Invalid(FrameError::Stream { payload_bytes: payload.len() });
        return if is_stream_with_one_flip(payload) { invalid } else { Inspected::Foreign };
    }
    let content_bytes = content_bytes(*descriptor, rest);
    match parse_dictionary(head, payload.len(), content_bytes, original_bytes_max) {
        Ok(header) => Inspected::Frame { payload: SHORT_HEADER_BYTES..value.len(), header },
        Err(reason) => Inspected::Invalid(reason),
    }
}

const LONG_HEADER_BYTES: usize = 12;

/// The bit of the kind that marks the long header. The four lowest bits are the encoding's number.
const LONG: u8 = 0x80;
const ENCODING: u8 = 0x0F;

/// The bits of the kind with the window, in a short header: 0, or its log2 less [`WINDOW_LOG2_BASE`].
const WINDOW_SHIFT: u32 = 4;
const WINDOW_LOG2_BASE: u8 = 8;
const WINDOW_LOG2_MAX: u8 = WINDOW_LOG2_BASE + 7;

/// The longest value with a short header (bytes). Its length less one has two bytes.
const SHORT_BYTES_MAX: usize = 1 << 16;

/// The first bytes of the zstd frames that follow a header with a dictionary: a single segment without checksum and
/// dictionary id, whose length has 1, 2 or 4 bytes.
pub(super) const DESCRIPTORS: [u8; 3] = [0x20, 0x60, 0xA0];

const fn is_short(window_log2: u8, original_bytes: usize) -> bool {
    matches!(original_bytes, 1..=SHORT_BYTES_MAX)
        && (window_log2 == 0 || WINDOW_LOG2_BASE < window_log2 && window_log2 <= WINDOW_LOG2_MAX)
}

/// Parses a header as if its kind were `kind`. Every other error means that the kind is valid.
fn parse(kind: u8, value: &[u8], original_bytes_max: usize) -> Result<Header, FrameError> {
    let encoding = Encoding::from_number(kind & ENCODING).ok_or(FrameError::Kind(kind))?;
    let window = (kind & !LONG) >> WINDOW_SHIFT;
    let is_long = kind & LONG != 0;
    if window != 0 && (is_long || !matches!(encoding, Encoding::Compressed(_))) {
        return Err(FrameError::Kind(kind));
    }
    let truncated = FrameError::Truncated { bytes: value.len() };
    let (window_log2, original_bytes, checksum, payload) = if is_long {
        let (head, payload) = value.split_first_chunk::<LONG_HEADER_BYTES>().ok_or(truncated)?;
        let [_, _, window_log2, reserved, l0, l1, l2, l3, checksum @ ..] = *head;
        super::check_window(window_log2)?;
        if reserved != 0 {
            return Err(FrameError::Reserved(reserved));
        }
        let original_bytes = u32::from_le_bytes([l0, l1, l2, l3]);
        if is_short(window_log2, original_bytes as usize) {
            return Err(FrameError::LongHeader { original_bytes });
        }
        (window_log2, original_bytes, checksum, payload)
    } else {
        let (head, payload) = value.split_first_chunk::<SHORT_HEADER_BYTES>().ok_or(truncated)?;
        let [_, _, l0, l1, checksum @ ..] = *head;
        let window_log2 = if window == 0 { 0 } else { WINDOW_LOG2_BASE + window };
        (window_log2, u32::from(u16::from_le_bytes([l0, l1])) + 1, checksum, payload)
    };
    if original_bytes as usize > original_bytes_max {
        return Err(FrameError::TooLong { original_bytes, original_bytes_max });
    }
    if !fits(encoding, original_bytes, payload) {
        let payload_bytes = payload.len();
        return Err(FrameError::Payload { encoding, payload_bytes, original_bytes });
    }
    Ok(Header {
        version: FrameVersion::V2,
        encoding,
        window_log2,
        original_bytes,
        payload_bytes: u32::try_from(payload.len()).unwrap_or(u32::MAX),
        checksum: u32::from_le_bytes(checksum),
        dictionary_id: None,
    })
}

/// Returns whether a writer can have written this payload for a value of `original_bytes` bytes.
fn fits(encoding: Encoding, original_bytes: u32, payload: &[u8]) -> bool {
    let is_shorter = (1..=original_bytes as usize).contains(&payload.len());
    match encoding {
        Encoding::Stored => payload.len() == original_bytes as usize,
        Encoding::SameFilled => payload.len() == 1 && original_bytes > 0,
        Encoding::Compressed(Codec::Zstd) => {
            let states = |bytes| bytes == u64::from(original_bytes);
            is_shorter
                && ZstdFrame::parse(payload)
                    .is_some_and(|frame| frame.content_bytes.is_none_or(states))
        }
        // Its frames have another layout.
        Encoding::Compressed(Codec::ZstdDictionary) => false,
        Encoding::Compressed(_) => is_shorter,
    }
}

/// Returns whether the value is a frame if one bit of its kind is another.
#[cold]
fn fits_with_one_flip(kind: u8, value: &[u8]) -> bool {
    flips(kind).any(|kind| parse(kind, value, usize::MAX).is_ok())
}

fn parse_dictionary(
    head: &[u8; SHORT_HEADER_BYTES],
    payload_bytes: usize,
    content_bytes: Option<u32>,
    original_bytes_max: usize,
) -> Result<Header, FrameError> {
    let original_bytes = content_bytes.ok_or(FrameError::Stream { payload_bytes })?;
    let [_, i0, i1, i2, checksum @ ..] = *head;
    let id = DictionaryId::new(u32::from_le_bytes([i0, i1, i2, 0]));
    let id = id.ok_or(FrameError::DictionaryZero)?;
    if original_bytes as usize > original_bytes_max {
        return Err(FrameError::TooLong { original_bytes, original_bytes_max });
    }
    Ok(Header {
        version: FrameVersion::V2,
        encoding: Encoding::Compressed(Codec::ZstdDictionary),
        window_log2: 0,
        original_bytes,
        payload_bytes: u32::try_from(payload_bytes).unwrap_or(u32::MAX),
        checksum: u32::from_le_bytes(checksum),
        dictionary_id: Some(id),
    })
}

/// Returns whether the payload is a whole zstd frame if one bit of its first byte is another.
#[cold]
fn is_stream_with_one_flip(payload: &[u8]) -> bool {
    let Some((&descriptor, rest)) = payload.split_first() else { return false };
    let mut near = flips(descriptor).filter(|descriptor| DESCRIPTORS.contains(descriptor));
    near.any(|descriptor| content_bytes(descriptor, rest).is_some())
}

/// Returns the length that a magicless zstd frame states for its content, if the frame is whole and not longer.
fn content_bytes(descriptor: u8, rest: &[u8]) -> Option<u32> {
    let bytes = ZstdFrame::parse_behind_descriptor(descriptor, rest)?.content_bytes?;
    u32::try_from(bytes).ok().filter(|bytes| rest.len() < *bytes as usize)
}

/// Returns the eight bytes that differ from `byte` in one bit.
fn flips(byte: u8) -> impl Iterator<Item = u8> {
    (0..u8::BITS).map(move |bit| byte ^ 1 << bit)
}
