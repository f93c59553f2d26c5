//! Keeps the logical values of the compressed items of the embedded store that are worth most: those that save the
//! most decompression per byte. A read of such an item decompresses nothing.
//!
//! A value is kept under the hash of its item's key, together with the item's version (CAS). The store gives every
//! change of a value a version of its own, and a read asks it for the item's version first. So a read cannot find an
//! older value than the store holds, and expiry, eviction and flushes take effect without any work here. A write of an
//! item whose value is kept brings the new value. Values of versions that are gone are not read any more, and make way
//! for others. The store lends the memory. This module decompresses nothing and does not keep keys.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use ahash::RandomState;
use bytes::Bytes;
use parking_lot::RwLock;
use store::embedded::{CoarseClock, Embedded, Glimpse};
use store::frame;
use units::{Nanos, Prng};

/// The hot values of a process. All workers share them.
pub(crate) struct HotValues {
    store: Arc<Embedded>,
    time: CoarseClock,
    shards: Box<[RwLock<Shard>]>,
    /// The bytes that the values of one shard may take.
    shard_bytes_max: u64,
    items: AtomicUsize,
    held_bytes: AtomicU64,
    admissions: AtomicU64,
    renewals: AtomicU64,
    evictions: AtomicU64,
}

/// A logical value, and the length of its stored form.
#[derive(Clone, Debug)]
pub(crate) struct HotValue {
    pub(crate) logical: Bytes,
    pub(crate) stored_bytes: usize,
}

/// A value that was decompressed.
pub(crate) struct Candidate<'a> {
    pub(crate) key: &'a [u8],
    /// The version of the item.
    pub(crate) cas: u64,
    pub(crate) logical: &'a [u8],
    pub(crate) stored_bytes: usize,
    /// The time that decompression took.
    pub(crate) cost: Nanos,
}

/// Counters and gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HotStats {
    pub(crate) items: u64,
    /// The bytes that the store has lent: values, and the counts of reads.
    pub(crate) bytes: u64,
    pub(crate) admissions: u64,
    pub(crate) renewals: u64,
    pub(crate) evictions: u64,
}

impl HotValues {
    /// Creates an empty set that takes at most `limit_bytes` of the store's memory, or none if that is too little for
    /// any value.
    pub(crate) fn new(store: Arc<Embedded>, time: CoarseClock, limit_bytes: u64) -> Option<Self> {
        if limit_bytes < LIMIT_BYTES_MIN {
            return None;
        }
        let count = 1_u64 << (limit_bytes / SHARD_BYTES).clamp(1, SHARDS_MAX).ilog2();
        let counts = (limit_bytes / count / BYTES_PER_COUNT).next_power_of_two();
        let counts = counts.min(COUNTS_MAX) as usize;
        let counts_bytes = count * Sketch::bytes(counts);
        if !store.lend(counts_bytes, time.now_s()) {
            return None;
        }
        let shards = (0..count).map(|index| RwLock::new(Shard::new(counts, index)));
        Some(Self {
            shards: shards.collect(),
            shard_bytes_max: (limit_bytes - counts_bytes) / count,
            items: AtomicUsize::new(0),
            held_bytes: AtomicU64::new(counts_bytes),
            admissions: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            store,
            time,
        })
    }

    /// Returns the logical value of an item, if it is kept. Of values that are not long, only frames are searched, so
    /// that items without a frame cost no more than without this set.
    #[inline]
    pub(crate) fn find(&self, key: &[u8], item: &Glimpse<'_>) -> Option<HotValue> {
        if self.is_empty() || item.value.is_some_and(|stored| !frame::must_wrap(stored)) {
            return None;
        }
        // A CAS that a client gave may be that of several values.
        let version = item.version?;
        let hash = self.store.hash(key);
        self.shard(hash).read().find(hash, version)
    }

    /// Returns whether a new value of an item would be kept: its earlier value is, and is read.
    #[inline]
    pub(crate) fn would_renew(&self, key: &[u8], logical_bytes: usize) -> bool {
        if self.is_empty() || !self.may_keep(logical_bytes) {
            return false;
        }
        let hash = self.store.hash(key);
        let shard = self.shard(hash).read();
        let entry = shard.places.get(&hash).map(|place| &shard.entries[*place]);
        entry.is_some_and(|entry| entry.may_be_renewed(logical_bytes))
    }

    /// Keeps the value that an item got with version `cas`, if an earlier value of the item is kept.
    pub(crate) fn renew(&self, key: &[u8], cas: u64, logical: &[u8], stored_bytes: usize) {
        let hash = self.store.hash(key);
        let is_older = |entry: &Entry| entry.worth.cas < cas && entry.may_be_renewed(logical.len());
        let older = {
            let mut shard = self.shard(hash).write();
            let place = shard.places.get(&hash).copied();
            let place = place.filter(|place| is_older(&shard.entries[*place]));
            place.map(|place| self.remove(&mut shard, place))
        };
        let Some(Entry { worth: Worth { cost, reads, renewals, .. }, value, .. }) = older else {
            return;
        };
        let bytes_ratio = logical.len() as f64 / value.logical.len() as f64;
        let cost = Nanos((cost.0 as f64 * bytes_ratio) as u64);
        let worth = Worth { cas, cost, reads, renewals: renewals + 1 };
        let is_kept = self.keep(hash, worth, logical, stored_bytes);
        self.tally(is_kept, false);
    }

    /// Counts a read that had to decompress its value, and keeps the value if it is worth more than those that it
    /// displaces.
    pub(crate) fn offer(&self, candidate: &Candidate<'_>) {
        let &Candidate { key, cas, logical, stored_bytes, cost } = candidate;
        let bytes_per_ns = logical.len() as u64 / cost.0.max(1);
        if !self.may_keep(logical.len()) || bytes_per_ns >= CHEAP_BYTES_PER_NS {
            return;
        }
        let hash = self.store.hash(key);
        let Some((reads, is_new)) = self.count(hash, cas) else { return };
        let worth = Worth { cas, cost, reads, renewals: 0 };
        let is_kept = self.keep(hash, worth, logical, stored_bytes);
        self.tally(is_kept, is_new);
    }

    pub(crate) fn stats(&self) -> HotStats {
        HotStats {
            items: self.items.load(Ordering::Relaxed) as u64,
            bytes: self.held_bytes.load(Ordering::Relaxed),
            admissions: self.admissions.load(Ordering::Relaxed),
            renewals: self.renewals.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    fn is_empty(&self) -> bool {
        self.items.load(Ordering::Relaxed) == 0
    }

    fn may_keep(&self, logical_bytes: usize) -> bool {
        let bytes_max = self.shard_bytes_max / VALUES_PER_SHARD_MIN;
        logical_bytes >= VALUE_BYTES_MIN && logical_bytes as u64 + ENTRY_BYTES <= bytes_max
    }

    /// Counts a read that found no value here. Returns the reads of the item and whether no earlier value of it is
    /// kept, which is removed. Returns none if this is its first read, or a value at least as new is kept.
    fn count(&self, hash: u64, cas: u64) -> Option<(Reads, bool)> {
        let mut shard = self.shard(hash).write();
        let Some(place) = shard.places.get(&hash).copied() else {
            let recent = shard.count(hash);
            let reads = || Reads { before: 0, recent: AtomicU32::new(recent) };
            return (recent >= READS_MIN).then(|| (reads(), true));
        };
        if shard.entries[place].worth.cas >= cas {
            return None;
        }
        shard.count_read();
        let mut reads = self.remove(&mut shard, place).worth.reads;
        let recent = reads.recent.get_mut();
        *recent = recent.saturating_add(1);
        Some((reads, false))
    }

    /// Keeps a value if it is worth more than those that it displaces. Returns whether it does.
    fn keep(&self, hash: u64, worth: Worth, logical: &[u8], stored_bytes: usize) -> bool {
        let bytes = logical.len() as u64 + ENTRY_BYTES;
        let is_lent =
            self.make_room(hash, &worth, bytes) && self.store.lend(bytes, self.time.now_s());
        if !is_lent {
            return false;
        }
        // No lock is held here: the store may evict, and the copy takes a while.
        let value = HotValue { logical: Bytes::copy_from_slice(logical), stored_bytes };
        let mut shard = self.shard(hash).write();
        if shard.held_bytes + bytes > self.shard_bytes_max || shard.places.contains_key(&hash) {
            drop(shard);
            self.store.take_back(bytes);
            return false;
        }
        shard.insert(Entry { hash, worth, value, bytes });
        self.items.fetch_add(1, Ordering::Relaxed);
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Counts what became of a value. If it is not new, it took the place of an earlier one.
    fn tally(&self, is_kept: bool, is_new: bool) {
        let counter = match (is_kept, is_new) {
            (true, true) => &self.admissions,
            (true, false) => &self.renewals,
            (false, false) => &self.evictions,
            (false, true) => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Evicts values that are worth less until there is room for these bytes. Returns whether there is.
    fn make_room(&self, hash: u64, worth: &Worth, bytes: u64) -> bool {
        let mut shard = self.shard(hash).write();
        let worth = worth.per_byte(bytes);
        while shard.held_bytes + bytes > self.shard_bytes_max {
            let Some(place) = shard.least(worth) else { return false };
            self.remove(&mut shard, place);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn remove(&self, shard: &mut Shard, place: usize) -> Entry {
        let entry = shard.remove(place);
        self.store.take_back(entry.bytes);
        self.items.fetch_sub(1, Ordering::Relaxed);
        self.held_bytes.fetch_sub(entry.bytes, Ordering::Relaxed);
        entry
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // The sketch uses the lower bits.
        &self.shards[(hash >> SHARD_SHIFT) as usize & (self.shards.len() - 1)]
    }
}

/// The values under one lock, which reads share.
struct Shard {
    entries: Vec<Entry>,
    /// The place in `entries` of each hash of a key.
    places: HashMap<u64, usize, RandomState>,
    held_bytes: u64,
    /// The reads of values that are not kept.
    sketch: Sketch,
    /// The reads in this period. With each period all counts are halved, some at each count.
    reads: AtomicU32,
    /// The entries and the counters before this place are halved in this period.
    halved: usize,
    draws: Prng,
}

struct Entry {
    /// The hash of the key.
    hash: u64,
    worth: Worth,
    value: HotValue,
    bytes: u64,
}

/// What the value of an item is worth.
struct Worth {
    /// The version of the item.
    cas: u64,
    /// The time that decompression takes.
    cost: Nanos,
    reads: Reads,
    /// The number of values since the cost was measured.
    renewals: u8,
}

impl Entry {
    /// Returns whether a new value of this length would be kept without a measurement of its cost.
    fn may_be_renewed(&self, logical_bytes: usize) -> bool {
        let (older, newer) = (self.value.logical.len(), logical_bytes);
        let is_alike = older <= 2 * newer && newer <= 2 * older;
        is_alike && self.worth.renewals < RENEWALS_MAX && self.worth.per_byte(self.bytes) > 0.0
    }
}

/// The reads of an item.
struct Reads {
    /// The reads of earlier periods, of which older ones count less.
    before: u32,
    /// The reads since this count was last halved.
    recent: AtomicU32,
}

impl Reads {
    fn halve(&mut self) {
        let recent = std::mem::take(self.recent.get_mut());
        self.before = if recent == 0 { 0 } else { (self.before / 2).saturating_add(recent) };
    }
}

impl Worth {
    /// Returns the time that reads save per byte of memory.
    fn per_byte(&self, bytes: u64) -> f64 {
        let reads = self.reads.before.saturating_add(self.reads.recent.load(Ordering::Relaxed));
        f64::from(reads) * self.cost.0 as f64 / bytes as f64
    }
}

impl Shard {
    fn new(counts: usize, seed: u64) -> Self {
        Self {
            entries: Vec::new(),
            places: HashMap::default(),
            held_bytes: 0,
            sketch: Sketch::new(counts),
            reads: AtomicU32::new(0),
            halved: usize::MAX,
            draws: Prng::new(seed),
        }
    }

    fn find(&self, hash: u64, cas: u64) -> Option<HotValue> {
        let Entry { worth, value, .. } = &self.entries[*self.places.get(&hash)?];
        if worth.cas != cas {
            return None;
        }
        worth.reads.recent.fetch_add(1, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        Some(value.clone())
    }

    /// Counts a read of a value that is not kept. Returns the number of its reads.
    fn count(&mut self, hash: u64) -> u32 {
        self.count_read();
        self.sketch.count(hash)
    }

    /// Counts a read of any value in this period.
    fn count_read(&mut self) {
        let reads = self.reads.get_mut();
        *reads = reads.saturating_add(1);
        let is_halved = self.halved >= self.sketch.counts().max(self.entries.len());
        if !is_halved {
            self.halve_some();
        } else if *reads as usize >= READS_PER_COUNT * self.sketch.counts() {
            (*reads, self.halved) = (0, 0);
        }
    }

    /// Halves some counts, so that reads count less the older they are. What was not read since the last time, such as
    /// a version that is gone, is worth nothing. Others wait for the lock meanwhile, so a pass takes many steps.
    fn halve_some(&mut self) {
        let end = self.halved + HALVED_AT_ONCE;
        self.sketch.halve(self.halved..end);
        let entries = self.entries.iter_mut().take(end).skip(self.halved);
        entries.for_each(|entry| entry.worth.reads.halve());
        self.halved = end;
    }

    /// Returns the place of the least worthy of some entries, if it is worth less than `worth`.
    fn least(&mut self, worth: f64) -> Option<usize> {
        let Self { entries, draws, .. } = self;
        let count = entries.len() as u64;
        let drawn = (0..SAMPLED.min(count)).map(|_| draws.below(count) as usize);
        let per_byte = |entry: &Entry| entry.worth.per_byte(entry.bytes);
        let least = drawn.map(|place| (per_byte(&entries[place]), place));
        let (least, place) = least.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least < worth).then_some(place)
    }

    fn insert(&mut self, entry: Entry) {
        self.held_bytes += entry.bytes;
        self.places.insert(entry.hash, self.entries.len());
        self.entries.push(entry);
    }

    fn remove(&mut self, place: usize) -> Entry {
        let entry = self.entries.swap_remove(place);
        self.places.remove(&entry.hash);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.hash, place);
        }
        self.held_bytes -= entry.bytes;
        entry
    }
}

/// Estimates of how often items were read, in two rows of counters (a count-min sketch). An item has a counter in each
/// row, which it shares with others. The smaller one is the estimate.
struct Sketch {
    rows: [Box<[u16]>; 2],
}

impl Sketch {
    fn new(counts: usize) -> Self {
        Self { rows: [0; 2].map(|zero| vec![zero; counts].into()) }
    }

    /// Returns the memory of a sketch with this many counters in a row (bytes).
    const fn bytes(counts: usize) -> u64 {
        (2 * counts * size_of::<u16>()) as u64
    }

    fn counts(&self) -> usize {
        self.rows[0].len()
    }

    /// Counts a read and returns the estimate.
    fn count(&mut self, hash: u64) -> u32 {
        let mask = self.counts() - 1;
        let [a, b] = &mut self.rows;
        let (a, b) = (&mut a[hash as usize & mask], &mut b[(hash >> 32) as usize & mask]);
        let count = (*a).min(*b).saturating_add(1);
        (*a, *b) = ((*a).max(count), (*b).max(count));
        u32::from(count)
    }

    /// Halves the counters at these places, as far as there are any.
    fn halve(&mut self, places: Range<usize>) {
        let places = places.start.min(self.counts())..places.end.min(self.counts());
        for row in &mut self.rows {
            row[places.clone()].iter_mut().for_each(|count| *count /= 2);
        }
    }
}

/// The least memory that is used at all (bytes).
const LIMIT_BYTES_MIN: u64 = 64 << 10;

/// The memory for which there is one more shard (bytes), and the most shards.
const SHARD_BYTES: u64 = 512 << 10;
const SHARDS_MAX: u64 = 64;

/// The bits of a hash from this one on choose the shard.
const SHARD_SHIFT: u32 = 56;

/// A longer value than this part of a shard would displace too many others.
const VALUES_PER_SHARD_MIN: u64 = 8;

/// The shortest value that is kept (bytes). A shorter one decompresses in less than a microsecond, and takes the memory
/// of several compressed items.
pub const VALUE_BYTES_MIN: usize = 800;

/// The memory of an entry besides its value: the entry, its place in the table, and what the allocator adds (bytes).
const ENTRY_BYTES: u64 = 192;

/// A value is kept from this read of its item on. The first read says nothing about later ones.
const READS_MIN: u32 = 2;

/// The new values of an item that are kept before one of them has to be read, which measures the cost again.
const RENEWALS_MAX: u8 = 8;

/// The memory for which a sketch has one more counter in each row (bytes), and the most counters of a row.
const BYTES_PER_COUNT: u64 = 512;
const COUNTS_MAX: u64 = 64 << 10;

/// Counts are halved after this many reads per counter of a row.
const READS_PER_COUNT: usize = 10;

/// The counters of a row and the entries that are halved at once, which takes some hundred nanoseconds.
const HALVED_AT_ONCE: usize = 32;

/// The entries among which the least worthy one is searched.
const SAMPLED: u64 = 8;

/// A value that decompresses at this speed or faster (bytes per ns) gains too little from being kept. A copy, which
/// every read needs anyway, is only a few times as fast.
const CHEAP_BYTES_PER_NS: u64 = 8;

#[cfg(test)]
mod tests;
