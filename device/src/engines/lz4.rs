//! Lz4 blocks by lz4_flex in its checked, safe form. The library has one compression level, so every
//! [`Level`] writes the same block.

use lz4_flex::block::{
    CompressTable, DecompressError, compress_into_with_table, decompress_into,
    get_maximum_output_size,
};

use crate::codec::{Codec, Dialect, Engine, EngineError, Level};
use crate::job::DeviceError;
use crate::plausible::agree;

/// Makes an engine. Its tables are made on first use.
pub fn engine() -> Box<dyn Engine> {
    Box::new(Lz4::default())
}

/// The hash tables and the scratch space of one thread.
#[derive(Default)]
struct Lz4 {
    small: Option<CompressTable>,
    large: Option<CompressTable>,
    scratch: Vec<u8>,
}

impl Lz4 {
    /// Compresses into scratch space and copies the block to `output`. The library needs space for the worst
    /// case, but a caller that only uses a result smaller than the input provides less.
    fn compress_via_scratch(
        &mut self,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let bound = get_maximum_output_size(input.len());
        if scratch.len() < bound {
            scratch.resize(bound, 0);
        }
        let written = self.compress_bounded(input, &mut scratch).and_then(|bytes| {
            let space = output.get_mut(..bytes).ok_or(EngineError::DoesNotFit)?;
            space.copy_from_slice(&scratch[..bytes]);
            Ok(bytes)
        });
        if scratch.len() <= SCRATCH_BYTES_KEPT {
            self.scratch = scratch;
        }
        written
    }

    fn compress_bounded(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, EngineError> {
        let table = if input.len() < SMALL_BYTES_END {
            self.small.get_or_insert_with(CompressTable::small)
        } else {
            self.large.get_or_insert_with(CompressTable::large)
        };
        compress_into_with_table(input, output, table).map_err(|_| EngineError::DoesNotFit)
    }
}

impl Engine for Lz4 {
    fn name(&self) -> &'static str {
        "lz4_flex"
    }

    fn codec(&self) -> Codec {
        Codec::Lz4
    }

    fn writes(&self, dialect: Dialect, input_bytes: usize) -> bool {
        WRITTEN.satisfies(dialect, input_bytes)
    }

    fn compress(
        &mut self,
        _dialect: Dialect,
        _level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        if input.len() > INPUT_BYTES_MAX {
            return Err(EngineError::Device(DeviceError::InvalidInput("lz4 input over 2 GiB")));
        }
        if output.len() >= get_maximum_output_size(input.len()) {
            self.compress_bounded(input, output)
        } else {
            self.compress_via_scratch(input, output)
        }
    }

    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        match decompress_into(input, output) {
            Ok(bytes) if bytes == output.len() => Ok(()),
            Ok(_) => Err(DeviceError::InvalidInput("lz4 block is shorter than stated")),
            Err(DecompressError::OutputTooSmall { .. }) => {
                Err(DeviceError::InvalidInput("lz4 block is longer than stated"))
            }
            Err(_) => Err(DeviceError::InvalidInput("not an lz4 block")),
        }
    }
}

/// The dialect of every block. Match offsets have 16 bits.
const WRITTEN: Dialect = Dialect { codec: Codec::Lz4, window_log2: Some(16) };

/// The input size from which the library needs its table with 32-bit entries (bytes).
const SMALL_BYTES_END: usize = u16::MAX as usize;

/// The largest input (bytes). Table positions have 32 bits. The limit is half of their range, so that every sum of
/// two positions is within the range.
const INPUT_BYTES_MAX: usize = 1 << 31;

/// The most scratch space that is stored for reuse (bytes). It is enough for a 1 MiB item. The scratch space of a
/// larger block returns to the allocator.
const SCRATCH_BYTES_KEPT: usize = get_maximum_output_size((1 << 20) + (64 << 10));

/// Checks the first literals. A block begins with literals, because nothing precedes it that a match could repeat.
pub(crate) fn may_be(original: &[u8], stream: &[u8]) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::payload::Payload;

    #[test]
    fn a_result_that_just_fits_is_written() {
        let plain = Dialect::new(Codec::Lz4);
        for bytes in [300, 5_000, 65_534, 65_535, 1 << 20] {
            let original = Payload::Text.bytes(bytes, 1);
            let mut ample = vec![0; get_maximum_output_size(bytes)];
            let written = engine().compress(plain, Level::Fast, &original, &mut ample);
            let written = written.expect("ample room");
            let mut exact = vec![0; written];
            let fits = engine().compress(plain, Level::Fast, &original, &mut exact);
            assert_eq!(fits, Ok(written));
            assert_eq!(exact, ample[..written]);
            let short = engine().compress(plain, Level::Fast, &original, &mut exact[..written - 1]);
            assert_eq!(short, Err(EngineError::DoesNotFit));
        }
    }

    #[test]
    fn scratch_of_an_oversized_block_is_not_kept() {
        let mut lz4 = Lz4::default();
        let original = vec![0; 4 << 20];
        let mut output = vec![0; 100_000];
        lz4.compress(Dialect::new(Codec::Lz4), Level::Fast, &original, &mut output).expect("zeros");
        assert_eq!(lz4.scratch.capacity(), 0);
        lz4.compress(Dialect::new(Codec::Lz4), Level::Fast, &original[..9_999], &mut output[..99])
            .expect("zeros");
        assert!(lz4.scratch.capacity() > 0);
    }
}
