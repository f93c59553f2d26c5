//! A table that maps the hash of an input to its result. Its size is bounded. It remembers the results and
//! the errors of the software codec, but no transient faults.

use bytes::Bytes;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use units::ByteCount;
use xxhash_rust::xxh3::xxh3_128;

/// Identifies an input and the work that was done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    hash: u128,
    input_bytes: usize,
    /// The stated size of the result of a decompression, or none for a compression.
    original_bytes: Option<usize>,
}

impl Key {
    pub(super) fn compress(input: &[u8]) -> Self {
        Self { hash: xxh3_128(input), input_bytes: input.len(), original_bytes: None }
    }

    pub(super) fn decompress(stream: &[u8], original_bytes: usize) -> Self {
        Self { original_bytes: Some(original_bytes), ..Self::compress(stream) }
    }
}

/// The remembered result of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remembered {
    /// The result.
    Result(Bytes),
    /// The codec's error for an invalid stream.
    Invalid(&'static str),
}

/// The bounded table.
pub(super) struct Table(Cache<Key, Remembered, Weight>);

impl Table {
    pub(super) fn new(bytes_max: ByteCount) -> Self {
        let bytes = bytes_max.0;
        let options = OptionsBuilder::new()
            .shards((bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX) as usize)
            .estimated_items_capacity((bytes / ITEM_BYTES_TYPICAL) as usize)
            .weight_capacity(bytes)
            .build()
            .expect("both capacities are given");
        let (hasher, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self(Cache::with_options(options, Weight, hasher, lifecycle))
    }

    pub(super) fn get(&self, key: &Key) -> Option<Remembered> {
        self.0.get(key)
    }

    pub(super) fn remember(&self, key: Key, remembered: Remembered) {
        self.0.insert(key, remembered);
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.0.weight()
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Key, Remembered> for Weight {
    fn weight(&self, _: &Key, remembered: &Remembered) -> u64 {
        let bytes = match remembered {
            Remembered::Result(bytes) => bytes.len() as u64,
            Remembered::Invalid(_) => 0,
        };
        bytes + ITEM_OVERHEAD_BYTES
    }
}

/// The memory of an item besides its bytes, rounded up: a key, a slab entry, a hash slot and the allocation's header.
const ITEM_OVERHEAD_BYTES: u64 = 192;

/// The typical size of an item. It only decides the table's first size; the table grows and shrinks with its content.
const ITEM_BYTES_TYPICAL: u64 = 4_096;

/// The smallest shard (bytes). Several of the largest results fit into it.
const SHARD_BYTES_MIN: u64 = 16 << 20;
const SHARDS_MAX: u64 = 16;
