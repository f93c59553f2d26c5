//! Keys and nonces of AES-256-GCM. A key is expanded once, and all jobs that use it share it. The caller makes,
//! stores and rotates keys and chooses nonces.

use std::fmt;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};

/// An expanded key. Jobs with the same key share one key schedule, and a clone only increments a reference
/// count. Two keys are equal when one is a clone of the other. The key itself cannot be read back.
#[derive(Clone)]
pub struct Key(Arc<LessSafeKey>);

impl Key {
    /// Expands the key.
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, bytes).expect("the length is the algorithm's");
        Self(Arc::new(LessSafeKey::new(key)))
    }

    pub(crate) fn expanded(&self) -> &LessSafeKey {
        &self.0
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A nonce of 96 bits. A caller must not use a nonce twice with one key, which would reveal both messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nonce(pub [u8; NONCE_BYTES]);

/// The size of a key (bytes).
pub const KEY_BYTES: usize = 32;

/// The size of a nonce (bytes).
pub const NONCE_BYTES: usize = 12;

/// The size of the tag that follows the ciphertext (bytes).
pub const TAG_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_the_key_and_clones_are_equal() {
        let key = Key::new(&[0xAB; KEY_BYTES]);
        assert_eq!(format!("{key:?}"), "Key(..)");
        assert_eq!(key, key.clone());
        assert_ne!(key, Key::new(&[0xAB; KEY_BYTES]));
    }
}
