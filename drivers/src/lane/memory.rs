//! The memory of a lane. Each side has a half with its words and its ring, and a region with its blocks. Only the side
//! that made a memory writes it: the memory is sealed so that the other side can map it for reading only, and cannot
//! make it shorter under a reader. So nothing that this side wrote can change under it, and everything of the other
//! side's may change at any time. Therefore words are read once and values are copied out once, and the caller checks
//! both. The layout is in [`super`]. This file does not know the meaning of the words.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence, fence};

use device::{Memory, MemoryBlock, MemoryId};
use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};

/// Words of one ring entry.
pub(super) const ENTRY_WORDS: usize = 8;

/// The number of entries of each ring, which is the number of jobs that one lane holds.
pub(super) const ENTRIES: u64 = 256;

/// The single words of a half, by their offset (bytes). Each is on a cache line of its own, since they change at
/// different times.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Word {
    /// The number of entries that the half's owner has put into its ring since the beginning.
    Tail = 0,
    /// The number of entries of the other ring that the owner is done with.
    Head = 64,
    /// Zero while the owner is awake, and otherwise the number of its sleep, which is never the same twice.
    Asleep = 128,
    /// The processor that the owner ran on last, plus one.
    Cpu = 192,
}

const RING_AT: usize = 4_096;
const HALF_BYTES: usize = RING_AT + ENTRIES as usize * ENTRY_WORDS * 8;

/// The longest region that is mapped. It is more than any lane needs, and bounds what a peer can make this process
/// touch.
pub(super) const BLOCKS_BYTES_MAX: usize = 256 << 20;

/// The memory that one side hands over to the other.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) half: OwnedFd,
    pub(super) region: OwnedFd,
}

/// Memory that only this process can write, and only through this mapping; all zeros.
struct Sealed {
    map: MmapRaw,
    file: OwnedFd,
}

impl Sealed {
    fn new(bytes: usize) -> io::Result<Self> {
        let file = memfd_create("rebate-lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        // From here on only the mapping above can write.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        Ok(Self { map, file })
    }
}

/// The half that this process writes.
pub(super) struct LocalHalf(Sealed);

impl LocalHalf {
    pub(super) fn new() -> io::Result<Self> {
        Sealed::new(HALF_BYTES).map(Self)
    }

    /// The memory, to hand over.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }

    pub(super) fn word(&self, word: Word) -> &AtomicU64 {
        self.at(word as usize)
    }

    /// Writes one entry of the ring. The caller that publishes it orders it before the tail.
    pub(super) fn put(&self, index: u64, words: [u64; ENTRY_WORDS]) {
        let at = entry_at(index);
        for (number, word) in words.into_iter().enumerate() {
            self.at(at + number * 8).store(word, Ordering::Relaxed);
        }
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= HALF_BYTES, "no word at {offset}");
        // SAFETY: within the mapping (which is `HALF_BYTES`, see `new`) and aligned, since a mapping begins at a page.
        // It is mapped for reading and writing as long as `self` lives, and this process reaches these bytes through
        // atomics only; the peer cannot write them.
        unsafe { AtomicU64::from_ptr(self.0.map.as_mut_ptr().add(offset).cast()) }
    }
}

/// The blocks that this process writes.
pub(super) struct Region {
    sealed: Sealed,
    id: MemoryId,
    free: Mutex<Free>,
}

impl Region {
    /// Makes a region with room for values of `bytes` in all.
    pub(super) fn new(bytes: usize) -> io::Result<Arc<Self>> {
        let bytes = bytes.clamp(UNIT_BYTES, BLOCKS_BYTES_MAX) / UNIT_BYTES * UNIT_BYTES;
        let free = Mutex::new(Free { rooms: BTreeMap::from([(0, bytes)]), bytes });
        let sealed = Sealed::new(bytes)?;
        Ok(Arc::new(Self { sealed, id: MemoryId::unique(), free }))
    }

    /// The memory, to hand over.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.sealed.file.as_fd()
    }

    pub(super) fn id(&self) -> MemoryId {
        self.id
    }

    /// Returns the room for values (bytes).
    pub(super) fn bytes(&self) -> usize {
        self.sealed.map.len()
    }

    /// Returns a block of at least `bytes` that nobody else has. Returns none if there is no room.
    pub(super) fn block(self: &Arc<Self>, bytes: usize) -> Option<LocalBlock> {
        self.block_within(bytes, self.bytes())
    }

    /// Does the same as `block` within the first `end` bytes of the region.
    fn block_within(self: &Arc<Self>, bytes: usize, end: usize) -> Option<LocalBlock> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT_BYTES)?;
        let offset = self.free.lock().take(bytes, end)?;
        Some(LocalBlock { region: Arc::clone(self), offset, bytes })
    }

    /// Returns the offset of these bytes among the blocks, if they are there.
    pub(super) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let start = self.sealed.map.as_ptr().addr();
        let offset = bytes.as_ptr().addr().checked_sub(start)?;
        let end = offset.checked_add(bytes.len())?;
        (end <= self.bytes()).then_some(offset as u64)
    }

    /// Returns the bytes of blocks that are in use.
    pub(super) fn used_bytes(&self) -> usize {
        self.bytes() - self.free.lock().bytes
    }
}

/// A pool's view of a region.
pub(super) struct Blocks {
    region: Arc<Region>,
    /// The end of the pool's part of the region.
    end: usize,
    /// The room that each block has beside what was asked for.
    beside: usize,
}

impl Blocks {
    /// Makes a view of all of the region. Each block has so much room beside what is asked for.
    pub(super) fn with_room(region: &Arc<Region>, beside: usize) -> Self {
        Self { region: Arc::clone(region), end: region.bytes(), beside }
    }

    /// Makes a view of all but a quarter of the region. A pool's users, such as a client that stalls within a value,
    /// may keep their blocks as long as they like. A copy for a job finds room however much that is.
    pub(super) fn beside_copies(region: &Arc<Region>) -> Self {
        let kept_bytes = region.bytes() / KEPT_FOR_COPIES;
        Self { region: Arc::clone(region), end: region.bytes() - kept_bytes, beside: 0 }
    }
}

impl Memory for Blocks {
    fn id(&self) -> MemoryId {
        self.region.id
    }

    fn allocate(&self, bytes: usize) -> Option<Box<dyn MemoryBlock>> {
        let block = self.region.block_within(bytes.checked_add(self.beside)?, self.end)?;
        Some(Box::new(block))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A part of the local region that one value has to itself. Drop gives it back.
pub(super) struct LocalBlock {
    region: Arc<Region>,
    offset: usize,
    bytes: usize,
}

impl LocalBlock {
    /// Returns its offset among the blocks.
    pub(super) fn offset(&self) -> u64 {
        self.offset as u64
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: `offset + bytes` is within the region, by the allocator.
        unsafe { self.region.sealed.map.as_mut_ptr().add(self.offset) }
    }
}

impl MemoryBlock for LocalBlock {}

impl AsRef<[u8]> for LocalBlock {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: mapped as long as `region` lives, initialised (the system hands out zeros), and this block's alone:
        // the allocator gave the range to nobody else, and the peer cannot write.
        unsafe { slice::from_raw_parts(self.start(), self.bytes) }
    }
}

impl AsMut<[u8]> for LocalBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the peer may read meanwhile, which this process cannot notice.
        unsafe { slice::from_raw_parts_mut(self.start(), self.bytes) }
    }
}

impl Drop for LocalBlock {
    fn drop(&mut self) {
        self.region.free.lock().give_back(self.offset, self.bytes);
    }
}

/// Free ranges by offset; neighbours are merged. The lowest that fits is taken, so that a lane with little to do
/// touches little memory.
struct Free {
    rooms: BTreeMap<usize, usize>,
    /// The bytes of all free ranges.
    bytes: usize,
}

impl Free {
    /// Takes a range within the first `end` bytes.
    fn take(&mut self, bytes: usize, end: usize) -> Option<usize> {
        let (&offset, &room) = self.rooms.iter().find(|(_, room)| **room >= bytes)?;
        if offset + bytes > end {
            return None;
        }
        self.bytes -= bytes;
        self.rooms.remove(&offset);
        if room > bytes {
            self.rooms.insert(offset + bytes, room - bytes);
        }
        Some(offset)
    }

    fn give_back(&mut self, mut offset: usize, mut bytes: usize) {
        self.bytes += bytes;
        if let Some(room) = self.rooms.remove(&(offset + bytes)) {
            bytes += room;
        }
        if let Some((&before, &room)) = self.rooms.range(..offset).next_back()
            && before + room == offset
        {
            (offset, bytes) = (before, room + bytes);
        }
        self.rooms.insert(offset, bytes);
    }
}

/// The memory that the peer writes.
pub(super) struct PeerHalf {
    half: MmapRaw,
    region: MmapRaw,
}

impl PeerHalf {
    /// Maps the memory that the peer handed over.
    ///
    /// # Errors
    /// The memory cannot be used. The text says why.
    pub(super) fn map(handed: &Handed) -> Result<Self, String> {
        let half = map_read_only(&handed.half, HALF_BYTES..=HALF_BYTES)?;
        let region = map_read_only(&handed.region, 1..=BLOCKS_BYTES_MAX)?;
        Ok(Self { half, region })
    }

    /// Returns the room for values (bytes).
    pub(super) fn region_bytes(&self) -> usize {
        self.region.len()
    }

    /// Returns the word as it is now. Reads after this see what the peer wrote before it.
    pub(super) fn word(&self, word: Word) -> u64 {
        let value = self.at(word as usize);
        fence(Ordering::Acquire);
        value
    }

    /// Returns one entry, each word read once.
    pub(super) fn entry(&self, index: u64) -> [u64; ENTRY_WORDS] {
        let at = entry_at(index);
        std::array::from_fn(|number| self.at(at + number * 8))
    }

    fn at(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= HALF_BYTES, "no word at {offset}");
        // SAFETY: within the mapping (`map` refuses a shorter one) and aligned. The memory is no Rust allocation and
        // only another process writes it: a volatile read is one load of whatever it holds now, and any value of a u64
        // is one. It cannot become shorter (sealed), so the load cannot fault.
        unsafe { ptr::read_volatile(self.half.as_ptr().add(offset).cast()) }
    }

    /// Copies a value out. Returns false if it is not within the blocks.
    pub(super) fn copy(&self, offset: u64, to: &mut [u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        if offset.checked_add(to.len()).is_none_or(|end| end > self.region.len()) {
            return false;
        }
        // SAFETY: the source is within the mapping (checked), the target is this process's own and no part of it. The
        // peer may write meanwhile: every byte is still a byte, and nothing looks at the source again. The copy is a
        // call that ends with a fence of the compiler's, so that it cannot replace a read of the copy by a second read
        // of the source, which the peer may have changed by then.
        unsafe {
            copy_from_another_core(self.region.as_ptr().add(offset), to.as_mut_ptr(), to.len())
        };
        true
    }
}

/// Does the same as `copy_nonoverlapping`, and asks for the source some way ahead. The source comes from the core that
/// wrote it, and a copy that waits for each line leaves a fifth of the bandwidth between cores unused (measured at 64
/// KiB).
///
/// # Safety
/// The same as for `copy_nonoverlapping`.
#[inline(never)]
unsafe fn copy_from_another_core(from: *const u8, to: *mut u8, bytes: usize) {
    let mut asked = 0;
    for at in (0..bytes).step_by(COPY_STEP_BYTES) {
        let step = COPY_STEP_BYTES.min(bytes - at);
        while asked < bytes.min(at + COPY_AHEAD_BYTES) {
            prefetch(from.wrapping_add(asked));
            asked += UNIT_BYTES;
        }
        // SAFETY: by the caller, for every part.
        unsafe { ptr::copy_nonoverlapping(from.add(at), to.add(at), step) };
    }
    compiler_fence(Ordering::SeqCst);
}

fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, of any address; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

const COPY_STEP_BYTES: usize = 1 << 10;

const COPY_AHEAD_BYTES: usize = 3 << 10;

/// Maps memory of the peer's that cannot vanish under a reader.
fn map_read_only(file: &OwnedFd, bytes: RangeInclusive<usize>) -> Result<MmapRaw, String> {
    let problem = |error: &dyn std::fmt::Display| format!("its memory cannot be mapped: {error}");
    let seals = fcntl_get_seals(file).map_err(|error| problem(&error))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err("its memory is not sealed: it could vanish under a reader".into());
    }
    // Huge pages that the peer punches out are gone for a reader; a page of this file system is made anew.
    if fstatfs(file).map_err(|error| problem(&error))?.f_type != TMPFS_MAGIC {
        return Err("its memory is no plain memfd: parts of it could vanish under a reader".into());
    }
    let size = fstat(file).map_err(|error| problem(&error))?.st_size;
    let size = usize::try_from(size).ok().filter(|size| bytes.contains(size));
    let (least, most) = (bytes.start(), bytes.end());
    let size = size.ok_or_else(|| format!("its memory is not {least} to {most} bytes"))?;
    let map = MmapOptions::new().len(size).map_raw_read_only(file);
    map.map_err(|error| problem(&error))
}

fn entry_at(index: u64) -> usize {
    RING_AT + (index % ENTRIES) as usize * ENTRY_WORDS * 8
}

/// The file system that memfds belong to, except for those of huge pages.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// One part in so many of a region of inputs is left to copies by pools. That is room for one of the largest values at
/// least, since a region has room for four.
const KEPT_FOR_COPIES: usize = 4;

/// Blocks begin and end at cache lines.
pub(super) const UNIT_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use units::Prng;

    use super::*;

    #[test]
    fn a_peer_can_read_but_not_write() {
        let (local, region) =
            (LocalHalf::new().expect("memory"), Region::new(1 << 20).expect("memory"));
        let file = |handle: BorrowedFd<'_>| handle.try_clone_to_owned().expect("a descriptor");
        let handed = Handed { half: file(local.file()), region: file(region.file()) };
        let peer = PeerHalf::map(&handed).expect("a half and a region");
        local.put(300, [1, 2, 3, 4, 5, 6, 7, 8]);
        local.word(Word::Tail).store(9, Ordering::Release);
        assert_eq!((peer.word(Word::Tail), peer.entry(300 - ENTRIES)[7]), (9, 8));
        let mut block = region.block(100).expect("room");
        block.as_mut()[..5].copy_from_slice(b"hello");
        let mut read = [0; 5];
        assert!(peer.copy(block.offset(), &mut read));
        assert_eq!(&read, b"hello");
        assert_eq!(region.offset_of(&block.as_ref()[..5]), Some(block.offset()));
        assert_eq!(region.offset_of(b"elsewhere"), None);
        for offset in [region.bytes() as u64 - 4, u64::MAX, u64::MAX - 4] {
            assert!(!peer.copy(offset, &mut read), "{offset}");
        }
        for file in [&handed.half, &handed.region] {
            MmapOptions::new().len(4_096).map_raw(file).expect_err("sealed against writers");
            ftruncate(file, 0).expect_err("sealed against shrinking");
        }
    }

    #[test]
    fn memory_that_could_vanish_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("loose", flags).expect("a file");
        ftruncate(&file, 1 << 20).expect("room");
        let any = 1..=BLOCKS_BYTES_MAX;
        let refused = |file: &OwnedFd, why| {
            map_read_only(file, any.clone()).is_err_and(|problem| problem.contains(why))
        };
        assert!(refused(&file, "not sealed"));
        for bytes in [0, BLOCKS_BYTES_MAX as u64 + 1] {
            let file = memfd_create("short", flags).expect("a file");
            ftruncate(&file, bytes).expect("room");
            fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            assert!(refused(&file, "not 1 to"), "{bytes}");
        }
        // The system may have no huge pages at all.
        if let Ok(huge) = memfd_create("huge", flags | MemfdFlags::HUGETLB) {
            ftruncate(&huge, 2 << 20).expect("room");
            fcntl_add_seals(&huge, SealFlags::SHRINK).expect("sealed");
            assert!(refused(&huge, "no plain memfd"));
        }
        let other = std::fs::File::open("/proc/self/exe").expect("a file");
        assert!(map_read_only(&other.into(), any.clone()).is_err());
        let region = Region::new(1 << 20).expect("memory");
        let file = || region.file().try_clone_to_owned().expect("a descriptor");
        let handed = Handed { half: file(), region: file() };
        assert!(PeerHalf::map(&handed).is_err_and(|why| why.contains("not 20480")), "no half");
    }

    #[test]
    fn blocks_never_overlap() {
        let region = Region::new(64 << 10).expect("memory");
        let mut draws = Prng::new(5);
        let mut held: Vec<LocalBlock> = Vec::new();
        for round in 0..20_000 {
            if draws.bits().is_multiple_of(2) || held.is_empty() {
                let Some(mut block) = region.block((draws.bits() % 9_000) as usize) else {
                    held.swap_remove((draws.bits() % held.len() as u64) as usize);
                    continue;
                };
                block.as_mut().fill(round as u8);
                held.push(block);
            } else {
                let block = held.swap_remove((draws.bits() % held.len() as u64) as usize);
                let first = block.as_ref()[0];
                assert!(block.as_ref().iter().all(|byte| *byte == first), "someone else wrote");
            }
        }
        drop(held);
        assert_eq!(region.used_bytes(), 0);
        assert!(region.block(64 << 10).is_some(), "ranges are merged again");
        assert!(region.block((64 << 10) + 1).is_none());
        assert!(region.block(usize::MAX).is_none());
    }
}
