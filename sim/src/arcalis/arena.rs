//! The memory as the engine sees it: the buffers of the four interfaces in one address space of pages. The
//! arena records which pages are mapped, what the engine's TLB and cache contain, and how many memory
//! operations are in flight. It counts operations and charges no time for them.

use rpc::{Address, Interface, Memory, Unmapped, Work};

use super::spec::MemoryCosts;

/// The buffers, the pages, the TLB, and the lines that the cache would have to hold.
#[derive(Debug)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    buffers: usize,
    stride: usize,
    page_bytes: usize,
    mapped: Vec<bool>,
    /// The pages in the TLB. The most recently used page is last.
    tlb: Vec<usize>,
    tlb_entries: usize,
    /// Whether the engine has ever touched a line, for each line.
    touched: Vec<bool>,
    lines: usize,
    cache_bytes: f64,
    /// The number of accesses in flight, by engine half.
    pub(super) in_flight: [usize; 2],
    last: [Access; 2],
}

/// The addresses of the last load and the last store of an engine half, and its page walks.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    from: usize,
    to: usize,
    walks: u32,
}

/// The memory accesses of an engine's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Reached {
    pub(super) walks: u32,
    /// The number of eight-byte words.
    pub(super) words: f64,
    /// The expected number of words that are not in the cache.
    pub(super) misses: f64,
}

/// The access of one engine half to the memory.
#[derive(Debug)]
pub(super) struct Port<'a> {
    pub(super) arena: &'a mut Arena,
    pub(super) half: usize,
}

impl Arena {
    pub(super) fn new(costs: &MemoryCosts, cache_bytes: f64) -> Self {
        let stride = costs.buffer_bytes;
        let size = INTERFACES * costs.buffers * stride;
        Self {
            bytes: vec![0; size],
            buffers: costs.buffers,
            stride,
            page_bytes: costs.page_bytes,
            mapped: vec![true; size.div_ceil(costs.page_bytes)],
            tlb: Vec::with_capacity(costs.tlb_entries + 1),
            tlb_entries: costs.tlb_entries,
            touched: vec![false; size.div_ceil(LINE_BYTES)],
            lines: 0,
            cache_bytes,
            in_flight: [0; 2],
            last: [Access::default(); 2],
        }
    }

    /// Returns the address of an interface's buffer.
    pub(super) fn address(&self, interface: Interface, buffer: usize) -> Address {
        let at = (interface as usize - 1) * self.buffers + buffer;
        Address::new(BASE + (at * self.stride) as u64).expect("a stride is a multiple of a line")
    }

    /// Returns the number of the buffer that begins at this address, among the buffers of its interface.
    pub(super) fn buffer(&self, at: Address) -> usize {
        self.place(at).unwrap_or(0) / self.stride % self.buffers
    }

    /// Returns the bytes at this address, for a core.
    pub(super) fn bytes(&self, at: Address, length: usize) -> &[u8] {
        let place = self.place(at).unwrap_or(self.bytes.len());
        self.bytes.get(place..place + length).unwrap_or_default()
    }

    /// Returns the buffer that begins at this address, for a core.
    pub(super) fn bytes_mut(&mut self, at: Address) -> &mut [u8] {
        let place = self.place(at).unwrap_or(0);
        &mut self.bytes[place..place + self.stride]
    }

    /// Unmaps the page of an address. The engine cannot access the page until a core touches it.
    pub(super) fn unmap(&mut self, at: Address) {
        let page = self.place(at).unwrap_or(0) / self.page_bytes;
        self.mapped[page] = false;
        self.tlb.retain(|entry| *entry != page);
    }

    /// Maps the page of an address, as the operating system does when a core touches the page.
    pub(super) fn touch(&mut self, at: Address) {
        let page = self.place(at).unwrap_or(0) / self.page_bytes;
        self.mapped[page] = true;
    }

    /// Returns the memory accesses of an engine half's work.
    pub(super) fn reached(&mut self, half: usize, work: &Work) -> Reached {
        let Access { from, to, walks } = std::mem::take(&mut self.last[half]);
        for (at, bytes) in [(from, work.loaded_bytes), (to, work.stored_bytes)] {
            for line in &mut self.touched[at / LINE_BYTES..(at + bytes).div_ceil(LINE_BYTES)] {
                self.lines += usize::from(!*line);
                *line = true;
            }
        }
        let words = work.loaded_bytes.div_ceil(WORD) + work.stored_bytes.div_ceil(WORD);
        let words = words as f64;
        Reached { walks, words, misses: words * (1.0 - self.hit_share()) }
    }

    /// Returns the share of accesses that hit the cache. Buffers are used in turn, so the cache holds the same share of
    /// the next buffer as of all touched lines.
    fn hit_share(&self) -> f64 {
        (self.cache_bytes / self.working_set_bytes().max(1.0)).min(1.0)
    }

    /// Returns the number of bytes in all lines that the engine has touched.
    pub(super) fn working_set_bytes(&self) -> f64 {
        (self.lines * LINE_BYTES) as f64
    }

    fn place(&self, at: Address) -> Option<usize> {
        let place = usize::try_from(at.get().checked_sub(BASE)?).ok()?;
        (place < self.bytes.len()).then_some(place)
    }

    /// Translates the pages of a range, each with the TLB or with a page walk. Returns none if a page is not mapped.
    fn translate(&mut self, half: usize, at: usize, length: usize) -> Option<()> {
        for page in at / self.page_bytes..=(at + length.max(1) - 1) / self.page_bytes {
            if let Some(found) = self.tlb.iter().position(|entry| *entry == page) {
                self.tlb.remove(found);
            } else {
                self.last[half].walks += 1;
                if !self.mapped[page] {
                    return None;
                }
                if self.tlb.len() >= self.tlb_entries {
                    self.tlb.remove(0);
                }
            }
            self.tlb.push(page);
        }
        Some(())
    }
}

impl Memory for Port<'_> {
    fn pair(
        &mut self,
        from: Address,
        length: usize,
        to: Address,
    ) -> Result<(&[u8], &mut [u8]), Unmapped> {
        let (half, arena) = (self.half, &mut *self.arena);
        let stride = arena.stride;
        let source = arena.place(from).filter(|at| length <= stride - at % stride);
        let source = source.ok_or(Unmapped::From)?;
        let target = arena.place(to).filter(|at| at / stride != source / stride);
        let target = target.ok_or(Unmapped::To)?;
        let page_bytes_left = stride - target % stride;
        arena.translate(half, source, length).ok_or(Unmapped::From)?;
        arena.translate(half, target, page_bytes_left).ok_or(Unmapped::To)?;
        arena.in_flight[half] = 1;
        let access = &mut arena.last[half];
        (access.from, access.to) = (source, target);
        if source < target {
            let (low, high) = arena.bytes.split_at_mut(target);
            Ok((&low[source..source + length], &mut high[..page_bytes_left]))
        } else {
            let (low, high) = arena.bytes.split_at_mut(source);
            Ok((&high[..length], &mut low[target..target + page_bytes_left]))
        }
    }

    fn in_flight(&self) -> usize {
        self.arena.in_flight[self.half]
    }
}

const INTERFACES: usize = 4;
/// The address of the first buffer. It can be any multiple of the largest page size.
const BASE: u64 = 1 << 32;
const LINE_BYTES: usize = 64;
const WORD: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Picos;

    fn arena(page_bytes: usize, tlb_entries: usize) -> Arena {
        let costs = MemoryCosts {
            buffers: 4,
            buffer_bytes: 4_096,
            page_bytes,
            miss_ns: 0.0,
            misses_in_flight: 1.0,
            tlb_entries,
            walk_ns: 0.0,
            fault_share: 0.0,
            fault: Picos(0),
        };
        Arena::new(&costs, 64.0)
    }

    #[test]
    fn pages_are_walked_once_while_the_tlb_holds_them() {
        let mut arena = arena(4_096, 2);
        let (from, to) =
            (arena.address(Interface::NetRecv, 0), arena.address(Interface::AppRecv, 1));
        let work = Work { loaded_bytes: 64, stored_bytes: 128, function: None };
        let go = |arena: &mut Arena, from, to| {
            let found = Port { arena, half: 0 }.pair(from, 64, to).map(|_| ());
            (found, arena.reached(0, &work))
        };
        let (found, first) = go(&mut arena, from, to);
        assert_eq!((found, first.walks, first.words), (Ok(()), 2, 24.0));
        assert!((first.misses - 24.0 * (1.0 - 64.0 / 192.0)).abs() < 1e-9, "{first:?}");
        assert_eq!(go(&mut arena, from, to).1.walks, 0);
        arena.unmap(to);
        assert_eq!(go(&mut arena, from, to).0, Err(Unmapped::To));
        arena.touch(to);
        assert_eq!(go(&mut arena, from, to).1.walks, 1);
        let other = arena.address(Interface::NetRecv, 3);
        assert_eq!(go(&mut arena, other, to).1.walks, 1);
        assert_eq!(go(&mut arena, from, to).1.walks, 1, "the other page took its place");
    }

    #[test]
    fn what_is_no_buffer_is_not_mapped() {
        let mut arena = arena(2 << 20, 2);
        let (from, to) =
            (arena.address(Interface::NetResp, 3), arena.address(Interface::AppRecv, 0));
        let nowhere = Address::new(16).expect("aligned");
        let mut pair = |from, length, to| {
            Port { arena: &mut arena, half: 1 }
                .pair(from, length, to)
                .map(|(a, b)| (a.len(), b.len()))
        };
        assert_eq!(pair(from, 4_096, to), Ok((4_096, 4_096)));
        assert_eq!(pair(from, 4_097, to), Err(Unmapped::From));
        assert_eq!(pair(nowhere, 1, to), Err(Unmapped::From));
        assert_eq!(pair(from, 1, nowhere), Err(Unmapped::To));
        assert_eq!(pair(from, 1, from), Err(Unmapped::To));
    }
}
