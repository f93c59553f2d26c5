//! The structure of a zstd frame (RFC 8878): its header, and the chain of its blocks. The stored form of a value and
//! the check of a device's streams use it. This module reads the few bytes of each header, and decompresses nothing.

/// The bytes with which a zstd frame begins, unless it was written without them ("magicless").
pub const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// A frame whose header is valid and whose last block ends at the end of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZstdFrame<'a> {
    /// The length of the decompressed content (bytes), if the header states it.
    pub content_bytes: Option<u64>,
    /// The content that the first block holds as it is, if it does: all of it, or the byte that it repeats.
    pub first_literals: &'a [u8],
}

impl<'a> ZstdFrame<'a> {
    /// Parses a stream that consists of the magic number and one frame.
    pub fn parse(stream: &'a [u8]) -> Option<Self> {
        Self::parse_magicless(stream.strip_prefix(&MAGIC)?)
    }

    /// Parses a stream that consists of one frame without a magic number.
    pub fn parse_magicless(stream: &'a [u8]) -> Option<Self> {
        let (&descriptor, rest) = stream.split_first()?;
        Self::parse_behind_descriptor(descriptor, rest)
    }

    /// Parses the rest of a frame behind its magic number and its first byte, the descriptor.
    pub fn parse_behind_descriptor(descriptor: u8, rest: &'a [u8]) -> Option<Self> {
        if descriptor & RESERVED != 0 {
            return None;
        }
        let is_single = descriptor & SINGLE_SEGMENT != 0;
        let content_field_bytes = match descriptor >> 6 {
            0 => usize::from(is_single),
            log2 => 1 << log2,
        };
        let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let rest = rest.get(usize::from(!is_single) + dictionary_bytes..)?;
        let (field, blocks) = rest.split_at_checked(content_field_bytes)?;
        let checksum_bytes = usize::from(descriptor & CHECKSUM);
        let first_literals = walk(blocks, checksum_bytes)?;
        Some(Self { content_bytes: content_bytes(field), first_literals })
    }
}

/// The length of a block's header (bytes).
pub const BLOCK_HEADER_BYTES: usize = 3;

/// Returns the header of the last block of a frame, whose compressed content has this length. The result is that of
/// no block if the content is longer than a block can be.
pub const fn last_block_header(content_bytes: usize) -> [u8; BLOCK_HEADER_BYTES] {
    if content_bytes > BLOCK_BYTES_MAX {
        return [u8::MAX; BLOCK_HEADER_BYTES];
    }
    let [a, b, c, _] = ((content_bytes as u32) << 3 | COMPRESSED << 1 | 1).to_le_bytes();
    [a, b, c]
}

const SINGLE_SEGMENT: u8 = 0x20;
const RESERVED: u8 = 0x08;

/// The bit of the descriptor that announces a checksum. Its value is the length of the checksum.
const CHECKSUM: u8 = 0x04;

/// The longest content of a block (bytes).
const BLOCK_BYTES_MAX: usize = 128 << 10;

/// Returns the content's length from its field in the header, or none if there is no field.
fn content_bytes(field: &[u8]) -> Option<u64> {
    // A field of two bytes starts at 256, because shorter contents have a field of one byte.
    let base = if field.len() == 2 { 256 } else { 0 };
    let mut bytes = [0; size_of::<u64>()];
    bytes[..field.len()].copy_from_slice(field);
    (!field.is_empty()).then(|| u64::from_le_bytes(bytes) + base)
}

/// Follows the blocks. Returns the literals of the first block if the checksum after the last block ends the stream.
fn walk(mut blocks: &[u8], checksum_bytes: usize) -> Option<&[u8]> {
    let mut first_literals = None;
    loop {
        let (&[a, b, c], rest) = blocks.split_first_chunk()?;
        let header = u32::from_le_bytes([a, b, c, 0]);
        let (bytes, kind) = ((header >> 3) as usize, (header >> 1) & 3);
        let held_bytes = match kind {
            RAW | COMPRESSED => bytes,
            REPEATED => 1,
            _ => return None,
        };
        if bytes > BLOCK_BYTES_MAX {
            return None;
        }
        let (held, rest) = rest.split_at_checked(held_bytes)?;
        let is_literal = kind != COMPRESSED && bytes > 0;
        let first = *first_literals.get_or_insert(if is_literal { held } else { &[] });
        if header & 1 == 1 {
            return (rest.len() == checksum_bytes).then_some(first);
        }
        blocks = rest;
    }
}

/// The kinds of a block. The fourth is reserved.
const RAW: u32 = 0;
const REPEATED: u32 = 1;
const COMPRESSED: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a content of five bytes in one raw block (RFC 8878, section 3.1.1).
    const FRAME: &[u8] = b"\x28\xB5\x2F\xFD\x20\x05\x29\x00\x00hello";

    #[test]
    fn a_raw_block_shows_its_content() {
        let frame = ZstdFrame { content_bytes: Some(5), first_literals: b"hello" };
        assert_eq!(ZstdFrame::parse(FRAME), Some(frame));
        assert_eq!(ZstdFrame::parse_magicless(&FRAME[MAGIC.len()..]), Some(frame));
    }

    #[test]
    fn frames_that_end_early_or_late_are_refused() {
        for bytes in 0..FRAME.len() {
            assert_eq!(ZstdFrame::parse(&FRAME[..bytes]), None, "{bytes}");
        }
        assert_eq!(ZstdFrame::parse(&[FRAME, b"!"].concat()), None);
    }

    #[test]
    fn the_content_size_has_four_forms() {
        let block = [0x01, 0, 0];
        let parsed = |head: &[u8]| {
            ZstdFrame::parse_magicless(&[head, &block].concat()).map(|frame| frame.content_bytes)
        };
        assert_eq!(parsed(&[0x00, 0]), Some(None));
        assert_eq!(parsed(&[0x20, 255]), Some(Some(255)));
        assert_eq!(parsed(&[0x60, 1, 2]), Some(Some(0x201 + 256)));
        assert_eq!(parsed(&[0xA0, 1, 2, 3, 4]), Some(Some(0x0403_0201)));
        assert_eq!(parsed(&[0xE0, 1, 0, 0, 0, 0, 0, 0, 1]), Some(Some(1 | 1 << 56)));
    }

    #[test]
    fn the_header_of_a_last_block_ends_a_frame() {
        for bytes in [0, 1, 300, BLOCK_BYTES_MAX] {
            let stream = [&[0x20, 9][..], &last_block_header(bytes), &vec![7; bytes]].concat();
            let frame = ZstdFrame { content_bytes: Some(9), first_literals: &[] };
            assert_eq!(ZstdFrame::parse_magicless(&stream), Some(frame));
        }
        let too_long = [&[0x20, 9][..], &last_block_header(BLOCK_BYTES_MAX + 1)].concat();
        assert_eq!(ZstdFrame::parse_magicless(&too_long), None);
    }

    #[test]
    fn reserved_bits_and_kinds_are_refused() {
        assert_eq!(ZstdFrame::parse_magicless(&[0x28, 0, 0x01, 0, 0]), None);
        assert_eq!(ZstdFrame::parse_magicless(&[0x20, 0, 0x07, 0, 0]), None);
    }

    #[test]
    fn a_block_above_128_kib_is_refused() {
        let repeated = |bytes: u32| {
            let [a, b, c, _] = (bytes << 3 | REPEATED << 1 | 1).to_le_bytes();
            ZstdFrame::parse_magicless(&[0x20, 0, a, b, c, b'x']).is_some()
        };
        assert!(repeated(BLOCK_BYTES_MAX as u32));
        assert!(!repeated(BLOCK_BYTES_MAX as u32 + 1));
    }

    #[test]
    fn a_chain_of_blocks_is_followed_to_its_last() {
        let chain = [&[0x20, 3][..], &[0x08, 0, 0, b'a'], &[0x0A, 0, 0, b'b'], &[0x09, 0, 0, b'c']];
        let frame = ZstdFrame { content_bytes: Some(3), first_literals: b"a" };
        assert_eq!(ZstdFrame::parse_magicless(&chain.concat()), Some(frame));
    }
}
