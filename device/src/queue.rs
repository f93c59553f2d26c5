//! The two traits of the contract. The crate's documentation states the life cycle and what may be
//! relied on.

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
    /// The name that configuration, metrics and completions use.
    fn name(&self) -> &str;

    /// What it accepts and how its completions are learnt.
    fn capabilities(&self) -> &Capabilities;

    /// One thread's way in. A [`Waiting::Signalled`] device calls `waker` whenever a completion
    /// became ready.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] or [`DeviceError::Misconfigured`].
    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError>;

    /// Whether jobs finish while the thread that submitted them does nothing but poll: sync offload is legal only
    /// then.
    fn completes_alone(&self) -> bool {
        true
    }

    /// Whether its results are made by codecs of this process. Such a device is not verified: to read its results back
    /// would run the same code again.
    fn runs_own_code(&self) -> bool {
        false
    }

    /// Memory that it reads inputs from where they are; an input from elsewhere costs it a copy. Who serves values
    /// reads them from their sockets into a pool over it. Every queue of the device reads it, those opened later too.
    fn input_memory(&self) -> Option<Arc<dyn Memory>> {
        None
    }

    /// What only this kind of device counts, since the start, by name; shown with the device's other metrics.
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

    /// Jobs submitted and not yet returned by `poll`; constant time.
    fn pending(&self) -> usize;

    /// Whether [`Queue::inside`] finds every job inside. It can where jobs stay with the thread that submitted them.
    fn shows_jobs(&self) -> bool {
        false
    }

    /// The job of this tag, submitted and not yet returned by `poll`, for whoever will wait for it no longer and wants
    /// to do it elsewhere. Its parameters, input, and output up to `output_offset` are as they were submitted.
    fn inside(&self, _tag: u64) -> Option<&Job> {
        None
    }

    /// Word that nobody waits for the job of this tag any more. A device that can let go of it early returns it as
    /// failed with [`DeviceError::Cancelled`]; any other finishes it as ever.
    fn cancel(&mut self, _tag: u64) {}
}

/// A job that was not taken.
#[derive(Debug)]
pub struct Refused {
    /// The job, untouched.
    pub job: Box<Job>,
    /// Why.
    pub reason: RefusedReason,
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// The queue is full now; a later submission may succeed.
    Full,
    /// Outside [`Capabilities`]; the same job will be refused again.
    Unsupported,
    /// The device is gone.
    Lost,
}

/// What a device accepts.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Dialects it writes (compress).
    pub writes: Vec<Dialect>,
    /// Dialects it reads (decompress).
    pub reads: Vec<Dialect>,
    /// What it does beside the codecs.
    pub kernels: Vec<Kernel>,
    /// Largest uncompressed side of a job; for an encryption, its result.
    pub work_bytes_max: ByteCount,
    /// Jobs that one queue holds at most.
    pub queue_depth: usize,
    /// How completions are learnt.
    pub waiting: Waiting,
}

impl Capabilities {
    /// Whether a job of this task and size ([`Job::work_bytes`]) is accepted.
    pub fn accepts(&self, task: &Task, work_bytes: usize) -> bool {
        let has = |kernel| self.kernels.contains(&kernel);
        let side_bytes = match task {
            Task::Encrypt { .. } => work_bytes.saturating_add(TAG_BYTES),
            _ => work_bytes,
        };
        let fits = side_bytes as u64 <= self.work_bytes_max.0;
        fits && match task {
            Task::Compress { dialect, .. } => {
                self.writes.iter().any(|own| own.satisfies(*dialect, work_bytes))
            }
            Task::Decompress { dialect, .. } => {
                self.reads.iter().any(|own| dialect.satisfies(*own, work_bytes))
            }
            Task::Encrypt { .. } | Task::Decrypt { .. } => has(Kernel::AesGcm),
            Task::Checksum { polynomial: Polynomial::Crc32c } => has(Kernel::Crc32c),
            Task::Checksum { polynomial: Polynomial::Crc64 } => has(Kernel::Crc64),
            Task::Copy => has(Kernel::Copy),
        }
    }
}

/// How a queue's completions are learnt.
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
    fn an_encryption_needs_room_for_its_tag_and_every_kernel_is_asked_for_by_name() {
        let mut own = Capabilities {
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
            sizes.map(|size| own.accepts(&encrypt, size)),
            [true, false, false, false, false]
        );
        assert_eq!(sizes.map(|size| own.accepts(&decrypt, size)), [true, true, true, false, false]);
        let others = [
            (Kernel::Crc32c, Task::Checksum { polynomial: Polynomial::Crc32c }),
            (Kernel::Crc64, Task::Checksum { polynomial: Polynomial::Crc64 }),
            (Kernel::Copy, Task::Copy),
        ];
        for (kernel, task) in others {
            own.kernels = vec![Kernel::AesGcm];
            assert!(!own.accepts(&task, 10), "{task:?}");
            own.kernels = vec![kernel];
            assert!(own.accepts(&task, 10) && !own.accepts(&encrypt, 10), "{task:?}");
        }
    }
}
