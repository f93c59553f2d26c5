//! The choice of the items that make way. It knows the uses of each item and its size, and takes what it frees out of
//! the shard, the log and the index.

use super::{End, Found, Memory, Queue, Shard, Turn, USES_MAX};

impl Shard {
    /// Examines the oldest records of a queue, and evicts those that were not accessed often enough again.
    pub(super) fn evict(&mut self, turn: &Turn<'_>, memory: &Memory) -> bool {
        let [new_bytes, kept_bytes] = self.held_bytes;
        let new_is_full = new_bytes as f64 > (new_bytes + kept_bytes) as f64 * NEW_SHARE;
        let queue = if new_is_full { Queue::New } else { Queue::Kept };
        let other = if new_is_full { Queue::Kept } else { Queue::New };
        let oldest = |queue| self.log.oldest(queue).map(|id| (queue, id));
        let Some((queue, id)) = oldest(queue).or_else(|| oldest(other)) else { return false };
        for _ in 0..EXAMINED_MAX {
            let Some((at, bytes)) = self.log.next_record(id) else {
                memory.put(self.log.remove(queue, id));
                return true;
            };
            let Some(found) = self.found_of_record(at) else { continue };
            let uses = found.entry.uses;
            let end = found.item.end(turn.now_s, &turn.flushed);
            let wanted = self.uses_wanted(&found);
            if uses >= wanted && end.is_none() && self.kept_in_a_row < KEPT_IN_A_ROW_MAX {
                self.kept_in_a_row += 1;
                let uses = if queue == Queue::New { 0 } else { uses - wanted };
                self.move_record(&found, bytes, Queue::Kept, uses, id, memory);
                continue;
            }
            self.kept_in_a_row = 0;
            let unfetched = u64::from(!found.item.fetched);
            match end {
                Some(End::Expired) => {
                    self.counters.reclaimed += 1;
                    self.counters.expired_unfetched += unfetched;
                }
                Some(End::Flushed) => self.counters.reclaimed += 1,
                None => {
                    self.counters.evictions += 1;
                    self.counters.evicted_unfetched += unfetched;
                    self.counters.evicted_last = Some((turn.now_s, found.item.idle_s(turn.now_s)));
                    if let Some(observer) = turn.observer.get() {
                        self.show_evicted(&found, turn.now_s, &**observer);
                    }
                }
            }
            self.remove(&found);
            if found.record.chain.is_some() {
                // A long value may be all that was wanted.
                return true;
            }
        }
        true
    }

    /// Returns the uses since the last examination that keep an item. One that takes as much as several items of the
    /// mean size displaces these, so it must have been used as often as they together.
    fn uses_wanted(&self, found: &Found) -> u8 {
        let [new_bytes, kept_bytes] = self.held_bytes;
        let items = self.bytes_of(found) as f64 * self.index.len() as f64;
        let means = items / (new_bytes + kept_bytes) as f64;
        means.round().clamp(1.0, f64::from(USES_MAX)) as u8
    }
}

/// The share of a shard's bytes for items that were not accessed again. They wait there in order of
/// arrival, so an item stays at least until as many bytes have arrived after it. Compared with this
/// share, 0.1 gains half a percentage point of hits if the popularity of keys is constant and loses
/// four points if it drifts (Zipf, 200,000 keys).
const NEW_SHARE: f64 = 0.25;

/// The most records that one call examines, so that others wait for at most some microseconds.
const EXAMINED_MAX: usize = 64;

/// The most records in a row that are kept because they were used. The next record is evicted even if it was used.
const KEPT_IN_A_ROW_MAX: u32 = 4_096;
