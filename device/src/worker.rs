//! A device that runs jobs on other cores. Named threads with their own engines receive jobs from one bounded
//! channel, so that a large codec job does not stall its caller. Either each thread is pinned to a core, or
//! no thread is. The device refuses a job instead of blocking. It does not choose which jobs it gets.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;
use units::{Nanos, cores};

use crate::codec::EngineFactory;
use crate::engines::EngineSet;
use crate::job::{Completion, DeviceError, Job, Outcome};
use crate::queue::{Capabilities, Device, Queue, Refused, RefusedReason, Successions, Waiting};

/// A pool of threads that run jobs. Dropping the pool lets the accepted jobs finish and joins the threads. A
/// queue that outlives the pool refuses jobs as lost.
#[derive(Debug)]
pub struct Worker {
    /// The only strong sender. When it is dropped, the threads run out of work and end.
    work: Option<Arc<Sender<Work>>>,
    threads: Vec<JoinHandle<()>>,
    cores: Vec<Option<usize>>,
    capabilities: Capabilities,
    /// The number of times that a thread continued after an engine panicked.
    restarts: Arc<AtomicU64>,
}

/// The cores that the threads of a [`Worker`] run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerCores {
    /// Each thread runs on one core. The first thread gets the last core that the starting thread may run on,
    /// the next thread gets the core in front of it, and so on, starting again at the last core when no cores
    /// remain. The first core is used last, so the caller has it as long as there are other cores.
    #[default]
    Last,
    /// The kernel chooses the cores. This is for several such processes on one machine, which would otherwise
    /// choose the same cores.
    Any,
}

impl Worker {
    /// Starts `threads` threads on the last cores, each with the given engines. One queue holds at most `queue_depth`
    /// jobs. All queues together hold at most `queue_depth` jobs that no thread has started.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`] when a thread cannot be started.
    pub fn start(
        threads: NonZeroUsize,
        queue_depth: NonZeroUsize,
        factories: &[EngineFactory],
    ) -> Result<Self, DeviceError> {
        Self::start_on(WorkerCores::Last, threads, queue_depth, factories)
    }

    /// Starts the threads like [`Worker::start`], on the cores that `cores` selects. A thread that the kernel
    /// does not pin to its core runs on any core. [`Worker::cores`] returns the result.
    ///
    /// # Errors
    /// [`DeviceError::Misconfigured`] when a thread cannot be started.
    pub fn start_on(
        cores: WorkerCores,
        threads: NonZeroUsize,
        queue_depth: NonZeroUsize,
        factories: &[EngineFactory],
    ) -> Result<Self, DeviceError> {
        let allowed = match cores {
            WorkerCores::Last => allowed(),
            WorkerCores::Any => Vec::new(),
        };
        Self::start_each(&from_the_last(&allowed, threads.get()), queue_depth, factories)
    }

    /// Starts one thread for each entry of `cores`. A thread whose entry is none is not pinned.
    fn start_each(
        cores: &[Option<usize>],
        queue_depth: NonZeroUsize,
        factories: &[EngineFactory],
    ) -> Result<Self, DeviceError> {
        let capabilities =
            EngineSet::open(factories).capabilities(queue_depth.get(), Waiting::Signalled);
        let (sender, receiver) = bounded(queue_depth.get());
        let work = Some(Arc::new(sender));
        let restarts = Arc::default();
        let mut worker =
            Self { work, threads: Vec::new(), cores: Vec::new(), capabilities, restarts };
        let (report, reports) = bounded(cores.len());
        for (index, core) in cores.iter().copied().enumerate() {
            let (receiver, factories, report) =
                (receiver.clone(), factories.to_vec(), report.clone());
            let restarts = Arc::clone(&worker.restarts);
            let thread = thread::Builder::new()
                .name(format!("worker-{index}"))
                .spawn(move || {
                    // The receiver is gone if another thread did not start. Then this thread ends.
                    let _ = report.send((index, core.filter(|core| cores::pin(*core).is_ok())));
                    drop(report);
                    serve(&receiver, &factories, &restarts);
                })
                .map_err(|error| {
                    let count = cores.len();
                    DeviceError::Misconfigured(format!("thread {index} of {count}: {error}"))
                })?;
            worker.threads.push(thread);
        }
        drop(report);
        let mut placed: Vec<_> = reports.iter().collect();
        placed.sort_unstable();
        worker.cores = placed.into_iter().map(|(_, core)| core).collect();
        Ok(worker)
    }

    /// Returns the core of each thread, or none for a thread that the kernel places.
    pub fn cores(&self) -> &[Option<usize>] {
        &self.cores
    }
}

/// Returns the cores that the calling thread may run on, or no cores if the system does not report them.
fn allowed() -> Vec<usize> {
    cores::allowed().unwrap_or_default()
}

/// Returns one core for each thread, starting with the last core.
fn from_the_last(allowed: &[usize], threads: usize) -> Vec<Option<usize>> {
    let cores = allowed.iter().rev().copied().cycle().map(Some);
    cores.chain(std::iter::repeat(None)).take(threads).collect()
}

impl Device for Worker {
    fn name(&self) -> &str {
        "worker"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn successions(&self) -> Successions {
        Successions::All
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("thread_restarts", self.restarts.load(Ordering::Relaxed))]
    }

    fn runs_own_code(&self) -> bool {
        true
    }

    fn open_queue(&self, waker: Waker) -> Result<Box<dyn Queue>, DeviceError> {
        let work = self.work.as_ref().map(Arc::downgrade).ok_or(DeviceError::Lost)?;
        let capabilities = self.capabilities.clone();
        let finished = Mutex::new(Some(Vec::with_capacity(capabilities.queue_depth)));
        let reply = Arc::new(Reply { finished, waker, woken: AtomicBool::new(false) });
        Ok(Box::new(WorkerQueue { work, capabilities, reply, pending: 0 }))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.work.take());
        let current = thread::current().id();
        for thread in self.threads.drain(..) {
            // A waker may drop the last owner on one of these threads. That thread ends by itself and is not joined.
            if thread.thread().id() != current {
                let _ = thread.join();
            }
        }
    }
}

/// One thread's queue of the pool. Dropping it detaches the jobs in flight, and their completions are dropped.
struct WorkerQueue {
    work: Weak<Sender<Work>>,
    capabilities: Capabilities,
    reply: Arc<Reply>,
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
        let work = Work { job: Some(job), reply: Arc::clone(&self.reply) };
        let refused = match sender.try_send(work) {
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
        // This comes before the list is read. A thread that adds to the list afterwards finds the flag cleared and
        // calls the waker.
        self.reply.woken.swap(false, Ordering::AcqRel);
        // The thread that holds the list calls the waker after it has added to the list, so this poll need not wait
        // for it. Waiting could block: if both threads share a core, the polling thread may be the reason why the
        // other does not run.
        let Some(mut finished) = self.reply.finished.try_lock() else { return 0 };
        let Some(finished) = finished.as_mut() else { return 0 };
        let count = finished.len();
        done.append(finished);
        self.pending -= count;
        count
    }

    fn pending(&self) -> usize {
        self.pending
    }
}

impl Drop for WorkerQueue {
    fn drop(&mut self) {
        // The completions are dropped after the lock is released, because dropping a buffer may run other code.
        let finished = self.reply.finished.lock().take();
        drop(finished);
    }
}

/// A job in the channel. If it is dropped without an answer, because its thread panicked or the channel closed, it
/// completes as lost.
struct Work {
    job: Option<Box<Job>>,
    reply: Arc<Reply>,
}

impl Drop for Work {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            let outcome = Outcome::Failed(DeviceError::Lost);
            self.reply.send(Completion { job, outcome, service: Nanos(0) });
        }
    }
}

/// The completions of one queue's jobs.
struct Reply {
    /// The completions that `poll` has not returned, at most `queue_depth`. None after the queue was dropped.
    finished: Mutex<Option<Vec<Completion>>>,
    waker: Waker,
    /// True if the waker was called since the last poll.
    woken: AtomicBool,
}

impl Reply {
    /// Sends a completion. If the queue was dropped, the completion is dropped with its buffers. The waker is called
    /// once for all completions between two polls.
    fn send(&self, completion: Completion) {
        let mut finished = self.finished.lock();
        let Some(open) = finished.as_mut() else { return };
        open.push(completion);
        drop(finished);
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.waker.wake_by_ref();
        }
    }
}

/// Runs jobs until no queue can send any. If an engine panics, its job completes as lost, and the thread continues
/// with new engines.
fn serve(receiver: &Receiver<Work>, factories: &[EngineFactory], restarts: &AtomicU64) {
    while catch_unwind(AssertUnwindSafe(|| run_jobs(receiver, factories))).is_err() {
        restarts.fetch_add(1, Ordering::Relaxed);
        thread::sleep(RESTART_PAUSE);
    }
}

/// The shortest time between two restarts, so that a device whose every job panics does not spin.
const RESTART_PAUSE: Duration = Duration::from_millis(10);

fn run_jobs(receiver: &Receiver<Work>, factories: &[EngineFactory]) {
    let mut set = EngineSet::open(factories);
    for mut work in receiver {
        let Some(job) = work.job.as_mut() else { continue };
        let (outcome, service) = set.run_timed(job);
        if let Some(job) = work.job.take() {
            work.reply.send(Completion { job, outcome, service });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

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
        let task = Task::Compress { dialect: Dialect::new(Codec::Lz4), level: Level::Fast };
        let output = Pool::heap(ByteCount(0)).take(2 * bytes);
        Box::new(Job::new(task, Input::heap(Bytes::from(vec![7; bytes])), output))
    }

    fn open(worker: &Worker) -> Box<dyn Queue> {
        worker.open_queue(Waker::noop().clone()).expect("a healthy device")
    }

    #[test]
    fn a_dropped_device_finishes_its_jobs() {
        let worker = start(2, 8, &BUILT_IN);
        let mut queue = open(&worker);
        for _ in 0..8 {
            queue.try_submit(job(100_000)).expect("room for eight");
        }
        drop(worker);
        let mut done = Vec::new();
        assert_eq!(queue.poll(&mut done), 8, "the threads are joined");
        assert!(done.iter().all(|completion| matches!(completion.outcome, Outcome::Done { .. })));
        let refused = queue.try_submit(job(10)).expect_err("no threads");
        assert_eq!((refused.reason, queue.pending()), (RefusedReason::Lost, 0));
    }

    #[test]
    fn a_poll_does_not_wait_for_a_stopped_thread() {
        /// Counts wakes.
        struct Wakes(AtomicUsize);

        impl Wake for Wakes {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        let finished = Mutex::new(Some(Vec::new()));
        let (waker, woken) = (Waker::from(Arc::clone(&wakes)), AtomicBool::new(false));
        let reply = Arc::new(Reply { finished, waker, woken });
        let capabilities = start(1, 1, &BUILT_IN).capabilities().clone();
        let mut queue =
            WorkerQueue { work: Weak::new(), capabilities, reply: Arc::clone(&reply), pending: 1 };
        let mut done = Vec::new();
        let stopped = reply.finished.lock();
        assert_eq!(queue.poll(&mut done), 0);
        drop(stopped);
        let outcome = Outcome::DoesNotFit;
        reply.send(Completion { job: job(10), outcome, service: Nanos(0) });
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1, "the poll did not take the wake with it");
        assert_eq!((queue.poll(&mut done), queue.pending()), (1, 0));
        drop(queue);
        let pool = Pool::heap(ByteCount(0));
        let late = Box::new(Job::new(Task::Copy, Input::heap(Bytes::new()), pool.take(10)));
        reply.send(Completion { job: late, outcome: Outcome::DoesNotFit, service: Nanos(0) });
        assert_eq!(pool.outstanding().0, 0, "nobody keeps what comes late");
    }

    #[test]
    fn threads_are_dealt_out_to_the_cores_from_the_last() {
        assert_eq!(from_the_last(&[0, 1], 1), [Some(1)]);
        assert_eq!(from_the_last(&[2, 3, 7], 4), [7, 3, 2, 7].map(Some));
        assert_eq!(from_the_last(&[], 2), [None, None]);
    }

    /// An engine whose `compress` calls this function. The function writes the output and returns its size.
    struct Writes(fn(&mut [u8]) -> usize);

    impl Engine for Writes {
        fn name(&self) -> &'static str {
            "writes"
        }
        fn codec(&self) -> Codec {
            Codec::Lz4
        }
        fn writes(&self, dialect: Dialect, _: usize) -> bool {
            dialect == Dialect::new(Codec::Lz4)
        }
        fn compress(
            &mut self,
            _: Dialect,
            _: Level,
            _: &[u8],
            output: &mut [u8],
        ) -> Result<usize, EngineError> {
            Ok((self.0)(output))
        }
        fn decompress(&mut self, _: &[u8], _: &mut [u8]) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    /// Writes how many cores the calling thread may run on and the last of them. Returns the written size.
    fn cores_of_thread(output: &mut [u8]) -> usize {
        let cores = allowed();
        let last = cores.last().map_or(0, |last| *last as u16);
        output[..2].copy_from_slice(&(cores.len() as u16).to_le_bytes());
        output[2..4].copy_from_slice(&last.to_le_bytes());
        4
    }

    /// Returns the number of cores that the device's only thread may run on, and the last of these cores.
    fn runs_on(worker: Worker) -> (usize, usize) {
        let mut queue = open(&worker);
        queue.try_submit(job(100)).expect("room for one");
        drop(worker);
        let mut done = Vec::new();
        assert_eq!(queue.poll(&mut done), 1);
        let output: &[u8] = done[0].job.output.as_ref();
        let word = |at: usize| u16::from_le_bytes([output[at], output[at + 1]]).into();
        (word(0), word(2))
    }

    #[test]
    fn a_pinned_thread_stays_on_its_core() {
        const WHERE: [EngineFactory; 1] = [|| Box::new(Writes(cores_of_thread))];
        let (cores, depth) = (allowed(), NonZeroUsize::MIN);
        let last = *cores.last().expect("it runs somewhere");
        let pinned = start(1, 1, &WHERE);
        assert_eq!(pinned.cores(), [Some(last)]);
        assert_eq!(runs_on(pinned), (1, last));
        let any = Worker::start_on(WorkerCores::Any, NonZeroUsize::MIN, depth, &WHERE);
        let any = any.expect("a thread");
        assert_eq!(any.cores(), [None]);
        assert_eq!(runs_on(any), (cores.len(), last));
        // No machine has this core. The kernel refuses it, and the jobs complete all the same.
        let none = Worker::start_each(&[Some(rustix::thread::CpuSet::MAX_CPU - 1)], depth, &WHERE);
        let none = none.expect("a thread");
        assert_eq!(none.cores(), [None]);
        assert_eq!(runs_on(none), (cores.len(), last));
    }

    #[test]
    fn a_thread_goes_on_after_a_panic_of_its_engine() {
        /// Fails the first job.
        fn once(_: &mut [u8]) -> usize {
            static FAILED: AtomicBool = AtomicBool::new(false);
            assert!(FAILED.swap(true, Ordering::SeqCst), "a bug in an engine");
            1
        }

        let worker = start(1, 4, &[|| Box::new(Writes(once))]);
        let mut queue = open(&worker);
        for _ in 0..2 {
            queue.try_submit(job(100)).expect("room for both");
        }
        let mut done = Vec::new();
        while queue.pending() > 0 {
            queue.poll(&mut done);
        }
        let outcomes: Vec<_> = done.into_iter().map(|completion| completion.outcome).collect();
        let wanted = [Outcome::Failed(DeviceError::Lost), Outcome::Done { output_bytes: 1 }];
        assert_eq!(outcomes, wanted);
        assert_eq!(worker.counters(), [("thread_restarts", 1)]);
    }

    #[test]
    fn jobs_of_a_panicking_engine_come_back_as_lost() {
        let worker = start(1, 4, &[|| Box::new(Writes(|_| panic!("a bug in an engine")))]);
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
