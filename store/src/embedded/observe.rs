//! What others may see of the store without using it: whether a key has an item, and which items are evicted.

use std::fmt::Debug;
use std::sync::Arc;

use super::Embedded;
use super::Turn;
use super::item::End;
use super::record::TIME_MODULUS_S;
use super::shard::{Found, Key, Shard};

/// Sees items as they are evicted.
pub trait EvictionObserver: Debug + Send + Sync {
    /// Sees an item that is about to be evicted. It runs under a lock, so it must be short and must not call the store.
    fn evicted(&self, item: &Evicted<'_>);
}

/// An item that is about to be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted<'a> {
    /// The item's key.
    pub key: &'a [u8],
    /// The length of the item's stored form (bytes).
    pub value_bytes: usize,
    /// The time after which the item would have expired (s), or none if it would not have expired.
    pub ttl_s: Option<u32>,
    /// The time since the item was last accessed (s).
    pub idle_s: u32,
    /// Whether the item was fetched since it was stored.
    pub fetched: bool,
}

/// What a lookup of a key finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing<U> {
    /// There is no item.
    Missing,
    /// There is an item, of which the caller has made this.
    Alive(U),
    /// There is an item that was flushed.
    Flushed,
    /// There is an item that has expired.
    Expired,
}

impl Embedded {
    /// Shows evictions to `observer` from now on. Only the first call has an effect.
    pub fn observe_evictions(&self, observer: Arc<dyn EvictionObserver>) {
        let _ = self.observer.set(observer);
    }

    /// Returns what a lookup of `key` would find, and leaves no mark on the item. `using` gets the stored form. It runs
    /// under a lock, so it must be short and must not call the store.
    pub fn standing<U>(
        &self,
        key: &[u8],
        now_s: u32,
        using: impl FnOnce(&[u8]) -> U,
    ) -> Standing<U> {
        let (shard, key) = self.locate(key);
        let turn = self.turn(now_s);
        self.shards[shard].read().standing(key, &turn, using)
    }
}

impl Shard {
    fn standing<U>(
        &self,
        key: Key<'_>,
        turn: &Turn<'_>,
        using: impl FnOnce(&[u8]) -> U,
    ) -> Standing<U> {
        let Some(found) = self.look(key) else { return Standing::Missing };
        match found.item.end(turn.now_s, &turn.flushed) {
            Some(End::Expired) => Standing::Expired,
            Some(End::Flushed) => Standing::Flushed,
            None if found.has_no_blocks() => Standing::Alive(using(self.tail(&found))),
            None => Standing::Alive(using(&self.value(&found))),
        }
    }

    /// Shows an item that is about to be evicted.
    #[cold]
    pub(super) fn show_evicted(&self, found: &Found, now_s: u32, observer: &dyn EvictionObserver) {
        let item = &found.item;
        observer.evicted(&Evicted {
            key: self.key(found),
            value_bytes: found.value_bytes(self),
            ttl_s: (item.exptime_s != 0).then(|| item.exptime_s.saturating_sub(now_s)),
            idle_s: now_s.wrapping_sub(item.time_s) % TIME_MODULUS_S,
            fetched: item.fetched,
        });
    }
}
