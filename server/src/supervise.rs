//! Keeps the process whole. A task that ends is started again and counted. If a thread ends, the process ends, and
//! until then the health pages report it. A defect thereby affects only what it touched, and never goes unnoticed.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parking_lot::Mutex;

use crate::counters::Counter;

/// Runs the future that `start` makes, for ever. When it panics or returns, the end is counted and logged, and a new
/// one is started after a pause. The pause grows while the futures do not last.
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
        // A panic leaves only the state of the task half done, and the task begins with new state.
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
/// If a task ran at least this long before it failed, the pause before its restart is the shortest again, because it
/// does not fail right at its start.
const LASTED: Duration = Duration::from_secs(10);

/// Knows whether the process can do its work: all its threads run, and its event loops turn.
#[derive(Default)]
pub(crate) struct Vitals {
    /// Whether threads may end without a failure, because the process ends.
    stopping: AtomicBool,
    failure: Mutex<Option<String>>,
    on_failure: Mutex<Option<Box<dyn Fn() + Send>>>,
    workers: Box<[Pulse]>,
}

/// The signs of life of a worker's event loop.
#[derive(Default)]
struct Pulse {
    beats: AtomicU64,
    /// The number of beats at the last check.
    seen: AtomicU64,
    /// The time for which checks have seen no new beat (ms).
    silent_ms: AtomicU64,
}

impl Vitals {
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Pulse::default()).collect(), ..Self::default() }
    }

    /// Returns a value that the thread holds until it ends. Dropping the value is a failure, unless the process ends.
    pub(crate) fn watch(&self, thread: String) -> Watched<'_> {
        Watched { vitals: self, thread }
    }

    /// Records that from now on threads end because they were told to.
    pub(crate) fn begin_end(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Records that the process cannot continue. The health pages report it, and the function of `on_failure` is
    /// called. Only the first failure counts.
    pub(crate) fn fail(&self, what: String) {
        tracing::error!("{what}");
        self.failure.lock().get_or_insert(what);
        if let Some(tell) = &*self.on_failure.lock() {
            tell();
        }
    }

    /// Returns the reason why the process cannot continue, if there is one.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Has `tell` called when the process cannot continue any more, or at once if that is already so.
    pub(crate) fn on_failure(&self, tell: Box<dyn Fn() + Send>) {
        let mut on_failure = self.on_failure.lock();
        if self.failure().is_some() {
            tell();
        }
        *on_failure = Some(tell);
    }

    /// Records that the event loop of a worker turns.
    pub(crate) fn beat(&self, worker: usize) {
        self.workers[worker].beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Records which workers gave no sign of life since the last check, which was `since` ago. The caller is a thread
    /// of this process, so a time in which the whole process stood still counts for little.
    pub(crate) fn look(&self, since: Duration) {
        let since_ms = since.min(LOOK_COUNTS_MAX).as_millis() as u64;
        for pulse in &self.workers {
            let beats = pulse.beats.load(Ordering::Relaxed);
            let is_silent = pulse.seen.swap(beats, Ordering::Relaxed) == beats;
            let silent_ms = pulse.silent_ms.load(Ordering::Relaxed) + since_ms;
            pulse.silent_ms.store(if is_silent { silent_ms } else { 0 }, Ordering::Relaxed);
        }
    }

    /// Returns why the process cannot do its work, if it cannot: a thread has ended, or an event loop hangs.
    pub(crate) fn problem(&self) -> Option<String> {
        let stands = |pulse: &Pulse| pulse.silent_ms.load(Ordering::Relaxed) >= SILENT_MS_MAX;
        let silent = || {
            let worker = self.workers.iter().position(stands)?;
            Some(format!("worker {worker} has done nothing for {} s", SILENT_MS_MAX / 1_000))
        };
        self.failure().or_else(silent)
    }
}

/// The silence after which an event loop is considered to hang (ms). It will not continue by itself.
const SILENT_MS_MAX: u64 = 10_000;
/// The longest time that one check counts. A check that comes later was itself kept from running.
const LOOK_COUNTS_MAX: Duration = Duration::from_secs(2);

/// A thread whose end is a failure, unless the process ends.
pub(crate) struct Watched<'a> {
    vitals: &'a Vitals,
    thread: String,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if !self.vitals.stopping.load(Ordering::Relaxed) {
            let how = if std::thread::panicking() { "after a defect" } else { "unexpectedly" };
            self.vitals.fail(format!("{} ended {how}", self.thread));
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
        let vitals = Vitals::new(1);
        let told = Arc::new(Counter::default());
        let tell = Arc::clone(&told);
        vitals.on_failure(Box::new(move || tell.up()));
        let run = || {
            let _watched = vitals.watch("worker 0".to_owned());
            panic!("a defect");
        };
        std::thread::scope(|scope| scope.spawn(run).join()).expect_err("it panics");
        assert_eq!(vitals.problem().as_deref(), Some("worker 0 ended after a defect"));
        assert_eq!(told.read(), 1);
    }

    #[test]
    fn threads_of_a_process_that_ends_may_end() {
        let vitals = Vitals::new(1);
        vitals.begin_end();
        drop(vitals.watch("worker 0".to_owned()));
        assert_eq!(vitals.problem(), None);
    }

    #[test]
    fn a_silent_event_loop_is_a_problem_until_it_turns() {
        let vitals = Vitals::new(2);
        for _ in 0..5 {
            assert_eq!(vitals.problem(), None);
            vitals.beat(0);
            vitals.look(Duration::from_secs(2));
        }
        let problem = vitals.problem().expect("worker 1 was silent for 10 s");
        assert!(problem.starts_with("worker 1 "), "{problem}");
        vitals.beat(1);
        vitals.look(Duration::from_secs(2));
        assert_eq!(vitals.problem(), None);
    }

    #[test]
    fn a_process_that_stood_still_is_not_silent() {
        let vitals = Vitals::new(1);
        vitals.look(Duration::from_secs(3_600));
        assert_eq!(vitals.problem(), None);
    }
}
