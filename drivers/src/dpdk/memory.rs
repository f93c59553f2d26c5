//! EAL's heap as memory for pools. Every DPDK device can access it, so hardware uses the buffers of such a
//! pool without a copy. The memory is in huge pages if EAL has any, and each new block is zeroed.

use std::ptr::NonNull;
use std::slice;

use device::{Memory, MemoryBlock, MemoryId};

use super::Eal;
use super::sys;

/// EAL's heap as memory for pools.
#[derive(Debug)]
pub(super) struct EalMemory {
    id: MemoryId,
}

impl EalMemory {
    pub(super) fn new(_runs: Eal) -> Self {
        Self { id: MemoryId::unique() }
    }
}

impl Memory for EalMemory {
    fn id(&self) -> MemoryId {
        self.id
    }

    fn allocate(&self, bytes: usize) -> Option<Box<dyn MemoryBlock>> {
        let bytes = bytes.max(1);
        // SAFETY: EAL runs, because otherwise there would be no `EalMemory`. Any size is allowed, and null means that
        // there is no memory.
        let start = unsafe { sys::rebate_dpdk_allocate(bytes) };
        let start = NonNull::new(start.cast())?;
        Some(Box::new(Block { start, bytes }))
    }
}

struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the block is the only owner of its memory, which any thread may use and free.
unsafe impl Send for Block {}
// SAFETY: a shared block is only read.
unsafe impl Sync for Block {}

impl MemoryBlock for Block {}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start` has `bytes` bytes that the shim zeroed, exclusive to this block.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the memory is from `rebate_dpdk_allocate` and nothing refers to it any more.
        unsafe { sys::rebate_dpdk_release(self.start.as_ptr().cast()) }
    }
}
