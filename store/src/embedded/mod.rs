//! The embedded store: items in this process's memory, with memcached 1.6's rules for each single
//! item. It does not read frames, count commands or own a thread, and it looks at no clock: seconds are an
//! argument, which [`CoarseClock`] has.

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

/// A byte-budgeted cache in this process. All methods take `now_s`, the seconds of the clock that
/// items' expiry times count in ([`expiry`] converts); it must not be zero and must not run
/// backwards.
///
/// Items live in shards, each a `quick_cache` under one mutex, so that whatever a method does to an
/// item is atomic. Which item goes when a shard is full is that crate's choice (a CLOCK-Pro kin of
/// S3-FIFO).
#[derive(Debug)]
pub struct Embedded {
    shards: Box<[Mutex<Shard>]>,
    choose: RandomState,
    cas_last: AtomicU64,
    /// The items that `flush_all` ended: those up to a second, if that has come, and versions before one.
    flushed_until_s: AtomicU32,
    flushed_cas: AtomicU64,
    /// The shard that [`Embedded::sweep`] visits next.
    sweep_next: AtomicU64,
    /// Whether a [`Walk`] is under way.
    walking: AtomicBool,
    limit: ByteCount,
}

/// The options of an [`Embedded`].
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Budget for items, what they cost besides key and value included.
    pub limit: ByteCount,
    /// The largest item; shards are sized so that several of them fit into one.
    pub item_bytes_max: ByteCount,
    /// Whether items make room for new ones; memcached's `-M` says no.
    pub evict: bool,
    /// Seeds the hashes. Draw it, where clients are not trusted to choose keys.
    pub seed: u64,
}

/// The condition under which a store takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Always.
    Set,
    /// Takes only a key that is not there.
    Add,
    /// Takes only a key that is there.
    Replace,
    /// Replaces only the version that `cas` names.
    Compare {
        /// The version the value was derived from.
        cas: u64,
        /// Whether it also replaces a later version, but is then marked stale (`ms` with flag `I`).
        stale_if_older: bool,
    },
    /// Replaces only the version that `cas` names. The item keeps that version's marks (fetched, stale), as counting in
    /// place does.
    Overwrite {
        /// The version the value was derived from.
        cas: u64,
    },
}

/// The result of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is stored, as this version.
    Stored {
        /// The version.
        cas: u64,
    },
    /// The mode did not allow it.
    NotStored,
    /// Another version is there.
    Exists,
    /// There is nothing to compare with.
    NotFound,
}

/// The result of a deletion, or of marking an item stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is done.
    Done,
    /// No such item.
    NotFound,
    /// Another version is there.
    Exists,
}

/// The item needs more room than there is: more than a shard holds, or no eviction and the budget
/// is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("out of memory: no room for an item of {needed_bytes} bytes in a shard of {shard_bytes}")]
pub struct OutOfMemory {
    /// The bytes that the item takes, its overhead included.
    pub needed_bytes: u64,
    /// The bytes that its shard holds, of which one item takes at most a quarter to a half.
    pub shard_bytes: u64,
}

/// Counters and gauges, as memcached's `stats` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Items held, those whose time has come and were not met yet included.
    pub curr_items: u64,
    /// Items stored since the start.
    pub total_items: u64,
    /// The bytes held: keys, values and overhead.
    pub bytes: u64,
    /// The budget.
    pub limit_maxbytes: u64,
    /// Items that made room for others while they were alive.
    pub evictions: u64,
    /// The evicted items that were never fetched.
    pub evicted_unfetched: u64,
    /// Items that made room for others when their time had come anyway.
    pub reclaimed: u64,
    /// Items whose time came before they were ever fetched.
    pub expired_unfetched: u64,
    /// Items that a sweep removed.
    pub crawler_reclaimed: u64,
    /// Look-ups that found an item whose time had come.
    pub get_expired: u64,
    /// Look-ups that found a flushed item.
    pub get_flushed: u64,
}

impl Embedded {
    /// An empty store.
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

    /// The item of `key`. The value is shared, not copied.
    pub fn fetch(&self, key: &[u8], fetch: &Fetch<'_>, now_s: u32) -> Option<Fetched> {
        self.shard(key).lock().fetch(key, fetch, &self.turn(now_s))
    }

    /// Sets the time an item ends; false if there is none.
    pub fn touch(&self, key: &[u8], exptime_s: u32, now_s: u32) -> bool {
        let steps = [Step::Touch(exptime_s)];
        self.fetch(key, &Fetch { bump: true, meta: false, steps: &steps }, now_s).is_some()
    }

    /// Stores a value. When there is no room, a [`Mode::Set`] also removes the version that is there, so that no client
    /// goes on reading what was meant to be replaced.
    pub fn store(
        &self,
        key: &[u8],
        item: NewItem,
        mode: Mode,
        now_s: u32,
    ) -> Result<Stored, OutOfMemory> {
        self.shard(key).lock().store(key, item, mode, &self.turn(now_s))
    }

    /// Removes an item; with `compare`, only that version of it.
    pub fn delete(&self, key: &[u8], compare: Option<u64>, now_s: u32) -> Removal {
        self.shard(key).lock().delete(key, compare, &self.turn(now_s))
    }

    /// Marks an item stale, which makes it a new version; with `compare`, only that version of it.
    /// `exptime_s` also sets the time it ends.
    pub fn invalidate(
        &self,
        key: &[u8],
        compare: Option<u64>,
        exptime_s: Option<u32>,
        now_s: u32,
    ) -> Removal {
        self.shard(key).lock().invalidate(key, compare, exptime_s, &self.turn(now_s))
    }

    /// Counts up or down.
    pub fn arithmetic(
        &self,
        key: &[u8],
        delta: &Delta<'_>,
        now_s: u32,
    ) -> Result<Counted, OutOfMemory> {
        self.shard(key).lock().arithmetic(key, delta, &self.turn(now_s))
    }

    /// Ends all items stored before `at_s`, from that time on; `at_s == now_s` means all of them, now. A later call
    /// replaces one whose time has not come. Memory comes back as items are met or swept. As in memcached, a flush in
    /// the future already takes what is stored in the second before it.
    pub fn flush_all(&self, at_s: u32, now_s: u32) {
        let until_s = at_s.saturating_sub(1);
        if until_s <= now_s {
            self.flushed_cas.store(self.turn(now_s).cas_next(), Ordering::Release);
        } else if (1..=now_s).contains(&self.flushed_until_s.load(Ordering::Acquire)) {
            // The time of an earlier flush is about to be forgotten: what it ended must not come
            // back.
            self.sweep(usize::MAX, now_s);
        }
        self.flushed_until_s.store(until_s, Ordering::Release);
    }

    /// Removes items whose time has come, shard by shard, until at least `items_budget` items were
    /// looked at or every shard was visited; the next call goes on from there. Returns how many
    /// were removed.
    ///
    /// A shard is visited whole and under its lock, at a few nanoseconds an item: at the default
    /// item size a shard is 8 to 16 MiB, at most some fifty thousand items.
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

    /// The state in numbers.
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

/// The state outside its shard that one operation sees.
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

/// Shards of a store: as many as leave each room for several of the largest items, a power of two.
fn shard_count(limit_bytes: u64, item_bytes_max: u64) -> u64 {
    let fitting = limit_bytes / item_bytes_max.saturating_mul(ITEMS_PER_SHARD_MIN).max(1);
    match fitting.clamp(1, SHARDS_MAX) {
        count if count.is_power_of_two() => count,
        count => count.next_power_of_two() / 2,
    }
}

/// A shard holds the largest item this many times. Fewer, and one large item drives out most of its
/// shard; more, and a small store has fewer shards than threads.
const ITEMS_PER_SHARD_MIN: u64 = 8;

/// Beyond this, more shards relieve no lock.
const SHARDS_MAX: u64 = 1 << 16;

#[cfg(test)]
mod tests;
