//! The embedded store: items in this process's memory, with memcached 1.6's rules for each single
//! item. It does not read frames, does not count commands and has no thread. It reads no clock
//! either: seconds are an argument, and [`CoarseClock`] provides them.

mod arithmetic;
mod blocks;
mod clock;
mod index;
mod item;
mod log;
mod memory;
mod observe;
mod record;
mod shard;
pub mod snapshot;
mod time;
mod walk;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ahash::RandomState;
use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use units::ByteCount;

pub use arithmetic::{Counted, Delta};
pub use clock::CoarseClock;
pub use item::{Fetch, Fetched, Glimpse, NewItem, Step};
pub use observe::{Evicted, EvictionObserver, Standing};
pub use time::expiry;
pub use walk::{Listed, Walk};

use index::Tag;
use memory::Memory;
use shard::{Flushed, Glance, Key, Lacking, Shard, Supply};

use crate::frame::brief::Form;

/// A byte-budgeted cache in this process. The time `now_s` of its methods is in seconds of the clock of
/// items' expiry times ([`expiry`] converts to it). `now_s` must not be zero and must not run backwards.
///
/// Items live in shards. Each shard is under one lock, which fetches share, so every change of an
/// item is atomic and fetches do not wait for each other. An item takes its key, its value, 13 to 29
/// bytes of header and 9 bytes of index. Items are appended to segments of memory, which all shards
/// share. Frames with a dictionary are kept without the bytes that their others tell. When there is
/// no free segment, the shard with the most segments frees one: it evicts the oldest items that were
/// not accessed again (two queues, as in S3-FIFO).
#[derive(Debug)]
pub struct Embedded {
    shards: Box<[RwLock<Shard>]>,
    memory: Memory,
    hash: RandomState,
    evict: bool,
    cas_last: AtomicU64,
    /// The items with a version before this one were flushed.
    flushed_cas: AtomicU64,
    /// A flush ends the items that are stored up to the end of this second; 0 for none.
    flush_until_s: AtomicU32,
    flush: Mutex<()>,
    /// The shard and the segment at which the next call of [`Embedded::sweep`] begins.
    sweep_next: Mutex<(usize, u32)>,
    /// Whether a [`Walk`] is in progress.
    walking: AtomicBool,
    observer: OnceLock<Arc<dyn EvictionObserver>>,
    limit: ByteCount,
    /// The part of the limit that is not for items.
    reserved_bytes: AtomicU64,
}

/// The options of an [`Embedded`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The memory that the store takes: items and index.
    pub limit: ByteCount,
    /// Whether a full store evicts items for new ones. memcached's `-M` turns this off.
    pub evict: bool,
    /// The seed of the hashes. Draw it at random if clients that choose keys are not trusted.
    pub seed: u64,
}

/// The condition under which the store accepts a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Always stores the value.
    Set,
    /// Stores the value only if the key is absent.
    Add,
    /// Stores the value only if the key is present.
    Replace,
    /// Replaces the item only if it has the version `cas`.
    Compare {
        /// The version from which the value was derived.
        cas: u64,
        /// Whether the value also replaces a later version. It is then marked stale (`ms` with flag
        /// `I`).
        stale_if_older: bool,
    },
    /// Replaces the item only if it has the version `cas`. The new item inherits the item's marks
    /// (fetched, stale), as if its value had been changed in place.
    Overwrite {
        /// The version from which the value was derived.
        cas: u64,
    },
}

/// The result of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The value is stored.
    Stored {
        /// The new version.
        cas: u64,
    },
    /// The mode did not allow the store.
    NotStored,
    /// The item has another version.
    Exists,
    /// There is no item to compare with.
    NotFound,
}

/// The result of deleting an item or marking it stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The item is deleted or marked stale.
    Done,
    /// There is no such item.
    NotFound,
    /// The item has another version.
    Exists,
}

/// The item needs more space than there is. Either it is larger than half of the store, or the
/// budget is spent and nothing may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("out of memory: no space for an item of {needed_bytes} bytes in a store of {limit_bytes}")]
pub struct OutOfMemory {
    /// The bytes of key and value.
    pub needed_bytes: u64,
    /// The budget of the store (bytes). One item may take at most half of it.
    pub limit_bytes: u64,
}

/// Counters and gauges, with the names of memcached's `stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The items held, including expired and flushed items that were not removed yet.
    pub curr_items: u64,
    /// Items stored since the start.
    pub total_items: u64,
    /// The bytes held: keys, values, headers and index.
    pub bytes: u64,
    /// The budget.
    pub limit_maxbytes: u64,
    /// Items that were evicted before they expired or were flushed.
    pub evictions: u64,
    /// The evicted items that were never fetched.
    pub evicted_unfetched: u64,
    /// When an item was evicted last, on the store's clock, and how long it had not been accessed then (s). It tells
    /// how long an item stays that nobody reads.
    pub evicted_last: Option<(u32, u32)>,
    /// Expired and flushed items that were removed to make space.
    pub reclaimed: u64,
    /// Items that expired before they were ever fetched.
    pub expired_unfetched: u64,
    /// Items that a sweep removed.
    pub crawler_reclaimed: u64,
    /// Lookups that found an expired item.
    pub get_expired: u64,
    /// Lookups that found a flushed item.
    pub get_flushed: u64,
}

impl Embedded {
    /// Creates an empty store.
    pub fn new(options: Options) -> Self {
        let Options { limit, evict, seed } = options;
        let segment_bytes = (limit.0 / SEGMENTS).clamp(SEGMENT_MIN, SEGMENT_MAX);
        let segment_bytes = 1 << segment_bytes.ilog2();
        let count = (limit.0 / SHARD_BYTES).clamp(1, SHARDS_MAX);
        let count = 1_usize << count.ilog2();
        let hash = RandomState::with_seeds(seed, 1, !seed, 0x6b65_7973);
        let shards = (0..count).map(|_| RwLock::new(Shard::new(segment_bytes, hash.clone())));
        Self {
            shards: shards.collect(),
            memory: Memory::new(limit.0, segment_bytes),
            hash,
            evict,
            cas_last: AtomicU64::new(0),
            flushed_cas: AtomicU64::new(0),
            flush_until_s: AtomicU32::new(0),
            flush: Mutex::new(()),
            sweep_next: Mutex::new((0, 0)),
            walking: AtomicBool::new(false),
            observer: OnceLock::new(),
            limit,
            reserved_bytes: AtomicU64::new(0),
        }
    }

    /// Counts `bytes` of memory that belong to the store's limit and are not items, such as dictionaries. The next
    /// call replaces this one. Items make way for them as they are written.
    pub fn reserve(&self, bytes: u64) {
        let before = self.reserved_bytes.swap(bytes, Ordering::Relaxed);
        if bytes > before {
            self.memory.grew((bytes - before) as usize);
        } else {
            self.memory.shrank((before - bytes) as usize);
        }
    }

    /// Returns the item of `key` and applies the fetch's steps. The value is a copy.
    pub fn fetch(&self, key: &[u8], fetch: &Fetch<'_>, now_s: u32) -> Option<Fetched> {
        let nothing = |_: &Glimpse<'_>| None::<Infallible>;
        self.fetch_in_place(key, fetch, now_s, nothing).map(|(fetched, _)| fetched)
    }

    /// Fetches like [`Embedded::fetch`], for a caller that may not need a copy of the value: it already has the value,
    /// or uses it in place. If `using` returns something, this is returned too, and the value is not copied: it is then
    /// empty. Every change of a value gives the item another version, so what is known of a version stays true. `using`
    /// is called at most once. It runs under a lock, so it must be short and must not call the store, but for
    /// [`Embedded::hash`].
    pub fn fetch_in_place<U>(
        &self,
        key: &[u8],
        fetch: &Fetch<'_>,
        now_s: u32,
        mut using: impl FnMut(&Glimpse<'_>) -> Option<U>,
    ) -> Option<(Fetched, Option<U>)> {
        let (shard, key) = self.locate(key);
        let turn = self.turn(now_s);
        let glance = self.shards[shard].read().glance(key, fetch, &turn, &mut using);
        match glance {
            Glance::Missing => None,
            Glance::Found(fetched, used, is_time_due) => {
                if is_time_due && let Some(mut shard) = self.shards[shard].try_write() {
                    shard.set_time(key, now_s);
                }
                Some((fetched, used))
            }
            Glance::MustChange => {
                let change = |shard: &mut Shard, supply: &mut Supply<'_>| {
                    shard.fetch(key, fetch, &turn, supply, &mut using)
                };
                self.change(shard, key.bytes.len(), &turn, change).ok().flatten()
            }
        }
    }

    /// Returns the hash by which the store finds `key`. It depends on the store's seed.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> u64 {
        self.hash.hash_one(key)
    }

    /// Lends `bytes` of the store's memory to the caller. If there is too little free memory, the store evicts
    /// items. Returns false if it may not evict, and then lends nothing.
    pub fn lend(&self, bytes: u64, now_s: u32) -> bool {
        self.memory.grew(bytes as usize);
        let turn = self.turn(now_s);
        let any = (turn.cas_last.load(Ordering::Relaxed) as usize) % self.shards.len();
        while !self.memory.fits() {
            if !self.evict || !self.reclaim(any, Lacking { blocks: 0 }, &turn) {
                self.memory.shrank(bytes as usize);
                return false;
            }
        }
        true
    }

    /// Takes back memory that was lent.
    pub fn take_back(&self, bytes: u64) {
        self.memory.shrank(bytes as usize);
    }

    /// Sets the time at which an item expires. Returns false if there is no item.
    pub fn touch(&self, key: &[u8], exptime_s: u32, now_s: u32) -> bool {
        let steps = [Step::Touch(exptime_s)];
        self.fetch(key, &Fetch { bump: true, meta: false, steps: &steps }, now_s).is_some()
    }

    /// Stores a value. If there is no space, a [`Mode::Set`] also removes the old version, so that
    /// no client keeps reading a value that was meant to be replaced.
    pub fn store(
        &self,
        key: &[u8],
        item: NewItem<'_>,
        mode: Mode,
        now_s: u32,
    ) -> Result<Stored, OutOfMemory> {
        let (shard, key) = self.locate(key);
        let turn = self.turn(now_s);
        let stored =
            self.change(shard, key.bytes.len() + item.value.len(), &turn, |shard, supply| {
                shard.store(key, &item, mode, &turn, supply)
            });
        if stored.is_err() && mode == Mode::Set {
            self.shards[shard].write().drop_item(key);
        }
        stored
    }

    /// Removes an item. With `compare`, removes it only if it has this version.
    pub fn delete(&self, key: &[u8], compare: Option<u64>, now_s: u32) -> Removal {
        let (shard, key) = self.locate(key);
        self.shards[shard].write().delete(key, compare, &self.turn(now_s))
    }

    /// Marks an item stale, which gives it a new version. With `compare`, marks it only if it has
    /// this version. A given `exptime_s` also sets the time at which it expires.
    pub fn invalidate(
        &self,
        key: &[u8],
        compare: Option<u64>,
        exptime_s: Option<u32>,
        now_s: u32,
    ) -> Removal {
        let (shard, key) = self.locate(key);
        let (turn, mut shard) = (self.turn(now_s), self.shards[shard].write());
        shard.invalidate(key, compare, exptime_s, &turn, &self.memory)
    }

    /// Gives an item the CAS `given`, which clients see from now on, if it has the CAS `compare`. It lasts until the
    /// value changes. 0 means that clients see the store's own version.
    pub fn give_cas(&self, key: &[u8], compare: u64, given: u64, now_s: u32) {
        let (shard, key) = self.locate(key);
        let (turn, mut shard) = (self.turn(now_s), self.shards[shard].write());
        shard.give_cas(key, compare, given, &turn, &self.memory);
    }

    /// Increments or decrements an item.
    pub fn arithmetic(
        &self,
        key: &[u8],
        delta: &Delta<'_>,
        now_s: u32,
    ) -> Result<Counted, OutOfMemory> {
        let (shard, key) = self.locate(key);
        let turn = self.turn(now_s);
        self.change(shard, key.bytes.len(), &turn, |shard, supply| {
            shard.arithmetic(key, delta, &turn, supply)
        })
    }

    /// Invalidates all items stored before `at_s` once that time has come. With `at_s == now_s` it
    /// invalidates all items at once. A later call replaces an earlier flush whose time has not come. The
    /// memory of an invalidated item is freed when the item is looked up or swept. As in memcached, a flush
    /// in the future also invalidates the items that are stored in the second before it.
    pub fn flush_all(&self, at_s: u32, now_s: u32) {
        let until_s = at_s.saturating_sub(1);
        let _one_at_a_time = self.flush.lock();
        let pending_s = self.flush_until_s.load(Ordering::Acquire);
        if until_s <= now_s || (1..=now_s).contains(&pending_s) {
            self.flushed_cas.store(self.cas_next(), Ordering::Release);
        }
        let is_over = until_s < now_s;
        self.flush_until_s.store(if is_over { 0 } else { until_s }, Ordering::Release);
    }

    /// Removes ended items until about `items_budget` items, or all of them, were checked. A segment in which nothing
    /// can have ended counts as one item. The next call continues after them. Returns the number of removed items.
    pub fn sweep(&self, items_budget: usize, now_s: u32) -> usize {
        let turn = self.turn(now_s);
        let mut next = self.sweep_next.lock();
        let (mut seen, mut removed, mut ends) = (0, 0, 0);
        while seen < items_budget && ends < self.shards.len() {
            let (shard, from) = *next;
            let part = items_budget.min(SWEEP_ITEMS);
            let swept = self.shards[shard].write().sweep(from, part, &turn);
            (seen, removed) = (seen + swept.seen, removed + swept.removed);
            *next = swept.next.map_or_else(
                || {
                    ends += 1;
                    ((shard + 1) % self.shards.len(), 0)
                },
                |segment| (shard, segment),
            );
        }
        removed
    }

    /// Returns the counters and gauges.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats { limit_maxbytes: self.limit.0, ..Stats::default() };
        for shard in &self.shards {
            shard.read().add_to(&mut stats);
        }
        stats
    }

    /// Runs an operation on a shard. While the operation lacks memory, shards free some.
    fn change<R>(
        &self,
        shard: usize,
        needed_bytes: usize,
        turn: &Turn<'_>,
        mut operation: impl FnMut(&mut Shard, &mut Supply<'_>) -> Result<R, Lacking>,
    ) -> Result<R, OutOfMemory> {
        let out_of_memory =
            OutOfMemory { needed_bytes: needed_bytes as u64, limit_bytes: self.limit.0 };
        if needed_bytes as u64 > self.limit.0 / 2 {
            return Err(out_of_memory);
        }
        let mut supply = Supply { memory: &self.memory, segments: Vec::new() };
        let result = loop {
            // The lock is released before memory is reclaimed, perhaps from another shard.
            let outcome = operation(&mut self.shards[shard].write(), &mut supply);
            match outcome {
                Ok(result) => break Ok(result),
                Err(lacking) => {
                    if !self.reclaim(shard, lacking, turn) {
                        break Err(out_of_memory);
                    }
                }
            }
        };
        supply.segments.into_iter().for_each(|segment| self.memory.put(segment));
        result
    }

    /// Frees memory for `shard`. Returns false if there is nothing to free.
    fn reclaim(&self, shard: usize, lacking: Lacking, turn: &Turn<'_>) -> bool {
        let count = self.shards.len();
        // The largest of three shards frees memory, so that all shards have about the same size.
        let draw = turn.cas_last.load(Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let others = [draw >> 48, draw >> 32].map(|draw| (draw as usize) % count);
        let candidates = [shard, others[0], others[1]];
        let size = |candidate: &usize| {
            let lead = if *candidate == shard { lacking.blocks } else { 0 };
            let candidate = self.shards[*candidate].read();
            // A shard can use the blocks that its own values leave, and of those in other shards whole segments only.
            candidate.segments() + candidate.segments_of_blocks(lead)
        };
        let largest = candidates.into_iter().max_by_key(size).unwrap_or(shard);
        let reclaim = |candidate: usize| {
            let blocks = if candidate == shard { lacking.blocks } else { 0 };
            let mut candidate = self.shards[candidate].write();
            candidate.reclaim(blocks, self.evict, turn, &self.memory)
        };
        reclaim(largest)
            || (0..count).any(|step| reclaim((shard + step) % count))
            || !self.evict && self.sweep(usize::MAX, turn.now_s) > 0
    }

    /// Returns the number of the key's shard, and the key with its tag.
    fn locate<'a>(&self, key: &'a [u8]) -> (usize, Key<'a>) {
        let hash = self.hash(key);
        let shard = (hash >> SHARD_SHIFT) as usize & (self.shards.len() - 1);
        (shard, Key { bytes: key, tag: Tag::of_hash(hash) })
    }

    fn cas_next(&self) -> u64 {
        self.cas_last.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn turn(&self, now_s: u32) -> Turn<'_> {
        let until_s = self.flush_until_s.load(Ordering::Acquire);
        if until_s != 0 && until_s < now_s {
            let _one_at_a_time = self.flush.lock();
            if self.flush_until_s.load(Ordering::Acquire) == until_s {
                let cas_last = self.cas_last.load(Ordering::Relaxed);
                self.flushed_cas.store(cas_last + 1, Ordering::Release);
                self.flush_until_s.store(0, Ordering::Release);
            }
        }
        let is_now = until_s == now_s;
        let cas = if is_now { u64::MAX } else { self.flushed_cas.load(Ordering::Acquire) };
        let observer = &self.observer;
        Turn { now_s, flushed: Flushed { cas }, cas_last: &self.cas_last, observer }
    }
}

/// The state outside the shard that one operation uses.
struct Turn<'a> {
    now_s: u32,
    flushed: Flushed,
    cas_last: &'a AtomicU64,
    observer: &'a OnceLock<Arc<dyn EvictionObserver>>,
}

impl Turn<'_> {
    fn cas_next(&self) -> u64 {
        self.cas_last.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The memory that an item takes besides its key and its value (bytes), without an expiry time and
/// client flags, which take 4 bytes each.
pub const ITEM_OVERHEAD_BYTES: usize = record::FIXED_BYTES + index::INDEX_BYTES;

/// Returns the bytes that a store does not keep of a frame with a dictionary, because the rest of the frame tells them.
pub fn omitted_bytes(original_bytes: usize) -> usize {
    Form::for_dictionary(original_bytes).omitted_bytes()
}

/// The number of segments of a store between the bounds of a segment's length [bytes]. With more of
/// them, the segments that are being filled waste less memory.
const SEGMENTS: u64 = 1_024;
const SEGMENT_MIN: u64 = 4 << 10;
const SEGMENT_MAX: u64 = 256 << 10;

/// The memory for which a store has one more shard [bytes].
const SHARD_BYTES: u64 = 4 << 20;

/// The most shards. More shards would not reduce lock contention further.
const SHARDS_MAX: u64 = 4_096;

/// The hash's bits from this one on choose the shard; lower bits are the tag.
const SHARD_SHIFT: u32 = 40;

/// The most items that a sweep checks while it holds a shard's lock.
const SWEEP_ITEMS: usize = 1_024;

#[cfg(test)]
mod tests;
