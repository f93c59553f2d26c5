//! CRC-32C in two implementations with the same result: a bytewise table, and the processor's instruction.

use crc::{CRC_32_ISCSI, Crc, Table};

/// The implementation of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// A table of 1 KiB.
    Table,
    /// The instruction of SSE 4.2, which runs on three streams at once.
    Processor,
}

impl Checksum {
    /// Returns the checksum of these bytes.
    pub(crate) fn crc32c(self, bytes: &[u8]) -> u32 {
        match self {
            Checksum::Table => TABLE.checksum(bytes),
            Checksum::Processor => crc32c::crc32c(bytes),
        }
    }
}

static TABLE: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISCSI);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_one_result() {
        let bytes: Vec<u8> = (0..5_000u32).map(|index| ((index * index) >> 3) as u8).collect();
        for length in (0..100).chain([1_023, 5_000]) {
            let bytes = &bytes[..length];
            assert_eq!(
                Checksum::Table.crc32c(bytes),
                Checksum::Processor.crc32c(bytes),
                "{length} bytes"
            );
        }
        assert_eq!(Checksum::Table.crc32c(b"123456789"), 0xE306_9283);
    }
}
