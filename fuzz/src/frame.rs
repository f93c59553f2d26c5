//! Tests frames of every version with any bytes. An accepted header must not claim more than the reader's bound, a
//! sealed value must be read back under its key only, and damage behind the magic must be found. The damage is of a
//! kind that a CRC-32C always finds (a burst of up to 32 bits in one field, or another length), or one that no frame
//! survives as a foreign value (one flipped bit). So no run of this target, however long, fails by chance.

use arbitrary::Arbitrary;
use crate::Value;
use store::frame::{
    Encoding, FrameVersion, Header, Inspected, MAGIC, inspect, must_wrap, same_filled,
};
use units::Codec;
use units::limits::FRAME_HEADER_BYTES_MAX;

#[derive(Arbitrary, Debug)]
pub(super) enum Input<'a> {
    Stored { original_bytes_max: u32, magic: Option<Magic>, value: &'a [u8] },
    Sealed { key: &'a [u8], value: Value<'a>, window_log2: u8, damage: Damage<'a>, payload: &'a [u8] },
}

#[derive(Arbitrary, Debug)]
pub(super) enum Magic {
    Version1,
    Version2,
    Dictionary,
}

#[derive(Arbitrary, Debug)]
pub(super) enum Damage<'a> {
    Burst { at: u32, bits: u32 },
    Flip { at: u32, bit: u8 },
    Truncated { by: u16 },
    Extended { by: &'a [u8] },
}

pub(super) fn fuzz(input: Input<'_>) {
    match input {
        Input::Stored { original_bytes_max, magic, value } => {
            let magic: &[u8] = match magic {
                None => b"",
                Some(Magic::Version1) => &[0xFB, b'R', b'b', 1],
                Some(Magic::Version2) => &[0xFC],
                Some(Magic::Dictionary) => &[0xFD],
            };
            check_claims(&[magic, value].concat(), original_bytes_max as usize);
        }
        Input::Sealed { key, value, window_log2, damage, payload } => {
            let value = value.bytes(VALUE_BYTES_MAX);
            let window_log2 = if window_log2 < 8 { 0 } else { 8 + window_log2 % 24 };
            for version in FrameVersion::ALL {
                let seal = Seal { version, key, window_log2, original: &value };
                check_damage(&seal.frame(Encoding::Stored, &value), version, key, &damage);
                for codec in [Codec::Deflate, Codec::Lz4] {
                    seal.check_payload_length(Encoding::Compressed(codec), payload);
                }
                if let Some(byte) = same_filled(&value) {
                    assert!(value.iter().all(|other| *other == byte));
                    seal.frame(Encoding::SameFilled, &[byte]);
                } else {
                    assert!(value.is_empty() || value.iter().any(|byte| *byte != value[0]));
                }
            }
        }
    }
}

fn check_claims(value: &[u8], original_bytes_max: usize) {
    let inspected = inspect(value, original_bytes_max);
    if inspected != Inspected::Foreign {
        assert!(must_wrap(value), "a value that no writer wraps is taken for a frame");
    }
    if value.starts_with(&MAGIC) {
        assert_ne!(inspected, Inspected::Foreign);
    }
    let Inspected::Frame { header, payload } = inspected else { return };
    let original_bytes = header.original_bytes as usize;
    assert!(original_bytes <= original_bytes_max, "claims {original_bytes} bytes");
    assert_eq!(payload, header.header_bytes()..value.len());
    match header.encoding {
        Encoding::Stored => assert_eq!(payload.len(), original_bytes),
        Encoding::SameFilled => assert_eq!(payload.len(), 1),
        Encoding::Compressed(_) => assert!(!payload.is_empty()),
    }
    let mut encoded = [0; FRAME_HEADER_BYTES_MAX];
    let header_bytes = header.encode(&mut encoded);
    assert_eq!(encoded[..header_bytes], value[..header_bytes], "a header has one encoding");
    if let Some(bound) = original_bytes.checked_sub(1) {
        assert!(matches!(inspect(value, bound), Inspected::Invalid(_)));
    }
}

/// The parts of a frame that do not depend on its encoding.
struct Seal<'a> {
    version: FrameVersion,
    key: &'a [u8],
    window_log2: u8,
    original: &'a [u8],
}

impl Seal<'_> {
    fn header(&self, encoding: Encoding, payload_bytes: usize) -> Header {
        let Seal { version, key, window_log2, original } = *self;
        Header::seal(version, encoding, window_log2, key, original, payload_bytes)
    }

    /// Returns the frame after checking that it can be read back.
    fn frame(&self, encoding: Encoding, payload: &[u8]) -> Vec<u8> {
        let header = self.header(encoding, payload.len());
        let mut encoded = [0; FRAME_HEADER_BYTES_MAX];
        let header_bytes = header.encode(&mut encoded);
        let frame = [&encoded[..header_bytes], payload].concat();
        let expected = Inspected::Frame { header, payload: header_bytes..frame.len() };
        assert_eq!(inspect(&frame, self.original.len()), expected);
        assert!(header.verify(self.key, self.original));
        if let Some(first) = self.key.first() {
            let other = [&[!first], &self.key[1..]].concat();
            let is_bound = self.version == FrameVersion::V2;
            assert_eq!(header.verify(&other, self.original), !is_bound);
        }
        frame
    }

    /// Checks that a frame with one byte too many or too few is rejected. Not every decoder notices bytes behind its
    /// stream, but the frame does.
    fn check_payload_length(&self, encoding: Encoding, payload: &[u8]) {
        if payload.is_empty() || payload.len() >= self.original.len() {
            return;
        }
        let frame = self.frame(encoding, payload);
        for other in [&frame[..frame.len() - 1], &[&frame[..], b"\0"].concat()] {
            match inspect(other, self.original.len()) {
                Inspected::Frame { header, .. } => {
                    assert!(!header.verify(self.key, self.original));
                }
                Inspected::Invalid(_) => assert_eq!(payload.len(), 1),
                Inspected::Foreign | Inspected::Sealed { .. } => panic!("the magic is untouched"),
            }
        }
    }
}

/// Damages a frame of an uncompressed value and checks that it is rejected.
fn check_damage(frame: &[u8], version: FrameVersion, key: &[u8], damage: &Damage<'_>) {
    let mut damaged = frame.to_vec();
    let Inspected::Frame { header, payload } = inspect(frame, VALUE_BYTES_MAX) else {
        panic!("it was read before");
    };
    let magic_bytes = if version == FrameVersion::V1 { MAGIC.len() } else { 1 };
    match *damage {
        Damage::Burst { at, bits } => {
            // The burst stays within one field, because the checksum stands between the fields that it covers. In
            // version 2 it stays behind the fields that tell frames from foreign values.
            let checksum_at = payload.start - size_of::<u32>();
            let first = if version == FrameVersion::V1 { magic_bytes } else { checksum_at };
            let fields = [first..checksum_at, checksum_at..payload.start, payload.clone()];
            let at = first + at as usize % (frame.len() - first);
            let field = fields.into_iter().find(|field| field.contains(&at));
            let end = field.expect("fields cover the frame").end.min(at + size_of::<u32>());
            for (byte, bits) in damaged[at..end].iter_mut().zip(bits.to_le_bytes()) {
                *byte ^= bits;
            }
        }
        Damage::Flip { at, bit } => {
            let at = magic_bytes + at as usize % (frame.len() - magic_bytes);
            damaged[at] ^= 1 << (bit % 8);
        }
        Damage::Truncated { by } => {
            damaged.truncate(frame.len() - usize::from(by).min(frame.len() - magic_bytes));
        }
        Damage::Extended { by } => damaged.extend_from_slice(by),
    }
    let found = match inspect(&damaged, VALUE_BYTES_MAX) {
        Inspected::Foreign | Inspected::Sealed { .. } => panic!("the magic is untouched"),
        Inspected::Invalid(_) => true,
        Inspected::Frame { header: found, payload } => match found.encoding {
            Encoding::Stored => !found.verify(key, &damaged[payload]),
            // A reader decodes other payloads first. Even the right value must not pass the check then.
            _ => !found.verify(key, &frame[header.header_bytes()..]),
        },
    };
    assert!(found || damaged == frame, "{damage:?} is not found");
}

const VALUE_BYTES_MAX: usize = 70_000;
