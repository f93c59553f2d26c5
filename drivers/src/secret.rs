//! Memory for secrets: pages of their own that core dumps leave out, that are not swapped out if the system allows it,
//! and that are wiped before they are released.

use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

use device::cipher::KEY_BYTES;
use device::{ExpandedKey, Key};
use rustix::mm::{MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use zeroize::Zeroize;

/// Expands a key into guarded memory.
///
/// # Errors
/// Fails if the system gives no memory, or cannot leave it out of core dumps.
pub fn key(bytes: &[u8; KEY_BYTES]) -> io::Result<Key> {
    Guarded::new(|| ExpandedKey::new(bytes)).map(Key::in_memory)
}

/// A value in memory of its own, which is wiped when the value is dropped.
pub struct Guarded<T> {
    value: NonNull<T>,
    bytes: usize,
}

impl<T> Guarded<T> {
    /// Makes a value and moves it into its memory. The copy that `make` leaves on the stack is overwritten.
    ///
    /// # Errors
    /// Fails if the system gives no memory, or cannot leave it out of core dumps.
    pub fn new(make: impl FnOnce() -> T) -> io::Result<Self> {
        const { assert!(align_of::<T>() <= PAGE_BYTES_MIN) };
        let bytes = size_of::<T>().max(1);
        let (protection, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the address of a new mapping, so that no other memory is replaced.
        let address = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, kind) }?;
        let pages =
            Pages { address: NonNull::new(address.cast()).ok_or(io::ErrorKind::Other)?, bytes };
        leave_out_of_dumps(&pages)?;
        // SAFETY: the range is the mapping of `pages`. Locking it changes no content. It is an improvement only: the
        // system allows a process few locked pages.
        let _ = unsafe { mlock(address, bytes) };
        let value = pages.address.cast();
        // SAFETY: the pages can be written, belong to this function alone, have room for a `T`, and begin at the start
        // of a page, which suits every alignment up to that of a page.
        write(make, |made| unsafe { value.write(made) });
        overwrite_stack();
        std::mem::forget(pages);
        Ok(Self { value, bytes })
    }
}

/// The frame of this function has the value for a moment. `overwrite_stack` overwrites it afterwards.
#[inline(never)]
fn write<T>(make: impl FnOnce() -> T, put: impl FnOnce(T)) {
    put(make());
}

/// Overwrites the part of the stack that functions called before have used.
#[inline(never)]
fn overwrite_stack() {
    let mut used = [0xA5_u8; STACK_BYTES];
    used.zeroize();
    std::hint::black_box(&used);
}

#[cfg(target_os = "linux")]
fn leave_out_of_dumps(pages: &Pages) -> io::Result<()> {
    // SAFETY: the range is the mapping of `pages`. The advice changes what a core dump contains, and no content.
    unsafe {
        let advice = rustix::mm::Advice::LinuxDontDump;
        madvise(pages.address.as_ptr().cast(), pages.bytes, advice)?;
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn leave_out_of_dumps(_: &Pages) -> io::Result<()> {
    Err(io::Error::other("this system cannot leave memory out of core dumps"))
}

impl<T> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` wrote a value there, and only `drop` takes it away.
        unsafe { self.value.as_ref() }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: `new` wrote a value there. Nobody can use it any more.
        unsafe { self.value.drop_in_place() };
        drop(Pages { address: self.value.cast(), bytes: self.bytes });
    }
}

// SAFETY: a `Guarded` owns its value like a `Box`, and gives out only shared references to it.
unsafe impl<T: Send> Send for Guarded<T> {}
// SAFETY: see above.
unsafe impl<T: Sync> Sync for Guarded<T> {}

/// A mapping, which is wiped and released when this is dropped.
struct Pages {
    address: NonNull<u8>,
    bytes: usize,
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping can be written, is this long and belongs to this value alone, and any bytes are valid
        // `u8`s.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.bytes) }.zeroize();
        // SAFETY: the range is one that `mmap_anonymous` returned, and nobody has a reference into it.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// The smallest page of any system (bytes).
const PAGE_BYTES_MIN: usize = 4096;

/// The stack that the expansion of a key uses at most, with a margin (bytes).
const STACK_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use device::software::Software;
    use device::{AssociatedData, Device, Input, Job, Nonce, Pool, Task};
    use units::ByteCount;

    use super::*;

    #[test]
    fn a_key_in_guarded_memory_is_the_same_key() {
        let bytes = [9; KEY_BYTES];
        let guarded = sealed_by(key(&bytes).expect("memory"));
        assert_eq!(guarded, sealed_by(Key::new(&bytes)));
        assert_ne!(guarded, sealed_by(Key::new(&[8; KEY_BYTES])));
    }

    fn sealed_by(key: Key) -> Vec<u8> {
        let task = Task::Encrypt { key, nonce: Nonce([1; 12]), associated: AssociatedData::NONE };
        let output = Pool::heap(ByteCount(0)).take(100);
        let job = Job::new(task, Input::heap(b"hello"[..].into()), output);
        let mut queue = Software::default().open_queue(Waker::noop().clone()).expect("a queue");
        queue.try_submit(Box::new(job)).expect("software does every kernel");
        let mut done = Vec::new();
        queue.poll(&mut done);
        done.pop().expect("it is done inline").job.output.to_vec()
    }

    #[test]
    fn the_value_is_dropped_once() {
        struct Counts<'a>(&'a AtomicUsize);
        impl Drop for Counts<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let drops = AtomicUsize::new(0);
        let guarded = Guarded::new(|| Counts(&drops)).expect("memory");
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(guarded);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn core_dumps_leave_the_memory_out() {
        let guarded = Guarded::new(|| [7_u8; 300]).expect("memory");
        let address = guarded.value.as_ptr() as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
        let mut flags = None;
        let mut is_here = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            if let Some((start, end)) = range
                && let Ok(start) = usize::from_str_radix(start, 16)
                && let Ok(end) = usize::from_str_radix(end, 16)
            {
                is_here = (start..end).contains(&address);
            }
            if let (true, Some(found)) = (is_here, line.strip_prefix("VmFlags:")) {
                flags = Some(found.to_owned());
            }
        }
        let flags = flags.expect("the mapping is listed");
        assert!(flags.split_whitespace().any(|flag| flag == "dd"), "{flags}");
        assert_eq!(*guarded, [7; 300]);
    }
}
