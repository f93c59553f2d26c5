//! Keys, nonces and associated data of AES-256-GCM. A key is expanded once, and all jobs that use it share it. The
//! caller makes, stores and rotates keys and chooses nonces.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};

/// The schedule of a key. It is as secret as the key, and begins with the key's own bytes.
pub struct ExpandedKey(LessSafeKey);

impl ExpandedKey {
    /// Expands the key.
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, bytes).expect("the length is the algorithm's");
        Self(LessSafeKey::new(key))
    }
}

/// An expanded key. Jobs with the same key share one key schedule, and a clone only increments a reference
/// count. Two keys are equal when one is a clone of the other. The key itself cannot be read back.
#[derive(Clone)]
pub struct Key(Arc<NamedMemory>);

struct NamedMemory {
    memory: Arc<dyn KeyMemory>,
    name: Option<KeyName>,
}

/// Names a key to another process that has the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyName {
    /// The number of the key.
    pub id: u16,
    /// Tells whether two keys of this number are the same, and nothing else about them.
    pub check: [u8; KEY_CHECK_BYTES],
}

/// Memory that has an expanded key.
pub trait KeyMemory: Deref<Target = ExpandedKey> + Send + Sync {}

impl<M: Deref<Target = ExpandedKey> + Send + Sync> KeyMemory for M {}

impl Key {
    /// Expands the key into ordinary memory, which core dumps contain and nobody wipes.
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self::in_memory(Box::new(ExpandedKey::new(bytes)))
    }

    /// Returns the key that is in this memory.
    pub fn in_memory(memory: impl KeyMemory + 'static) -> Self {
        Self(Arc::new(NamedMemory { memory: Arc::new(memory), name: None }))
    }

    /// Returns the key with a name. A key without one stays in its process.
    pub fn with_name(self, name: KeyName) -> Self {
        let memory = Arc::clone(&self.0.memory);
        Self(Arc::new(NamedMemory { memory, name: Some(name) }))
    }

    /// Returns the name of the key, if it has one.
    pub fn name(&self) -> Option<KeyName> {
        self.0.name
    }

    pub(crate) fn expanded(&self) -> &LessSafeKey {
        &self.0.memory.0
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0.memory), Arc::as_ptr(&other.0.memory))
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

/// Bytes that a tag covers besides the ciphertext, and that are not part of the message: what the message belongs to.
/// A clone only increments a reference count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssociatedData(Option<Arc<[u8]>>);

impl AssociatedData {
    /// No bytes.
    pub const NONE: Self = Self(None);

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<&[u8]> for AssociatedData {
    fn from(bytes: &[u8]) -> Self {
        Self((!bytes.is_empty()).then(|| bytes.into()))
    }
}

/// The size of a key (bytes).
pub const KEY_BYTES: usize = 32;

/// The size of the check in a key's name (bytes).
pub const KEY_CHECK_BYTES: usize = 8;

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
