//! Values to store, as functions of a length. They range from values that compress well to values that cannot be
//! compressed. The same name and length give the same bytes in every run.

use units::Prng;

/// The first bytes of version 1 of Rebate's stored form (docs/format.md). A client's value may also start with them.
pub const FRAME_MAGIC: &[u8] = &[0xFB, b'R', b'b'];

/// The first byte of version 2 of Rebate's stored form.
pub const FRAME_MAGIC_2: &[u8] = &[0xFC];

/// The first byte of version 2 with a dictionary.
pub const FRAME_MAGIC_DICTIONARY: &[u8] = &[0xFD];

/// The first bytes of a sealed value.
pub const SEAL_MAGIC: &[u8] = &[0xFE, 1];

/// Returns the payload called `class`, `length` bytes long, or `None` if the name is not known.
pub fn payload(class: &str, length: usize) -> Option<Vec<u8>> {
    Some(match class {
        "text" => text(length),
        "random" => random(length),
        "same" => vec![b'a'; length],
        "zeros" => vec![0; length],
        "digits" => b"1234567890".iter().copied().cycle().take(length).collect(),
        "spaces" => vec![b' '; length],
        "bytes" => (0..=255).cycle().take(length).collect(),
        "lines" => b"VALUE a 0 1\r\nEND\r\n".iter().copied().cycle().take(length).collect(),
        "magic" => headed(FRAME_MAGIC, random(length)),
        "magictext" => headed(FRAME_MAGIC, text(length)),
        "magic2" => headed(FRAME_MAGIC_2, random(length)),
        "magic2text" => headed(FRAME_MAGIC_2, text(length)),
        "magicdictionary" => headed(FRAME_MAGIC_DICTIONARY, random(length)),
        "magicsealed" => headed(SEAL_MAGIC, random(length)),
        "magiczeros" => headed(FRAME_MAGIC, vec![0; length]),
        "gzip" => headed(&[0x1F, 0x8B, 8, 0, 0, 0, 0, 0], random(length)),
        "zstd" => headed(&[0x28, 0xB5, 0x2F, 0xFD], random(length)),
        "lz4" => headed(&[0x04, 0x22, 0x4D, 0x18], random(length)),
        "jpeg" => headed(&[0xFF, 0xD8, 0xFF, 0xE0], random(length)),
        "numbertext" => headed(b"12 ", text(length)),
        _ => return None,
    })
}

/// Returns markup with many repeats, which compresses to a fraction of its size.
pub fn text(length: usize) -> Vec<u8> {
    let words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"];
    let mut prng = Prng::new(length as u64);
    let mut bytes = Vec::with_capacity(length + 64);
    while bytes.len() < length {
        let word = words[prng.below(words.len() as u64) as usize];
        let line = format!("<li class=\"{word}\"><a href=\"/{word}/\">{word}</a></li>\n");
        bytes.extend_from_slice(line.as_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Returns random bytes, which cannot be compressed.
pub fn random(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Prng::new(!(length as u64)).fill(&mut bytes);
    bytes
}

/// Encodes bytes in base64 with padding, which meta commands expect for binary keys.
pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let sextet = (bits >> (18 - 6 * place)) as usize & 63;
            out.push(if place <= group.len() { ALPHABET[sextet] as char } else { '=' });
        }
    }
    out
}

fn headed(head: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
    let count = head.len().min(bytes.len());
    bytes[..count].copy_from_slice(&head[..count]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_as_rfc_4648_says() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, coded) in cases {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn payloads_have_the_length_asked_for() {
        for class in ["text", "random", "magic", "gzip", "digits", "bytes", "lines"] {
            for length in [0, 1, 3, 100, 5_000] {
                assert_eq!(payload(class, length).map(|bytes| bytes.len()), Some(length));
            }
        }
    }
}
