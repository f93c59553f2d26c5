//! The items of a snapshot: a fixed header, the key and the value of each, from the first that an eviction
//! would examine to the last. So a smaller store evicts while it loads what it would have evicted anyway.

use std::io::{self, Read, Write};
use std::sync::atomic::Ordering;

use units::limits::KEY_BYTES_MAX;

use super::chunks::{Part, SectionReader};
use super::facts::{Facts, VERSION_MAX};
use super::{Embedded, Moment, RestoredItems, Saved, SnapshotError};
use crate::embedded::index::USES_MAX;
use crate::embedded::item::Item;
use crate::embedded::log::Queue;
use crate::embedded::record::TIME_MODULUS_S;
use crate::embedded::shard::{HeldItem, Shard, Supply};

/// Writes all living items.
pub(super) fn write<W: Write>(
    store: &Embedded,
    out: &mut Part<'_, W>,
    now_s: u32,
) -> io::Result<Saved> {
    let turn = store.turn(now_s);
    let mut saved = Saved::default();
    for (shard, segment) in in_order_of_eviction(store) {
        let shard = store.shards[shard].read();
        shard.living_items(segment, &turn, |held| {
            let head = Head::new(&held, now_s);
            saved.items += 1;
            saved.bytes += u64::from(head.key_bytes) + u64::from(head.value_bytes);
            out.put(&head.encode())?;
            if head.given_cas != 0 {
                out.put(&head.given_cas.to_le_bytes())?;
            }
            out.put(held.key)?;
            held.pieces().try_for_each(|piece| out.put(&piece))
        })?;
    }
    Ok(saved)
}

/// Returns all segments as shard and number. Keys are spread over the shards at random, so segments at the
/// same part of their queues are of about the same age.
fn in_order_of_eviction(store: &Embedded) -> impl Iterator<Item = (usize, u32)> {
    let mut all = Vec::new();
    for (number, shard) in store.shards.iter().enumerate() {
        let shard = shard.read();
        for (queue, rank) in [(Queue::Kept, 0), (Queue::New, 1)] {
            let segments: Vec<u32> = shard.segments_of(queue).collect();
            let count = segments.len() as u64;
            let part = |nth: usize| ((nth as u64) << 32) / count;
            let ranked = segments.into_iter().enumerate();
            all.extend(ranked.map(|(nth, segment)| (rank, part(nth), number, segment)));
        }
    }
    all.sort_unstable();
    all.into_iter().map(|(_, _, shard, segment)| (shard, segment))
}

/// The fields of an item in a snapshot. Times are relative to the snapshot's date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    marks: u8,
    uses: u8,
    key_bytes: u8,
    value_bytes: u32,
    flags: u32,
    /// The time until the item expires (s); 0 for never.
    left_s: u32,
    /// The time since the last access (s).
    idle_s: u32,
    cas: u64,
    /// The CAS that a client gave the item, or 0. It is behind the other fields, and only there if it is not 0.
    given_cas: u64,
}

impl Head {
    fn new(held: &HeldItem<'_>, now_s: u32) -> Self {
        let item = &held.item;
        let marks = [
            (IS_FETCHED, item.fetched),
            (IS_STALE, item.stale),
            (TOKEN_SENT, item.token_sent),
            (KEY_IS_BINARY, item.key_is_binary),
            (IS_KEPT, held.queue == Queue::Kept),
            (HAS_CAS, item.given_cas != 0),
        ];
        let marks = marks.into_iter().filter(|(_, is_set)| *is_set).map(|(mark, _)| mark);
        Self {
            marks: marks.sum(),
            uses: held.uses,
            key_bytes: held.key.len() as u8,
            value_bytes: held.value_bytes() as u32,
            flags: item.flags,
            // A living item that expires does so after now.
            left_s: item.exptime_s.saturating_sub(now_s),
            idle_s: now_s.wrapping_sub(item.time_s) % TIME_MODULUS_S,
            cas: item.cas,
            given_cas: item.given_cas,
        }
    }

    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..3].copy_from_slice(&[self.marks, self.uses, self.key_bytes]);
        let words = [self.value_bytes, self.flags, self.left_s, self.idle_s];
        for (place, word) in bytes[3..19].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes[19..].copy_from_slice(&self.cas.to_le_bytes());
        bytes
    }

    /// Returns the fields, or what is wrong with them.
    fn decode(bytes: [u8; HEAD_BYTES]) -> Result<Self, &'static str> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let head = Self {
            marks: bytes[0],
            uses: bytes[1],
            key_bytes: bytes[2],
            value_bytes: word(3),
            flags: word(7),
            left_s: word(11),
            idle_s: word(15),
            cas: u64::from(word(19)) | u64::from(word(23)) << 32,
            given_cas: 0,
        };
        match head {
            Self { marks, .. } if marks & !MARKS != 0 => Err("a mark is unknown"),
            Self { uses, .. } if uses > USES_MAX => Err("a count of uses is too large"),
            Self { key_bytes: 0, .. } => Err("a key is empty"),
            Self { key_bytes, .. } if usize::from(key_bytes) > KEY_BYTES_MAX => {
                Err("a key is too long")
            }
            Self { cas, .. } if cas == 0 || cas > VERSION_MAX => Err("a version is out of range"),
            _ => Ok(head),
        }
    }
}

/// Puts the items of a snapshot into a store.
pub(super) struct ItemLoader {
    now_s: u32,
    /// The time between the snapshot and now (s).
    passed_s: u32,
    /// Whether a flush has ended all items of the snapshot.
    is_flushed: bool,
    value_bytes_max: usize,
    pub(super) counts: RestoredItems,
}

impl ItemLoader {
    pub(super) fn new(facts: &Facts, value_bytes_max: usize, now: Moment) -> Self {
        // If the date went backwards, nothing is known of the time that passed. Then items live on as long
        // as they had left, and never longer.
        let passed_s = now.unix_s.saturating_sub(facts.created_unix_s);
        let passed_s = u32::try_from(passed_s).unwrap_or(u32::MAX);
        let is_flushed = facts.flush_left_s != 0 && facts.flush_left_s <= passed_s;
        let counts = RestoredItems::default();
        Self { now_s: now.now_s, passed_s, is_flushed, value_bytes_max, counts }
    }

    /// Reads the section of items into the store.
    pub(super) fn read<R: Read>(
        &mut self,
        store: &Embedded,
        input: &mut SectionReader<R>,
    ) -> Result<Saved, SnapshotError> {
        let mut saved = Saved::default();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while !input.is_at_end()? {
            let mut head = Head::decode(input.take()?).map_err(|problem| input.damaged(problem))?;
            if head.marks & HAS_CAS != 0 {
                head.given_cas = u64::from_le_bytes(input.take()?);
                if head.given_cas == 0 {
                    return Err(input.damaged("a CAS is 0"));
                }
            }
            let value_bytes = u64::from(head.value_bytes);
            saved.items += 1;
            saved.bytes += u64::from(head.key_bytes) + value_bytes;
            key.clear();
            input.append(u64::from(head.key_bytes), &mut key)?;
            if value_bytes > self.value_bytes_max as u64 || value_bytes > store.limit.0 / 2 {
                input.skip(value_bytes)?;
                self.counts.skipped += 1;
                continue;
            }
            value.clear();
            input.append(value_bytes, &mut value)?;
            self.place(store, &head, &key, &value);
        }
        Ok(saved)
    }

    fn place(&mut self, store: &Embedded, head: &Head, key: &[u8], value: &[u8]) {
        let Some(item) = self.item(head) else {
            self.counts.expired += 1;
            return;
        };
        store.begin_versions_after(item.cas);
        let queue = if head.marks & IS_KEPT != 0 { Queue::Kept } else { Queue::New };
        let turn = store.turn(self.now_s);
        let (shard, key) = store.locate(key);
        let placed = store.change(
            shard,
            key.bytes.len() + value.len(),
            &turn,
            |shard: &mut Shard, supply: &mut Supply<'_>| {
                shard.restore(key, item, value, (queue, head.uses), supply)
            },
        );
        self.counts.skipped += u64::from(placed.is_err());
    }

    /// Returns the item as it is now, or none if it has ended.
    fn item(&self, head: &Head) -> Option<Item> {
        let exptime_s = match head.left_s {
            _ if self.is_flushed => return None,
            0 => 0,
            left_s if left_s <= self.passed_s => return None,
            left_s => self.now_s.saturating_add(left_s - self.passed_s),
        };
        let idle_s = head.idle_s.saturating_add(self.passed_s).min(IDLE_MAX_S);
        let is_set = |mark| head.marks & mark != 0;
        Some(Item {
            cas: head.cas,
            given_cas: head.given_cas,
            flags: head.flags,
            exptime_s,
            // The last access may be before the store's clock began. Its time is modulo a power of two.
            time_s: self.now_s.wrapping_sub(idle_s) % TIME_MODULUS_S,
            fetched: is_set(IS_FETCHED),
            stale: is_set(IS_STALE),
            token_sent: is_set(TOKEN_SENT),
            key_is_binary: is_set(KEY_IS_BINARY),
        })
    }

    /// Sets the state of the store beside its items.
    pub(super) fn finish(&self, store: Embedded, facts: &Facts, evict: bool) -> Embedded {
        store.begin_versions_after(facts.cas_last);
        let left_s = facts.flush_left_s.saturating_sub(self.passed_s);
        if left_s > 0 {
            let until_s = self.now_s.saturating_add(left_s - 1);
            store.flush_until_s.store(until_s, Ordering::Release);
        }
        Embedded { evict, ..store }
    }
}

const IS_FETCHED: u8 = 1;
const IS_STALE: u8 = 2;
const TOKEN_SENT: u8 = 4;
const KEY_IS_BINARY: u8 = 8;
/// The item was in the queue of items that were accessed again.
const IS_KEPT: u8 = 16;
/// The item has a CAS that a client gave it.
const HAS_CAS: u8 = 32;
const MARKS: u8 = 63;

/// Marks (1), uses (1), length of the key (1), length of the value (4), client flags (4), time left (4), idle
/// time (4), version (8). An item with [`HAS_CAS`] has 8 bytes more.
pub(super) const HEAD_BYTES: usize = 27;

/// The longest time since the last access that a record can hold.
const IDLE_MAX_S: u32 = TIME_MODULUS_S - 1;
