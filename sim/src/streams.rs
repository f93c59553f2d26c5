//! Independent streams of random numbers, one per purpose and replication. A stream is found by its name and not by its
//! position. Two architectures with the same purpose `arrivals.web` therefore share its draws, so common random numbers
//! need no bookkeeping. A station that only one architecture has does not shift the draws of other stations.

use units::Prng;

use crate::Draws;

/// The streams of one replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    seed: u64,
    replication: u32,
}

impl Streams {
    /// Returns the streams of replication number `replication` under `seed`.
    pub const fn new(seed: u64, replication: u32) -> Self {
        Self { seed, replication }
    }

    /// Returns the stream for `purpose`, which starts at a hash of seed, replication and name. The period is 2^256. The
    /// probability that two of a million streams of 10^12 draws overlap is below 2^-170. The probability that two of
    /// them have the same 64-bit seed is 2^-25.
    pub fn named(&self, purpose: &str) -> Draws {
        let name = purpose
            .bytes()
            .fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
        let seed = mix(mix(mix(self.seed) ^ u64::from(self.replication)) ^ name);
        Draws::new(Prng::new(seed))
    }
}

/// Returns the finaliser of splitmix64, a bijection in which every input bit changes half of the output bits.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The constants of the 64-bit FNV-1a.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_by_seed_replication_and_purpose_and_repeat() {
        let draw = |seed, replication, purpose| {
            Streams::new(seed, replication).named(purpose).below(u64::MAX)
        };
        assert_eq!(draw(1, 2, "cpu"), draw(1, 2, "cpu"));
        let mut all: Vec<u64> = (0..10)
            .flat_map(|seed| (0..10).map(move |replication| (seed, replication)))
            .flat_map(|(seed, replication)| {
                ["cpu", "upc"].map(|name| draw(seed, replication, name))
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 200);
    }
}
