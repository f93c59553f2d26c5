//! A check of a stream that takes some tens of instructions and finds most garbage. It tells whether the stream's
//! beginning can belong to a stream of the given input. It decodes only the first symbols, so a stream that passes
//! may still be wrong.

use crate::codec::Codec;

/// Returns true if `stream` cannot be `original` in this codec. A result of false proves nothing, because only
/// decompression can tell.
pub fn contradicts(codec: Codec, original: &[u8], stream: &[u8]) -> bool {
    if original.is_empty() {
        return false;
    }
    !match codec {
        Codec::Deflate => may_be_deflate(original, stream),
        Codec::Zstd => may_be_zstd(original, stream),
        Codec::Lz4 => may_be_lz4(original, stream),
    }
}

/// Returns whether the two slices are equal up to the end of the shorter slice.
fn agree(original: &[u8], literals: &[u8]) -> bool {
    let bytes = original.len().min(literals.len()).min(LITERALS_MAX);
    original[..bytes] == literals[..bytes]
}

/// Checks the first block's header (RFC 1951): its type, the length and the bytes of a stored block, and the first
/// literals of fixed codes. For dynamic codes it checks that the code of the code lengths is complete.
fn may_be_deflate(original: &[u8], stream: &[u8]) -> bool {
    let mut bits = Bits { bytes: stream, at: 0 };
    let is_last = bits.take(1) == 1;
    match bits.take(2) {
        0 => match stream.get(1..).and_then(|rest| rest.split_first_chunk()) {
            Some(([a, b, c, d], literals)) => {
                let bytes = usize::from(u16::from_le_bytes([*a, *b]));
                let is_whole = (a ^ c, b ^ d) == (0xFF, 0xFF) && bytes <= literals.len();
                is_whole && (bytes > 0 || !is_last) && agree(original, &literals[..bytes])
            }
            None => false,
        },
        1 => begins_with_literals(original, &mut bits),
        2 => has_complete_lengths(stream),
        _ => false,
    }
}

/// Returns whether the first symbols in the fixed code are the input's first bytes, up to the first match.
fn begins_with_literals(original: &[u8], bits: &mut Bits<'_>) -> bool {
    for (index, byte) in original.iter().take(SYMBOLS_MAX).enumerate() {
        // Codes are packed from their most significant bit on.
        let mut code = bits.take_reversed(7);
        if code < 0b001_1000 {
            // This symbol is a match or the end of the block. No match can be the first symbol, because nothing
            // precedes it.
            return index > 0;
        }
        code = code << 1 | bits.take(1);
        let literal = match code {
            0x30..=0xBF => code - 0x30,
            // These are length symbols too.
            0xC0..=0xC7 => return index > 0,
            _ => (code << 1 | bits.take(1)) - 0x190 + 144,
        };
        if literal != u32::from(*byte) {
            return false;
        }
    }
    true
}

/// Returns whether the code of the code lengths uses all of its code space, and no count is out of range.
fn has_complete_lengths(stream: &[u8]) -> bool {
    let mut head = [0; 10];
    let bytes = stream.len().min(head.len());
    head[..bytes].copy_from_slice(&stream[..bytes]);
    let [a, b, rest @ ..] = head;
    // Three bits precede the counts. The counts have five, five and four bits, and each length has three. All of it
    // fits these ten bytes.
    let counts = u32::from_le_bytes([a, b, rest[0], 0]) >> 3;
    let (literals, distances, lengths) =
        (counts & 31, (counts >> 5) & 31, ((counts >> 10) & 15) + 4);
    let mut word = u64::from_le_bytes(rest) >> 1;
    let mut used = 0;
    for _ in 0..lengths {
        used += (0x80_u32 >> (word & 7)) & 0x7F;
        word >>= 3;
    }
    literals <= 29 && distances <= 29 && used == 0x80
}

/// Checks the magic number and the frame's header, and that the blocks end where the frame ends (RFC 8878).
fn may_be_zstd(original: &[u8], stream: &[u8]) -> bool {
    let Some(([0x28, 0xB5, 0x2F, 0xFD, descriptor], rest)) = stream.split_first_chunk() else {
        return false;
    };
    let is_single = descriptor & 0x20 != 0;
    let content_bytes = match descriptor >> 6 {
        0 => usize::from(is_single),
        log2 => 1 << log2,
    };
    let dictionary_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let header_bytes = usize::from(!is_single) + dictionary_bytes + content_bytes;
    let checksum_bytes = usize::from(descriptor & 4);
    let Some(mut blocks) = rest.get(header_bytes..) else { return false };
    let mut is_first = true;
    loop {
        let Some((&[a, b, c], rest)) = blocks.split_first_chunk() else { return false };
        let header = u32::from_le_bytes([a, b, c, 0]);
        let (bytes, kind) = ((header >> 3) as usize, (header >> 1) & 3);
        let held_bytes = if kind == 1 { 1 } else { bytes };
        let Some(held) = rest.get(..held_bytes).filter(|_| kind != 3) else { return false };
        if is_first && bytes > 0 && kind < 2 && !agree(original, held) {
            return false;
        }
        if header & 1 == 1 {
            return rest.len() == held_bytes + checksum_bytes;
        }
        (blocks, is_first) = (&rest[held_bytes..], false);
    }
}

/// Checks the first literals. A block begins with literals, because nothing precedes it that a match could repeat.
fn may_be_lz4(original: &[u8], stream: &[u8]) -> bool {
    let Some((token, rest)) = stream.split_first() else { return false };
    match token >> 4 {
        0 => false,
        15 => {
            // The length continues in bytes of 255, followed by a smaller byte.
            let more = rest.iter().position(|byte| *byte != 255);
            let literals = more.and_then(|last| {
                let bytes = 15 + 255 * last + usize::from(rest[last]);
                rest.get(last + 1..)?.get(..bytes)
            });
            literals.is_some_and(|literals| {
                literals.len() <= original.len() && agree(original, literals)
            })
        }
        bytes => {
            let literals =
                rest.get(..usize::from(bytes)).filter(|bytes| bytes.len() <= original.len());
            literals.is_some_and(|literals| agree(original, literals))
        }
    }
}

/// The bits of a deflate stream, from the least significant bit of each byte on. Zeros follow the end.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> u32 {
        let byte = |index: usize| u32::from(self.bytes.get(index).copied().unwrap_or(0));
        let index = self.at / 8;
        let word = byte(index) | byte(index + 1) << 8;
        let value = (word >> (self.at % 8)) & ((1 << count) - 1);
        self.at += count as usize;
        value
    }

    fn take_reversed(&mut self, count: u32) -> u32 {
        self.take(count).reverse_bits() >> (32 - count)
    }
}

/// The most bytes that are compared.
const LITERALS_MAX: usize = 64;

/// The most symbols that are decoded.
const SYMBOLS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Dialect, Level};
    use crate::contract::payload::Payload;
    use crate::engines::{BUILT_IN, EngineSet};
    use crate::{Input, Job, Outcome, Pool, Task};
    use units::{ByteCount, Prng};

    fn stream(codec: Codec, level: Level, original: &[u8]) -> Vec<u8> {
        let output = Pool::heap(ByteCount(0)).take(2 * original.len() + 1_024);
        let task = Task::Compress { dialect: Dialect::new(codec), level };
        let mut job = Job::new(task, Input::heap(original.to_vec().into()), output);
        match EngineSet::open(&BUILT_IN).run(&mut job) {
            Outcome::Done { output_bytes } => job.output[..output_bytes].to_vec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_true_stream_is_contradicted() {
        let mut draws = Prng::new(7);
        for round in 0..300 {
            let bytes_max = [300, 5_000, 200_000][round % 3];
            let class = Payload::ALL[draws.below(Payload::ALL.len() as u64) as usize];
            let original = class.bytes(draws.below(bytes_max) as usize, draws.bits());
            for codec in Codec::ALL {
                for level in [Level::Fast, Level::Default, Level::High] {
                    let stream = stream(codec, level, &original);
                    let told = (codec, level, class, original.len());
                    assert!(!contradicts(codec, &original, &stream), "{told:?}");
                }
            }
        }
    }

    #[test]
    fn short_inputs_of_every_byte_are_not_contradicted() {
        for codec in Codec::ALL {
            for byte in 0..=255_u8 {
                for original in [vec![byte], vec![byte; 9], vec![byte, !byte, byte, 7, byte]] {
                    let stream = stream(codec, Level::Default, &original);
                    assert!(!contradicts(codec, &original, &stream), "{codec:?} {original:?}");
                }
            }
        }
    }

    #[test]
    fn nearly_all_garbage_is_contradicted() {
        let original = Payload::Text.bytes(4_096, 1);
        let mut draws = Prng::new(1);
        for codec in Codec::ALL {
            let missed = (0..10_000).filter(|_| {
                let mut garbage = vec![0; 1_000];
                draws.fill(&mut garbage);
                !contradicts(codec, &original, &garbage)
            });
            let missed = missed.count();
            assert!(missed < 300, "{codec:?}: {missed} of 10,000 were missed");
        }
        for garbage in [vec![], vec![0; 500], vec![0xAB; 500], original.clone(), vec![0xFF; 500]] {
            for codec in Codec::ALL {
                assert!(
                    contradicts(codec, &original, &garbage),
                    "{codec:?} {:?}",
                    &garbage.first()
                );
            }
        }
    }
}
