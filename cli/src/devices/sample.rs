//! Generates a value like those in caches, for testing policies and devices. It is always the same HTML.

use workload::{PayloadClass, SizeDist, Sizes, Values, Weighting};

/// Generates HTML of this size.
///
/// # Errors
/// The size is not valid.
pub(crate) fn sample(bytes: usize) -> Result<Vec<u8>, String> {
    let sizes = SizeDist::Fixed { bytes: bytes as u64 };
    let sizes = Sizes::new(&sizes, Weighting::Calls).map_err(|error| error.to_string())?;
    let mut value = Vec::new();
    Values::synthetic(PayloadClass::Html, sizes, bytes, SEED).append_to(0, 0, &mut value);
    Ok(value)
}

const SEED: u64 = 1;
