//! The studies of a sweep, several at once so that all cores have work while one of them ends. What becomes of a report
//! is the caller's, who gets them in order, so that threads change nothing that is written.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Makes `count` studies on so many workers, and hands what they came to over in order until the caller has enough. No
/// study begins after that; those under way are ended and dropped.
pub(super) fn in_order<T: Send>(
    count: usize,
    workers: usize,
    study: impl Fn(usize) -> T + Sync,
    mut take: impl FnMut(usize, T) -> ControlFlow<()>,
) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (send, receive) = mpsc::channel();
        for _ in 0..workers.clamp(1, count.max(1)) {
            let (send, next, study) = (send.clone(), &next, &study);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || send.send((index, study(index))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let (mut early, mut due) = (BTreeMap::new(), 0);
        for (index, found) in receive {
            early.insert(index, found);
            while let Some(found) = early.remove(&due) {
                if take(due, found).is_break() {
                    next.store(count, Ordering::Relaxed);
                    return;
                }
                due += 1;
            }
        }
    });
}

/// How many studies at once keep `threads` busy, each being so many runs of its own: one more than fill them, for
/// while one ends.
pub(super) fn workers(threads: usize, runs: u32) -> usize {
    if threads < 2 { 1 } else { threads.div_ceil(runs.max(1) as usize) + 1 }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn all_come_in_order_though_they_end_in_another() {
        // The first study ends after the second has begun, which one worker alone could not do.
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
    fn there_is_always_a_study_to_go_on_with() {
        assert_eq!(workers(1, 10), 1);
        assert_eq!(workers(2, 10), 2);
        assert_eq!(workers(16, 5), 5);
    }
}
