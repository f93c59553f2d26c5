//! Tunes the C library's heap for the large blocks that every request allocates and frees: values and messages. By
//! default the heap returns such blocks to the system and gets fresh pages for the next request, with a page fault
//! per 4 KiB. The module changes two settings of glibc. It changes nothing with other libraries.

/// Makes the heap store freed blocks of up to 4 MiB for the next request, and up to 16 MiB in total at the end of
/// each arena. Returns whether the library accepted the settings. Call it once, before the program has threads. The
/// settings of the operator (`MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`) take precedence.
pub fn keep_large_blocks() -> bool {
    let settings = [
        ("MALLOC_MMAP_THRESHOLD_", M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES),
        ("MALLOC_TRIM_THRESHOLD_", M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES),
    ];
    let asked_for = |name: &str| std::env::var_os(name).is_some();
    settings.into_iter().all(|(name, setting, bytes)| asked_for(name) || set(setting, bytes))
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set(setting: i32, bytes: i32) -> bool {
    unsafe extern "C" {
        fn mallopt(setting: i32, value: i32) -> i32;
    }
    // SAFETY: glibc's own function with its own two integers; it locks what it changes.
    unsafe { mallopt(setting, bytes) == 1 }
}

/// Returns the heap's unused memory to the system. Returns whether there was any. The call locks and walks
/// one part of the heap after another, so threads that allocate may wait for it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn trim() -> bool {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> i32;
    }
    trim_thread();
    // SAFETY: this is glibc's own function. It takes the locks of the parts that it walks and touches free memory
    // only.
    unsafe { malloc_trim(0) == 1 }
}

/// Returns the end of this thread's arena to the system, which `malloc_trim` leaves alone unless it is the main
/// thread's. The library returns it when a block is freed while the end is longer than the threshold. No other thread
/// waits.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim_thread() {
    if std::env::var_os("MALLOC_TRIM_THRESHOLD_").is_none() && set(M_TRIM_THRESHOLD, PAGE_BYTES) {
        drop(std::hint::black_box(vec![1_u8; CONSOLIDATED_BYTES]));
        set(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
    }
}

/// Does nothing, because the C library is not glibc. Returns false.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn trim() -> bool {
    false
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn set(_: i32, _: i32) -> bool {
    false
}

/// glibc's numbers of the two settings.
const M_TRIM_THRESHOLD: i32 = -1;
const M_MMAP_THRESHOLD: i32 = -3;

/// The largest block that the heap stores (bytes). Larger values are rare, so they may take fresh pages.
const MMAP_THRESHOLD_BYTES: i32 = 4 << 20;

const TRIM_THRESHOLD_BYTES: i32 = 16 << 20;

/// The threshold during [`trim`].
const PAGE_BYTES: i32 = 4 << 10;

/// A block that is long enough for the library to look at the end of the arena when it is freed (above 64 KiB).
const CONSOLIDATED_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn the_library_takes_both() {
        assert!(keep_large_blocks());
    }
}
