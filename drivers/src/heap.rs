//! Tunes the C library's heap for the large blocks that every request takes and gives back: values and messages. By
//! default the heap returns them to the system and gets fresh pages for the next one, with a page fault for every 4
//! KiB. The module changes two settings of glibc, and nothing with another library.

/// Makes the heap keep blocks of up to 4 MiB for the next request, and up to 16 MiB in all at the end of each of its
/// arenas. Call it once, before the program has threads. Returns whether the library took the settings. A setting that
/// the operator has made (`MALLOC_MMAP_THRESHOLD_`, `MALLOC_TRIM_THRESHOLD_`) is kept.
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

/// Returns the memory that the heap keeps and nobody uses to the system, and says whether there was any. It walks the
/// whole heap, and threads that allocate wait for it, a part of the heap at a time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back() -> bool {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> i32;
    }
    // SAFETY: glibc's own function, which takes the locks of what it walks; it touches free memory only.
    unsafe { malloc_trim(0) == 1 }
}

/// Does nothing, because the library is another one.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() -> bool {
    false
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn set(_: i32, _: i32) -> bool {
    false
}

/// glibc's numbers for them.
const M_TRIM_THRESHOLD: i32 = -1;
const M_MMAP_THRESHOLD: i32 = -3;

/// Larger values are rare and pay for their pages.
const MMAP_THRESHOLD_BYTES: i32 = 4 << 20;

const TRIM_THRESHOLD_BYTES: i32 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn the_library_takes_both() {
        assert!(keep_large_blocks());
    }
}
