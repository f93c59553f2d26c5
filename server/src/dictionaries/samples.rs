//! Samples of the values of one class, on which a dictionary is trained. A set of samples is filled, taken by the
//! trainer, and filled again. It has at most one value per key, because the same value twice would make a dictionary
//! look better than it is.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use policy::trials::{SAMPLES_BYTES_MAX, SAMPLES_MAX, SAMPLES_MIN};

/// The values that were sampled since the last training.
#[derive(Debug, Default)]
pub(super) struct Samples {
    values: Vec<Box<[u8]>>,
    keys: HashSet<u64>,
    bytes: usize,
}

impl Samples {
    /// Adds a value of the key with this hash, unless the set is full, has the key, or the memory of all samples is
    /// spent.
    pub(super) fn add(&mut self, key_hash: u64, value: &[u8], memory: &SampleMemory) {
        if self.is_full() || self.keys.contains(&key_hash) {
            return;
        }
        let bytes = value.len() + SAMPLE_OVERHEAD_BYTES;
        if memory.take(bytes) {
            self.keys.insert(key_hash);
            self.values.push(value.into());
            self.bytes += bytes;
        }
    }

    /// Returns whether the set takes no more values.
    pub(super) fn is_full(&self) -> bool {
        self.values.len() >= SAMPLES_MAX || self.bytes >= SAMPLES_BYTES_MAX
    }

    /// Returns whether there are enough values to train on. Where there is memory for few, fewer have to do.
    pub(super) fn is_enough(&self, memory: &SampleMemory) -> bool {
        let count = self.values.len();
        count >= SAMPLES_MIN || count >= SAMPLES_LEAST && self.bytes >= memory.limit_bytes / 2
    }

    /// Returns whether the memory for samples is too small for enough values of this size.
    pub(super) fn cannot_suffice(&self, memory: &SampleMemory) -> bool {
        let count = self.values.len();
        let fills_half = self.bytes >= memory.limit_bytes / 2;
        count < SAMPLES_LEAST
            && fills_half
            && self.bytes / count.max(1) * SAMPLES_LEAST > memory.limit_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Takes all values out and returns their memory.
    pub(super) fn take(&mut self, memory: &SampleMemory) -> Vec<Box<[u8]>> {
        memory.put(self.bytes);
        let taken = std::mem::take(self);
        taken.values
    }
}

/// The memory of the samples of all classes.
#[derive(Debug)]
pub(super) struct SampleMemory {
    used_bytes: AtomicUsize,
    limit_bytes: usize,
}

impl SampleMemory {
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { used_bytes: AtomicUsize::new(0), limit_bytes }
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns whether hardly any sample fits, so that sets have to be taken before they are full.
    pub(super) fn is_tight(&self) -> bool {
        self.used_bytes() + SAMPLES_BYTES_MAX / 4 > self.limit_bytes
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes <= self.limit_bytes {
            return true;
        }
        self.put(bytes);
        false
    }

    fn put(&self, bytes: usize) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The fewest samples of one training if they fill half of the memory for samples.
const SAMPLES_LEAST: usize = 50;

/// The memory of a sample besides its bytes: its entries in the list and in the set of keys, and the allocator's share.
const SAMPLE_OVERHEAD_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sampled_once_until_the_samples_are_taken() {
        let (mut samples, memory) = (Samples::default(), SampleMemory::new(1 << 20));
        for _ in 0..3 {
            samples.add(7, b"value", &memory);
        }
        assert_eq!(samples.len(), 1);
        assert_eq!(samples.take(&memory).len(), 1);
        samples.add(7, b"value", &memory);
        assert_eq!(samples.len(), 1);
    }

    #[test]
    fn memory_is_bounded_and_returned() {
        let memory = SampleMemory::new(10_000);
        let mut samples = Samples::default();
        for key in 0..1_000 {
            samples.add(key, &[0; 952], &memory);
        }
        assert_eq!(samples.len(), 10);
        assert_eq!(memory.used_bytes(), 10_000);
        assert!(memory.is_tight());
        samples.take(&memory);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn a_set_is_full_by_count_or_bytes() {
        let memory = SampleMemory::new(64 << 20);
        let (mut short, mut long) = (Samples::default(), Samples::default());
        for key in 0..2_000 {
            short.add(key, b"x", &memory);
            long.add(key, &[0; 4_096], &memory);
        }
        assert_eq!(short.len(), SAMPLES_MAX);
        assert!(long.is_full() && long.len() < 200);
    }
}
