//! Several loops, each on a thread of its own with its own queues into the devices. A task is spawned to all of them
//! and stays where it began: until then any core may take it (steal it from another's share), from then on it owns
//! what belongs to that core. No locks on the way of a job; a mutex where cores go to sleep.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, Thread};

use crossbeam_deque::{Injector, Steal, Stealer, Worker};

use super::tasks::Work;
use super::{Core, CoreConfig, CoreLoop, Source};
use crate::config::StartError;

/// What several loops are made of.
pub struct CoresConfig {
    /// How many.
    pub cores: NonZeroUsize,
    /// Tasks that a core has begun at most; more wait where any core can take them. Too many: a core that is quick
    /// to begin keeps work that another could do. Too few: devices run empty.
    pub tasks_per_core_max: NonZeroUsize,
    /// Tasks that wait to begin at most.
    pub waiting_max: usize,
}

impl CoresConfig {
    /// With bounds that fit most loads.
    pub fn new(cores: NonZeroUsize) -> Self {
        Self { cores, tasks_per_core_max: TASKS_PER_CORE_MAX, waiting_max: WAITING_MAX }
    }
}

/// Loops on threads of their own. Dropping them drops their tasks; [`Cores::finish`] lets those end.
pub struct Cores {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Cores {
    /// Starts the threads; `loop_config` is called on each, with its index.
    ///
    /// # Errors
    /// As [`CoreLoop::new`], for the first core that did not start.
    pub fn start(
        config: CoresConfig,
        loop_config: impl Fn(usize) -> CoreConfig + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        let shares: Vec<_> = (0..config.cores.get()).map(|_| Worker::new_fifo()).collect();
        let shared = Arc::new(Shared {
            injector: Injector::new(),
            stealers: shares.iter().map(Worker::stealer).collect(),
            sleepers: Mutex::new(Vec::new()),
            waiting: AtomicUsize::new(0),
            waiting_max: config.waiting_max,
            unended: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
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
                            own: share,
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
        // On an error the drop of `cores` stops those that did start.
        reports.iter().collect::<Result<(), _>>()?;
        Ok(cores)
    }

    /// What spawns tasks, from any thread.
    pub fn spawner(&self) -> Spawner {
        Spawner(Arc::clone(&self.shared))
    }

    /// Waits until every task has ended, and ends the threads.
    ///
    /// # Panics
    /// If a task did.
    pub fn finish(mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for thread in self.threads.drain(..) {
            // A task's panic was its own; nobody asked for the tasks' ends.
            let _ = thread.join();
        }
    }
}

/// Spawns tasks to any core.
#[derive(Clone)]
pub struct Spawner(Arc<Shared>);

impl Spawner {
    /// Adds a task: `task` is called on the core that begins it, with that core.
    ///
    /// # Errors
    /// [`CoresFull`] when as many tasks wait as may.
    pub fn spawn<F, T>(&self, task: F) -> Result<(), CoresFull>
    where
        F: FnOnce(Core) -> T + Send + 'static,
        T: Future<Output = ()> + 'static,
    {
        let shared = &self.0;
        if shared.waiting.fetch_add(1, Ordering::Relaxed) >= shared.waiting_max {
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(CoresFull { waiting_max: shared.waiting_max });
        }
        shared.unended.fetch_add(1, Ordering::SeqCst);
        shared.injector.push(Box::new(move |core| Box::pin(task(core))));
        // Pushed before the list is locked: a core that locks it later finds the task, one that was earlier is in it.
        if let Some((_, thread)) = shared.sleepers().pop() {
            thread.unpark();
        }
        Ok(())
    }
}

/// As many tasks wait to begin as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{waiting_max} tasks wait to begin, as many as may")]
pub struct CoresFull {
    /// The bound.
    pub waiting_max: usize,
}

/// A task that has not begun.
type Start = Box<dyn FnOnce(Core) -> Work + Send>;

struct Shared {
    injector: Injector<Start>,
    stealers: Vec<Stealer<Start>>,
    sleepers: Mutex<Vec<(usize, Thread)>>,
    /// Tasks that have not begun.
    waiting: AtomicUsize,
    waiting_max: usize,
    /// Tasks that have not ended.
    unended: AtomicUsize,
    /// The cores end with the last task.
    is_ending: AtomicBool,
    /// The cores end now.
    is_stopped: AtomicBool,
}

impl Shared {
    fn sleepers(&self) -> MutexGuard<'_, Vec<(usize, Thread)>> {
        // Nothing panics while it is locked.
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        self.sleepers().drain(..).for_each(|(_, thread)| thread.unpark());
    }

    fn is_over(&self) -> bool {
        let ended = || self.unended.load(Ordering::SeqCst) == 0;
        self.is_stopped.load(Ordering::SeqCst) || self.is_ending.load(Ordering::SeqCst) && ended()
    }
}

/// One core's way to the tasks that have not begun.
struct Share {
    own: Worker<Start>,
    index: usize,
    shared: Arc<Shared>,
    tasks_max: usize,
    core: Core,
}

impl Share {
    /// From the own share, then from what nobody has yet, then from others' shares.
    fn take(&self) -> Option<Start> {
        self.own.pop().or_else(|| {
            let shared = &self.shared;
            let others = shared.stealers.iter().enumerate();
            let others = others.filter(|(index, _)| *index != self.index);
            let stolen = || others.map(|(_, other)| other.steal()).collect();
            loop {
                match shared.injector.steal_batch_and_pop(&self.own).or_else(stolen.clone()) {
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
        self.shared.is_over()
    }

    fn begin(&mut self) -> bool {
        let nothing_waits = self.shared.waiting.load(Ordering::Relaxed) == 0;
        if nothing_waits || self.core.0.tasks.borrow().count() >= self.tasks_max {
            return false;
        }
        let Some(start) = self.take() else { return false };
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        let ending = Ending(Arc::clone(&self.shared));
        let work = start(self.core.clone());
        self.core.spawn(async move {
            work.await;
            drop(ending);
        });
        true
    }

    fn may_sleep(&mut self) -> bool {
        self.shared.sleepers().push((self.index, thread::current()));
        // Looked at again after the lock: see `Spawner::spawn` and `wake_all`.
        !self.shared.is_over() && !self.begin()
    }

    fn slept(&mut self) {
        self.shared.sleepers().retain(|(index, _)| *index != self.index);
    }
}

/// Dropped with its task, ended or not.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        if self.0.unended.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.wake_all();
        }
    }
}

fn serve(core_loop: &CoreLoop, mut share: Share) {
    /// A panic of a task ends its core; the others must not wait for the tasks that died with it.
    struct StopOnPanic(Arc<Shared>);
    impl Drop for StopOnPanic {
        fn drop(&mut self) {
            if thread::panicking() {
                self.0.is_stopped.store(true, Ordering::SeqCst);
                self.0.wake_all();
            }
        }
    }
    let _stop = StopOnPanic(Arc::clone(&share.shared));
    core_loop.core().0.run(&mut share);
}

const TASKS_PER_CORE_MAX: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

const WAITING_MAX: usize = 1 << 16;
