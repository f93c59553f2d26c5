//! The index of one shard: from the hash of a key to the position of its record. It is one array of
//! slots, 8 bytes each, ordered by tag (linear probing with ordered slots), so it grows without
//! reading a key. It neither hashes keys nor reads records: the caller compares keys.

use std::sync::atomic::{AtomicU64, Ordering};

/// A part of a key's hash. An index holds records in the order of their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tag(u32);

impl Tag {
    /// The number of tags.
    pub(super) const COUNT: u64 = 1 << TAG_BITS;

    /// Takes the tag from the low bits of a hash.
    pub(super) const fn of_hash(hash: u64) -> Self {
        Self((hash & (Self::COUNT - 1)) as u32)
    }

    /// Returns the first tag that is not below `bound`, or the last tag.
    pub(super) const fn from_bound(bound: u64) -> Self {
        if bound < Self::COUNT { Self(bound as u32) } else { Self((Self::COUNT - 1) as u32) }
    }
}

/// The index.
#[derive(Debug)]
pub(super) struct Index {
    /// The slots in the order of their tags, with empty slots between them. A record is at or behind
    /// the home of its tag, with no empty slot between. The last slot is always empty.
    slots: Vec<AtomicU64>,
    /// The number of slots that can be a home. The slots behind them take what the last homes
    /// displace.
    homes: usize,
    len: usize,
}

/// The contents of a used slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) tag: Tag,
    /// The position of the record in the shard's segments.
    pub(super) at: u32,
    /// The number of accesses since the record was last examined for eviction, up to 3.
    pub(super) uses: u8,
    /// Whether the item has been fetched.
    pub(super) fetched: bool,
}

impl Index {
    /// Creates an empty index.
    pub(super) fn new() -> Self {
        Self { slots: empty(HOMES_MIN), homes: HOMES_MIN, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the memory of the slots (bytes).
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<AtomicU64>()
    }

    /// Returns the slot of the record with this tag for which `is_it` returns true.
    pub(super) fn find(&self, tag: Tag, mut is_it: impl FnMut(u32) -> bool) -> Option<usize> {
        let mut slot = self.home(tag);
        loop {
            let word = self.slots[slot].load(Ordering::Relaxed);
            if word == EMPTY || tag_of(word) > tag {
                return None;
            }
            if tag_of(word) == tag && is_it(at_of(word)) {
                return Some(slot);
            }
            slot += 1;
        }
    }

    /// Returns what a used slot holds.
    pub(super) fn get(&self, slot: usize) -> Entry {
        decode(self.slots[slot].load(Ordering::Relaxed))
    }

    /// Replaces what a used slot holds. The tag must be the same.
    pub(super) fn set(&mut self, slot: usize, entry: Entry) {
        *self.slots[slot].get_mut() = encode(entry);
    }

    /// Counts an access of the record, and marks it as fetched if `fetched` is set. Other readers may
    /// do so at the same time.
    pub(super) fn count_use(&self, slot: usize, entry: Entry, fetched: bool) {
        let uses = (entry.uses + 1).min(USES_MAX);
        let used = Entry { uses, fetched: entry.fetched || fetched, ..entry };
        if used != entry {
            // Only readers run at the same time, and they all add; one lost count does no harm.
            self.slots[slot].store(encode(used), Ordering::Relaxed);
        }
    }

    /// Inserts a record that the index does not have.
    pub(super) fn insert(&mut self, entry: Entry) {
        if (self.len + 1) * LOAD_DEN > self.homes * LOAD_NUM {
            self.grow();
        }
        self.len += 1;
        let mut carried = encode(entry);
        loop {
            let mut slot = self.home(tag_of(carried));
            while slot < self.slots.len() - 1 {
                let word = self.slots[slot].get_mut();
                if *word == EMPTY {
                    *word = carried;
                    return;
                }
                if tag_of(*word) > tag_of(carried) {
                    std::mem::swap(word, &mut carried);
                }
                slot += 1;
            }
            // The displaced records reached the end.
            self.grow();
        }
    }

    /// Removes the record of a used slot.
    pub(super) fn remove(&mut self, slot: usize) {
        let mut hole = slot;
        loop {
            let next = *self.slots[hole + 1].get_mut();
            if next == EMPTY || self.home(tag_of(next)) == hole + 1 {
                break;
            }
            *self.slots[hole].get_mut() = next;
            hole += 1;
        }
        *self.slots[hole].get_mut() = EMPTY;
        self.len -= 1;
    }

    /// Returns the used slots from the first one whose tag is at least `from`.
    pub(super) fn entries_from(&self, from: Tag) -> impl Iterator<Item = Entry> {
        let words = self.slots[self.home(from)..].iter().map(|slot| slot.load(Ordering::Relaxed));
        words.filter(move |word| *word != EMPTY && tag_of(*word) >= from).map(decode)
    }

    fn home(&self, tag: Tag) -> usize {
        ((u64::from(tag.0) * self.homes as u64) >> TAG_BITS) as usize
    }

    /// Makes the array smaller if more than half of it is unused. Returns whether it was.
    pub(super) fn shrink(&mut self) -> bool {
        let is_sparse = self.homes > 4 * HOMES_MIN && self.len < self.homes / 2;
        if is_sparse {
            self.resize(self.len + (self.len / GROWTH_DEN).max(HOMES_MIN));
        }
        is_sparse
    }

    fn grow(&mut self) {
        self.resize(self.homes + (self.homes / GROWTH_DEN).max(HOMES_MIN));
    }

    /// Moves the records into an array with this number of homes. Their order stays.
    fn resize(&mut self, homes: usize) {
        let mut grown = Self { slots: empty(homes), homes, len: self.len };
        let mut free = 0;
        for slot in &mut self.slots {
            let word = *slot.get_mut();
            if word == EMPTY {
                continue;
            }
            free = free.max(grown.home(tag_of(word)));
            if free + 1 >= grown.slots.len() {
                // Many records share the last homes.
                grown.slots.resize_with(free + 2 + HOMES_MIN, || AtomicU64::new(EMPTY));
            }
            *grown.slots[free].get_mut() = word;
            free += 1;
        }
        *self = grown;
    }
}

fn empty(homes: usize) -> Vec<AtomicU64> {
    let mut slots = Vec::new();
    let displaced = DISPLACED_MAX.min(homes);
    slots.reserve_exact(homes + displaced + 1);
    slots.resize_with(homes + displaced + 1, || AtomicU64::new(EMPTY));
    slots
}

/// From the highest bit on: the tag, whether the item was fetched, the uses, the position plus one.
fn encode(entry: Entry) -> u64 {
    let Entry { tag, at, uses, fetched } = entry;
    u64::from(tag.0) << 35 | u64::from(fetched) << 34 | u64::from(uses) << 32 | u64::from(at + 1)
}

fn decode(word: u64) -> Entry {
    Entry {
        tag: tag_of(word),
        at: at_of(word),
        uses: (word >> 32) as u8 & USES_MAX,
        fetched: word >> 34 & 1 == 1,
    }
}

fn tag_of(word: u64) -> Tag {
    Tag((word >> 35) as u32)
}

fn at_of(word: u64) -> u32 {
    (word as u32).wrapping_sub(1)
}

/// The memory of the index that a record takes on average (bytes).
pub(super) const INDEX_BYTES: usize = 9;

const TAG_BITS: u32 = 29;

const EMPTY: u64 = 0;

/// The largest count of uses.
pub(super) const USES_MAX: u8 = 3;

/// The index grows when more than this share of its homes would be used. At 19/20 a lookup reads
/// about ten slots on average, which are one or two cache lines.
const LOAD_NUM: usize = 19;
const LOAD_DEN: usize = 20;

/// The index grows by one in so many homes. Smaller steps would use less memory between two steps,
/// and move each record more often.
const GROWTH_DEN: usize = 10;

const HOMES_MIN: usize = 16;

/// The slots behind the homes, which take the displaced records of the last homes.
const DISPLACED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use units::Prng;

    use super::*;

    fn entry(tag: u64, at: u32) -> Entry {
        Entry { tag: Tag::of_hash(tag), at, uses: 0, fetched: false }
    }

    /// Runs random insertions and removals beside a map of positions.
    fn exercise(tags: u64, rounds: u32, keep: usize) {
        let (mut index, mut map) = (Index::new(), BTreeMap::new());
        let mut draws = Prng::new(tags);
        for at in 0..rounds {
            let tag = draws.below(tags) * (Tag::COUNT / tags);
            index.insert(entry(tag, at));
            map.insert(at, tag);
            while map.len() > keep {
                let nth = draws.below(map.len() as u64) as usize;
                let (&gone, &tag) = map.iter().nth(nth).expect("in range");
                let slot = index.find(Tag::of_hash(tag), |found| found == gone);
                index.remove(slot.expect("the index has it"));
                map.remove(&gone);
            }
        }
        assert_eq!(index.len(), map.len());
        for (at, tag) in &map {
            let slot = index.find(Tag::of_hash(*tag), |found| found == *at).expect("it is there");
            assert_eq!(index.get(slot).at, *at);
        }
        let all: Vec<Entry> = index.entries_from(Tag::from_bound(0)).collect();
        assert!(all.is_sorted_by_key(|entry| entry.tag));
        assert_eq!(all.len(), map.len());
    }

    #[test]
    fn it_holds_what_a_map_holds() {
        exercise(Tag::COUNT, 20_000, 5_000);
        exercise(64, 3_000, 1_000);
        exercise(1, 600, 500);
    }

    #[test]
    fn a_slot_keeps_position_uses_and_mark() {
        let mut index = Index::new();
        let mut entry = entry(Tag::COUNT - 1, u32::MAX - 1);
        index.insert(entry);
        let slot = index.find(entry.tag, |_| true).expect("it is there");
        for uses in [1, 2, 3, 3] {
            index.count_use(slot, index.get(slot), true);
            (entry.uses, entry.fetched) = (uses, true);
            assert_eq!(index.get(slot), entry);
        }
        entry.uses = 0;
        index.set(slot, entry);
        assert_eq!(index.get(slot), entry);
    }

    #[test]
    fn it_shrinks_when_most_records_are_gone() {
        let mut index = Index::new();
        let tags: Vec<u64> = (0..10_000).map(|number| number * (Tag::COUNT / 10_000)).collect();
        tags.iter().zip(0..).for_each(|(tag, at)| index.insert(entry(*tag, at)));
        let bytes = index.bytes();
        assert!(!index.shrink());
        for (tag, at) in tags.iter().zip(0..9_000) {
            let slot = index.find(Tag::of_hash(*tag), |found| found == at).expect("it is there");
            index.remove(slot);
        }
        assert!(index.shrink() && !index.shrink());
        assert!(index.bytes() < bytes / 5, "{} of {bytes}", index.bytes());
        for (tag, at) in tags.iter().zip(0..).skip(9_000) {
            assert!(index.find(Tag::of_hash(*tag), |found| found == at).is_some());
        }
    }

    #[test]
    fn it_takes_less_than_ten_bytes_a_record() {
        let mut index = Index::new();
        let mut draws = Prng::new(9);
        for at in 0..100_000 {
            index.insert(entry(draws.bits(), at));
            let share = index.bytes() as f64 / f64::from(at + 1);
            assert!(at < 20_000 || share < 9.6, "{share} bytes with {at} records");
        }
    }
}
