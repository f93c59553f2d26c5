//! One shard: the items under one lock, their cost, and the choice of items to evict.

use ahash::RandomState;
use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};

use super::item::{End, Fetch, Fetched, Item, NewItem, Step};
use super::{Mode, OutOfMemory, Removal, Stats, Stored, Turn};

/// A shard.
#[derive(Debug)]
pub(super) struct Shard {
    cache: Cache<Key, Item, ItemWeight, RandomState, CountEvicted>,
    evict: bool,
    /// The largest item that can be inserted without being evicted itself.
    item_bytes_max: u64,
    counters: Counters,
}

/// The items that `flush_all` ended: those last accessed up to `until_s`, and those with a version
/// before `cas`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flushed {
    pub(super) until_s: u32,
    pub(super) cas: u64,
}

impl Shard {
    /// Creates a shard that takes `bytes` of memory when it is full, for items up to
    /// `item_bytes_max`.
    pub(super) fn new(bytes: u64, item_bytes_max: u64, evict: bool, hash: RandomState) -> Self {
        let fits_beside_hot = item_bytes_max as f64 <= bytes as f64 * (1.0 - HOT_SHARE);
        let hot_share = if fits_beside_hot { HOT_SHARE } else { HOT_SHARE_LARGE_ITEMS };
        let options = OptionsBuilder::new()
            .weight_capacity(bytes)
            .hot_allocation(hot_share)
            .ghost_allocation(0.0)
            .estimated_items_capacity(1)
            .build()
            .expect("both capacities are given");
        let cache = Cache::with_options(options, ItemWeight, hash, CountEvicted);
        let item_bytes_max = (bytes as f64 * (1.0 - hot_share)) as u64;
        Self { cache, evict, item_bytes_max, counters: Counters::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }

    pub(super) fn items(&self) -> impl Iterator<Item = (&Key, &Item)> {
        self.cache.iter()
    }

    pub(super) fn fetch(
        &mut self,
        key: &[u8],
        fetch: &Fetch<'_>,
        turn: &Turn<'_>,
    ) -> Option<Fetched> {
        let visit = |item: &mut Item| item.visit(fetch, false, turn.now_s);
        let found = self.with_live(key, fetch.bump, turn, visit);
        if found.is_some() || !fetch.steps.iter().any(|step| matches!(step, Step::Vivify(_))) {
            return found;
        }
        let mut item = Item::new(NewItem::default(), turn.now_s);
        item.cas = turn.cas_next();
        let fetched = item.visit(fetch, true, turn.now_s);
        self.insert(key, item, turn).ok()?;
        Some(fetched)
    }

    pub(super) fn store(
        &mut self,
        key: &[u8],
        item: NewItem,
        mode: Mode,
        turn: &Turn<'_>,
    ) -> Result<Stored, OutOfMemory> {
        let mut item = Item::new(item, turn.now_s);
        let replaced = self.with_live(key, true, turn, |old| {
            if let Some(refusal) = item.refused_by(old, mode, turn.now_s) {
                return Next::Done(refusal);
            }
            if item.value.len() > old.value.len() {
                return Next::Insert;
            }
            item.cas = turn.cas_next();
            let stored = Stored::Stored { cas: item.cas };
            std::mem::swap(old, &mut item);
            Next::Done(stored)
        });
        match (replaced, mode) {
            (Some(Next::Done(stored)), _) => {
                self.counters.total_items += u64::from(matches!(stored, Stored::Stored { .. }));
                return Ok(stored);
            }
            (None, Mode::Replace) => return Ok(Stored::NotStored),
            (None, Mode::Compare { .. } | Mode::Overwrite { .. }) => return Ok(Stored::NotFound),
            (Some(Next::Insert), _) | (None, Mode::Set | Mode::Add) => {}
        }
        item.cas = turn.cas_next();
        let stored = Stored::Stored { cas: item.cas };
        self.insert(key, item, turn).inspect_err(|_| {
            if mode == Mode::Set {
                self.cache.remove(key);
            }
        })?;
        Ok(stored)
    }

    pub(super) fn delete(&mut self, key: &[u8], compare: Option<u64>, turn: &Turn<'_>) -> Removal {
        match self.with_live(key, false, turn, |item| item.cas) {
            None => Removal::NotFound,
            Some(cas) if compare.is_some_and(|wanted| wanted != cas) => Removal::Exists,
            Some(_) => {
                self.cache.remove(key);
                Removal::Done
            }
        }
    }

    pub(super) fn invalidate(
        &mut self,
        key: &[u8],
        compare: Option<u64>,
        exptime_s: Option<u32>,
        turn: &Turn<'_>,
    ) -> Removal {
        let marked = self.with_live(key, false, turn, |item| {
            if compare.is_some_and(|wanted| wanted != item.cas) {
                return Removal::Exists;
            }
            item.exptime_s = exptime_s.unwrap_or(item.exptime_s);
            item.stale = true;
            item.token_sent = false;
            item.cas = turn.cas_next();
            Removal::Done
        });
        marked.unwrap_or(Removal::NotFound)
    }

    /// Removes all ended items and returns their number.
    pub(super) fn sweep(&mut self, turn: &Turn<'_>) -> usize {
        let ended = |(key, item): (&Key, &Item)| {
            item.end(turn.now_s, &turn.flushed)
                .map(|end| (key.clone(), end == End::Expired && !item.fetched))
        };
        let ended: Vec<(Key, bool)> = self.cache.iter().filter_map(ended).collect();
        for (key, unfetched) in &ended {
            self.counters.expired_unfetched += u64::from(*unfetched);
            self.cache.remove(key);
        }
        self.counters.crawler_reclaimed += ended.len() as u64;
        ended.len()
    }

    pub(super) fn add_to(&self, stats: &mut Stats) {
        let counters = &self.counters;
        stats.curr_items += self.cache.len() as u64;
        stats.bytes += self.cache.weight();
        stats.total_items += counters.total_items;
        stats.evictions += counters.evicted.evictions;
        stats.evicted_unfetched += counters.evicted.evicted_unfetched;
        stats.reclaimed += counters.evicted.reclaimed;
        stats.expired_unfetched += counters.expired_unfetched + counters.evicted.expired_unfetched;
        stats.crawler_reclaimed += counters.crawler_reclaimed;
        stats.get_expired += counters.get_expired;
        stats.get_flushed += counters.get_flushed;
    }

    /// Runs `act` on the item if it is alive. Removes the item if it has ended.
    pub(super) fn with_live<R>(
        &mut self,
        key: &[u8],
        bump: bool,
        turn: &Turn<'_>,
        act: impl FnOnce(&mut Item) -> R,
    ) -> Option<R> {
        let found = if bump { self.cache.get_mut(key) } else { self.cache.peek_mut(key) };
        let mut item = found?;
        match item.end(turn.now_s, &turn.flushed) {
            None => return Some(act(&mut item)),
            Some(End::Expired) => self.counters.get_expired += 1,
            Some(End::Flushed) => self.counters.get_flushed += 1,
        }
        drop(item);
        self.cache.remove(key);
        None
    }

    /// Inserts an item, replaces an old one, and evicts others if necessary. The new item does not
    /// take the old one's place in the eviction order. Otherwise hot items that grow would take the
    /// newcomers' share of the shard.
    pub(super) fn insert(
        &mut self,
        key: &[u8],
        item: Item,
        turn: &Turn<'_>,
    ) -> Result<(), OutOfMemory> {
        let needed = weight(key, &item);
        let old = self.cache.peek(key).map_or(0, |old| weight(key, old));
        let has_room = |shard: &Self| shard.evict || needed <= shard.spare() + old;
        if needed > self.item_bytes_max
            || !has_room(self) && (self.sweep(turn) == 0 || !has_room(self))
        {
            return Err(OutOfMemory { needed_bytes: needed, shard_bytes: self.cache.capacity() });
        }
        let key = self.cache.remove(key).map_or_else(|| key.into(), |(key, _)| key);
        let mut evicted =
            Evicted { now_s: turn.now_s, flushed: turn.flushed, counts: EvictedCounts::default() };
        self.cache.insert_with_lifecycle(key, item, &mut evicted);
        self.counters.evicted.add(&evicted.counts);
        self.counters.total_items += 1;
        Ok(())
    }

    /// Returns the bytes that are free without an eviction.
    fn spare(&self) -> u64 {
        self.cache.capacity().saturating_sub(self.cache.weight())
    }
}

/// The cost of an item in addition to its key and its value (bytes). It consists of the entry in
/// `quick_cache`'s slab (88), its place in the hash table (about 9), the key's and the value's
/// allocation headers and rounding (about 16 each) and the 32 bytes that `Bytes` allocates when it
/// is first shared. tests/memory.rs compares this cost with the memory that the process really
/// takes.
pub const ITEM_OVERHEAD_BYTES: usize = 160;

/// The share of a shard for items that were accessed again. Newcomers wait in the rest, in order of
/// arrival, so an item stays at least until as many bytes as the rest holds have arrived after it.
/// Compared with this value, a share of 0.9 gains half a percentage point of hits if the popularity
/// of keys is constant and loses four points if the popularity drifts (Zipf, 200,000 keys).
/// `quick_cache` can also remember evicted keys and treat them as hot when they return. That lets
/// hot items take the newcomers' share and gains no hits.
const HOT_SHARE: f64 = 0.75;

/// The share of hot items if the largest item would not fit into the rest. An item may then take
/// half of the shard, which is half of the store because stores with such large items have one
/// shard. memcached's `-I` allows at most the same.
const HOT_SHARE_LARGE_ITEMS: f64 = 0.5;

pub(super) type Key = Box<[u8]>;

#[derive(Debug, Default)]
struct Counters {
    total_items: u64,
    crawler_reclaimed: u64,
    expired_unfetched: u64,
    get_expired: u64,
    get_flushed: u64,
    evicted: EvictedCounts,
}

#[derive(Clone, Copy, Debug, Default)]
struct EvictedCounts {
    evictions: u64,
    evicted_unfetched: u64,
    reclaimed: u64,
    expired_unfetched: u64,
}

impl EvictedCounts {
    fn add(&mut self, other: &Self) {
        self.evictions += other.evictions;
        self.evicted_unfetched += other.evicted_unfetched;
        self.reclaimed += other.reclaimed;
        self.expired_unfetched += other.expired_unfetched;
    }
}

enum Next {
    Done(Stored),
    Insert,
}

impl Item {
    /// Returns a refusal if `mode` does not let this item replace `old`. Otherwise the item takes
    /// over from `old` what the mode requires.
    fn refused_by(&mut self, old: &mut Item, mode: Mode, now_s: u32) -> Option<Stored> {
        match mode {
            Mode::Set | Mode::Replace => None,
            Mode::Add => {
                old.time_s = now_s;
                Some(Stored::NotStored)
            }
            Mode::Compare { cas, .. } if cas == old.cas => None,
            Mode::Overwrite { cas } if cas == old.cas => {
                self.fetched = old.fetched;
                self.stale = old.stale;
                self.token_sent = old.token_sent;
                None
            }
            // Version 0 is not a version: memcached reads it as "not given", and no item equals it.
            Mode::Compare { cas, stale_if_older: true } if cas != 0 && cas < old.cas => {
                self.exptime_s = old.exptime_s;
                self.stale = true;
                self.token_sent = old.token_sent;
                None
            }
            Mode::Compare { .. } | Mode::Overwrite { .. } => Some(Stored::Exists),
        }
    }
}

fn weight(key: &[u8], item: &Item) -> u64 {
    (key.len() + item.value.len() + ITEM_OVERHEAD_BYTES) as u64
}

#[derive(Clone, Debug)]
struct ItemWeight;

impl Weighter<Key, Item> for ItemWeight {
    fn weight(&self, key: &Key, item: &Item) -> u64 {
        weight(key, item)
    }
}

#[derive(Clone, Debug)]
struct CountEvicted;

/// The state of an insertion: what distinguishes an eviction from the removal of an ended item, and
/// the counts of both.
#[derive(Default)]
struct Evicted {
    now_s: u32,
    flushed: Flushed,
    counts: EvictedCounts,
}

impl Lifecycle<Key, Item> for CountEvicted {
    type RequestState = Evicted;

    fn on_evict(&self, state: &mut Evicted, _key: Key, item: Item) {
        let counts = &mut state.counts;
        match item.end(state.now_s, &state.flushed) {
            Some(End::Expired) => {
                counts.reclaimed += 1;
                counts.expired_unfetched += u64::from(!item.fetched);
            }
            Some(End::Flushed) => counts.reclaimed += 1,
            None => {
                counts.evictions += 1;
                counts.evicted_unfetched += u64::from(!item.fetched);
            }
        }
    }
}
