//! The memory of a lane, in two halves. Each side makes one half and alone writes it: the memory is sealed so that the
//! other can map it for reading only, and cannot make it shorter under a reader. So nothing that this side wrote can
//! change under it, and everything of the other half may change at any time: words are read once, values are copied
//! out once, and both are checked by whoever asks. The layout is in [`super`]; what words mean is none of this file's.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use device::{Memory, MemoryBlock, MemoryId};
use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};

/// Words of one ring entry.
pub(super) const ENTRY_WORDS: usize = 8;

/// Entries of each ring: as many jobs as one lane holds.
pub(super) const ENTRIES: u64 = 256;

/// The single words of a half, by their offset (bytes): each on a cache line of its own, since they change at
/// different times.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub(super) enum Word {
    /// Entries that the half's owner has put into its ring since the beginning.
    Tail = 0,
    /// Entries of the other ring that it is done with.
    Head = 64,
    /// Zero while it is awake; else the number of its sleep, never the same twice.
    Asleep = 128,
    /// The processor that it ran on last, plus one.
    Cpu = 192,
}

const RING_AT: usize = 4_096;
pub(super) const BLOCKS_AT: usize = RING_AT + ENTRIES as usize * ENTRY_WORDS * 8;

/// A longer half is not mapped: more than any lane needs, and a bound on what a peer can make this process touch.
pub(super) const BLOCKS_BYTES_MAX: usize = 256 << 20;

/// The half that this process writes.
pub(super) struct Own {
    map: MmapRaw,
    file: OwnedFd,
    id: MemoryId,
    free: Mutex<Free>,
}

impl Own {
    /// A half with room for values of `blocks_bytes` in all.
    pub(super) fn new(blocks_bytes: usize) -> io::Result<Arc<Self>> {
        let blocks_bytes =
            blocks_bytes.clamp(UNIT_BYTES, BLOCKS_BYTES_MAX) / UNIT_BYTES * UNIT_BYTES;
        let bytes = BLOCKS_AT + blocks_bytes;
        let file = memfd_create("rebate-lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        let map = MmapOptions::new().len(bytes).map_raw(&file)?;
        // From here on only the mapping above can write.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        fcntl_add_seals(&file, seals)?;
        let free = Free { rooms: BTreeMap::from([(0, blocks_bytes)]), bytes: blocks_bytes };
        let free = Mutex::new(free);
        Ok(Arc::new(Self { map, file, id: MemoryId::unique(), free }))
    }

    /// The memory, to hand over.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Room for values (bytes).
    pub(super) fn blocks_bytes(&self) -> usize {
        self.map.len() - BLOCKS_AT
    }

    pub(super) fn word(&self, word: Word) -> &AtomicU64 {
        self.at(word as usize)
    }

    /// Writes one entry of the ring; whoever publishes it orders it before the tail.
    pub(super) fn put(&self, index: u64, words: [u64; ENTRY_WORDS]) {
        let at = entry_at(index);
        for (number, word) in words.into_iter().enumerate() {
            self.at(at + number * 8).store(word, Ordering::Relaxed);
        }
    }

    fn at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= BLOCKS_AT, "no word at {offset}");
        // SAFETY: within the mapping (`BLOCKS_AT` is, see `new`) and aligned, since a mapping begins at a page. It is
        // mapped for reading and writing as long as `self` lives, and this process reaches these bytes through
        // atomics only; the peer cannot write them.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset).cast()) }
    }

    /// A block of at least `bytes` that nobody else has; none when there is none.
    pub(super) fn block(self: &Arc<Self>, bytes: usize) -> Option<OwnBlock> {
        let bytes = bytes.max(1).checked_next_multiple_of(UNIT_BYTES)?;
        let offset = self.free.lock().take(bytes)?;
        Some(OwnBlock { memory: Arc::clone(self), offset, bytes })
    }

    /// Where among the blocks these bytes are, if they are.
    pub(super) fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let start = self.map.as_ptr().addr() + BLOCKS_AT;
        let offset = bytes.as_ptr().addr().checked_sub(start)?;
        (offset + bytes.len() <= self.blocks_bytes()).then_some(offset as u64)
    }

    /// Bytes of blocks that are in use.
    pub(super) fn used_bytes(&self) -> usize {
        self.blocks_bytes() - self.free.lock().bytes
    }
}

/// A pool's view of a half.
pub(super) struct Blocks(pub(super) Arc<Own>);

impl Memory for Blocks {
    fn id(&self) -> MemoryId {
        self.0.id
    }

    fn allocate(&self, bytes: usize) -> Option<Box<dyn MemoryBlock>> {
        self.0.block(bytes).map(|block| Box::new(block) as Box<dyn MemoryBlock>)
    }
}

/// A part of the own half that one value has to itself; drop gives it back.
pub(super) struct OwnBlock {
    memory: Arc<Own>,
    offset: usize,
    bytes: usize,
}

impl OwnBlock {
    /// Where it is among the blocks.
    pub(super) fn offset(&self) -> u64 {
        self.offset as u64
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: `offset + bytes` is within the blocks, by the allocator.
        unsafe { self.memory.map.as_mut_ptr().add(BLOCKS_AT + self.offset) }
    }
}

impl MemoryBlock for OwnBlock {}

impl AsRef<[u8]> for OwnBlock {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: mapped as long as `memory` lives, initialised (the system hands out zeros), and this block's alone:
        // the allocator gave the range to nobody else, and the peer cannot write.
        unsafe { slice::from_raw_parts(self.start(), self.bytes) }
    }
}

impl AsMut<[u8]> for OwnBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the peer may read meanwhile, which this process cannot notice.
        unsafe { slice::from_raw_parts_mut(self.start(), self.bytes) }
    }
}

impl Drop for OwnBlock {
    fn drop(&mut self) {
        self.memory.free.lock().give_back(self.offset, self.bytes);
    }
}

/// Free ranges by offset; neighbours are merged. The lowest that fits is taken, so that a lane with little to do
/// touches little memory.
struct Free {
    rooms: BTreeMap<usize, usize>,
    /// Of all of them.
    bytes: usize,
}

impl Free {
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (&offset, &room) = self.rooms.iter().find(|(_, room)| **room >= bytes)?;
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

/// The half that the peer writes.
pub(super) struct Theirs {
    map: MmapRaw,
}

impl Theirs {
    /// Maps what the peer handed over.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn map(file: &OwnedFd) -> Result<Self, String> {
        let problem =
            |error: &dyn std::fmt::Display| format!("its memory cannot be mapped: {error}");
        let seals = fcntl_get_seals(file).map_err(|error| problem(&error))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err("its memory is not sealed: it could vanish under a reader".into());
        }
        // Huge pages that the peer punches out are gone for a reader; a page of this file system is made anew.
        if fstatfs(file).map_err(|error| problem(&error))?.f_type != TMPFS_MAGIC {
            return Err(
                "its memory is no plain memfd: parts of it could vanish under a reader".into()
            );
        }
        let bytes = fstat(file).map_err(|error| problem(&error))?.st_size;
        let most = BLOCKS_AT + BLOCKS_BYTES_MAX;
        let bytes =
            usize::try_from(bytes).ok().filter(|bytes| (BLOCKS_AT + 1..=most).contains(bytes));
        let bytes =
            bytes.ok_or_else(|| format!("its memory is not {BLOCKS_AT} to {most} bytes"))?;
        let map = MmapOptions::new().len(bytes).map_raw_read_only(file);
        Ok(Self { map: map.map_err(|error| problem(&error))? })
    }

    /// Room for values (bytes).
    pub(super) fn blocks_bytes(&self) -> usize {
        self.map.len() - BLOCKS_AT
    }

    /// The word as it is now; what the peer wrote before it is seen by reads after this.
    pub(super) fn word(&self, word: Word) -> u64 {
        let value = self.at(word as usize);
        fence(Ordering::Acquire);
        value
    }

    /// One entry, each word read once.
    pub(super) fn entry(&self, index: u64) -> [u64; ENTRY_WORDS] {
        let at = entry_at(index);
        std::array::from_fn(|number| self.at(at + number * 8))
    }

    fn at(&self, offset: usize) -> u64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= BLOCKS_AT, "no word at {offset}");
        // SAFETY: within the mapping (`map` refuses a shorter one) and aligned. The memory is no Rust allocation and
        // only another process writes it: a volatile read is one load of whatever it holds now, and any value of a u64
        // is one. It cannot become shorter (sealed), so the load cannot fault.
        unsafe { ptr::read_volatile(self.map.as_ptr().add(offset).cast()) }
    }

    /// Copies a value out; false if it is not within the blocks.
    pub(super) fn copy(&self, offset: u64, to: &mut [u8]) -> bool {
        let Ok(offset) = usize::try_from(offset) else { return false };
        if offset.checked_add(to.len()).is_none_or(|end| end > self.blocks_bytes()) {
            return false;
        }
        // SAFETY: the source is within the mapping (checked), the target is this process's own and no part of it. The
        // peer may write meanwhile: every byte is still a byte, and nothing looks at the source again.
        unsafe {
            ptr::copy_nonoverlapping(
                self.map.as_ptr().add(BLOCKS_AT + offset),
                to.as_mut_ptr(),
                to.len(),
            );
        }
        true
    }
}

fn entry_at(index: u64) -> usize {
    RING_AT + (index % ENTRIES) as usize * ENTRY_WORDS * 8
}

/// The file system that memfds are of, huge pages apart.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Blocks begin and end at cache lines.
const UNIT_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use units::Prng;

    use super::*;

    #[test]
    fn what_one_side_writes_the_other_reads_and_cannot_write() {
        let own = Own::new(1 << 20).expect("memory");
        let file = own.file().try_clone_to_owned().expect("a descriptor");
        let theirs = Theirs::map(&file).expect("a half");
        own.put(300, [1, 2, 3, 4, 5, 6, 7, 8]);
        own.word(Word::Tail).store(9, Ordering::Release);
        assert_eq!((theirs.word(Word::Tail), theirs.entry(300 - ENTRIES)[7]), (9, 8));
        let mut block = own.block(100).expect("room");
        block.as_mut()[..5].copy_from_slice(b"hello");
        let mut read = [0; 5];
        assert!(theirs.copy(block.offset(), &mut read));
        assert_eq!(&read, b"hello");
        assert_eq!(own.offset_of(&block.as_ref()[..5]), Some(block.offset()));
        assert_eq!(own.offset_of(b"elsewhere"), None);
        for offset in [own.blocks_bytes() as u64 - 4, u64::MAX, u64::MAX - 4] {
            assert!(!theirs.copy(offset, &mut read), "{offset}");
        }
        MmapOptions::new().len(4_096).map_raw(&file).expect_err("sealed against writers");
        ftruncate(&file, 0).expect_err("sealed against shrinking");
    }

    #[test]
    fn memory_that_could_vanish_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("loose", flags).expect("a file");
        ftruncate(&file, 1 << 20).expect("room");
        assert!(Theirs::map(&file).err().is_some_and(|why| why.contains("not sealed")));
        for bytes in [0, BLOCKS_AT as u64, (BLOCKS_AT + BLOCKS_BYTES_MAX) as u64 + 1] {
            let file = memfd_create("short", flags).expect("a file");
            ftruncate(&file, bytes).expect("room");
            fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            assert!(Theirs::map(&file).is_err(), "{bytes}");
        }
        // Where the system has huge pages at all.
        if let Ok(huge) = memfd_create("huge", flags | MemfdFlags::HUGETLB) {
            ftruncate(&huge, 2 << 20).expect("room");
            fcntl_add_seals(&huge, SealFlags::SHRINK).expect("sealed");
            assert!(Theirs::map(&huge).err().is_some_and(|why| why.contains("no plain memfd")));
        }
        let other = std::fs::File::open("/proc/self/exe").expect("a file");
        assert!(Theirs::map(&other.into()).is_err());
    }

    #[test]
    fn blocks_never_overlap_and_all_come_home() {
        let own = Own::new(64 << 10).expect("memory");
        let mut draws = Prng::new(5);
        let mut held: Vec<OwnBlock> = Vec::new();
        for round in 0..20_000 {
            if draws.bits().is_multiple_of(2) || held.is_empty() {
                let Some(mut block) = own.block((draws.bits() % 9_000) as usize) else {
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
        assert_eq!(own.used_bytes(), 0);
        assert!(own.block(64 << 10).is_some(), "ranges are merged again");
        assert!(own.block((64 << 10) + 1).is_none());
        assert!(own.block(usize::MAX).is_none());
    }
}
