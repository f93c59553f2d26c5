//! Runs arbitrary operations on the embedded store and on a map with the same clock. Every answer must be equal,
//! including its marks. A store that evicts may lack items of the map, as often as it has counted an eviction. The
//! store must never have an item that the map lacks, and an item that was just stored must be there.

use arbitrary::Arbitrary;
use crate::shadow::{Count, Shadow};
use store::embedded::{
    Counted, Delta, Embedded, Fetch, ITEM_OVERHEAD_BYTES, Mode, NewItem, Options, OutOfMemory,
    Removal, Step, Stored,
};
use units::ByteCount;

#[derive(Arbitrary, Debug)]
pub(super) struct Input<'a> {
    kind: Kind,
    seed: u8,
    acts: Vec<(u8, Act<'a>)>,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The store never evicts.
    Ample,
    Evicting,
    /// The store refuses items instead of evicting, as memcached does with `-M`.
    Refusing,
}

#[derive(Arbitrary, Debug)]
enum Act<'a> {
    Fetch { bump: bool, meta: bool, steps: Vec<Change> },
    Touch { life: Life },
    Store { how: How, value: Text<'a>, flags: u32, life: Life, key_is_binary: bool },
    Delete { compare: Option<Version> },
    Invalidate { compare: Option<Version>, life: Option<Life> },
    Count { increment: bool, by: u64, compare: Option<Version>, initial: u64, steps: Vec<Change> },
    Flush { delay_s: u8 },
    Sweep { items_budget: u8 },
    Wait { by_s: u8 },
}

/// The lifetime of an item (s). Zero means that it never expires.
type Life = u8;

#[derive(Arbitrary, Debug)]
enum How {
    Set,
    Add,
    Replace,
    Compare { version: Version, stale_if_older: bool },
}

#[derive(Arbitrary, Debug)]
enum Version {
    Current,
    Earlier(u8),
    Later(u8),
    None,
}

#[derive(Arbitrary, Debug)]
enum Change {
    Touch(Life),
    Vivify(Life),
    Recache(Life),
    Ttl,
}

#[derive(Arbitrary, Debug)]
enum Text<'a> {
    Bytes(&'a [u8]),
    Number(u64, &'a [u8]),
    Large(u16),
}

pub(super) fn fuzz(input: Input<'_>) {
    let mut pair = Pair::new(input.kind, input.seed);
    for (key, act) in input.acts {
        pair.shadow.end(pair.now_s);
        let key = pair.key(key);
        pair.forgive_eviction(&key);
        pair.act(&key, act);
        pair.check_key(&key);
        pair.check_stats();
    }
    pair.check_sweep();
}

struct Pair {
    kind: Kind,
    store: Embedded,
    shadow: Shadow,
    now_s: u32,
    cas_last: u64,
    /// The number of items that the store has evicted, as far as the test has noticed.
    missed: u64,
}

impl Pair {
    fn new(kind: Kind, seed: u8) -> Self {
        let limit = match kind {
            Kind::Ample => ByteCount::mib(512),
            Kind::Evicting | Kind::Refusing => ByteCount::kib(64),
        };
        let evict = kind != Kind::Refusing;
        let options = Options { limit, evict, seed: seed.into() };
        let store = Embedded::new(options);
        Self { kind, store, shadow: Shadow::default(), now_s: 100, cas_last: 0, missed: 0 }
    }

    /// Returns one of four keys, so that acts concern the same items. Where the store is small, it returns one of 64
    /// keys, so that items evict each other.
    fn key(&self, choice: u8) -> Vec<u8> {
        let choice = if self.kind == Kind::Ample { choice % 4 } else { choice % 64 };
        vec![choice; 1 + usize::from(choice)]
    }

    /// Removes an item from the map if the store lacks it because of an eviction. `check_stats` finds items that the
    /// store lost in another way.
    fn forgive_eviction(&mut self, key: &[u8]) {
        let there = self.store.fetch(key, &Fetch::PEEK, self.now_s).is_some();
        if !there && self.shadow.item(key).is_some() {
            self.missed += 1;
            self.shadow.remove(key);
        }
    }

    fn check_key(&mut self, key: &[u8]) {
        self.shadow.end(self.now_s);
        let found = self.store.fetch(key, &Fetch::PEEK, self.now_s);
        assert_eq!(found, self.shadow.peek(key, self.now_s));
    }

    fn check_stats(&self) {
        let stats = self.store.stats();
        assert!(self.missed <= stats.evictions, "{} items are lost", self.missed);
        assert!(stats.bytes <= stats.limit_maxbytes);
        assert!(self.kind == Kind::Evicting || stats.evictions == 0);
    }

    /// Checks that, after a sweep of all expired items, the store has at most the items of the map. If it never
    /// evicted, it must have the same items.
    fn check_sweep(&mut self) {
        self.store.sweep(usize::MAX, self.now_s);
        self.shadow.end(self.now_s);
        let stats = self.store.stats();
        let (items, key_and_value_bytes) = self.shadow.size();
        let bytes_min = (key_and_value_bytes + items * ITEM_OVERHEAD_BYTES) as u64;
        let bytes_max = bytes_min + (items * OPTIONAL_BYTES_MAX) as u64;
        assert!(stats.curr_items <= items as u64 && stats.bytes <= bytes_max);
        if stats.evictions == 0 {
            assert!(stats.curr_items == items as u64 && stats.bytes >= bytes_min, "{stats:?}");
        }
    }

    fn act(&mut self, key: &[u8], act: Act<'_>) {
        match act {
            Act::Fetch { bump, meta, steps } => self.fetch(key, bump, meta, &self.steps(steps)),
            Act::Touch { life } => {
                let exptime_s = self.end(life);
                let steps = [Step::Touch(exptime_s)];
                let fetch = Fetch { bump: true, meta: false, steps: &steps };
                let expected = self.shadow.fetch(key, &fetch, 0, self.now_s).is_some();
                assert_eq!(self.store.touch(key, exptime_s, self.now_s), expected);
            }
            Act::Store { how, value, flags, life, key_is_binary } => {
                let exptime_s = self.end(life);
                let value = value.bytes();
                let item = NewItem { value: &value, flags, exptime_s, key_is_binary };
                self.store(key, item, how);
            }
            Act::Delete { compare } => {
                let compare = compare.map(|version| self.version(key, &version));
                let expected = self.shadow.removal(key, compare);
                assert_eq!(self.store.delete(key, compare, self.now_s), expected);
                if expected == Removal::Done {
                    self.shadow.remove(key);
                }
            }
            Act::Invalidate { compare, life } => self.invalidate(key, compare, life),
            Act::Count { increment, by, compare, initial, steps } => {
                let compare = compare.map_or(0, |version| self.version(key, &version));
                let steps = self.steps(steps);
                self.count(key, &Delta { increment, by, compare, initial, steps: &steps });
            }
            Act::Flush { delay_s } => {
                let at_s = self.now_s + u32::from(delay_s % 8);
                self.store.flush_all(at_s, self.now_s);
                self.shadow.flush(at_s, self.now_s);
            }
            Act::Sweep { items_budget } => {
                self.store.sweep(items_budget.into(), self.now_s);
            }
            Act::Wait { by_s } => self.now_s += u32::from(by_s % 16),
        }
    }

    fn fetch(&mut self, key: &[u8], bump: bool, meta: bool, steps: &[Step]) {
        let fetch = Fetch { bump, meta, steps };
        let found = self.store.fetch(key, &fetch, self.now_s);
        let cas = found.as_ref().map_or(0, |found| found.cas);
        if found.as_ref().is_some_and(|found| found.created) {
            self.expect_new_version(cas);
        }
        if found.is_none() && self.kind == Kind::Refusing && self.shadow.item(key).is_none() {
            return;
        }
        assert_eq!(found, self.shadow.fetch(key, &fetch, cas, self.now_s));
    }

    fn store(&mut self, key: &[u8], item: NewItem<'_>, how: How) {
        let mode = match how {
            How::Set => Mode::Set,
            How::Add => Mode::Add,
            How::Replace => Mode::Replace,
            How::Compare { version, stale_if_older } => {
                Mode::Compare { cas: self.version(key, &version), stale_if_older }
            }
        };
        let refusal = self.shadow.refusal(key, mode, self.now_s);
        match self.store.store(key, item, mode, self.now_s) {
            Ok(Stored::Stored { cas }) => {
                assert_eq!(refusal, None);
                self.expect_new_version(cas);
                self.shadow.store(key, &item, mode, cas, self.now_s);
            }
            Ok(other) => assert_eq!(Some(other), refusal),
            Err(error) => {
                assert_eq!(refusal, None);
                self.expect_full(&error);
                if mode == Mode::Set {
                    self.shadow.remove(key);
                }
            }
        }
    }

    fn invalidate(&mut self, key: &[u8], compare: Option<Version>, life: Option<Life>) {
        let compare = compare.map(|version| self.version(key, &version));
        let exptime_s = life.map(|life| self.end(life));
        let expected = self.shadow.removal(key, compare);
        assert_eq!(self.store.invalidate(key, compare, exptime_s, self.now_s), expected);
        if expected == Removal::Done {
            if let Some(found) = self.store.fetch(key, &Fetch::PEEK, self.now_s) {
                self.expect_new_version(found.cas);
                self.shadow.invalidate(key, exptime_s, found.cas);
            } else {
                let ended = exptime_s.is_some_and(|end| end != 0 && end <= self.now_s);
                assert!(ended, "an item marked stale is gone");
                self.shadow.remove(key);
            }
        }
    }

    fn count(&mut self, key: &[u8], delta: &Delta<'_>) {
        let expected = self.shadow.counted(key, delta);
        let counted = match self.store.arithmetic(key, delta, self.now_s) {
            Ok(counted) => counted,
            Err(error) => {
                assert!(matches!(expected, Count::Created | Count::Number { grown: true, .. }));
                return self.expect_full(&error);
            }
        };
        match (counted, expected) {
            (Counted::Done { number, cas, exptime_s, created }, expected) => {
                let number_expected = match expected {
                    Count::Created => delta.initial,
                    Count::Number { number, .. } => number,
                    other => panic!("{number}, but {other:?}"),
                };
                assert_eq!((number, created), (number_expected, expected == Count::Created));
                self.expect_new_version(cas);
                assert_eq!(exptime_s, self.shadow.count(key, delta, cas, self.now_s));
            }
            (Counted::NotFound, expected) => assert_eq!(expected, Count::NotFound),
            (Counted::Exists, expected) => assert_eq!(expected, Count::Exists),
            (Counted::NotANumber, expected) => assert_eq!(expected, Count::NotANumber),
        }
    }

    /// Checks that versions only grow.
    fn expect_new_version(&mut self, cas: u64) {
        assert!(cas > self.cas_last, "version {cas} after {}", self.cas_last);
        self.cas_last = cas;
    }

    /// Checks that the store reported to be full only for a large value, or because it does not evict.
    fn expect_full(&self, error: &OutOfMemory) {
        let large = error.needed_bytes > error.limit_bytes / 2;
        assert!(self.kind == Kind::Refusing || large, "{error}");
    }

    fn version(&self, key: &[u8], version: &Version) -> u64 {
        let current = self.shadow.item(key).map_or(self.cas_last, |item| item.cas());
        match version {
            Version::Current => current,
            Version::Earlier(by) => current.saturating_sub(1 + u64::from(by % 4)),
            Version::Later(by) => current + 1 + u64::from(by % 4),
            Version::None => 0,
        }
    }

    fn end(&self, life: Life) -> u32 {
        // The shortest life ends at once, as a negative expiry time does.
        if life == 0 { 0 } else { self.now_s + u32::from(life % 32) }
    }

    fn steps(&self, changes: Vec<Change>) -> Vec<Step> {
        let step = |change| match change {
            Change::Touch(life) => Step::Touch(self.end(life)),
            Change::Vivify(life) => Step::Vivify(self.end(life)),
            Change::Recache(life) => Step::Recache(self.end(life)),
            Change::Ttl => Step::Ttl,
        };
        changes.into_iter().map(step).collect()
    }
}

impl Text<'_> {
    fn bytes(self) -> Vec<u8> {
        match self {
            Text::Bytes(bytes) => bytes.to_vec(),
            Text::Number(number, rest) => [number.to_string().as_bytes(), rest].concat(),
            Text::Large(bytes) => vec![b'v'; usize::from(bytes % 12_000)],
        }
    }
}

/// The memory of an item's expiry time, flags and blocks (bytes), which not every item has.
const OPTIONAL_BYTES_MAX: usize = 16;
