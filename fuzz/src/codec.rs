//! Tests every engine against every other. Arbitrary bytes are read as a stream: no engine may write outside of the
//! stated size, and the engines that accept a stream must agree on its bytes. Arbitrary values are written by one
//! engine, at any level, window and output size: each reader of the codec must return the value, and the stream must
//! keep to the requested window. Engines live for a whole input, so the target also finds state that one job leaves for
//! the next.

use arbitrary::Arbitrary;
use device::codec::{Codec, Dialect, Engine, EngineError, Level};
use device::contract::inflate::inflate;
use device::engines::BUILT_IN;
use device::job::DeviceError;
use crate::Value;

#[derive(Arbitrary, Debug)]
pub(super) enum Act<'a> {
    /// Reads a stream that no engine wrote.
    Read { codec: u8, original_bytes: u32, stream: &'a [u8] },
    /// Writes a value and reads it, then reads it again with damage.
    Write {
        writer: u8,
        window: u8,
        level: u8,
        capacity: Option<u32>,
        value: Value<'a>,
        damage: Damage,
    },
}

#[derive(Arbitrary, Debug)]
pub(super) struct Damage {
    flips: Vec<(u32, u8)>,
    truncated_by: u16,
    appended: Option<u8>,
    stated_off_by: i16,
}

pub(super) fn fuzz(acts: Vec<Act<'_>>) {
    let mut engines = Engines::open();
    for act in acts.into_iter().take(ACTS_MAX) {
        match act {
            Act::Read { codec, original_bytes, stream } => {
                let codec = Codec::ALL[usize::from(codec) % Codec::ALL.len()];
                engines.read(codec, stream, original_bytes as usize % ORIGINAL_BYTES_END);
            }
            Act::Write { writer, window, level, capacity, value, damage } => {
                let value = value.bytes(ORIGINAL_BYTES_END);
                let level = [Level::Fast, Level::Default, Level::High][usize::from(level) % 3];
                let stream = engines.write(writer, window, level, &value, capacity);
                let Some((codec, stream)) = stream else { continue };
                let read = engines.read(codec, &stream, value.len());
                assert_eq!(read.accepted, read.readers, "a reader refused a sound stream");
                assert!(read.bytes.is_some_and(|bytes| bytes == value), "other bytes came back");
                engines.read_damaged(codec, stream, value.len(), &damage);
            }
        }
    }
}

struct Engines(Vec<Box<dyn Engine>>);

/// The results of a codec's readers for a stream.
struct Read {
    readers: usize,
    accepted: usize,
    bytes: Option<Vec<u8>>,
}

impl Engines {
    fn open() -> Self {
        let factories = BUILT_IN.into_iter().chain([drivers::isal::engine as _]);
        Self(factories.map(|make| make()).collect())
    }

    /// Reads the stream with every engine of the codec. The engines that accept it must agree.
    fn read(&mut self, codec: Codec, stream: &[u8], original_bytes: usize) -> Read {
        // The copy has exactly the stream's size, so that an address checker reports a read beyond its end.
        let stream: Box<[u8]> = stream.into();
        let mut read = Read { readers: 0, accepted: 0, bytes: None };
        for engine in self.0.iter_mut().filter(|engine| engine.codec() == codec && engine.reads()) {
            read.readers += 1;
            let mut space = Guarded::new(original_bytes, CANARY);
            let result = engine.decompress(&stream, space.inner());
            let bytes = space.into_checked();
            match result {
                Err(DeviceError::InvalidInput(_)) => continue,
                Err(other) => panic!("{}: {other:?}", engine.name()),
                Ok(()) => read.accepted += 1,
            }
            let mut other_space = Guarded::new(original_bytes, !CANARY);
            assert_eq!(engine.decompress(&stream, other_space.inner()), Ok(()));
            let whole = other_space.into_checked() == bytes;
            assert!(whole, "{} left bytes unwritten and said nothing", engine.name());
            match &read.bytes {
                Some(other) => assert!(*other == bytes, "{} reads other bytes", engine.name()),
                None => read.bytes = Some(bytes),
            }
        }
        if codec == Codec::Deflate {
            let reference = inflate(&stream, original_bytes).map(|inflated| inflated.bytes);
            let reference = reference.filter(|bytes| bytes.len() == original_bytes);
            if let (Some(bytes), Some(reference)) = (&read.bytes, reference) {
                assert!(*bytes == reference, "the engines agree on what is wrong");
            }
        }
        read
    }

    /// Writes `value`. Returns none if the engine does not write the dialect or the stream does not fit.
    fn write(
        &mut self,
        writer: u8,
        window: u8,
        level: Level,
        value: &[u8],
        capacity: Option<u32>,
    ) -> Option<(Codec, Vec<u8>)> {
        let index = usize::from(writer) % self.0.len();
        let engine = &mut self.0[index];
        let codec = engine.codec();
        let windows = [None, Some(12), Some(9), Some(10), Some(15), Some(17), Some(window)];
        let window_log2 = windows[usize::from(window) % windows.len()];
        let dialect = Dialect { codec, window_log2 };
        if !engine.writes(dialect, value.len()) {
            assert!(window_log2.is_some(), "{} writes its codec", engine.name());
            return None;
        }
        let ample = value.len() + value.len() / 8 + AMPLE_BYTES;
        let capacity = capacity.map_or(ample, |capacity| capacity as usize % (ample + 1));
        let mut space = Guarded::new(capacity, CANARY);
        let result = engine.compress(dialect, level, value, space.inner());
        let mut stream = space.into_checked();
        match result {
            Ok(bytes) => stream.truncate(bytes),
            Err(EngineError::DoesNotFit) => {
                assert!(capacity < ample, "{} needs {ample} bytes", engine.name());
                return None;
            }
            Err(other) => panic!("{} {dialect:?}: {other:?}", engine.name()),
        }
        if codec == Codec::Deflate {
            let inflated = inflate(&stream, value.len()).expect("a strict reader accepts it");
            assert!(inflated.bytes == value, "{} wrote another value", engine.name());
            let kept = window_log2.is_none_or(|log2| {
                1usize.checked_shl(log2.into()).is_none_or(|all| inflated.reach_bytes <= all)
            });
            assert!(kept, "{} reaches {} bytes, {dialect:?}", engine.name(), inflated.reach_bytes);
        }
        Some((codec, stream))
    }

    fn read_damaged(
        &mut self,
        codec: Codec,
        mut stream: Vec<u8>,
        original_bytes: usize,
        damage: &Damage,
    ) {
        for (at, bits) in &damage.flips {
            let at = *at as usize % stream.len().max(1);
            stream.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= bits);
        }
        stream.truncate(stream.len().saturating_sub(damage.truncated_by.into()));
        stream.extend(damage.appended);
        let stated = original_bytes.saturating_add_signed(damage.stated_off_by.into());
        self.read(codec, &stream, stated);
        self.read(codec, &stream, original_bytes);
    }
}

/// An output buffer between canaries.
struct Guarded {
    all: Vec<u8>,
}

impl Guarded {
    fn new(bytes: usize, fill: u8) -> Self {
        let mut all = vec![CANARY; bytes + 2 * CANARY_BYTES];
        all[CANARY_BYTES..CANARY_BYTES + bytes].fill(fill);
        Self { all }
    }

    fn inner(&mut self) -> &mut [u8] {
        let end = self.all.len() - CANARY_BYTES;
        &mut self.all[CANARY_BYTES..end]
    }

    /// Returns the buffer after checking that the canaries are unchanged.
    fn into_checked(mut self) -> Vec<u8> {
        let after = self.all.split_off(self.all.len() - CANARY_BYTES);
        let before = self.all.drain(..CANARY_BYTES);
        assert!(before.chain(after).all(|byte| byte == CANARY), "written outside");
        self.all
    }
}

/// The output space beyond nine eighths of the input (bytes). No codec needs more than both together.
const AMPLE_BYTES: usize = 1_024;

/// The limit of the original size (bytes). It exceeds four deflate windows, lz4's window and a few blocks.
const ORIGINAL_BYTES_END: usize = 150_000;

/// The most acts of one input. It limits the time of an input to a few milliseconds.
const ACTS_MAX: usize = 4;

const CANARY: u8 = 0xC3;
const CANARY_BYTES: usize = 256;
