//! What others may see of the store without using it: whether a key has an item, and which items are evicted.

use std::fmt::Debug;
use std::sync::Arc;

use super::Embedded;
use super::Turn;
use super::item::End;
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
            None if found.is_in_place() => Standing::Alive(using(self.tail(&found))),
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
            idle_s: item.idle_s(now_s),
            fetched: item.fetched,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use parking_lot::Mutex;
    use units::ByteCount;

    use super::super::{Fetch, Glimpse, Mode, NewItem, Options, Removal, Stored};
    use super::*;

    const NOW_S: u32 = 100;

    fn store(limit: ByteCount) -> Embedded {
        Embedded::new(Options { limit, evict: true, seed: 5 })
    }

    fn set(store: &Embedded, key: &str, item: NewItem<'_>) -> u64 {
        match store.store(key.as_bytes(), item, Mode::Set, NOW_S) {
            Ok(Stored::Stored { cas }) => cas,
            other => panic!("{other:?}"),
        }
    }

    /// Remembers what was evicted.
    #[derive(Debug, Default)]
    struct Seen(Mutex<HashMap<Vec<u8>, Facts>>);

    /// The length of the value, the time to live and whether the item was fetched.
    type Facts = (usize, Option<u32>, bool);

    impl EvictionObserver for Seen {
        fn evicted(&self, item: &Evicted<'_>) {
            let facts = (item.value_bytes, item.ttl_s, item.fetched);
            assert!(self.0.lock().insert(item.key.to_vec(), facts).is_none(), "once each");
        }
    }

    #[test]
    fn every_evicted_item_is_shown() {
        let store = store(ByteCount::mib(1));
        let seen = Arc::new(Seen::default());
        store.observe_evictions(Arc::clone(&seen) as _);
        let value = vec![b'v'; 5_000];
        for index in 0..1_000 {
            let item = NewItem { value: &value, exptime_s: NOW_S + 60, ..NewItem::default() };
            set(&store, &format!("k{index}"), item);
        }
        let seen = seen.0.lock();
        assert_eq!(seen.len() as u64, store.stats().evictions);
        assert!(seen.len() > 500, "{}", seen.len());
        assert!(seen.values().all(|facts| *facts == (5_000, Some(60), false)));
        assert!(seen.keys().all(|key| store.fetch(key, &Fetch::PEEK, NOW_S).is_none()));
    }

    #[test]
    fn a_lookup_tells_why_there_is_no_item() {
        let store = store(ByteCount::mib(1));
        let standing = |key: &str, now_s| store.standing(key.as_bytes(), now_s, <[u8]>::len);
        assert_eq!(standing("k", NOW_S), Standing::Missing);
        for value_bytes in [0, 5, 100_000] {
            let value = vec![b'v'; value_bytes];
            set(&store, "k", NewItem { value: &value, exptime_s: NOW_S + 9, ..NewItem::default() });
            assert_eq!(standing("k", NOW_S), Standing::Alive(value_bytes));
        }
        assert_eq!(standing("k", NOW_S + 9), Standing::Expired);
        assert_eq!(standing("k", NOW_S + 9), Standing::Expired, "it leaves no mark");
        store.flush_all(NOW_S, NOW_S);
        assert_eq!(standing("k", NOW_S), Standing::Flushed);
    }

    #[test]
    fn a_given_cas_lasts_until_the_value_changes() {
        let store = store(ByteCount::mib(1));
        let cas = set(&store, "k", NewItem { value: b"41", flags: 7, ..NewItem::default() });
        let seen = || store.fetch(b"k", &Fetch::GET, NOW_S).expect("it is there");
        store.give_cas(b"k", cas + 1, 5, NOW_S);
        assert_eq!((seen().cas, seen().version), (cas, Some(cas)), "another CAS was expected");
        store.give_cas(b"k", cas, u64::MAX, NOW_S);
        let found = seen();
        assert_eq!((found.cas, found.version, found.flags), (u64::MAX, None, 7));
        assert_eq!(&found.value[..], b"41");
        let using = |item: &Glimpse<'_>| Some((item.cas, item.version));
        let (_, used) = store.fetch_in_place(b"k", &Fetch::GET, NOW_S, using).expect("there");
        assert_eq!(used, Some((u64::MAX, None)));
        // A touch keeps it, and it is compared with.
        assert!(store.touch(b"k", NOW_S + 50, NOW_S));
        assert_eq!(seen().cas, u64::MAX);
        assert_eq!(store.delete(b"k", Some(cas), NOW_S), Removal::Exists);
        let delta =
            super::super::Delta { compare: u64::MAX, ..super::super::Delta::classic(true, 1) };
        assert!(store.arithmetic(b"k", &delta, NOW_S).is_ok());
        assert_eq!(&seen().value[..], b"42");
        let next = seen();
        assert_eq!(next.version, Some(next.cas), "the store chooses again");
        store.give_cas(b"k", next.cas, 9, NOW_S);
        assert_eq!(store.invalidate(b"k", Some(9), None, NOW_S), Removal::Done);
        assert_ne!(seen().cas, 9);
    }
}
