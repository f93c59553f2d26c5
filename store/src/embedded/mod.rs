//! The embedded store: items in this process's memory, with memcached 1.6's rules for each single
//! item. It does not read frames, does not count commands and has no thread. It reads no clock
//! either: seconds are an argument, and [`CoarseClock`] provides them.

mod arithmetic;
mod clock;
mod item;
mod shard;
mod time;
mod walk;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use ahash::RandomState;
use parking_lot::Mutex;
use thiserror::Error;
use units::ByteCount;

pub use arithmetic::{Counted, Delta};
pub use clock::CoarseClock;
pub use item::{Fetch, Fetched, NewItem, Step};
pub use shard::ITEM_OVERHEAD_BYTES;
pub use time::expiry;
pub use walk::{Listed, Walk};

use shard::{Flushed, Shard};

/// A byte-budgeted cache in this process. All methods take `now_s`, in seconds of the clock of
/// items' expiry times ([`expiry`] converts to it). `now_s` must not be zero and must not run
/// backwards.
///
/// Items live in shards. Each shard is a `quick_cache` under one mutex, so every change of an item
/// is atomic. When a shard is full, `quick_cache` chooses the item to evict (with a relative of
/// CLOCK-Pro and S3-FIFO).
#[derive(Debug)]
pub struct Embedded {
    shards: Box<[Mutex<Shard>]>,
    choose: RandomState,
    cas_last: AtomicU64,
    /// A flush ends the items that were last accessed up to this second, once this second has come.
    /// It also ends the versions before `flushed_cas`.
    flushed_until_s: AtomicU32,
    flushed_cas: AtomicU64,
    /// The shard that the next call of [`Embedded::sweep`] visits.
    sweep_next: AtomicU64,
    /// Whether a [`Walk`] is in progress.
    walking: AtomicBool,
    limit: ByteCount,
}

/// The options of an [`Embedded`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The budget for items: keys, values and their overhead.
    pub limit: ByteCount,
    /// The size of the largest item. Shards are sized so that several such items fit into a shard.
    pub item_bytes_max: ByteCount,
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
    /// Replaces the item only if it has the version `cas`. The new item inherits that version's
    /// marks (fetched, stale), as if it had been counted in place.
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

/// The item needs more space than there is. Either it is larger than a shard allows, or the budget
/// is spent and nothing may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("out of memory: no room for an item of {needed_bytes} bytes in a shard of {shard_bytes}")]
pub struct OutOfMemory {
    /// The bytes that the item needs, including its overhead.
    pub needed_bytes: u64,
    /// The bytes that its shard holds. One item may take at most a quarter to a half of them.
    pub shard_bytes: u64,
}

/// Counters and gauges, with the names of memcached's `stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The items held, including ended items that have not been removed yet.
    pub curr_items: u64,
    /// Items stored since the start.
    pub total_items: u64,
    /// The bytes held: keys, values and overhead.
    pub bytes: u64,
    /// The budget.
    pub limit_maxbytes: u64,
    /// Living items that were evicted for others.
    pub evictions: u64,
    /// The evicted items that were never fetched.
    pub evicted_unfetched: u64,
    /// Ended items that were removed to make space for others.
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
        let count = shard_count(options.limit.0, options.item_bytes_max.0);
        let state =
            |stream| RandomState::with_seeds(options.seed, stream, !options.seed, 0x6b65_7973);
        let (bytes, item_bytes_max) = (options.limit.0 / count, options.item_bytes_max.0);
        let shards = (0..count)
            .map(|_| Mutex::new(Shard::new(bytes, item_bytes_max, options.evict, state(1))));
        Self {
            shards: shards.collect(),
            choose: state(2),
            cas_last: AtomicU64::new(0),
            flushed_until_s: AtomicU32::new(0),
            flushed_cas: AtomicU64::new(0),
            sweep_next: AtomicU64::new(0),
            walking: AtomicBool::new(false),
            limit: options.limit,
        }
    }

    /// Returns the item of `key` and applies the fetch's steps. The value is shared and not copied.
    pub fn fetch(&self, key: &[u8], fetch: &Fetch<'_>, now_s: u32) -> Option<Fetched> {
        self.shard(key).lock().fetch(key, fetch, &self.turn(now_s))
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
        item: NewItem,
        mode: Mode,
        now_s: u32,
    ) -> Result<Stored, OutOfMemory> {
        self.shard(key).lock().store(key, item, mode, &self.turn(now_s))
    }

    /// Removes an item. With `compare`, removes only that version of it.
    pub fn delete(&self, key: &[u8], compare: Option<u64>, now_s: u32) -> Removal {
        self.shard(key).lock().delete(key, compare, &self.turn(now_s))
    }

    /// Marks an item stale, which gives it a new version. With `compare`, marks only that version
    /// of it. A given `exptime_s` also sets the time at which it expires.
    pub fn invalidate(
        &self,
        key: &[u8],
        compare: Option<u64>,
        exptime_s: Option<u32>,
        now_s: u32,
    ) -> Removal {
        self.shard(key).lock().invalidate(key, compare, exptime_s, &self.turn(now_s))
    }

    /// Increments or decrements an item.
    pub fn arithmetic(
        &self,
        key: &[u8],
        delta: &Delta<'_>,
        now_s: u32,
    ) -> Result<Counted, OutOfMemory> {
        self.shard(key).lock().arithmetic(key, delta, &self.turn(now_s))
    }

    /// Ends all items stored before `at_s`, from that time on. With `at_s == now_s` it ends all
    /// items now. A later call replaces an earlier flush whose time has not come. The memory is
    /// freed when an ended item is looked up or swept. As in memcached, a flush in the future also
    /// ends the items that are stored in the second before it.
    pub fn flush_all(&self, at_s: u32, now_s: u32) {
        let until_s = at_s.saturating_sub(1);
        if until_s <= now_s {
            self.flushed_cas.store(self.turn(now_s).cas_next(), Ordering::Release);
        } else if (1..=now_s).contains(&self.flushed_until_s.load(Ordering::Acquire)) {
            // The time of an earlier flush is about to be overwritten. The items that it ended must
            // not become visible again, so they are removed now.
            self.sweep(usize::MAX, now_s);
        }
        self.flushed_until_s.store(until_s, Ordering::Release);
    }

    /// Removes ended items, shard by shard, until at least `items_budget` items were checked or
    /// every shard was visited. The next call continues with the next shard. Returns the number of
    /// removed items.
    ///
    /// A visit checks a whole shard under its lock and takes a few nanoseconds per item. At the
    /// default item size a shard has 8 to 16 MiB and at most about fifty thousand items.
    pub fn sweep(&self, items_budget: usize, now_s: u32) -> usize {
        let (mut seen, mut removed) = (0, 0);
        for _ in 0..self.shards.len() {
            if seen >= items_budget {
                break;
            }
            let next = self.sweep_next.fetch_add(1, Ordering::Relaxed) as usize;
            let mut shard = self.shards[next % self.shards.len()].lock();
            seen += shard.len();
            removed += shard.sweep(&self.turn(now_s));
        }
        removed
    }

    /// Returns the counters and gauges.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats { limit_maxbytes: self.limit.0, ..Stats::default() };
        for shard in &self.shards {
            shard.lock().add_to(&mut stats);
        }
        stats
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[self.choose.hash_one(key) as usize & (self.shards.len() - 1)]
    }

    fn turn(&self, now_s: u32) -> Turn<'_> {
        let flushed = Flushed {
            until_s: self.flushed_until_s.load(Ordering::Acquire),
            cas: self.flushed_cas.load(Ordering::Acquire),
        };
        Turn { now_s, flushed, cas_last: &self.cas_last }
    }
}

/// The state outside the shard that one operation uses.
struct Turn<'a> {
    now_s: u32,
    flushed: Flushed,
    cas_last: &'a AtomicU64,
}

impl Turn<'_> {
    fn cas_next(&self) -> u64 {
        self.cas_last.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Returns the number of shards, a power of two. It is as large as possible while each shard has
/// space for several of the largest items.
fn shard_count(limit_bytes: u64, item_bytes_max: u64) -> u64 {
    let fitting = limit_bytes / item_bytes_max.saturating_mul(ITEMS_PER_SHARD_MIN).max(1);
    match fitting.clamp(1, SHARDS_MAX) {
        count if count.is_power_of_two() => count,
        count => count.next_power_of_two() / 2,
    }
}

/// The number of the largest items that fit into a shard. With a smaller number one large item
/// would evict most of its shard. With a larger number a small store would have fewer shards than
/// threads.
const ITEMS_PER_SHARD_MIN: u64 = 8;

/// The most shards. More shards would not reduce lock contention further.
const SHARDS_MAX: u64 = 1 << 16;

#[cfg(test)]
mod tests;
