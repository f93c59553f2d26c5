//! Supervises tasks and threads. A task that ends is counted and restarted. If a thread ends, the process
//! ends, and until then the health pages report it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::counters::Counter;

/// Runs the future that `start` returns, forever. If it panics or returns, counts and logs this and starts a new one
/// after a pause. The pause doubles while the futures end quickly.
pub(crate) async fn keep<F: Future<Output = ()>>(
    task: &str,
    restarts: &Counter,
    mut start: impl FnMut() -> F,
) {
    let mut pause = PAUSE_MIN;
    loop {
        let since = Instant::now();
        // `start` may panic too.
        let run = async { start().await };
        // A panic can leave only the task's state inconsistent, and the task restarts with a new state.
        let ended = AssertUnwindSafe(run).catch_unwind().await;
        restarts.up();
        let how = if ended.is_err() { "a defect ended it" } else { "it ended" };
        tracing::error!(task, "{how}: it is started again");
        if since.elapsed() >= LASTED {
            pause = PAUSE_MIN;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A task that ran for at least this time before it failed is restarted after the shortest pause.
const LASTED: Duration = Duration::from_secs(10);

/// The health of the process: whether all its threads run and its event loops make progress.
#[derive(Default)]
pub(crate) struct Liveness {
    /// True while the process ends, so that the end of a thread is not a failure.
    stopping: AtomicBool,
    failure: Mutex<Option<String>>,
    on_failure: Mutex<Option<Box<dyn Fn() + Send>>>,
    workers: Box<[Heartbeat]>,
}

/// The heartbeats of a worker's event loop.
#[derive(Default)]
struct Heartbeat {
    beats: AtomicU64,
    /// The number of beats at the last check.
    seen: AtomicU64,
    /// The time without a new beat, as of the last check (ms).
    silent_ms: AtomicU64,
}

impl Liveness {
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Heartbeat::default()).collect(), ..Self::default() }
    }

    /// Returns a guard that the thread holds until it ends. Dropping it before the process ends is a failure.
    pub(crate) fn watch(&self, thread: String) -> Watched<'_> {
        Watched { liveness: self, thread }
    }

    /// Records that the process ends, so that the end of a thread is no longer a failure.
    pub(crate) fn begin_end(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Records that the process cannot continue, and calls the function of `on_failure`. The health pages
    /// report the first failure.
    pub(crate) fn fail(&self, what: String) {
        tracing::error!("{what}");
        self.failure.lock().get_or_insert(what);
        if let Some(notify) = &*self.on_failure.lock() {
            notify();
        }
    }

    /// Returns the reason why the process cannot continue, if there is one.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Registers `notify` to be called when the process cannot continue, or calls it at once if that is so.
    pub(crate) fn on_failure(&self, notify: Box<dyn Fn() + Send>) {
        let mut on_failure = self.on_failure.lock();
        if self.failure().is_some() {
            notify();
        }
        *on_failure = Some(notify);
    }

    /// Records that the event loop of a worker makes progress.
    pub(crate) fn beat(&self, worker: usize) {
        self.workers[worker].beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Checks the heartbeats of all workers. `since` is the time since the last check. It is capped, because
    /// the whole process may have been stopped.
    pub(crate) fn check(&self, since: Duration) {
        let since_ms = since.min(CHECK_INTERVAL_MAX).as_millis() as u64;
        for heartbeat in &self.workers {
            let beats = heartbeat.beats.load(Ordering::Relaxed);
            let is_silent = heartbeat.seen.swap(beats, Ordering::Relaxed) == beats;
            let silent_ms = heartbeat.silent_ms.load(Ordering::Relaxed) + since_ms;
            heartbeat.silent_ms.store(if is_silent { silent_ms } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Returns the problem of the process, if there is one: a thread has ended, or an event loop hangs.
    pub(crate) fn problem(&self) -> Option<String> {
        let stands =
            |heartbeat: &Heartbeat| heartbeat.silent_ms.load(Ordering::Relaxed) >= SILENT_MS_MAX;
        let silent = || {
            let worker = self.workers.iter().position(stands)?;
            Some(format!("worker {worker} has done nothing for {} s", SILENT_MS_MAX / 1_000))
        };
        self.failure().or_else(silent)
    }
}

/// The time without progress after which an event loop is considered to hang (ms).
const SILENT_MS_MAX: u64 = 10_000;
/// The longest time between two checks that is counted as silence of the workers.
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(2);

/// A guard for a thread whose end is a failure, unless the process ends.
pub(crate) struct Watched<'a> {
    liveness: &'a Liveness,
    thread: String,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if !self.liveness.stopping.load(Ordering::Relaxed) {
            let how = if std::thread::panicking() { "after a defect" } else { "unexpectedly" };
            self.liveness.fail(format!("{} ended {how}", self.thread));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_or_returns_is_started_again() {
        let (restarts, starts) = (Counter::default(), Cell::new(0));
        let third = tokio::sync::Notify::new();
        let start = || {
            let (nth, third) = (starts.replace(starts.get() + 1), &third);
            async move {
                match nth {
                    0 => panic!("a defect"),
                    1 => {}
                    _ => {
                        third.notify_one();
                        std::future::pending().await
                    }
                }
            }
        };
        tokio::select! {
            () = keep("test", &restarts, start) => unreachable!("it is kept"),
            () = third.notified() => {}
        }
        assert_eq!((starts.get(), restarts.read()), (3, 2));
    }

    #[test]
    fn a_thread_that_panics_is_a_failure_that_is_told() {
        let liveness = Liveness::new(1);
        let notified = Arc::new(Counter::default());
        let notify = Arc::clone(&notified);
        liveness.on_failure(Box::new(move || notify.up()));
        let run = || {
            let _watched = liveness.watch("worker 0".to_owned());
            panic!("a defect");
        };
        std::thread::scope(|scope| scope.spawn(run).join()).expect_err("it panics");
        assert_eq!(liveness.problem().as_deref(), Some("worker 0 ended after a defect"));
        assert_eq!(notified.read(), 1);
    }

    #[test]
    fn threads_of_a_process_that_ends_may_end() {
        let liveness = Liveness::new(1);
        liveness.begin_end();
        drop(liveness.watch("worker 0".to_owned()));
        assert_eq!(liveness.problem(), None);
    }

    #[test]
    fn a_silent_event_loop_is_a_problem_until_it_turns() {
        let liveness = Liveness::new(2);
        for _ in 0..5 {
            assert_eq!(liveness.problem(), None);
            liveness.beat(0);
            liveness.check(Duration::from_secs(2));
        }
        let problem = liveness.problem().expect("worker 1 was silent for 10 s");
        assert!(problem.starts_with("worker 1 "), "{problem}");
        liveness.beat(1);
        liveness.check(Duration::from_secs(2));
        assert_eq!(liveness.problem(), None);
    }

    #[test]
    fn a_process_that_stood_still_is_not_silent() {
        let liveness = Liveness::new(1);
        liveness.check(Duration::from_secs(3_600));
        assert_eq!(liveness.problem(), None);
    }
}
