//! The two traits of the contract. The crate's documentation states the life cycle and what may be
//! relied on.

use std::task::Waker;

use units::{ByteCount, Nanos};

use crate::codec::Dialect;
use crate::job::{Completion, DeviceError, Job, Task};

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
    /// Largest uncompressed side of a job.
    pub work_bytes_max: ByteCount,
    /// Jobs that one queue holds at most.
    pub queue_depth: usize,
    /// How completions are learnt.
    pub waiting: Waiting,
}

impl Capabilities {
    /// Whether a job of this task and uncompressed size is accepted.
    pub fn accepts(&self, task: &Task, work_bytes: usize) -> bool {
        let dialect = task.dialect();
        let fits = work_bytes as u64 <= self.work_bytes_max.0;
        fits && match task {
            Task::Compress { .. } => {
                self.writes.iter().any(|own| own.satisfies(dialect, work_bytes))
            }
            Task::Decompress { .. } => {
                self.reads.iter().any(|own| dialect.satisfies(*own, work_bytes))
            }
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
