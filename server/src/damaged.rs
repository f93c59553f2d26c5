//! Removes items with a damaged frame, so that they do not block `add` and `append` forever. An item is removed only if
//! software found it damaged twice: when it was read, and in a second read whose CAS the removal compares. Foreign
//! values and frames that a newer or differently configured reader may be able to read are kept.

use std::cell::Cell;
use std::pin::Pin;

use protocol::reply::MetaOutcome;
use protocol::{Meta, MetaFlags, MetaKey};
use store::frame::must_wrap;
use units::Nanos;

use crate::context::WorkerContext;
use crate::upstream::Traffic;

/// The rate limit of one worker for examining items after a failed `add`.
#[derive(Default)]
pub(crate) struct ExamineLimit(Cell<Option<Nanos>>);

impl ExamineLimit {
    /// Returns whether a failed `add` may examine the existing item now. Most failed adds wait for a lock, so
    /// the limit keeps them cheap.
    fn is_due(&self, now: Nanos) -> bool {
        let due = self.0.get().is_none_or(|last| now.since(last) >= EXAMINE_EVERY);
        if due {
            self.0.set(Some(now));
        }
        due
    }
}

impl WorkerContext {
    /// Removes the item of `key` if it still exists and is still damaged. A newer version is kept. The future
    /// is boxed, so that sessions do not reserve memory for this rare case.
    pub(crate) fn remove_damaged<'a>(
        &'a self,
        key: &'a MetaKey<'_>,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(async move {
            let Ok(Some(seen)) = self.backend.read_stored(key).await else { return };
            if !self.values.is_damaged(key.bytes(), seen.value).await {
                return self.backend.release_win(key, seen.cas, seen.won).await;
            }
            let mut flags = MetaFlags::default();
            flags.compare = Some(seen.cas);
            let meta = Meta { key: key.clone(), flags };
            let removed =
                self.backend.meta_delete(&meta, Traffic::Interactive).meta_outcome().await;
            if matches!(removed, Ok(MetaOutcome::Done)) {
                self.counters.values.unreadable_deleted.up();
            }
        })
    }

    /// Examines the existing item after a failed `add`, at a limited rate, and removes it if it is damaged.
    pub(crate) async fn examine_after_add(&self, key: &MetaKey<'_>) {
        if !self.values.is_raw() && self.examine_limit.is_due(self.clock.now()) {
            Box::pin(self.examine(key)).await;
        }
    }

    async fn examine(&self, key: &MetaKey<'_>) {
        let Ok(Some(seen)) = self.backend.read_stored(key).await else { return };
        self.backend.release_win(key, seen.cas, seen.won).await;
        if must_wrap(&seen.value) && self.values.is_damaged(key.bytes(), seen.value).await {
            self.remove_damaged(key).await;
        }
    }
}

const EXAMINE_EVERY: Nanos = Nanos::millis(10);
