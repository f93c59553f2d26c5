//! Computes the memory that one item takes in memcached, by its slab classes, and in Rebate's embedded store. It is
//! arithmetic on sizes alone.

use store::embedded;

/// The sizes of memcached's slab classes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slabs {
    /// The chunk sizes in ascending order (bytes). The last is the largest chunk.
    chunks: Vec<u64>,
}

/// memcached's settings that give the sizes of its slab classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SlabSettings {
    /// `-f`: the ratio of two neighbouring sizes.
    pub(super) growth_factor: f64,
    /// `-n`: the space for key and value in the smallest chunk (bytes).
    pub(super) chunk_bytes_min: u64,
    /// The largest chunk (bytes). Longer items take several chunks.
    pub(super) chunk_bytes_max: u64,
}

impl Default for SlabSettings {
    /// Returns memcached's defaults.
    fn default() -> Self {
        Self { growth_factor: 1.25, chunk_bytes_min: 48, chunk_bytes_max: PAGE_BYTES / 2 }
    }
}

impl Slabs {
    /// Computes the classes as memcached does at its start. `known` are chunk sizes that a server reports. Each
    /// replaces the computed size that is nearest to it.
    pub(super) fn new(settings: SlabSettings, known: &[u64]) -> Self {
        let SlabSettings { growth_factor, chunk_bytes_min, chunk_bytes_max } = settings;
        let growth_factor = if growth_factor > 1.0 { growth_factor } else { 1.25 };
        let largest = chunk_bytes_max.clamp(ALIGNMENT_BYTES, PAGE_BYTES);
        let mut chunks = Vec::new();
        let mut size = HEADER_BYTES.saturating_add(chunk_bytes_min) as f64;
        while chunks.len() < CLASSES_MAX && size < largest as f64 / growth_factor {
            let aligned = (size as u64).next_multiple_of(ALIGNMENT_BYTES);
            chunks.push(aligned);
            size = aligned as f64 * growth_factor;
        }
        chunks.push(largest);
        for size in known.iter().filter(|size| (1..=PAGE_BYTES).contains(*size)) {
            if let Some(nearest) = chunks.iter_mut().min_by_key(|chunk| chunk.abs_diff(*size)) {
                *nearest = *size;
            }
        }
        chunks.sort_unstable();
        Self { chunks }
    }

    /// Returns the memory of an item of `item_bytes` (bytes), with its share of the unused end of a page.
    pub(super) fn item_bytes(&self, item_bytes: u64) -> f64 {
        let largest = self.chunks.last().copied().unwrap_or(PAGE_BYTES);
        let whole = item_bytes / largest;
        let rest = item_bytes - whole * largest;
        let rest = if rest == 0 { 0.0 } else { page_share(self.chunk(rest)) };
        whole as f64 * page_share(largest) + rest
    }

    /// Returns the smallest chunk that holds `bytes`.
    fn chunk(&self, bytes: u64) -> u64 {
        let at = self.chunks.partition_point(|chunk| *chunk < bytes);
        self.chunks.get(at).copied().unwrap_or(bytes)
    }
}

/// Returns the share of a page that one chunk takes (bytes).
fn page_share(chunk: u64) -> f64 {
    PAGE_BYTES as f64 / (PAGE_BYTES / chunk.clamp(1, PAGE_BYTES)) as f64
}

/// Returns the bytes that memcached adds to key and value.
pub(super) const fn overhead_bytes(has_cas: bool) -> u64 {
    HEADER_BYTES + if has_cas { 8 } else { 0 } + TERMINATOR_BYTES
}

/// Returns the size that memcached counts for an item: header, key, value and client flags.
pub(super) fn item_bytes(key_bytes: usize, value_bytes: usize, has_flags: bool) -> u64 {
    overhead_bytes(true) + (key_bytes + value_bytes) as u64 + 4 * u64::from(has_flags)
}

/// The parts of an item that decide its memory in Rebate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) key_bytes: usize,
    /// The length of the stored value with its frame (bytes).
    pub(super) stored_bytes: usize,
    /// The part of them that the embedded store does not keep, if the frame has a dictionary (bytes).
    pub(super) omitted_bytes: usize,
    pub(super) expires: bool,
    pub(super) has_flags: bool,
}

impl Stored {
    /// Returns the memory of the item in Rebate's embedded store (bytes), with its share of the index.
    pub(super) fn rebate_bytes(&self) -> f64 {
        let marks = 4 * (usize::from(self.expires) + usize::from(self.has_flags));
        let blocks = self.stored_bytes / BLOCK_BYTES;
        let links = if blocks == 0 { 0 } else { CHAIN_BYTES + LINK_BYTES * blocks };
        // Values that begin in blocks are kept whole.
        let omitted_bytes = if blocks == 0 { self.omitted_bytes } else { 0 };
        let value_bytes = self.stored_bytes - omitted_bytes;
        (self.key_bytes + value_bytes + embedded::ITEM_OVERHEAD_BYTES + marks + links) as f64
    }
}

/// memcached's item header without the CAS (bytes).
const HEADER_BYTES: u64 = 48;

/// The terminator of the key, and the CR LF behind the value (bytes).
const TERMINATOR_BYTES: u64 = 1 + 2;

/// memcached's slab page (bytes).
const PAGE_BYTES: u64 = 1 << 20;

const ALIGNMENT_BYTES: u64 = 8;

/// The most slab classes that memcached has.
const CLASSES_MAX: usize = 62;

/// The block of a store of 128 MiB or more (bytes). Longer values begin in blocks.
const BLOCK_BYTES: usize = 4_096;

/// The link of a block to its neighbours (bytes).
const LINK_BYTES: usize = 12;

/// The place of the first block, in the record of a long value (bytes).
const CHAIN_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_classes_are_those_of_memcached() {
        let slabs = Slabs::new(SlabSettings::default(), &[]);
        let begin = [96, 120, 152, 192, 240, 304, 384, 480, 600, 752, 944, 1184, 1480, 1856, 2320];
        assert_eq!(slabs.chunks[..begin.len()], begin);
        assert_eq!(slabs.chunks.len(), 39);
        assert_eq!(slabs.chunks.last(), Some(&524_288));
    }

    #[test]
    fn an_item_takes_the_next_chunk() {
        let slabs = Slabs::new(SlabSettings::default(), &[]);
        // 32 MiB of memcached 1.6.18 hold 139,808 such items.
        let json = item_bytes(11, 163, false);
        assert_eq!(json, 233);
        assert_eq!(((32 << 20) as f64 / slabs.item_bytes(json)).round(), 139_808.0);
        assert_eq!(slabs.item_bytes(96), page_share(96));
        assert_eq!(slabs.item_bytes(97), page_share(120));
    }

    #[test]
    fn a_large_item_takes_several_chunks() {
        let slabs = Slabs::new(SlabSettings::default(), &[]);
        assert_eq!(slabs.item_bytes(524_288), 524_288.0);
        let two = slabs.item_bytes(524_288 + 1_000);
        assert_eq!(two, 524_288.0 + page_share(1_184));
    }

    #[test]
    fn reported_sizes_win_over_computed_ones() {
        let slabs = Slabs::new(SlabSettings::default(), &[128]);
        assert_eq!(slabs.item_bytes(125), page_share(128));
        let odd = SlabSettings { growth_factor: 0.0, chunk_bytes_min: 0, chunk_bytes_max: 0 };
        assert!(Slabs::new(odd, &[0, u64::MAX]).item_bytes(1 << 30) > 0.0);
    }

    #[test]
    fn rebate_adds_its_overhead_once() {
        let short = Stored {
            key_bytes: 11,
            stored_bytes: 163,
            omitted_bytes: 0,
            expires: false,
            has_flags: false,
        };
        assert_eq!(short.rebate_bytes(), 196.0);
        let brief = Stored { omitted_bytes: 5, ..short };
        assert_eq!(brief.rebate_bytes(), 191.0);
        let marked = Stored { expires: true, has_flags: true, ..short };
        assert_eq!(marked.rebate_bytes(), 204.0);
        let long = Stored { stored_bytes: 3 * 4_096 + 1, ..short };
        assert_eq!(long.rebate_bytes(), (11 + 3 * 4_096 + 1 + 22 + 8 + 36) as f64);
    }
}
