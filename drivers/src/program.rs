//! Releases the pages of the program and its libraries that rare work needed, such as the start. The system maps many
//! pages around each one that runs, and counts them as the process's memory for ever, although it can map them from the
//! file again.

use std::ops::Range;
#[cfg(target_os = "linux")]
use std::sync::OnceLock;

/// Unmaps the unchanged pages of the executable and of the C library if files take more than `resident_max` bytes of
/// the process's memory. Those that are needed come back, most without I/O, because they stay in the file cache.
/// Returns the bytes of the mappings, or 0 if nothing was unmapped.
#[cfg(target_os = "linux")]
pub fn release_pages(resident_max: usize) -> usize {
    // To look at the pages takes long in a process with much memory. Nothing changes those of the program later.
    static UNCHANGED: OnceLock<Vec<Range<usize>>> = OnceLock::new();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if resident_file_bytes(&status).is_none_or(|bytes| bytes <= resident_max) {
        return 0;
    }
    let unchanged = UNCHANGED.get_or_init(unchanged_mappings).iter();
    unchanged.filter(|mapping| release(mapping)).map(|mapping| mapping.len()).sum()
}

/// Returns the memory that mapped files take, from the text of `/proc/self/status`.
#[cfg(target_os = "linux")]
fn resident_file_bytes(status: &str) -> Option<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok().map(|kib| kib << 10)
}

#[cfg(target_os = "linux")]
fn unchanged_mappings() -> Vec<Range<usize>> {
    let Ok(executable) = std::fs::read_link("/proc/self/exe") else { return Vec::new() };
    let executable = executable.to_string_lossy();
    let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    unchanged_pages(&mappings, |path| path == executable || is_c_library(path))
}

/// Does nothing, because the system is not Linux. Returns 0.
#[cfg(not(target_os = "linux"))]
pub fn release_pages(_resident_max: usize) -> usize {
    0
}

#[cfg(target_os = "linux")]
fn release(mapping: &Range<usize>) -> bool {
    use rustix::mm::{Advice, madvise};
    // SAFETY: the mapping is private, of the executable or the C library, and cannot be written; nothing unmaps it or
    // makes it writable while the program runs. The kernel reported neither a page in memory nor one in swap that
    // differs from the file, as relocation makes them before it protects a mapping. So the next access maps the same
    // bytes.
    unsafe { madvise(mapping.start as *mut _, mapping.len(), Advice::LinuxDontNeed) }.is_ok()
}

/// Returns the addresses of the mappings in the text of `/proc/self/smaps` that are private, belong to this file,
/// cannot be written and have no page that differs from the file.
fn unchanged_pages(mappings: &str, is_program: impl Fn(&str) -> bool) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut current: Option<(Range<usize>, u32)> = None;
    for line in mappings.lines() {
        let Some((name, size)) = line.split_once(':').filter(|(name, _)| !name.contains(' '))
        else {
            current = read_only(line, &is_program).map(|mapping| (mapping, 0));
            continue;
        };
        if !matches!(name, "Anonymous" | "Swap") {
            continue;
        }
        current = current.filter(|_| size.trim() == "0 kB");
        if let Some((mapping, facts)) = &mut current {
            *facts += 1;
            if *facts == 2 {
                found.push(mapping.clone());
            }
        }
    }
    found
}

/// Returns whether a file is a library that the loader maps before the program runs and never unmaps.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
fn is_c_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    ["libc.so.", "libm.so.", "libgcc_s.so.", "ld-linux"].iter().any(|begin| name.starts_with(begin))
}

/// Returns the addresses if the line is the first one of a mapping that is private, of this file, and read-only.
fn read_only(line: &str, is_program: impl Fn(&str) -> bool) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (addresses, permissions) = (fields.next()?, fields.next()?);
    let path = fields.nth(3)?;
    let (begin, end) = addresses.split_once('-')?;
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    let is_read_only = matches!(permissions, "r-xp" | "r--p") && is_program(path);
    is_read_only.then_some(address(begin)?..address(end)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unchanged_pages_of_the_file_are_released() {
        let mapping = |head: &str, anonymous: u32, swap: u32| {
            format!(
                "{head}\nSize: 8 kB\nAnonymous: {anonymous} kB\nSwap:  {swap} kB\nVmFlags: rd\n"
            )
        };
        let mappings = [
            mapping("1000-3000 r--p 00000000 08:01 7   /usr/bin/program", 0, 0),
            mapping("3000-4000 r-xp 00000000 08:01 7   /usr/bin/program", 0, 0),
            mapping("4000-6000 r--p 00000000 08:01 7   /usr/bin/program", 8, 0),
            mapping("6000-7000 r--p 00000000 08:01 7   /usr/bin/program", 0, 4),
            mapping("7000-8000 rw-p 00000000 08:01 7   /usr/bin/program", 0, 0),
            mapping("8000-9000 r--p 00000000 00:00 0", 0, 0),
            mapping("9000-a000 r--s 00000000 08:01 7   /usr/bin/program", 0, 0),
            mapping("a000-b000 r--p 00000000 08:01 8   /usr/lib/libc.so.6", 0, 0),
        ];
        let is_program = |path: &str| path == "/usr/bin/program";
        let found = unchanged_pages(&mappings.concat(), is_program);
        assert_eq!(found, [0x1000..0x3000, 0x3000..0x4000]);
        let found = unchanged_pages(&mappings.concat(), is_c_library);
        assert_eq!(found, [Range { start: 0xa000, end: 0xb000 }]);
        let garbage = "garbage\nAnonymous: 0 kB\nx-y r--p 0 0 0 /usr/bin/program\nAnonymous: 0 kB\nSwap: 0 kB";
        assert!(unchanged_pages(garbage, is_program).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_memory_of_files_is_read() {
        let status = "RssAnon:\t     100 kB\nRssFile:\t    6012 kB\nRssShmem:\t       0 kB\n";
        assert_eq!(resident_file_bytes(status), Some(6_012 << 10));
        assert_eq!(resident_file_bytes("RssFile:\tmuch\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_program_runs_on_after_the_release() {
        let text: Vec<String> = (0..1_000).map(|number: u32| number.to_string()).collect();
        assert_eq!(release_pages(usize::MAX), 0);
        assert!(release_pages(0) > 0);
        let again: Vec<String> = (0..1_000).map(|number: u32| number.to_string()).collect();
        assert_eq!(text, again);
    }
}
