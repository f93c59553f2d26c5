//! Passwords. A process keeps no password in memory but a keyed digest of it, and compares digests in constant time.

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::SystemRandom;

/// Makes digests with a key that only this process has.
pub(super) struct Hasher(hmac::Key);

/// The digest of a password.
#[derive(Clone)]
pub(super) struct Secret {
    salt: Vec<u8>,
    tag: [u8; 32],
}

impl Hasher {
    pub(super) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self(key.expect("the system has random numbers"))
    }

    /// Returns the secret of a password in plain text.
    pub(super) fn plain(&self, password: &[u8]) -> Secret {
        Secret { salt: Vec::new(), tag: self.tag(digest(&SHA256, password).as_ref()) }
    }

    /// Reads `SALT:HEX`, where HEX is the SHA-256 of the salt followed by the password.
    pub(super) fn salted(&self, text: &str) -> Result<Secret, String> {
        let wrong = || "is not SALT:HEX, with 64 hexadecimal digits".to_owned();
        let (salt, hex) = text.split_once(':').ok_or_else(wrong)?;
        let mut hash = [0; 32];
        if salt.is_empty() || hex.len() != 2 * hash.len() || !hex.is_ascii() {
            return Err(wrong());
        }
        for (byte, digits) in hash.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Secret { salt: salt.as_bytes().to_vec(), tag: self.tag(&hash) })
    }

    /// Returns whether `password` has this secret. The time does not depend on how much of it is right.
    pub(super) fn verify(&self, secret: &Secret, password: &[u8]) -> bool {
        let given = digest(&SHA256, &[&secret.salt, password].concat());
        hmac::verify(&self.0, given.as_ref(), &secret.tag).is_ok()
    }

    fn tag(&self, hash: &[u8]) -> [u8; 32] {
        let mut tag = [0; 32];
        tag.copy_from_slice(hmac::sign(&self.0, hash).as_ref());
        tag
    }
}

impl Secret {
    /// Returns whether both were made from the same password and salt.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.tag == other.tag && self.salt == other.salt
    }
}
