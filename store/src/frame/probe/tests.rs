//! Tests the probes with values whose content is known.

use proptest::prelude::*;
use units::Prng;

use super::*;

fn random(bytes: usize, seed: u64) -> Vec<u8> {
    let mut prng = Prng::new(seed);
    (0..bytes).map(|_| prng.below(256) as u8).collect()
}

fn random_of(symbols: &[u8], bytes: usize, seed: u64) -> Vec<u8> {
    let mut prng = Prng::new(seed);
    (0..bytes).map(|_| symbols[prng.below(symbols.len() as u64) as usize]).collect()
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[test]
fn random_bytes_read_about_8_bits_whatever_the_size() {
    for bytes in [64, 100, 256, 777, 1024, 1025, 4096, 1 << 20] {
        for seed in 0..20 {
            let bits = entropy_probe(&random(bytes, seed));
            assert!((7.6..8.5).contains(&bits), "{bytes} bytes, seed {seed}: {bits}");
        }
    }
}

#[test]
fn text_in_few_symbols_reads_below_the_threshold() {
    for bytes in [64, 100, 256, 1024, 1 << 16] {
        for seed in 0..20 {
            let base64 = entropy_probe(&random_of(BASE64, bytes, seed));
            assert!(base64 < 7.5, "{bytes} bytes, seed {seed}: {base64}");
            let hex = entropy_probe(&random_of(b"0123456789abcdef", bytes, seed));
            assert!(hex < 5.5, "{bytes} bytes, seed {seed}: {hex}");
        }
    }
}

#[test]
fn values_without_variety_read_zero() {
    for value in [&b""[..], b"a", b"aaaaaaaa", &[7; 5000]] {
        assert_eq!(entropy_probe(value), 0.0);
    }
}

#[test]
fn a_sample_sees_a_compressed_tail() {
    let value = [vec![b' '; 1 << 16], random(1 << 16, 3)].concat();
    let bits = entropy_probe(&value);
    assert!((4.0..6.5).contains(&bits), "{bits}");
}

#[test]
fn numbers_stay_raw() {
    for value in [&b"0"[..], b"18446744073709551615", b"42   ", b" 42", b"+1"] {
        assert!(is_number(value), "{}", value.escape_ascii());
    }
    for value in [&b""[..], b"   ", b"1a", b"1.5", b"-1", b"123456789012345678901", b"1 2"] {
        assert!(!is_number(value), "{}", value.escape_ascii());
    }
}

#[test]
fn compressed_formats_are_known_by_their_magic() {
    let known: [(&[u8], &str); 12] = [
        (b"\x1F\x8B\x08\x00rest", "gzip"),
        (b"\x78\x9Crest", "zlib"),
        (b"\x28\xB5\x2F\xFDrest", "zstd"),
        (b"\x04\x22\x4D\x18rest", "lz4"),
        (b"\xFD7zXZ\x00rest", "xz"),
        (b"BZh91AY&SYrest", "bzip2"),
        (b"\x89PNG\r\n\x1A\nrest", "png"),
        (b"\xFF\xD8\xFF\xE0rest", "jpeg"),
        (b"RIFF\x00\x01\x00\x00WEBPVP8 ", "webp"),
        (b"\x00\x00\x00\x18ftypmp42", "mp4"),
        (b"\x10\x27\x00\x00\x78\xDArest", "php-zlib"),
        (b"\x10\x27\x00\x00\x28\xB5\x2F\xFDrest", "php-zstd"),
    ];
    for (value, name) in known {
        assert_eq!(looks_compressed(value), Some(name));
    }
    let unknown: [&[u8]; 7] = [
        b"",
        b"x",
        b"<html>",
        b"RIFF\x00\x01\x00\x00WAVEfmt ",
        b"BZh is a word",
        b"{}",
        b"\x78\x00",
    ];
    for value in unknown {
        assert_eq!(looks_compressed(value), None, "{}", value.escape_ascii());
    }
}

proptest! {
    #[test]
    fn same_filled_is_exact(value in prop::collection::vec(0_u8..2, 0..200)) {
        let same = value.first().filter(|&first| value.iter().all(|byte| byte == first));
        prop_assert_eq!(same_filled(&value), same.copied());
    }

    #[test]
    fn probes_take_any_bytes(value in prop::collection::vec(any::<u8>(), 0..3000)) {
        let bits = entropy_probe(&value);
        prop_assert!((0.0..=10.0).contains(&bits), "{}", bits);
        looks_compressed(&value);
        is_number(&value);
    }
}

#[test]
fn the_scale_is_the_documented_one() {
    for (bytes, expected) in [(256, 7.17), (1024, 7.81)] {
        let found = TABLES.expected_when_random(bytes);
        assert!((found - expected).abs() < 0.01, "{bytes} bytes: {found}");
    }
    let base64 = entropy_probe(&random_of(BASE64, 1024, 1));
    assert!((base64 - 6.1).abs() < 0.1, "{base64}");
}
