//! Independent streams of random numbers, one per purpose and replication. A stream is found by its name, not by its
//! place, so two architectures that share the purpose `arrivals.web` share its draws: common random numbers need no
//! bookkeeping, and a station that one of them adds shifts no other station's draws.

use units::Prng;

use crate::Draws;

/// The streams of one replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams {
    seed: u64,
    replication: u32,
}

impl Streams {
    /// The streams of replication number `replication` under `seed`.
    pub const fn new(seed: u64, replication: u32) -> Self {
        Self { seed, replication }
    }

    /// The stream for `purpose`. Its start is a hash of seed, replication and name; that two of a million streams of
    /// a million million draws overlap in a period of 2^256 is less likely than one in 2^170, and that two of them
    /// have one seed of 64 bits, one in 2^25.
    pub fn named(&self, purpose: &str) -> Draws {
        let name = purpose
            .bytes()
            .fold(FNV_OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
        let seed = mix(mix(mix(self.seed) ^ u64::from(self.replication)) ^ name);
        Draws::new(Prng::new(seed))
    }
}

/// The finaliser of splitmix64: a bijection in which every input bit moves half of the output bits.
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// FNV-1a's constants for 64 bits.
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
