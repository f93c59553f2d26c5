//! Tests the frame as docs/format.md describes it: values survive round trips, every error is detected, and values of
//! other programs are rarely taken for frames.

use proptest::prelude::*;
use units::limits::FRAME_HEADER_BYTES_MAX;
use units::{ByteCount, Codec, Prng};

use super::FrameVersion::{V1, V2};
use super::*;

const MAX: usize = ByteCount::mib(1).as_usize();

const KEY: &[u8] = b"key";

/// Puts a header in front of a payload.
fn framed(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut head = [0; FRAME_HEADER_BYTES_MAX];
    let bytes = header.encode(&mut head);
    assert_eq!(bytes, header.header_bytes());
    [&head[..bytes], payload].concat()
}

/// Builds the frame of a value that is stored as it came, or of a same-filled value.
fn frame(version: FrameVersion, encoding: Encoding, original: &[u8]) -> Vec<u8> {
    let payload = if encoding == Encoding::SameFilled { &original[..1] } else { original };
    framed(&Header::seal(version, encoding, 0, KEY, original, payload.len()), payload)
}

/// Returns a zstd frame that repeats a byte, as a single segment without its magic number, and its content.
fn repeated(bytes: u8) -> (Vec<u8>, Vec<u8>) {
    let [a, b, c, _] = (u32::from(bytes) << 3 | 0b011).to_le_bytes();
    (vec![0x20, bytes, a, b, c, b'x'], vec![b'x'; usize::from(bytes)])
}

fn with_magic(stream: &[u8]) -> Vec<u8> {
    [&units::zstd_frame::MAGIC, stream].concat()
}

fn dictionary_frame(number: u32) -> (Header, Vec<u8>, Vec<u8>) {
    let (stream, original) = repeated(100);
    let id = DictionaryId::new(number).expect("a valid id");
    let header = Header::seal_with_dictionary(id, KEY, &original, stream.len());
    let value = framed(&header, &stream);
    (header, value, original)
}

/// Returns frames of each version, encoding and length of the header, with their logical values.
fn small_frames() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut frames = Vec::new();
    for version in FrameVersion::ALL {
        for (encoding, original) in
            [(Encoding::Stored, &b"counts: 1 2 3"[..]), (Encoding::SameFilled, b"aaaaa")]
        {
            frames.push((frame(version, encoding, original), original.to_vec()));
        }
        let (stream, original) = repeated(100);
        let stream = with_magic(&stream);
        // A window of 2^17 needs the long header.
        for (codec, window_log2) in
            Codec::ALL.into_iter().flat_map(|codec| [0, 12, 17].map(|window| (codec, window)))
        {
            let encoding = Encoding::Compressed(codec);
            let header = Header::seal(version, encoding, window_log2, KEY, &original, stream.len());
            frames.push((framed(&header, &stream), original.clone()));
        }
    }
    let (_, value, original) = dictionary_frame(0x0A_0B0C);
    frames.push((value, original));
    // This id becomes zero by one flipped bit.
    let (_, value, original) = dictionary_frame(1);
    frames.push((value, original));
    frames
}

/// Reads a stored value as a reader does that has no codecs but knows what the payload was. `None` is a miss.
fn read(value: &[u8], decoded: &[u8]) -> Option<Vec<u8>> {
    match inspect(value, MAX) {
        Inspected::Foreign => Some(value.to_vec()),
        Inspected::Invalid(_) | Inspected::Sealed { .. } => None,
        Inspected::Frame { header, payload } => {
            let payload = &value[payload];
            let original = match header.encoding {
                Encoding::SameFilled => vec![payload[0]; header.original_bytes as usize],
                Encoding::Stored => payload.to_vec(),
                Encoding::Compressed(_) => decoded.to_vec(),
            };
            header.verify(KEY, &original).then_some(original)
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
fn version_1_is_laid_out_as_documented() {
    let header = Header {
        version: V1,
        encoding: Encoding::Compressed(Codec::Zstd),
        window_log2: 12,
        original_bytes: 0x0102,
        payload_bytes: 7,
        checksum: 0xA1B2C3D4,
        dictionary_id: None,
    };
    let head = [0xFB, b'R', b'b', 1, 2, 12, 0, 0, 2, 1, 0, 0, 0xD4, 0xC3, 0xB2, 0xA1];
    assert_eq!(framed(&header, b""), head);
}

#[test]
fn version_2_is_laid_out_as_documented() {
    let short = Header {
        version: V2,
        encoding: Encoding::Compressed(Codec::Deflate),
        window_log2: 12,
        original_bytes: 0x0102,
        payload_bytes: 7,
        checksum: 0xA1B2C3D4,
        dictionary_id: None,
    };
    assert_eq!(framed(&short, b""), [0xFC, 0x41, 1, 1, 0xD4, 0xC3, 0xB2, 0xA1]);
    let long = Header { original_bytes: 0x01_0002, ..short };
    let head = [0xFC, 0x81, 12, 0, 2, 0, 1, 0, 0xD4, 0xC3, 0xB2, 0xA1];
    assert_eq!(framed(&long, b""), head);
    let encoding = Encoding::Compressed(Codec::Zstd);
    let id = DictionaryId::new(0x03_0201);
    let dictionary = Header { encoding, dictionary_id: id, ..short };
    assert_eq!(framed(&dictionary, b""), [0xFD, 1, 2, 3, 0xD4, 0xC3, 0xB2, 0xA1]);
}

#[test]
fn only_values_above_64_kib_have_twelve_bytes() {
    let bytes = |window_log2, original_bytes| V2.header_bytes(window_log2, original_bytes);
    assert_eq!([bytes(0, 1), bytes(9, 65_536), bytes(15, 100)], [8; 3]);
    assert_eq!([bytes(0, 0), bytes(0, 65_537), bytes(16, 100), bytes(8, 100)], [12; 4]);
}

#[test]
fn the_checksum_covers_header_lengths_key_and_original() {
    let header = Header::seal(V1, Encoding::Stored, 0, KEY, b"123456789", 9);
    let covered = b"\xFBRb\x01\x00\x00\x00\x00\x09\x00\x00\x00\x09\x00\x00\x00123456789";
    assert_eq!(header.checksum, crc32c::crc32c(covered));
    let header = Header::seal(V2, Encoding::Stored, 0, KEY, b"123456789", 9);
    let covered = b"\xFC\x00\x08\x00\x09\x00\x00\x00\x09\x00\x00\x00key123456789";
    assert_eq!(header.checksum, crc32c::crc32c(covered));
    assert_eq!(crc32c::crc32c(b"123456789"), 0xE306_9283, "the check value of CRC-32C");
}

#[test]
fn the_documented_examples_are_what_we_write() {
    let written = b"\xFBRb\x01\x00\x00\x00\x00\x0B\x00\x00\x00\x51\x14\x92\x07hello world";
    assert_eq!(frame(V1, Encoding::Stored, b"hello world"), written);
    let written = b"\xFC\x00\x0A\x00\x1C\x0E\x6F\xA7hello world";
    assert_eq!(frame(V2, Encoding::Stored, b"hello world"), written);
    let (_, value, _) = dictionary_frame(7);
    assert_eq!(value, b"\xFD\x07\x00\x00\x75\x48\x42\x39\x20\x64\x23\x03\x00x");
}

#[test]
fn text_and_similar_magics_are_foreign() {
    for value in [&b""[..], b"\xFB", b"\xFBR", b"\xFBRB", b"plain text", "\u{FC}Rb".as_bytes()] {
        assert_eq!(inspect(value, MAX), Inspected::Foreign);
        assert!(!must_wrap(value));
    }
}

#[test]
fn every_value_that_begins_with_a_magic_is_wrapped() {
    for value in [&b"\xFBRb"[..], b"\xFC", b"\xFD", b"\xFC text", b"\xFD7zXZ\0"] {
        assert!(must_wrap(value), "{value:02x?}");
        for version in FrameVersion::ALL {
            let stored = frame(version, Encoding::Stored, value);
            assert_eq!(read(&stored, b""), Some(value.to_vec()));
        }
    }
}

#[test]
fn each_invalid_field_of_version_1_is_named() {
    let good = frame(V1, Encoding::Stored, b"hello");
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        invalid(&bad)
    };
    assert_eq!(with(3, 2), FrameError::Version(2));
    assert_eq!(with(4, 5), FrameError::Encoding(5));
    assert_eq!(with(5, 7), FrameError::Window(7));
    assert_eq!(with(5, 32), FrameError::Window(32));
    assert_eq!(with(6, 2), FrameError::Flags(2));
    assert_eq!(with(7, 9), FrameError::Reserved(9));
    assert_eq!(with(6, 1), FrameError::Dictionary { id: u32::from_le_bytes(*b"hell") });
    let original_bytes = 0xFF00_0005;
    assert_eq!(with(11, 0xFF), FrameError::TooLong { original_bytes, original_bytes_max: MAX });
}

#[test]
fn each_invalid_field_of_version_2_is_named() {
    let long = vec![b'x'; 70_000];
    let good = framed(&Header::seal(V2, Encoding::Stored, 0, KEY, &long, long.len()), &long);
    let with = |at: usize, byte: u8| {
        let mut bad = good.clone();
        bad[at] = byte;
        invalid(&bad)
    };
    assert_eq!(with(1, 0x88), FrameError::Kind(0x88));
    assert_eq!(with(2, 7), FrameError::Window(7));
    assert_eq!(with(3, 1), FrameError::Reserved(1));
    assert_eq!(with(6, 0), FrameError::LongHeader { original_bytes: 70_000 - 65_536 });
    let original_bytes = 0xFF01_1170;
    assert_eq!(with(7, 0xFF), FrameError::TooLong { original_bytes, original_bytes_max: MAX });
    let (_, mut value, _) = dictionary_frame(1);
    value[1] = 0;
    assert_eq!(invalid(&value), FrameError::DictionaryZero);
    value.push(0);
    assert_eq!(invalid(&value), FrameError::Stream { payload_bytes: 7 });
}

#[test]
fn payloads_that_contradict_the_header_are_invalid() {
    for version in FrameVersion::ALL {
        for encoding in Encoding::all() {
            let header = Header::seal(version, encoding, 0, KEY, b"xxxx", 4);
            let expected = FrameError::Payload { encoding, payload_bytes: 0, original_bytes: 4 };
            assert_eq!(invalid(&framed(&header, b"")), expected);
        }
        let long = [frame(version, Encoding::SameFilled, b"xxxx"), vec![b'x']].concat();
        assert!(matches!(invalid(&long), FrameError::Payload { payload_bytes: 2, .. }));
    }
}

#[test]
fn a_stream_longer_than_its_value_is_invalid() {
    for codec in Codec::ALL {
        let header = Header::seal(V2, Encoding::Compressed(codec), 0, KEY, b"xxxx", 5);
        assert!(matches!(invalid(&framed(&header, b"stream")), FrameError::Payload { .. }));
    }
}

#[test]
fn a_zstd_payload_must_be_one_whole_frame() {
    let (stream, original) = repeated(100);
    let stream = with_magic(&stream);
    let inspected = |stream: &[u8], original: &[u8]| {
        let encoding = Encoding::Compressed(Codec::Zstd);
        let header = Header::seal(V2, encoding, 0, KEY, original, stream.len());
        inspect(&framed(&header, stream), MAX)
    };
    assert!(matches!(inspected(&stream, &original), Inspected::Frame { .. }));
    let longer = [&stream[..], b"!"].concat();
    for wrong in [
        inspected(&longer, &original),
        inspected(&stream[1..], &original),
        inspected(&stream, b"other length"),
    ] {
        assert!(matches!(wrong, Inspected::Invalid(FrameError::Payload { .. })));
    }
}

#[test]
fn a_dictionary_frame_states_id_and_length() {
    let (header, value, original) = dictionary_frame(DictionaryId::MAX);
    let found = Inspected::Frame { header, payload: 8..value.len() };
    assert_eq!(inspect(&value, MAX), found);
    assert_eq!(header.dictionary_id.map(DictionaryId::get), Some(0xFF_FFFF));
    assert!(header.verify(KEY, &original));
    let too_long = FrameError::TooLong { original_bytes: 100, original_bytes_max: 99 };
    assert_eq!(inspect(&value, 99), Inspected::Invalid(too_long));
}

#[test]
fn dictionary_ids_have_three_bytes_and_are_not_zero() {
    assert_eq!(DictionaryId::new(0), None);
    assert_eq!(DictionaryId::new(1 << 24), None);
    assert_eq!(DictionaryId::new(1).map(DictionaryId::get), Some(1));
}

#[test]
fn a_cut_off_dictionary_id_of_version_1_is_truncated() {
    let mut value = frame(V1, Encoding::Stored, b"abc");
    value[6] = 1;
    assert_eq!(invalid(&value), FrameError::Truncated { bytes: value.len() });
}

#[test]
fn a_frame_under_another_key_is_a_miss() {
    for (value, original) in small_frames() {
        let Inspected::Frame { header, .. } = inspect(&value, MAX) else { panic!("a frame") };
        assert!(header.verify(KEY, &original));
        let is_bound = header.version == V2;
        assert_eq!(header.verify(b"keY", &original), !is_bound);
        assert_eq!(header.verify(b"", &original), !is_bound);
    }
}

/// Returns the length of the magic, whose damage nothing detects.
fn magic_bytes(value: &[u8]) -> usize {
    if value.starts_with(&MAGIC) { MAGIC.len() } else { 1 }
}

/// A flipped bit inside the magic makes the value foreign, because nothing else marks it as a
/// frame. Closed fleets forbid foreign values for that reason.
#[test]
fn every_flipped_bit_past_the_magic_is_a_miss() {
    for (value, original) in small_frames() {
        for bit in 8 * magic_bytes(&value)..8 * value.len() {
            let mut bad = value.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let Inspected::Frame { header, payload } = inspect(&value, MAX) else {
                panic!("{value:02x?} is a frame");
            };
            let is_stream = matches!(header.encoding, Encoding::Compressed(_));
            if is_stream && payload.contains(&(bit / 8)) {
                // The decoder or the checksum of what it decodes detects this. The value must not become foreign.
                assert_ne!(inspect(&bad, MAX), Inspected::Foreign, "{value:02x?}, bit {bit}");
            } else {
                assert_eq!(read(&bad, &original), None, "{value:02x?}, bit {bit}");
            }
        }
    }
}

#[test]
fn every_truncation_is_a_miss() {
    for (value, original) in small_frames() {
        for bytes in magic_bytes(&value)..value.len() {
            assert_eq!(read(&value[..bytes], &original), None, "{value:02x?}, {bytes} bytes");
        }
    }
}

#[test]
fn every_extension_is_a_miss() {
    for (value, original) in small_frames() {
        for more in [&b"m"[..], b"more", &[0; 70]] {
            assert_eq!(read(&[&value, more].concat(), &original), None, "{value:02x?}");
        }
    }
}

#[test]
fn bytes_that_no_frame_begins_with_are_foreign() {
    // All of these begin with a magic byte. The last four are the heads of xz files with each kind of check.
    let values = [
        &b"\xFC\x5F binary header of another program"[..],
        b"\xFC\xFF\xFE\xFD",
        b"\xFD\x00\x01\x02\x03\x04\x05\x06\xFF more bytes",
        b"\xFD7zXZ\x00\x00\x00\xFF\x12\xD9\x41\x02\x00\x21\x01",
        b"\xFD7zXZ\x00\x00\x01\x69\x22\xDE\x36\x02\x00\x21\x01",
        b"\xFD7zXZ\x00\x00\x04\xE6\xD6\xB4\x46\x02\x00\x21\x01",
        b"\xFD7zXZ\x00\x00\x0A\xE1\xFB\x0C\xA1\x02\x00\x21\x01",
    ];
    for value in values {
        assert_eq!(inspect(value, MAX), Inspected::Foreign, "{value:02x?}");
    }
}

/// Returns how many of 100,000 random values of `bytes` bytes that begin with `magic` are frames and how many are not
/// served.
fn taken_of_random(magic: u8, bytes: usize) -> (usize, usize) {
    let mut draws = Prng::new(u64::from(magic));
    let (mut frames, mut misses) = (0, 0);
    let mut value = vec![0; bytes];
    for _ in 0..100_000 {
        draws.fill(&mut value);
        value[0] = magic;
        let found = inspect(&value, MAX);
        frames += usize::from(matches!(found, Inspected::Frame { .. }));
        misses += usize::from(found != Inspected::Foreign);
    }
    (frames, misses)
}

#[test]
fn random_bytes_are_taken_for_frames_as_rarely_as_documented() {
    for bytes in [20, 100, 1_000, 10_000] {
        let (frames, misses) = taken_of_random(0xFC, bytes);
        assert!(frames < 6_500 && misses < 33_500, "{bytes} bytes: {frames}, {misses}");
        let (frames, misses) = taken_of_random(0xFD, bytes);
        assert!(frames == 0 && misses < 1_250, "{bytes} bytes: {frames}, {misses}");
    }
    let (frames, misses) = taken_of_random(0xFC, 60_000);
    assert!(frames < 700 && misses < 14_500, "{frames}, {misses}");
}

proptest! {
    #[test]
    fn frames_round_trip(original in prop::collection::vec(any::<u8>(), 0..600)) {
        for version in FrameVersion::ALL {
            let value = frame(version, Encoding::Stored, &original);
            prop_assert_eq!(read(&value, b""), Some(original.clone()));
        }
    }

    #[test]
    fn same_filled_frames_round_trip(byte: u8, bytes in 1..100_000_usize) {
        let original = vec![byte; bytes];
        prop_assert_eq!(same_filled(&original), Some(byte));
        for version in FrameVersion::ALL {
            let value = frame(version, Encoding::SameFilled, &original);
            prop_assert_eq!(read(&value, b""), Some(original.clone()));
        }
    }

    #[test]
    fn headers_round_trip(
        version in prop::sample::select(FrameVersion::ALL.as_slice()),
        codec in prop::sample::select(vec![Codec::Deflate, Codec::Lz4]),
        window_log2 in prop::sample::select(vec![0, 8, 9, 12, 15, 16, 31]),
        key in prop::collection::vec(any::<u8>(), 0..250),
        original in prop::collection::vec(any::<u8>(), 100..200),
        payload in prop::collection::vec(any::<u8>(), 1..90),
    ) {
        let encoding = Encoding::Compressed(codec);
        let header = Header::seal(version, encoding, window_log2, &key, &original, payload.len());
        let value = framed(&header, &payload);
        let found = Inspected::Frame { header, payload: header.header_bytes()..value.len() };
        prop_assert_eq!(inspect(&value, MAX), found);
        prop_assert!(header.verify(&key, &original));

        // The header detects bytes appended to the payload, even if the decoder ignores them.
        let longer = [&value, &b"more"[..]].concat();
        let Inspected::Frame { header, .. } = inspect(&longer, MAX) else {
            return Err(TestCaseError::fail("still a frame"));
        };
        prop_assert!(!header.verify(&key, &original));
    }

    #[test]
    fn a_frame_has_one_header(value in prop::collection::vec(any::<u8>(), 0..64), magic: bool) {
        let value = [&[if magic { 0xFC } else { 0xFD }], &value[..]].concat();
        if let Inspected::Frame { header, payload } = inspect(&value, MAX) {
            prop_assert_eq!(framed(&header, &value[payload]), value);
        }
    }

    #[test]
    fn hostile_bytes_behind_the_magic_never_panic(
        tail in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let value = [&MAGIC[..], &tail].concat();
        prop_assert_ne!(inspect(&value, MAX), Inspected::Foreign);
    }
}

fn sealed_header(original_bytes: u32) -> SealedHeader {
    let key_id = KeyId::new(513).expect("a valid id");
    SealedHeader { key_id, original_bytes, nonce: std::array::from_fn(|index| index as u8) }
}

/// Returns a value of which this module cannot tell that nobody sealed it.
fn sealed(original_bytes: u32, body_bytes: usize) -> Vec<u8> {
    [&sealed_header(original_bytes).encode()[..], &vec![0xAA; body_bytes]].concat()
}

#[test]
fn a_sealed_value_has_the_documented_layout() {
    let value = sealed(70_000, 20);
    assert_eq!(value[..8], [0xFE, 1, 1, 2, 0x70, 0x11, 1, 0]);
    assert_eq!(value[8..20], std::array::from_fn::<u8, 12, _>(|index| index as u8));
    let header = sealed_header(70_000);
    assert_eq!(inspect(&value, MAX), Inspected::Sealed { header, body: 20..40 });
    let inside = &value[..SealedHeader::OVERHEAD_BYTES];
    assert!(matches!(inspect(inside, MAX), Inspected::Sealed { body, .. } if body == (20..36)));
}

#[test]
fn what_looks_almost_like_a_sealed_value_is_never_foreign() {
    let value = sealed(100, 16);
    for bytes in 1..value.len() {
        let truncated = FrameError::SealTruncated { bytes };
        assert_eq!(inspect(&value[..bytes], MAX), Inspected::Invalid(truncated));
    }
    for bit in 0..8 {
        let mut flipped = value.clone();
        flipped[1] ^= 1 << bit;
        let invalid = Inspected::Invalid(FrameError::SealKind(flipped[1]));
        assert_eq!(inspect(&flipped, MAX), invalid);
    }
    let mut no_key = value.clone();
    no_key[2..4].fill(0);
    assert_eq!(inspect(&no_key, MAX), Inspected::Invalid(FrameError::SealKeyZero));
    let too_long = FrameError::TooLong { original_bytes: 100, original_bytes_max: 99 };
    assert_eq!(inspect(&value, 99), Inspected::Invalid(too_long));
    assert!(!too_long.is_of_seal() && FrameError::SealKeyZero.is_of_seal());
    let mut foreign = value;
    foreign[1] = 0xFF;
    assert_eq!(inspect(&foreign, MAX), Inspected::Foreign);
    assert!(must_wrap(&foreign) && looks_sealed(&foreign));
}

proptest! {
    #[test]
    fn associated_data_differ_unless_all_of_their_parts_are_equal(
        one in ("[a-c]{0,3}", "[a-c]{0,3}", 0_u32..2),
        two in ("[a-c]{0,3}", "[a-c]{0,3}", 0_u32..2),
    ) {
        let data = |(tenant, key, bytes): &(String, String, u32)| {
            sealed_header(*bytes).associated_data(tenant, key.as_bytes())
        };
        prop_assert_eq!(data(&one) == data(&two), one == two);
    }
}
