//! The traits [`Device`] and [`Queue`]. The crate's documentation states their life cycle and their promises.

use std::sync::Arc;
use std::task::Waker;

use units::{ByteCount, Nanos, Op};

use crate::buffer::Memory;
use crate::cipher::TAG_BYTES;
use crate::codec::Dialect;
use crate::job::{Completion, DeviceError, Job, Polynomial, Task};
use crate::kernels::Kernel;

/// A device that runs jobs. Threads share a device, and each thread opens its own queue.
pub trait Device: Send + Sync {
    /// Returns the name that configuration, metrics and completions use.
    fn name(&self) -> &str;

    /// Returns the jobs that the device accepts, and how a caller learns of completions.
    fn capabilities(&self) -> &Capabilities;

    /// Opens a queue for the calling thread. A [`Waiting::Signalled`] device calls `waker` whenever a
    /// completion becomes ready.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] or [`DeviceError::Misconfigured`].
    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError>;

    /// Returns whether jobs complete even if the submitting thread does nothing but poll. Only then may a
    /// caller wait in a loop of polls (sync offload).
    fn completes_alone(&self) -> bool {
        true
    }

    /// Returns whether this process's own codecs compute the device's results. Such results are not verified,
    /// because the verification would run the same code again.
    fn runs_own_code(&self) -> bool {
        false
    }

    /// Returns whether the device takes only ciphers whose key has a name ([`crate::Key::with_name`]), because another
    /// process finds the key by it.
    fn needs_named_keys(&self) -> bool {
        false
    }

    /// Returns the successions of ops that the device runs without giving the work back in between.
    fn successions(&self) -> Successions {
        Successions::default()
    }

    /// Returns memory from which the device reads inputs in place. The device copies inputs from other
    /// memory. A server reads values from their sockets into a pool over this memory. All queues of the
    /// device read it, including queues that are opened later.
    fn input_memory(&self) -> Option<Arc<dyn Memory>> {
        None
    }

    /// Returns the named counts that are specific to this kind of device, since its start. Metrics show them
    /// with the device's other counts.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// One thread's queue of a device.
pub trait Queue {
    /// Submits the job, or returns it at once with the reason for the refusal.
    ///
    /// # Errors
    /// [`Refused`] contains the job unchanged.
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused>;

    /// Moves finished jobs to `done` in any order and returns their number. Never blocks.
    fn poll(&mut self, done: &mut Vec<Completion>) -> usize;

    /// Returns the number of jobs submitted and not yet returned by `poll`, in constant time.
    fn pending(&self) -> usize;

    /// Returns whether [`Queue::job_in_flight`] finds every job in flight. This is the case if jobs stay with the
    /// thread that submitted them.
    fn shows_jobs(&self) -> bool {
        false
    }

    /// Returns the job in flight with this tag, which `poll` has not returned yet. It is for a caller that
    /// stops waiting and wants to do the job elsewhere. The parameters, the input, and the output up to
    /// `output_offset` are unchanged since the submission.
    fn job_in_flight(&self, _tag: u64) -> Option<&Job> {
        None
    }

    /// Declares that the caller no longer waits for the job with this tag. A device that can release the job
    /// early fails it with [`DeviceError::Cancelled`]. Any other device finishes the job as usual.
    fn cancel(&mut self, _tag: u64) {}
}

/// The successions of ops that a device runs without giving the work back in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Successions {
    /// The device returns a job after its own op.
    #[default]
    None,
    /// The device runs whole chains, whatever their ops.
    All,
    /// These pairs of ops, of which the second may follow the first.
    Pairs(Vec<(Op, Op)>),
}

impl Successions {
    /// Returns whether the second op may follow the first.
    pub fn has(&self, first: Op, second: Op) -> bool {
        match self {
            Successions::None => false,
            Successions::All => true,
            Successions::Pairs(pairs) => pairs.contains(&(first, second)),
        }
    }
}

/// A job that the device did not accept.
#[derive(Debug)]
pub struct Refused {
    /// The job, unchanged.
    pub job: Box<Job>,
    /// The reason.
    pub reason: RefusedReason,
}

/// The reason why a device did not accept a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// The queue is full now; a later submission may succeed.
    Full,
    /// The job is outside [`Capabilities`]. The device will refuse the same job again.
    Unsupported,
    /// The device is lost.
    Lost,
}

/// The jobs that a device accepts.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The dialects that the device writes (compress).
    pub writes: Vec<Dialect>,
    /// The dialects that the device reads (decompress).
    pub reads: Vec<Dialect>,
    /// The kernels that the device has, other than codecs.
    pub kernels: Vec<Kernel>,
    /// Whether the device writes and reads streams with a dictionary ([`crate::Dictionary`]).
    pub dictionaries: bool,
    /// The largest uncompressed side of a job, or the largest result of an encryption.
    pub work_bytes_max: ByteCount,
    /// The largest number of jobs in one queue.
    pub queue_depth: usize,
    /// How a caller learns of completions.
    pub waiting: Waiting,
}

impl Capabilities {
    /// Returns whether the device has an op for some parameters.
    pub fn has_op(&self, op: Op) -> bool {
        let has = |kernel| self.kernels.contains(&kernel);
        match op {
            Op::Compress => !self.writes.is_empty(),
            Op::Decompress => !self.reads.is_empty(),
            Op::Encrypt | Op::Decrypt => has(Kernel::AesGcm),
            Op::Checksum => has(Kernel::Crc32c) || has(Kernel::Crc64),
            Op::Copy => has(Kernel::Copy),
            Op::Serialize => has(Kernel::Serialize),
            Op::Deserialize => has(Kernel::Deserialize),
            Op::Rpc => has(Kernel::Rpc),
            Op::LoadBalance => has(Kernel::LoadBalance),
            Op::Tcp | Op::Notify => false,
        }
    }

    /// Returns whether the device accepts a job with this task and size ([`Job::work_bytes`]).
    pub fn accepts(&self, task: &Task, work_bytes: usize) -> bool {
        let has = |kernel| self.kernels.contains(&kernel);
        let side_bytes = match task {
            Task::Encrypt { .. } => work_bytes.saturating_add(TAG_BYTES),
            _ => work_bytes,
        };
        let fits = side_bytes as u64 <= self.work_bytes_max.0;
        let dictionary = task.dialect().is_some_and(|dialect| dialect.codec.needs_dictionary());
        if dictionary {
            return fits && self.dictionaries;
        }
        fits && match task {
            Task::Compress { dialect, .. } => {
                self.writes.iter().any(|supported| supported.satisfies(*dialect, work_bytes))
            }
            Task::Decompress { dialect, .. } => {
                self.reads.iter().any(|supported| dialect.satisfies(*supported, work_bytes))
            }
            Task::Encrypt { .. } | Task::Decrypt { .. } => has(Kernel::AesGcm),
            Task::Checksum { polynomial: Polynomial::Crc32c } => has(Kernel::Crc32c),
            Task::Checksum { polynomial: Polynomial::Crc64 } => has(Kernel::Crc64),
            Task::Copy => has(Kernel::Copy),
            Task::Function(function) => has(function.kind().kernel()),
        }
    }
}

/// How a caller learns of a queue's completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The job is finished when `try_submit` returns, and `poll` returns it.
    Inline,
    /// The caller must poll.
    Polled {
        /// The typical time to completion, after which the first poll is useful.
        expected: Nanos,
    },
    /// The device calls the waker that was given to `open_queue`.
    Signalled,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::{AssociatedData, KEY_BYTES, Key, NONCE_BYTES, Nonce};

    #[test]
    fn capabilities_count_tags_and_name_kernels() {
        let mut capabilities = Capabilities {
            writes: Vec::new(),
            reads: Vec::new(),
            kernels: vec![Kernel::AesGcm],
            dictionaries: false,
            work_bytes_max: ByteCount(1_000),
            queue_depth: 1,
            waiting: Waiting::Inline,
        };
        let (key, nonce) = (Key::new(&[0; KEY_BYTES]), Nonce([0; NONCE_BYTES]));
        let associated = AssociatedData::NONE;
        let encrypt = Task::Encrypt { key: key.clone(), nonce, associated: associated.clone() };
        let decrypt = Task::Decrypt { key, nonce, associated };
        let sizes = [984, 985, 1_000, 1_001, usize::MAX];
        assert_eq!(
            sizes.map(|size| capabilities.accepts(&encrypt, size)),
            [true, false, false, false, false]
        );
        assert_eq!(
            sizes.map(|size| capabilities.accepts(&decrypt, size)),
            [true, true, true, false, false]
        );
        let others = [
            (Kernel::Crc32c, Task::Checksum { polynomial: Polynomial::Crc32c }),
            (Kernel::Crc64, Task::Checksum { polynomial: Polynomial::Crc64 }),
            (Kernel::Copy, Task::Copy),
        ];
        for (kernel, task) in others {
            capabilities.kernels = vec![Kernel::AesGcm];
            assert!(!capabilities.accepts(&task, 10), "{task:?}");
            capabilities.kernels = vec![kernel];
            assert!(
                capabilities.accepts(&task, 10) && !capabilities.accepts(&encrypt, 10),
                "{task:?}"
            );
        }
    }
}
