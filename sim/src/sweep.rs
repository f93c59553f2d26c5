//! Runs the studies of a sweep. Several run at the same time, so that all cores have work while one study ends. The
//! caller gets the results in order, so the number of threads does not change what is written.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread;

/// Runs `count` studies on this many workers and passes their results to `take` in order until `take` breaks.
/// After a break no further study begins, and the results of studies in progress are dropped. While a slow
/// study runs, only a limited number of later studies begin.
pub fn in_order<T: Send>(
    count: usize,
    workers: usize,
    study: impl Fn(usize) -> T + Sync,
    mut take: impl FnMut(usize, T) -> ControlFlow<()>,
) {
    let workers = workers.clamp(1, count.max(1));
    let turns = Turns::new(count, AHEAD_PER_WORKER * workers);
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for _ in 0..workers {
            let (send, turns, study) = (send.clone(), &turns, &study);
            scope.spawn(move || {
                let _end = EndsAll(turns);
                while let Some(index) = turns.next() {
                    if send.send((index, study(index))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let _end = EndsAll(&turns);
        let (mut early, mut due) = (BTreeMap::new(), 0);
        for (index, found) in receive {
            early.insert(index, found);
            while let Some(found) = early.remove(&due) {
                if take(due, found).is_break() {
                    return;
                }
                due += 1;
                turns.change(|state| state.due = due);
            }
        }
    });
}

/// Assigns the studies to workers one after the other, until none is left or the caller wants no more.
struct Turns {
    state: Mutex<State>,
    changed: Condvar,
    /// The maximum number of studies that may have begun and whose results the caller has not yet received.
    /// Finished results wait in memory.
    ahead_max: usize,
}

struct State {
    next: usize,
    due: usize,
    end: usize,
}

impl Turns {
    fn new(end: usize, ahead_max: usize) -> Self {
        let state = Mutex::new(State { next: 0, due: 0, end });
        Self { state, changed: Condvar::new(), ahead_max }
    }

    /// Waits until the next study may begin and returns its index, or none at the end.
    fn next(&self) -> Option<usize> {
        let waits =
            |state: &mut State| state.next < state.end && state.next >= state.due + self.ahead_max;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.changed.wait_while(state, waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        (state.next < state.end).then(|| {
            state.next += 1;
            state.next - 1
        })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

/// Prevents further studies from beginning when it is dropped, even if a study or its consumer panics.
/// Otherwise a thread could wait forever for its turn.
struct EndsAll<'a>(&'a Turns);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.end = 0);
    }
}

/// Returns the number of concurrent studies that keep `threads` busy, if each makes this many runs. It is one
/// study more than needed to fill the threads, so that the threads have work while a study ends.
pub fn workers(threads: usize, runs: u32) -> usize {
    if threads < 2 { 1 } else { threads.div_ceil(runs.max(1) as usize) + 1 }
}

const AHEAD_PER_WORKER: usize = 2;

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_come_in_order_though_they_end_in_another() {
        // The first study ends only after the second has begun, which is impossible with a single worker.
        let both = Barrier::new(2);
        let mut taken = Vec::new();
        let study = |index| {
            if index < 2 {
                both.wait();
            }
            index * 10
        };
        in_order(5, 2, study, |index, found| {
            taken.push((index, found));
            ControlFlow::Continue(())
        });
        assert_eq!(taken, [(0, 0), (1, 10), (2, 20), (3, 30), (4, 40)]);
    }

    #[test]
    fn who_has_enough_gets_no_more() {
        let (begun, mut taken) = (AtomicUsize::new(0), Vec::new());
        let study = |index| {
            begun.fetch_add(1, Ordering::Relaxed);
            index
        };
        in_order(1_000_000, 2, study, |index, _| {
            taken.push(index);
            if index == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(taken, [0, 1, 2, 3]);
        assert!(begun.into_inner() < 1_000_000);
        in_order(0, 2, |index| index, |_, _: usize| unreachable!("there is none"));
    }

    #[test]
    fn a_slow_study_holds_few_behind_it() {
        let (taken, fourth) = (AtomicUsize::new(0), Barrier::new(2));
        let study = |index| {
            // Study 0 waits for study 3, which is the last study that may begin while study 0 runs.
            if index == 0 || index == 3 {
                fourth.wait();
            }
            assert!(index <= taken.load(Ordering::SeqCst) + 3, "{index} began too early");
        };
        in_order(1_000, 2, study, |_, ()| {
            taken.fetch_add(1, Ordering::SeqCst);
            ControlFlow::Continue(())
        });
        assert_eq!(taken.into_inner(), 1_000);
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_study_that_panics_leaves_nobody_waiting() {
        let study = |index| assert!(index != 3, "as told");
        in_order(1_000, 2, study, |_, ()| ControlFlow::Continue(()));
    }

    #[test]
    fn there_is_always_a_study_to_go_on_with() {
        assert_eq!(workers(1, 10), 1);
        assert_eq!(workers(2, 10), 2);
        assert_eq!(workers(16, 5), 5);
    }
}
