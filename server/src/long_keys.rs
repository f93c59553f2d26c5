//! The keys whose values were long when a worker last saw them. Gets of these keys use the connections for
//! long transfers, whichever client sends them. All workers share this table of hashes. New keys replace old
//! ones.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A lossy set of keys.
pub(crate) struct LongKeys {
    /// The tags of the keys (the high bits of their hashes), indexed by the low bits. 0 means no key.
    tags: Box<[AtomicU32]>,
    count: AtomicUsize,
    hasher: RandomState,
}

impl Default for LongKeys {
    fn default() -> Self {
        Self {
            tags: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
            count: AtomicUsize::new(0),
            hasher: RandomState::new(),
        }
    }
}

impl LongKeys {
    /// Returns whether the set is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns whether any of `keys` is in the set. It hashes no key while the set is empty.
    #[inline]
    pub(crate) fn contains_any<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> bool {
        !self.is_empty() && self.contains_any_known(keys)
    }

    #[cold]
    fn contains_any_known<'a>(&self, keys: impl IntoIterator<Item = &'a [u8]>) -> bool {
        keys.into_iter().any(|key| {
            let (known, tag) = self.place(key);
            known.load(Ordering::Relaxed) == tag
        })
    }

    /// Records the length of a key's value.
    #[cold]
    pub(crate) fn note(&self, key: &[u8], value_bytes: usize) {
        let (known, tag) = self.place(key);
        if value_bytes >= LONG_BYTES {
            if known.swap(tag, Ordering::Relaxed) == 0 {
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        } else if known.compare_exchange(tag, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the entry of the table for a key, and the key's tag.
    fn place(&self, key: &[u8]) -> (&AtomicU32, u32) {
        let hash = self.hasher.hash_one(key);
        (&self.tags[hash as usize % PLACES], (hash >> 32) as u32 | 1)
    }
}

/// The size from which a value is long (bytes). Short requests should not queue behind such an answer.
pub(crate) const LONG_BYTES: usize = 64 << 10;

/// The number of entries of the table, which takes 32 KiB.
const PLACES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_while_its_value_is_long() {
        let known = LongKeys::default();
        let long = |key: &[u8]| known.contains_any([key]);
        known.note(b"a", LONG_BYTES);
        known.note(b"b", LONG_BYTES - 1);
        assert!(long(b"a") && !long(b"b") && known.contains_any([&b"b"[..], b"a"]));
        known.note(b"a", 10);
        assert!(!long(b"a") && known.is_empty());
    }

    #[test]
    fn many_keys_take_no_more_room() {
        let known = LongKeys::default();
        for index in 0..100_000u32 {
            known.note(&index.to_le_bytes(), LONG_BYTES);
        }
        assert!(known.count.load(Ordering::Relaxed) <= PLACES);
        for index in 0..100_000u32 {
            known.note(&index.to_le_bytes(), 1);
        }
        assert!(known.is_empty());
    }
}
