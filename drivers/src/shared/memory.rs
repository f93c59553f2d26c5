//! The memory that two sides share. Each side has a half with its words and its ring, and a region with its blocks.
//! Only the side that made a memory writes it. Seals allow the other side to map it for reading only and prevent it
//! from becoming shorter under a reader. So what this side wrote cannot change unexpectedly, but everything that the
//! other side wrote may change at any time. Therefore words are read once and values are copied once, and the caller
//! checks the copies. [`crate::lane`] and [`crate::near`] describe the layouts. This module does not know the meaning
//! of the words.

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

/// The number of words of a ring entry.
pub(crate) const ENTRY_WORDS: usize = 8;

/// The number of entries of each ring. It is also the most jobs of one lane.
pub(crate) const ENTRIES: u64 = 256;

/// The single words of a half, with their offsets (bytes). Each word has its own cache line, because the words change
/// at different times.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(crate) enum Word {
    /// The number of entries that the half's owner has written to its ring since the start.
    Tail = 0,
    /// The number of entries of the other ring that the owner has finished with.
    Head = 64,
    /// Zero while the owner is awake, and otherwise the number of its sleep. No number is used twice.
    Asleep = 128,
    /// The last processor that the owner ran on, plus one.
    Cpu = 192,
    /// Zero while the owner does not wait for space to write, and otherwise the number of its wait. No number is used
    /// twice. Only near connections use this word.
    Blocked = 256,
    /// The time of the host's clock when the owner made the half (ms), as [`units::host_ms`] has it. Only near
    /// connections use this word.
    Clock = 320,
}

const RING_AT: usize = 4_096;
const HALF_BYTES: usize = RING_AT + ENTRIES as usize * ENTRY_WORDS * 8;

/// The size of the largest region that is mapped (bytes). It exceeds the needs of any lane and limits how
/// much memory a peer can make this process touch.
pub(crate) const BLOCKS_BYTES_MAX: usize = 256 << 20;

/// The memory that one side passes to the other side.
#[derive(Debug)]
pub(crate) struct PassedFiles {
    pub(crate) half: OwnedFd,
    pub(crate) region: OwnedFd,
}

/// Memory that only this process can write, and only through this mapping. It is zeroed.
struct Sealed {
    map: MmapRaw,
    /// The memory, to pass it to the peer. None once it was passed, if its owner closes it then.
    file: Option<OwnedFd>,
}

impl Sealed {
    fn new(bytes: usize) -> io::Result<Self> {
        let file = memfd_create("rebate-shared", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        // From here on, only the mapping above can write.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        Ok(Self { map, file: Some(file) })
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("the memory is passed before its file is closed").as_fd()
    }
}

/// The half that this process writes.
pub(crate) struct LocalHalf(Sealed);

impl LocalHalf {
    pub(crate) fn new() -> io::Result<Self> {
        Sealed::new(HALF_BYTES).map(Self)
    }

    /// Returns the memory, to pass it to the peer.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// Closes the file of the memory after it was passed. The mapping stays.
    pub(crate) fn close_file(&mut self) {
        self.0.file = None;
    }

    pub(crate) fn word(&self, word: Word) -> &AtomicU64 {
        self.at(word as usize)
    }

    /// Writes one entry of the ring. The caller must publish the tail after it.
    pub(crate) fn put(&self, index: u64, words: [u64; ENTRY_WORDS]) {
        let at = entry_at(index);
        for (number, word) in words.into_iter().enumerate() {
            self.at(at + number * 8).store(word, Ordering::Relaxed);
        }
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= HALF_BYTES, "no word at {offset}");
        // SAFETY: the word is within the mapping (which is `HALF_BYTES`, see `new`) and aligned, because a mapping
        // begins at a page. The memory is mapped for reading and writing as long as `self` lives. This process
        // accesses these bytes only through atomics, and the peer cannot write them.
        unsafe { AtomicU64::from_ptr(self.0.map.as_mut_ptr().add(offset).cast()) }
    }
}

/// A ring of bytes that this process writes.
pub(crate) struct LocalRing(Sealed);

impl LocalRing {
    /// Makes a ring of `bytes`.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        Sealed::new(bytes).map(Self)
    }

    /// Returns the memory, to pass it to the peer.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }

    /// Closes the file of the memory after it was passed. The mapping stays.
    pub(crate) fn close_file(&mut self) {
        self.0.file = None;
    }
}

impl AsMut<[u8]> for LocalRing {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is as long as the slice, and initialised (the system provides zeros). It belongs to this
        // value alone, and the peer cannot write. The peer may read at the same time, which this process cannot notice.
        unsafe { slice::from_raw_parts_mut(self.0.map.as_mut_ptr(), self.0.map.len()) }
    }
}

/// The blocks that this process writes.
pub(crate) struct Region {
    sealed: Sealed,
    id: MemoryId,
    free: Mutex<Free>,
}

impl Region {
    /// Makes a region with space for values of `bytes` in total.
    pub(crate) fn new(bytes: usize) -> io::Result<Arc<Self>> {
        let bytes = bytes.clamp(UNIT_BYTES, BLOCKS_BYTES_MAX) / UNIT_BYTES * UNIT_BYTES;
        let free = Mutex::new(Free { free_ranges: BTreeMap::from([(0, bytes)]), bytes });
        let sealed = Sealed::new(bytes)?;
        Ok(Arc::new(Self { sealed, id: MemoryId::unique(), free }))
    }

    /// Returns the memory, to pass it to the peer.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.sealed.file()
    }

    /// Returns the size of the region (bytes).
    pub(crate) fn bytes(&self) -> usize {
        self.sealed.map.len()
    }

    /// Returns an unused block of at least `bytes`, or none if there is no space.
    pub(crate) fn block(self: &Arc<Self>, bytes: usize) -> Option<LocalBlock> {
        self.block_within(bytes, self.bytes())
    }

    /// Returns an unused block within the first `end` bytes of the region, like `block`.
    fn block_within(self: &Arc<Self>, bytes: usize, end: usize) -> Option<LocalBlock> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT_BYTES)?;
        let offset = self.free.lock().take(bytes, end)?;
        Some(LocalBlock { region: Arc::clone(self), offset, bytes })
    }

    /// Returns the offset of these bytes in the region, or none if they are elsewhere.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let start = self.sealed.map.as_ptr().addr();
        let offset = bytes.as_ptr().addr().checked_sub(start)?;
        let end = offset.checked_add(bytes.len())?;
        (end <= self.bytes()).then_some(offset as u64)
    }

    /// Returns the number of bytes in blocks that are in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.bytes() - self.free.lock().bytes
    }
}

/// A pool's view of a region.
pub(crate) struct Blocks {
    region: Arc<Region>,
    /// The end of the pool's part of the region.
    end: usize,
    /// The number of bytes that each block has in addition to the requested size.
    padding_bytes: usize,
}

impl Blocks {
    /// Makes a view of the whole region. Each block has `padding_bytes` bytes in addition to the requested size.
    pub(crate) fn with_padding(region: &Arc<Region>, padding_bytes: usize) -> Self {
        Self { region: Arc::clone(region), end: region.bytes(), padding_bytes }
    }

    /// Makes a view of all but the last quarter of the region. Users of a pool may keep their blocks for any
    /// time, for example while a client stalls within a value. The last quarter always has space for the
    /// copies of jobs.
    pub(crate) fn with_copy_reserve(region: &Arc<Region>) -> Self {
        let kept_bytes = region.bytes() / COPY_RESERVE_DIVISOR;
        Self { region: Arc::clone(region), end: region.bytes() - kept_bytes, padding_bytes: 0 }
    }
}

impl Memory for Blocks {
    fn id(&self) -> MemoryId {
        self.region.id
    }

    fn allocate(&self, bytes: usize) -> Option<Box<dyn MemoryBlock>> {
        let block = self.region.block_within(bytes.checked_add(self.padding_bytes)?, self.end)?;
        Some(Box::new(block))
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// A part of the local region that one value uses alone. Dropping it frees the part.
pub(crate) struct LocalBlock {
    region: Arc<Region>,
    offset: usize,
    bytes: usize,
}

impl LocalBlock {
    /// Returns the block's offset in the region.
    pub(crate) fn offset(&self) -> u64 {
        self.offset as u64
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: the allocator ensures that `offset + bytes` is within the region.
        unsafe { self.region.sealed.map.as_mut_ptr().add(self.offset) }
    }
}

impl MemoryBlock for LocalBlock {}

impl AsRef<[u8]> for LocalBlock {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the block is mapped as long as `region` lives, and initialised (the system provides zeros). It
        // belongs to this value alone: the allocator gave the range to no other value, and the peer cannot write.
        unsafe { slice::from_raw_parts(self.start(), self.bytes) }
    }
}

impl AsMut<[u8]> for LocalBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_ref`. The peer may read at the same time, which this process cannot notice.
        unsafe { slice::from_raw_parts_mut(self.start(), self.bytes) }
    }
}

impl Drop for LocalBlock {
    fn drop(&mut self) {
        self.region.free.lock().release(self.offset, self.bytes);
    }
}

/// The free ranges by offset. Adjacent ranges are merged. The lowest range that fits is used, so that a lane with
/// little work touches little memory.
struct Free {
    free_ranges: BTreeMap<usize, usize>,
    /// The number of bytes in all free ranges.
    bytes: usize,
}

impl Free {
    /// Allocates a range within the first `end` bytes.
    fn take(&mut self, bytes: usize, end: usize) -> Option<usize> {
        let (&offset, &range_bytes) =
            self.free_ranges.iter().find(|(_, range_bytes)| **range_bytes >= bytes)?;
        if offset + bytes > end {
            return None;
        }
        self.bytes -= bytes;
        self.free_ranges.remove(&offset);
        if range_bytes > bytes {
            self.free_ranges.insert(offset + bytes, range_bytes - bytes);
        }
        Some(offset)
    }

    fn release(&mut self, mut offset: usize, mut bytes: usize) {
        self.bytes += bytes;
        if let Some(range_bytes) = self.free_ranges.remove(&(offset + bytes)) {
            bytes += range_bytes;
        }
        if let Some((&before, &range_bytes)) = self.free_ranges.range(..offset).next_back()
            && before + range_bytes == offset
        {
            (offset, bytes) = (before, range_bytes + bytes);
        }
        self.free_ranges.insert(offset, bytes);
    }
}

/// The memory that the peer writes.
pub(crate) struct PeerHalf {
    half: MmapRaw,
    region: MmapRaw,
}

impl PeerHalf {
    /// Maps the memory that the peer passed.
    ///
    /// # Errors
    /// The memory cannot be used. The text gives the reason.
    pub(crate) fn map(passed: &PassedFiles) -> Result<Self, String> {
        let half = map_read_only(&passed.half, HALF_BYTES..=HALF_BYTES)?;
        let region = map_read_only(&passed.region, 1..=BLOCKS_BYTES_MAX)?;
        Ok(Self { half, region })
    }

    /// Returns the size of the region (bytes).
    pub(crate) fn region_bytes(&self) -> usize {
        self.region.len()
    }

    /// Returns the current value of the word. Later reads see everything that the peer wrote before this value.
    pub(crate) fn word(&self, word: Word) -> u64 {
        let value = self.at(word as usize);
        fence(Ordering::Acquire);
        value
    }

    /// Returns one entry. Each of its words is read once.
    pub(crate) fn entry(&self, index: u64) -> [u64; ENTRY_WORDS] {
        let at = entry_at(index);
        std::array::from_fn(|number| self.at(at + number * 8))
    }

    fn at(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= HALF_BYTES, "no word at {offset}");
        // SAFETY: the word is within the mapping (`map` refuses a shorter one) and aligned. The memory is not a Rust
        // allocation and only another process writes it. A volatile read is one load of the current content, and any
        // content is a valid u64. The memory is sealed and cannot become shorter, so the load cannot fault.
        unsafe { ptr::read_volatile(self.half.as_ptr().add(offset).cast()) }
    }

    /// Copies a value. Returns false if the value is not within the region.
    pub(crate) fn copy(&self, offset: u64, to: &mut [u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        if offset.checked_add(to.len()).is_none_or(|end| end > self.region.len()) {
            return false;
        }
        // SAFETY: the source is within the mapping (checked). The target belongs to this process and does not overlap
        // it. The peer may write at the same time, but every byte stays a valid byte, and the source is not read
        // again. The copy is a function call that ends with a compiler fence. So the compiler cannot replace a read
        // of the copy by a second read of the source, which the peer may have changed in the meantime.
        unsafe {
            copy_from_another_core(self.region.as_ptr().add(offset), to.as_mut_ptr(), to.len())
        };
        true
    }
}

/// Copies like `copy_nonoverlapping`, and prefetches the source some distance ahead. The source comes from the core
/// that wrote it. A copy that waits for each line leaves a fifth of the bandwidth between cores unused (measured at
/// 64 KiB).
///
/// # Safety
/// The requirements are those of `copy_nonoverlapping`.
#[inline(never)]
unsafe fn copy_from_another_core(from: *const u8, to: *mut u8, bytes: usize) {
    let mut asked = 0;
    for at in (0..bytes).step_by(COPY_STEP_BYTES) {
        let step = COPY_STEP_BYTES.min(bytes - at);
        while asked < bytes.min(at + COPY_AHEAD_BYTES) {
            prefetch(from.wrapping_add(asked));
            asked += UNIT_BYTES;
        }
        // SAFETY: the caller's promise covers every part.
        unsafe { ptr::copy_nonoverlapping(from.add(at), to.add(at), step) };
    }
    compiler_fence(Ordering::SeqCst);
}

fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: this is a hint that is valid for any address, and every x86-64 processor has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

const COPY_STEP_BYTES: usize = 1 << 10;

const COPY_AHEAD_BYTES: usize = 3 << 10;

/// Maps memory of the peer that cannot vanish under a reader.
fn map_read_only(file: &OwnedFd, bytes: RangeInclusive<usize>) -> Result<MmapRaw, String> {
    let problem = |error: &dyn std::fmt::Display| format!("its memory cannot be mapped: {error}");
    let seals = fcntl_get_seals(file).map_err(|error| problem(&error))?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err("its memory is not sealed: it could vanish under a reader".into());
    }
    // Huge pages that the peer punches out are lost for a reader. A page of tmpfs is made again instead.
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

/// The magic number of the file system of memfds without huge pages.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// The divisor that gives the part of an input region that pools leave to copies. This part has space for at
/// least one of the largest values, because a region has space for four.
const COPY_RESERVE_DIVISOR: usize = 4;

/// The alignment of blocks (bytes). Blocks begin and end at cache lines.
pub(crate) const UNIT_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use units::Prng;

    use super::*;

    #[test]
    fn a_peer_can_read_but_not_write() {
        let (local, region) =
            (LocalHalf::new().expect("memory"), Region::new(1 << 20).expect("memory"));
        let file = |handle: BorrowedFd<'_>| handle.try_clone_to_owned().expect("a descriptor");
        let passed = PassedFiles { half: file(local.file()), region: file(region.file()) };
        let peer = PeerHalf::map(&passed).expect("a half and a region");
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
        for file in [&passed.half, &passed.region] {
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
        // The system may have no huge pages.
        if let Ok(huge) = memfd_create("huge", flags | MemfdFlags::HUGETLB) {
            ftruncate(&huge, 2 << 20).expect("room");
            fcntl_add_seals(&huge, SealFlags::SHRINK).expect("sealed");
            assert!(refused(&huge, "no plain memfd"));
        }
        let other = std::fs::File::open("/proc/self/exe").expect("a file");
        assert!(map_read_only(&other.into(), any.clone()).is_err());
        let region = Region::new(1 << 20).expect("memory");
        let file = || region.file().try_clone_to_owned().expect("a descriptor");
        let passed = PassedFiles { half: file(), region: file() };
        assert!(PeerHalf::map(&passed).is_err_and(|why| why.contains("not 20480")), "no half");
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
