//! One shard: the items under one lock, and the choice of items to evict. Memory comes from the
//! store's [`Memory`]; where there is none, an operation changes nothing and says what it lacks.

mod eviction;
mod held;

use ahash::RandomState;
use bytes::Bytes;

pub(super) use held::HeldItem;

use super::blocks::Blocks;
use super::index::{Entry, INDEX_BYTES, Index, Tag, USES_MAX};
use super::item::{End, Fetch, Fetched, Glimpse, Item, NewItem, Step};
use super::log::{Bounds, Log, Queue};
use super::memory::{Memory, Segment};
use super::record::{Chain, Record, TAIL_BYTES_MAX, TIME_MODULUS_S, Tail};
use super::{Mode, Removal, Stats, Stored, Turn};
use crate::frame::brief::{self, Brief, Form};

/// A shard.
#[derive(Debug)]
pub(super) struct Shard {
    index: Index,
    log: Log,
    blocks: Blocks,
    /// The bytes of records and blocks in [`Queue::New`] and in [`Queue::Kept`].
    held_bytes: [u64; 2],
    /// The records that stayed since the last one was evicted.
    kept_in_a_row: u32,
    scratch: Vec<u8>,
    hash: RandomState,
    counters: Counters,
}

/// The items that `flush_all` ended: those with a version before `cas`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flushed {
    pub(super) cas: u64,
}

/// Memory for one operation: the segments that were reclaimed for it, and the store's.
pub(super) struct Supply<'a> {
    pub(super) memory: &'a Memory,
    pub(super) segments: Vec<Segment>,
}

/// The operation needs this many more segments. It has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lacking {
    /// The blocks that the value needs in all.
    pub(super) blocks: usize,
}

/// The result of a fetch under a shared lock.
pub(super) enum Glance<U> {
    /// There is no item, and the fetch creates none.
    Missing,
    /// The item, what the caller made of its value in place, and whether the access time must be updated.
    Found(Fetched, Option<U>, bool),
    /// The fetch must change the item or remove it.
    MustChange,
}

/// A key, and the tag that its hash gives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) tag: Tag,
}

/// An item that a lookup found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    slot: usize,
    entry: Entry,
    record: Record,
    pub(super) item: Item,
}

impl Found {
    /// Returns whether the record has the value as it is.
    pub(super) fn is_in_place(&self) -> bool {
        self.record.chain.is_none() && self.record.form() == Form::Whole
    }

    /// Returns the length of the value (bytes).
    pub(super) fn value_bytes(&self, shard: &Shard) -> usize {
        shard.value_bytes_of(&self.record)
    }
}

impl Shard {
    pub(super) fn new(segment_bytes: usize, hash: RandomState) -> Self {
        let block_bytes = (segment_bytes / BLOCKS_PER_SEGMENT).clamp(BLOCK_MIN, BLOCK_MAX);
        Self {
            index: Index::new(),
            log: Log::new(segment_bytes),
            blocks: Blocks::new(block_bytes, segment_bytes),
            held_bytes: [0; 2],
            kept_in_a_row: 0,
            scratch: Vec::new(),
            hash,
            counters: Counters::default(),
        }
    }

    /// Returns the number of segments that the shard holds.
    pub(super) fn segments(&self) -> usize {
        self.log.segments() + self.blocks.segments()
    }

    /// Returns the number of segments that so many blocks fill.
    pub(super) fn segments_of_blocks(&self, blocks: usize) -> usize {
        self.blocks.segments_of(blocks)
    }

    /// Fetches without changing more than the counts of accesses.
    pub(super) fn glance<U>(
        &self,
        key: Key<'_>,
        fetch: &Fetch<'_>,
        turn: &Turn<'_>,
        using: impl FnMut(&Glimpse<'_>) -> Option<U>,
    ) -> Glance<U> {
        let Some(found) = self.look(key) else {
            return if fetch.creates() { Glance::MustChange } else { Glance::Missing };
        };
        let may_win = fetch.meta && found.item.stale && !found.item.token_sent;
        let changes = fetch.steps.iter().any(|step| !matches!(step, Step::Ttl));
        if changes || may_win || found.item.end(turn.now_s, &turn.flushed).is_some() {
            return Glance::MustChange;
        }
        let mut item = found.item;
        let (value, used) = self.value_or_use(&found, using);
        let fetched = item.visit(fetch, value, false, turn.now_s);
        if fetch.bump {
            self.index.count_use(found.slot, found.entry, true);
        }
        Glance::Found(fetched, used, item.time_s != found.item.time_s)
    }

    /// Sets an item's access time to now.
    pub(super) fn set_time(&mut self, key: Key<'_>, now_s: u32) {
        if let Some(found) = self.look(key) {
            let item = Item { time_s: now_s % TIME_MODULUS_S, ..found.item };
            self.write_in_place(&found, item);
        }
    }

    pub(super) fn fetch<U>(
        &mut self,
        key: Key<'_>,
        fetch: &Fetch<'_>,
        turn: &Turn<'_>,
        supply: &mut Supply<'_>,
        using: impl FnMut(&Glimpse<'_>) -> Option<U>,
    ) -> Result<Option<(Fetched, Option<U>)>, Lacking> {
        if let Some(found) = self.live(key, turn) {
            let mut item = found.item;
            let (value, used) = self.value_or_use(&found, using);
            let fetched = item.visit(fetch, value, false, turn.now_s);
            self.update(&found, item, key, supply.memory);
            if fetch.bump {
                self.index.count_use(found.slot, self.index.get(found.slot), true);
            }
            return Ok(Some((fetched, used)));
        }
        if !fetch.creates() {
            return Ok(None);
        }
        let mut item = Item::new(&NewItem::default(), turn.now_s);
        let mut made = item;
        made.apply(fetch.steps, true);
        let room = self.room(key, &made, b"", Queue::New, supply)?;
        item.cas = turn.cas_next();
        let fetched = item.visit(fetch, Bytes::new(), true, turn.now_s);
        self.put(key, item, b"", room, None, supply);
        self.counters.total_items += 1;
        Ok(Some((fetched, None)))
    }

    pub(super) fn store(
        &mut self,
        key: Key<'_>,
        new: &NewItem<'_>,
        mode: Mode,
        turn: &Turn<'_>,
        supply: &mut Supply<'_>,
    ) -> Result<Stored, Lacking> {
        let mut item = Item::new(new, turn.now_s);
        let old = self.live(key, turn);
        match (&old, mode) {
            (Some(found), _) => {
                if let Some(refusal) = item.refused_by(&found.item, mode) {
                    if mode == Mode::Add {
                        self.set_time(key, turn.now_s);
                    }
                    self.count_use(found);
                    return Ok(refusal);
                }
            }
            (None, Mode::Replace) => return Ok(Stored::NotStored),
            (None, Mode::Compare { .. } | Mode::Overwrite { .. }) => return Ok(Stored::NotFound),
            (None, Mode::Set | Mode::Add) => {}
        }
        let value = Brief::new(new.value);
        let room = match &old {
            Some(found) if fits_in_place(found, &item, &value) => None,
            _ => Some(self.room(key, &item, new.value, Queue::New, supply)?),
        };
        item.cas = turn.cas_next();
        self.counters.total_items += 1;
        match (room, old) {
            (None, Some(found)) => {
                self.count_use(&found);
                self.overwrite(&found, &value);
                self.write_in_place(&found, item);
            }
            (room, old) => {
                let room = room.expect("room was found for whatever does not fit in place");
                self.put(key, item, new.value, room, old, supply);
            }
        }
        Ok(Stored::Stored { cas: item.cas })
    }

    pub(super) fn delete(
        &mut self,
        key: Key<'_>,
        compare: Option<u64>,
        turn: &Turn<'_>,
    ) -> Removal {
        match self.live(key, turn) {
            None => Removal::NotFound,
            Some(found) if compare.is_some_and(|cas| cas != found.item.shown_cas()) => {
                Removal::Exists
            }
            Some(found) => {
                self.remove(&found);
                Removal::Done
            }
        }
    }

    /// Removes the item of a key, if there is one.
    pub(super) fn drop_item(&mut self, key: Key<'_>) {
        if let Some(found) = self.look(key) {
            self.remove(&found);
        }
    }

    pub(super) fn invalidate(
        &mut self,
        key: Key<'_>,
        compare: Option<u64>,
        exptime_s: Option<u32>,
        turn: &Turn<'_>,
        memory: &Memory,
    ) -> Removal {
        let Some(found) = self.live(key, turn) else { return Removal::NotFound };
        if compare.is_some_and(|cas| cas != found.item.shown_cas()) {
            return Removal::Exists;
        }
        let mut item = found.item;
        item.exptime_s = exptime_s.unwrap_or(item.exptime_s);
        (item.stale, item.token_sent) = (true, false);
        (item.cas, item.given_cas) = (turn.cas_next(), 0);
        self.update(&found, item, key, memory);
        Removal::Done
    }

    /// Gives an item another CAS if it has the CAS `compare`.
    pub(super) fn give_cas(
        &mut self,
        key: Key<'_>,
        compare: u64,
        given: u64,
        turn: &Turn<'_>,
        memory: &Memory,
    ) {
        if let Some(found) = self.live(key, turn)
            && found.item.shown_cas() == compare
        {
            let item = Item { given_cas: given, ..found.item };
            self.update(&found, item, key, memory);
        }
    }

    /// Removes the ended items of the segments from number `from` on, until about `items_max` records
    /// were checked. Segments in which nothing can have ended are skipped.
    pub(super) fn sweep(&mut self, from: u32, items_max: usize, turn: &Turn<'_>) -> Swept {
        let mut swept = Swept { seen: 0, removed: 0, next: None };
        for id in from..self.log.numbers_end() {
            if swept.seen >= items_max {
                swept.next = Some(id);
                break;
            }
            swept.seen += 1;
            if self.log.may_have_ended(id, turn.now_s, turn.flushed.cas) {
                self.sweep_segment(id, turn, &mut swept);
            }
        }
        self.counters.crawler_reclaimed += swept.removed as u64;
        swept
    }

    fn sweep_segment(&mut self, id: u32, turn: &Turn<'_>, swept: &mut Swept) {
        let mut bounds = Bounds::NONE;
        let mut ended = Vec::new();
        for (at, bytes) in self.log.records(id) {
            swept.seen += 1;
            let item = Record::read(bytes).item;
            if item.end(turn.now_s, &turn.flushed).is_some() {
                ended.push(at);
            } else {
                bounds.include(&item);
            }
        }
        for at in ended {
            // A record that was replaced is not in the index any more.
            let Some(found) = self.found_of_record(at) else { continue };
            let expired = found.item.end(turn.now_s, &turn.flushed) == Some(End::Expired);
            self.counters.expired_unfetched += u64::from(expired && !found.item.fetched);
            self.remove(&found);
            swept.removed += 1;
        }
        self.log.set_bounds(id, bounds);
    }

    /// Shows the living items whose tags are from `from` on, about `items_max` of them. Returns how
    /// many were shown, and the tag at which to continue; none at the end of the shard.
    pub(super) fn show(
        &self,
        from: Tag,
        items_max: usize,
        turn: &Turn<'_>,
        mut show: impl FnMut(&[u8], &Item, usize),
    ) -> (usize, Option<Tag>) {
        let (mut shown, mut last) = (0, None);
        for entry in self.index.entries_from(from) {
            if shown >= items_max && last != Some(entry.tag) {
                return (shown, Some(entry.tag));
            }
            last = Some(entry.tag);
            let bytes = self.log.bytes(entry.at);
            let record = Record::read(bytes);
            let item = item_of(entry, &record);
            if item.end(turn.now_s, &turn.flushed).is_none() {
                show(record.key(bytes), &item, self.value_bytes_of(&record));
                shown += 1;
            }
        }
        (shown, None)
    }

    pub(super) fn add_to(&self, stats: &mut Stats) {
        let counters = &self.counters;
        stats.curr_items += self.index.len() as u64;
        let index_bytes = self.index.len() * INDEX_BYTES;
        stats.bytes += (self.log.live_bytes() + self.blocks.used_bytes() + index_bytes) as u64;
        stats.total_items += counters.total_items;
        stats.evictions += counters.evictions;
        stats.evicted_unfetched += counters.evicted_unfetched;
        stats.evicted_last = stats.evicted_last.max(counters.evicted_last);
        stats.reclaimed += counters.reclaimed;
        stats.expired_unfetched += counters.expired_unfetched;
        stats.crawler_reclaimed += counters.crawler_reclaimed;
        stats.get_expired += counters.get_expired;
        stats.get_flushed += counters.get_flushed;
    }

    /// Frees some memory: a segment that goes to the store's memory, or blocks. It examines a bounded
    /// number of records. `blocks` is the number of blocks that the shard needs itself. Without
    /// `evict` only space that no living item uses is freed. Returns false if nothing was freed and
    /// calling it again would free nothing.
    pub(super) fn reclaim(
        &mut self,
        blocks: usize,
        evict: bool,
        turn: &Turn<'_>,
        memory: &Memory,
    ) -> bool {
        let index_bytes = self.index.bytes();
        if self.index.shrink() {
            memory.shrank(index_bytes - self.index.bytes());
            return true;
        }
        let log = &mut self.log;
        let moved = |at: u32, first| {
            let bytes = log.bytes_mut(at);
            let mut record = Record::read(bytes);
            record.chain = record.chain.map(|chain| Chain { first, ..chain });
            record.write_header(bytes);
        };
        if let Some(segment) = self.blocks.shrink(blocks, moved) {
            memory.put(segment);
            return true;
        }
        let is_sparse = self.log.dead_share() >= if evict { DEAD_SHARE_MAX } else { 0.0 };
        let dead_min = if evict { DEAD_SEGMENT_SHARE } else { DEAD_SEGMENT_SHARE_MIN };
        if let Some((queue, id)) = self.log.most_dead(dead_min).filter(|_| is_sparse) {
            while let Some((at, bytes)) = self.log.next_record(id) {
                if let Some(found) = self.found_of_record(at) {
                    self.move_record(&found, bytes, queue, found.entry.uses, id, memory);
                }
            }
            memory.put(self.log.remove(queue, id));
            return true;
        }
        evict && self.evict(turn, memory)
    }

    /// Appends a record's bytes to a queue. The index then has it there. The segment `from` is about
    /// to be removed, so nothing is appended to it.
    fn move_record(
        &mut self,
        found: &Found,
        bytes: usize,
        queue: Queue,
        uses: u8,
        from: u32,
        memory: &Memory,
    ) {
        if !self.log.has_room(queue, bytes) || self.log.newest(queue) == Some(from) {
            self.log.add(queue, memory.borrow());
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.log.bytes(found.entry.at)[..bytes]);
        self.count_held(found, false);
        self.log.count_dead(found.entry.at, bytes);
        let (at, space) = self.log.append(queue, bytes);
        space.copy_from_slice(&self.scratch);
        self.log.include(at, &found.item);
        self.index.set(found.slot, Entry { at, uses, ..found.entry });
        if let Some(chain) = found.record.chain {
            self.blocks.record_moved(chain, at);
        }
        let moved = Found { entry: Entry { at, ..found.entry }, ..*found };
        self.count_held(&moved, true);
    }

    /// Returns the item of a key if it is alive. Removes it if it has ended.
    pub(super) fn live(&mut self, key: Key<'_>, turn: &Turn<'_>) -> Option<Found> {
        let found = self.look(key)?;
        match found.item.end(turn.now_s, &turn.flushed) {
            None => return Some(found),
            Some(End::Expired) => self.counters.get_expired += 1,
            Some(End::Flushed) => self.counters.get_flushed += 1,
        }
        self.remove(&found);
        None
    }

    /// Returns what `using` makes of the item, or a copy of the value.
    fn value_or_use<U>(
        &self,
        found: &Found,
        mut using: impl FnMut(&Glimpse<'_>) -> Option<U>,
    ) -> (Bytes, Option<U>) {
        let (cas, version) = (found.item.shown_cas(), found.item.known_version());
        let flags = found.item.flags;
        let value = found.is_in_place().then(|| found.record.tail(self.log.bytes(found.entry.at)));
        match using(&Glimpse { cas, version, flags, value }) {
            None => (self.value(found), None),
            used => (Bytes::new(), used),
        }
    }

    pub(super) fn key(&self, found: &Found) -> &[u8] {
        found.record.key(self.log.bytes(found.entry.at))
    }

    /// Returns the bytes of the value that are in the record.
    pub(super) fn tail(&self, found: &Found) -> &[u8] {
        found.record.tail(self.log.bytes(found.entry.at))
    }

    /// Returns a copy of the value.
    pub(super) fn value(&self, found: &Found) -> Bytes {
        let tail = found.record.tail(self.log.bytes(found.entry.at));
        if found.is_in_place() {
            return Bytes::copy_from_slice(tail);
        }
        let mut value = Vec::with_capacity(found.value_bytes(self));
        if let Some(chain) = found.record.chain {
            self.blocks.read(chain, &mut value);
        }
        brief::expand(found.record.form(), tail, &mut value);
        value.into()
    }

    /// Overwrites the value of an item that has no blocks with one whose form has the same length.
    pub(super) fn overwrite(&mut self, found: &Found, value: &Brief<'_>) {
        let bytes = self.log.bytes_mut(found.entry.at);
        value.write(found.record.tail_mut(bytes));
    }

    /// Finds space for an item.
    pub(super) fn room(
        &mut self,
        key: Key<'_>,
        item: &Item,
        value: &[u8],
        queue: Queue,
        supply: &mut Supply<'_>,
    ) -> Result<Room, Lacking> {
        let (blocks, tail_bytes, form) = self.parts(value);
        let tail = Tail { bytes: tail_bytes as u16, form };
        let chain = (blocks > 0).then_some(Chain { first: 0, blocks: blocks as u32 });
        let record = Record::new(*item, key.bytes, tail, chain);
        let for_log = usize::from(!self.log.has_room(queue, record.bytes()));
        let wanted = for_log + self.blocks.segments_missing(blocks);
        while supply.segments.len() < wanted {
            let segment = supply.memory.take().ok_or(Lacking { blocks })?;
            supply.segments.push(segment);
        }
        Ok(Room { queue, blocks, tail })
    }

    /// Stores an item in the space that [`Shard::room`] found, in place of `old`.
    pub(super) fn put(
        &mut self,
        key: Key<'_>,
        item: Item,
        value: &[u8],
        room: Room,
        old: Option<Found>,
        supply: &mut Supply<'_>,
    ) {
        let Room { queue, blocks, tail } = room;
        while self.blocks.segments_missing(blocks) > 0 {
            self.blocks.add(supply.segments.pop().expect("room was found"));
        }
        let (in_blocks, rest) = value.split_at(blocks * self.blocks.block_bytes());
        let chain = (blocks > 0).then(|| self.blocks.store(in_blocks, 0));
        let record = Record::new(item, key.bytes, tail, chain);
        if !self.log.has_room(queue, record.bytes()) {
            self.log.add(queue, supply.segments.pop().expect("room was found"));
        }
        let (at, space) = self.log.append(queue, record.bytes());
        record.write(space, key.bytes);
        held_as(rest, tail.form).write(record.tail_mut(space));
        self.log.include(at, &item);
        if let Some(chain) = chain {
            self.blocks.record_moved(chain, at);
        }
        let uses = old.as_ref().map_or(0, |old| (old.entry.uses + 1).min(USES_MAX));
        let entry = Entry { tag: key.tag, at, uses, fetched: item.fetched };
        match old {
            Some(old) => {
                self.forget(&old);
                self.index.set(old.slot, entry);
            }
            None => {
                let before = self.index.bytes();
                self.index.insert(entry);
                supply.memory.grew(self.index.bytes() - before);
            }
        }
        let bytes = record.bytes() + self.chain_bytes(chain);
        self.held_bytes[queue as usize] += bytes as u64;
    }

    /// Counts an access to an item, for eviction.
    pub(super) fn count_use(&self, found: &Found) {
        self.index.count_use(found.slot, found.entry, false);
    }

    /// Counts an item that was stored.
    pub(super) fn count_total(&mut self) {
        self.counters.total_items += 1;
    }

    /// Changes an item's fields. The few bytes that the header may gain are never refused.
    pub(super) fn update(&mut self, found: &Found, item: Item, key: Key<'_>, memory: &Memory) {
        if found.record.keeps_its_length(&item) {
            return self.write_in_place(found, item);
        }
        let queue = self.log.queue_of(found.entry.at);
        let record = found.record.with(item, key.bytes);
        if !self.log.has_room(queue, record.bytes()) {
            self.log.add(queue, memory.borrow());
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(found.record.tail(self.log.bytes(found.entry.at)));
        self.count_held(found, false);
        self.log.count_dead(found.entry.at, found.record.bytes());
        let (at, space) = self.log.append(queue, record.bytes());
        record.write(space, key.bytes);
        record.tail_mut(space).copy_from_slice(&self.scratch);
        self.log.include(at, &item);
        if let Some(chain) = record.chain {
            self.blocks.record_moved(chain, at);
        }
        let entry = Entry { at, fetched: item.fetched, ..self.index.get(found.slot) };
        self.index.set(found.slot, entry);
        self.count_held(&Found { entry, record, item, ..*found }, true);
    }

    /// Writes fields that leave the record's length as it is.
    fn write_in_place(&mut self, found: &Found, item: Item) {
        let record = found.record.with_fields(item);
        record.write_header(self.log.bytes_mut(found.entry.at));
        self.log.include(found.entry.at, &item);
        let entry = Entry { fetched: item.fetched, ..self.index.get(found.slot) };
        self.index.set(found.slot, entry);
    }

    /// Returns the item of a key, which may have ended.
    pub(super) fn look(&self, key: Key<'_>) -> Option<Found> {
        let is_it = |at| Record::outline(self.log.bytes(at)).1 == key.bytes;
        Some(self.found_in(self.index.find(key.tag, is_it)?))
    }

    /// Returns the item whose record is at this position, if the index has it.
    fn found_of_record(&self, at: u32) -> Option<Found> {
        let (_, key) = Record::outline(self.log.bytes(at));
        self.found_at(Tag::of_hash(self.hash.hash_one(key)), at)
    }

    fn found_at(&self, tag: Tag, at: u32) -> Option<Found> {
        Some(self.found_in(self.index.find(tag, |other| other == at)?))
    }

    fn found_in(&self, slot: usize) -> Found {
        let entry = self.index.get(slot);
        let record = Record::read(self.log.bytes(entry.at));
        Found { slot, entry, record, item: item_of(entry, &record) }
    }

    fn remove(&mut self, found: &Found) {
        self.forget(found);
        self.index.remove(found.slot);
    }

    /// Frees what an item uses outside the index.
    fn forget(&mut self, found: &Found) {
        self.count_held(found, false);
        self.log.count_dead(found.entry.at, found.record.bytes());
        if let Some(chain) = found.record.chain {
            self.blocks.release(chain);
        }
    }

    fn count_held(&mut self, found: &Found, is_held: bool) {
        let bytes = self.bytes_of(found);
        let held = &mut self.held_bytes[self.log.queue_of(found.entry.at) as usize];
        *held = if is_held { *held + bytes } else { *held - bytes };
    }

    /// Returns the bytes of an item's record and blocks.
    fn bytes_of(&self, found: &Found) -> u64 {
        (found.record.bytes() + self.chain_bytes(found.record.chain)) as u64
    }

    /// Returns the length of a record's value (bytes).
    fn value_bytes_of(&self, record: &Record) -> usize {
        let omitted_bytes = record.form().omitted_bytes();
        record.tail_bytes() + omitted_bytes + self.chain_bytes(record.chain)
    }

    /// Returns the blocks of a value, the bytes in its record, and their form.
    fn parts(&self, value: &[u8]) -> (usize, usize, Form) {
        let block_bytes = self.blocks.block_bytes();
        if value.len() <= block_bytes {
            let brief = Brief::new(value);
            return (0, brief.len(), brief.form);
        }
        (value.len() / block_bytes, value.len() % block_bytes, Form::Whole)
    }

    fn chain_bytes(&self, chain: Option<Chain>) -> usize {
        chain.map_or(0, |chain| chain.blocks as usize * self.blocks.block_bytes())
    }
}

/// Space that was found for a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    queue: Queue,
    blocks: usize,
    tail: Tail,
}

/// The result of sweeping a part of a shard.
pub(super) struct Swept {
    pub(super) seen: usize,
    pub(super) removed: usize,
    /// The number of the segment at which to continue; none at the end of the shard.
    pub(super) next: Option<u32>,
}

/// Returns whether an item can be written over an old one.
fn fits_in_place(found: &Found, item: &Item, value: &Brief<'_>) -> bool {
    found.record.chain.is_none()
        && found.record.tail_bytes() == value.len()
        && found.record.form() == value.form
        && found.record.keeps_its_length(item)
}

/// Returns a value or its end in the form that was found for it.
fn held_as(value: &[u8], form: Form) -> Brief<'_> {
    if form == Form::Whole { Brief::whole(value) } else { Brief::new(value) }
}

fn item_of(entry: Entry, record: &Record) -> Item {
    Item { fetched: entry.fetched, ..record.item }
}

impl Fetch<'_> {
    /// Returns whether the fetch creates a missing item.
    fn creates(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Vivify(_)))
    }
}

impl Item {
    /// Returns a refusal if `mode` does not let this item replace `old`. Otherwise the item takes
    /// over from `old` what the mode requires.
    fn refused_by(&mut self, old: &Item, mode: Mode) -> Option<Stored> {
        match mode {
            Mode::Set | Mode::Replace => None,
            Mode::Add => Some(Stored::NotStored),
            Mode::Compare { cas, .. } if cas == old.shown_cas() => None,
            Mode::Overwrite { cas } if cas == old.shown_cas() => {
                self.fetched = old.fetched;
                self.stale = old.stale;
                self.token_sent = old.token_sent;
                None
            }
            // Version 0 is not a version: memcached reads it as "not given", and no item equals it.
            Mode::Compare { cas, stale_if_older: true } if cas != 0 && cas < old.shown_cas() => {
                self.exptime_s = old.exptime_s;
                self.stale = true;
                self.token_sent = old.token_sent;
                None
            }
            Mode::Compare { .. } | Mode::Overwrite { .. } => Some(Stored::Exists),
        }
    }
}

#[derive(Debug, Default)]
struct Counters {
    total_items: u64,
    crawler_reclaimed: u64,
    expired_unfetched: u64,
    get_expired: u64,
    get_flushed: u64,
    evictions: u64,
    evicted_unfetched: u64,
    /// When an item was evicted last, and how long it had not been accessed (s).
    evicted_last: Option<(u32, u32)>,
    reclaimed: u64,
}

/// A segment is freed by moving its records if the shard's share of dead bytes is at least the
/// first number, and the segment's the second. Otherwise items are evicted.
const DEAD_SHARE_MAX: f64 = 0.05;
const DEAD_SEGMENT_SHARE: f64 = 0.2;

/// The share of dead bytes from which a segment is freed in a store that evicts nothing.
const DEAD_SEGMENT_SHARE_MIN: f64 = 0.02;

/// A block is this part of a segment, between the bounds [bytes]. Values up to one block are stored
/// in the log as a whole, and at most half a block of a segment's end stays empty on average.
const BLOCKS_PER_SEGMENT: usize = 32;
const BLOCK_MIN: usize = 256;
const BLOCK_MAX: usize = 4_096;

// A value of one block at most is a tail.
const _: () = assert!(BLOCK_MAX <= TAIL_BYTES_MAX as usize);
