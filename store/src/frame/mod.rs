//! The stored form of a value: a self-describing header and the payload. docs/format.md describes
//! every byte. This module classifies stored values and checks their headers. It does not compress
//! and does not allocate.

pub(crate) mod brief;
mod error;
mod header;
mod probe;
mod sealed;
mod version1;
mod version2;

use std::ops::Range;

pub use error::FrameError;
pub use header::{Encoding, FrameVersion, Header};
pub use probe::{entropy_probe, is_number, looks_compressed, same_filled};
pub use sealed::{KeyId, SealedHeader, TENANT_BYTES_MAX};
pub use units::DictionaryId;
pub use version1::MAGIC;

/// The classification of a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// The value is not a frame: it was written before Rebate was installed, or by a writer that
    /// bypasses Rebate, or it did not shrink. The stored bytes are the logical value.
    Foreign,
    /// A frame with a consistent header. The decoded payload must still pass [`Header::verify`].
    Frame {
        /// The parsed header.
        header: Header,
        /// The position of the payload in the stored value.
        payload: Range<usize>,
    },
    /// A sealed value with a consistent header. Only its key tells whether it is genuine.
    Sealed {
        /// The parsed header.
        header: SealedHeader,
        /// The position of the ciphertext and its tag in the stored value.
        body: Range<usize>,
    },
    /// The value begins like a frame but is not a valid one. Treat it as a miss and never return its bytes.
    Invalid(FrameError),
}

/// Classifies a stored value. Reads only its header and, of a zstd frame, the headers of its blocks. A frame that
/// claims more than `original_bytes_max` is invalid.
pub fn inspect(value: &[u8], original_bytes_max: usize) -> Inspected {
    match value.first() {
        Some(&version2::MAGIC) => version2::inspect(value, original_bytes_max),
        Some(&version2::MAGIC_DICTIONARY) => {
            version2::inspect_dictionary(value, original_bytes_max)
        }
        Some(&sealed::MAGIC) => sealed::inspect(value, original_bytes_max),
        Some(_) if value.starts_with(&MAGIC) => match version1::parse(value, original_bytes_max) {
            Ok(header) => Inspected::Frame { payload: header.header_bytes()..value.len(), header },
            Err(reason) => Inspected::Invalid(reason),
        },
        _ => Inspected::Foreign,
    }
}

/// Returns whether a logical value begins like a frame of any version or like a sealed value. Such a value must be
/// wrapped in a frame, or readers could take it for one of them.
pub fn must_wrap(value: &[u8]) -> bool {
    matches!(value.first(), Some(&(version2::MAGIC | version2::MAGIC_DICTIONARY | sealed::MAGIC)))
        || value.starts_with(&MAGIC)
}

/// Returns whether a stored value begins like a sealed one.
pub fn looks_sealed(value: &[u8]) -> bool {
    value.first() == Some(&sealed::MAGIC)
}

const WINDOW_LOG2_MIN: u8 = 8;
const WINDOW_LOG2_MAX: u8 = 31;

/// Checks a window that has a byte in the header.
fn check_window(window_log2: u8) -> Result<(), FrameError> {
    let is_valid = window_log2 == 0 || (WINDOW_LOG2_MIN..=WINDOW_LOG2_MAX).contains(&window_log2);
    if is_valid { Ok(()) } else { Err(FrameError::Window(window_log2)) }
}

#[cfg(test)]
mod tests;
