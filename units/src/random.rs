//! Seeded randomness. Every random draw comes from a [`Prng`], whose seed the caller states.

use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded generator (xoshiro256++). The same seed gives the same draws on every machine.
#[derive(Clone, Debug)]
pub struct Prng(Xoshiro256PlusPlus);

impl Prng {
    /// Makes a generator for `seed`. Each stream of draws needs its own seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniform draw in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a uniform draw in `0..bound` by multiply-shift reduction. Its bias is below `bound / 2^64`.
    ///
    /// # Panics
    /// Panics if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no draw");
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_range_and_repeat_with_the_seed() {
        let mut first = Prng::new(7);
        let mut second = Prng::new(7);
        for bound in 1..1_000 {
            let draw = first.below(bound);
            assert!(draw < bound);
            assert_eq!(draw, second.below(bound));
        }
        assert!((0.0..1.0).contains(&first.unit()));
    }
}
