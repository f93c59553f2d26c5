//! Tests the frame as docs/format.md describes it: values survive round trips, and every error is
//! detected.

use proptest::prelude::*;
use units::ByteCount;

use super::*;

const MAX: usize = ByteCount::mib(1).as_usize();

/// Builds the frame of a value that is stored as it came, or of a same-filled value.
fn frame(codec: Codec, original: &[u8]) -> Vec<u8> {
    let mut head = [0; FRAME_HEADER_BYTES];
    let payload = if codec == Codec::SameFilled { &original[..1] } else { original };
    Header::seal(codec, 0, original, payload.len()).encode(&mut head);
    [&head, payload].concat()
}

/// Reads a stored value as a reader without codecs does. `None` is a miss.
fn read(value: &[u8]) -> Option<Vec<u8>> {
    match inspect(value, MAX) {
        Inspected::Foreign => Some(value.to_vec()),
        Inspected::Invalid(_) => None,
        Inspected::Frame { header, payload } => {
            let payload = &value[payload];
            let original = match header.codec {
                Codec::SameFilled => vec![payload[0]; header.original_bytes as usize],
                _ => payload.to_vec(),
            };
            header.verify(&original).then_some(original)
        }
    }
}

fn invalid(value: &[u8]) -> FrameError {
    match inspect(value, MAX) {
        Inspected::Invalid(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_header_is_laid_out_as_documented() {
    let mut head = [0; FRAME_HEADER_BYTES];
    let header = Header {
        codec: Codec::Zstd,
        window_log2: 12,
        original_bytes: 0x0102,
        payload_bytes: 7,
        checksum: 0xA1B2C3D4,
    };
    header.encode(&mut head);
    assert_eq!(head, [0xFB, b'R', b'b', 1, 2, 12, 0, 0, 2, 1, 0, 0, 0xD4, 0xC3, 0xB2, 0xA1]);
}

#[test]
fn the_checksum_is_crc32c_of_prefix_payload_length_and_original() {
    let header = Header::seal(Codec::Stored, 0, b"123456789", 9);
    let covered = b"\xFBRb\x01\x00\x00\x00\x00\x09\x00\x00\x00\x09\x00\x00\x00123456789";
    assert_eq!(header.checksum, crc32c::crc32c(covered));
    assert_eq!(crc32c::crc32c(b"123456789"), 0xE306_9283, "the check value of CRC-32C");
}

#[test]
fn the_documented_example_is_what_we_write() {
    let written = b"\xFBRb\x01\x00\x00\x00\x00\x0B\x00\x00\x00\x51\x14\x92\x07hello world";
    assert_eq!(frame(Codec::Stored, b"hello world"), written);
}

#[test]
fn a_value_without_magic_is_foreign() {
    for value in [&b""[..], b"\xFB", b"\xFBR", b"\xFBRB", b"plain text", "\u{FB}Rb".as_bytes()] {
        assert_eq!(inspect(value, MAX), Inspected::Foreign);
        assert!(!must_wrap(value));
    }
}

#[test]
fn each_invalid_field_is_named() {
    let good = frame(Codec::Stored, b"hello");
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        invalid(&bad)
    };
    assert_eq!(with(3, 2), FrameError::Version(2));
    assert_eq!(with(4, 5), FrameError::Codec(5));
    assert_eq!(with(5, 7), FrameError::Window(7));
    assert_eq!(with(5, 32), FrameError::Window(32));
    assert_eq!(with(6, 2), FrameError::Flags(2));
    assert_eq!(with(7, 9), FrameError::Reserved(9));
    assert_eq!(with(6, 1), FrameError::Dictionary { id: u32::from_le_bytes(*b"hell") });
    let original_bytes = 0xFF00_0005;
    assert_eq!(with(11, 0xFF), FrameError::TooLong { original_bytes, original_bytes_max: MAX });
}

#[test]
fn payloads_that_contradict_the_header_are_invalid() {
    let empty = |codec| invalid(&frame(codec, b"xxxx")[..FRAME_HEADER_BYTES]);
    for codec in Codec::ALL {
        let expected = FrameError::Payload { codec, payload_bytes: 0, original_bytes: 4 };
        assert_eq!(empty(codec), expected);
    }
    let long = [frame(Codec::SameFilled, b"xxxx"), vec![b'x']].concat();
    assert!(matches!(invalid(&long), FrameError::Payload { payload_bytes: 2, .. }));
}

#[test]
fn a_dictionary_id_that_is_cut_off_is_truncated() {
    let mut value = frame(Codec::Stored, b"abc");
    value[6] = 1;
    assert_eq!(invalid(&value), FrameError::Truncated { bytes: value.len() });
}

/// A flipped bit inside the magic makes the value foreign, because nothing else marks it as a
/// frame. Closed fleets forbid foreign values for that reason.
#[test]
fn every_flipped_bit_past_the_magic_is_a_miss() {
    for (codec, original) in [(Codec::Stored, &b"counts: 1 2 3"[..]), (Codec::SameFilled, b"aaaaa")]
    {
        let value = frame(codec, original);
        for bit in 8 * MAGIC.len()..8 * value.len() {
            let mut bad = value.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&bad), None, "{codec:?}, bit {bit}");
        }
    }
}

#[test]
fn every_truncation_is_a_miss() {
    let value = frame(Codec::Stored, b"some value");
    for bytes in MAGIC.len()..value.len() {
        assert_eq!(read(&value[..bytes]), None, "{bytes} bytes");
    }
}

proptest! {
    #[test]
    fn frames_round_trip(original in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert_eq!(read(&frame(Codec::Stored, &original)), Some(original));
    }

    #[test]
    fn same_filled_frames_round_trip(byte: u8, bytes in 1..100_000_usize) {
        let original = vec![byte; bytes];
        prop_assert_eq!(same_filled(&original), Some(byte));
        prop_assert_eq!(read(&frame(Codec::SameFilled, &original)), Some(original));
    }

    #[test]
    fn headers_round_trip(
        codec in prop::sample::select(&Codec::ALL[1..4]),
        window_log2 in prop::sample::select(vec![0, 8, 12, 15, 31]),
        original in prop::collection::vec(any::<u8>(), 0..100),
        payload in prop::collection::vec(any::<u8>(), 1..100),
    ) {
        let header = Header::seal(codec, window_log2, &original, payload.len());
        let mut head = [0; FRAME_HEADER_BYTES];
        header.encode(&mut head);
        let value = [&head, payload.as_slice()].concat();
        let found = Inspected::Frame { header, payload: FRAME_HEADER_BYTES..value.len() };
        prop_assert_eq!(inspect(&value, MAX), found);
        prop_assert!(header.verify(&original));

        // The header detects bytes appended to the payload, even if the decoder ignores them.
        let longer = [&value, &b"more"[..]].concat();
        let Inspected::Frame { header, .. } = inspect(&longer, MAX) else {
            return Err(TestCaseError::fail("still a frame"));
        };
        prop_assert!(!header.verify(&original));
    }

    #[test]
    fn hostile_bytes_behind_the_magic_never_panic(
        tail in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let value = [&MAGIC[..], &tail].concat();
        prop_assert_ne!(inspect(&value, MAX), Inspected::Foreign);
    }
}
