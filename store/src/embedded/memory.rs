//! The memory that all shards of a store share: segments of one size within the budget. A shard
//! takes a segment and returns it; which shard must return one is decided above.

use std::alloc::{Layout, handle_alloc_error};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;
use parking_lot::Mutex;

/// One piece of memory. All segments of a store have the same length.
///
/// It is mapped from the system and not taken from the heap. The heap has a part for each thread, and what a store
/// leaves between its items in one part is lost to the others: a full store of 32 MiB with four threads took up to
/// 7 MiB more. Neighbours among the mappings become one to the system.
pub(super) type Segment = MmapMut;

/// The segments that no shard holds, and the bytes that are left of the budget.
#[derive(Debug)]
pub(super) struct Memory {
    segment_bytes: usize,
    limit_bytes: u64,
    /// The bytes of all segments that exist and of all indexes.
    used_bytes: AtomicU64,
    free: Mutex<Vec<Segment>>,
}

impl Memory {
    pub(super) fn new(limit_bytes: u64, segment_bytes: usize) -> Self {
        Self {
            segment_bytes,
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            free: Mutex::new(Vec::new()),
        }
    }

    /// Returns a segment, or none if the budget is spent or the system has no memory.
    pub(super) fn take(&self) -> Option<Segment> {
        if let Some(segment) = self.free.lock().pop() {
            return Some(segment);
        }
        let segment_bytes = self.segment_bytes as u64;
        let before = self.used_bytes.fetch_add(segment_bytes, Ordering::Relaxed);
        if before + segment_bytes > self.limit_bytes {
            self.used_bytes.fetch_sub(segment_bytes, Ordering::Relaxed);
            return None;
        }
        let mapped = MmapMut::map_anon(self.segment_bytes).ok();
        if mapped.is_none() {
            self.used_bytes.fetch_sub(segment_bytes, Ordering::Relaxed);
        }
        mapped
    }

    /// Returns a segment even if the budget is spent: for a caller that is about to return another one,
    /// or needs a few bytes. What exceeds the budget is given back first.
    /// If the system has no memory, the process ends, as for a caller of the heap.
    pub(super) fn borrow(&self) -> Segment {
        self.take().unwrap_or_else(|| {
            self.used_bytes.fetch_add(self.segment_bytes as u64, Ordering::Relaxed);
            MmapMut::map_anon(self.segment_bytes).unwrap_or_else(|_| {
                let bytes = Layout::array::<u8>(self.segment_bytes);
                handle_alloc_error(bytes.unwrap_or(Layout::new::<u8>()))
            })
        })
    }

    /// Takes a segment back.
    pub(super) fn put(&self, segment: Segment) {
        if self.used_bytes.load(Ordering::Relaxed) > self.limit_bytes {
            self.used_bytes.fetch_sub(self.segment_bytes as u64, Ordering::Relaxed);
        } else {
            self.free.lock().push(segment);
        }
    }

    /// Returns whether all that is used fits the budget. Gives up free segments if that helps.
    pub(super) fn fits(&self) -> bool {
        let mut free = self.free.lock();
        while self.used_bytes.load(Ordering::Relaxed) > self.limit_bytes {
            if free.pop().is_none() {
                return false;
            }
            self.used_bytes.fetch_sub(self.segment_bytes as u64, Ordering::Relaxed);
        }
        true
    }

    /// Counts memory outside segments, which an index has gained or a caller has borrowed.
    pub(super) fn grew(&self, bytes: usize) {
        self.used_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts memory outside segments, which is free again.
    pub(super) fn shrank(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}
