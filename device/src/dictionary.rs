//! Dictionaries for small values: content that writer and reader share, so that streams need not repeat it. The
//! content and its entropy tables are zstd's (RFC 8878, section 5). This module trains and checks dictionaries. It
//! does not know where they are kept, and which values they are for.

use std::fmt;
use std::sync::{Arc, OnceLock};

use ring::digest::{SHA256, digest};
use thiserror::Error;
use units::DictionaryId;
use zstd::zstd_safe::{self, CDict, DDict};

use crate::engines::zstd_dictionary::ZstdDictionary;

/// Trains a dictionary of at most so many bytes on samples, as [`Dictionary::train`] does.
pub type Train = fn(samples: &[&[u8]], bytes_max: usize) -> Result<Dictionary, DictionaryError>;

/// A dictionary in the forms in which zstd writes and reads with it. All threads share it.
pub struct Dictionary {
    id: DictionaryId,
    content: Vec<u8>,
    /// The effort of writing, on zstd's scale.
    level: i32,
    /// The form for writing, which takes several times the content's memory. It is made for the first stream, and is
    /// none if there was no memory for it.
    writer: OnceLock<Option<CDict<'static>>>,
    reader: DDict<'static>,
}

impl Dictionary {
    /// Trains a dictionary of at most `bytes_max` on samples of the values that it will be used for. This takes 10 MiB,
    /// and some 10 to 100 ms per MiB of samples.
    ///
    /// # Errors
    /// [`DictionaryError::TooFewSamples`] if the samples are too few or too short, or have nothing in common.
    pub fn train(samples: &[&[u8]], bytes_max: usize) -> Result<Self, DictionaryError> {
        if bytes_max < BYTES_MIN {
            return Err(DictionaryError::Length { bytes: bytes_max });
        }
        let sizes: Vec<usize> = samples.iter().map(|sample| sample.len()).collect();
        let mut content = Vec::with_capacity(bytes_max.min(BYTES_MAX));
        zstd_safe::train_from_buffer(&mut content, &samples.concat(), &sizes)
            .map_err(|_| DictionaryError::TooFewSamples { samples: samples.len() })?;
        Self::from_content(content)
    }

    /// Makes a dictionary from the content of another one, as [`Dictionary::content`] returned it.
    ///
    /// # Errors
    /// [`DictionaryError`] if no trainer of zstd can have made this content.
    pub fn from_content(content: Vec<u8>) -> Result<Self, DictionaryError> {
        let bytes = content.len();
        if !(BYTES_MIN..=BYTES_MAX).contains(&bytes) {
            return Err(DictionaryError::Length { bytes });
        }
        if !content.starts_with(&MAGIC) {
            return Err(DictionaryError::Invalid);
        }
        let reader = DDict::try_create(&content).ok_or(DictionaryError::Invalid)?;
        Ok(Self { id: id_of(&content), content, level: LEVEL, writer: OnceLock::new(), reader })
    }

    /// Returns the id, which follows from the content.
    pub const fn id(&self) -> DictionaryId {
        self.id
    }

    /// Returns the content, from which [`Dictionary::from_content`] makes the same dictionary.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Returns whether the dictionary takes memory for writing.
    pub fn has_writer(&self) -> bool {
        self.writer.get().is_some()
    }

    /// Returns a copy that takes no memory for writing until it writes.
    pub fn for_reading(&self) -> Self {
        let content = self.content.clone();
        let copy = Self::from_content(content).expect("the content made a dictionary before");
        Self { level: self.level, ..copy }
    }

    /// Returns a copy that writes with more effort. Depending on the values, its streams are shorter or not. They take
    /// several times as long to write, and are read with the same dictionary.
    pub fn with_effort(&self) -> Self {
        Self { level: LEVEL_HIGH, ..self.for_reading() }
    }

    /// Returns a copy that writes with the usual effort.
    pub fn without_effort(&self) -> Self {
        Self { level: LEVEL, ..self.for_reading() }
    }

    /// Returns whether the dictionary writes with more effort.
    pub const fn has_effort(&self) -> bool {
        self.level > LEVEL
    }

    /// Returns the memory that the dictionary takes now (bytes).
    pub fn memory_bytes(&self) -> usize {
        let writer = self.writer.get().and_then(Option::as_ref);
        self.content.capacity() + self.reader.sizeof() + writer.map_or(0, CDict::sizeof)
    }

    /// Returns the sizes of the streams of `values` (bytes). A size is none if the value does not shrink.
    pub fn stream_bytes<'a>(
        self: &Arc<Self>,
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> Vec<Option<usize>> {
        let (mut engine, mut space) = (ZstdDictionary::default(), Vec::new());
        let stream_bytes = |value: &[u8]| {
            space.resize(value.len(), 0);
            engine.compress(self, value, &mut space).ok()
        };
        values.into_iter().map(stream_bytes).collect()
    }

    pub(crate) fn writer(&self) -> Option<&CDict<'static>> {
        self.writer.get_or_init(|| CDict::try_create(&self.content, self.level)).as_ref()
    }

    pub(crate) const fn reader(&self) -> &DDict<'static> {
        &self.reader
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dictionary({}, {} bytes)", self.id, self.content.len())
    }
}

/// The reason why there is no dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DictionaryError {
    /// The trainer made nothing of the samples.
    #[error(
        "{samples} samples are too few, too short or too different to train a dictionary on; some hundred values that \
         are alike are enough"
    )]
    TooFewSamples {
        /// The number of samples.
        samples: usize,
    },
    /// The content is shorter or longer than a dictionary may be.
    #[error("a dictionary of {bytes} bytes; valid are {BYTES_MIN} to {BYTES_MAX}")]
    Length {
        /// The length that was asked for or found.
        bytes: usize,
    },
    /// The content is not that of a dictionary.
    #[error("not a zstd dictionary: its first bytes or its entropy tables are invalid")]
    Invalid,
}

/// The level of the streams. For values of some hundred bytes the streams of level 1 are about as long.
const LEVEL: i32 = 3;

/// The level of streams that are written with more effort. Higher levels take longer, and their streams are no shorter.
const LEVEL_HIGH: i32 = 6;

/// The shortest dictionary (bytes). The trainer refuses shorter ones.
pub const BYTES_MIN: usize = 256;

/// The longest dictionary (bytes). Longer ones gain little for small values (docs/decisions/0031-dictionaries.md).
pub const BYTES_MAX: usize = 64 << 10;

/// The first bytes of a dictionary (RFC 8878, section 5).
const MAGIC: [u8; 4] = 0xEC30_A437_u32.to_le_bytes();

/// Returns the first three bytes of the content's SHA-256. Two dictionaries have the same id only by chance. The
/// checksum of each value then finds that the other one is wrong.
fn id_of(content: &[u8]) -> DictionaryId {
    let hash = digest(&SHA256, content);
    let [a, b, c, ..] = *hash.as_ref() else { unreachable!("the hash has 32 bytes") };
    let lowest = DictionaryId::new(1).expect("1 is an id");
    DictionaryId::new(u32::from_le_bytes([a, b, c, 0])).unwrap_or(lowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn records(count: usize) -> Vec<Vec<u8>> {
        let record = |n: usize| {
            format!(
                "{{\"id\":{},\"type\":\"order\",\"user\":{{\"id\":{},\"plan\":\"team\"}},\"total\":{}}}",
                n * 7_919 % 999_983,
                n * 104_729 % 9_999_991,
                n % 500
            )
        };
        (0..count).map(|n| record(n).into_bytes()).collect()
    }

    #[test]
    fn content_gives_the_same_dictionary_again() {
        let records = records(1_000);
        let samples: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let trained = Dictionary::train(&samples, 4_096).expect("records have much in common");
        let again = Dictionary::from_content(trained.content().to_vec()).expect("it is valid");
        assert_eq!(trained.id(), again.id());
        assert!(trained.content().len() <= 4_096);
    }

    #[test]
    fn effort_changes_streams_and_not_the_dictionary() {
        let records = records(1_500);
        let samples: Vec<&[u8]> = records[..1_000].iter().map(Vec::as_slice).collect();
        let trained = Arc::new(Dictionary::train(&samples, 1_024).expect("much in common"));
        let high = Arc::new(trained.with_effort());
        assert_eq!(trained.id(), high.id());
        let bytes = |dictionary: &Arc<Dictionary>| -> usize {
            let values = records[1_000..].iter().map(Vec::as_slice);
            dictionary
                .stream_bytes(values)
                .into_iter()
                .map(|bytes| bytes.expect("it shrinks"))
                .sum()
        };
        assert_ne!(bytes(&trained), bytes(&high));
        assert_eq!(bytes(&high), bytes(&Arc::new(high.for_reading())));
        assert_eq!(bytes(&trained), bytes(&Arc::new(high.without_effort())));
        assert!(high.has_effort() && !high.without_effort().has_effort());
    }

    #[test]
    fn samples_without_content_train_nothing() {
        assert!(Dictionary::train(&[], 4_096).is_err());
        assert!(Dictionary::train(&[b"".as_slice(); 100], 4_096).is_err());
        let length = DictionaryError::Length { bytes: 10 };
        assert_eq!(Dictionary::train(&[b"x".as_slice(); 100], 10).err(), Some(length));
    }

    #[test]
    fn damaged_content_is_refused_or_another_dictionary() {
        let records = records(1_000);
        let samples: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let trained = Dictionary::train(&samples, 1_024).expect("records have much in common");
        for at in 0..trained.content().len() {
            let mut damaged = trained.content().to_vec();
            damaged[at] ^= 0x11;
            if let Ok(other) = Dictionary::from_content(damaged) {
                assert_ne!(other.id(), trained.id(), "{at}");
            }
        }
        let long = DictionaryError::Length { bytes: BYTES_MAX + 1 };
        assert_eq!(Dictionary::from_content(vec![0; BYTES_MAX + 1]).err(), Some(long));
        assert_eq!(Dictionary::from_content(vec![7; 600]).err(), Some(DictionaryError::Invalid));
    }
}
