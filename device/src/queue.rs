//! The two traits of the contract. The crate's documentation states the life cycle and the promises of both sides.

use std::sync::Arc;
use std::task::Waker;

use units::{ByteCount, Nanos};

use crate::buffer::Memory;
use crate::cipher::TAG_BYTES;
use crate::codec::Dialect;
use crate::job::{Completion, DeviceError, Job, Polynomial, Task};
use crate::kernels::Kernel;

/// Something that runs jobs. Shared between threads; each thread opens a queue of its own.
pub trait Device: Send + Sync {
    /// Returns the name that configuration, metrics and completions use.
    fn name(&self) -> &str;

    /// Returns what it accepts and how its completions are learnt.
    fn capabilities(&self) -> &Capabilities;

    /// Opens one thread's way in. A [`Waiting::Signalled`] device calls `waker` whenever a completion became ready.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] or [`DeviceError::Misconfigured`].
    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError>;

    /// Returns whether jobs finish while the thread that submitted them does nothing but poll. Sync offload is legal
    /// only then.
    fn completes_alone(&self) -> bool {
        true
    }

    /// Returns whether its results are made by codecs of this process. Such a device is not verified, because reading
    /// its results back would run the same code again.
    fn runs_own_code(&self) -> bool {
        false
    }

    /// Returns memory from which it reads inputs in place. An input from elsewhere costs it a copy. A server reads
    /// values from their sockets into a pool over this memory. Every queue of the device reads it, including those
    /// opened later.
    fn input_memory(&self) -> Option<Arc<dyn Memory>> {
        None
    }

    /// Returns the counts that only this kind of device has, since the start, by name. They are shown with the device's
    /// other metrics.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// One thread's way into a device.
pub trait Queue {
    /// Takes the job, or hands it back at once with the reason.
    ///
    /// # Errors
    /// [`Refused`] carries the job untouched.
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused>;

    /// Moves finished jobs to `done`, any order, and says how many. Never blocks.
    fn poll(&mut self, done: &mut Vec<Completion>) -> usize;

    /// Returns the number of jobs submitted and not yet returned by `poll`, in constant time.
    fn pending(&self) -> usize;

    /// Returns whether [`Queue::inside`] finds every job inside. It can if jobs stay with the thread that submitted
    /// them.
    fn shows_jobs(&self) -> bool {
        false
    }

    /// Returns the job of this tag, submitted and not yet returned by `poll`. It is for a caller that stops waiting and
    /// wants to do the job elsewhere. Its parameters, input, and output up to `output_offset` are as they were
    /// submitted.
    fn inside(&self, _tag: u64) -> Option<&Job> {
        None
    }

    /// Says that nobody waits for the job of this tag any more. A device that can let go of it early returns it as
    /// failed with [`DeviceError::Cancelled`]. Any other device finishes it as usual.
    fn cancel(&mut self, _tag: u64) {}
}

/// A job that was not taken.
#[derive(Debug)]
pub struct Refused {
    /// The job, untouched.
    pub job: Box<Job>,
    /// The reason.
    pub reason: RefusedReason,
}

/// The reason why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// The queue is full now; a later submission may succeed.
    Full,
    /// The job is outside [`Capabilities`]. The same job will be refused again.
    Unsupported,
    /// The device is gone.
    Lost,
}

/// The jobs that a device accepts.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Dialects it writes (compress).
    pub writes: Vec<Dialect>,
    /// Dialects it reads (decompress).
    pub reads: Vec<Dialect>,
    /// The kernels that it has beside the codecs.
    pub kernels: Vec<Kernel>,
    /// The largest uncompressed side of a job; for an encryption, its result.
    pub work_bytes_max: ByteCount,
    /// The most jobs that one queue holds.
    pub queue_depth: usize,
    /// The way in which completions are learnt.
    pub waiting: Waiting,
}

impl Capabilities {
    /// Returns whether a job of this task and size ([`Job::work_bytes`]) is accepted.
    pub fn accepts(&self, task: &Task, work_bytes: usize) -> bool {
        let has = |kernel| self.kernels.contains(&kernel);
        let side_bytes = match task {
            Task::Encrypt { .. } => work_bytes.saturating_add(TAG_BYTES),
            _ => work_bytes,
        };
        let fits = side_bytes as u64 <= self.work_bytes_max.0;
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
        }
    }
}

/// The way in which a queue's completions are learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The job is finished when `try_submit` returns; `poll` hands it over.
    Inline,
    /// Someone must poll.
    Polled {
        /// Typical time to completion: when the first poll pays.
        expected: Nanos,
    },
    /// The waker given to `open_queue` is called.
    Signalled,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::{KEY_BYTES, Key, NONCE_BYTES, Nonce};

    #[test]
    fn capabilities_count_tags_and_name_kernels() {
        let mut capabilities = Capabilities {
            writes: Vec::new(),
            reads: Vec::new(),
            kernels: vec![Kernel::AesGcm],
            work_bytes_max: ByteCount(1_000),
            queue_depth: 1,
            waiting: Waiting::Inline,
        };
        let (key, nonce) = (Key::new(&[0; KEY_BYTES]), Nonce([0; NONCE_BYTES]));
        let encrypt = Task::Encrypt { key: key.clone(), nonce };
        let decrypt = Task::Decrypt { key, nonce };
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
