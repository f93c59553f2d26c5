//! The CPU codecs, and the set of engines that one thread uses. The set decides which engine writes a dialect
//! and which engine reads a stream. The devices of [`crate::software`] and [`crate::worker`] run on such
//! sets. A set has no queue and no clock.

pub mod libdeflate;
pub mod lz4;
pub mod zstd;
pub(crate) mod zstd_dictionary;

use std::sync::Arc;
use std::time::Instant;

use units::{ByteCount, Nanos, limits};

use crate::codec::{Codec, Dialect, Engine, EngineError, EngineFactory};
use crate::dictionary::Dictionary;
use crate::job::{DeviceError, Job, Outcome, Task};
use crate::kernels::{self, Kernel};
use crate::queue::{Capabilities, Waiting};
use zstd_dictionary::ZstdDictionary;

/// The implementation of a codec in this crate.
pub(crate) struct Implementation {
    /// Makes the engine. A codec that needs a dictionary has none, because [`EngineSet`] runs it without one.
    engine: Option<EngineFactory>,
    /// Returns whether the beginning of a stream can belong to a stream of the given input, see [`crate::plausible`].
    pub(crate) may_be: fn(&[u8], &[u8]) -> bool,
}

/// The table of the codecs: returns the implementation of each.
#[inline]
pub(crate) const fn implementation(codec: Codec) -> Implementation {
    type MayBe = fn(&[u8], &[u8]) -> bool;
    let (engine, may_be): (Option<EngineFactory>, MayBe) = match codec {
        Codec::Deflate => (Some(libdeflate::engine), libdeflate::may_be),
        Codec::Zstd => (Some(zstd::engine), zstd::may_be),
        Codec::Lz4 => (Some(lz4::engine), lz4::may_be),
        Codec::ZstdDictionary => (None, zstd_dictionary::may_be),
    };
    Implementation { engine, may_be }
}

/// One engine of each codec in [`Codec::ALL`], in that order, without foreign code beyond the crates' own.
pub const BUILT_IN: [EngineFactory; Codec::ALL.len()] = {
    let mut engines: [EngineFactory; Codec::ALL.len()] = [libdeflate::engine; Codec::ALL.len()];
    let mut at = 0;
    while at < engines.len() {
        engines[at] = implementation(Codec::ALL[at]).engine.expect("it needs no dictionary");
        at += 1;
    }
    engines
};

/// One thread's engines. The first engine that writes a dialect is the writer of that dialect. The first engine that
/// reads a codec is the reader of that codec. Streams with a dictionary have one implementation.
pub(crate) struct EngineSet {
    engines: Vec<Box<dyn Engine>>,
    with_dictionary: ZstdDictionary,
}

impl EngineSet {
    pub(crate) fn open(factories: &[EngineFactory]) -> Self {
        Self {
            engines: factories.iter().map(|make| make()).collect(),
            with_dictionary: ZstdDictionary::default(),
        }
    }

    /// Runs the job's task. The result is in the job's output when this returns.
    pub(crate) fn run(&mut self, job: &mut Job) -> Outcome {
        let offset = job.output_offset;
        let space = job.output.space().get_mut(offset..).unwrap_or_default();
        let dictionary = job.dictionary.as_ref();
        let done = match job.task.dialect() {
            Some(dialect) if dialect.codec.needs_dictionary() => {
                self.apply_with(dictionary, &job.task, &job.input, space)
            }
            Some(_) => self.apply(&job.task, &job.input, space),
            None => match &job.task {
                Task::Function(function) => {
                    return function.run(job.input.bytes(), &mut job.output, offset);
                }
                task => self.apply(task, &job.input, space),
            },
        };
        match done {
            Ok(output_bytes) => {
                job.output.set_len(offset + output_bytes);
                Outcome::Done { output_bytes }
            }
            Err(EngineError::DoesNotFit) => Outcome::DoesNotFit,
            Err(EngineError::Device(error)) => Outcome::Failed(error),
        }
    }

    /// Runs the job's task and the rest of its chain. Returns the outcome of the last op that ran, and its time.
    pub(crate) fn run_timed(&mut self, job: &mut Job) -> (Outcome, Nanos) {
        loop {
            let start = Instant::now();
            let outcome = self.run(job);
            let service = Nanos::from(start.elapsed());
            match outcome {
                Outcome::Done { output_bytes }
                    if job.chain.is_some() && job.advance(output_bytes, service, |_, _| true) => {}
                outcome => return (outcome, service),
            }
        }
    }

    /// Returns the capabilities of a device that uses this set.
    pub(crate) fn capabilities(&self, queue_depth: usize, waiting: Waiting) -> Capabilities {
        let codecs = || Codec::ALL.into_iter().filter(|codec| self.reads(*codec));
        Capabilities {
            writes: codecs().flat_map(|codec| self.dialects_written(codec)).collect(),
            reads: codecs().map(Dialect::new).collect(),
            kernels: Kernel::ALL.to_vec(),
            dictionaries: false,
            work_bytes_max: WORK_BYTES_MAX,
            queue_depth,
            waiting,
        }
    }

    /// Returns the name and the codec of each engine.
    pub(crate) fn names(&self) -> Vec<(&'static str, Codec)> {
        self.engines.iter().map(|engine| (engine.name(), engine.codec())).collect()
    }

    /// Runs a task of a codec that needs a dictionary, like [`EngineSet::apply`].
    fn apply_with(
        &mut self,
        dictionary: Option<&Arc<Dictionary>>,
        task: &Task,
        input: &[u8],
        space: &mut [u8],
    ) -> Result<usize, EngineError> {
        let dictionary = dictionary.ok_or(NO_DICTIONARY)?;
        match *task {
            Task::Compress { .. } => self.with_dictionary.compress(dictionary, input, space),
            Task::Decompress { original_bytes, .. } => {
                let space = space.get_mut(..original_bytes).ok_or(OUTPUT_TOO_SMALL)?;
                let read = self.with_dictionary.decompress(dictionary, input, space);
                read.map(|()| original_bytes).map_err(EngineError::Device)
            }
            _ => Err(NO_ENGINE),
        }
    }

    /// Runs `task` on `input`. Writes the result to the start of `space` and returns its size. The task's codec needs
    /// no dictionary.
    pub(crate) fn apply(
        &mut self,
        task: &Task,
        input: &[u8],
        space: &mut [u8],
    ) -> Result<usize, EngineError> {
        let done = match *task {
            Task::Compress { dialect, level } => {
                if space.is_empty() {
                    return Err(EngineError::DoesNotFit);
                }
                let writer = self.writer(dialect, input.len());
                return writer.ok_or(NO_ENGINE)?.compress(dialect, level, input, space);
            }
            Task::Decompress { dialect, original_bytes } => {
                let space = space.get_mut(..original_bytes).ok_or(OUTPUT_TOO_SMALL)?;
                let reader = self.reader(dialect.codec).ok_or(NO_ENGINE)?;
                reader.decompress(input, space).map(|()| original_bytes)
            }
            Task::Encrypt { ref key, nonce, ref associated } => {
                kernels::encrypt(key, nonce, associated, input, space)
            }
            Task::Decrypt { ref key, nonce, ref associated } => {
                kernels::decrypt(key, nonce, associated, input, space)
            }
            Task::Checksum { polynomial } => kernels::checksum(polynomial, input, space),
            Task::Copy => kernels::copy(input, space),
            Task::Function(_) => return Err(NO_SPACE),
        };
        done.map_err(EngineError::Device)
    }

    fn writer(&mut self, dialect: Dialect, input_bytes: usize) -> Option<&mut Box<dyn Engine>> {
        let writes = |engine: &&mut Box<dyn Engine>| {
            engine.codec() == dialect.codec && engine.writes(dialect, input_bytes)
        };
        self.engines.iter_mut().find(writes)
    }

    fn reader(&mut self, codec: Codec) -> Option<&mut Box<dyn Engine>> {
        self.engines.iter_mut().find(|engine| engine.codec() == codec && engine.reads())
    }

    fn reads(&self, codec: Codec) -> bool {
        self.engines.iter().any(|engine| engine.codec() == codec && engine.reads())
    }

    /// Returns the codec's dialects that an engine writes for inputs of any size: the dialect with the
    /// codec's own window, and the dialect with the narrowest possible window.
    fn dialects_written(&self, codec: Codec) -> impl Iterator<Item = Dialect> {
        let writes = |dialect: &Dialect| {
            let of_codec = self.engines.iter().filter(|engine| engine.codec() == codec);
            of_codec.into_iter().any(|engine| engine.writes(*dialect, WORK_BYTES_MAX.as_usize()))
        };
        let windowed = |window| Dialect { codec, window_log2: Some(window) };
        let narrowest = (0..WINDOW_LOG2_END).map(windowed).find(writes);
        let plain = Some(Dialect::new(codec)).filter(writes);
        plain.into_iter().chain(narrowest)
    }
}

/// The largest work of a job: the largest item that memcached's `-I` allows.
const WORK_BYTES_MAX: ByteCount = limits::ITEM_BYTES_MAX_HIGHEST;

/// The end of the range of windows that are tried (log2 bytes). The widest window exceeds any input.
const WINDOW_LOG2_END: u8 = 31;

const NO_ENGINE: EngineError = EngineError::Device(DeviceError::Fault("no engine of this codec"));
const NO_DICTIONARY: EngineError =
    EngineError::Device(DeviceError::InvalidInput("the job has no dictionary for its codec"));
/// A function's result has its own memory, so [`EngineSet::run`] runs it.
const NO_SPACE: EngineError =
    EngineError::Device(DeviceError::Fault("a function does not write to given space"));
const OUTPUT_TOO_SMALL: EngineError = EngineError::Device(OUTPUT_TOO_SMALL_ERROR);

/// The error that every device over engines returns when the output buffer is too small for the stated size.
pub(crate) const OUTPUT_TOO_SMALL_ERROR: DeviceError =
    DeviceError::InvalidInput("the output buffer has no room for the result");

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::buffer::{Input, Pool};
    use crate::codec::Level;

    /// An engine that neither writes nor reads. Its error contains its name.
    struct Named(&'static str, u8);

    impl Engine for Named {
        fn name(&self) -> &'static str {
            self.0
        }
        fn codec(&self) -> Codec {
            Codec::Deflate
        }
        fn writes(&self, dialect: Dialect, input_bytes: usize) -> bool {
            let dialect_written = Dialect { codec: Codec::Deflate, window_log2: Some(self.1) };
            dialect_written.satisfies(dialect, input_bytes)
        }
        fn compress(
            &mut self,
            _: Dialect,
            _: Level,
            _: &[u8],
            _: &mut [u8],
        ) -> Result<usize, EngineError> {
            Err(EngineError::Device(DeviceError::Fault(self.0)))
        }
        fn reads(&self) -> bool {
            self.0 != "isal"
        }
        fn decompress(&mut self, _: &[u8], _: &mut [u8]) -> Result<(), DeviceError> {
            Err(DeviceError::Fault(self.0))
        }
    }

    fn isal() -> Box<dyn Engine> {
        Box::new(Named("isal", 9))
    }

    fn inflate() -> Box<dyn Engine> {
        Box::new(Named("libdeflate", 15))
    }

    /// Returns the name of the engine that gets a task.
    fn engine_of(factories: &[EngineFactory], task: Task, input_bytes: usize) -> &'static str {
        let output = Pool::heap(ByteCount(0)).take(1 << 20);
        let mut job = Job::new(task, Input::heap(Bytes::from(vec![0; input_bytes])), output);
        match EngineSet::open(factories).run(&mut job) {
            Outcome::Failed(DeviceError::Fault(name)) => name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_engine_that_only_writes_is_passed_by_for_reading() {
        let task =
            Task::Decompress { dialect: Dialect::new(Codec::Deflate), original_bytes: 9_000 };
        assert_eq!(engine_of(&[isal, inflate], task, 8_000), "libdeflate");
        let alone = EngineSet::open(&[isal]).capabilities(1, Waiting::Inline);
        assert!(alone.reads.is_empty() && alone.writes.is_empty());
    }

    #[test]
    fn the_first_engine_that_keeps_the_window_writes() {
        let write = |factories: &[EngineFactory], dialect, bytes| {
            engine_of(factories, Task::Compress { dialect, level: Level::Default }, bytes)
        };
        assert_eq!(write(&[inflate, isal], Dialect::new(Codec::Deflate), 9_000), "libdeflate");
        assert_eq!(write(&[inflate, isal], Dialect::IAA, 9_000), "isal");
        assert_eq!(write(&[inflate, isal], Dialect::IAA, 4_000), "libdeflate");
    }

    #[test]
    fn the_narrowest_window_of_any_engine_is_advertised() {
        let deflate = |window_log2| Dialect { codec: Codec::Deflate, window_log2 };
        let writes = |factories: &[EngineFactory]| {
            EngineSet::open(factories).capabilities(1, Waiting::Inline).writes
        };
        assert_eq!(writes(&[inflate, isal]), [deflate(None), deflate(Some(9))]);
        assert_eq!(writes(&[inflate]), [deflate(None), deflate(Some(15))]);
        assert!(writes(&[]).is_empty());
    }

    #[test]
    fn the_cpu_has_every_kernel_whatever_its_engines() {
        let capabilities = EngineSet::open(&[]).capabilities(1, Waiting::Inline);
        assert_eq!(capabilities.kernels, Kernel::ALL);
    }

    #[test]
    fn a_buffer_too_small_is_the_callers_error() {
        let output = Pool::heap(ByteCount(0)).take(600);
        let capacity = output.capacity();
        let dialect = Dialect::new(Codec::Lz4);
        let task = Task::Decompress { dialect, original_bytes: capacity };
        let mut job = Job::new(task.clone(), Input::heap(Bytes::from_static(b"x")), output);
        for output_offset in [1, capacity, capacity + 1, usize::MAX] {
            job.output_offset = output_offset;
            let outcome = EngineSet::open(&BUILT_IN).run(&mut job);
            assert!(matches!(outcome, Outcome::Failed(DeviceError::InvalidInput(_))));
            job.task = Task::Compress { dialect, level: Level::Fast };
            job.output_offset = output_offset.max(capacity);
            assert_eq!(EngineSet::open(&BUILT_IN).run(&mut job), Outcome::DoesNotFit);
            job.task = task.clone();
        }
    }
}
