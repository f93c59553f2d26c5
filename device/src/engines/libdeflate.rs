//! Deflate by libdeflate, the fastest reader of most values. It cannot narrow its window, so it writes a
//! dialect with a window only for inputs that fit the window as a whole.

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::codec::{Codec, Dialect, Engine, EngineError, Level};
use crate::job::DeviceError;
use crate::plausible::agree;

/// Makes an engine. Its contexts are made on first use.
pub fn engine() -> Box<dyn Engine> {
    Box::new(Libdeflate::default())
}

/// The library's contexts for one thread.
#[derive(Default)]
struct Libdeflate {
    fast: Option<Compressor>,
    high: Option<Compressor>,
    decompressor: Option<Decompressor>,
}

impl Engine for Libdeflate {
    fn name(&self) -> &'static str {
        "libdeflate"
    }

    fn codec(&self) -> Codec {
        Codec::Deflate
    }

    fn writes(&self, dialect: Dialect, input_bytes: usize) -> bool {
        WRITTEN.satisfies(dialect, input_bytes)
    }

    fn compress(
        &mut self,
        _dialect: Dialect,
        level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        let (compressor, level) = match level {
            Level::Fast | Level::Default => (&mut self.fast, LEVEL_FAST),
            Level::High => (&mut self.high, LEVEL_HIGH),
        };
        compressor
            .get_or_insert_with(|| Compressor::new(clamped(level)))
            .deflate_compress(input, output)
            .map_err(|_| EngineError::DoesNotFit)
    }

    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        let decompressor = self.decompressor.get_or_insert_with(Decompressor::new);
        match decompressor.deflate_decompress(input, output) {
            Ok(bytes) if bytes == output.len() => Ok(()),
            Ok(_) => Err(DeviceError::InvalidInput("deflate stream is shorter than stated")),
            Err(DecompressionError::InsufficientSpace) => {
                Err(DeviceError::InvalidInput("deflate stream is longer than stated"))
            }
            Err(_) => Err(DeviceError::InvalidInput("not a deflate stream")),
        }
    }
}

fn clamped(level: i32) -> CompressionLvl {
    CompressionLvl::new(level).unwrap_or_default()
}

/// The dialect of every stream that the library writes: deflate with its own window of 32 KiB.
const WRITTEN: Dialect = Dialect { codec: Codec::Deflate, window_log2: Some(15) };

/// The fast level. Its ratio exceeds that of zlib level 1 for every class of data. Level 0 only stores.
const LEVEL_FAST: i32 = 1;

/// The high level. Its ratio is that of zlib level 6 or better, in half the time.
const LEVEL_HIGH: i32 = 6;

/// Checks the first block's header (RFC 1951): its type, the length and the bytes of a stored block, and the first
/// literals of fixed codes. For dynamic codes it checks that the code of the code lengths is complete.
pub(crate) fn may_be(original: &[u8], stream: &[u8]) -> bool {
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

/// The most symbols that are decoded.
const SYMBOLS_MAX: usize = 8;
