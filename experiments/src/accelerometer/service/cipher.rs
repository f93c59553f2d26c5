//! AES-256-GCM in two implementations with the same result: tables, and the processor's instructions (ring).
//! The caller chooses keys and nonces.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use crate::accelerometer::service::aes::Aes256;
use crate::accelerometer::service::ghash::Ghash;

/// A key, with the implementation that uses it.
pub(crate) enum Cipher {
    /// Tables for AES and for GHASH.
    Table(Box<Tables>),
    /// AES-NI and carry-less multiplication, if the processor has them.
    Processor(Box<LessSafeKey>),
}

/// A key's tables.
pub(crate) struct Tables {
    aes: Aes256,
    ghash: Ghash,
}

impl Cipher {
    /// Makes a cipher that uses tables.
    pub(crate) fn table(key: &[u8; KEY_BYTES]) -> Self {
        let aes = Aes256::new(key);
        let ghash = Ghash::new(joined(aes.encrypt([0; 4])));
        Self::Table(Box::new(Tables { aes, ghash }))
    }

    /// Makes a cipher that uses the processor's instructions.
    pub(crate) fn processor(key: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("the length is the algorithm's");
        Self::Processor(Box::new(LessSafeKey::new(key)))
    }

    /// Encrypts in place and returns the tag.
    pub(crate) fn seal(&self, nonce: [u8; NONCE_BYTES], text: &mut [u8]) -> [u8; TAG_BYTES] {
        match self {
            Cipher::Table(tables) => {
                tables.apply(nonce, text);
                tables.tag(nonce, text)
            }
            Cipher::Processor(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), text);
                let tag = tag.expect("values are shorter than AES-GCM allows");
                tag.as_ref().try_into().expect("the tag's length is the algorithm's")
            }
        }
    }

    /// Decrypts in place. Returns false if the tag is wrong.
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_BYTES],
        text: &mut [u8],
        tag: [u8; TAG_BYTES],
    ) -> bool {
        match self {
            Cipher::Table(tables) => {
                let right = tables.tag(nonce, text) == tag;
                tables.apply(nonce, text);
                right
            }
            Cipher::Processor(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let tag = Tag::from(tag);
                key.open_in_place_separate_tag(nonce, Aad::empty(), tag, text, 0..).is_ok()
            }
        }
    }
}

impl Tables {
    /// Applies counter mode. The counter's first value is reserved for the tag.
    fn apply(&self, nonce: [u8; NONCE_BYTES], text: &mut [u8]) {
        let mut block = counter(nonce);
        for chunk in text.chunks_mut(16) {
            block[3] = block[3].wrapping_add(1);
            let stream = joined(self.aes.encrypt(block)).to_be_bytes();
            chunk.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
        }
    }

    fn tag(&self, nonce: [u8; NONCE_BYTES], text: &[u8]) -> [u8; TAG_BYTES] {
        let mask = joined(self.aes.encrypt(counter(nonce)));
        (self.ghash.hash(text) ^ mask).to_be_bytes()
    }
}

fn counter(nonce: [u8; NONCE_BYTES]) -> [u32; 4] {
    let word =
        |at: usize| u32::from_be_bytes([nonce[at], nonce[at + 1], nonce[at + 2], nonce[at + 3]]);
    [word(0), word(4), word(8), 1]
}

fn joined(block: [u32; 4]) -> u128 {
    block.iter().fold(0, |all, word| all << 32 | u128::from(*word))
}

/// The size of a key (bytes).
pub(crate) const KEY_BYTES: usize = 32;
/// The size of a nonce (bytes).
pub(crate) const NONCE_BYTES: usize = 12;
/// The size of a tag (bytes).
pub(crate) const TAG_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use units::Prng;

    use super::*;

    #[test]
    fn tables_and_processor_open_each_others_values() {
        let mut random = Prng::new(7);
        let (mut key, mut nonce) = ([0; KEY_BYTES], [0; NONCE_BYTES]);
        for length in (0..70).chain([255, 256, 4_096, 5_000]) {
            random.fill(&mut key);
            random.fill(&mut nonce);
            let mut plain = vec![0; length];
            random.fill(&mut plain);
            let (table, processor) = (Cipher::table(&key), Cipher::processor(&key));
            let (mut one, mut other) = (plain.clone(), plain.clone());
            let tags = (table.seal(nonce, &mut one), processor.seal(nonce, &mut other));
            assert_eq!((tags.0, &one), (tags.1, &other), "{length} bytes");
            let mut damaged = one.clone();
            assert!(table.open(nonce, &mut one, tags.1) && one == plain);
            assert!(processor.open(nonce, &mut other, tags.0) && other == plain);
            if let Some(last) = damaged.last_mut() {
                *last ^= 1;
                assert!(!table.open(nonce, &mut damaged, tags.0));
            }
        }
    }
}
