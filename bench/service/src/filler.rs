//! Work of a known length that stands for a service in a microbenchmark: it checks values and copies them, through as
//! much memory as keeps a core's own caches as busy as a service does, and offloads nothing.

use std::hint::black_box;

use bytes::Bytes;

use crate::load::Load;

/// Values to read, piece by piece, and where to copy them.
pub(crate) struct Filler {
    values: Vec<Bytes>,
    value: usize,
    offset: usize,
    ring: Vec<u8>,
    at: usize,
}

impl Filler {
    /// Over the load's values.
    pub(crate) fn new(load: &Load) -> Self {
        let values = load.sets().map(|set| set.value.clone()).collect();
        Self { values, value: 0, offset: 0, ring: vec![0; RING_BYTES], at: 0 }
    }

    /// So many pieces.
    pub(crate) fn spend(&mut self, pieces: u64) {
        for _ in 0..pieces {
            let Some(value) = self.values.get(self.value) else { return };
            let end = (self.offset + PIECE_BYTES).min(value.len());
            let piece = &value[self.offset..end];
            let place = &mut self.ring[self.at..self.at + piece.len()];
            place.copy_from_slice(piece);
            black_box(crc32c::crc32c(place));
            self.at = (self.at + PIECE_BYTES) % RING_BYTES;
            self.offset = end;
            if end == value.len() {
                self.offset = 0;
                self.value = (self.value + 1) % self.values.len();
            }
        }
    }
}

/// A piece takes some hundred nanoseconds.
const PIECE_BYTES: usize = 1 << 10;
/// A core's second cache, of the machines that there are today.
const RING_BYTES: usize = 1 << 20;
