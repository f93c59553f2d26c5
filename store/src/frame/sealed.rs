//! The layout of a sealed value: a header of 20 bytes, the ciphertext of a stored form, and its tag. The stored form is
//! what would be stored without a seal: a frame of version 1 or 2, or the value itself. This module encrypts nothing.

use std::fmt;
use std::num::NonZeroU16;

use super::{FrameError, Inspected};

/// The first byte of every sealed value. It never occurs in UTF-8.
pub(super) const MAGIC: u8 = 0xFE;

/// The number of a key of sealed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(NonZeroU16);

impl KeyId {
    /// Returns the id with this number, which is 1 to 65,535.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// Returns the number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The header of a sealed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedHeader {
    /// The key that opens the value.
    pub key_id: KeyId,
    /// The length of the logical value. It is not secret, and the tag covers it.
    pub original_bytes: u32,
    /// The nonce of the encryption.
    pub nonce: [u8; NONCE_BYTES],
}

impl SealedHeader {
    /// The length of the header (bytes).
    pub const BYTES: usize = PREFIX_BYTES + NONCE_BYTES;

    /// The bytes by which a sealed value is longer than what it seals.
    pub const OVERHEAD_BYTES: usize = Self::BYTES + TAG_BYTES;

    /// Returns the bytes of the header.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..PREFIX_BYTES].copy_from_slice(&self.prefix());
        bytes[PREFIX_BYTES..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Returns what the tag covers besides the ciphertext: the header in front of the nonce, the tenant behind its
    /// length, and the key of the item. No two headers, tenants and keys give the same bytes.
    ///
    /// # Panics
    /// If the name of the tenant is longer than [`TENANT_BYTES_MAX`].
    pub fn associated_data(&self, tenant: &str, key: &[u8]) -> Vec<u8> {
        let tenant_bytes = u8::try_from(tenant.len()).expect("names of tenants are short");
        let mut bytes = Vec::with_capacity(PREFIX_BYTES + 1 + tenant.len() + key.len());
        bytes.extend_from_slice(&self.prefix());
        bytes.push(tenant_bytes);
        bytes.extend_from_slice(tenant.as_bytes());
        bytes.extend_from_slice(key);
        bytes
    }

    fn prefix(&self) -> [u8; PREFIX_BYTES] {
        let [i0, i1] = self.key_id.get().to_le_bytes();
        let [l0, l1, l2, l3] = self.original_bytes.to_le_bytes();
        [MAGIC, AES_256_GCM, i0, i1, l0, l1, l2, l3]
    }
}

/// Classifies a value that begins with [`MAGIC`]. If its second byte is that of a sealed value, or differs from it in
/// one bit, the value may be a damaged one and is never foreign.
pub(super) fn inspect(value: &[u8], original_bytes_max: usize) -> Inspected {
    match value.get(1) {
        None => return Inspected::Invalid(FrameError::SealTruncated { bytes: value.len() }),
        Some(&AES_256_GCM) => {}
        Some(kind) if (kind ^ AES_256_GCM).is_power_of_two() => {
            return Inspected::Invalid(FrameError::SealKind(*kind));
        }
        Some(_) => return Inspected::Foreign,
    }
    match parse(value, original_bytes_max) {
        Ok(header) => Inspected::Sealed { header, body: SealedHeader::BYTES..value.len() },
        Err(reason) => Inspected::Invalid(reason),
    }
}

fn parse(value: &[u8], original_bytes_max: usize) -> Result<SealedHeader, FrameError> {
    let truncated = FrameError::SealTruncated { bytes: value.len() };
    let (head, body) = value.split_first_chunk::<{ SealedHeader::BYTES }>().ok_or(truncated)?;
    if body.len() < TAG_BYTES {
        return Err(truncated);
    }
    let [_, _, i0, i1, l0, l1, l2, l3, nonce @ ..] = *head;
    let key_id = KeyId::new(u16::from_le_bytes([i0, i1])).ok_or(FrameError::SealKeyZero)?;
    let original_bytes = u32::from_le_bytes([l0, l1, l2, l3]);
    if original_bytes as usize > original_bytes_max {
        return Err(FrameError::TooLong { original_bytes, original_bytes_max });
    }
    Ok(SealedHeader { key_id, original_bytes, nonce })
}

/// The second byte of a value that is sealed with AES-256-GCM.
const AES_256_GCM: u8 = 1;

/// The length of the header in front of the nonce (bytes).
const PREFIX_BYTES: usize = 8;

/// The lengths of a nonce and of a tag of AES-256-GCM (bytes).
const NONCE_BYTES: usize = 12;
const TAG_BYTES: usize = 16;

/// The longest name of a tenant (bytes).
pub const TENANT_BYTES_MAX: usize = u8::MAX as usize;
