//! A walk over all items in bounded steps, while other clients change them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Embedded;
use super::index::Tag;
use super::record::TIME_MODULUS_S;

/// A walk over the items of a store. A store has at most one walk at a time. Dropping it allows the
/// next one.
#[derive(Debug)]
pub struct Walk {
    store: Arc<Embedded>,
    /// The shard and the tag at which the next step begins. Items keep their tags while they move
    /// within the shard.
    shard: usize,
    tag: Tag,
}

/// An item as a walk shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The item's key.
    pub key: &'a [u8],
    /// The length of the item's stored form (bytes).
    pub value_bytes: usize,
    /// The item's CAS.
    pub cas: u64,
    /// The time at which the item expires, on the store's clock; 0 for never.
    pub exptime_s: u32,
    /// The time since the item was last accessed (s). An earlier process may have accessed it, before the
    /// store's clock began.
    pub idle_s: u32,
    /// Whether the item was fetched before.
    pub fetched: bool,
    /// Whether the item's key was sent in base64.
    pub key_is_binary: bool,
}

impl Embedded {
    /// Begins a walk. Returns none while another walk is in progress.
    pub fn walk(self: &Arc<Self>) -> Option<Walk> {
        let begun = !self.walking.swap(true, Ordering::AcqRel);
        let tag = Tag::from_bound(0);
        begun.then(|| Walk { store: Arc::clone(self), shard: 0, tag })
    }
}

impl Walk {
    /// Shows some thousands of the living items and returns whether there are more. An item that
    /// lives from the first step to the last is shown once.
    pub fn step(&mut self, now_s: u32, mut show: impl FnMut(Listed<'_>)) -> bool {
        let turn = self.store.turn(now_s);
        let mut left = STEP_ITEMS;
        while left > 0
            && let Some(shard) = self.store.shards.get(self.shard)
        {
            let (shown, next) =
                shard.read().show(self.tag, left, &turn, |key, item, value_bytes| {
                    show(Listed {
                        key,
                        value_bytes,
                        cas: item.shown_cas(),
                        exptime_s: item.exptime_s,
                        idle_s: now_s.wrapping_sub(item.time_s) % TIME_MODULUS_S,
                        fetched: item.fetched,
                        key_is_binary: item.key_is_binary,
                    });
                });
            left = left.saturating_sub(shown);
            match next {
                Some(tag) => self.tag = tag,
                None => (self.shard, self.tag) = (self.shard + 1, Tag::from_bound(0)),
            }
        }
        self.shard < self.store.shards.len()
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.store.walking.store(false, Ordering::Release);
    }
}

/// The approximate number of items that a step shows.
const STEP_ITEMS: usize = 2_048;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use units::ByteCount;

    use super::super::{Mode, NewItem, Options};
    use super::*;

    fn store() -> Arc<Embedded> {
        let limit = ByteCount::mib(32);
        Arc::new(Embedded::new(Options { limit, evict: true, seed: 3 }))
    }

    fn set(store: &Embedded, key: &str, exptime_s: u32) {
        let item = NewItem { value: b"v", exptime_s, ..NewItem::default() };
        store.store(key.as_bytes(), item, Mode::Set, 10).expect("there is room");
    }

    #[test]
    fn items_that_stay_are_shown_once_while_others_change() {
        let store = store();
        let stay: HashSet<String> = (0..20_000).map(|index| format!("stay_{index}")).collect();
        stay.iter().for_each(|key| set(&store, key, 0));
        (0..20_000).for_each(|index| set(&store, &format!("go_{index}"), 0));
        let (mut seen, mut steps) = (Vec::new(), 0);
        let mut walk = store.walk().expect("none is under way");
        let mut most = 0;
        loop {
            let before = seen.len();
            let more =
                walk.step(10, |item| seen.push(String::from_utf8_lossy(item.key).into_owned()));
            most = most.max(seen.len() - before);
            for index in steps * 1_000..(steps + 1) * 1_000 {
                store.delete(format!("go_{index}").as_bytes(), None, 10);
                set(&store, &format!("new_{index}"), 0);
            }
            steps += 1;
            if !more {
                break;
            }
        }
        let stayed: Vec<&String> = seen.iter().filter(|key| key.starts_with("stay")).collect();
        assert_eq!(stayed.len(), stay.len(), "each once");
        assert_eq!(stayed.into_iter().cloned().collect::<HashSet<String>>(), stay);
        assert!(steps > 10 && most < 2 * STEP_ITEMS, "{steps} steps of at most {most}");
    }

    #[test]
    fn items_whose_time_has_come_are_not_shown() {
        let store = store();
        set(&store, "ends", 20);
        set(&store, "stays", 0);
        let mut seen = Vec::new();
        let mut walk = store.walk().expect("none is under way");
        while walk.step(21, |item| seen.push(item.key.to_vec())) {}
        assert_eq!(seen, [b"stays"]);
    }

    #[test]
    fn one_walk_is_in_progress_at_a_time() {
        let store = store();
        let walk = store.walk();
        assert!(walk.is_some() && store.walk().is_none());
        drop(walk);
        assert!(store.walk().is_some());
    }
}
