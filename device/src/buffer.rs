//! Buffers and their pools. A pool provides initialised memory in size classes. The memory returns to the
//! pool when its last user drops it, so a job's buffer lives as long as the device needs it. The memory is
//! from the process's heap or is registered with a device through [`Memory`]. This module calls no device.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use units::ByteCount;

use crate::job::TenantId;

/// Identifies the memory that a buffer is in. A device that needs registered memory compares this id with its
/// own. It copies a buffer from any other memory and counts the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryId(u64);

impl MemoryId {
    /// The process's own heap. Every CPU device can read it, and no DMA engine can.
    pub const HEAP: MemoryId = MemoryId(0);

    /// Returns an id that no other memory of this process has.
    pub fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A block of registered memory. Dropping it returns it to its [`Memory`].
pub trait MemoryBlock: AsRef<[u8]> + AsMut<[u8]> + Send + Sync {}

/// Memory that a device can access, such as a memfd shared with a peer, or pinned or huge pages for DMA.
pub trait Memory: Send + Sync {
    /// Returns the id that buffers of this memory carry.
    fn id(&self) -> MemoryId;

    /// Returns an initialised block of at least `bytes`, or none when the region is exhausted. The receiver
    /// can read all of its content, so a region that a peer maps holds only that peer's bytes.
    fn allocate(&self, bytes: usize) -> Option<Box<dyn MemoryBlock>>;

    /// Returns whether several pools share this memory. If true, no pool retains blocks of it, because the other
    /// pools would lack the retained blocks.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Provides buffers of at least the requested capacity and stores returned blocks for reuse. Clones share the pool.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

impl Pool {
    /// Makes a pool over the process's heap that retains at most `retained_max` of returned memory.
    pub fn heap(retained_max: ByteCount) -> Self {
        Self::build(None, retained_max)
    }

    /// Makes a pool over registered memory.
    pub fn registered(memory: Arc<dyn Memory>, retained_max: ByteCount) -> Self {
        Self::build(Some(memory), retained_max)
    }

    /// Returns an empty buffer with space for `capacity` bytes. When registered memory is exhausted, the buffer is
    /// from the heap, which is slower but no error. [`Buffer::memory`] tells where the buffer is.
    pub fn take(&self, capacity: usize) -> Buffer {
        let registered = self.0.registered_block(capacity);
        self.issue(registered.unwrap_or_else(|| self.0.heap_block(capacity)))
    }

    /// Returns a buffer of registered memory, or none if that memory is exhausted. Use it for data that is
    /// useless in other memory.
    pub fn take_registered(&self, capacity: usize) -> Option<Buffer> {
        self.0.registered_block(capacity).map(|block| self.issue(block))
    }

    /// Returns a buffer of the heap even if the pool has registered memory. Use it for data that no device
    /// reads, to save the memory that devices read.
    pub fn take_heap(&self, capacity: usize) -> Buffer {
        self.issue(self.0.heap_block(capacity))
    }

    /// Returns the memory that this pool's buffers normally come from.
    pub fn memory(&self) -> MemoryId {
        self.0.memory.as_ref().map_or(MemoryId::HEAP, |memory| memory.id())
    }

    /// Returns the number of bytes that are in use and have not returned to the pool.
    pub fn outstanding(&self) -> ByteCount {
        ByteCount(self.0.outstanding_bytes.load(Ordering::Relaxed) as u64)
    }

    /// Returns the number of bytes that the pool stores for reuse.
    pub fn retained(&self) -> ByteCount {
        ByteCount(self.0.retained_bytes.load(Ordering::Relaxed) as u64)
    }

    fn issue(&self, FreeBlock { block, user }: FreeBlock) -> Buffer {
        let capacity = block.bytes().len();
        self.0.outstanding_bytes.fetch_add(capacity, Ordering::Relaxed);
        Buffer { block: Some(block), capacity, filled_bytes: 0, user, pool: self.clone() }
    }

    fn build(memory: Option<Arc<dyn Memory>>, retained_max: ByteCount) -> Self {
        let empty = || std::array::from_fn(|_| Mutex::new(Vec::new()));
        Self(Arc::new(Shared {
            memory,
            registered: empty(),
            heap: empty(),
            retained_bytes: AtomicUsize::new(0),
            retained_bytes_max: retained_max.as_usize(),
            outstanding_bytes: AtomicUsize::new(0),
        }))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("outstanding", &self.outstanding())
            .field("retained", &self.retained())
            .finish()
    }
}

/// A piece of pool memory. All of its capacity is initialised; the first `len()` bytes hold data.
pub struct Buffer {
    block: Option<Block>,
    /// The size of the block (bytes). It is stored here because every job reads it.
    capacity: usize,
    filled_bytes: usize,
    user: User,
    pool: Pool,
}

/// The tenant whose bytes may remain in a block outside the filled part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// The block is new and holds no tenant's bytes.
    Unused,
    /// The block may hold the bytes of any tenant.
    Unknown,
    /// The block holds only this tenant's bytes, which an earlier buffer left there.
    Previous(TenantId),
    /// The block holds only this tenant's bytes, because the buffer was assigned to this tenant.
    Current(TenantId),
}

impl Buffer {
    /// Returns the number of bytes that fit into the buffer.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Declares the first `bytes` to hold data.
    ///
    /// # Panics
    /// Panics if `bytes` exceeds the capacity.
    pub fn set_len(&mut self, bytes: usize) {
        assert!(bytes <= self.capacity(), "{bytes} bytes in a buffer of {}", self.capacity());
        self.filled_bytes = bytes;
    }

    /// Makes `bytes` the content of the buffer without a copy, for results that exist already. The buffer's
    /// previous memory returns to its pool unchanged. The capacity becomes the length of `bytes`, so the
    /// buffer cannot be reused for a longer result. A later write first copies the bytes to new memory from
    /// the heap.
    pub fn adopt(&mut self, bytes: Bytes) {
        self.filled_bytes = bytes.len();
        self.capacity = bytes.len();
        let had = self.block.replace(Block::Adopted(bytes));
        if let Some(had) = had {
            self.pool.0.release(had, self.user);
        }
    }

    /// Returns the whole capacity for writing. The caller then calls [`Buffer::set_len`] to declare how many bytes
    /// hold data. If the buffer was neither assigned nor lent to a tenant, the bytes written here count as those of an
    /// unknown tenant.
    pub fn space(&mut self) -> &mut [u8] {
        if !matches!(self.user, User::Current(_)) || matches!(self.block, Some(Block::Adopted(_))) {
            self.user = User::Unknown;
        }
        self.bytes_mut()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Some(Block::Adopted(bytes)) = &self.block {
            let bytes = bytes.clone();
            let mut copy = self.pool.take_heap(bytes.len());
            copy.extend(&bytes);
            copy.user = self.user;
            std::mem::swap(self, &mut copy);
        }
        match self.block.as_mut() {
            Some(block) => block.bytes_mut(),
            None => &mut [],
        }
    }

    /// Declares that bytes written from now on belong to this tenant. Wipes the buffer from `from` on if
    /// another tenant may have left bytes there. Wipes nothing if no other tenant used the buffer.
    pub fn assign_to(&mut self, tenant: TenantId, from: usize) {
        if let Some(Block::Adopted(_)) = self.block {
            // A later write would copy the adopted bytes, which may be another tenant's, into memory of the buffer.
            // So they are copied now, before the wipe.
            self.space();
        }
        if !self.is_exclusive_to(tenant)
            && let Some(behind) = self.bytes_mut().get_mut(from..)
        {
            behind.fill(0);
        }
        self.user = User::Current(tenant);
    }

    /// Returns whether the buffer holds no bytes of other tenants.
    fn is_exclusive_to(&self, tenant: TenantId) -> bool {
        match self.user {
            User::Unused => true,
            User::Unknown => false,
            User::Previous(other) | User::Current(other) => other == tenant,
        }
    }

    /// Lends the buffer to a writer that works for this tenant and writes no more bytes than it states, as software
    /// does. This wipes nothing, and the buffer still counts as holding the bytes that other tenants left.
    pub fn lend_to(&mut self, tenant: TenantId) {
        self.user =
            if self.is_exclusive_to(tenant) { User::Current(tenant) } else { User::Unknown };
    }

    /// Appends `bytes`.
    ///
    /// # Panics
    /// Panics if the bytes do not fit.
    pub fn extend(&mut self, bytes: &[u8]) {
        let start = self.filled_bytes;
        self.bytes_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        self.filled_bytes += bytes.len();
    }

    /// Returns the pool to which the buffer returns.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the memory that the buffer is in.
    pub fn memory(&self) -> MemoryId {
        self.block_ref().memory()
    }

    /// Returns the given part as shared bytes, without copying. The memory returns to the pool when the last clone is
    /// dropped.
    ///
    /// # Panics
    /// Panics if the range is not within the filled bytes.
    pub fn freeze(mut self, range: Range<usize>) -> Bytes {
        assert!(range.end <= self.filled_bytes, "{range:?} of {} bytes", self.filled_bytes);
        if let Some(Block::Adopted(bytes)) = &mut self.block {
            return bytes.slice(range);
        }
        Bytes::from_owner(self).slice(range)
    }

    fn block_ref(&self) -> &Block {
        self.block.as_ref().expect("a buffer has its block until it is dropped")
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.block_ref().bytes()[..self.filled_bytes]
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let filled_bytes = self.filled_bytes;
        &mut self.bytes_mut()[..filled_bytes]
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.filled_bytes, self.capacity())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.0.release(block, self.user);
        }
    }
}

/// The input of a job: shared, immutable bytes and their memory id. Clones are cheap. With a clone the
/// runtime can repeat a job elsewhere while a lost device still holds the original.
#[derive(Clone, Debug)]
pub struct Input {
    bytes: Bytes,
    memory: MemoryId,
}

impl Input {
    /// Makes an input from any bytes of the process. They count as heap memory.
    pub fn heap(bytes: Bytes) -> Self {
        Self { bytes, memory: MemoryId::HEAP }
    }

    /// Makes an input from a part of a pool buffer and keeps the buffer's memory id.
    ///
    /// # Panics
    /// Panics if the range is not within the filled bytes.
    pub fn pooled(buffer: Buffer, range: Range<usize>) -> Self {
        let memory = buffer.memory();
        Self { bytes: buffer.freeze(range), memory }
    }

    /// Makes an input from bytes that are in this memory.
    pub(crate) fn in_memory(bytes: Bytes, memory: MemoryId) -> Self {
        Self { bytes, memory }
    }

    /// Returns the memory that the bytes are in.
    pub fn memory(&self) -> MemoryId {
        self.memory
    }

    /// Returns the shared bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the shared bytes and consumes the input.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

impl Deref for Input {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The returned blocks, in one list per size class.
type FreeLists = [Mutex<Vec<FreeBlock>>; CLASSES];

/// A block and its last user.
struct FreeBlock {
    block: Block,
    user: User,
}

struct Shared {
    memory: Option<Arc<dyn Memory>>,
    /// Returned blocks of registered memory. `heap` holds the returned blocks of the heap.
    registered: FreeLists,
    heap: FreeLists,
    retained_bytes: AtomicUsize,
    retained_bytes_max: usize,
    outstanding_bytes: AtomicUsize,
}

impl Shared {
    fn registered_block(&self, capacity: usize) -> Option<FreeBlock> {
        let memory = self.memory.as_ref()?;
        let class = class_of(capacity);
        self.reused(&self.registered, class).or_else(|| {
            let block = memory.allocate(class.map_or(capacity, class_bytes))?;
            Some(FreeBlock { block: Block::Registered(memory.id(), block), user: User::Unused })
        })
    }

    fn heap_block(&self, capacity: usize) -> FreeBlock {
        let class = class_of(capacity);
        self.reused(&self.heap, class).unwrap_or_else(|| {
            let bytes = class.map_or(capacity, class_bytes);
            FreeBlock { block: Block::Heap(vec![0; bytes].into_boxed_slice()), user: User::Unused }
        })
    }

    fn reused(&self, free_lists: &FreeLists, class: Option<usize>) -> Option<FreeBlock> {
        let kept = free_lists[class?].lock().pop()?;
        self.retained_bytes.fetch_sub(kept.block.bytes().len(), Ordering::Relaxed);
        Some(kept)
    }

    fn release(&self, block: Block, user: User) {
        let is_shared = || self.memory.as_ref().is_some_and(|memory| memory.is_shared());
        let free_lists = match block {
            Block::Adopted(_) => return,
            Block::Registered(..) => (!is_shared()).then_some(&self.registered),
            Block::Heap(_) => Some(&self.heap),
        };
        let bytes = block.bytes().len();
        self.outstanding_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let Some(free_lists) = free_lists else { return };
        // Two threads may both pass the test and exceed the bound by one block each. The bound need not be exact.
        let retained = self.retained_bytes.load(Ordering::Relaxed);
        let class = class_of(bytes).filter(|class| class_bytes(*class) == bytes);
        if let Some(class) = class.filter(|_| retained + bytes <= self.retained_bytes_max) {
            self.retained_bytes.fetch_add(bytes, Ordering::Relaxed);
            let user = match user {
                User::Current(tenant) => User::Previous(tenant),
                // The previous user may have written to the block.
                User::Unused | User::Unknown | User::Previous(_) => User::Unknown,
            };
            free_lists[class].lock().push(FreeBlock { block, user });
        }
    }
}

enum Block {
    Heap(Box<[u8]>),
    Registered(MemoryId, Box<dyn MemoryBlock>),
    /// Read-only bytes of another owner. No pool counts them.
    Adopted(Bytes),
}

impl Block {
    fn bytes(&self) -> &[u8] {
        match self {
            Block::Heap(bytes) => bytes,
            Block::Registered(_, block) => (**block).as_ref(),
            Block::Adopted(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Block::Heap(bytes) => bytes,
            Block::Registered(_, block) => (**block).as_mut(),
            Block::Adopted(_) => unreachable!("space() makes the bytes its own first"),
        }
    }

    fn memory(&self) -> MemoryId {
        match self {
            Block::Heap(_) | Block::Adopted(_) => MemoryId::HEAP,
            Block::Registered(id, _) => *id,
        }
    }
}

/// Returns the class whose blocks hold `bytes`. Returns none if `bytes` exceeds the largest class, because the pool
/// does not retain such blocks.
fn class_of(bytes: usize) -> Option<usize> {
    let bytes = bytes.max(CLASS_BYTES_MIN);
    let doublings = bytes.ilog2() - CLASS_BYTES_MIN.ilog2();
    let base = CLASS_BYTES_MIN << doublings;
    // Every block is taken and returned by this computation, so it shifts instead of dividing.
    let step_log2 = base.ilog2() - STEPS_PER_DOUBLING.ilog2();
    let steps = (bytes - base + (1 << step_log2) - 1) >> step_log2;
    let class = doublings as usize * STEPS_PER_DOUBLING + steps;
    (class < CLASSES).then_some(class)
}

/// Returns the size of a class's blocks (bytes).
const fn class_bytes(class: usize) -> usize {
    let base = CLASS_BYTES_MIN << (class / STEPS_PER_DOUBLING);
    base + base / STEPS_PER_DOUBLING * (class % STEPS_PER_DOUBLING)
}

/// The size of the smallest blocks (bytes). Smaller values use such a block too. A page holds eight blocks.
const CLASS_BYTES_MIN: usize = 512;

/// The number of size classes per doubling. Four classes waste at most a fifth of a block. One class would waste up
/// to a half.
const STEPS_PER_DOUBLING: usize = 4;

/// The number of size classes. The largest class has 1.75 MiB, so a 1 MiB item with its frame is pooled. Larger
/// blocks return to the allocator.
const CLASSES: usize = 12 * STEPS_PER_DOUBLING;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_grow_and_hold_what_was_asked() {
        for bytes in (1..70_000).chain([1 << 20, (1 << 20) + 64, class_bytes(CLASSES - 1)]) {
            let class = class_of(bytes).expect("within the largest class");
            assert!(class_bytes(class) >= bytes);
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes}: {class} is not tight");
        }
        assert_eq!(class_of(class_bytes(CLASSES - 1) + 1), None);
    }

    #[test]
    fn memory_returns_to_the_pool_with_the_last_clone() {
        let pool = Pool::heap(ByteCount::mib(1));
        let mut buffer = pool.take(4_000);
        buffer.extend(b"hello");
        let bytes = buffer.freeze(0..5);
        let other = bytes.clone();
        drop(bytes);
        assert_ne!(pool.outstanding(), ByteCount(0));
        assert_eq!(&other[..], b"hello");
        drop(other);
        assert_eq!(pool.outstanding(), ByteCount(0));
        assert_eq!(pool.retained(), ByteCount(4_096));
    }

    #[test]
    fn retention_is_bounded_and_large_blocks_are_not_kept() {
        let pool = Pool::heap(ByteCount::kib(8));
        let buffers: Vec<_> = (0..10).map(|_| pool.take(4_096)).collect();
        drop(buffers);
        assert_eq!(pool.retained(), ByteCount::kib(8));
        drop(pool.take(64 << 20));
        assert_eq!(pool.retained(), ByteCount::kib(8));
    }

    #[test]
    fn a_reused_buffer_starts_empty() {
        let pool = Pool::heap(ByteCount::kib(8));
        let mut buffer = pool.take(100);
        buffer.extend(b"secret");
        drop(buffer);
        assert!(pool.take(100).is_empty());
    }

    #[test]
    fn only_bytes_of_another_tenant_are_wiped() {
        let pool = Pool::heap(ByteCount::mib(1));
        // Returns whether the secret is still behind the first four bytes after the block's next buffer was handed to
        // a tenant.
        let left = |secret: &[u8], hand: Option<u16>, next: u16| {
            let mut buffer = pool.take(600);
            if let Some(tenant) = hand {
                buffer.assign_to(TenantId(tenant), 0);
            }
            buffer.space()[10..10 + secret.len()].copy_from_slice(secret);
            drop(buffer);
            let mut buffer = pool.take(600);
            buffer.extend(b"head");
            buffer.assign_to(TenantId(next), 4);
            assert_eq!(&buffer[..], b"head", "a header is whose the buffer is");
            let found = buffer.space()[4..].to_vec();
            found.windows(secret.len()).any(|part| part == secret)
        };
        assert!(left(b"first", Some(1), 1));
        assert!(!left(b"second", Some(1), 2));
        assert!(!left(b"third", Some(2), 1), "and back");
        assert!(!left(b"fourth", None, 1), "whoever it was that read into it");
        // The same buffer is used by one tenant after another, and software is one of the users.
        let mut buffer = Pool::heap(ByteCount::mib(1)).take(600);
        let mut is_left = |lent: u16, next: u16| {
            buffer.lend_to(TenantId(lent));
            buffer.space()[10] = 7;
            buffer.assign_to(TenantId(next), 4);
            buffer.space()[10] == 7
        };
        assert!(is_left(1, 1) && !is_left(2, 1) && is_left(1, 1));
        buffer.adopt(Bytes::from(vec![7; 600]));
        buffer.lend_to(TenantId(1));
        buffer.space()[10] = 7;
        buffer.assign_to(TenantId(2), 4);
        assert_eq!(buffer.space()[10], 0);
        let mut new = Pool::heap(ByteCount(0)).take(600);
        new.space()[10] = 7;
        new.assign_to(TenantId(1), 4);
        assert_eq!(new.space()[10], 0, "whoever wrote, nobody said for whom");
        let mut buffer = Pool::heap(ByteCount(0)).take(600);
        buffer.adopt(Bytes::from_static(b"adopted"));
        buffer.assign_to(TenantId(3), 0);
        assert!(buffer.space().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn adopted_bytes_are_shared_until_they_are_written_to() {
        let pool = Pool::heap(ByteCount::kib(8));
        let given = Bytes::from(vec![7; 1_000]);
        let mut buffer = pool.take(4_000);
        buffer.adopt(given.clone());
        assert_eq!((pool.outstanding(), pool.retained()), (ByteCount(0), ByteCount(4_096)));
        assert_eq!((buffer.len(), buffer.as_ptr()), (1_000, given.as_ptr()));
        buffer.space()[0] = 8;
        assert_eq!((given[0], buffer[0], buffer[999]), (7, 8, 7));
        buffer.adopt(given.clone());
        assert_eq!(pool.outstanding(), ByteCount(0));
        let frozen = buffer.freeze(1..10);
        assert_eq!(frozen.as_ptr(), given[1..].as_ptr());
        drop((frozen, given));
        assert_eq!(pool.outstanding(), ByteCount(0));
    }

    struct Page(Vec<u8>);
    impl AsRef<[u8]> for Page {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl AsMut<[u8]> for Page {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl MemoryBlock for Page {}

    /// Memory of one page that several pools share.
    struct SharedPages(MemoryId, Arc<()>);
    struct SharedPage {
        page: Page,
        _out: Arc<()>,
    }
    impl AsRef<[u8]> for SharedPage {
        fn as_ref(&self) -> &[u8] {
            self.page.as_ref()
        }
    }
    impl AsMut<[u8]> for SharedPage {
        fn as_mut(&mut self) -> &mut [u8] {
            self.page.as_mut()
        }
    }
    impl MemoryBlock for SharedPage {}
    impl Memory for SharedPages {
        fn id(&self) -> MemoryId {
            self.0
        }
        fn allocate(&self, bytes: usize) -> Option<Box<dyn MemoryBlock>> {
            let is_free = Arc::strong_count(&self.1) == 1;
            let page = || SharedPage { page: Page(vec![0; bytes]), _out: Arc::clone(&self.1) };
            is_free.then(|| Box::new(page()) as Box<dyn MemoryBlock>)
        }
        fn is_shared(&self) -> bool {
            true
        }
    }

    #[test]
    fn shared_memory_of_an_idle_pool_serves_another() {
        let memory = Arc::new(SharedPages(MemoryId::unique(), Arc::new(())));
        let [idle, busy] = [(); 2].map(|()| Pool::registered(memory.clone(), ByteCount::mib(8)));
        let first = idle.take(1_000);
        assert_eq!((first.memory(), busy.take(1_000).memory()), (memory.id(), MemoryId::HEAP));
        drop(first);
        assert_eq!((idle.retained(), idle.outstanding()), (ByteCount(0), ByteCount(0)));
        assert_eq!(busy.take(1_000).memory(), memory.id());
    }

    struct OnePage(MemoryId, AtomicUsize);
    impl Memory for OnePage {
        fn id(&self) -> MemoryId {
            self.0
        }
        fn allocate(&self, bytes: usize) -> Option<Box<dyn MemoryBlock>> {
            let first = self.1.fetch_add(1, Ordering::Relaxed) == 0;
            first.then(|| Box::new(Page(vec![0; bytes])) as Box<dyn MemoryBlock>)
        }
    }

    #[test]
    fn exhausted_registered_memory_falls_back_to_the_heap() {
        let id = MemoryId::unique();
        let memory = Arc::new(OnePage(id, AtomicUsize::new(0)));
        let pool = Pool::registered(memory, ByteCount::kib(8));
        let first = pool.take(1_000);
        let second = pool.take(1_000);
        assert_eq!((first.memory(), second.memory()), (id, MemoryId::HEAP));
        let held = pool.outstanding();
        assert!(pool.take_registered(1_000).is_none());
        assert_eq!(pool.outstanding(), held, "nothing is taken for what is not to be had");
        assert_eq!(Input::pooled(first, 0..0).memory(), id);
        drop(second);
        // Each block is reused only within its own kind of memory.
        assert_eq!(pool.take_heap(1_000).memory(), MemoryId::HEAP);
        assert_eq!(pool.take_registered(1_000).map(|buffer| buffer.memory()), Some(id));
        assert_eq!(pool.take(1_000).memory(), id);
    }
}
