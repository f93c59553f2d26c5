//! Files under a root that are like the kernel's attributes: they are small, have one value each, and are often
//! absent. A file that cannot be read counts as absent.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The files under a root.
pub(super) struct Files {
    root: PathBuf,
}

impl Files {
    pub(super) fn under(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns the start of a file without the whitespace at both ends.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.path(path)).ok()?.take(TEXT_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Reads a number that is decimal or begins with `0x`.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        number(&self.text(path)?)
    }

    /// Returns the sorted names in a folder. Links count under their own names.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the last part of the path that a link leads to.
    pub(super) fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }
}

/// Parses a number that is decimal or begins with `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The largest number of bytes that are read of a file. Only /proc/cpuinfo may be longer, and its first
/// processors are enough.
const TEXT_BYTES_MAX: u64 = 64 << 10;
