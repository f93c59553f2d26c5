//! Zstandard by the reference library. The frames have neither a content size nor a checksum, because the frame of
//! `store` has both.

use units::ZstdFrame;
use zstd::zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd::zstd_safe::{CCtx, CParameter, DCtx, ResetDirective};

use crate::codec::{Codec, Dialect, Engine, EngineError, Level};
use crate::job::DeviceError;
use crate::plausible::agree;

/// Makes an engine. Its contexts are made on first use.
pub fn engine() -> Box<dyn Engine> {
    Box::new(Zstd::default())
}

/// The library's contexts for one thread.
#[derive(Default)]
struct Zstd {
    writer: Option<Writer>,
    reader: Option<DCtx<'static>>,
}

impl Engine for Zstd {
    fn name(&self) -> &'static str {
        "zstd"
    }

    fn codec(&self) -> Codec {
        Codec::Zstd
    }

    fn writes(&self, dialect: Dialect, input_bytes: usize) -> bool {
        WRITTEN.satisfies(dialect, input_bytes)
    }

    fn compress(
        &mut self,
        dialect: Dialect,
        level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(Writer::open().map_err(EngineError::Device)?),
        };
        writer.compress(dialect, level, input, output)
    }

    fn decompress(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), DeviceError> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => self.reader.insert(DCtx::try_create().ok_or(NO_MEMORY)?),
        };
        match reader.decompress(output, input) {
            Ok(bytes) if bytes == output.len() => Ok(()),
            Ok(_) => Err(DeviceError::InvalidInput("zstd frame is shorter than stated")),
            Err(code) => Err(read_error(code)),
        }
    }
}

/// A compression context and its current parameters. Consecutive jobs with equal parameters need not set them again.
struct Writer {
    context: CCtx<'static>,
    held: Option<(i32, u32)>,
}

impl Writer {
    fn open() -> Result<Self, DeviceError> {
        let mut context = CCtx::try_create().ok_or(NO_MEMORY)?;
        for parameter in [CParameter::ContentSizeFlag(false), CParameter::ChecksumFlag(false)] {
            context.set_parameter(parameter).map_err(|_| REFUSED_PARAMETER)?;
        }
        Ok(Self { context, held: None })
    }

    fn compress(
        &mut self,
        dialect: Dialect,
        level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        self.set(level_of(level), window_of(dialect)).map_err(EngineError::Device)?;
        let written = self.context.compress2(output, input);
        written.map_err(|code| {
            // A failed call leaves the session inside its frame.
            if self.context.reset(ResetDirective::SessionOnly).is_err() {
                self.held = None;
            }
            write_error(code)
        })
    }

    fn set(&mut self, level: i32, window_log2: u32) -> Result<(), DeviceError> {
        if self.held == Some((level, window_log2)) {
            return Ok(());
        }
        self.held = None;
        for parameter in [CParameter::CompressionLevel(level), CParameter::WindowLog(window_log2)] {
            self.context.set_parameter(parameter).map_err(|_| REFUSED_PARAMETER)?;
        }
        self.held = Some((level, window_log2));
        Ok(())
    }
}

const fn level_of(level: Level) -> i32 {
    match level {
        Level::Fast => LEVEL_FAST,
        Level::Default => LEVEL_DEFAULT,
        Level::High => LEVEL_HIGH,
    }
}

/// Returns the library's window parameter. With zero the library chooses a window by level and input size.
fn window_of(dialect: Dialect) -> u32 {
    match dialect.window_log2 {
        Some(window) if window < WINDOW_LOG2_CHOSEN_MAX => u32::from(window.max(WINDOW_LOG2_MIN)),
        _ => 0,
    }
}

/// Returns whether a code is this error. The library returns errors as negated codes in a `usize`.
fn is(code: usize, error: ZSTD_ErrorCode) -> bool {
    code.wrapping_neg() == error as usize
}

/// Returns the meaning of an error of the decompressor.
pub(super) fn read_error(code: usize) -> DeviceError {
    if is(code, ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) {
        DeviceError::InvalidInput("zstd frame is longer than stated")
    } else if is(code, ZSTD_ErrorCode::ZSTD_error_memory_allocation) {
        NO_MEMORY
    } else {
        DeviceError::InvalidInput("not a zstd frame")
    }
}

/// Returns the meaning of an error of the compressor.
pub(super) fn write_error(code: usize) -> EngineError {
    if is(code, ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall) {
        EngineError::DoesNotFit
    } else if is(code, ZSTD_ErrorCode::ZSTD_error_memory_allocation) {
        EngineError::Device(NO_MEMORY)
    } else {
        EngineError::Device(DeviceError::Fault("zstd did not compress"))
    }
}

const WRITTEN: Dialect = Dialect { codec: Codec::Zstd, window_log2: Some(WINDOW_LOG2_MIN) };

/// The narrowest window that a zstd frame can state (log2).
const WINDOW_LOG2_MIN: u8 = 10;

/// A window that is wider than any window that the levels in use choose by themselves (log2).
const WINDOW_LOG2_CHOSEN_MAX: u8 = 27;

/// The fast level. Negative levels take a quarter less time, at a ratio that is a fifth lower. lz4 is the
/// better choice for such a ratio.
const LEVEL_FAST: i32 = 1;

/// The default level. It is the lowest level with the ratio of zlib level 1 on text of 4 KiB or more.
const LEVEL_DEFAULT: i32 = 3;

/// The high level. Level 9 takes up to three times as long and improves the ratio by 0 to 10 %.
const LEVEL_HIGH: i32 = 6;

pub(super) const NO_MEMORY: DeviceError =
    DeviceError::Fault("zstd found no memory for its context");
pub(super) const REFUSED_PARAMETER: DeviceError = DeviceError::Fault("zstd refused a parameter");

/// Checks the structure of the frame, and the content of its first block if that holds it as it is.
pub(crate) fn may_be(original: &[u8], stream: &[u8]) -> bool {
    ZstdFrame::parse(stream).is_some_and(|frame| agree(original, frame.first_literals))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the descriptor byte and the window byte of a frame header. The descriptor follows the magic number,
    /// and the window byte follows the descriptor.
    fn header(dialect: Dialect, level: Level) -> (u8, u8) {
        let original = crate::contract::payload::Payload::Text.bytes(300_000, 1);
        let mut stream = vec![0; original.len()];
        engine().compress(dialect, level, &original, &mut stream).expect("text shrinks");
        (stream[4], stream[5])
    }

    #[test]
    fn frames_state_neither_size_nor_checksum_nor_dictionary() {
        for level in [Level::Fast, Level::Default, Level::High] {
            assert_eq!(header(Dialect::new(Codec::Zstd), level).0, 0, "{level:?}");
        }
    }

    #[test]
    fn a_window_asked_for_is_the_window_stated() {
        for window in 10..=16 {
            let dialect = Dialect { codec: Codec::Zstd, window_log2: Some(window) };
            let exponent = header(dialect, Level::Default).1 >> 3;
            assert_eq!(10 + exponent, window);
        }
    }

    #[test]
    fn writes_on_after_a_frame_that_did_not_fit() {
        let mut engine = engine();
        let original = crate::contract::payload::Payload::Text.bytes(50_000, 1);
        let mut stream = vec![0; 50_000];
        for window_log2 in [None, Some(12), None] {
            let dialect = Dialect { codec: Codec::Zstd, window_log2 };
            let refused = engine.compress(dialect, Level::Fast, &original, &mut stream[..90]);
            assert_eq!(refused, Err(EngineError::DoesNotFit));
            let written = engine.compress(dialect, Level::High, &original, &mut stream);
            let mut read = vec![0; original.len()];
            let stream = &stream[..written.expect("it fits")];
            assert_eq!(engine.decompress(stream, &mut read), Ok(()));
            assert_eq!(read, original);
        }
    }
}
