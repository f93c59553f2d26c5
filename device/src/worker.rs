//! Other cores as a device: named threads with engines of their own take jobs from one bounded
//! channel, so that a large codec job does not stall its caller. It refuses rather than blocks, and
//! never chooses which jobs come.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use units::Nanos;

use crate::codec::EngineFactory;
use crate::engines::EngineSet;
use crate::job::{Completion, DeviceError, Job, Outcome};
use crate::queue::{Capabilities, Device, Queue, Refused, RefusedReason, Waiting};

/// A pool of threads that run jobs. Dropping it lets the accepted jobs finish and joins the
/// threads; a queue that outlives it refuses as lost.
#[derive(Debug)]
pub struct Worker {
    /// The only strong sender: without it the threads run out of work and end.
    work: Option<Arc<Sender<Work>>>,
    threads: Vec<JoinHandle<()>>,
    capabilities: Capabilities,
}

impl Worker {
    /// Starts `threads` threads, each with the given engines; one queue holds at most `queue_depth`
    /// jobs, and so do all queues together before a thread takes them.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`] when the system gives no thread.
    pub fn start(
        threads: NonZeroUsize,
        queue_depth: NonZeroUsize,
        factories: &[EngineFactory],
    ) -> Result<Self, DeviceError> {
        let capabilities =
            EngineSet::open(factories).capabilities(queue_depth.get(), Waiting::Signalled);
        let (sender, receiver) = bounded(queue_depth.get());
        let mut worker = Self { work: Some(Arc::new(sender)), threads: Vec::new(), capabilities };
        for index in 0..threads.get() {
            let (receiver, factories) = (receiver.clone(), factories.to_vec());
            let thread = thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || serve(&receiver, &factories))
                .map_err(|error| {
                    let count = threads.get();
                    DeviceError::Misconfigured(format!("thread {index} of {count}: {error}"))
                })?;
            worker.threads.push(thread);
        }
        Ok(worker)
    }
}

impl Device for Worker {
    fn name(&self) -> &str {
        "worker"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let work = self.work.as_ref().map(Arc::downgrade).ok_or(DeviceError::Lost)?;
        let (finished, done) = bounded(self.capabilities.queue_depth);
        let signal = Arc::new(Signal { waker, woken: AtomicBool::new(false) });
        let capabilities = self.capabilities.clone();
        Ok(Box::new(WorkerQueue { work, capabilities, finished, done, signal, pending: 0 }))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.work.take());
        let current = thread::current().id();
        for thread in self.threads.drain(..) {
            // The last owner may be a waker's doing, on a thread of ours: that one ends by itself.
            if thread.thread().id() != current {
                // A thread ends with a panic only after its jobs came back as lost.
                let _ = thread.join();
            }
        }
    }
}

/// One thread's way in. Dropping it detaches the jobs inside: their completions find no receiver.
struct WorkerQueue {
    work: Weak<Sender<Work>>,
    capabilities: Capabilities,
    finished: Sender<Completion>,
    done: Receiver<Completion>,
    signal: Arc<Signal>,
    pending: usize,
}

impl Queue for WorkerQueue {
    fn try_submit(&mut self, job: Box<Job>) -> Result<(), Refused> {
        if !self.capabilities.accepts(&job.task, job.work_bytes()) {
            return Err(Refused { job, reason: RefusedReason::Unsupported });
        }
        if self.pending >= self.capabilities.queue_depth {
            return Err(Refused { job, reason: RefusedReason::Full });
        }
        let Some(sender) = self.work.upgrade() else {
            return Err(Refused { job, reason: RefusedReason::Lost });
        };
        let reply = Reply { finished: self.finished.clone(), signal: Arc::clone(&self.signal) };
        let refused = match sender.try_send(Work { job: Some(job), reply }) {
            Ok(()) => {
                self.pending += 1;
                return Ok(());
            }
            Err(TrySendError::Full(work)) => (work, RefusedReason::Full),
            Err(TrySendError::Disconnected(work)) => (work, RefusedReason::Lost),
        };
        let (mut work, reason) = refused;
        let job = work.job.take().expect("only a thread takes the job out of its work");
        Err(Refused { job, reason })
    }

    fn poll(&mut self, done: &mut Vec<Completion>) -> usize {
        // Before the channel is drained: whoever sends after the drain finds the flag down and
        // wakes.
        self.signal.woken.swap(false, Ordering::AcqRel);
        let before = done.len();
        done.extend(self.done.try_iter());
        let count = done.len() - before;
        self.pending -= count;
        count
    }

    fn pending(&self) -> usize {
        self.pending
    }
}

/// A job on its way through the channel. Dropped unanswered (its thread panicked, the channel
/// closed), it comes back as lost.
struct Work {
    job: Option<Box<Job>>,
    reply: Reply,
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let outcome = Outcome::Failed(DeviceError::Lost);
            self.reply.send(Completion { job, outcome, service: Nanos(0) });
        }
    }
}

/// Where a job's completion goes.
struct Reply {
    finished: Sender<Completion>,
    signal: Arc<Signal>,
}

impl Reply {
    /// Never blocks: a queue's channel holds as many completions as the queue may have jobs.
    /// Without a receiver the queue is gone and the job's buffers go with the completion.
    fn send(&self, completion: Completion) {
        if self.finished.try_send(completion).is_ok() {
            self.signal.wake();
        }
    }
}

/// The queue's waker, called once for all completions between two polls.
struct Signal {
    waker: Waker,
    woken: AtomicBool,
}

impl Signal {
    fn wake(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.waker.wake_by_ref();
        }
    }
}

fn serve(receiver: &Receiver<Work>, factories: &[EngineFactory]) {
    let mut set = EngineSet::open(factories);
    for mut work in receiver {
        let Some(job) = work.job.as_mut() else { continue };
        let start = Instant::now();
        let outcome = set.run(job);
        let service = Nanos::from(start.elapsed());
        if let Some(job) = work.job.take() {
            work.reply.send(Completion { job, outcome, service });
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use units::ByteCount;

    use super::*;
    use crate::buffer::{Input, Pool};
    use crate::codec::{Codec, Dialect, Engine, EngineError, Level};
    use crate::engines::BUILT_IN;
    use crate::job::Task;

    fn start(threads: usize, depth: usize, factories: &[EngineFactory]) -> Worker {
        let count = |count| NonZeroUsize::new(count).expect("not zero");
        Worker::start(count(threads), count(depth), factories).expect("threads start")
    }

    fn job(bytes: usize) -> Box<Job> {
        let task = Task::Compress { dialect: Dialect::of(Codec::Lz4), level: Level::Fast };
        let output = Pool::heap(ByteCount(0)).take(2 * bytes);
        Box::new(Job::new(task, Input::heap(Bytes::from(vec![7; bytes])), output))
    }

    fn open(worker: &Worker) -> Box<dyn Queue> {
        worker.open_queue(Waker::noop().clone()).expect("a healthy device")
    }

    #[test]
    fn a_dropped_device_finishes_what_it_took_and_its_queues_refuse_as_lost() {
        let worker = start(2, 8, &BUILT_IN);
        let mut queue = open(&worker);
        for _ in 0..8 {
            queue.try_submit(job(100_000)).expect("room for eight");
        }
        drop(worker);
        let mut done = Vec::new();
        assert_eq!(queue.poll(&mut done), 8, "the threads are joined");
        assert!(done.iter().all(|own| matches!(own.outcome, Outcome::Done { .. })));
        let refused = queue.try_submit(job(10)).expect_err("no threads");
        assert_eq!((refused.reason, queue.pending()), (RefusedReason::Lost, 0));
    }

    /// An engine with the worst of bugs.
    struct Panicking;

    impl Engine for Panicking {
        fn name(&self) -> &'static str {
            "panicking"
        }
        fn codec(&self) -> Codec {
            Codec::Lz4
        }
        fn writes(&self, dialect: Dialect, _: usize) -> bool {
            dialect == Dialect::of(Codec::Lz4)
        }
        fn compress(
            &mut self,
            _: Dialect,
            _: Level,
            _: &[u8],
            _: &mut [u8],
        ) -> Result<usize, EngineError> {
            panic!("a bug in an engine");
        }
        fn decompress(&mut self, _: &[u8], _: &mut [u8]) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    #[test]
    fn jobs_of_a_panicking_engine_come_back_as_lost() {
        let worker = start(1, 4, &[|| Box::new(Panicking)]);
        let mut queue = open(&worker);
        for _ in 0..3 {
            // The thread may be gone before the next submission.
            let _ = queue.try_submit(job(100));
        }
        drop(worker);
        let mut done = Vec::new();
        queue.poll(&mut done);
        assert_eq!(queue.pending(), 0);
        assert!(!done.is_empty());
        let lost = Outcome::Failed(DeviceError::Lost);
        assert!(done.iter().all(|completion| completion.outcome == lost));
    }
}
