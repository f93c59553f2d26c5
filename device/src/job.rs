//! Jobs and their outcomes. This module has values only: it neither runs a job nor decides where a job runs.

use std::fmt;
use std::sync::Arc;

use units::{Nanos, Op, TraceContext};

use crate::buffer::{Buffer, Input};
use crate::chain::Chain;
use crate::cipher::{AssociatedData, Key, KeyName, Nonce, TAG_BYTES};
use crate::codec::{Dialect, Level};
use crate::dictionary::Dictionary;
use crate::function::Function;

/// One op with its parameters. A job owns its buffers and always returns to the submitter.
#[derive(Debug)]
pub struct Job {
    /// Identifies the job to its submitter. The device returns it unchanged.
    pub tag: u64,
    /// The op and its parameters.
    pub task: Task,
    /// The bytes that the op reads.
    pub input: Input,
    /// The buffer for the result, which begins at `output_offset` and ends within the buffer's capacity.
    pub output: Buffer,
    /// The number of bytes at the start of `output` that the device leaves to the caller, for a header.
    pub output_offset: usize,
    /// The tenant of the job. Limits and fairness are per tenant.
    pub tenant: TenantId,
    /// The service class of the job.
    pub class: Class,
    /// The time on the runtime's clock after which the result is of no use.
    pub deadline: Option<Nanos>,
    /// The dictionary of the stream, for a task whose codec needs one ([`units::Codec::needs_dictionary`]).
    pub dictionary: Option<Arc<Dictionary>>,
    /// The ops that follow the job's own op.
    pub chain: Option<Box<Chain>>,
    /// The trace of the request that needs the job, if that is recorded. A device in another process records the job
    /// too.
    pub trace: Option<Box<TraceContext>>,
}

impl Job {
    /// Makes a latency-critical job of the default tenant, without a deadline and without header space.
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
            dictionary: None,
            chain: None,
            trace: None,
        }
    }

    /// Returns the size that costs depend on (bytes): the size of the input, or of the result if the job decompresses.
    pub fn work_bytes(&self) -> usize {
        match self.task {
            Task::Decompress { original_bytes, .. } => original_bytes,
            Task::Compress { .. }
            | Task::Encrypt { .. }
            | Task::Decrypt { .. }
            | Task::Checksum { .. }
            | Task::Copy
            | Task::Function(_) => self.input.len(),
        }
    }
}

/// An op with its parameters. Only a compression may complete with a result that does not fit. For any other task, an
/// output buffer without space for the result is [`DeviceError::InvalidInput`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Compresses the whole input into one stream.
    Compress {
        /// The dialect of the result.
        dialect: Dialect,
        /// The effort of the compression.
        level: Level,
    },
    /// Decompresses one stream.
    Decompress {
        /// The dialect of the stream.
        dialect: Dialect,
        /// The exact size of the result (bytes). The output buffer has space for it.
        original_bytes: usize,
    },
    /// Encrypts by AES-256-GCM. The result is the ciphertext, which is as long as the input, followed by the tag
    /// ([`TAG_BYTES`]).
    Encrypt {
        /// The expanded key.
        key: Key,
        /// A nonce that was never used before under this key.
        nonce: Nonce,
        /// The bytes that the tag covers besides the ciphertext.
        associated: AssociatedData,
    },
    /// Decrypts the result of [`Task::Encrypt`]. A wrong tag is [`DeviceError::InvalidInput`] and leaves no plaintext
    /// in the output.
    Decrypt {
        /// The expanded key.
        key: Key,
        /// The nonce of the encryption.
        nonce: Nonce,
        /// The associated data of the encryption.
        associated: AssociatedData,
    },
    /// Computes the input's checksum. The result is only the checksum, little-endian.
    Checksum {
        /// The kind of checksum.
        polynomial: Polynomial,
    },
    /// Copies the input.
    Copy,
    /// Runs a function of the caller. Its result may be longer than the output buffer, which then adopts it.
    Function(Function),
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
            Task::Function(function) => function.kind().op(),
        }
    }

    /// Returns whether the task needs a key.
    pub const fn is_cipher(&self) -> bool {
        matches!(self, Task::Encrypt { .. } | Task::Decrypt { .. })
    }

    /// Returns the parameters of a cipher whose key has a name. Returns none for any other task.
    pub fn named_cipher(&self) -> Option<(KeyName, &Nonce, &AssociatedData)> {
        match self {
            Task::Encrypt { key, nonce, associated } | Task::Decrypt { key, nonce, associated } => {
                Some((key.name()?, nonce, associated))
            }
            _ => None,
        }
    }

    /// Returns the dialect that the task writes or reads. Returns none if the task has no dialect.
    pub const fn dialect(&self) -> Option<Dialect> {
        match self {
            Task::Compress { dialect, .. } | Task::Decompress { dialect, .. } => Some(*dialect),
            Task::Encrypt { .. }
            | Task::Decrypt { .. }
            | Task::Checksum { .. }
            | Task::Copy
            | Task::Function(_) => None,
        }
    }

    /// Returns the exact size of the result for an input of this size. Returns none for a compression and for a
    /// function, whose sizes are known only after the run.
    pub const fn output_bytes(&self, input_bytes: usize) -> Option<usize> {
        match self {
            Task::Compress { .. } | Task::Function(_) => None,
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

/// The quality of service that a job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Class {
    /// A client waits for this job.
    #[default]
    LatencyCritical,
    /// No client waits for this job, so only the throughput counts.
    Batch,
}

/// A job that a device has completed.
#[derive(Debug)]
pub struct Completion {
    /// The job, with its buffers. After `Done` the output's length covers the header space and the result.
    pub job: Box<Job>,
    /// The outcome of the job.
    pub outcome: Outcome,
    /// The time for which the device worked on the job, without queueing. For a job with a chain it is the time of the
    /// op that the job states; the ops before it have theirs in the chain.
    pub service: Nanos,
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The result is in `output[output_offset..output_offset + output_bytes]`.
    Done {
        /// The size of the result (bytes).
        output_bytes: usize,
    },
    /// The stream of a compression does not fit the output buffer. The value is stored without compression.
    DoesNotFit,
    /// The device failed the job.
    Failed(DeviceError),
}

/// The reason why a device failed a job or did not open. Each variant states who must act.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// The input is not a valid stream of its dialect, or not of the stated size. The caller must act.
    InvalidInput(&'static str),
    /// The device is lost. The runtime must do the job elsewhere and retire the device.
    Lost,
    /// The device has no capacity for the job now, but still works. The runtime must do the job elsewhere.
    Busy,
    /// The caller cancelled the job, and the device released it. No action is needed.
    Cancelled,
    /// The job exceeded its time limit. The runtime must act. The device owns the buffers until it releases
    /// them.
    Timeout,
    /// A transient fault occurred, and the device still works. The runtime must do the job elsewhere.
    Fault(&'static str),
    /// The device exists but cannot be used as configured. The operator must act.
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
