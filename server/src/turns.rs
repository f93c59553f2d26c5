//! Schedules the processing of long values on a worker's thread. Between two polls for events, only a limited
//! number of bytes of long values is packed, unpacked and written, in order of arrival. Clients with long
//! values therefore wait for each other, and hardly delay clients with short values, which are not limited.

use std::cell::Cell;

use tokio::sync::{Notify, Semaphore};

/// The limit on the processing of long values by one worker.
pub(crate) struct Turns {
    /// The number of KiB that may still be processed before the next poll.
    left_kib: Semaphore,
    used_kib: Cell<usize>,
    used: Notify,
}

impl Default for Turns {
    fn default() -> Self {
        Self { left_kib: Semaphore::new(KIB_PER_LOOK), used_kib: Cell::new(0), used: Notify::new() }
    }
}

impl Turns {
    /// Waits until `bytes` bytes of a long value may be processed.
    pub(crate) async fn take(&self, bytes: usize) {
        let kib = (bytes >> 10).clamp(1, KIB_PER_LOOK);
        // The semaphore is never closed.
        if let Ok(taken) = self.left_kib.acquire_many(kib as u32).await {
            taken.forget();
        }
        self.used_kib.set(self.used_kib.get() + kib);
        self.used.notify_one();
    }

    /// Restores the limit after each poll for events. It runs in a separate task.
    pub(crate) async fn serve(&self) {
        loop {
            self.used.notified().await;
            // tokio resumes yielded tasks only after it has polled for events.
            tokio::task::yield_now().await;
            self.left_kib.add_permits(self.used_kib.take());
        }
    }
}

/// The number of KiB that may be processed between two polls. The kernel copies them in some tens of
/// microseconds, and unpacking takes about twice as long.
const KIB_PER_LOOK: usize = 128;

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::task::{LocalSet, spawn_local, yield_now};

    use super::*;

    #[tokio::test]
    async fn others_run_between_turns() {
        let test = async {
            let (turns, moved) = (Rc::new(Turns::default()), Rc::new(Cell::new(0)));
            let serving = Rc::clone(&turns);
            spawn_local(async move { serving.serve().await });
            for _ in 0..100 {
                let (turns, moved) = (Rc::clone(&turns), Rc::clone(&moved));
                spawn_local(async move {
                    turns.take(256 << 10).await;
                    moved.set(moved.get() + 1);
                });
            }
            let mut looks = 0;
            while moved.get() < 100 {
                let before = moved.get();
                yield_now().await;
                assert!(moved.get() - before <= 2, "{} at once", moved.get() - before);
                looks += 1;
            }
            assert!(looks >= 50, "{looks}");
        };
        LocalSet::new().run_until(test).await;
    }
}
