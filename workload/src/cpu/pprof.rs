//! Reads profiles of pprof, which are protobuf and usually gzipped. It first reads the tables of strings,
//! functions and locations, and then the samples one by one. The format is
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::HashMap;
use std::io::Read;

use libdeflater::Decompressor;
use prost::bytes::Bytes;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message};

use super::read::CpuProfileError;

/// The parts of `profile.proto` that a stack and its weight need. Texts stay bytes, because symbols need not be UTF-8.
/// Samples and locations stay encoded until their lengths are checked.
mod proto {
    use prost::Message;
    use prost::bytes::Bytes;

    #[derive(Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(super) sample_types: Vec<ValueType>,
        #[prost(bytes = "bytes", repeated, tag = "2")]
        pub(super) samples: Vec<Bytes>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mappings: Vec<Mapping>,
        #[prost(bytes = "bytes", repeated, tag = "4")]
        pub(super) locations: Vec<Bytes>,
        #[prost(message, repeated, tag = "5")]
        pub(super) functions: Vec<Function>,
        #[prost(bytes = "bytes", repeated, tag = "6")]
        pub(super) strings: Vec<Bytes>,
        #[prost(int64, tag = "14")]
        pub(super) default_sample_type: i64,
    }

    #[derive(Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) name: i64,
    }

    #[derive(Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) locations: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) values: Vec<i64>,
    }

    #[derive(Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "5")]
        pub(super) file: i64,
    }

    #[derive(Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping: u64,
        /// The functions at this location, the innermost first.
        #[prost(message, repeated, tag = "4")]
        pub(super) lines: Vec<Line>,
    }

    #[derive(Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function: u64,
    }

    #[derive(Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
    }
}

/// One sample. Its frames are (symbol, library), from the leaf to the root.
pub(super) struct Sample<'p> {
    pub(super) weight: u64,
    pub(super) samples: u64,
    pub(super) instructions: u64,
    pub(super) frames: Vec<(&'p [u8], &'p [u8])>,
}

/// The tables of a profile, and the encoded bytes of its samples.
pub(super) struct Pprof {
    /// The unit of the weights.
    pub(super) event: String,
    strings: Vec<Bytes>,
    /// The name of each function, by the id of the function.
    functions: HashMap<u64, i64>,
    /// The file name of each mapping, by the id of the mapping.
    mappings: HashMap<u64, i64>,
    locations: HashMap<u64, proto::Location>,
    samples: Vec<Bytes>,
    weight_at: usize,
    samples_at: Option<usize>,
    instructions_at: Option<usize>,
}

/// Returns all bytes of the input, unpacked if they are gzipped.
///
/// # Errors
/// Returns an error if the input has more bytes than the limit or cannot be unpacked.
pub(super) fn bytes(input: impl Read) -> Result<Vec<u8>, CpuProfileError> {
    let mut packed = Vec::new();
    input.take(BYTES_MAX + 1).read_to_end(&mut packed)?;
    if packed.len() as u64 > BYTES_MAX {
        let what = "more than";
        return Err(CpuProfileError::TooLong { what, bytes: BYTES_MAX, bytes_max: BYTES_MAX });
    }
    if !packed.starts_with(GZIP) {
        return Ok(packed);
    }
    // The last four bytes of a gzip file state the unpacked length.
    let broken = CpuProfileError::Binary("compressed, and cannot be unpacked");
    let Some((_, length)) = packed.split_last_chunk::<4>() else { return Err(broken) };
    let bytes = u64::from(u32::from_le_bytes(*length));
    if bytes > BYTES_MAX {
        let what = "compressed, and says that unpacked it has";
        return Err(CpuProfileError::TooLong { what, bytes, bytes_max: BYTES_MAX });
    }
    let length = bytes as usize;
    let mut unpacked = vec![0; length];
    match Decompressor::new().gzip_decompress(&packed, &mut unpacked) {
        Ok(count) if count == length => Ok(unpacked),
        _ => Err(broken),
    }
}

/// Returns whether a file that begins with these bytes may be a profile.
pub(super) fn may_be(head: &[u8]) -> bool {
    // The first field is a field of a profile, most often a type of samples.
    let tag = head.first().copied().unwrap_or(0);
    head.starts_with(GZIP)
        || (FIELDS.contains(&(tag >> 3)) && matches!(tag & 7, VARINT | LENGTH_DELIMITED))
}

impl Pprof {
    /// Reads the tables.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a profile.
    pub(super) fn new(bytes: Vec<u8>) -> Result<Self, CpuProfileError> {
        let broken = |_: DecodeError| CpuProfileError::Binary(BROKEN);
        let mut entries = count_entries(&bytes).map_err(broken)?;
        if entries > ENTRIES_MAX {
            return Err(CpuProfileError::Binary(TOO_MANY));
        }
        // The texts and samples are slices of the bytes.
        let profile = proto::Profile::decode(Bytes::from(bytes)).map_err(broken)?;
        if profile.samples.is_empty() && !profile.sample_types.is_empty() {
            return Err(CpuProfileError::Binary(EMPTY));
        }
        if profile.samples.is_empty() || profile.sample_types.is_empty() {
            return Err(CpuProfileError::Binary("no text, and no pprof profile with samples"));
        }
        let mut locations = HashMap::new();
        for location in profile.locations.iter().filter(|one| one.len() <= MESSAGE_BYTES_MAX) {
            let location = proto::Location::decode(&location[..]).map_err(broken)?;
            entries += location.lines.len();
            if entries > ENTRIES_MAX {
                return Err(CpuProfileError::Binary(TOO_MANY));
            }
            locations.insert(location.id, location);
        }
        let types: Vec<&[u8]> =
            profile.sample_types.iter().map(|one| text(&profile.strings, one.name)).collect();
        let find = |word: &[u8]| types.iter().position(|name| *name == word);
        let default = Some(profile.default_sample_type).filter(|default| *default > 0);
        let default = profile
            .sample_types
            .iter()
            .position(|one| default.is_some_and(|name| one.name == name));
        let weight_at = find(b"cycles").or(find(b"cpu")).or(default).unwrap_or(types.len() - 1);
        Ok(Self {
            event: String::from_utf8_lossy(types[weight_at]).into_owned(),
            weight_at,
            samples_at: find(b"samples"),
            instructions_at: find(b"instructions"),
            functions: profile.functions.into_iter().map(|one| (one.id, one.name)).collect(),
            mappings: profile.mappings.into_iter().map(|one| (one.id, one.file)).collect(),
            locations,
            samples: profile.samples,
            strings: profile.strings,
        })
    }

    /// Returns the number of samples.
    pub(super) fn count(&self) -> usize {
        self.samples.len()
    }

    /// Returns the sample at `index`. Returns none if it cannot be read or has more than `FRAMES_MAX` frames.
    pub(super) fn sample(&self, index: usize) -> Option<Sample<'_>> {
        let bytes = self.samples.get(index).filter(|bytes| bytes.len() <= MESSAGE_BYTES_MAX)?;
        let proto::Sample { locations, values } = proto::Sample::decode(&bytes[..]).ok()?;
        if locations.len().max(values.len()) > FRAMES_MAX {
            return None;
        }
        let value = |at: usize| values.get(at).map(|value| (*value).max(0) as u64);
        let mut frames = Vec::new();
        for id in locations {
            let location = self.locations.get(&id)?;
            if frames.len() + location.lines.len().max(1) > FRAMES_MAX {
                return None;
            }
            let library = self.mappings.get(&location.mapping).copied().unwrap_or(NO_TEXT);
            let library = text(&self.strings, library);
            let names = location.lines.iter().map(|line| {
                text(&self.strings, self.functions.get(&line.function).copied().unwrap_or(NO_TEXT))
            });
            frames
                .extend(names.map(|name| (if name.is_empty() { UNKNOWN } else { name }, library)));
            if location.lines.is_empty() {
                frames.push((UNKNOWN, library));
            }
        }
        Some(Sample {
            weight: value(self.weight_at)?,
            samples: self.samples_at.map_or(Some(1), value)?,
            instructions: self.instructions_at.and_then(value).unwrap_or(0),
            frames,
        })
    }
}

fn text(strings: &[Bytes], index: i64) -> &[u8] {
    let text = usize::try_from(index).ok().and_then(|index| strings.get(index));
    text.map_or(b"", |text| text)
}

/// Counts the entries of the tables before they are decoded. An empty entry has two encoded bytes and takes
/// tens of bytes of memory after decoding.
fn count_entries(mut bytes: &[u8]) -> Result<usize, DecodeError> {
    let mut entries = 0;
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes)?;
        skip_field(wire_type, tag, &mut bytes, DecodeContext::default())?;
        entries += usize::from(TABLES.contains(&tag));
    }
    Ok(entries)
}

/// An index that no string has.
const NO_TEXT: i64 = -1;

const GZIP: &[u8] = b"\x1f\x8b";
const VARINT: u8 = 0;
const LENGTH_DELIMITED: u8 = 2;

/// `FIELDS` are the numbers of a profile's fields. `TABLES` are the numbers of the fields that are tables.
const FIELDS: std::ops::RangeInclusive<u8> = 1..=15;
const TABLES: std::ops::RangeInclusive<u32> = 1..=6;

const BROKEN: &str = "no text, and no pprof profile that can be read to its end";
const EMPTY: &str = "a pprof profile without samples, because nothing ran while it was taken";
const UNKNOWN: &[u8] = b"[unknown]";

const TOO_MANY: &str = "a pprof profile of more than 1,048,576 samples, strings and places; \
     valid are 1 to as many: sample less";

pub(super) const TOO_MANY_FRAMES: &str =
    "a pprof profile of more than 134,217,728 frames; valid are 1 to as many: sample less";

/// The most frames of all samples together. Each frame costs a lookup.
pub(super) const ALL_FRAMES_MAX: usize = 128 << 20;

/// The most frames of a sample. Profilers record stacks that are several times less deep.
const FRAMES_MAX: usize = 4_096;
/// The most encoded bytes of a sample or location. The decoded form takes up to eight times as many bytes. A sample of
/// 4,096 frames takes at most a tenth of the limit.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// The most entries of the tables. Each entry takes some tens of bytes in addition to its encoded bytes, so the tables
/// take at most 128 MiB.
const ENTRIES_MAX: usize = 1 << 20;

/// The most bytes of a file and of its unpacked form. A profile of some minutes has some megabytes.
const BYTES_MAX: u64 = 128 << 20;
