//! The ops that devices do. This module creates the job for a strand's payload, and turns the job's result into the
//! next payload. A compressed payload is a frame (docs/format.md). An encrypted payload is its nonce, then the
//! ciphertext and the tag. This module runs nothing.

use std::ops::Range;

use device::cipher::NONCE_BYTES;
use device::{
    AssociatedData, Codec, Dialect, Input, Job, Level, Outcome, Polynomial, Pool, TAG_BYTES, Task,
};
use prost::bytes::Bytes;
use store::frame::{Encoding, FrameVersion};
use store::{Header, Inspected, inspect};
use units::Op;

use super::error::{Cause, Malformed};
use super::input::Session;
use crate::entry::Finished;

/// Creates jobs with the parameters in its fields.
pub struct Maker {
    /// The dialect that compression writes.
    pub dialect: Dialect,
    /// The level of compression.
    pub level: Level,
    /// The pool for results.
    pub pool: Pool,
    /// The largest size of a payload, in bytes.
    pub payload_bytes_max: usize,
}

/// The work that an op needs for a payload.
pub enum Made {
    /// A job.
    Job(Box<Job>),
    /// A decompression job, and the frame header of its stream.
    Stream(Box<Job>, Header),
    /// No job is needed, because this is the result.
    Payload(Bytes),
}

/// The result of a job.
pub enum Given {
    /// The next payload.
    Payload(Bytes),
    /// A checksum. The payload stays unchanged.
    Checksum(u64),
}

impl Maker {
    /// Creates the op's job for this payload. Returns none for an op that no device does.
    ///
    /// # Errors
    /// Fails if the payload does not have the op's format, if the result is too large, or if there are no keys.
    pub fn make(
        &self,
        op: Op,
        payload: &Bytes,
        session: Option<&Session>,
    ) -> Result<Option<Made>, Cause> {
        let task = match op {
            Op::Compress => Task::Compress { dialect: self.dialect, level: self.level },
            Op::Decompress => return self.decompress(payload).map(Some),
            Op::Encrypt => {
                let (key, nonce) = session.ok_or(Cause::NoSession)?.seal().ok_or(Cause::NoNonce)?;
                Task::Encrypt { key, nonce, associated: AssociatedData::NONE }
            }
            Op::Decrypt => {
                let session = session.ok_or(Cause::NoSession)?;
                return self.decrypt(payload, session).map(Some);
            }
            Op::Checksum => Task::Checksum { polynomial: Polynomial::Crc32c },
            Op::Copy => Task::Copy,
            Op::Serialize | Op::Deserialize | Op::Rpc | Op::Tcp | Op::LoadBalance | Op::Notify => {
                return Ok(None);
            }
        };
        let header: &[u8] = match &task {
            Task::Compress { .. } => &[0; HEADER_BYTES],
            Task::Encrypt { nonce, .. } => &nonce.0.clone(),
            _ => &[],
        };
        let input_bytes = payload.len();
        let result_bytes = task.output_bytes(input_bytes).unwrap_or(input_bytes);
        let bytes = header.len() + result_bytes;
        self.fits(bytes)?;
        let mut output = self.pool.take(bytes);
        output.extend(header);
        let mut job = Job::new(task, Input::heap(payload.clone()), output);
        job.output_offset = header.len();
        Ok(Some(Made::Job(Box::new(job))))
    }

    pub(super) fn fits(&self, bytes: usize) -> Result<(), Cause> {
        let max = self.payload_bytes_max;
        if bytes <= max { Ok(()) } else { Err(Cause::TooLarge { bytes, max }) }
    }

    fn decrypt(&self, payload: &Bytes, session: &Session) -> Result<Made, Cause> {
        let nonce = payload.first_chunk::<NONCE_BYTES>();
        let sealed_bytes = payload.len().saturating_sub(NONCE_BYTES);
        let (Some(nonce), TAG_BYTES..) = (nonce, sealed_bytes) else {
            let (bytes, least) = (payload.len(), NONCE_BYTES + TAG_BYTES);
            let why = format!("{bytes} bytes; nonce and tag alone are {least}");
            return Err(Malformed::because("an encrypted payload", why).into());
        };
        let (key, nonce) = (session.open(), device::Nonce(*nonce));
        let task = Task::Decrypt { key, nonce, associated: AssociatedData::NONE };
        let output = self.pool.take(sealed_bytes - TAG_BYTES);
        let input = Input::heap(payload.slice(NONCE_BYTES..));
        Ok(Made::Job(Box::new(Job::new(task, input, output))))
    }

    fn decompress(&self, payload: &Bytes) -> Result<Made, Cause> {
        let malformed =
            |why: &dyn std::fmt::Display| Malformed::because("a compressed payload", why);
        let (header, range) = match inspect(payload, self.payload_bytes_max) {
            Inspected::Frame { header, payload } => (header, payload),
            Inspected::Foreign => return Err(malformed(&"it does not begin as a frame").into()),
            Inspected::Sealed { .. } => return Err(malformed(&"it is sealed").into()),
            Inspected::Invalid(error) => return Err(malformed(&error).into()),
        };
        if let Some(id) = header.dictionary_id {
            return Err(malformed(&format!("it needs dictionary {id}")).into());
        }
        let stream = payload.slice(range);
        let original_bytes = header.original_bytes as usize;
        let codec = match header.encoding {
            Encoding::Stored => return checked(&header, stream).map(Made::Payload),
            Encoding::SameFilled => {
                let original = vec![stream[0]; original_bytes];
                return checked(&header, original.into()).map(Made::Payload);
            }
            Encoding::Compressed(codec) => codec,
        };
        let dialect = stream_dialect(&header, codec);
        let task = Task::Decompress { dialect, original_bytes };
        let job = Job::new(task, Input::heap(stream), self.pool.take(original_bytes));
        Ok(Made::Stream(Box::new(job), header))
    }
}

/// Returns the result of the finished job. `frame` is the frame of the stream that the job read.
///
/// # Errors
/// Fails if the device failed, or if the result does not match its frame.
pub fn given(finished: Finished, frame: Option<Header>) -> Result<Given, Cause> {
    let Finished { mut job, outcome, .. } = finished;
    let result_bytes = match outcome {
        Outcome::Done { output_bytes } => output_bytes,
        Outcome::DoesNotFit => return stored(&job).map(Given::Payload),
        Outcome::Failed(error) => return Err(Cause::Device(error)),
    };
    let all = job.output_offset + result_bytes;
    match &job.task {
        Task::Compress { dialect, .. } => {
            let header = frame_header(*dialect, &job.input, result_bytes);
            header.encode(&mut job.output);
            Ok(Given::Payload(job.output.freeze(0..all)))
        }
        Task::Decompress { .. } => {
            let original = job.output.freeze(0..all);
            match frame {
                Some(header) => checked(&header, original).map(Given::Payload),
                None => Ok(Given::Payload(original)),
            }
        }
        Task::Checksum { .. } => {
            let mut bytes = [0; size_of::<u64>()];
            bytes[..result_bytes].copy_from_slice(&job.output[job.output_offset..all]);
            Ok(Given::Checksum(u64::from_le_bytes(bytes)))
        }
        Task::Encrypt { .. } | Task::Decrypt { .. } | Task::Copy | Task::Function(_) => {
            Ok(Given::Payload(job.output.freeze(0..all)))
        }
    }
}

/// Returns a frame that stores the payload unchanged, because the payload does not shrink.
fn stored(job: &Job) -> Result<Bytes, Cause> {
    let payload_bytes = job.input.len();
    let header = Header::seal(WRITTEN, Encoding::Stored, 0, NO_KEY, &job.input, payload_bytes);
    let mut framed = vec![0; HEADER_BYTES + payload_bytes];
    let header_bytes = header.encode(&mut framed);
    framed[header_bytes..].copy_from_slice(&job.input);
    Ok(framed.into())
}

/// Returns the header of a compressed payload, the place of its stream, and the stream's dialect. Returns none for any
/// other payload.
pub(super) fn compressed_stream(
    payload: &[u8],
    original_bytes_max: usize,
) -> Option<(Header, Range<usize>, Dialect)> {
    let Inspected::Frame { header, payload } = inspect(payload, original_bytes_max) else {
        return None;
    };
    let Encoding::Compressed(codec) = header.encoding else { return None };
    let dialect = stream_dialect(&header, codec);
    header.dictionary_id.is_none().then_some((header, payload, dialect))
}

fn stream_dialect(header: &Header, codec: Codec) -> Dialect {
    let window_log2 = (header.window_log2 != 0).then_some(header.window_log2);
    Dialect { window_log2, ..Dialect::new(codec) }
}

/// Returns the header of the frame of a stream.
pub(super) fn frame_header(dialect: Dialect, original: &[u8], stream_bytes: usize) -> Header {
    let encoding = Encoding::Compressed(dialect.codec);
    let window_log2 = dialect.window_log2.unwrap_or(0);
    Header::seal(WRITTEN, encoding, window_log2, NO_KEY, original, stream_bytes)
}

pub(super) fn checked(header: &Header, original: Bytes) -> Result<Bytes, Cause> {
    if header.verify(NO_KEY, &original) {
        return Ok(original);
    }
    let why = "its checksum is another's";
    Err(Malformed::because("a compressed payload", why).into())
}

/// The version of the frames that programs write. Callers may be older than this process, so it is the first.
const WRITTEN: FrameVersion = FrameVersion::V1;

/// The length of a frame's header in this version (bytes). It does not depend on the value.
const HEADER_BYTES: usize = WRITTEN.header_bytes(0, 0);

/// The key of a payload. Payloads of programs are not items, so they have none.
const NO_KEY: &[u8] = b"";
