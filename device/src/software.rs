//! The calling core as a device. Jobs run inside `try_submit`, and `poll` returns them. This device always exists, so
//! every job can run somewhere. It never waits and starts no thread.

use std::task::Waker;

use crate::codec::{Codec, EngineFactory};
use crate::engines::{BUILT_IN, EngineSet};
use crate::job::{Completion, DeviceError, Job};
use crate::queue::{Capabilities, Device, Queue, Refused, RefusedReason, Successions, Waiting};

/// The calling core, with the given engines.
#[derive(Debug)]
pub struct Software {
    factories: Vec<EngineFactory>,
    engines: Vec<(&'static str, Codec)>,
    capabilities: Capabilities,
}

impl Software {
    /// Makes a device over the given engines. The first engine that writes a dialect is its writer, and the first
    /// engine that reads a codec is its reader.
    pub fn new(factories: &[EngineFactory]) -> Self {
        let set = EngineSet::open(factories);
        Self {
            factories: factories.to_vec(),
            engines: set.names(),
            capabilities: Capabilities {
                dictionaries: true,
                ..set.capabilities(QUEUE_DEPTH, Waiting::Inline)
            },
        }
    }

    /// Returns the name and the codec of each engine, the most preferred writer first.
    pub fn engines(&self) -> &[(&'static str, Codec)] {
        &self.engines
    }
}

impl Default for Software {
    /// Makes a device over the engines of this crate: libdeflate, zstd, lz4_flex.
    fn default() -> Self {
        Self::new(&BUILT_IN)
    }
}

impl Device for Software {
    fn name(&self) -> &str {
        "software"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn runs_own_code(&self) -> bool {
        true
    }

    fn successions(&self) -> Successions {
        Successions::All
    }

    fn open_queue(&self, _waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        Ok(Box::new(SoftwareQueue {
            set: EngineSet::open(&self.factories),
            capabilities: self.capabilities.clone(),
            finished: Vec::with_capacity(QUEUE_DEPTH),
        }))
    }
}

/// One thread's engines and the jobs that `poll` has not yet returned.
struct SoftwareQueue {
    set: EngineSet,
    capabilities: Capabilities,
    finished: Vec<Completion>,
}

impl Queue for SoftwareQueue {
    fn try_submit(&mut self, mut job: Box<Job>) -> Result<(), Refused> {
        if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if self.finished.len() >= self.capabilities.queue_depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let (outcome, service) = self.set.run_timed(&mut job);
        self.finished.push(Completion { job, outcome, service });
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        let count = self.finished.len();
        done.append(&mut self.finished);
        count
    }

    fn pending(&self) -> usize {
        self.finished.len()
    }
}

/// The depth of a queue. Jobs complete within their submission, so the depth only bounds the completions that wait
/// for a poll.
const QUEUE_DEPTH: usize = 64;
