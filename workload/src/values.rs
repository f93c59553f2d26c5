//! Computes the bytes of values from the key's id, so that a reader can verify values without having stored them.
//!
//! A value is a slice of a pool at an offset that follows from (seed, id, version). A value of at least 64 bytes starts
//! with 16 hexadecimal digits: 8 of the key's hash and 8 of the version. From these a reader learns which version the
//! value is and that it belongs to its key. A value of one repeated character and a record have no such header, because
//! the header would change how they compress. These values and smaller ones have no versions.

use std::sync::Arc;

use crate::generate::{RecordWriter, record};
use crate::hash::{below, mix, unit};
use crate::{Corpus, PayloadClass, Sizes};

/// The values of all keys. Clones share the pool.
#[derive(Clone, Debug)]
pub struct Values {
    content: Content,
    sizes: Sizes,
    length_max: usize,
    seed: u64,
}

/// The origin of the values' bytes.
#[derive(Clone, Debug)]
enum Content {
    /// Values are slices of a pool.
    Pool(Arc<[u8]>),
    /// A value is one character, repeated.
    Character,
    /// A value is a record of its own.
    Record(RecordWriter),
}

/// The difference between a value that was read and the value that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Mismatch {
    /// The length is wrong. All versions of a value have the same length.
    #[error("{got} bytes instead of {expected}")]
    Length { got: usize, expected: usize },
    /// The value has wrong bytes. The first of them is at `offset`.
    #[error("wrong bytes from offset {offset} on")]
    Bytes { offset: usize },
}

impl Values {
    /// Makes values of a synthetic class. No value is longer than `length_max`.
    pub fn synthetic(class: PayloadClass, sizes: Sizes, length_max: usize, seed: u64) -> Self {
        let content = match class.record_writer() {
            Some(writer) => Content::Record(writer),
            None if class == PayloadClass::Repeat => Content::Character,
            None => Content::Pool(class.pool(POOL_BYTES, mix(seed, 0)).into()),
        };
        Self { content, sizes, length_max, seed }
    }

    /// Makes values that are slices of a corpus. A value that is longer than the corpus repeats it.
    pub fn from_corpus(corpus: Corpus, sizes: Sizes, length_max: usize, seed: u64) -> Self {
        Self { content: Content::Pool(corpus.bytes.into()), sizes, length_max, seed }
    }

    /// Returns the length of the value of key `id` (bytes). All versions have this length.
    pub fn length(&self, id: u64) -> usize {
        self.sizes.at(unit(mix(self.seed ^ SIZE_STREAM, id))).min(self.length_max)
    }

    /// Appends version `version` of the value of key `id` to `out`.
    pub fn append_to(&self, id: u64, version: u32, out: &mut Vec<u8>) {
        let length = self.length(id);
        let pool = match &self.content {
            Content::Character => return out.resize(out.len() + length, self.character(id)),
            Content::Record(writer) => return out.extend(self.record(*writer, id, length)),
            Content::Pool(pool) => pool,
        };
        let versioned = length >= VERSIONED_BYTES_MIN;
        let body = if versioned {
            out.extend_from_slice(&self.header(id, version));
            length - HEADER_BYTES
        } else {
            length
        };
        let version = if versioned { version } else { 0 };
        self.slices(pool, id, version, body, |slice| out.extend_from_slice(slice));
    }

    /// Checks `bytes` as a value of key `id` and returns its version.
    pub fn check(&self, id: u64, bytes: &[u8]) -> Result<u32, Mismatch> {
        let (got, expected) = (bytes.len(), self.length(id));
        if got != expected {
            return Err(Mismatch::Length { got, expected });
        }
        let wrong = match &self.content {
            Content::Character => {
                let character = self.character(id);
                bytes.iter().position(|&byte| byte != character)
            }
            Content::Record(writer) => first_difference(bytes, &self.record(*writer, id, expected)),
            Content::Pool(pool) => return self.check_slices(pool, id, bytes),
        };
        wrong.map_or(Ok(0), |offset| Err(Mismatch::Bytes { offset }))
    }

    fn check_slices(&self, pool: &[u8], id: u64, bytes: &[u8]) -> Result<u32, Mismatch> {
        let versioned = bytes.len() >= VERSIONED_BYTES_MIN;
        let version = if versioned { version_of(&bytes[..HEADER_BYTES])? } else { 0 };
        if versioned && bytes[..HEADER_BYTES] != self.header(id, version) {
            return Err(Mismatch::Bytes { offset: 0 });
        }
        let mut offset = if versioned { HEADER_BYTES } else { 0 };
        let mut wrong = None;
        self.slices(pool, id, version, bytes.len() - offset, |slice| {
            let part = &bytes[offset..offset + slice.len()];
            if wrong.is_none() && part != slice {
                wrong = first_difference(part, slice).map(|at| offset + at);
            }
            offset += slice.len();
        });
        wrong.map_or(Ok(version), |offset| Err(Mismatch::Bytes { offset }))
    }

    /// Passes the `length` bytes after the header to `take`, in several slices where the pool wraps around.
    fn slices(
        &self,
        pool: &[u8],
        id: u64,
        version: u32,
        length: usize,
        mut take: impl FnMut(&[u8]),
    ) {
        let hash = mix(mix(self.seed ^ OFFSET_STREAM, id), u64::from(version));
        let mut start = below(hash, pool.len() as u64) as usize;
        let mut left = length;
        while left > 0 {
            let end = pool.len().min(start + left);
            take(&pool[start..end]);
            (left, start) = (left - (end - start), 0);
        }
    }

    fn record(&self, writer: RecordWriter, id: u64, length: usize) -> Vec<u8> {
        record(writer, length, mix(self.seed ^ RECORD_STREAM, id))
    }

    fn header(&self, id: u64, version: u32) -> [u8; HEADER_BYTES] {
        let word = mix(self.seed, id) << 32 | u64::from(version);
        std::array::from_fn(|digit| HEXADECIMAL[(word >> (60 - 4 * digit) & 15) as usize])
    }

    fn character(&self, id: u64) -> u8 {
        b'a' + below(mix(self.seed, id), 26) as u8
    }
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    left.iter().zip(right).position(|(a, b)| a != b)
}

/// Returns the version that a header states.
fn version_of(header: &[u8]) -> Result<u32, Mismatch> {
    let digits = std::str::from_utf8(&header[HEADER_BYTES / 2..]).ok();
    let version = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    version.ok_or(Mismatch::Bytes { offset: HEADER_BYTES / 2 })
}

/// The size of the pool (bytes). It is large enough that two values of a run rarely share more bytes than one
/// compression window.
const POOL_BYTES: usize = 4 << 20;
const HEADER_BYTES: usize = 16;
/// The smallest size of a value with a header (bytes). In a smaller value the header would be a large part and would
/// change how the value compresses.
const VERSIONED_BYTES_MIN: usize = 64;
const HEXADECIMAL: &[u8; 16] = b"0123456789abcdef";
const SIZE_STREAM: u64 = 0x5349_5A45;
const OFFSET_STREAM: u64 = 0x4F46_4653;
const RECORD_STREAM: u64 = 0x5245_4344;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SizeDist, Weighting};

    fn values(class: PayloadClass, max_bytes: u64) -> Values {
        let dist = SizeDist::Uniform { min_bytes: 0, max_bytes };
        let sizes = Sizes::new(&dist, Weighting::Calls).expect("valid sizes");
        Values::synthetic(class, sizes, usize::MAX, 42)
    }

    fn value(values: &Values, id: u64, version: u32) -> Vec<u8> {
        let mut out = Vec::new();
        values.append_to(id, version, &mut out);
        out
    }

    #[test]
    fn any_changed_byte_fails() {
        for class in PayloadClass::ALL {
            let values = values(class, 300);
            for id in 0..100 {
                let mut bytes = value(&values, id, 7);
                assert_eq!(bytes.len(), values.length(id));
                assert!(values.check(id, &bytes).is_ok(), "{class} {id}");
                for at in 0..bytes.len() {
                    bytes[at] ^= 1;
                    assert!(values.check(id, &bytes).is_err(), "{class} {id} {at}");
                    bytes[at] ^= 1;
                }
            }
        }
    }

    #[test]
    fn a_value_of_another_key_or_a_torn_one_fails() {
        let values = Values::synthetic(
            PayloadClass::Json,
            Sizes::new(&SizeDist::Fixed { bytes: 500 }, Weighting::Calls).expect("valid sizes"),
            usize::MAX,
            1,
        );
        let (first, second) = (value(&values, 1, 1), value(&values, 1, 2));
        assert_eq!(values.check(1, &first), Ok(1));
        assert_eq!(values.check(1, &second), Ok(2));
        assert!(values.check(2, &first).is_err());
        let torn = [&first[..250], &second[250..]].concat();
        assert!(matches!(values.check(1, &torn), Err(Mismatch::Bytes { offset }) if offset >= 250));
        let cut = Mismatch::Length { got: 499, expected: 500 };
        assert_eq!(values.check(1, &first[..499]), Err(cut));
    }

    #[test]
    fn values_longer_than_the_corpus_repeat_it() {
        let sizes = Sizes::new(&SizeDist::Fixed { bytes: 60 }, Weighting::Calls).expect("valid");
        let corpus = Corpus { bytes: b"0123456789".to_vec() };
        let values = Values::from_corpus(corpus, sizes, usize::MAX, 3);
        let bytes = value(&values, 5, 0);
        assert_eq!(bytes.len(), 60);
        assert!(bytes.windows(2).all(|pair| (pair[0] - b'0' + 1) % 10 == pair[1] - b'0'));
        assert_eq!(values.check(5, &bytes), Ok(0));
    }
}
