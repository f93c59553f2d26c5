//! Turns logical values into stored values and back: the frame around what the runtime compresses. Every value passes
//! through here. A client therefore never gets compressed bytes that it cannot read, and never gets the bytes of an
//! unreadable value.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use device::{Buffer, Codec, DeviceError, Dialect, Input, Job, Level, Outcome, Pool, Task};
use policy::{Form, FormPolicy, RawReason, Reason};
use runtime::TokioRuntime;
use store::frame::{self, Header, Inspected};
use units::Nanos;
use units::limits::FRAME_HEADER_BYTES;

use crate::config::Foreign;
use crate::counters::Counters;

/// One worker's conversion between logical and stored values.
#[derive(Clone)]
pub(crate) struct Values(Rc<Shared>);

struct Shared {
    runtime: TokioRuntime,
    pool: Pool,
    rules: RefCell<Rules>,
    /// The longest logical value (bytes). Nothing is allocated for a frame that claims more.
    original_bytes_max: usize,
    counters: Arc<Counters>,
    /// Whether software may read a value that a device did not read. It may not where devices are required.
    software_reads: bool,
    /// Whether stored values are passed on as they are.
    raw: bool,
}

/// The rules that may change while the server runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) form: FormPolicy,
    pub(crate) foreign: Foreign,
}

/// A value from a client: a slice of what was read, a pool buffer of its own, or a part of a message.
pub(crate) enum Body<'a> {
    Slice(&'a [u8]),
    Pooled(Buffer),
    Shared(Bytes),
}

impl<'a> Body<'a> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Body::Slice(bytes) => bytes,
            Body::Pooled(buffer) => buffer,
            Body::Shared(bytes) => bytes,
        }
    }

    /// Returns the value as it came.
    fn into_stored(self) -> Stored<'a> {
        match self {
            Body::Slice(bytes) => Stored::Slice(bytes),
            Body::Shared(bytes) => Stored::Shared(bytes),
            Body::Pooled(buffer) => {
                let bytes = buffer.len();
                Stored::Shared(buffer.freeze(0..bytes))
            }
        }
    }
}

/// The stored form of a value.
#[derive(Debug)]
pub(crate) enum Stored<'a> {
    Slice(&'a [u8]),
    Shared(Bytes),
}

impl Stored<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Stored::Slice(bytes) => bytes,
            Stored::Shared(bytes) => bytes,
        }
    }
}

/// The logical form of a stored value, for a client.
#[derive(Debug)]
pub(crate) enum Logical {
    Value(Bytes),
    /// The value may not be served. It is a miss.
    Unreadable,
    /// Software found the frame broken, so that the value can never be read again. It is a miss too.
    Damaged,
}

impl Values {
    pub(crate) fn new(
        runtime: TokioRuntime,
        pool: Pool,
        rules: Rules,
        limits: ReadLimits,
        counters: Arc<Counters>,
    ) -> Self {
        let rules = RefCell::new(rules);
        let ReadLimits { original_bytes_max, software_reads } = limits;
        Self(Rc::new(Shared {
            runtime,
            pool,
            rules,
            original_bytes_max,
            counters,
            software_reads,
            raw: false,
        }))
    }

    /// Returns the conversion for a service whose clients pack and unpack. It stores and serves bytes as they are,
    /// including frames.
    pub(crate) fn as_stored(&self) -> Self {
        let Shared { runtime, pool, rules, counters, .. } = &*self.0;
        Self(Rc::new(Shared {
            runtime: runtime.clone(),
            pool: pool.clone(),
            rules: rules.clone(),
            original_bytes_max: self.0.original_bytes_max,
            counters: Arc::clone(counters),
            software_reads: self.0.software_reads,
            raw: true,
        }))
    }

    /// Returns the pool that values are read into. A device may read its buffers in place. Memory for anything else
    /// comes from the pool's heap.
    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    pub(crate) fn set_rules(&self, rules: Rules) {
        *self.0.rules.borrow_mut() = rules;
    }

    /// Returns the stored form of a logical value. The stored form is of no use after `deadline`, on the worker's
    /// clock.
    pub(crate) async fn pack<'a>(&self, body: Body<'a>, deadline: Option<Nanos>) -> Stored<'a> {
        if self.0.raw {
            return body.into_stored();
        }
        let form = self.0.rules.borrow().form.choose(body.as_slice());
        let counters = &self.0.counters.values;
        let original_bytes = body.as_slice().len();
        let stored = match form {
            Form::Raw(reason) => self.raw(body, reason),
            Form::Wrapped => {
                counters.written_wrapped.up();
                let value = body.as_slice();
                Stored::Shared(self.small_frame(frame::Codec::Stored, value, value))
            }
            Form::SameFilled(byte) => {
                counters.written_same_filled.up();
                let frame = self.small_frame(frame::Codec::SameFilled, body.as_slice(), &[byte]);
                Stored::Shared(frame)
            }
            Form::Compressed { dialect, level, stored_bytes_max } => {
                let limits = Limits { stored_bytes_max, deadline };
                self.compress(body, dialect, level, limits).await
            }
        };
        counters.logical_bytes_written.add(original_bytes as u64);
        counters.stored_bytes_written.add(stored.as_slice().len() as u64);
        stored
    }

    /// Returns the logical value of a stored one, for a caller that waits until `deadline`.
    pub(crate) async fn unpack(&self, stored: Bytes, deadline: Option<Nanos>) -> Logical {
        if self.0.raw {
            return Logical::Value(stored);
        }
        let counters = &self.0.counters.values;
        let stored_bytes = stored.len() as u64;
        let logical = match frame::inspect(&stored, self.0.original_bytes_max) {
            // In a closed fleet every value that is not a number is written in a frame.
            Inspected::Foreign if self.forbids(&stored) => {
                counters.foreign_refused.up();
                Logical::Unreadable
            }
            Inspected::Foreign => {
                counters.read_foreign.up();
                Logical::Value(stored)
            }
            Inspected::Invalid(reason) => {
                counters.frame_invalid.up();
                if reason.is_damage() { Logical::Damaged } else { Logical::Unreadable }
            }
            Inspected::Frame { header, payload } => {
                self.open(header, stored.slice(payload), deadline).await
            }
        };
        if let Logical::Value(value) = &logical {
            counters.stored_bytes_read.add(stored_bytes);
            counters.logical_bytes_read.add(value.len() as u64);
        }
        logical
    }

    /// Returns whether values are passed on as they are.
    pub(crate) fn is_raw(&self) -> bool {
        self.0.raw
    }

    /// Returns whether software finds the frame broken, and therefore no reader can ever read it.
    pub(crate) async fn is_damaged(&self, stored: Bytes) -> bool {
        if self.0.raw {
            return false;
        }
        let (header, payload) = match frame::inspect(&stored, self.0.original_bytes_max) {
            Inspected::Foreign => return false,
            Inspected::Invalid(reason) => return reason.is_damage(),
            Inspected::Frame { header, payload } => (header, stored.slice(payload)),
        };
        let codec = match header.codec {
            frame::Codec::Deflate => Codec::Deflate,
            frame::Codec::Zstd => Codec::Zstd,
            frame::Codec::Lz4 => Codec::Lz4,
            frame::Codec::Stored | frame::Codec::SameFilled => {
                return matches!(self.open(header, payload, None).await, Logical::Damaged);
            }
        };
        let original_bytes = header.original_bytes as usize;
        let window_log2 = (header.window_log2 != 0).then_some(header.window_log2);
        let task = Task::Decompress { dialect: Dialect { codec, window_log2 }, original_bytes };
        let output = self.0.pool.take_heap(original_bytes);
        let job = Box::new(Job::new(task, Input::heap(payload), output));
        let finished = self.0.runtime.run_in_software(job, Reason::Policy).await;
        is_corrupt(&finished.outcome) && !is_whole(&finished.outcome, &header, &finished.job.output)
    }

    /// Returns the logical length of a stored value; none if the value cannot be served.
    pub(crate) fn logical_bytes(&self, stored: &[u8]) -> Option<usize> {
        if self.0.raw {
            return Some(stored.len());
        }
        match frame::inspect(stored, self.0.original_bytes_max) {
            Inspected::Foreign if self.forbids(stored) => None,
            Inspected::Foreign => Some(stored.len()),
            Inspected::Frame { header, .. } => Some(header.original_bytes as usize),
            Inspected::Invalid(_) => None,
        }
    }

    /// Returns whether a stored value may be sent as the frame that it is, to a client that reads such codecs itself.
    /// If so, it counts as read.
    pub(crate) fn may_pass(&self, stored: &[u8], reads: impl Fn(frame::Codec) -> bool) -> bool {
        let Inspected::Frame { header, .. } = frame::inspect(stored, self.0.original_bytes_max)
        else {
            return false;
        };
        if !reads(header.codec) {
            return false;
        }
        let counters = &self.0.counters.values;
        counters.read_as_frame.up();
        counters.stored_bytes_read.add(stored.len() as u64);
        counters.logical_bytes_read.add(u64::from(header.original_bytes));
        true
    }

    fn forbids(&self, stored: &[u8]) -> bool {
        self.0.rules.borrow().foreign == Foreign::Forbid && !frame::is_number(stored)
    }

    fn raw<'a>(&self, body: Body<'a>, reason: RawReason) -> Stored<'a> {
        self.0.counters.raw[reason as usize].up();
        body.into_stored()
    }

    fn small_frame(&self, codec: frame::Codec, original: &[u8], payload: &[u8]) -> Bytes {
        let mut buffer = self.0.pool.take_heap(FRAME_HEADER_BYTES + payload.len());
        let mut header = [0; FRAME_HEADER_BYTES];
        Header::seal(codec, 0, original, payload.len()).encode(&mut header);
        buffer.extend(&header);
        buffer.extend(payload);
        let bytes = buffer.len();
        buffer.freeze(0..bytes)
    }

    async fn compress<'a>(
        &self,
        body: Body<'a>,
        dialect: Dialect,
        level: Level,
        Limits { stored_bytes_max, deadline }: Limits,
    ) -> Stored<'a> {
        let original_bytes = body.as_slice().len();
        let window_log2 = stated_window(dialect, original_bytes);
        let input = match body {
            Body::Slice(bytes) => {
                let counters = &self.0.counters.values;
                counters.copies.up();
                counters.copied_bytes.add(bytes.len() as u64);
                let mut buffer = self.0.pool.take(bytes.len());
                buffer.extend(bytes);
                Input::pooled(buffer, 0..original_bytes)
            }
            Body::Pooled(buffer) => Input::pooled(buffer, 0..original_bytes),
            Body::Shared(bytes) => Input::heap(bytes),
        };
        let original = input.bytes().clone();
        let output = self.0.pool.take_heap(stored_bytes_max);
        let mut job = Job::new(Task::Compress { dialect, level }, input, output);
        (job.output_offset, job.deadline) = (FRAME_HEADER_BYTES, deadline);
        let finished = self.0.runtime.run(Box::new(job)).await;
        match finished.outcome {
            Outcome::Done { output_bytes }
                if FRAME_HEADER_BYTES + output_bytes <= stored_bytes_max =>
            {
                self.0.counters.values.written_compressed.up();
                let codec = frame_codec(dialect.codec);
                let header = Header::seal(codec, window_log2, &original, output_bytes);
                self.0.runtime.wrote(finished.path.device, header.checksum, output_bytes);
                let mut output = finished.job.output;
                if let Some(space) = output.first_chunk_mut() {
                    header.encode(space);
                }
                Stored::Shared(output.freeze(0..FRAME_HEADER_BYTES + output_bytes))
            }
            _ => {
                self.0.counters.raw[RawReason::DidNotShrink as usize].up();
                if frame::must_wrap(&original) || self.0.rules.borrow().form.wrap_all {
                    let frame = self.small_frame(frame::Codec::Stored, &original, &original);
                    return Stored::Shared(frame);
                }
                Stored::Shared(original)
            }
        }
    }

    async fn open(&self, header: Header, payload: Bytes, deadline: Option<Nanos>) -> Logical {
        let counters = &self.0.counters.values;
        let value = match header.codec {
            frame::Codec::Stored => payload,
            frame::Codec::SameFilled => {
                let bytes = header.original_bytes as usize;
                let mut buffer = self.0.pool.take_heap(bytes);
                buffer.space()[..bytes].fill(payload[0]);
                buffer.set_len(bytes);
                buffer.freeze(0..bytes)
            }
            frame::Codec::Deflate => {
                return self.decompress(header, Codec::Deflate, payload, deadline).await;
            }
            frame::Codec::Zstd => {
                return self.decompress(header, Codec::Zstd, payload, deadline).await;
            }
            frame::Codec::Lz4 => {
                return self.decompress(header, Codec::Lz4, payload, deadline).await;
            }
        };
        if !header.verify(&value) {
            counters.frame_corrupt.up();
            return Logical::Damaged;
        }
        counters.read_framed.up();
        Logical::Value(value)
    }

    async fn decompress(
        &self,
        header: Header,
        codec: Codec,
        payload: Bytes,
        deadline: Option<Nanos>,
    ) -> Logical {
        let counters = &self.0.counters.values;
        let original_bytes = header.original_bytes as usize;
        let window_log2 = (header.window_log2 != 0).then_some(header.window_log2);
        let dialect = Dialect { codec, window_log2 };
        let job = |payload: Bytes| {
            let task = Task::Decompress { dialect, original_bytes };
            let output = self.0.pool.take_heap(original_bytes);
            Box::new(Job { deadline, ..Job::new(task, Input::heap(payload), output) })
        };
        let stream_bytes = payload.len();
        let mut finished = self.0.runtime.run(job(payload.clone())).await;
        if finished.path.device != 0 && !is_whole(&finished.outcome, &header, &finished.job.output)
        {
            // The runtime has counted failures. It cannot know whether the result of a completed job is right.
            if matches!(finished.outcome, Outcome::Done { .. }) {
                counters.device_corrupt.up();
            }
            if !self.0.software_reads {
                counters.no_device.up();
                return Logical::Unreadable;
            }
            // A faulty device must not cost a value, so software has the last word.
            let device = finished.path.device;
            finished = self.0.runtime.run_in_software(job(payload), Reason::DeviceFault).await;
            if is_whole(&finished.outcome, &header, &finished.job.output) {
                self.0.runtime.report_misread(device);
            }
        }
        if !is_whole(&finished.outcome, &header, &finished.job.output) {
            self.0.runtime.report_unreadable(header.checksum, stream_bytes);
            counters.frame_corrupt.up();
            let by_software = finished.path.device == 0 && is_corrupt(&finished.outcome);
            return if by_software { Logical::Damaged } else { Logical::Unreadable };
        }
        counters.read_compressed.up();
        Logical::Value(finished.job.output.freeze(0..original_bytes))
    }
}

/// The limits on reading values.
pub(crate) struct ReadLimits {
    /// The longest logical value (bytes).
    pub(crate) original_bytes_max: usize,
    /// Whether software may read a value that a device did not read.
    pub(crate) software_reads: bool,
}

/// The limits that a stored form must keep.
struct Limits {
    stored_bytes_max: usize,
    deadline: Option<Nanos>,
}

fn is_whole(outcome: &Outcome, header: &Header, output: &Buffer) -> bool {
    matches!(outcome, Outcome::Done { .. }) && header.verify(output)
}

/// Returns whether the stream is the reason that there is no value, and not a lack of time or memory.
fn is_corrupt(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done { .. } | Outcome::Failed(DeviceError::InvalidInput(_)))
}

/// Returns the window that the header may promise: the requested window or, for a short deflate stream, the window that
/// follows from its length.
fn stated_window(dialect: Dialect, original_bytes: usize) -> u8 {
    match dialect.window_log2 {
        Some(window_log2) => window_log2,
        None if dialect.satisfies(Dialect::IAA, original_bytes) => 12,
        None => 0,
    }
}

const fn frame_codec(codec: Codec) -> frame::Codec {
    match codec {
        Codec::Deflate => frame::Codec::Deflate,
        Codec::Zstd => frame::Codec::Zstd,
        Codec::Lz4 => frame::Codec::Lz4,
    }
}
