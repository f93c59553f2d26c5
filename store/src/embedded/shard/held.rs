//! The items of a shard for a snapshot, and their way back into a shard.

use std::borrow::Cow;

use super::{Entry, Item, Key, Lacking, Queue, Record, Shard, Supply, Turn, item_of};
use crate::frame::brief::{self, Form};

/// An item with what eviction knows of it.
pub(in crate::embedded) struct HeldItem<'a> {
    pub(in crate::embedded) item: Item,
    pub(in crate::embedded) key: &'a [u8],
    pub(in crate::embedded) queue: Queue,
    /// The accesses since the record was last examined for eviction.
    pub(in crate::embedded) uses: u8,
    shard: &'a Shard,
    record: Record,
    bytes: &'a [u8],
}

impl<'a> HeldItem<'a> {
    /// Returns the length of the value (bytes).
    pub(in crate::embedded) fn value_bytes(&self) -> usize {
        self.shard.value_bytes_of(&self.record)
    }

    /// Returns the value in pieces.
    pub(in crate::embedded) fn pieces(&self) -> impl Iterator<Item = Cow<'a, [u8]>> {
        let blocks = self.record.chain.into_iter();
        let shard = self.shard;
        let in_blocks = blocks.flat_map(|chain| shard.blocks.pieces(chain));
        let tail = self.record.tail(self.bytes);
        let last = match self.record.form() {
            Form::Whole => Cow::Borrowed(tail),
            form => {
                let mut value = Vec::with_capacity(self.value_bytes());
                brief::expand(form, tail, &mut value);
                Cow::Owned(value)
            }
        };
        in_blocks.map(Cow::Borrowed).chain(std::iter::once(last))
    }
}

impl Shard {
    /// Returns the segments of a queue, from the oldest to the newest.
    pub(in crate::embedded) fn segments_of(&self, queue: Queue) -> impl Iterator<Item = u32> {
        self.log.queue(queue).iter().copied()
    }

    /// Shows the living items of a segment in the order of their records.
    pub(in crate::embedded) fn living_items<E>(
        &self,
        segment: u32,
        turn: &Turn<'_>,
        mut show: impl FnMut(HeldItem<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for (at, bytes) in self.log.records(segment) {
            let Some(found) = self.found_of_record(at) else { continue };
            if found.item.end(turn.now_s, &turn.flushed).is_some() {
                continue;
            }
            show(HeldItem {
                item: item_of(found.entry, &found.record),
                key: found.record.key(bytes),
                queue: self.log.queue_of(at),
                uses: found.entry.uses,
                shard: self,
                record: found.record,
                bytes,
            })?;
        }
        Ok(())
    }

    /// Stores an item as it was in another shard, with its queue and its uses.
    pub(in crate::embedded) fn restore(
        &mut self,
        key: Key<'_>,
        item: Item,
        value: &[u8],
        (queue, uses): (Queue, u8),
        supply: &mut Supply<'_>,
    ) -> Result<(), Lacking> {
        let room = self.room(key, &item, value, queue, supply)?;
        let old = self.look(key);
        self.put(key, item, value, room, old, supply);
        if let Some(found) = self.look(key).filter(|found| found.entry.uses != uses) {
            self.index.set(found.slot, Entry { uses, ..found.entry });
        }
        Ok(())
    }
}
