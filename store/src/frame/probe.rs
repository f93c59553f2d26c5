//! Properties of a value that a writer checks before it decides how to store the value. Each check
//! takes at most about a microsecond. The policy sets the thresholds.

use std::sync::LazyLock;

/// Returns the byte that the whole value repeats, or none if its bytes differ.
pub fn same_filled(value: &[u8]) -> Option<u8> {
    // A value equals itself shifted by one exactly if all its bytes are equal. The comparison is a
    // memcmp, which stops at the first bytes of most other values.
    let (&first, rest) = value.split_first()?;
    (rest == &value[..rest.len()]).then_some(first)
}

/// Returns whether the value is a number in the form that memcached's incr and decr write: digits, perhaps
/// with blanks around them. Such values stay raw, so that any memcached can still increment them.
pub fn is_number(value: &[u8]) -> bool {
    let digits = value.trim_ascii();
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    (1..=NUMBER_DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
}

/// Returns the compressed format that the value's first bytes announce, or none. Brotli and raw
/// deflate have no magic; [`entropy_probe`] finds them.
pub fn looks_compressed(value: &[u8]) -> Option<&'static str> {
    format_by_magic(value).or_else(|| {
        // php-memcached writes the original length in front of the stream.
        let (_, stream) = value.split_first_chunk::<4>()?;
        match format_by_magic(stream)? {
            "zlib" => Some("php-zlib"),
            "zstd" => Some("php-zstd"),
            _ => None,
        }
    })
}

/// Returns the order-0 entropy of a sample of the value [bits per byte]. It is scaled so that
/// uniformly random bytes have about 8 for every sample size. An empty value has 0.
///
/// A value up to 1 KiB is sampled whole. A longer value is sampled in 16 evenly spread runs of 64 bytes, so
/// the cost is bounded (under a microsecond). A small sample underestimates the entropy: random bytes have an
/// expected estimate of 7.81 bits for 1 KiB and of 7.17 bits for 256 bytes. The result is therefore scaled by
/// 8 divided by this expectation. Text with few symbols stays below 8: hex has under 5.5 and base64 under 7.5
/// even in 64 bytes (6.1 in 1 KiB). A threshold of 7.5 thus separates compressed or encrypted data from data
/// that Huffman coding alone still shrinks. Below 64 bytes the estimate says little.
pub fn entropy_probe(value: &[u8]) -> f32 {
    let tables = &*TABLES;
    let mut counts = [[0u16; 256]; LANES];
    let sample_bytes = value.len().min(SAMPLE_BYTES);
    if value.len() <= SAMPLE_BYTES {
        count(&mut counts, value);
    } else {
        for run in 0..RUNS {
            let start = run * (value.len() - RUN_BYTES) / (RUNS - 1);
            count(&mut counts, &value[start..start + RUN_BYTES]);
        }
    }
    let [a, b, c, d] = &counts;
    let mut sum = 0.0;
    for byte in 0..256 {
        sum += tables.count_log2[usize::from(a[byte] + b[byte] + c[byte] + d[byte])];
    }
    tables.entropy(sum, sample_bytes)
}

const NUMBER_DIGITS_MAX: usize = 20;

const RUNS: usize = 16;
const RUN_BYTES: usize = 64;
const SAMPLE_BYTES: usize = RUNS * RUN_BYTES;

/// The number of histograms, which are filled in turn. With a single histogram, each increment in a
/// run of equal bytes would wait for the previous store.
const LANES: usize = 4;

fn count(counts: &mut [[u16; 256]; LANES], bytes: &[u8]) {
    let (groups, rest) = bytes.as_chunks::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            counts[lane][usize::from(group[lane])] += 1;
        }
    }
    for &byte in rest {
        counts[0][usize::from(byte)] += 1;
    }
}

static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

struct Tables {
    /// `n * log2(n)` for every count `n`, so that the probe computes no logarithms.
    count_log2: [f32; SAMPLE_BYTES + 1],
    /// 8 divided by the expected entropy of `n` uniformly random bytes.
    scale: [f32; SAMPLE_BYTES + 1],
}

impl Tables {
    fn new() -> Self {
        let mut tables =
            Self { count_log2: [0.0; SAMPLE_BYTES + 1], scale: [0.0; SAMPLE_BYTES + 1] };
        for n in 2..=SAMPLE_BYTES {
            tables.count_log2[n] = (n as f32) * (n as f32).log2();
        }
        for n in 2..=SAMPLE_BYTES {
            tables.scale[n] = 8.0 / tables.expected_when_random(n);
        }
        tables
    }

    /// Returns the expected entropy of `n` uniformly random bytes. The count of each byte value is
    /// binomial(n, 1/256).
    fn expected_when_random(&self, n: usize) -> f32 {
        let p = 1.0 / 256.0;
        let mut probability = (1.0f64 - p).powi(n as i32);
        let mut expected = 0.0f64;
        for count in 0..n.min(COUNT_IMPROBABLE) {
            expected += probability * f64::from(self.count_log2[count]);
            probability *= (n - count) as f64 / (count + 1) as f64 * p / (1.0 - p);
        }
        (n as f32).log2() - (256.0 * expected / n as f64) as f32
    }

    fn entropy(&self, sum: f32, n: usize) -> f32 {
        if n < 2 {
            return 0.0;
        }
        ((n as f32).log2() - sum / n as f32).max(0.0) * self.scale[n]
    }
}

/// A count that no byte value reaches in 1 KiB of random bytes (the mean is 4).
const COUNT_IMPROBABLE: usize = 48;

fn format_by_magic(value: &[u8]) -> Option<&'static str> {
    let at = |offset: usize, magic: &[u8]| {
        value.get(offset..).is_some_and(|rest| rest.starts_with(magic))
    };
    let name = match value {
        [0x1F, 0x8B, 8, ..] => "gzip",
        [0x78, 0x01 | 0x5E | 0x9C | 0xDA, ..] => "zlib",
        [0x28, 0xB5, 0x2F, 0xFD, ..] => "zstd",
        [0x04, 0x22, 0x4D, 0x18, ..] => "lz4",
        [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => "xz",
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, ..] => "bzip2",
        [0xFF, 0x06, 0x00, 0x00, b's', b'N', b'a', b'P', b'p', b'Y', ..] => "snappy",
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => "png",
        [0xFF, 0xD8, 0xFF, ..] => "jpeg",
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => "gif",
        [b'P', b'K', 3, 4, ..] => "zip",
        [b'7', b'z', 0xBC, 0xAF, 0x27, 0x1C, ..] => "7z",
        [b'O', b'g', b'g', b'S', ..] => "ogg",
        [b'f', b'L', b'a', b'C', ..] => "flac",
        [b'w', b'O', b'F', b'2', ..] => "woff2",
        [0x1A, 0x45, 0xDF, 0xA3, ..] => "matroska",
        // A RIFF file may also hold plain samples. Only its WEBP kind is known to be compressed.
        [b'R', b'I', b'F', b'F', ..] if at(8, b"WEBP") => "webp",
        _ if at(4, b"ftyp") => "mp4",
        _ => return None,
    };
    Some(name)
}

#[cfg(test)]
mod tests;
