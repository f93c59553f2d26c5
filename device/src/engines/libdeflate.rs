//! Deflate by libdeflate. It has the fastest inflate for most values, and gives a second opinion on every stream. It
//! cannot narrow its window, so it writes a dialect with a window only for inputs that fit the window as a whole.

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::codec::{Codec, Dialect, Engine, EngineError, Level};
use crate::job::DeviceError;

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

/// The dialect with deflate's own window. No stream reaches further back than 32 KiB.
const WRITTEN: Dialect = Dialect { codec: Codec::Deflate, window_log2: Some(15) };

/// The fast level. It already compresses every class better than zlib level 1, and level 0 only stores.
const LEVEL_FAST: i32 = 1;

/// The high level. Its ratio is that of zlib level 6 or better, in half the time.
const LEVEL_HIGH: i32 = 6;
