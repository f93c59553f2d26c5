//! CRC-32C, which covers stored values and the chunks of snapshots.

use crc_fast::{CrcAlgorithm, Digest};

/// Returns the checksum of bytes in front of `bytes`, whose checksum is `before`, and of `bytes`.
#[inline]
pub(crate) fn append(before: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < FOLDED_BYTES_MIN {
        return crc32c::crc32c_append(before, bytes);
    }
    // RFC 3720 defines CRC-32C for iSCSI. A state is the checksum before its last inversion.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// Returns the checksum of the bytes.
#[inline]
pub(crate) fn of_bytes(bytes: &[u8]) -> u32 {
    append(0, bytes)
}

/// The size from which folding is faster than the processor's instruction (bytes). On an AMD EPYC (family 26 model 2,
/// 2026-11-30, a loop over one buffer) it took 17 and not 29 ns for 200 bytes, and 20 and not 14 ns for 64.
const FOLDED_BYTES_MIN: usize = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_value_is_that_of_the_catalogue() {
        assert_eq!(of_bytes(b"123456789"), 0xE306_9283);
    }

    proptest! {
        #[test]
        fn both_ways_give_the_same(
            before in any::<u32>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..2_000),
        ) {
            prop_assert_eq!(append(before, &bytes), crc32c::crc32c_append(before, &bytes));
        }
    }
}
