//! Decides when a side sleeps and when it must be woken. A mistake here would leave a job waiting forever. The module
//! touches no memory itself: callers pass the loads, stores and fences, so that the same code runs on shared memory and
//! in a model.
//!
//! The publisher writes and then reads whether the other side sleeps. The sleeper announces its sleep and then reads
//! whether something was published. Each is a store followed by a load of another word, which a processor may
//! reorder. A sequentially consistent fence between them prevents this on both sides. So at least one of the two
//! loads sees the other side's store: either the publisher sees the sleep and rings the doorbell, or the sleeper sees
//! the published entry and stays awake.
//!
//! Each sleep has a number that is never used again. The publisher rings once per number. Many entries published
//! during one sleep therefore cost one doorbell, and a doorbell for an earlier sleep never counts for this sleep.

/// Publishes entries by `store` (a release store of the tail) and returns whether the other side must be
/// woken. `rung` is the number of the last sleep for which the doorbell was rung.
pub(crate) fn publish(
    store: impl FnOnce(),
    fence: impl FnOnce(),
    asleep: impl FnOnce() -> u64,
    rung: &mut u64,
) -> bool {
    store();
    fence();
    must_ring(asleep(), rung)
}

/// Returns whether the other side, whose word says `sleep`, must be woken, and notes that it was. Without a fence
/// between the store and the load of the word, a sleep that begins at this time may be missed. The caller must then ask
/// again after a fence, before it sleeps itself.
pub(crate) fn must_ring(sleep: u64, rung: &mut u64) -> bool {
    let must_ring = sleep != AWAKE && sleep != *rung;
    if must_ring {
        *rung = sleep;
    }
    must_ring
}

/// Announces by `store` that this side sleeps, and returns whether it may sleep. It must stay awake if
/// `is_news` returns true.
pub(crate) fn fall_asleep(
    store: impl FnOnce(),
    fence: impl FnOnce(),
    is_news: impl FnOnce() -> bool,
) -> bool {
    store();
    fence();
    !is_news()
}

/// The value of the `asleep` word while a side is awake and needs no doorbell.
pub(crate) const AWAKE: u64 = 0;

#[cfg(test)]
mod tests {
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;

    /// The words of two sides, and the doorbell, which is a byte in a socket.
    struct Shared {
        tail: AtomicU64,
        asleep: AtomicU64,
        doorbell: Mutex<bool>,
        rings: Condvar,
    }

    /// Publishes an entry, asks without a fence whether to ring, and asks again after a fence that comes later.
    #[test]
    fn a_late_fence_misses_nothing() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                tail: AtomicU64::new(0),
                asleep: AtomicU64::new(AWAKE),
                doorbell: Mutex::new(false),
                rings: Condvar::new(),
            });
            let theirs = Arc::clone(&shared);
            let publisher = thread::spawn(move || {
                let (mut rung, mut doorbells) = (AWAKE, 0);
                theirs.tail.store(1, Ordering::Release);
                for is_fenced in [false, true] {
                    if is_fenced {
                        fenced();
                    }
                    if must_ring(theirs.asleep.load(Ordering::Relaxed), &mut rung) {
                        doorbells += 1;
                        *theirs.doorbell.lock().expect("no panic") = true;
                        theirs.rings.notify_one();
                    }
                }
                doorbells
            });
            let sleeps = read_all(&shared, 1, fenced);
            let doorbells = publisher.join().expect("no panic");
            assert!(doorbells <= sleeps, "{doorbells} bells for {sleeps} sleeps");
        });
    }

    fn fenced() {
        fence(Ordering::SeqCst);
    }

    /// Publishes `entries` entries one by one to a reader that sleeps whenever it sees nothing, and checks that the
    /// reader gets all of them. A missed doorbell would leave the reader asleep forever, which the model reports as a
    /// deadlock. The model tries all orders, or all orders with at most `preemptions_max` preemptions.
    fn nothing_is_missed(entries: u64, preemptions_max: Option<usize>, fence: fn()) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions_max;
        model.check(move || {
            let shared = Arc::new(Shared {
                tail: AtomicU64::new(0),
                asleep: AtomicU64::new(AWAKE),
                doorbell: Mutex::new(false),
                rings: Condvar::new(),
            });
            let theirs = Arc::clone(&shared);
            let publisher = thread::spawn(move || publish_all(&theirs, entries, fence));
            let sleeps = read_all(&shared, entries, fence);
            let doorbells = publisher.join().expect("no panic");
            assert!(doorbells <= sleeps, "{doorbells} bells for {sleeps} sleeps");
        });
    }

    fn publish_all(shared: &Shared, entries: u64, fence: fn()) -> u64 {
        let (mut rung, mut doorbells) = (AWAKE, 0);
        for entry in 1..=entries {
            let must_ring = publish(
                || shared.tail.store(entry, Ordering::Release),
                fence,
                || shared.asleep.load(Ordering::Relaxed),
                &mut rung,
            );
            if must_ring {
                doorbells += 1;
                *shared.doorbell.lock().expect("no panic") = true;
                shared.rings.notify_one();
            }
        }
        doorbells
    }

    fn read_all(shared: &Shared, entries: u64, fence: fn()) -> u64 {
        let (mut seen, mut sleeps) = (0, 0);
        while seen < entries {
            let tail = shared.tail.load(Ordering::Acquire);
            if tail != seen {
                seen = tail;
                continue;
            }
            sleeps += 1;
            let may_sleep = fall_asleep(
                || shared.asleep.store(sleeps, Ordering::Relaxed),
                fence,
                || shared.tail.load(Ordering::Relaxed) != seen,
            );
            if may_sleep {
                let mut doorbell = shared.doorbell.lock().expect("no panic");
                while !*doorbell {
                    doorbell = shared.rings.wait(doorbell).expect("no panic");
                }
                *doorbell = false;
            }
            shared.asleep.store(AWAKE, Ordering::Relaxed);
        }
        sleeps
    }

    #[test]
    fn one_entry_always_arrives() {
        nothing_is_missed(1, None, fenced);
    }

    #[test]
    fn two_entries_always_arrive() {
        nothing_is_missed(2, Some(2), fenced);
    }

    #[test]
    #[should_panic = "deadlock"]
    fn without_the_fences_a_bell_would_be_missed() {
        nothing_is_missed(1, None, || ());
    }
}
