//! Jobs and their outcomes. These are values only: nothing here runs a job or decides where it runs.

use std::fmt;

use units::{Nanos, Op};

use crate::buffer::{Buffer, Input};
use crate::cipher::{Key, Nonce, TAG_BYTES};
use crate::codec::{Dialect, Level};

/// One op with its parameters. A job owns its buffers and always comes back.
#[derive(Debug)]
pub struct Job {
    /// The submitter's own mark, returned untouched.
    pub tag: u64,
    /// The op and its parameters.
    pub task: Task,
    /// The bytes that the op reads.
    pub input: Input,
    /// The buffer that gets the result: at `output_offset`, within the buffer's capacity.
    pub output: Buffer,
    /// Bytes at the start of `output` that stay the caller's, for a header.
    pub output_offset: usize,
    /// The tenant that asked. Limits and fairness are per tenant.
    pub tenant: TenantId,
    /// The class of the job.
    pub class: Class,
    /// The time at which the result stops being useful, on the runtime's clock.
    pub deadline: Option<Nanos>,
}

impl Job {
    /// Makes a latency-critical job of the default tenant, without deadline and header space.
    pub fn new(task: Task, input: Input, output: Buffer) -> Self {
        Self {
            tag: 0,
            task,
            input,
            output,
            output_offset: 0,
            tenant: TenantId::default(),
            class: Class::default(),
            deadline: None,
        }
    }

    /// Returns the size that costs grow with: the input's, and for decompression the result's.
    pub fn work_bytes(&self) -> usize {
        match self.task {
            Task::Decompress { original_bytes, .. } => original_bytes,
            Task::Compress { .. }
            | Task::Encrypt { .. }
            | Task::Decrypt { .. }
            | Task::Checksum { .. }
            | Task::Copy => self.input.len(),
        }
    }
}

/// An op with its parameters. Only compression may find that its result does not fit; to any other task an output
/// without room for it is [`DeviceError::InvalidInput`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Compress the whole input into one stream.
    Compress {
        /// The promise that the stream must keep.
        dialect: Dialect,
        /// The effort.
        level: Level,
    },
    /// Decompress one stream.
    Decompress {
        /// The promise that the stream keeps.
        dialect: Dialect,
        /// The exact size of the result; the output buffer has room for it.
        original_bytes: usize,
    },
    /// Encrypt by AES-256-GCM without associated data; the result is the ciphertext, as long as the input, and the
    /// tag ([`TAG_BYTES`]).
    Encrypt {
        /// The expanded key.
        key: Key,
        /// A nonce that was never used before under this key.
        nonce: Nonce,
    },
    /// Decrypt what [`Task::Encrypt`] makes. A wrong tag is [`DeviceError::InvalidInput`], and leaves no plaintext.
    Decrypt {
        /// The expanded key.
        key: Key,
        /// The nonce that it was encrypted with.
        nonce: Nonce,
    },
    /// The input's checksum, little-endian; the input itself is not copied.
    Checksum {
        /// The kind of checksum.
        polynomial: Polynomial,
    },
    /// The input, copied.
    Copy,
}

/// The kind of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Polynomial {
    /// CRC-32C (Castagnoli; iSCSI), four bytes.
    Crc32c,
    /// CRC-64/XZ (ECMA-182, reflected), eight bytes.
    Crc64,
}

impl Task {
    /// Returns the op.
    pub const fn op(&self) -> Op {
        match self {
            Task::Compress { .. } => Op::Compress,
            Task::Decompress { .. } => Op::Decompress,
            Task::Encrypt { .. } => Op::Encrypt,
            Task::Decrypt { .. } => Op::Decrypt,
            Task::Checksum { .. } => Op::Checksum,
            Task::Copy => Op::Copy,
        }
    }

    /// Returns the dialect written or read, for those tasks that have one.
    pub const fn dialect(&self) -> Option<Dialect> {
        match self {
            Task::Compress { dialect, .. } | Task::Decompress { dialect, .. } => Some(*dialect),
            Task::Encrypt { .. } | Task::Decrypt { .. } | Task::Checksum { .. } | Task::Copy => {
                None
            }
        }
    }

    /// Returns the exact size of the result for an input of that size. Returns none for compression, where only the run
    /// tells.
    pub const fn output_bytes(&self, input_bytes: usize) -> Option<usize> {
        match self {
            Task::Compress { .. } => None,
            Task::Decompress { original_bytes, .. } => Some(*original_bytes),
            Task::Encrypt { .. } => Some(input_bytes.saturating_add(TAG_BYTES)),
            Task::Decrypt { .. } => Some(input_bytes.saturating_sub(TAG_BYTES)),
            Task::Checksum { polynomial: Polynomial::Crc32c } => Some(4),
            Task::Checksum { polynomial: Polynomial::Crc64 } => Some(8),
            Task::Copy => Some(input_bytes),
        }
    }
}

/// The tenant that a job belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TenantId(pub u16);

/// The quality that a job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// Someone waits for this very job.
    #[default]
    LatencyCritical,
    /// Only the total counts.
    Batch,
}

/// A job that a device is done with.
#[derive(Debug)]
pub struct Completion {
    /// The job, with its buffers. After `Done` the output's length covers header space and result.
    pub job: Box<Job>,
    /// The outcome of the job.
    pub outcome: Outcome,
    /// The time that the device worked on it, without queueing.
    pub service: Nanos,
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The result is in `output[output_offset..output_offset + output_bytes]`.
    Done {
        /// Size of the result.
        output_bytes: usize,
    },
    /// Compression only: the stream does not fit the output buffer. The value is stored as it came.
    DoesNotFit,
    /// The device could not do it.
    Failed(DeviceError),
}

/// The reason why a device failed a job or did not open, sorted by who must act.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The caller: the input is not a valid stream of its dialect, or not of the stated size.
    InvalidInput(&'static str),
    /// The runtime: the device is gone; redo the job elsewhere and retire the device.
    Lost,
    /// The runtime: the device has no room for it now; do it elsewhere, the device lives.
    Busy,
    /// Nobody: the job was given up and the device let go of it.
    Cancelled,
    /// The runtime: no completion in time; the buffers stay the device's until it lets go.
    Timeout,
    /// The runtime: a passing fault; redo the job elsewhere, the device lives.
    Fault(&'static str),
    /// The operator: the device is there and cannot be used as configured.
    Misconfigured(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceError::InvalidInput(what) => write!(f, "invalid input: {what}"),
            DeviceError::Lost => f.write_str("device lost"),
            DeviceError::Busy => f.write_str("the device has no room for the job"),
            DeviceError::Cancelled => f.write_str("given up"),
            DeviceError::Timeout => f.write_str("no completion in time"),
            DeviceError::Fault(what) => write!(f, "device fault: {what}"),
            DeviceError::Misconfigured(what) => write!(f, "misconfigured: {what}"),
        }
    }
}

impl std::error::Error for DeviceError {}
