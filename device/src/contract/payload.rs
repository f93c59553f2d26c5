//! Repeatable test data for devices, by class, size and seed. The classes exercise different code paths of
//! codecs.

use units::Prng;

/// A class of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Words with markup. They have many matches and many literals.
    Text,
    /// Lines of numbers. They have few long matches.
    Numbers,
    /// Bytes that do not shrink.
    Random,
    /// One byte, repeated.
    Zeros,
    /// A repetition with a period above 4 KiB, which only a wide window finds.
    FarRepeat,
}

impl Payload {
    /// Every class.
    pub const ALL: [Payload; 5] =
        [Payload::Text, Payload::Numbers, Payload::Random, Payload::Zeros, Payload::FarRepeat];

    /// Returns `count` bytes of the class.
    pub fn bytes(self, count: usize, seed: u64) -> Vec<u8> {
        let mut draws = Prng::new(seed ^ self as u64);
        let mut bytes = Vec::with_capacity(count + LINE_BYTES_MAX);
        match self {
            Payload::Text => fill(&mut bytes, count, |bytes| text(bytes, &mut draws)),
            Payload::Numbers => fill(&mut bytes, count, |bytes| numbers(bytes, &mut draws)),
            Payload::Random => {
                bytes.resize(count, 0);
                draws.fill(&mut bytes);
            }
            Payload::Zeros => bytes.resize(count, 0),
            Payload::FarRepeat => {
                let mut period = [0; 5_000];
                draws.fill(&mut period);
                fill(&mut bytes, count, |bytes| bytes.extend_from_slice(&period));
            }
        }
        bytes
    }
}

fn fill(bytes: &mut Vec<u8>, count: usize, mut add: impl FnMut(&mut Vec<u8>)) {
    while bytes.len() < count {
        add(bytes);
    }
    bytes.truncate(count);
}

fn text(bytes: &mut Vec<u8>, draws: &mut Prng) {
    const WORDS: [&str; 24] = [
        "the", "cache", "of", "a", "value", "request", "and", "memory", "is", "latency", "server",
        "in", "key", "to", "offload", "queue", "device", "window", "stream", "for", "bytes",
        "match", "literal", "with",
    ];
    let row = draws.below(10_000);
    bytes.extend_from_slice(format!("<tr class=\"row-{row}\"><td>").as_bytes());
    for _ in 0..draws.below(12) + 3 {
        // The square of a uniform draw prefers the first words, as language does.
        let skewed = (draws.unit() * draws.unit() * WORDS.len() as f64) as usize;
        bytes.extend_from_slice(WORDS[skewed].as_bytes());
        bytes.push(b' ');
    }
    bytes.extend_from_slice(b"</td></tr>\n");
}

fn numbers(bytes: &mut Vec<u8>, draws: &mut Prng) {
    let (sequence, price, size) = (bytes.len() / 30, 9_000 + draws.below(400), draws.below(1_000));
    let line =
        format!("{sequence},{}.{:02},{size},{:.6}\n", price / 100, price % 100, draws.unit());
    bytes.extend_from_slice(line.as_bytes());
}

/// An upper bound on the bytes that a class adds at once, so that filling allocates once.
const LINE_BYTES_MAX: usize = 8_192;
