//! Codecs as devices see them. A [`Dialect`] tells a reader whether it can read a stream. An [`Engine`] is a
//! CPU implementation that writes and reads streams. [`crate::engines`] chooses the engine of a stream.
//! Policy chooses the codec of a value.

use crate::job::DeviceError;

pub use units::Codec;

/// The format of a stream: a codec and a bound on the window. A reader may support only some dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// The format.
    pub codec: Codec,
    /// The window: no match reaches further back than `1 << window_log2` bytes. It is none if the writer
    /// promises only the codec's own bound (32 KiB for deflate).
    pub window_log2: Option<u8>,
}

impl Dialect {
    /// Returns the dialect of a codec without any bound except the codec's own.
    pub const fn new(codec: Codec) -> Self {
        Self { codec, window_log2: None }
    }

    /// Deflate with a window of 4 KiB, which Intel IAA can read.
    pub const IAA: Dialect = Dialect { codec: Codec::Deflate, window_log2: Some(12) };

    /// Returns whether a stream of at most `original_bytes` in this dialect is also a stream of dialect `other`.
    pub fn satisfies(self, other: Dialect, original_bytes: usize) -> bool {
        let within = |window: u8| {
            let all = 1usize.checked_shl(window.into()).is_none_or(|all| original_bytes <= all);
            all || self.window_log2.is_some_and(|log2| log2 <= window)
        };
        self.codec == other.codec && other.window_log2.is_none_or(within)
    }
}

/// The effort of a writer. Engines map it to their own scale. `docs/measurements/` has the ratio and the time of each
/// level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// The level with the least time.
    Fast,
    /// The level whose ratio is at least that of zlib level 1, in a fraction of its time.
    #[default]
    Default,
    /// The level that favours the ratio over the time, for batch work.
    High,
}

/// The reason why an engine returned no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// The compressed form does not fit the output space. This is not an error: the value is stored without
    /// compression.
    DoesNotFit,
    /// The engine failed in any other way.
    Device(DeviceError),
}

/// A CPU implementation of one codec. It owns and reuses its contexts, so an engine belongs to one thread.
pub trait Engine: Send {
    /// Returns the library's name in metrics and `rebate devices`: `isal`, `libdeflate`, `zstd`, `lz4_flex`.
    fn name(&self) -> &'static str;

    /// Returns the codec that the engine implements.
    fn codec(&self) -> Codec;

    /// Returns whether the engine can write `dialect` for an input of that size. If false, `compress` is never called
    /// with such arguments.
    fn writes(&self, dialect: Dialect, input_bytes: usize) -> bool;

    /// Compresses all of `input` to the start of `output` in the given dialect. Returns the size of the result.
    ///
    /// # Errors
    /// [`EngineError::DoesNotFit`] when `output` is too small. The content of `output` is then unspecified.
    fn compress(
        &mut self,
        dialect: Dialect,
        level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError>;

    /// Returns whether the engine decompresses. It may only do so if its library is safe for arbitrary bytes,
    /// because streams come from outside.
    fn reads(&self) -> bool {
        true
    }

    /// Decompresses one stream. The result must fill `output` exactly, because the frame states the original size.
    ///
    /// # Errors
    /// [`DeviceError::InvalidInput`] for a stream that is corrupt, truncated or too long. The engine never writes
    /// beyond `output`.
    fn decompress(&mut self, _input: &[u8], _output: &mut [u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Fault("the engine writes only"))
    }
}

/// Makes an engine for one thread.
pub type EngineFactory = fn() -> Box<dyn Engine>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_value_satisfies_any_window() {
        let plain = Dialect::new(Codec::Deflate);
        assert!(plain.satisfies(Dialect::IAA, 4_096));
        assert!(!plain.satisfies(Dialect::IAA, 4_097));
        assert!(Dialect::IAA.satisfies(plain, 1 << 20));
        assert!(!Dialect::new(Codec::Zstd).satisfies(Dialect::IAA, 10));
        let hostile = Dialect { codec: Codec::Deflate, window_log2: Some(u8::MAX) };
        assert!(plain.satisfies(hostile, usize::MAX));
    }
}
