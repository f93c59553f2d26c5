//! Tests frames with any bytes. An accepted header must not claim more than the reader's bound, a sealed value must be
//! read back, and damage behind the magic must be found. The damage is of a kind that a CRC-32C always finds (a burst
//! of up to 32 bits in one field, or another length). So no run of this target, however long, fails by chance.

#![no_main]

use arbitrary::Arbitrary;
use fuzz::Value;
use libfuzzer_sys::fuzz_target;
use store::frame::{Codec, Header, Inspected, MAGIC, inspect, must_wrap, same_filled};
use units::limits::FRAME_HEADER_BYTES;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    Stored { original_bytes_max: u32, with_magic: bool, value: &'a [u8] },
    Sealed { value: Value<'a>, window_log2: u8, damage: Damage<'a>, payload: &'a [u8] },
}

#[derive(Arbitrary, Debug)]
enum Damage<'a> {
    Burst { at: u32, bits: u32 },
    Truncated { by: u16 },
    Extended { by: &'a [u8] },
}

fuzz_target!(|input: Input<'_>| {
    match input {
        Input::Stored { original_bytes_max, with_magic, value } => {
            let magic: &[u8] = if with_magic { &[0xFB, b'R', b'b', 1] } else { b"" };
            check_claims(&[magic, value].concat(), original_bytes_max as usize);
        }
        Input::Sealed { value, window_log2, damage, payload } => {
            let value = value.bytes(VALUE_BYTES_MAX);
            let window_log2 = if window_log2 < 8 { 0 } else { 8 + window_log2 % 24 };
            let stored = sealed(Codec::Stored, window_log2, &value, &value);
            check_damage(&stored, damage);
            for codec in [Codec::Deflate, Codec::Zstd, Codec::Lz4] {
                check_payload_length(codec, window_log2, &value, payload);
            }
            if let Some(byte) = same_filled(&value) {
                assert!(value.iter().all(|other| *other == byte));
                sealed(Codec::SameFilled, window_log2, &value, &[byte]);
            } else {
                assert!(value.is_empty() || value.iter().any(|byte| *byte != value[0]));
            }
        }
    }
});

fn check_claims(value: &[u8], original_bytes_max: usize) {
    let inspected = inspect(value, original_bytes_max);
    let has_magic = value.starts_with(&MAGIC);
    assert_eq!(inspected == Inspected::Foreign, !has_magic);
    assert_eq!(must_wrap(value), has_magic);
    let Inspected::Frame { header, payload } = inspected else { return };
    let original_bytes = header.original_bytes as usize;
    assert!(original_bytes <= original_bytes_max, "claims {original_bytes} bytes");
    assert_eq!(payload, FRAME_HEADER_BYTES..value.len());
    match header.codec {
        Codec::Stored => assert_eq!(payload.len(), original_bytes),
        Codec::SameFilled => assert_eq!(payload.len(), 1),
        Codec::Deflate | Codec::Zstd | Codec::Lz4 => assert!(!payload.is_empty()),
    }
    let mut encoded = [0; FRAME_HEADER_BYTES];
    header.encode(&mut encoded);
    assert_eq!(encoded, value[..FRAME_HEADER_BYTES], "a header has one encoding");
    if let Some(bound) = original_bytes.checked_sub(1) {
        assert!(matches!(inspect(value, bound), Inspected::Invalid(_)));
    }
}

/// Returns the frame of `original` after checking that it can be read back.
fn sealed(codec: Codec, window_log2: u8, original: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = Header::seal(codec, window_log2, original, payload.len());
    let mut encoded = [0; FRAME_HEADER_BYTES];
    header.encode(&mut encoded);
    let frame = [&encoded, payload].concat();
    let expected = Inspected::Frame { header, payload: FRAME_HEADER_BYTES..frame.len() };
    assert_eq!(inspect(&frame, original.len()), expected);
    assert!(header.verify(original));
    frame
}

/// Checks that a frame with one byte too many or too few is rejected. Not every decoder notices bytes behind its
/// stream, but the frame does.
fn check_payload_length(codec: Codec, window_log2: u8, original: &[u8], payload: &[u8]) {
    if payload.is_empty() {
        return;
    }
    let frame = sealed(codec, window_log2, original, payload);
    for other in [&frame[..frame.len() - 1], &[&frame[..], b"\0"].concat()] {
        match inspect(other, original.len()) {
            Inspected::Frame { header, .. } => assert!(!header.verify(original)),
            Inspected::Invalid(_) => assert_eq!(other.len(), FRAME_HEADER_BYTES),
            Inspected::Foreign => panic!("the magic is untouched"),
        }
    }
}

/// Damages a frame of codec 0 and checks that it is rejected.
fn check_damage(frame: &[u8], damage: Damage<'_>) {
    let mut damaged = frame.to_vec();
    match damage {
        Damage::Burst { at, bits } => {
            // The burst stays within one field, because the checksum stands between the fields that it covers.
            let fields = [MAGIC.len()..12, 12..FRAME_HEADER_BYTES, FRAME_HEADER_BYTES..frame.len()];
            let at = MAGIC.len() + at as usize % (frame.len() - MAGIC.len());
            let field = fields.into_iter().find(|field| field.contains(&at));
            let end = field.expect("fields cover the frame").end.min(at + size_of::<u32>());
            for (byte, bits) in damaged[at..end].iter_mut().zip(bits.to_le_bytes()) {
                *byte ^= bits;
            }
        }
        Damage::Truncated { by } => {
            damaged.truncate(frame.len() - usize::from(by).min(frame.len() - MAGIC.len()));
        }
        Damage::Extended { by } => damaged.extend_from_slice(by),
    }
    let found = match inspect(&damaged, VALUE_BYTES_MAX) {
        Inspected::Foreign => panic!("the magic is untouched"),
        Inspected::Invalid(_) => true,
        Inspected::Frame { header, payload } => match header.codec {
            Codec::Stored => !header.verify(&damaged[payload]),
            // Another codec would have to decode the payload first. Even the right value must not pass the check then.
            _ => !header.verify(&frame[FRAME_HEADER_BYTES..]),
        },
    };
    assert!(found || damaged == frame, "{damage:?} is not found");
}

const VALUE_BYTES_MAX: usize = 70_000;
