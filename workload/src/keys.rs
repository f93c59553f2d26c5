//! Makes key names. They are unique, printable and computed from the key's id, so that no table of names is stored.
//! A name has a digit and none of the separators of key classes (`: / . - _ |`), so all names of a load are one kind of
//! key, as the ids of real keys are.

use units::limits::KEY_BYTES_MAX;

use crate::hash::{mix, unit};
use crate::{BadSizes, SizeDist, Sizes, Weighting};

/// The names of keys `0..count`.
#[derive(Clone, Debug)]
pub struct Keys {
    count: u64,
    digits: usize,
    sizes: Sizes,
    seed: u64,
}

impl Keys {
    /// Makes names whose lengths follow `sizes`, up to memcached's 250 bytes. The first characters hold the
    /// id (six bits each). If a drawn length is too short for the ids, the name is longer than drawn.
    pub fn new(count: u64, sizes: &SizeDist, seed: u64) -> Result<Self, BadSizes> {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let digits = bits.div_ceil(6).max(1) as usize;
        Ok(Self { count, digits, sizes: Sizes::new(sizes, Weighting::Calls)?, seed })
    }

    /// Returns the number of keys.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Appends the name of key `id` to `out`.
    pub fn append_to(&self, id: u64, out: &mut Vec<u8>) {
        let mut bits = mix(self.seed, id);
        let length = self.sizes.at(unit(bits)).clamp(self.digits, KEY_BYTES_MAX);
        out.extend((0..self.digits).rev().map(|digit| letter(id >> (6 * digit))));
        for position in self.digits..length {
            if position % 10 == 0 {
                bits = mix(bits, position as u64);
            }
            let drawn = bits >> (6 * (position % 10));
            // A name without digits would be a word, and so a class of its own.
            out.push(if position == length - 1 {
                DIGITS[(drawn % 10) as usize]
            } else {
                letter(drawn)
            });
        }
    }
}

fn letter(bits: u64) -> u8 {
    LETTERS[(bits & 63) as usize]
}

const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ+abcdefghijklmnopqrstuvwxyz=";

const DIGITS: &[u8; 10] = b"0123456789";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_printable_and_of_the_wanted_length() {
        let sizes = SizeDist::Uniform { min_bytes: 1, max_bytes: 64 };
        let keys = Keys::new(20_000, &sizes, 9).expect("valid sizes");
        let mut seen = HashSet::new();
        let mut total = 0;
        for id in 0..keys.count() {
            let mut name = Vec::new();
            keys.append_to(id, &mut name);
            assert!(name.iter().all(|byte| byte.is_ascii_graphic() && !b":/.-_|".contains(byte)));
            assert!(name.len() == 3 || name[name.len() - 1].is_ascii_digit());
            assert!((3..=64).contains(&name.len()), "{}", name.len());
            total += name.len();
            assert!(seen.insert(name));
        }
        assert!((31..35).contains(&(total / 20_000)), "{}", total / 20_000);
    }

    #[test]
    fn names_never_exceed_the_longest_key() {
        let keys = Keys::new(u64::MAX, &SizeDist::Fixed { bytes: 10_000 }, 1).expect("valid sizes");
        let mut name = Vec::new();
        keys.append_to(u64::MAX - 1, &mut name);
        assert_eq!(name.len(), KEY_BYTES_MAX);
    }
}
