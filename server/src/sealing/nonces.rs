//! Nonces that never repeat under a key. A nonce is a prefix of 64 random bits and a counter of 32 bits. Every worker
//! draws a prefix when it first uses a version of the keys, and another one after 2^32 values. Two values have the same
//! nonce only if two draws for the same key are equal. Among n draws the probability of this is at most n²/2^65: below
//! 2^-32 for 92,681 draws, which is the bound of NIST SP 800-38D for random nonces. Random nonces without a counter
//! reach that bound after 2^32 values, which a busy fleet writes within hours.

use ring::rand::{SecureRandom, SystemRandom};

/// The nonces of one worker for one key.
pub(super) struct Nonces {
    prefix: [u8; PREFIX_BYTES],
    next: u32,
}

impl Nonces {
    /// Draws a prefix.
    pub(super) fn draw() -> Self {
        let mut prefix = [0; PREFIX_BYTES];
        SystemRandom::new().fill(&mut prefix).expect("the system has random numbers");
        Self { prefix, next: 0 }
    }

    /// Returns a nonce that was never returned before.
    pub(super) fn next(&mut self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..PREFIX_BYTES].copy_from_slice(&self.prefix);
        nonce[PREFIX_BYTES..].copy_from_slice(&self.next.to_le_bytes());
        match self.next.checked_add(1) {
            Some(next) => self.next = next,
            None => *self = Self::draw(),
        }
        nonce
    }
}

const PREFIX_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_prefix_is_drawn_when_the_counter_ends() {
        let mut nonces = Nonces::draw();
        let first = nonces.next();
        assert_eq!(first[..8], nonces.next()[..8], "the prefix stays");
        nonces.next = u32::MAX;
        assert_eq!(nonces.next()[8..], [0xFF; 4], "the last number is used");
        let next = nonces.next();
        assert_eq!(next[8..], [0; 4]);
        assert_ne!(next[..8], first[..8]);
    }

    #[test]
    fn two_draws_differ() {
        assert_ne!(Nonces::draw().next(), Nonces::draw().next());
    }
}
