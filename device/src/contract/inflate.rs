//! A slow, strict reader of raw deflate. It records how far back a stream reaches, which is the window that a device
//! needs to read the stream. It is for checks of streams and not for serving.

/// A decompressed stream.
#[derive(Debug)]
pub struct Inflated {
    /// The original bytes.
    pub bytes: Vec<u8>,
    /// The largest distance over which a match reaches back (bytes).
    pub reach_bytes: usize,
}

/// Reads one whole stream (RFC 1951) of at most `bytes_max` original bytes. Returns none for any other input,
/// including a stream with bytes after its end.
pub fn inflate(stream: &[u8], bytes_max: usize) -> Option<Inflated> {
    let mut bits = Bits { stream, position: 0 };
    let mut inflated = Inflated { bytes: Vec::new(), reach_bytes: 0 };
    loop {
        let last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => inflated.stored(&mut bits, bytes_max)?,
            1 => {
                let (literals, distances) = fixed_codes();
                inflated.coded(&mut bits, &literals, &distances, bytes_max)?;
            }
            2 => {
                let (literals, distances) = dynamic_codes(&mut bits)?;
                inflated.coded(&mut bits, &literals, &distances, bytes_max)?;
            }
            _ => return None,
        }
        if last {
            return (bits.position.div_ceil(8) == stream.len()).then_some(inflated);
        }
    }
}

impl Inflated {
    fn stored(&mut self, bits: &mut Bits<'_>, bytes_max: usize) -> Option<()> {
        bits.position = bits.position.next_multiple_of(8);
        let (length, check) = (bits.take(16)?, bits.take(16)?);
        let start = bits.position / 8;
        let block = bits.stream.get(start..start + length)?;
        if check != length ^ 0xFFFF || self.bytes.len() + length > bytes_max {
            return None;
        }
        self.bytes.extend_from_slice(block);
        bits.position += length * 8;
        Some(())
    }

    fn coded(
        &mut self,
        bits: &mut Bits<'_>,
        literals: &Code,
        distances: &Code,
        bytes_max: usize,
    ) -> Option<()> {
        loop {
            let symbol = literals.symbol(bits)?;
            match symbol {
                0..=255 if self.bytes.len() < bytes_max => self.bytes.push(symbol as u8),
                256 => return Some(()),
                257..=285 => {
                    let (base, extra) = LENGTHS[symbol - 257];
                    let length = base + bits.take(extra)?;
                    let (base, extra) = distance_base(distances.symbol(bits)?)?;
                    let distance = base + bits.take(extra)?;
                    self.copy(length, distance, bytes_max)?;
                }
                _ => return None,
            }
        }
    }

    fn copy(&mut self, length: usize, distance: usize, bytes_max: usize) -> Option<()> {
        let start = self.bytes.len().checked_sub(distance)?;
        if self.bytes.len() + length > bytes_max {
            return None;
        }
        self.reach_bytes = self.reach_bytes.max(distance);
        for index in start..start + length {
            self.bytes.push(self.bytes[index]);
        }
        Some(())
    }
}

struct Bits<'a> {
    stream: &'a [u8],
    position: usize,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> Option<usize> {
        let mut value = 0;
        for shift in 0..count {
            let byte = *self.stream.get(self.position / 8)?;
            value |= usize::from(byte >> (self.position % 8) & 1) << shift;
            self.position += 1;
        }
        Some(value)
    }
}

/// A canonical prefix code: the number of codes of each length, and the symbols in the order of their codes.
struct Code {
    counts: [usize; LENGTH_MAX + 1],
    symbols: Vec<usize>,
}

impl Code {
    fn new(lengths: &[usize]) -> Self {
        let mut counts = [0; LENGTH_MAX + 1];
        let mut symbols: Vec<usize> = (0..lengths.len()).filter(|s| lengths[*s] > 0).collect();
        // The sort is stable, so the symbols of one length stay in their order.
        symbols.sort_by_key(|symbol| lengths[*symbol]);
        for symbol in &symbols {
            counts[lengths[*symbol]] += 1;
        }
        Self { counts, symbols }
    }

    fn symbol(&self, bits: &mut Bits<'_>) -> Option<usize> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for count in &self.counts[1..] {
            code = code << 1 | bits.take(1)?;
            first <<= 1;
            if code < first + count {
                return self.symbols.get(index + code - first).copied();
            }
            first += count;
            index += count;
        }
        None
    }
}

fn fixed_codes() -> (Code, Code) {
    let length = |symbol| match symbol {
        0..=143 => 8,
        144..=255 => 9,
        256..=279 => 7,
        _ => 8,
    };
    (Code::new(&(0..288).map(length).collect::<Vec<_>>()), Code::new(&[5; 30]))
}

fn dynamic_codes(bits: &mut Bits<'_>) -> Option<(Code, Code)> {
    let literal_count = bits.take(5)? + 257;
    let distance_count = bits.take(5)? + 1;
    let mut lengths = [0; 19];
    let order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    for symbol in &order[..bits.take(4)? + 4] {
        lengths[*symbol] = bits.take(3)?;
    }
    let header = Code::new(&lengths);
    let mut lengths: Vec<usize> = Vec::new();
    while lengths.len() < literal_count + distance_count {
        let (length, repeats) = match header.symbol(bits)? {
            16 => (*lengths.last()?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length, 1),
        };
        lengths.extend(std::iter::repeat_n(length, repeats));
    }
    if lengths.len() != literal_count + distance_count {
        return None;
    }
    let (literals, distances) = lengths.split_at(literal_count);
    Some((Code::new(literals), Code::new(distances)))
}

/// Returns the base and the number of extra bits of a distance symbol. After the first four symbols, there are two
/// symbols per doubling.
fn distance_base(symbol: usize) -> Option<(usize, u32)> {
    match symbol {
        0..=3 => Some((symbol + 1, 0)),
        4..=29 => {
            let extra = symbol as u32 / 2 - 1;
            Some((((2 + symbol % 2) << extra) + 1, extra))
        }
        _ => None,
    }
}

const LENGTH_MAX: usize = 15;

/// The base and the number of extra bits of each length symbol from 257 on.
const LENGTHS: [(usize, u32); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_fixed_block_and_its_reach() {
        // "abc" four times: three literals and one match of length 9 at distance 3.
        let stream = [0x4b, 0x4c, 0x4a, 0x4e, 0x84, 0x21, 0x00];
        let inflated = inflate(&stream, 100).expect("a valid stream");
        assert_eq!((inflated.bytes.as_slice(), inflated.reach_bytes), (&b"abcabcabcabc"[..], 3));
        assert!(inflate(&stream, 11).is_none(), "longer than allowed");
        assert!(inflate(&stream[..6], 100).is_none(), "truncated");
    }

    #[test]
    fn reads_what_libdeflate_writes() {
        let original: Vec<u8> =
            (0..100_000u32).flat_map(|i| (i.wrapping_mul(i) / 700).to_le_bytes()).collect();
        let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::best());
        let mut stream = vec![0; original.len()];
        let bytes = compressor.deflate_compress(&original, &mut stream).expect("it shrinks");
        let inflated = inflate(&stream[..bytes], original.len()).expect("a valid stream");
        assert_eq!(inflated.bytes, original);
        assert!((4_096..=32_768).contains(&inflated.reach_bytes), "{}", inflated.reach_bytes);
    }
}
