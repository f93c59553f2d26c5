//! Payload classes and the generators of their bytes. The generated text has the redundancy of real documents, so a
//! codec reaches the same ratio on both. The ratios are tested below. No real document is copied, and a slice of a pool
//! need not be a well-formed document. Records are the exception: each is generated for its key.

mod html;
mod json;
mod numeric;
mod records;
mod text;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::Prng;

use crate::SizeDist;
pub(crate) use records::RecordWriter;
use text::Text;

/// The kind of bytes in values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadClass {
    /// Pages of programming documentation. zlib at level 1 compresses 4 KiB by a factor of 3.8 and 64 KiB by 5.7.
    #[default]
    Html,
    /// Indented JSON records. zlib at level 1 compresses 4 KiB by a factor of 5.5 and 64 KiB by 7.5.
    Json,
    /// Comma-separated trades. zlib at level 1 compresses 4 KiB by a factor of 3.2 and 64 KiB by 3.1.
    Numeric,
    /// Incompressible bytes.
    Random,
    /// One character, repeated. The key determines the character.
    Repeat,
    /// Records of nested JSON with ids and dates. Alone, 163 B hardly compress; a dictionary takes them to a quarter.
    RecordJson,
    /// Sessions of PHP with two random tokens.
    RecordSession,
    /// Messages of protobuf with 16 random bytes.
    RecordProtobuf,
    /// Fragments of HTML with links and prices.
    RecordHtml,
}

/// The error for a text that is not the name of a payload class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no payload class; use html, json, numeric, random, repeat, record-json, record-session, record-protobuf \
     or record-html"
)]
pub struct UnknownClass(pub String);

impl PayloadClass {
    /// Every class.
    pub const ALL: [Self; 9] = [
        Self::Html,
        Self::Json,
        Self::Numeric,
        Self::Random,
        Self::Repeat,
        Self::RecordJson,
        Self::RecordSession,
        Self::RecordProtobuf,
        Self::RecordHtml,
    ];

    /// The classes whose values are records.
    pub const RECORDS: [Self; 4] =
        [Self::RecordJson, Self::RecordSession, Self::RecordProtobuf, Self::RecordHtml];

    /// Returns the word for this class in configuration and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Json => "json",
            Self::Numeric => "numeric",
            Self::Random => "random",
            Self::Repeat => "repeat",
            Self::RecordJson => "record-json",
            Self::RecordSession => "record-session",
            Self::RecordProtobuf => "record-protobuf",
            Self::RecordHtml => "record-html",
        }
    }

    /// Returns the sizes at which the records of this class are typical, or none if its values are no records.
    pub const fn record_sizes(self) -> Option<SizeDist> {
        let (min_bytes, max_bytes) = match self {
            Self::RecordJson => (150, 176),
            Self::RecordSession => (163, 183),
            Self::RecordProtobuf => (60, 68),
            Self::RecordHtml => (660, 772),
            Self::Html | Self::Json | Self::Numeric | Self::Random | Self::Repeat => return None,
        };
        Some(SizeDist::Uniform { min_bytes, max_bytes })
    }

    /// Returns the writer of this class's records, or none if its values are no records.
    pub(crate) fn record_writer(self) -> Option<RecordWriter> {
        match self {
            Self::RecordJson => Some(records::json),
            Self::RecordSession => Some(records::session),
            Self::RecordProtobuf => Some(records::protobuf),
            Self::RecordHtml => Some(records::html),
            Self::Html | Self::Json | Self::Numeric | Self::Random | Self::Repeat => None,
        }
    }

    /// Returns `length` bytes of this class. The same seed gives the same bytes. [`Self::Repeat`] and records have no
    /// pool, and theirs is empty.
    pub(crate) fn pool(self, length: usize, seed: u64) -> Vec<u8> {
        let prng = Prng::new(seed);
        match self {
            Self::Html => html::generate(Text::new(length, prng)),
            Self::Json => json::generate(Text::new(length, prng)),
            Self::Numeric => numeric::generate(Text::new(length, prng)),
            Self::Random => random(length, prng),
            Self::Repeat
            | Self::RecordJson
            | Self::RecordSession
            | Self::RecordProtobuf
            | Self::RecordHtml => Vec::new(),
        }
    }
}

impl fmt::Display for PayloadClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PayloadClass {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, UnknownClass> {
        let found = Self::ALL.into_iter().find(|class| class.name() == text);
        found.ok_or_else(|| UnknownClass(text.to_owned()))
    }
}

/// Returns a record of exactly `length` bytes. The same seed gives the same bytes.
pub(crate) fn record(write: RecordWriter, length: usize, seed: u64) -> Vec<u8> {
    let mut text = Text::new(length, Prng::new(seed));
    write(&mut text);
    text.finish()
}

fn random(length: usize, mut prng: Prng) -> Vec<u8> {
    let mut bytes = vec![0; length];
    prng.fill(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use libdeflater::{CompressionLvl, Compressor};

    use super::*;

    /// Returns the median ratio of original to deflated bytes over slices of `length` bytes.
    fn ratio(pool: &[u8], length: usize) -> f64 {
        let mut compressor = Compressor::new(CompressionLvl::new(1).expect("level 1 exists"));
        let mut out = vec![0; compressor.deflate_compress_bound(length)];
        let mut ratios: Vec<f64> = pool
            .chunks_exact(length)
            .map(|slice| {
                let bytes = compressor.deflate_compress(slice, &mut out).expect("bound is enough");
                length as f64 / bytes as f64
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    }

    /// The expected ratios are those of zlib at level 1 on 4 KiB and 64 KiB of real documents: HTML of the
    /// Python manual, the JSON of iso-codes, and a trade log.
    #[test]
    fn ratios_are_within_a_quarter_of_those_of_real_documents() {
        let expected = [
            (PayloadClass::Html, 3.82, 5.50),
            (PayloadClass::Json, 6.20, 7.41),
            (PayloadClass::Numeric, 3.2, 3.1),
            (PayloadClass::Random, 1.0, 1.0),
        ];
        for (class, small, large) in expected {
            let pool = class.pool(1 << 20, 7);
            for (length, expected) in [(4 << 10, small), (64 << 10, large)] {
                let got = ratio(&pool, length);
                assert!((got / expected - 1.0).abs() < 0.25, "{class} {length} {got:.2}");
            }
        }
    }

    #[test]
    fn pools_repeat_with_the_seed_and_differ_without() {
        for class in PayloadClass::ALL {
            let pool = class.pool(10_000, 1);
            assert_eq!(pool, class.pool(10_000, 1));
            if !pool.is_empty() {
                assert_eq!(pool.len(), 10_000);
                assert_ne!(pool, class.pool(10_000, 2));
            }
            assert_eq!(class.name().parse(), Ok(class));
        }
    }

    fn records(class: PayloadClass, length: usize, count: u64) -> Vec<Vec<u8>> {
        let writer = class.record_writer().expect("a class of records");
        (0..count).map(|seed| record(writer, length, seed)).collect()
    }

    #[test]
    fn a_record_has_any_length() {
        for class in PayloadClass::RECORDS {
            for length in [0, 1, 17, 64, 163, 716, 4_096, 100_000] {
                assert_eq!(records(class, length, 1)[0].len(), length, "{class}");
            }
        }
    }

    #[test]
    fn records_are_alike_and_never_the_same() {
        for class in PayloadClass::RECORDS {
            let records = records(class, 700, 200);
            let distinct: std::collections::HashSet<_> = records.iter().collect();
            assert_eq!(distinct.len(), 200, "{class}");
            let (alone, together) = (ratio(&records[0], 700), ratio(&records.concat(), 70_000));
            assert!(together > alone * 1.15, "{class}: {alone:.2} alone, {together:.2} together");
        }
    }

    #[test]
    fn long_records_have_no_padding() {
        for class in PayloadClass::RECORDS {
            let long = ratio(&records(class, 64 << 10, 1)[0], 64 << 10);
            assert!((1.5..8.0).contains(&long), "{class}: {long:.2}");
        }
    }
}
