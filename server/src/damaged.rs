//! Removes items whose frame is damaged, so that `add` and `append` do not fail on them for ever. An item is removed
//! only when software, and no device, has found it damaged twice: when it was served, and in the copy whose CAS is
//! compared. Frames that a newer or differently configured reader may be able to read stay, and so do foreign values.

use std::cell::Cell;
use std::pin::Pin;

use protocol::reply::MetaOutcome;
use protocol::{Meta, MetaFlags, MetaKey};
use store::frame::must_wrap;
use units::Nanos;

use crate::context::WorkerContext;
use crate::values::Logical;

/// The time of this worker's last look at an item that kept an `add` from storing.
#[derive(Default)]
pub(crate) struct Looks(Cell<Option<Nanos>>);

impl Looks {
    /// Returns whether a failed `add` may look at the item again. Most failed adds wait for a lock, so looks are rare
    /// and these adds cost little.
    fn is_due(&self, now: Nanos) -> bool {
        let due = self.0.get().is_none_or(|last| now.since(last) >= LOOK_EVERY);
        if due {
            self.0.set(Some(now));
        }
        due
    }
}

impl WorkerContext {
    /// Removes the item of `key` if it is still there and still damaged. A newer version stays. The future is boxed,
    /// because it is rare and every session would otherwise reserve space for it.
    pub(crate) fn remove_damaged<'a>(
        &'a self,
        key: &'a MetaKey<'_>,
    ) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(async move {
            let Ok(Some(seen)) = self.backend.look(key).await else { return };
            if !self.values.is_damaged(seen.value).await {
                return self.backend.give_back(key, seen.cas, seen.won).await;
            }
            let mut flags = MetaFlags::default();
            flags.compare = Some(seen.cas);
            let meta = Meta { key: key.clone(), flags };
            let removed = self.backend.meta_delete(&meta).meta_outcome().await;
            if matches!(removed, Ok(MetaOutcome::Done)) {
                self.counters.values.unreadable_deleted.up();
            }
        })
    }

    /// Looks at the item that kept an `add` from storing, if it is time for a look, and removes it if it is damaged.
    pub(crate) async fn look_after_add(&self, key: &MetaKey<'_>) {
        if !self.values.is_raw() && self.looks.is_due(self.clock.now()) {
            Box::pin(self.look_at(key)).await;
        }
    }

    async fn look_at(&self, key: &MetaKey<'_>) {
        let Ok(Some(seen)) = self.backend.look(key).await else { return };
        self.backend.give_back(key, seen.cas, seen.won).await;
        if must_wrap(&seen.value)
            && let Logical::Damaged = self.values.unpack(seen.value, None).await
        {
            self.remove_damaged(key).await;
        }
    }
}

const LOOK_EVERY: Nanos = Nanos::millis(10);
