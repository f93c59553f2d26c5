//! The blocks of one shard: fixed pieces of segments that hold the beginnings of long values. The
//! blocks of a value form a chain and need not be neighbours, so long values leave no gaps. It does
//! not know which record a chain belongs to.

use super::memory::Segment;
use super::record::Chain;

/// The blocks.
#[derive(Debug)]
pub(super) struct Blocks {
    block_bytes: usize,
    per_segment: usize,
    segments: Vec<Option<BlockSegment>>,
    /// The places in `segments` that are empty.
    vacant: Vec<u32>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct BlockSegment {
    bytes: Segment,
    /// For each block the links of its chain.
    links: Box<[Links]>,
    used: usize,
}

/// The neighbours of a block in its chain.
#[derive(Clone, Copy, Debug)]
struct Links {
    /// [`FREE`] for a free block, and [`LAST`] for the last one of a chain.
    next: u32,
    /// The block before this one; for the first one the position of the record.
    previous: u32,
    is_first: bool,
}

impl Links {
    const NONE: Links = Links { next: FREE, previous: 0, is_first: false };
}

impl Blocks {
    pub(super) fn new(block_bytes: usize, segment_bytes: usize) -> Self {
        Self {
            block_bytes,
            per_segment: segment_bytes / block_bytes,
            segments: Vec::new(),
            vacant: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the bytes of the used blocks.
    pub(super) fn used_bytes(&self) -> usize {
        let segments = self.segments.iter().flatten();
        segments.map(|segment| segment.used * self.block_bytes).sum()
    }

    /// Returns the number of segments.
    pub(super) fn segments(&self) -> usize {
        self.segments.len() - self.vacant.len()
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns the number of segments that are missing for a value with so many blocks.
    pub(super) fn segments_missing(&self, blocks: usize) -> usize {
        self.segments_of(blocks.saturating_sub(self.free.len()))
    }

    /// Returns the number of segments that so many blocks fill.
    pub(super) fn segments_of(&self, blocks: usize) -> usize {
        blocks.div_ceil(self.per_segment)
    }

    /// Adds a segment of free blocks.
    pub(super) fn add(&mut self, segment: Segment) {
        let links = vec![Links::NONE; self.per_segment].into();
        let segment = Some(BlockSegment { bytes: segment, links, used: 0 });
        let at = self.vacant.pop().map_or(self.segments.len(), |at| at as usize);
        if at == self.segments.len() {
            self.segments.push(None);
        }
        self.segments[at] = segment;
        let first = self.number(at, 0);
        self.free.extend((first..first + self.per_segment as u32).rev());
    }

    /// Stores the bytes, whose length is a multiple of the block's. The record that begins the chain
    /// is at `record_at`.
    ///
    /// # Panics
    /// If there are not enough free blocks.
    pub(super) fn store(&mut self, value: &[u8], record_at: u32) -> Chain {
        let mut chain = Chain { first: LAST, blocks: 0 };
        let mut previous = record_at;
        for piece in value.chunks_exact(self.block_bytes) {
            let block = self.take();
            self.bytes_mut(block).copy_from_slice(piece);
            let is_first = chain.blocks == 0;
            *self.links_mut(block) = Links { next: LAST, previous, is_first };
            if is_first {
                chain.first = block;
            } else {
                self.links_mut(previous).next = block;
            }
            previous = block;
            chain.blocks += 1;
        }
        chain
    }

    /// Appends the chain's bytes to `out`.
    pub(super) fn read(&self, chain: Chain, out: &mut Vec<u8>) {
        self.pieces(chain).for_each(|piece| out.extend_from_slice(piece));
    }

    /// Returns the chain's bytes, block by block.
    pub(super) fn pieces(&self, chain: Chain) -> impl Iterator<Item = &[u8]> {
        self.chain(chain).map(|block| self.bytes(block))
    }

    /// Tells the chain that its record is at another position now.
    pub(super) fn record_moved(&mut self, chain: Chain, record_at: u32) {
        self.links_mut(chain.first).previous = record_at;
    }

    /// Frees the chain's blocks.
    pub(super) fn release(&mut self, chain: Chain) {
        let mut block = chain.first;
        for _ in 0..chain.blocks {
            let next = self.links_mut(block).next;
            self.give_up(block);
            block = next;
        }
    }

    /// Returns a segment without used blocks and leaves at least `free_min` free blocks, if that is
    /// possible by moving blocks. Calls `moved` with the position of each record whose first block
    /// moved, and its new first block.
    pub(super) fn shrink(
        &mut self,
        free_min: usize,
        mut moved: impl FnMut(u32, u32),
    ) -> Option<Segment> {
        if self.free.len() < self.per_segment + free_min {
            return None;
        }
        let used = |segment: &Option<BlockSegment>| segment.as_ref().map(|segment| segment.used);
        let all = self.segments.iter().enumerate();
        let (emptiest, _) =
            all.filter_map(|(at, segment)| Some((at, used(segment)?))).min_by_key(|(_, n)| *n)?;
        let BlockSegment { bytes, links, .. } = self.segments[emptiest].take()?;
        let first = self.number(emptiest, 0);
        self.free.retain(|block| self.segments[*block as usize / self.per_segment].is_some());
        // Both ends of a link may be in this segment, so all new numbers come first.
        let is_used = |links: &Links| links.next != FREE;
        let new_numbers: Vec<u32> =
            links.iter().map(|links| if is_used(links) { self.take() } else { FREE }).collect();
        let per_segment = self.per_segment as u32;
        let renamed = |block: u32| match block.checked_sub(first) {
            Some(offset) if offset < per_segment => new_numbers[offset as usize],
            _ => block,
        };
        for (offset, links) in links.iter().enumerate().filter(|(_, links)| is_used(links)) {
            let block = new_numbers[offset];
            let from = offset * self.block_bytes..(offset + 1) * self.block_bytes;
            self.bytes_mut(block).copy_from_slice(&bytes[from]);
            let Links { next, previous, is_first } = *links;
            let next = if next == LAST { LAST } else { renamed(next) };
            let previous = if is_first { previous } else { renamed(previous) };
            *self.links_mut(block) = Links { next, previous, is_first };
            if is_first {
                moved(previous, block);
            } else {
                self.links_mut(previous).next = block;
            }
            if next != LAST {
                self.links_mut(next).previous = block;
            }
        }
        self.vacant.push(emptiest as u32);
        Some(bytes)
    }

    fn chain(&self, chain: Chain) -> impl Iterator<Item = u32> {
        let mut block = chain.first;
        (0..chain.blocks).map(move |_| {
            let this = block;
            block = self.links(this).next;
            this
        })
    }

    /// Takes a free block.
    fn take(&mut self) -> u32 {
        let block = self.free.pop().expect("the caller has checked that there are free blocks");
        let (at, offset) = self.place(block);
        let segment = self.segments[at].as_mut().expect("free blocks are in segments");
        segment.links[offset].next = LAST;
        segment.used += 1;
        block
    }

    fn give_up(&mut self, block: u32) {
        let (at, offset) = self.place(block);
        let segment = self.segments[at].as_mut().expect("used blocks are in segments");
        segment.links[offset] = Links::NONE;
        segment.used -= 1;
        self.free.push(block);
    }

    fn number(&self, at: usize, offset: usize) -> u32 {
        (at * self.per_segment + offset) as u32
    }

    fn place(&self, block: u32) -> (usize, usize) {
        (block as usize / self.per_segment, block as usize % self.per_segment)
    }

    fn bytes(&self, block: u32) -> &[u8] {
        let (at, offset) = self.place(block);
        let segment = self.segments[at].as_ref().expect("used blocks are in segments");
        &segment.bytes[offset * self.block_bytes..(offset + 1) * self.block_bytes]
    }

    fn bytes_mut(&mut self, block: u32) -> &mut [u8] {
        let (at, offset) = self.place(block);
        let segment = self.segments[at].as_mut().expect("used blocks are in segments");
        &mut segment.bytes[offset * self.block_bytes..(offset + 1) * self.block_bytes]
    }

    fn links(&self, block: u32) -> &Links {
        let (at, offset) = self.place(block);
        &self.segments[at].as_ref().expect("used blocks are in segments").links[offset]
    }

    fn links_mut(&mut self, block: u32) -> &mut Links {
        let (at, offset) = self.place(block);
        &mut self.segments[at].as_mut().expect("used blocks are in segments").links[offset]
    }
}

const FREE: u32 = u32::MAX;
const LAST: u32 = u32::MAX - 1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use units::Prng;

    use super::*;

    #[test]
    fn chains_survive_moves_to_other_segments() {
        let mut blocks = Blocks::new(64, 1_024);
        let mut draws = Prng::new(5);
        // The chains by the positions of their records, with the byte that fills them.
        let mut chains: BTreeMap<u32, (Chain, u8)> = BTreeMap::new();
        let mut returned = 0;
        for record_at in 0..4_000 {
            let count = 1 + draws.below(40) as usize;
            let fill = draws.below(256) as u8;
            while blocks.segments_missing(count) > 0 {
                blocks.add(Segment::map_anon(1_024).expect("memory for a segment"));
            }
            let chain = blocks.store(&vec![fill; count * 64], record_at);
            chains.insert(record_at, (chain, fill));
            while chains.len() > 30 {
                let nth = draws.below(chains.len() as u64) as usize;
                let gone = *chains.keys().nth(nth).expect("in range");
                let (chain, _) = chains.remove(&gone).expect("it is there");
                blocks.release(chain);
            }
            let keep = draws.below(30) as usize;
            let moved = |at: u32, first| {
                chains.get_mut(&at).expect("its record is known").0.first = first;
            };
            returned += usize::from(blocks.shrink(keep, moved).is_some());
            for (chain, fill) in chains.values() {
                let mut value = Vec::new();
                blocks.read(*chain, &mut value);
                assert_eq!(value, vec![*fill; chain.blocks as usize * 64]);
            }
        }
        let used: u32 = chains.values().map(|(chain, _)| chain.blocks).sum();
        assert_eq!(blocks.used_bytes(), used as usize * 64);
        assert!(returned > 100, "{returned} segments were returned");
    }
}
