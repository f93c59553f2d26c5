//! The CPU's kernels other than codecs: AES-256-GCM, the two checksums, and copy. Functions are in
//! [`crate::function`]. The kernels store nothing between two jobs
//! and write nothing beyond their result. If an output is too small, they return the caller's error before they write
//! anything.

use crc_fast::CrcAlgorithm;
use ring::aead;

use crate::cipher::{AssociatedData, Key, Nonce, TAG_BYTES};
use crate::engines::OUTPUT_TOO_SMALL_ERROR;
use crate::job::{DeviceError, Polynomial};

/// A kernel that is not a codec. Capabilities list it by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// AES-256-GCM, encryption and decryption.
    AesGcm,
    /// The checksum CRC-32C.
    Crc32c,
    /// The checksum CRC-64/XZ.
    Crc64,
    /// A copy of the input.
    Copy,
    /// Serialization into a message.
    Serialize,
    /// Deserialization of a message.
    Deserialize,
    /// Wrapping a message into a call, or unwrapping it.
    Rpc,
    /// The choice of the core that continues a request.
    LoadBalance,
}

impl Kernel {
    /// Every kernel. The CPU has all of them.
    pub const ALL: [Kernel; 8] = [
        Kernel::AesGcm,
        Kernel::Crc32c,
        Kernel::Crc64,
        Kernel::Copy,
        Kernel::Serialize,
        Kernel::Deserialize,
        Kernel::Rpc,
        Kernel::LoadBalance,
    ];

    /// Returns the name in metrics and in `rebate devices`.
    pub const fn name(self) -> &'static str {
        match self {
            Kernel::AesGcm => "aes-gcm",
            Kernel::Crc32c => "crc32c",
            Kernel::Crc64 => "crc64",
            Kernel::Copy => "copy",
            Kernel::Serialize => "serialize",
            Kernel::Deserialize => "deserialize",
            Kernel::Rpc => "rpc",
            Kernel::LoadBalance => "load-balance",
        }
    }
}

/// Writes the ciphertext and its tag.
pub(crate) fn encrypt(
    key: &Key,
    nonce: Nonce,
    associated: &AssociatedData,
    input: &[u8],
    space: &mut [u8],
) -> Result<usize, DeviceError> {
    let output_bytes = input.len() + TAG_BYTES;
    let space = space.get_mut(..output_bytes).ok_or(OUTPUT_TOO_SMALL_ERROR)?;
    let (text, tag) = space.split_at_mut(input.len());
    text.copy_from_slice(input);
    let associated = aead::Aad::from(associated.as_slice());
    let made = key.expanded().seal_in_place_separate_tag(ring_nonce(nonce), associated, text);
    let made = made.map_err(|_| DeviceError::InvalidInput("longer than AES-GCM allows"))?;
    tag.copy_from_slice(made.as_ref());
    Ok(output_bytes)
}

/// Writes the plaintext if the tag is right. Otherwise zeroes the space of the plaintext.
pub(crate) fn decrypt(
    key: &Key,
    nonce: Nonce,
    associated: &AssociatedData,
    input: &[u8],
    space: &mut [u8],
) -> Result<usize, DeviceError> {
    let (text, tag) = input
        .split_last_chunk::<TAG_BYTES>()
        .ok_or(DeviceError::InvalidInput("ciphertext shorter than its tag"))?;
    let space = space.get_mut(..text.len()).ok_or(OUTPUT_TOO_SMALL_ERROR)?;
    space.copy_from_slice(text);
    let (tag, associated) = (aead::Tag::from(*tag), aead::Aad::from(associated.as_slice()));
    let opened =
        key.expanded().open_in_place_separate_tag(ring_nonce(nonce), associated, tag, space, 0..);
    if opened.is_err() {
        // These bytes failed their tag, so no one may see them.
        space.fill(0);
        return Err(DeviceError::InvalidInput("wrong tag, key, nonce or associated data"));
    }
    Ok(text.len())
}

/// Writes the checksum, little-endian.
pub(crate) fn checksum(
    polynomial: Polynomial,
    input: &[u8],
    space: &mut [u8],
) -> Result<usize, DeviceError> {
    match polynomial {
        Polynomial::Crc32c => {
            // The name of CRC-32C in RFC 3720.
            let checksum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, input) as u32;
            copy(&checksum.to_le_bytes(), space)
        }
        Polynomial::Crc64 => {
            copy(&crc_fast::checksum(CrcAlgorithm::Crc64Xz, input).to_le_bytes(), space)
        }
    }
}

/// Copies the input to the output.
pub(crate) fn copy(input: &[u8], space: &mut [u8]) -> Result<usize, DeviceError> {
    let space = space.get_mut(..input.len()).ok_or(OUTPUT_TOO_SMALL_ERROR)?;
    space.copy_from_slice(input);
    Ok(input.len())
}

fn ring_nonce(nonce: Nonce) -> aead::Nonce {
    aead::Nonce::assume_unique_for_key(nonce.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::{KEY_BYTES, NONCE_BYTES};

    #[test]
    fn a_failed_decryption_zeroes_what_it_had_written() {
        let (key, nonce) = (Key::new(&[3; KEY_BYTES]), Nonce([4; NONCE_BYTES]));
        let mut sealed = [0; 5 + TAG_BYTES];
        let none = AssociatedData::NONE;
        assert_eq!(encrypt(&key, nonce, &none, b"hello", &mut sealed), Ok(sealed.len()));
        sealed[6] ^= 1;
        let mut space = [0xFF; 8];
        assert!(decrypt(&key, nonce, &none, &sealed, &mut space).is_err());
        assert_eq!(space, [0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF]);
    }
}
