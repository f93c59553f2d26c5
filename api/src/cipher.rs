//! Ciphers as messages.

use bytes::Bytes;

use crate::v1::Cipher;

impl Cipher {
    /// Makes the message of a cipher with the key of this number, for which `key_check` tells whether it is the same.
    pub fn new(key_id: u16, key_check: &[u8], nonce: &[u8], associated: &[u8]) -> Self {
        Self {
            key_id: key_id.into(),
            key_check: Bytes::copy_from_slice(key_check),
            nonce: Bytes::copy_from_slice(nonce),
            associated: Bytes::copy_from_slice(associated),
        }
    }
}
