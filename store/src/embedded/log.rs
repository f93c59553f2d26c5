//! The records of one shard: segments that are filled one after the other, in two queues. It knows
//! where records begin and end, and not which of them the index still has.

use std::collections::VecDeque;

use super::item::Item;
use super::memory::Segment;
use super::record::Record;

/// The order in which a shard examines records for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// Records that have not been examined yet.
    New,
    /// Records that were accessed again while they were in [`Queue::New`].
    Kept,
}

/// The segments of both queues.
#[derive(Debug)]
pub(super) struct Log {
    /// The log of the length of a segment (bytes).
    segment_log2: u32,
    segments: Vec<Option<LogSegment>>,
    /// The places in `segments` that are empty.
    vacant: Vec<u32>,
    new: VecDeque<u32>,
    kept: VecDeque<u32>,
    live_bytes: usize,
}

#[derive(Debug)]
struct LogSegment {
    bytes: Segment,
    queue: Queue,
    /// The bytes that records fill.
    filled: usize,
    /// The bytes of records that the index no longer has.
    dead: usize,
    /// The position from which records have not been examined for eviction.
    examined: usize,
    bounds: Bounds,
}

/// Bounds on the times and versions of a segment's items. They can show that none of the items has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// No item expires before this time.
    exptime_s: u32,
    /// No item has an earlier version.
    cas: u64,
}

impl Bounds {
    /// The bounds of no items.
    pub(super) const NONE: Self = Self { exptime_s: u32::MAX, cas: u64::MAX };

    /// Widens the bounds so that they hold for this item, too.
    pub(super) fn include(&mut self, item: &Item) {
        self.cas = self.cas.min(item.cas);
        if item.exptime_s != 0 {
            self.exptime_s = self.exptime_s.min(item.exptime_s);
        }
    }
}

impl Log {
    pub(super) fn new(segment_bytes: usize) -> Self {
        Self {
            segment_log2: segment_bytes.trailing_zeros(),
            segments: Vec::new(),
            vacant: Vec::new(),
            new: VecDeque::new(),
            kept: VecDeque::new(),
            live_bytes: 0,
        }
    }

    /// Returns whether a record of this length fits into the queue's last segment.
    pub(super) fn has_room(&self, queue: Queue, bytes: usize) -> bool {
        self.queue(queue)
            .back()
            .is_some_and(|last| self.segment(*last).filled + bytes <= 1 << self.segment_log2)
    }

    /// Appends a segment to the queue.
    pub(super) fn add(&mut self, queue: Queue, bytes: Segment) {
        let segment = Some(LogSegment {
            bytes,
            queue,
            filled: 0,
            dead: 0,
            examined: 0,
            bounds: Bounds::NONE,
        });
        let at = self.vacant.pop().unwrap_or(self.segments.len() as u32);
        if at as usize == self.segments.len() {
            self.segments.push(None);
        }
        self.segments[at as usize] = segment;
        self.queue_mut(queue).push_back(at);
    }

    /// Takes the bytes behind the queue's last record for a new record. Returns its position and its
    /// bytes.
    ///
    /// # Panics
    /// If there is no room for it.
    pub(super) fn append(&mut self, queue: Queue, bytes: usize) -> (u32, &mut [u8]) {
        let last = self.newest(queue).expect("the caller has checked that there is room");
        let start = self.segment(last).filled;
        let at = self.position(last, start);
        self.live_bytes += bytes;
        let segment = self.segment_mut(last);
        segment.filled += bytes;
        (at, &mut segment.bytes[start..start + bytes])
    }

    /// Returns the bytes from the start of the record at this position to the end of its segment.
    pub(super) fn bytes(&self, at: u32) -> &[u8] {
        let (segment, offset) = self.place(at);
        &self.segment(segment).bytes[offset..]
    }

    pub(super) fn bytes_mut(&mut self, at: u32) -> &mut [u8] {
        let (segment, offset) = self.place(at);
        &mut self.segment_mut(segment).bytes[offset..]
    }

    /// Counts a record as dead, which the index no longer has.
    pub(super) fn count_dead(&mut self, at: u32, bytes: usize) {
        let (segment, _) = self.place(at);
        self.segment_mut(segment).dead += bytes;
        self.live_bytes -= bytes;
    }

    /// Returns one more than the largest number of a segment.
    pub(super) fn numbers_end(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Returns whether an item of the segment may have expired by `now_s` or have a version before
    /// `flushed_cas`.
    pub(super) fn may_have_ended(&self, id: u32, now_s: u32, flushed_cas: u64) -> bool {
        self.segments[id as usize].as_ref().is_some_and(|LogSegment { bounds, .. }| {
            bounds.exptime_s <= now_s || bounds.cas < flushed_cas
        })
    }

    /// Counts the item of the record at this position among the items of its segment.
    pub(super) fn include(&mut self, at: u32, item: &Item) {
        let (segment, _) = self.place(at);
        self.segment_mut(segment).bounds.include(item);
    }

    /// Sets the bounds of a segment whose records were all checked.
    pub(super) fn set_bounds(&mut self, id: u32, bounds: Bounds) {
        self.segment_mut(id).bounds = bounds;
    }

    /// Returns the positions of a segment's records that were not examined for eviction, and the bytes
    /// from each record on.
    pub(super) fn records(&self, id: u32) -> impl Iterator<Item = (u32, &[u8])> {
        let LogSegment { bytes, filled, examined, .. } = self.segment(id);
        let (filled, mut next) = (*filled, *examined);
        std::iter::from_fn(move || {
            let start = next;
            let rest = bytes.get(start..filled).filter(|rest| !rest.is_empty())?;
            next += Record::outline(rest).0;
            Some((self.position(id, start), rest))
        })
    }

    /// Returns the queue of the record at this position.
    pub(super) fn queue_of(&self, at: u32) -> Queue {
        self.segment(self.place(at).0).queue
    }

    /// Returns the queue's newest segment.
    pub(super) fn newest(&self, queue: Queue) -> Option<u32> {
        self.queue(queue).back().copied()
    }

    /// Returns the queue's oldest segment.
    pub(super) fn oldest(&self, queue: Queue) -> Option<u32> {
        self.queue(queue).front().copied()
    }

    /// Returns the segment with the most dead bytes, if they are at least this share of it. A segment
    /// whose records are being examined is no candidate.
    pub(super) fn most_dead(&self, share: f64) -> Option<(Queue, u32)> {
        let dead_min = (share * f64::from(1 << self.segment_log2)) as usize;
        let both = [(Queue::New, &self.new), (Queue::Kept, &self.kept)];
        let all = both.into_iter().flat_map(|(queue, ids)| ids.iter().map(move |id| (queue, *id)));
        let all = all.filter(|(_, id)| self.segment(*id).examined == 0);
        let (queue, id) = all.max_by_key(|(_, id)| self.segment(*id).dead)?;
        (self.segment(id).dead >= dead_min).then_some((queue, id))
    }

    /// Returns the position and the length of the segment's next record that was not examined yet,
    /// and counts it as examined.
    pub(super) fn next_record(&mut self, id: u32) -> Option<(u32, usize)> {
        let LogSegment { bytes, filled, examined, .. } = self.segment(id);
        if examined >= filled {
            return None;
        }
        let at = self.position(id, *examined);
        let (length, _) = Record::outline(&bytes[*examined..]);
        self.segment_mut(id).examined += length;
        Some((at, length))
    }

    /// Removes a segment whose records have all been examined.
    pub(super) fn remove(&mut self, queue: Queue, id: u32) -> Segment {
        let ids = self.queue_mut(queue);
        let nth = ids.iter().position(|other| *other == id).expect("the segment is in the queue");
        ids.remove(nth);
        self.vacant.push(id);
        self.segments[id as usize].take().expect("the queue has segments that exist").bytes
    }

    /// Returns the number of segments.
    pub(super) fn segments(&self) -> usize {
        self.new.len() + self.kept.len()
    }

    /// Returns the bytes of the records that the index has.
    pub(super) fn live_bytes(&self) -> usize {
        self.live_bytes
    }

    /// Returns the part of all bytes that no record of the index uses.
    pub(super) fn dead_share(&self) -> f64 {
        let all = (self.segments() << self.segment_log2) as f64;
        if all > 0.0 { 1.0 - self.live_bytes as f64 / all } else { 0.0 }
    }

    /// Returns the segments of a queue, from the oldest to the newest.
    pub(super) fn queue(&self, queue: Queue) -> &VecDeque<u32> {
        match queue {
            Queue::New => &self.new,
            Queue::Kept => &self.kept,
        }
    }

    fn queue_mut(&mut self, queue: Queue) -> &mut VecDeque<u32> {
        match queue {
            Queue::New => &mut self.new,
            Queue::Kept => &mut self.kept,
        }
    }

    fn position(&self, id: u32, offset: usize) -> u32 {
        id << self.segment_log2 | offset as u32
    }

    fn place(&self, at: u32) -> (u32, usize) {
        (at >> self.segment_log2, at as usize & ((1 << self.segment_log2) - 1))
    }

    fn segment(&self, id: u32) -> &LogSegment {
        self.segments[id as usize].as_ref().expect("positions are in segments that exist")
    }

    fn segment_mut(&mut self, id: u32) -> &mut LogSegment {
        self.segments[id as usize].as_mut().expect("positions are in segments that exist")
    }
}
