//! Several loops, each on its own thread and with its own queues into the devices. A task is spawned to all of them and
//! stays on the core that begins it. Before it begins, any core may steal it from another core's queue. After it has
//! begun, it uses only its core's state. There are no locks on a job's path. There is a mutex only where tasks begin
//! and cores fall asleep.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use crossbeam_deque::{Injector, Steal, Stealer, Worker};

use super::sleepers::{ENDING, STOPPED, Sleepers};
use super::tasks::Work;
use super::{Core, CoreConfig, CoreLoop, Source};
use crate::config::StartError;

/// The configuration of several loops.
///
/// A task that awaits a task of the [`Spawner`] still counts against the limit of its core. If all cores are
/// at their limits and all their tasks await tasks that have not begun, the cores deadlock. A task must
/// therefore spawn the tasks that it awaits on its own core, with [`Core::spawn`], which has no limit.
pub struct CoresConfig {
    /// The number of loops.
    pub cores: NonZeroUsize,
    /// The most unfinished tasks of a core. Further tasks wait in a queue from which any core can take them.
    /// With a high limit, a core that begins tasks quickly holds work that another core could do. With a low
    /// limit, devices become idle.
    pub tasks_per_core_max: NonZeroUsize,
    /// The most tasks that wait to begin.
    pub waiting_max: usize,
}

impl CoresConfig {
    /// Creates a configuration with limits that fit most loads.
    pub fn new(cores: NonZeroUsize) -> Self {
        Self { cores, tasks_per_core_max: TASKS_PER_CORE_MAX, waiting_max: WAITING_MAX }
    }
}

/// Loops on their own threads. Dropping them drops their tasks. [`Cores::finish`] lets the tasks end.
pub struct Cores {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Cores {
    /// Starts the threads. Each thread calls `loop_config` with its index.
    ///
    /// # Errors
    /// Fails like [`CoreLoop::new`], for the first core that did not start.
    pub fn start(
        config: CoresConfig,
        loop_config: impl Fn(usize) -> CoreConfig + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let shares: Vec<_> = (0..config.cores.get()).map(|_| Worker::new_fifo()).collect();
        let shared = Arc::new(Shared {
            injector: Injector::new(),
            stealers: shares.iter().map(Worker::stealer).collect(),
            sleepers: Sleepers::new(),
            waiting_max: config.waiting_max,
        });
        let loop_config = Arc::new(loop_config);
        let (report, reports) = mpsc::channel();
        let mut cores = Self { shared, threads: Vec::new() };
        for (index, share) in shares.into_iter().enumerate() {
            let (shared, report) = (Arc::clone(&cores.shared), report.clone());
            let loop_config = Arc::clone(&loop_config);
            let tasks_max = config.tasks_per_core_max.get();
            let body = move || match CoreLoop::new(loop_config(index)) {
                Ok(core_loop) => {
                    let _ = report.send(Ok(()));
                    drop(report);
                    serve(
                        &core_loop,
                        Share {
                            queue: share,
                            index,
                            shared,
                            tasks_max,
                            core: core_loop.core().clone(),
                        },
                    );
                }
                Err(error) => drop(report.send(Err(error))),
            };
            let thread = thread::Builder::new().name(format!("core-{index}")).spawn(body);
            cores.threads.push(thread.map_err(StartError::Thread)?);
        }
        drop(report);
        // On an error the drop of `cores` stops the cores that did start.
        reports.iter().collect::<Result<(), _>>()?;
        Ok(cores)
    }

    /// Returns a handle that spawns tasks from any thread.
    pub fn spawner(&self) -> Spawner {
        Spawner(Arc::clone(&self.shared))
    }

    /// Waits until every task has ended, and ends the threads.
    ///
    /// # Panics
    /// Panics if a task panicked.
    pub fn finish(mut self) {
        self.shared.sleepers.set(ENDING);
        // The threads are joined one at a time. After a panic the drop waits for the others.
        while let Some(thread) = self.threads.pop() {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.shared.sleepers.set(STOPPED);
        for thread in self.threads.drain(..) {
            // The panic belongs to its task. On a drop nobody waits for the ends of tasks.
            let _ = thread.join();
        }
        self.shared.drop_waiting();
    }
}

/// Spawns tasks to any core.
#[derive(Clone)]
pub struct Spawner(Arc<Shared>);

impl Spawner {
    /// Adds a task. The core that begins the task calls `task` with a handle to itself.
    ///
    /// # Errors
    /// [`SpawnError::CoresFull`] if the limit of waiting tasks is reached, [`SpawnError::CoresEnded`] if the
    /// cores have ended.
    pub fn spawn<F, T>(&self, task: F) -> Result<(), SpawnError>
    where
        F: FnOnce(Core) -> T + Send + 'static,
        T: Future<Output = ()> + 'static,
    {
        let shared = &self.0;
        let ending = Ending::for_new_task(shared)?;
        if !shared.sleepers.one_more_waits(shared.waiting_max) {
            return Err(SpawnError::CoresFull { waiting_max: shared.waiting_max });
        }
        shared.injector.push(Box::new(move |core| {
            let work = task(core);
            Box::pin(async move {
                work.await;
                drop(ending);
            })
        }));
        shared.sleepers.wake_one();
        if shared.sleepers.is_stopped() {
            // A stop also locks the list of sleepers. If it did so before `wake_one`, the stop is seen here. If it did
            // so afterwards, the drop that ends the cores finds the task.
            shared.drop_waiting();
        }
        Ok(())
    }
}

/// The reason why a task was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// The number of tasks that wait to begin has reached its limit.
    #[error("{waiting_max} tasks wait to begin, as many as may")]
    CoresFull {
        /// The most tasks that may wait.
        waiting_max: usize,
    },
    /// The cores were finished or dropped, or a task panicked: no task begins any more.
    #[error("the cores have ended: no task begins any more")]
    CoresEnded,
}

/// A task that has not begun.
type Start = Box<dyn FnOnce(Core) -> Work + Send>;

struct Shared {
    injector: Injector<Start>,
    stealers: Vec<Stealer<Start>>,
    waiting_max: usize,
    sleepers: Sleepers,
}

impl Shared {
    /// Drops the tasks that have not begun. A task's [`Spawner`] would otherwise keep them alive.
    fn drop_waiting(&self) {
        let shares = || self.stealers.iter().map(Stealer::steal).collect();
        loop {
            match self.injector.steal().or_else(shares) {
                Steal::Success(start) => drop(start),
                Steal::Empty => return,
                Steal::Retry => {}
            }
        }
    }
}

/// One core's access to the tasks that have not begun.
struct Share {
    queue: Worker<Start>,
    index: usize,
    shared: Arc<Shared>,
    tasks_max: usize,
    core: Core,
}

impl Share {
    fn is_full(&self) -> bool {
        self.core.0.tasks.borrow().count() >= self.tasks_max
    }

    /// Takes a task from this core's queue, or else from the shared queue, or else from another core's queue.
    fn take(&self) -> Option<Start> {
        self.queue.pop().or_else(|| {
            let shared = &self.shared;
            let others = shared.stealers.iter().enumerate();
            let others = others.filter(|(index, _)| *index != self.index);
            let stolen = || others.map(|(_, other)| other.steal()).collect();
            loop {
                match shared.injector.steal_batch_and_pop(&self.queue).or_else(stolen.clone()) {
                    Steal::Success(start) => return Some(start),
                    Steal::Empty => return None,
                    Steal::Retry => {}
                }
            }
        })
    }
}

impl Source for Share {
    fn is_over(&mut self) -> bool {
        self.shared.sleepers.is_over()
    }

    fn begin(&mut self) -> bool {
        if !self.shared.sleepers.some_wait() || self.is_full() {
            return false;
        }
        let Some(start) = self.take() else { return false };
        self.shared.sleepers.one_begins();
        let work = start(self.core.clone());
        self.core.spawn(work);
        true
    }

    fn may_sleep(&mut self) -> bool {
        self.shared.sleepers.enter(self.index, !self.is_full())
    }

    fn slept(&mut self) {
        self.shared.sleepers.leave(self.index);
        // The core may have been woken for a new task. It leaves the list first, so that the next wake goes to another
        // core while this one is busy with its new task.
        self.begin();
    }
}

/// A guard that a task owns. When the task ends or is dropped, the guard counts the end.
struct Ending(Arc<Shared>);

impl Ending {
    /// Counts a new task, unless the cores are stopping.
    fn for_new_task(shared: &Arc<Shared>) -> Result<Self, SpawnError> {
        if !shared.sleepers.one_more_lives() {
            return Err(SpawnError::CoresEnded);
        }
        Ok(Self(Arc::clone(shared)))
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.sleepers.one_ended();
    }
}

fn serve(core_loop: &CoreLoop, mut share: Share) {
    /// Stops all cores if a task panics, because the other cores must not wait for lost tasks.
    struct StopOnPanic(Arc<Shared>);
    impl Drop for StopOnPanic {
        fn drop(&mut self) {
            if thread::panicking() {
                self.0.sleepers.set(STOPPED);
            }
        }
    }
    let _stop = StopOnPanic(Arc::clone(&share.shared));
    core_loop.core().0.run(&mut share);
}

const TASKS_PER_CORE_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

const WAITING_MAX: usize = 1 << 16;
