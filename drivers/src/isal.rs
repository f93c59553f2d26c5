//! Deflate by ISA-L, the library that QPL's software path uses. It is the fastest writer at the ratio of zlib
//! level 1. It can limit its matches to a narrow window, so that Intel IAA can read its streams. The engine makes
//! one-shot calls only. It writes and never reads: the library's inflate before 2.32.1 is unsafe for streams from
//! outside, and the crate has 2.31 (docs/decisions/0026-who-inflates.md).

use std::ptr;

use device::codec::{Codec, Dialect, Engine, EngineError, Level};
use device::job::DeviceError;
use isal_sys::igzip_lib as sys;

/// Makes an engine. Its contexts are made on first use.
pub fn engine() -> Box<dyn Engine> {
    Box::new(Isal::default())
}

/// The library's contexts for one thread.
#[derive(Default)]
struct Isal {
    writer: Option<Writer>,
}

impl Engine for Isal {
    fn name(&self) -> &'static str {
        "isal"
    }

    fn codec(&self) -> Codec {
        Codec::Deflate
    }

    fn writes(&self, dialect: Dialect, input_bytes: usize) -> bool {
        WRITTEN.satisfies(dialect, input_bytes) && u32::try_from(input_bytes).is_ok()
    }

    fn compress(
        &mut self,
        dialect: Dialect,
        level: Level,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        let writer = self.writer.get_or_insert_with(Writer::new);
        writer.compress(window_bits(dialect), level_of(level), input, output)
    }

    fn reads(&self) -> bool {
        false
    }
}

/// A compression context and the working buffer of the levels above 0.
struct Writer {
    stream: Box<sys::isal_zstream>,
    level_buffer: Box<[LevelUnit]>,
}

// SAFETY: the context owns no thread-bound state, and its pointers are set at the start of each
// call and cleared at its end, so that none outlives the borrow it came from or is seen by another
// thread.
unsafe impl Send for Writer {}

impl Writer {
    fn new() -> Self {
        let units = LEVEL_BUFFER_BYTES.div_ceil(size_of::<LevelUnit>());
        Self {
            stream: zeroed_stream(),
            level_buffer: vec![LevelUnit([0; 64]); units].into_boxed_slice(),
        }
    }

    fn compress(
        &mut self,
        window_bits: u16,
        level: u32,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<usize, EngineError> {
        let stream = &mut *self.stream;
        // SAFETY: `stream` is an exclusive, initialised context; the call only sets its fields.
        unsafe { sys::isal_deflate_stateless_init(stream) };
        stream.avail_in = u32::try_from(input.len()).map_err(|_| EngineError::Device(TOO_LARGE))?;
        stream.avail_out = length_capped(output);
        // The library only reads through this pointer. The header declares it as mutable.
        stream.next_in = input.as_ptr().cast_mut();
        stream.next_out = output.as_mut_ptr();
        stream.level = level;
        stream.level_buf = self.level_buffer.as_mut_ptr().cast();
        stream.level_buf_size = LEVEL_BUFFER_BYTES as u32;
        stream.hist_bits = window_bits;
        stream.end_of_stream = 1;
        let given_out = stream.avail_out;
        // SAFETY: `next_in`/`avail_in` and `next_out`/`avail_out` describe the two slices, or a
        // prefix of the output; `level_buf` is exclusive, of the stated size, at least the level's
        // requirement, and aligned for any of its structures. The library stays within the stated
        // lengths and keeps no pointer after a stateless call.
        let status = unsafe { sys::isal_deflate_stateless(stream) };
        let written = given_out.checked_sub(stream.avail_out);
        let all_read = stream.avail_in == 0;
        stream.next_in = ptr::null_mut();
        stream.next_out = ptr::null_mut();
        stream.level_buf = ptr::null_mut();
        match (status, written) {
            (OK, Some(written)) if all_read => Ok(written as usize),
            (sys::STATELESS_OVERFLOW, _) => Err(EngineError::DoesNotFit),
            _ => Err(EngineError::Device(DeviceError::Fault("isal did not compress"))),
        }
    }
}

/// A piece of the level buffer, aligned for the widest vector loads.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct LevelUnit([u8; 64]);

/// Allocates the context on the heap directly, because it is too large for a worker's stack.
fn zeroed_stream() -> Box<sys::isal_zstream> {
    let mut stream = Box::<sys::isal_zstream>::new_uninit();
    // SAFETY: the pointer is to one exclusive allocation of the type; every field is an integer, an
    // array of integers or a raw pointer, for all of which zero bytes are a value.
    unsafe {
        stream.as_mut_ptr().write_bytes(0, 1);
        stream.assume_init()
    }
}

/// Returns the length as the library's 32-bit number. The library does not use space beyond 4 GiB.
fn length_capped(output: &[u8]) -> u32 {
    u32::try_from(output.len()).unwrap_or(u32::MAX)
}

/// Returns the window that the library must keep to (log2 bytes). A dialect with a window below the library's
/// minimum is used only with an input that fits the window as a whole.
fn window_bits(dialect: Dialect) -> u16 {
    let asked = dialect.window_log2.unwrap_or(WINDOW_LOG2_MAX);
    u16::from(asked.clamp(WINDOW_LOG2_MIN, WINDOW_LOG2_MAX))
}

const fn level_of(level: Level) -> u32 {
    match level {
        Level::Fast => 0,
        Level::Default => 1,
        Level::High => 3,
    }
}

const WRITTEN: Dialect = Dialect { codec: Codec::Deflate, window_log2: Some(WINDOW_LOG2_MIN) };

/// The narrowest window in use (log2 bytes). The library accepts 1 to 15, but below 9 its hash tables find too few
/// matches.
const WINDOW_LOG2_MIN: u8 = 9;

/// Deflate's own window (log2 bytes).
const WINDOW_LOG2_MAX: u8 = sys::ISAL_DEF_MAX_HIST_BITS as u8;

/// The size of the level buffer that the library recommends for its most demanding level (bytes). It is
/// enough for all levels and allows deflate blocks of 64 Ki tokens and more.
const LEVEL_BUFFER_BYTES: usize = sys::ISAL_DEF_LVL3_DEFAULT as usize;

/// The library's status for success.
const OK: i32 = sys::COMP_OK as i32;

const TOO_LARGE: DeviceError = DeviceError::InvalidInput("over 4 GiB; isal counts in 32 bits");

const _: () = assert!(LEVEL_BUFFER_BYTES >= sys::ISAL_DEF_LVL1_DEFAULT as usize);
const _: () = assert!(LEVEL_BUFFER_BYTES >= sys::ISAL_DEF_LVL2_DEFAULT as usize);

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::sync::Arc;

    use device::contract::inflate::inflate;
    use device::contract::payload::Payload;
    use device::engines::{libdeflate, lz4, zstd};
    use device::plausible::contradicts;
    use device::{EngineFactory, Software, Worker, device_contract};
    use proptest::prelude::*;

    use super::*;

    const FACTORIES: [EngineFactory; 4] = [engine, libdeflate::engine, zstd::engine, lz4::engine];

    device_contract!(software_with_isal, Arc::new(Software::new(&FACTORIES)));
    device_contract!(worker_with_isal, Arc::new(worker()));

    fn worker() -> Worker {
        let count = |count| NonZeroUsize::new(count).expect("not zero");
        Worker::start(count(2), count(16), &FACTORIES).expect("two threads")
    }

    fn compressed(dialect: Dialect, level: Level, original: &[u8]) -> Vec<u8> {
        let mut stream = vec![0; original.len() + original.len() / 8 + 1_024];
        let written = engine().compress(dialect, level, original, &mut stream);
        stream.truncate(written.expect("ample room"));
        stream
    }

    #[test]
    fn keeps_to_every_window_at_every_level() {
        for class in [Payload::Text, Payload::FarRepeat, Payload::Numbers, Payload::Zeros] {
            for bytes in [64 << 10, 1 << 20] {
                let original = class.bytes(bytes, 1);
                for window in 9..=15 {
                    let dialect = Dialect { codec: Codec::Deflate, window_log2: Some(window) };
                    for level in [Level::Fast, Level::Default, Level::High] {
                        let stream = compressed(dialect, level, &original);
                        let inflated = inflate(&stream, bytes).expect("a valid stream");
                        assert!(inflated.bytes == original);
                        assert!(
                            inflated.reach_bytes <= 1 << window,
                            "{class:?} {window} {level:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn an_unbounded_window_reaches_beyond_4_kib() {
        let original = Payload::FarRepeat.bytes(64 << 10, 1);
        let stream = compressed(Dialect::new(Codec::Deflate), Level::Default, &original);
        let reach = inflate(&stream, original.len()).expect("a valid stream").reach_bytes;
        assert!(reach > 4_096, "the test of windows above would pass on anything: {reach}");
    }

    #[test]
    fn it_does_not_read() {
        assert!(!engine().reads());
        let stream = compressed(Dialect::IAA, Level::Default, &[]);
        assert!(matches!(engine().decompress(&stream, &mut []), Err(DeviceError::Fault(_))));
        assert_eq!(libdeflate::engine().decompress(&stream, &mut []), Ok(()));
    }

    #[test]
    fn no_stream_of_its_own_is_taken_for_garbage() {
        for class in Payload::ALL {
            for bytes in [1, 20, 300, 4_096, 100_000] {
                let original = class.bytes(bytes, bytes as u64);
                for level in [Level::Fast, Level::Default, Level::High] {
                    for dialect in [Dialect::IAA, Dialect::new(Codec::Deflate)] {
                        let stream = compressed(dialect, level, &original);
                        let case = (class, bytes, level);
                        assert!(!contradicts(Codec::Deflate, &original, &stream), "{case:?}");
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn compression_never_writes_outside(
            seed in any::<u64>(),
            bytes in 0usize..40_000,
            class in 0..Payload::ALL.len(),
            capacity in 0usize..45_000,
            window in prop::option::of(9u8..=15),
            level in prop::sample::select(vec![Level::Fast, Level::Default, Level::High]),
        ) {
            let original = Payload::ALL[class].bytes(bytes, seed);
            let mut space = vec![0xC3; capacity + 512];
            let dialect = Dialect { codec: Codec::Deflate, window_log2: window };
            let written = engine().compress(dialect, level, &original, &mut space[..capacity]);
            prop_assert!(space[capacity..].iter().all(|byte| *byte == 0xC3));
            if let Ok(written) = written {
                let mut read = vec![0; bytes];
                let result = libdeflate::engine().decompress(&space[..written], &mut read);
                prop_assert_eq!((result, read), (Ok(()), original));
            }
        }
    }
}
