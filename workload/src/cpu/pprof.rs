//! Reads pprof's profiles: protobuf, usually gzipped, straight from its bytes. It reads tables of strings, functions
//! and locations by their ids, then sample by sample. The format is
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>. Only the parts that a stack and its weight need are
//! read.

use std::collections::HashMap;
use std::io::Read;

use libdeflater::Decompressor;

use super::read::CpuProfileError;

/// One sample. Its frames go from the leaf outwards: symbol and library.
pub(super) struct Sample<'p> {
    pub(super) weight: u64,
    pub(super) samples: u64,
    pub(super) instructions: u64,
    pub(super) frames: Vec<(&'p [u8], &'p [u8])>,
}

/// A profile's tables, and its samples' bytes.
pub(super) struct Pprof<'p> {
    /// The unit of the weights.
    pub(super) event: String,
    strings: Vec<&'p [u8]>,
    /// The names by id.
    functions: HashMap<u64, u64>,
    /// The file names by id.
    mappings: HashMap<u64, u64>,
    locations: HashMap<u64, Location>,
    samples: Vec<&'p [u8]>,
    weight_at: usize,
    samples_at: Option<usize>,
    instructions_at: Option<usize>,
}

#[derive(Default)]
struct Location {
    mapping: u64,
    /// The functions, innermost first.
    functions: Vec<u64>,
}

/// Returns all of the bytes, unpacked if they are gzipped.
///
/// # Errors
/// There are more bytes than may be read, or they cannot be unpacked.
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
    // Its last four bytes say how long it is unpacked.
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

/// Returns whether a file that begins like this may be a profile.
pub(super) fn may_be(head: &[u8]) -> bool {
    // The first field is one of a profile's, most often a type of samples.
    let tag = head.first().copied().unwrap_or(0);
    head.starts_with(GZIP) || (FIELDS.contains(&(tag >> 3)) && matches!(tag & 7, VARINT | BYTES))
}

impl<'p> Pprof<'p> {
    /// Reads the tables.
    ///
    /// # Errors
    /// The bytes are no profile.
    pub(super) fn new(bytes: &'p [u8]) -> Result<Self, CpuProfileError> {
        let mut profile = Self {
            event: String::new(),
            strings: Vec::new(),
            functions: HashMap::new(),
            mappings: HashMap::new(),
            locations: HashMap::new(),
            samples: Vec::new(),
            weight_at: 0,
            samples_at: None,
            instructions_at: None,
        };
        let mut types = Vec::new();
        let mut preferred = 0;
        profile.tables(bytes, &mut types, &mut preferred)?;
        profile.choose(&types, preferred);
        let none = CpuProfileError::Binary("no text, and no pprof profile with samples");
        if profile.samples.is_empty() || types.is_empty() { Err(none) } else { Ok(profile) }
    }

    fn tables(
        &mut self,
        bytes: &'p [u8],
        types: &mut Vec<u64>,
        preferred: &mut u64,
    ) -> Result<(), CpuProfileError> {
        let broken = || CpuProfileError::Binary(BROKEN);
        let mut fields = Fields(bytes);
        let mut entries = 0;
        while let Some((number, value)) = fields.next().ok_or_else(broken)? {
            if let (14, Value::Number(text)) = (number, value) {
                *preferred = text;
            }
            if let Value::Bytes(message) = value {
                entries += self.entry(number, message, types).ok_or_else(broken)?;
            }
            if entries > ENTRIES_MAX {
                return Err(CpuProfileError::Binary(TOO_MANY));
            }
        }
        Ok(())
    }

    /// Adds to a table, and returns how many entries that takes.
    fn entry(&mut self, number: u64, message: &'p [u8], types: &mut Vec<u64>) -> Option<usize> {
        match number {
            1 => types.push(numbers(message, [1])?[0]),
            2 => self.samples.push(message),
            3 => {
                let [id, name] = numbers(message, [1, 5])?;
                self.mappings.insert(id, name);
            }
            4 => {
                let (id, location) = location(message)?;
                let entries = 1 + location.functions.len();
                self.locations.insert(id, location);
                return Some(entries);
            }
            5 => {
                let [id, name] = numbers(message, [1, 2])?;
                self.functions.insert(id, name);
            }
            6 => self.strings.push(message),
            _ => return Some(0),
        }
        Some(1)
    }

    /// Finds the meaning of a sample's values.
    fn choose(&mut self, types: &[u64], preferred: u64) {
        let names: Vec<&[u8]> = types.iter().map(|name| self.text(*name)).collect();
        let find = |word: &[u8]| names.iter().position(|name| *name == word);
        let default = types.iter().position(|name| *name == preferred && preferred > 0);
        let weight_at = find(b"cycles").or(find(b"cpu")).or(default);
        let weight_at = weight_at.unwrap_or(types.len().saturating_sub(1));
        let event = names.get(weight_at).map(|name| String::from_utf8_lossy(name).into_owned());
        let (samples_at, instructions_at) = (find(b"samples"), find(b"instructions"));
        (self.weight_at, self.event) = (weight_at, event.unwrap_or_default());
        (self.samples_at, self.instructions_at) = (samples_at, instructions_at);
    }

    /// Returns how many samples there are.
    pub(super) fn count(&self) -> usize {
        self.samples.len()
    }

    /// Returns one of the samples. Returns none if it cannot be read, or has more frames than any stack that was taken.
    pub(super) fn sample(&self, index: usize) -> Option<Sample<'p>> {
        let (mut ids, mut values) = (Vec::new(), Vec::new());
        let mut fields = Fields(self.samples.get(index)?);
        while let Some((number, value)) = fields.next()? {
            match number {
                1 => value.repeated(&mut ids)?,
                2 => value.repeated(&mut values)?,
                _ => {}
            }
        }
        let value = |at: usize| values.get(at).map(|value| (*value as i64).max(0) as u64);
        let mut frames = Vec::new();
        for id in ids {
            let location = self.locations.get(&id)?;
            if frames.len() + location.functions.len().max(1) > FRAMES_MAX {
                return None;
            }
            let library = self.mappings.get(&location.mapping).map_or(&b""[..], |n| self.text(*n));
            let names = location.functions.iter().map(|function| {
                self.functions.get(function).map_or(&b""[..], |name| self.text(*name))
            });
            frames
                .extend(names.map(|name| (if name.is_empty() { UNKNOWN } else { name }, library)));
            if location.functions.is_empty() {
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

    fn text(&self, index: u64) -> &'p [u8] {
        usize::try_from(index)
            .ok()
            .and_then(|index| self.strings.get(index))
            .copied()
            .unwrap_or(b"")
    }
}

fn location(bytes: &[u8]) -> Option<(u64, Location)> {
    let (mut id, mut location) = (0, Location::default());
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Number(number)) => id = number,
            (2, Value::Number(number)) => location.mapping = number,
            // This is one more than a sample may have: it is refused when it is met.
            (4, Value::Bytes(line)) if location.functions.len() <= FRAMES_MAX => {
                location.functions.push(numbers(line, [1])?[0]);
            }
            _ => {}
        }
    }
    Some((id, location))
}

/// Returns the numbers of these fields of a message, and 0 for those that are not set.
fn numbers<const N: usize>(bytes: &[u8], wanted: [u64; N]) -> Option<[u64; N]> {
    let mut found = [0; N];
    let mut fields = Fields(bytes);
    while let Some((number, value)) = fields.next()? {
        if let (Some(at), Value::Number(value)) = (wanted.iter().position(|n| *n == number), value)
        {
            found[at] = value;
        }
    }
    Some(found)
}

/// The fields of a message, one after the other.
struct Fields<'p>(&'p [u8]);

#[derive(Clone, Copy)]
enum Value<'p> {
    Number(u64),
    Bytes(&'p [u8]),
    /// The field is of a kind that profiles do not use.
    Fixed,
}

impl<'p> Fields<'p> {
    /// Returns the next field, or the end. Returns nothing if the message breaks off.
    #[allow(clippy::option_option, reason = "an end is no break")]
    fn next(&mut self) -> Option<Option<(u64, Value<'p>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = varint(&mut self.0)?;
        let value = match tag as u8 & 7 {
            VARINT => Value::Number(varint(&mut self.0)?),
            BYTES => {
                let count = usize::try_from(varint(&mut self.0)?).ok()?;
                let (field, rest) = self.0.split_at_checked(count)?;
                self.0 = rest;
                Value::Bytes(field)
            }
            FIXED_64 => self.skip(8)?,
            FIXED_32 => self.skip(4)?,
            _ => return None,
        };
        Some(Some((tag >> 3, value)))
    }

    fn skip(&mut self, count: usize) -> Option<Value<'p>> {
        self.0 = self.0.get(count..)?;
        Some(Value::Fixed)
    }
}

impl Value<'_> {
    /// Adds the numbers of a repeated field, packed or not. Adds nothing if they are more than a sample may have.
    fn repeated(self, all: &mut Vec<u64>) -> Option<()> {
        match self {
            Value::Number(number) => all.push(number),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    if all.len() > FRAMES_MAX {
                        return None;
                    }
                    all.push(varint(&mut packed)?);
                }
            }
            Value::Fixed => return None,
        }
        (all.len() <= FRAMES_MAX).then_some(())
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if *first < 0x80 {
            return Some(value);
        }
    }
    None
}

const GZIP: &[u8] = b"\x1f\x8b";
const VARINT: u8 = 0;
const FIXED_64: u8 = 1;
const BYTES: u8 = 2;
const FIXED_32: u8 = 5;

/// The fields that a profile has.
const FIELDS: std::ops::RangeInclusive<u8> = 1..=15;

const BROKEN: &str = "no text, and no pprof profile that can be read to its end";
const UNKNOWN: &[u8] = b"[unknown]";

const TOO_MANY: &str = "a pprof profile of more than 1,048,576 samples, strings and places; \
     valid are 1 to as many: sample less";

pub(super) const TOO_MANY_FRAMES: &str =
    "a pprof profile of more than 134,217,728 frames; valid are 1 to as many: sample less";

/// The most frames of all samples together. Each costs a look-up.
pub(super) const ALL_FRAMES_MAX: usize = 128 << 20;

/// The most frames of a sample: some times the deepest stacks that profilers take.
const FRAMES_MAX: usize = 4_096;
/// The most entries of the tables. Each takes some tens of bytes beside its own: with all of them the tables are within
/// 128 MiB.
const ENTRIES_MAX: usize = 1 << 20;

/// The most bytes of a file, and of its unpacked form. Profiles of minutes are some megabytes.
const BYTES_MAX: u64 = 128 << 20;
