//! Deflate with stored blocks only. It is the simplest writer that keeps within any window, for tests without foreign
//! code. It shrinks nothing and reads nothing.

use crate::codec::{Codec, Dialect, Engine, EngineError, Level};
use crate::job::DeviceError;

/// Makes an engine.
pub(super) fn engine() -> Box<dyn Engine> {
    Box::new(Stored)
}

struct Stored;

impl Engine for Stored {
    fn name(&self) -> &'static str {
        "stored"
    }

    fn codec(&self) -> Codec {
        Codec::Deflate
    }

    fn writes(&self, dialect: Dialect, _input_bytes: usize) -> bool {
        dialect.codec == Codec::Deflate
    }

    fn compress(
        &mut self,
        _dialect: Dialect,
        _level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        let blocks = input.len().div_ceil(BLOCK_BYTES_MAX).max(1);
        let stream = input.len() + blocks * HEADER_BYTES;
        let mut rest = output.get_mut(..stream).ok_or(EngineError::DoesNotFit)?;
        for index in 0..blocks {
            let start = index * BLOCK_BYTES_MAX;
            let block = &input[start..input.len().min(start + BLOCK_BYTES_MAX)];
            let length = block.len() as u16;
            let (header, after) = rest.split_at_mut(HEADER_BYTES);
            header[0] = u8::from(index + 1 == blocks);
            header[1..3].copy_from_slice(&length.to_le_bytes());
            header[3..5].copy_from_slice(&(!length).to_le_bytes());
            let (body, after) = after.split_at_mut(block.len());
            body.copy_from_slice(block);
            rest = after;
        }
        Ok(stream)
    }

    fn decompress(&mut self, _input: &[u8], _output: &mut [u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Fault("the stored writer reads nothing"))
    }
}

/// The largest stored block (bytes), because its length has 16 bits. The kind, the length and the complement
/// of the length precede the block.
const BLOCK_BYTES_MAX: usize = 65_535;
const HEADER_BYTES: usize = 5;
