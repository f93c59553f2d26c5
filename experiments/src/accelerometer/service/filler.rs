//! Filler work, which replaces the service in a microbenchmark and calls no kernel. It reads the bytes of a
//! request, computes their checksum and copies them to one buffer, repeatedly until it takes as long as the
//! service. The core's caches are therefore as busy as with the service, and a thread uses no more memory.

use std::hint::black_box;

/// The buffer for the bytes that were read, and the amount of work that is still to be done.
#[derive(Default)]
pub(crate) struct Filler {
    buffer: Vec<u8>,
    /// The work that is still to be done, in bytes times pieces per MiB. One piece is `MIB` of these units.
    owed: u64,
}

impl Filler {
    /// Does `pieces_per_mib` pieces of work for each MiB of `bytes`. It reads them from the start, and repeats them if
    /// there are more pieces than bytes.
    pub(crate) fn spend(&mut self, bytes: &[u8], pieces_per_mib: u64) {
        if bytes.is_empty() {
            return;
        }
        self.owed += bytes.len() as u64 * pieces_per_mib;
        let pieces = self.owed / MIB;
        self.owed %= MIB;
        for piece in 0..pieces as usize {
            let start = piece % bytes.len().div_ceil(PIECE_BYTES) * PIECE_BYTES;
            if start == 0 {
                self.buffer.clear();
            }
            let end = (start + PIECE_BYTES).min(bytes.len());
            self.buffer.extend_from_slice(&bytes[start..end]);
            black_box(crc32c::crc32c(&self.buffer[start..]));
        }
    }
}

/// The size of a piece, which takes a few hundred nanoseconds.
const PIECE_BYTES: usize = 1 << 10;
const MIB: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_owed_until_they_are_whole() {
        let mut filler = Filler::default();
        filler.spend(&[1; 300], 1_024);
        assert!(filler.buffer.is_empty(), "300 of 1,024 bytes of work");
        (0..3).for_each(|_| filler.spend(&[1; 300], 1_024));
        assert_eq!((filler.buffer.len(), filler.owed), (300, (1_200 - 1_024) * 1_024));
        // The bytes have three pieces and five are done: all three once, and the first two again.
        let mut filler = Filler::default();
        filler.spend(&[2; 2_500], 2_048 + 100);
        assert_eq!(filler.buffer.len(), 2_048);
        filler.spend(&[], 1_024);
    }
}
