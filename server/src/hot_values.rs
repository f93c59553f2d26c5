//! Keeps the logical values of the compressed items of the embedded store that are worth most: those that save the
//! most decompression per byte. A read of such an item decompresses nothing.
//!
//! A value is kept under the version (CAS) of its item. The store gives every change of a value a version of its own,
//! and a read asks it for the item's version first. So a read cannot find an older value than the store holds, and
//! expiry, eviction and flushes take effect without any work here. Values of versions that are gone are not read any
//! more, and make way for others. The store lends the memory. This module decompresses nothing and does not know keys.

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
    hash: RandomState,
    /// The bytes that the values of one shard may take.
    shard_bytes_max: u64,
    items: AtomicUsize,
    held_bytes: AtomicU64,
    admissions: AtomicU64,
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
            hash: RandomState::new(),
            shard_bytes_max: (limit_bytes - counts_bytes) / count,
            items: AtomicUsize::new(0),
            held_bytes: AtomicU64::new(counts_bytes),
            admissions: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            store,
            time,
        })
    }

    /// Returns the logical value of an item, if it is kept. Of values that are not long, only frames are searched, so
    /// that items without a frame cost no more than without this set.
    #[inline]
    pub(crate) fn find(&self, item: &Glimpse<'_>) -> Option<HotValue> {
        let is_empty = self.items.load(Ordering::Relaxed) == 0;
        if is_empty || item.value.is_some_and(|stored| !frame::must_wrap(stored)) {
            return None;
        }
        // A CAS that a client gave may be that of several values.
        let version = item.version?;
        self.shard(version).read().find(version)
    }

    /// Counts a read that had to decompress its value, and keeps the value if it is worth more than those that it
    /// displaces.
    pub(crate) fn offer(&self, candidate: &Candidate<'_>) {
        let bytes = candidate.logical.len() as u64 + ENTRY_BYTES;
        let bytes_per_ns = candidate.logical.len() as u64 / candidate.cost.0.max(1);
        let is_too_long = bytes > self.shard_bytes_max / VALUES_PER_SHARD_MIN;
        let is_too_short = candidate.logical.len() < VALUE_BYTES_MIN;
        if is_too_long || is_too_short || bytes_per_ns >= CHEAP_BYTES_PER_NS {
            return;
        }
        if !self.make_room(candidate, bytes) || !self.store.lend(bytes, self.time.now_s()) {
            return;
        }
        // No lock is held here: the store may evict, and the copy takes a while.
        let value = HotValue {
            logical: Bytes::copy_from_slice(candidate.logical),
            stored_bytes: candidate.stored_bytes,
        };
        let mut shard = self.shard(candidate.cas).write();
        if shard.held_bytes + bytes > self.shard_bytes_max
            || shard.places.contains_key(&candidate.cas)
        {
            drop(shard);
            self.store.take_back(bytes);
            return;
        }
        shard.insert(candidate, value, bytes);
        self.items.fetch_add(1, Ordering::Relaxed);
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.admissions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> HotStats {
        HotStats {
            items: self.items.load(Ordering::Relaxed) as u64,
            bytes: self.held_bytes.load(Ordering::Relaxed),
            admissions: self.admissions.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    /// Counts the read, and evicts values that are worth less than the candidate until there is room for it. Returns
    /// whether there is.
    fn make_room(&self, candidate: &Candidate<'_>, bytes: u64) -> bool {
        let mut shard = self.shard(candidate.cas).write();
        if shard.places.contains_key(&candidate.cas) {
            return false;
        }
        let reads = shard.count(self.hash.hash_one(candidate.cas));
        if reads < READS_MIN {
            return false;
        }
        let worth = worth(reads, candidate.cost, bytes);
        while shard.held_bytes + bytes > self.shard_bytes_max {
            let Some(place) = shard.least(worth) else { return false };
            let freed_bytes = shard.remove(place);
            self.store.take_back(freed_bytes);
            self.items.fetch_sub(1, Ordering::Relaxed);
            self.held_bytes.fetch_sub(freed_bytes, Ordering::Relaxed);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn shard(&self, cas: u64) -> &RwLock<Shard> {
        // Versions are consecutive numbers, so this spreads them evenly.
        &self.shards[cas as usize & (self.shards.len() - 1)]
    }
}

/// The values under one lock, which reads share.
struct Shard {
    entries: Vec<Entry>,
    /// The place of each version in `entries`.
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
    cas: u64,
    value: HotValue,
    bytes: u64,
    cost: Nanos,
    /// The reads of earlier periods, of which older ones count less.
    reads_before: u32,
    /// The reads since this count was last halved.
    reads: AtomicU32,
}

impl Entry {
    fn halve(&mut self) {
        let reads = std::mem::take(self.reads.get_mut());
        self.reads_before =
            if reads == 0 { 0 } else { (self.reads_before / 2).saturating_add(reads) };
    }

    fn worth(&self) -> f64 {
        let reads = self.reads_before.saturating_add(self.reads.load(Ordering::Relaxed));
        worth(reads, self.cost, self.bytes)
    }
}

/// Returns the time that reads save per byte of memory.
fn worth(reads: u32, cost: Nanos, bytes: u64) -> f64 {
    f64::from(reads) * cost.0 as f64 / bytes as f64
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

    fn find(&self, cas: u64) -> Option<HotValue> {
        let entry = &self.entries[*self.places.get(&cas)?];
        entry.reads.fetch_add(1, Ordering::Relaxed);
        self.reads.fetch_add(1, Ordering::Relaxed);
        Some(entry.value.clone())
    }

    /// Counts a read of a value that is not kept. Returns the number of its reads.
    fn count(&mut self, hash: u64) -> u32 {
        let reads = self.reads.get_mut();
        *reads = reads.saturating_add(1);
        let is_halved = self.halved >= self.sketch.counts().max(self.entries.len());
        if !is_halved {
            self.halve_some();
        } else if *reads as usize >= READS_PER_COUNT * self.sketch.counts() {
            (*reads, self.halved) = (0, 0);
        }
        self.sketch.count(hash)
    }

    /// Halves some counts, so that reads count less the older they are. What was not read since the last time, such as
    /// a version that is gone, is worth nothing. Others wait for the lock meanwhile, so a pass takes many steps.
    fn halve_some(&mut self) {
        let end = self.halved + HALVED_AT_ONCE;
        self.sketch.halve(self.halved..end);
        self.entries.iter_mut().take(end).skip(self.halved).for_each(Entry::halve);
        self.halved = end;
    }

    /// Returns the place of the least worthy of some entries, if it is worth less than `worth`.
    fn least(&mut self, worth: f64) -> Option<usize> {
        let Self { entries, draws, .. } = self;
        let count = entries.len() as u64;
        let drawn = (0..SAMPLED.min(count)).map(|_| draws.below(count) as usize);
        let least = drawn.map(|place| (entries[place].worth(), place));
        let (least, place) = least.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least < worth).then_some(place)
    }

    fn insert(&mut self, candidate: &Candidate<'_>, value: HotValue, bytes: u64) {
        let &Candidate { cas, cost, .. } = candidate;
        let reads = AtomicU32::new(READS_MIN);
        self.places.insert(cas, self.entries.len());
        self.entries.push(Entry { cas, value, bytes, cost, reads_before: 0, reads });
        self.held_bytes += bytes;
    }

    /// Removes an entry. Returns the bytes that it took.
    fn remove(&mut self, place: usize) -> u64 {
        let entry = self.entries.swap_remove(place);
        self.places.remove(&entry.cas);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.cas, place);
        }
        self.held_bytes -= entry.bytes;
        entry.bytes
    }
}

/// Estimates of how often values were read, in two rows of counters (a count-min sketch). A value has a counter in each
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

/// A longer value than this part of a shard would displace too many others.
const VALUES_PER_SHARD_MIN: u64 = 8;

/// The shortest value that is kept (bytes). A shorter one decompresses in less than a microsecond, and takes the memory
/// of several compressed items.
pub const VALUE_BYTES_MIN: usize = 800;

/// The memory of an entry besides its value: the entry, its place in the table, and what the allocator adds (bytes).
const ENTRY_BYTES: u64 = 192;

/// A value is kept from this read on. The first read says nothing about later ones.
const READS_MIN: u32 = 2;

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
